//! What one producer or consumer of a run counts: latencies, records, bytes, and when.
//!
//! Times are nanoseconds since the start of the run.

use std::time::Duration;

use hdrhistogram::Histogram;

/// Between first and last answer: less does not make a rate.
const SHORT: Duration = Duration::from_secs(1);
/// Longest latency that a histogram holds, in microseconds; longer ones count as this.
const MAX_LATENCY_US: u64 = 3_600_000_000;

/// Latencies, records and bytes.
#[derive(Debug)]
pub(super) struct Counts {
    pub(super) latency: Histogram<u64>,
    pub(super) records: u64,
    pub(super) bytes: u64,
    /// Nanoseconds since the start: when the first record that counts was due (or the reading began).
    pub(super) first_due_ns: u64,
    /// Nanoseconds since the start, of the first and last count.
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

impl Counts {
    /// Nothing counted.
    pub(super) fn new() -> Self {
        // The bounds are constants that the histogram takes; without them it would grow.
        let latency = Histogram::new_with_bounds(1, MAX_LATENCY_US, 3)
            .or_else(|_| Histogram::new(3))
            .unwrap_or_else(|_| unreachable!("three digits are allowed"));
        Self {
            latency,
            records: 0,
            bytes: 0,
            first_due_ns: u64::MAX,
            first_ns: u64::MAX,
            last_ns: 0,
        }
    }

    /// A record that was due then and is answered now.
    pub(super) fn add(&mut self, due_ns: u64, now_ns: u64) {
        self.latency.saturating_record((now_ns.saturating_sub(due_ns) / 1_000).max(1));
        self.records += 1;
        self.first_due_ns = self.first_due_ns.min(due_ns);
    }

    /// An answer with records that count came now.
    pub(super) fn at(&mut self, now_ns: u64) {
        self.first_ns = self.first_ns.min(now_ns);
        self.last_ns = self.last_ns.max(now_ns);
    }

    /// How long the counted work took: from the first to the last answer. Where that says nothing (all
    /// came in a few answers), from when the first record was due.
    pub(super) fn seconds(&self) -> f64 {
        let between = |from: u64| Duration::from_nanos(self.last_ns.saturating_sub(from));
        let steady = between(self.first_ns);
        let taken = if steady < SHORT { between(self.first_due_ns) } else { steady };
        taken.as_secs_f64()
    }

    /// Adds another's counts to these.
    pub(super) fn merge(&mut self, other: &Self) {
        // Both have the same bounds.
        let _ = self.latency.add(&other.latency);
        self.records += other.records;
        self.bytes += other.bytes;
        self.first_due_ns = self.first_due_ns.min(other.first_due_ns);
        self.first_ns = self.first_ns.min(other.first_ns);
        self.last_ns = self.last_ns.max(other.last_ns);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_run_has_no_rate_out_of_two_answers() {
        const S: u64 = 1_000_000_000;
        let mut counts = Counts::new();
        assert!(counts.seconds() < 1e-9);
        // One answer for all: only the time since the first record was due says anything.
        counts.add(S, S * 3 / 2);
        counts.add(S * 5 / 4, S * 3 / 2);
        counts.at(S * 3 / 2);
        assert!((counts.seconds() - 0.5).abs() < 1e-9);
        // A steady stream: from answer to answer.
        counts.at(S * 7 / 2);
        assert!((counts.seconds() - 2.0).abs() < 1e-9);
    }

    #[test]
    fn latency_counts_from_the_due_time_however_late_it_was_sent() {
        let mut counts = Counts::new();
        // A stall of a second: every record that was due meanwhile shows its part of it.
        for due_ms in 0..1_000 {
            counts.add(due_ms * 1_000_000, 1_000_000_000);
        }
        let median = counts.latency.value_at_quantile(0.5);
        assert!((495_000..505_000).contains(&median), "{median}");
    }
}
