//! What a run found, as a table or as JSON.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hdrhistogram::Histogram;
use serde_json::{Value, json};

use super::BenchArgs;
use super::counts::Counts;
use super::load::Run;
use crate::client::ClientError;
use crate::output;

/// The percentiles that are shown.
const QUANTILES: [(&str, f64); 6] = [
    ("p50", 0.50),
    ("p90", 0.90),
    ("p99", 0.99),
    ("p99.9", 0.999),
    ("p99.99", 0.9999),
    ("max", 1.0),
];

/// The result of a run.
pub(super) struct Report {
    args: BenchArgs,
    topic: String,
    acked: Counts,
    consumed: Counts,
    seconds: f64,
    interrupted: bool,
    /// Records without an answer when the run was interrupted.
    unanswered: u64,
    /// Records that were not acknowledged.
    pub(super) failed: u64,
    /// The first error, if there was one.
    pub(super) first_error: Option<ClientError>,
}

impl Report {
    pub(super) fn new(topic: &str, args: &BenchArgs, run: &Run, interrupted: bool) -> Self {
        let (acked, consumed) = (Run::total(&run.acked), Run::total(&run.consumed));
        let counts = if args.producers > 0 { &acked } else { &consumed };
        let seconds = counts.seconds();
        let answered = run.acked_all.load(Ordering::Relaxed) + run.failed.load(Ordering::Relaxed);
        Self {
            args: args.clone(),
            topic: topic.into(),
            seconds,
            interrupted,
            unanswered: run.sent.load(Ordering::Relaxed).saturating_sub(answered),
            failed: run.failed.load(Ordering::Relaxed),
            first_error: run.first_error.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            acked,
            consumed,
        }
    }

    fn per_second(&self, count: u64) -> f64 {
        if self.seconds > 0.0 { count as f64 / self.seconds } else { 0.0 }
    }

    fn acked_bytes(&self) -> u64 {
        self.acked.records.saturating_mul(self.args.size.0)
    }

    pub(super) fn to_json(&self) -> Value {
        let args = &self.args;
        let side = |counts: &Counts, bytes: u64, timed: bool| {
            json!({
                "records": counts.records,
                "bytes": bytes,
                "records_per_second": self.per_second(counts.records),
                "bytes_per_second": self.per_second(bytes),
                "latency_us": if timed { latency_json(&counts.latency) } else { Value::Null },
            })
        };
        json!({
            "topic": self.topic,
            "settings": {
                "bootstrap": args.client.bootstrap,
                "producers": args.producers,
                "consumers": args.consumers,
                "rate": args.rate,
                "size": args.size.0,
                "acks": args.acks.name(),
                "idempotent": args.is_idempotent(),
                "codec": args.codec.name(),
                "linger_ms": args.linger.0.as_millis(),
                "batch_bytes": args.batch.0,
                "in_flight": args.in_flight,
                "latency_from": if args.rate.is_some() { "due time" } else { "hand-over" },
            },
            "seconds": self.seconds,
            "interrupted": self.interrupted,
            "failed": self.failed,
            "unanswered": self.unanswered,
            "first_error": self.first_error.as_ref().map(ToString::to_string),
            "produced": side(&self.acked, self.acked_bytes(), true),
            "consumed": side(&self.consumed, self.consumed.bytes, args.producers > 0),
        })
    }

    pub(super) fn print(&self) -> anyhow::Result<()> {
        let args = &self.args;
        let rate = args.rate.map_or("as fast as possible".into(), |rate| format!("{rate}/s asked"));
        output::line(format!(
            "{}, {}, records of {}, {rate}; {:.1} s measured",
            count(args.producers, "producer"),
            count(args.consumers, "consumer"),
            args.size,
            self.seconds
        ))?;
        if args.producers > 0 {
            output::line(format!(
                "acks={}, {}, codec {}, linger {}, batch {}",
                args.acks.name(),
                if args.is_idempotent() { "idempotent" } else { "not idempotent" },
                args.codec.name(),
                args.linger,
                args.batch,
            ))?;
        }
        if self.interrupted {
            output::line("interrupted: the figures are those up to then")?;
        }
        if self.unanswered > 0 {
            output::line(format!("{} records had no answer by then", self.unanswered))?;
        }
        if self.acked.records == 0 && self.consumed.records == 0 {
            output::line("nothing was measured: it ended within the warm-up, or nothing came")?;
        }
        output::line("")?;
        let mut rows = Vec::new();
        if args.producers > 0 {
            rows.push(self.row("produced", &self.acked, self.acked_bytes(), true));
        }
        if args.consumers > 0 {
            rows.push(self.row(
                "consumed",
                &self.consumed,
                self.consumed.bytes,
                args.producers > 0,
            ));
        }
        let mut header = vec!["", "records", "records/s", "bytes/s", "mean"];
        header.extend(QUANTILES.iter().map(|(name, _)| *name));
        output::table(&header, rows)?;
        if args.producers > 0 {
            let from = match args.rate {
                Some(_) => "the time at which it was due",
                None => "its hand-over to the producer",
            };
            output::line(format!("\nlatency of a record counts from {from};"))?;
            output::line(
                "produced: to its acknowledgement, consumed: to its consumer (end to end)",
            )?;
        }
        Ok(())
    }

    fn row(&self, name: &str, counts: &Counts, bytes: u64, timed: bool) -> Vec<String> {
        let per_second = self.per_second(bytes) as u64;
        let mut row = vec![
            name.to_owned(),
            counts.records.to_string(),
            format!("{:.0}", self.per_second(counts.records)),
            output::bytes(per_second),
        ];
        if timed && !counts.latency.is_empty() {
            let shown = |us: u64| output::duration(Duration::from_micros(us));
            row.push(shown(counts.latency.mean() as u64));
            row.extend(QUANTILES.iter().map(|(_, q)| shown(counts.latency.value_at_quantile(*q))));
        } else {
            row.extend(std::iter::repeat_n("-".to_owned(), 1 + QUANTILES.len()));
        }
        row
    }
}

fn count(number: u32, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}

fn latency_json(latency: &Histogram<u64>) -> Value {
    let mut all = serde_json::Map::new();
    all.insert("mean".into(), json!(latency.mean()));
    for (name, quantile) in QUANTILES {
        all.insert(name.into(), json!(latency.value_at_quantile(quantile)));
    }
    Value::Object(all)
}
