//! The broker's metrics: a structure of handles, built once and passed in, so that tests can read
//! them. [`METRICS`] lists all for `docs/metrics.md`, which a test checks against the registry.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::counter::{ConstCounter, Counter};
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use talos_log::{LogCounts, LogMetrics};

/// One row of the list of metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MetricRow {
    /// Full name, as scraped (counters without their `_total`).
    pub name: &'static str,
    /// `counter`, `gauge` or `histogram`.
    pub kind: &'static str,
    /// Names of labels, comma separated.
    pub labels: &'static str,
    /// What it counts.
    pub help: &'static str,
}

/// Labels of requests: the API's Kafka name, a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ApiLabels {
    /// Such as `Produce`.
    pub api: &'static str,
}

/// Why a connection ended, a closed set.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct CloseLabels {
    /// Such as `idle`.
    pub reason: &'static str,
}

macro_rules! metrics {
    ($($field:ident: $kind:ty = $make:expr, $name:literal, $what:literal,
       $labels:literal, $help:literal;)*) => {
        /// Handles of all metrics of one broker.
        #[derive(Clone, Debug)]
        pub struct Metrics {
            $(#[doc = $help] pub $field: $kind,)*
        }

        /// All metrics of this crate.
        pub const METRICS: &[MetricRow] = &[$(MetricRow {
            name: concat!("talos_broker_", $name), kind: $what, labels: $labels, help: $help,
        },)*];

        impl Metrics {
            /// Registers all metrics, those of the log among them.
            pub fn new(registry: &mut Registry, log: LogMetrics) -> Self {
                registry.register_collector(Box::new(LogCollector(log)));
                let this = Self { $($field: $make,)* };
                $(registry.register(
                    concat!("talos_broker_", $name), $help, this.$field.clone(),
                );)*
                this
            }
        }
    };
}

fn seconds() -> Histogram {
    let buckets = [0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0];
    Histogram::new(buckets)
}

metrics! {
    connections: Gauge = Gauge::default(), "connections", "gauge", "",
        "open client connections";
    connections_opened: Counter = Counter::default(), "connections_opened", "counter", "",
        "client connections accepted";
    connections_closed: Family<CloseLabels, Counter> = Family::default(),
        "connections_closed", "counter", "reason",
        "client connections closed, by reason";
    connections_refused: Counter = Counter::default(), "connections_refused", "counter", "",
        "client connections closed at once: beyond max.connections or max.connections.per.ip, or at a stop";
    requests: Family<ApiLabels, Counter> = Family::default(), "requests", "counter", "api",
        "requests taken, by API";
    request_seconds: Family<ApiLabels, Histogram> = Family::new_with_constructor(seconds),
        "request_duration_seconds", "histogram", "api",
        "from a request being read to its answer being ready, waiting included, by API";
    received_bytes: Counter = Counter::default(), "received_bytes", "counter", "",
        "bytes of request frames";
    sent_bytes: Counter = Counter::default(), "sent_bytes", "counter", "",
        "bytes of answer frames";
    produced_batches: Counter = Counter::default(), "produced_batches", "counter", "",
        "record batches accepted";
    produced_bytes: Counter = Counter::default(), "produced_bytes", "counter", "",
        "bytes of record batches accepted";
    produce_errors: Counter = Counter::default(), "produce_errors", "counter", "",
        "partitions of produce requests answered with an error";
    fetched_bytes: Counter = Counter::default(), "fetched_bytes", "counter", "",
        "bytes of record batches in fetch answers";
    partitions: Gauge = Gauge::default(), "partitions", "gauge", "",
        "partitions that this broker leads and serves";
    partitions_offline: Gauge = Gauge::default(), "partitions_offline", "gauge", "",
        "partitions that this broker leads and can not serve";
    topics: Gauge = Gauge::default(), "topics", "gauge", "",
        "topics in the metadata";
    retention_advances: Counter = Counter::default(), "retention_advances", "counter", "",
        "times that retention moved a log start";
}

/// What the log counts, as it is when it is scraped.
#[derive(Debug)]
struct LogCollector(LogMetrics);

/// One counter or gauge of the log: its row and how to read it.
type LogCounter = (MetricRow, fn(&LogCounts) -> u64);

const fn log_counter(
    name: &'static str,
    help: &'static str,
    read: fn(&LogCounts) -> u64,
) -> LogCounter {
    (MetricRow { name, kind: "counter", labels: "", help }, read)
}

const fn log_gauge(
    name: &'static str,
    help: &'static str,
    read: fn(&LogCounts) -> u64,
) -> LogCounter {
    (MetricRow { name, kind: "gauge", labels: "", help }, read)
}

const LOG_COUNTERS: &[LogCounter] = &[
    log_counter("talos_log_flushes", "flushes handed to the store", |c| c.flushes),
    log_counter("talos_log_flushed_bytes", "bytes in flushes", |c| c.flushed_bytes),
    log_counter("talos_log_flushed_batches", "record batches in flushes", |c| c.flushed_batches),
    log_counter("talos_log_flushes_durable", "flushes that became durable", |c| c.flushes_durable),
    log_counter("talos_log_stalls", "new journal files that the store refused", |c| c.stalls),
    log_gauge(
        "talos_log_raw_bytes",
        "bytes in journals of batches that are not sorted yet; the limit is log.raw_limit",
        |c| c.raw_bytes,
    ),
    log_gauge(
        "talos_log_positions_bytes",
        "memory of the positions of such batches; the limit is memory.positions",
        |c| c.extent_bytes,
    ),
    log_gauge(
        "talos_log_limited",
        "1 while produce is delayed or refused because one of these two is at its limit, else 0",
        |c| c.limited,
    ),
    log_counter("talos_log_delayed_appends", "appends that waited for sorting", |c| c.delays),
    log_counter(
        "talos_log_refused_appends",
        "appends that were refused because sorting made no room in time",
        |c| c.refusals,
    ),
    log_counter(
        "talos_log_damaged_reads",
        "reads that met damage in a file of an open partition",
        |c| c.damaged_reads,
    ),
    log_gauge(
        "talos_log_producers_bytes",
        "memory of the sequence numbers of idempotent producers; the limit is memory.producers",
        |c| c.producer_bytes,
    ),
    log_gauge(
        "talos_log_pinned_bytes",
        "flushed buffers that unsent answers keep in memory; the limit is memory.pinned",
        |c| c.pinned_bytes,
    ),
];

/// The metrics of the log that this crate exports.
pub fn log_metric_rows() -> impl Iterator<Item = MetricRow> {
    LOG_COUNTERS.iter().map(|(row, _)| *row)
}

impl Collector for LogCollector {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let counts = self.0.counts();
        for (row, read) in LOG_COUNTERS {
            let value = read(&counts);
            if row.kind == "gauge" {
                let gauge = ConstGauge::new(value);
                let kind = gauge.metric_type();
                gauge.encode(encoder.encode_descriptor(row.name, row.help, None, kind)?)?;
                continue;
            }
            let counter = ConstCounter::new(value);
            let kind = counter.metric_type();
            counter.encode(encoder.encode_descriptor(row.name, row.help, None, kind)?)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_what_the_registry_has() {
        let mut registry = Registry::default();
        let metrics = Metrics::new(&mut registry, LogMetrics::default());
        // A family without members is not written.
        metrics.requests.get_or_create(&ApiLabels { api: "Fetch" }).inc();
        metrics.request_seconds.get_or_create(&ApiLabels { api: "Fetch" }).observe(0.1);
        metrics.connections_closed.get_or_create(&CloseLabels { reason: "idle" }).inc();
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let mut types: Vec<_> = text.lines().filter(|line| line.starts_with("# TYPE ")).collect();
        types.sort_unstable();
        let row = |row: &MetricRow| format!("# TYPE {} {}", row.name, row.kind);
        let mut rows: Vec<_> =
            METRICS.iter().copied().chain(log_metric_rows()).map(|r| row(&r)).collect();
        rows.sort_unstable();
        assert_eq!(types, rows);
    }
}
