//! What Kafka's performance tools print, read into numbers.
//!
//! The tools print megabytes of 2^20 bytes; here only counts and times are read, and bytes are
//! computed from counts.

use anyhow::{Context, Result};

/// Latencies in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Latency {
    /// Arithmetic mean.
    pub(crate) mean: f64,
    /// Median.
    pub(crate) p50: f64,
    /// 99th percentile.
    pub(crate) p99: f64,
    /// 99.9th percentile.
    pub(crate) p999: f64,
}

/// What a producer did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Produced {
    /// Records that were acknowledged.
    pub(crate) records: u64,
    /// Records a second, from the first send to the last acknowledgement.
    pub(crate) rate: f64,
    /// Missing when the tool was cut off before its summary.
    pub(crate) latency: Option<Latency>,
}

/// What a consumer did.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Consumed {
    /// Records that arrived.
    pub(crate) records: u64,
    /// Seconds of fetching, without the time to join the group.
    pub(crate) seconds: f64,
}

/// Reads `ProducerPerformance`: its last summary (the steady state, when it was asked for one),
/// or the sum of its progress lines when it was cut off.
///
/// # Errors
/// When there is neither.
pub(crate) fn producer(output: &str) -> Result<Produced> {
    let lines: Vec<_> = output.lines().filter_map(producer_line).collect();
    if let Some(summary) = lines.iter().rev().find(|line| line.latency.is_some()) {
        return Ok(*summary);
    }
    let records: u64 = lines.iter().map(|line| line.records).sum();
    let seconds: f64 =
        lines.iter().filter(|line| line.rate > 0.0).map(|l| l.records as f64 / l.rate).sum();
    if records == 0 || seconds <= 0.0 {
        anyhow::bail!("the producer tool gave no numbers: {}", super::process::last(output));
    }
    Ok(Produced { records, rate: records as f64 / seconds, latency: None })
}

fn producer_line(line: &str) -> Option<Produced> {
    let (records, rest) = line.split_once(" records sent, ")?;
    let records = records.strip_suffix(" steady state").unwrap_or(records).trim().parse().ok()?;
    let (rate, rest) = rest.split_once(" records/sec")?;
    let mut latency =
        Latency { mean: before(rest, " ms avg latency")?, p50: 0.0, p99: 0.0, p999: 0.0 };
    let percentiles = [" ms 50th", " ms 99th", " ms 99.9th"].map(|mark| before(rest, mark));
    let latency = if let [Some(p50), Some(p99), Some(p999)] = percentiles {
        (latency.p50, latency.p99, latency.p999) = (p50, p99, p999);
        Some(latency)
    } else {
        None
    };
    Some(Produced { records, rate: rate.parse().ok()?, latency })
}

/// Reads `ConsumerPerformance`: its one line of values below the header.
///
/// # Errors
/// When there is no such line.
pub(crate) fn consumer(output: &str) -> Result<Consumed> {
    let line = |line: &str| {
        let fields: Vec<_> = line.split(',').map(str::trim).collect();
        let records = fields.get(4)?.parse().ok()?;
        let millis: f64 = fields.get(7)?.parse().ok()?;
        Some(Consumed { records, seconds: millis / 1000.0 })
    };
    output
        .lines()
        .find_map(line)
        .with_context(|| format!("no numbers of a consumer: {}", super::process::last(output)))
}

/// Reads `EndToEndLatency`.
///
/// # Errors
/// When the summary is missing.
pub(crate) fn end_to_end(output: &str) -> Result<Latency> {
    let mean = output.lines().find_map(|line| between(line, "Avg latency: ", " ms"));
    let line = output.lines().find(|line| line.starts_with("Percentiles:")).unwrap_or_default();
    let percentile = |mark: &str| {
        let (_, rest) = line.split_once(mark)?;
        rest.split(',').next()?.trim().parse::<f64>().ok()
    };
    let values = (mean, percentile("50th = "), percentile("99th = "), percentile("99.9th = "));
    if let (Some(mean), Some(p50), Some(p99), Some(p999)) = values {
        return Ok(Latency { mean, p50, p99, p999 });
    }
    anyhow::bail!("no numbers of end-to-end latency: {}", super::process::last(output))
}

/// The number that stands before a mark.
fn before(text: &str, mark: &str) -> Option<f64> {
    let (head, _) = text.split_once(mark)?;
    head.rsplit([' ', ',', '(']).next()?.parse().ok()
}

/// The number between two marks.
fn between(text: &str, from: &str, to: &str) -> Option<f64> {
    text.split_once(from)?.1.split_once(to)?.0.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SUMMARY: &str = "\
2441 records sent, 2393.1 records/sec (2.34 MB/sec), 671.7 ms avg latency, 867.0 ms max latency.
20000 records sent, 4973.887093 records/sec (4.86 MB/sec), 353.69 ms avg latency, 1136.00 ms max \
latency, 210 ms 50th, 897 ms 95th, 937 ms 99th, 968 ms 99.9th.
";

    #[test]
    fn the_summary_of_a_producer_is_read() {
        let latency = Latency { mean: 353.69, p50: 210.0, p99: 937.0, p999: 968.0 };
        let expected = Produced { records: 20_000, rate: 4_973.887_093, latency: Some(latency) };
        assert_eq!(producer(SUMMARY).unwrap(), expected);
    }

    #[test]
    fn the_steady_state_wins() {
        let steady = "15000 steady state records sent, 4961.9 records/sec (4.85 MB/sec), 199.69 ms \
                      avg latency, 867.00 ms max latency, 40 ms 50th, 750 ms 95th, 839 ms 99th, 862 \
                      ms 99.9th.\n";
        let produced = producer(&format!("{SUMMARY}{steady}")).unwrap();
        assert_eq!((produced.records, produced.latency.unwrap().p50), (15_000, 40.0));
    }

    #[test]
    fn a_producer_that_was_cut_off_gives_its_progress() {
        let progress = "100 records sent, 100.0 records/sec (0.01 MB/sec), 1.0 ms avg latency, 2.0 \
                        ms max latency.\n300 records sent, 100.0 records/sec (0.01 MB/sec), 1.0 ms \
                        avg latency, 2.0 ms max latency.\n";
        let produced = producer(progress).unwrap();
        assert_eq!(produced, Produced { records: 400, rate: 100.0, latency: None });
        assert!(producer("org.apache.kafka.common.errors.TimeoutException").is_err());
    }

    #[test]
    fn a_consumer_is_read() {
        let output = "start.time, end.time, data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, \
                      nMsg.sec, rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec\n\
                      2026-11-30 08:20:42:119, 2026-11-30 08:20:44:138, 19.5313, 9.6737, 20000, \
                      9905.8940, 1519, 500, 39.0625, 40000.0000\n";
        assert_eq!(consumer(output).unwrap(), Consumed { records: 20_000, seconds: 0.5 });
        assert!(consumer("WARN x").is_err());
    }

    #[test]
    fn end_to_end_latency_is_read() {
        let output = "0\t168.07\nAvg latency: 6.1880 ms\n\
                      Percentiles: 50th = 4, 99th = 22, 99.9th = 168\n";
        let expected = Latency { mean: 6.188, p50: 4.0, p99: 22.0, p999: 168.0 };
        assert_eq!(end_to_end(output).unwrap(), expected);
        assert!(end_to_end("Avg latency: 6.1880 ms\n").is_err());
    }
}
