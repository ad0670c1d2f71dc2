//! One measurement: a topic, the tools that load it, and what the broker spent meanwhile.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::options::Options;
use super::process::{self, Ended, Process, Stop, run_all};
use super::rows::{Row, Work};
use super::systems::{Running, Setup};
use super::tools::{self, Latency, Produced};

/// Any administrative call gets this long.
const ADMIN_LIMIT: Duration = Duration::from_secs(120);
/// Settings of producers that go as fast as they can.
const FAST: [&str; 3] = ["acks=all", "linger.ms=5", "batch.size=65536"];
/// Settings of producers that send each record at once.
const AT_ONCE: [&str; 2] = ["acks=all", "linger.ms=0"];

/// What one measurement gave.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sample {
    /// Records a second.
    pub(crate) rate: f64,
    /// Bytes of record values a second.
    pub(crate) bytes_rate: f64,
    /// Worst of the clients, where the tool measures it.
    pub(crate) latency: Option<Latency>,
    /// Processor seconds of the broker.
    pub(crate) cpu_seconds: f64,
    /// Processor seconds of the broker per 10^9 bytes of record values.
    pub(crate) cpu_per_gb: f64,
    /// Whether the time limit came before the last record.
    pub(crate) cut: bool,
    /// Why there are no numbers.
    pub(crate) failure: Option<String>,
}

impl Sample {
    /// A measurement without numbers.
    pub(crate) fn failed(why: String) -> Self {
        Self { failure: Some(why), ..Self::default() }
    }

    fn new(rate: f64, size: u64, records: u64, cpu_seconds: f64) -> Self {
        let gigabytes = (records * size) as f64 / 1e9;
        let cpu_per_gb = if records == 0 { 0.0 } else { cpu_seconds / gigabytes };
        Self { rate, bytes_rate: rate * size as f64, cpu_seconds, cpu_per_gb, ..Self::default() }
    }

    /// For the progress of a run.
    pub(crate) fn line(&self) -> String {
        if let Some(why) = &self.failure {
            return format!("FAILED: {why}");
        }
        let latency = self.latency.map_or_else(String::new, |l| {
            format!(", p50 {:.0} p99 {:.0} p99.9 {:.0} ms", l.p50, l.p99, l.p999)
        });
        format!(
            "{:>9.0}/s {:>6.1} MiB/s, {:.2} CPU s/GB{latency}{}",
            self.rate,
            self.bytes_rate / f64::from(1 << 20),
            self.cpu_per_gb,
            if self.cut { ", cut off" } else { "" }
        )
    }
}

/// The load on one broker during one round.
#[derive(Debug)]
pub(crate) struct Client {
    class_path: String,
    bootstrap: String,
    producer: Vec<String>,
    dir: PathBuf,
    stop: Stop,
    topics: u32,
    /// Record sizes that a row of this run will consume.
    consumed: Vec<u64>,
    /// Topics of one producer that were kept to be consumed: record size, name, records.
    kept: Vec<(u64, String, u64)>,
}

impl Client {
    /// A client of `running`, with its logs below `dir`.
    ///
    /// # Errors
    /// When its folder cannot be made.
    pub(crate) fn new(
        setup: &Setup,
        options: &Options,
        running: &Running,
        dir: &Path,
        stop: Stop,
    ) -> Result<Self> {
        let dir = dir.join(format!("clients-{}", running.system.name()));
        std::fs::create_dir_all(&dir)?;
        let consumed = options.rows.iter().filter_map(|row| match row.work {
            Work::Consume { size } => Some(size),
            _ => None,
        });
        Ok(Self {
            class_path: setup.class_path.clone(),
            bootstrap: running.bootstrap.clone(),
            producer: options.producer.clone(),
            dir,
            stop,
            topics: 0,
            consumed: consumed.collect(),
            kept: Vec::new(),
        })
    }

