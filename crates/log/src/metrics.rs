//! What the log counts. One set of handles for a broker, cheap to clone.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The log's counters. All rise only.
#[derive(Clone, Debug, Default)]
pub struct LogMetrics {
    inner: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    flushes: AtomicU64,
    flushed_bytes: AtomicU64,
    flushed_batches: AtomicU64,
    finished: AtomicU64,
    stalls: AtomicU64,
}

/// The counters at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Flushes handed to the store, failed ones and statements included.
    pub flushes: u64,
    /// Bytes in them.
    pub flushed_bytes: u64,
    /// Record batches in them.
    pub flushed_batches: u64,
    /// Flushes that became durable.
    pub flushes_durable: u64,
    /// Attempts to get a new journal file that the store refused.
    pub stalls: u64,
}

impl LogMetrics {
    pub(crate) fn flush_started(&self, bytes: usize, batches: usize) {
        self.inner.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flushed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.inner.flushed_batches.fetch_add(batches as u64, Ordering::Relaxed);
    }

    pub(crate) fn flush_finished(&self) {
        self.inner.finished.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stalled(&self) {
        self.inner.stalls.fetch_add(1, Ordering::Relaxed);
    }

    /// The counters now.
    pub fn counts(&self) -> LogCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogCounts {
            flushes: load(&self.inner.flushes),
            flushed_bytes: load(&self.inner.flushed_bytes),
            flushed_batches: load(&self.inner.flushed_batches),
            flushes_durable: load(&self.inner.finished),
            stalls: load(&self.inner.stalls),
        }
    }
}
