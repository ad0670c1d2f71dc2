//! What the log counts. One set of handles for a broker, cheap to clone.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use talos_common::ByteBudget;

/// The log's counters and gauges.
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
    delays: AtomicU64,
    refusals: AtomicU64,
    damaged_reads: AtomicU64,
    raw_bytes: AtomicU64,
    extent_bytes: AtomicU64,
    limited: AtomicU64,
    producer_bytes: AtomicU64,
    pins: OnceLock<ByteBudget>,
}

/// The counters, which rise only, and the gauges at one instant.
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
    /// Appends that waited for room in the backlog.
    pub delays: u64,
    /// Appends that were refused because the backlog had no room.
    pub refusals: u64,
    /// Reads that met damage in a file.
    pub damaged_reads: u64,
    /// Gauge: bytes in journals of batches that are not sorted yet.
    pub raw_bytes: u64,
    /// Gauge: bytes of memory that the positions of such batches take.
    pub extent_bytes: u64,
    /// Gauge: 1 while appends are delayed or refused because the backlog has no room, else 0.
    pub limited: u64,
    /// Gauge: bytes of memory that sequence numbers of idempotent producers take.
    pub producer_bytes: u64,
    /// Gauge: bytes of flushed buffers that unsent answers keep in memory.
    pub pinned_bytes: u64,
}

impl LogMetrics {
    pub(crate) fn flush_started(&self, bytes: usize, batches: usize) {
        self.inner.flushes.fetch_add(1, Ordering::Relaxed);
        self.inner.flushed_bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        self.inner.flushed_batches.fetch_add(batches as u64, Ordering::Relaxed);
    }

    pub(crate) fn damaged_read(&self) {
        self.inner.damaged_reads.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn flush_finished(&self) {
        self.inner.finished.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn stalled(&self) {
        self.inner.stalls.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn delayed(&self) {
        self.inner.delays.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refused(&self) {
        self.inner.refusals.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn backlog(&self, raw_bytes: u64, extent_bytes: u64) {
        self.inner.raw_bytes.store(raw_bytes, Ordering::Relaxed);
        self.inner.extent_bytes.store(extent_bytes, Ordering::Relaxed);
    }

    pub(crate) fn producers(&self, bytes: u64) {
        self.inner.producer_bytes.store(bytes, Ordering::Relaxed);
    }

    pub(crate) fn limited(&self, limited: bool) {
        self.inner.limited.store(limited.into(), Ordering::Relaxed);
    }

    /// The budget of pinned slabs. The first one counts: one set of handles is of one log.
    pub(crate) fn watch_pins(&self, pins: ByteBudget) {
        let _ = self.inner.pins.set(pins);
    }

    /// The counters and gauges now.
    pub fn counts(&self) -> LogCounts {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        LogCounts {
            flushes: load(&self.inner.flushes),
            flushed_bytes: load(&self.inner.flushed_bytes),
            flushed_batches: load(&self.inner.flushed_batches),
            flushes_durable: load(&self.inner.finished),
            stalls: load(&self.inner.stalls),
            delays: load(&self.inner.delays),
            refusals: load(&self.inner.refusals),
            damaged_reads: load(&self.inner.damaged_reads),
            raw_bytes: load(&self.inner.raw_bytes),
            extent_bytes: load(&self.inner.extent_bytes),
            limited: load(&self.inner.limited),
            producer_bytes: load(&self.inner.producer_bytes),
            pinned_bytes: self
                .inner
                .pins
                .get()
                .map_or(0, |pins| (pins.limit_bytes() - pins.free_bytes()) as u64),
        }
    }
}