    /// # Errors
    /// When the user asked to stop.
    pub(crate) fn stop_requested(&self) -> Result<()> {
        self.stop.check()
    }

    /// Lets the broker compile its hot paths and load its coordinators, unmeasured.
    ///
    /// # Errors
    /// When a broker cannot take or give 200,000 records.
    pub(crate) fn warm_up(&mut self) -> Result<()> {
        let topic = self.create(8)?;
        let records = 200_000;
        self.fill(&topic, 100, records)?;
        let consumer = self.consumer(&topic, records);
        self.run("ConsumerPerformance", vec![consumer], ADMIN_LIMIT)?;
        self.delete(&topic)
    }

    /// Gives one row of work to the broker.
    ///
    /// # Errors
    /// When a tool fails; what it said is in the error.
    pub(crate) fn measure(&mut self, row: &Row, service: &Process, seconds: u64) -> Result<Sample> {
        let work = row.work;
        let records = work.records(seconds);
        // A broker that is slower than this is slow enough to be called so.
        let limit = Duration::from_secs((6 * seconds).max(30));
        match work {
            Work::Produce { size, producers } => {
                let topic = self.create(work.partitions())?;
                let each = records / producers;
                let tools = (0..producers).map(|_| self.perf(&topic, size, each, None, &FAST));
                let tools = tools.collect();
                let sample = self.produce(service, tools, size, each, limit)?;
                if producers == 1 && self.consumed.contains(&size) && !sample.cut {
                    self.kept.push((size, topic, each));
                } else {
                    self.delete(&topic)?;
                }
                Ok(sample)
            }
            Work::Consume { size } => self.consume(service, size, records, limit),
            Work::Rate { rate } => {
                let topic = self.create(work.partitions())?;
                let warm = 2 * rate;
                let mut tool = self.perf(&topic, work.size(), warm + records, Some(rate), &AT_ONCE);
                tool.args(["--warmup-records", &warm.to_string()]);
                let sample =
                    self.produce(service, vec![tool], work.size(), warm + records, limit)?;
                self.delete(&topic)?;
                Ok(sample)
            }
            Work::EndToEnd => self.end_to_end(service, records, limit),
            Work::ManyPartitions { rate } => {
                let topic = self.create(work.partitions())?;
                let round_robin =
                    "partitioner.class=org.apache.kafka.clients.producer.RoundRobinPartitioner";
                let settings = [AT_ONCE[0], AT_ONCE[1], round_robin];
                // Partitions are made when they are first written; that is not measured.
                let warm = self.perf(&topic, work.size(), 2_000, None, &settings);
                self.run("ProducerPerformance", vec![warm], ADMIN_LIMIT)?;
                let tool = self.perf(&topic, work.size(), records, Some(rate), &settings);
                let sample = self.produce(service, vec![tool], work.size(), records, limit)?;
                self.delete(&topic)?;
                Ok(sample)
            }
        }
    }

    /// Runs producers beside each other; the rate is that of all together, over the time from the
    /// first one's first record to the last one's last.
    fn produce(
        &self,
        service: &Process,
        tools: Vec<Command>,
        size: u64,
        each: u64,
        limit: Duration,
    ) -> Result<Sample> {
        let cpu = service.cpu_seconds()?;
        let ended = self.run("ProducerPerformance", tools, limit)?;
        let cpu = service.cpu_seconds()? - cpu;
        let produced =
            ended.outputs.iter().map(|o| tools::producer(o)).collect::<Result<Vec<_>>>()?;
        // A warm-up is in the count that the broker worked for, though not in the tool's summary.
        let done: u64 = if ended.cut {
            produced.iter().map(|p| p.records).sum()
        } else {
            each * produced.len() as u64
        };
        // Progress is printed only when something is acknowledged: a stall before the limit is in
        // no line of it, so all the time counts.
        let rate = if ended.cut {
            done as f64 / limit.as_secs_f64()
        } else {
            joint_rate(&produced, &ended.at)
        };
        let mut sample = Sample::new(rate, size, done, cpu);
        sample.latency = worst(&produced);
        sample.cut = ended.cut;
        Ok(sample)
    }

    fn consume(
        &mut self,
        service: &Process,
        size: u64,
        records: u64,
        limit: Duration,
    ) -> Result<Sample> {
        let kept = self.kept.iter().position(|(kept, ..)| *kept == size);
        let (topic, records) = if let Some(at) = kept {
            let (_, topic, records) = self.kept.remove(at);
            (topic, records)
        } else {
            let topic = self.create(8)?;
            self.fill(&topic, size, records)?;
            (topic, records)
        };
        let cpu = service.cpu_seconds()?;
        let ended = self.run("ConsumerPerformance", vec![self.consumer(&topic, records)], limit)?;
        let cpu = service.cpu_seconds()? - cpu;
        if ended.cut {
            bail!("not all of {records} records were consumed in {} s", limit.as_secs());
        }
        let consumed = tools::consumer(&output(&ended))?;
        if consumed.records < records || consumed.seconds <= 0.0 {
            bail!("{} of {records} records were consumed", consumed.records);
        }
        self.delete(&topic)?;
        let rate = consumed.records as f64 / consumed.seconds;
        Ok(Sample::new(rate, size, consumed.records, cpu))
    }

    fn end_to_end(&mut self, service: &Process, records: u64, limit: Duration) -> Result<Sample> {
        let size = Work::EndToEnd.size();
        let topic = self.create(1)?;
        let mut tool = self.tool("EndToEndLatency");
        tool.args(["--bootstrap-server", &self.bootstrap, "--topic", &topic]);
        tool.args(["--num-records", &records.to_string(), "--producer-acks", "all"]);
        tool.args(["--record-size", &size.to_string()]);
        let cpu = service.cpu_seconds()?;
        let ended = self.run("EndToEndLatency", vec![tool], limit)?;
        let cpu = service.cpu_seconds()? - cpu;
        if ended.cut {
            bail!("{records} round trips were not done in {} s", limit.as_secs());
        }
        let latency = tools::end_to_end(&output(&ended))?;
        self.delete(&topic)?;
        let mut sample = Sample::new(1000.0 / latency.mean.max(0.001), size, records, cpu);
        sample.latency = Some(latency);
        Ok(sample)
    }

    fn create(&mut self, partitions: u64) -> Result<String> {
        self.topics += 1;
        let topic = format!("bench-{}", self.topics);
        let mut tool = self.tool("TopicCommand");
        tool.args(["--bootstrap-server", &self.bootstrap, "--create", "--topic", &topic]);
        tool.args(["--partitions", &partitions.to_string(), "--replication-factor", "1"]);
        self.run("TopicCommand --create", vec![tool], ADMIN_LIMIT)?;
        Ok(topic)
    }

    fn delete(&self, topic: &str) -> Result<()> {
        let mut tool = self.tool("TopicCommand");
        tool.args(["--bootstrap-server", &self.bootstrap, "--delete", "--topic", topic]);
        self.run("TopicCommand --delete", vec![tool], ADMIN_LIMIT).map(drop)
    }

    /// Writes records that will be read, unmeasured.
    fn fill(&self, topic: &str, size: u64, records: u64) -> Result<()> {
        let tool = self.perf(topic, size, records, None, &FAST);
        let ended = self.run("ProducerPerformance", vec![tool], ADMIN_LIMIT)?;
        if ended.cut {
            bail!("{records} records were not written in {} s", ADMIN_LIMIT.as_secs());
        }
        Ok(())
    }

    fn perf(
        &self,
        topic: &str,
        size: u64,
        records: u64,
        rate: Option<u64>,
        settings: &[&str],
    ) -> Command {
        let rate = rate.map_or("-1".to_owned(), |rate| rate.to_string());
        let mut tool = self.tool("ProducerPerformance");
        tool.args(["--bootstrap-server", &self.bootstrap, "--topic", topic]);
        tool.args(["--num-records", &records.to_string(), "--throughput", &rate]);
        tool.args(["--record-size", &size.to_string(), "--reporting-interval", "1000"]);
        tool.arg("--command-property").args(settings).args(&self.producer);
        tool
    }

    fn consumer(&self, topic: &str, records: u64) -> Command {
        let mut tool = self.tool("ConsumerPerformance");
        tool.args(["--bootstrap-server", &self.bootstrap, "--topic", topic]);
        tool.args(["--num-records", &records.to_string(), "--timeout", "30000"]);
        tool
    }

    fn tool(&self, class: &str) -> Command {
        let mut java = process::command("java");
        java.args(["-Xms512M", "-Xmx512M", "-cp", &self.class_path]);
        java.arg(format!("org.apache.kafka.tools.{class}")).current_dir(&self.dir);
        java
    }

    fn run(&self, name: &str, commands: Vec<Command>, limit: Duration) -> Result<Ended> {
        run_all(name, commands, &self.dir, limit, &self.stop)
    }
}

fn output(ended: &Ended) -> String {
    ended.outputs.concat()
}

/// All records over the time from the first start to the last end, where a producer's start is
/// its end less the time that it says it took.
fn joint_rate(produced: &[Produced], ends: &[Instant]) -> f64 {
    let first = ends.iter().min().copied();
    let offsets = ends.iter().map(|end| first.map_or(0.0, |f| (*end - f).as_secs_f64()));
    let mut start = f64::INFINITY;
    let mut end = 0.0_f64;
    let mut records = 0;
    for (produced, offset) in produced.iter().zip(offsets) {
        start = start.min(offset - produced.records as f64 / produced.rate.max(0.001));
        end = end.max(offset);
        records += produced.records;
    }
    records as f64 / (end - start)
}

/// The worst latency of several producers, number by number; none when one has none.
fn worst(produced: &[Produced]) -> Option<Latency> {
    let all: Option<Vec<_>> = produced.iter().map(|p| p.latency).collect();
    all?.into_iter().reduce(|a, b| Latency {
        mean: a.mean.max(b.mean),
        p50: a.p50.max(b.p50),
        p99: a.p99.max(b.p99),
        p999: a.p999.max(b.p999),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_joint_rate_covers_the_time_of_all() {
        let one = Produced { records: 1000, rate: 100.0, latency: None };
        let now = Instant::now();
        assert!((joint_rate(&[one], &[now]) - 100.0).abs() < 1e-6);
        // Ten seconds each, the second five seconds later: 2,000 records in 15 seconds.
        let rate = joint_rate(&[one, one], &[now, now + Duration::from_secs(5)]);
        assert!((rate - 2000.0 / 15.0).abs() < 1e-6, "{rate}");
    }

    #[test]
    fn processor_time_is_per_gigabyte_of_values() {
        let sample = Sample::new(10.0, 100, 10_000_000, 5.0);
        assert!((sample.cpu_per_gb - 5.0).abs() < 1e-9);
        assert!((sample.bytes_rate - 1000.0).abs() < 1e-9);
        assert!(Sample::new(0.0, 100, 0, 5.0).cpu_per_gb.abs() < 1e-9);
    }

    #[test]
    fn the_worst_producer_is_shown() {
        let with = |p99| {
            let latency = Some(Latency { mean: 1.0, p50: 1.0, p99, p999: 9.0 });
            Produced { records: 1, rate: 1.0, latency }
        };
        assert!((worst(&[with(3.0), with(5.0)]).unwrap().p99 - 5.0).abs() < 1e-9);
        let none = Produced { latency: None, ..with(1.0) };
        assert!(worst(&[with(3.0), none]).is_none());
    }
}
