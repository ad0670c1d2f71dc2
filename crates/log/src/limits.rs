//! What one broker's log may hold in memory and in unsorted journals, and who is kept waiting when that
//! is used up (P7, E-J8, R15).
//!
//! [`Backlog`] counts raw batches: their bytes in journals and their extents in memory. At half of its
//! extents' limit sorting starts whatever else is due. At either limit appends are delayed, at most until
//! [`DELAY`] after room ran out, and then refused until sorting made room. Reads and control frames are
//! never held up: sorting itself needs both.
//!
//! [`ProducerRoom`] counts what is remembered of idempotent producers. Forgetting one that is still at work
//! would let its next retry be written twice. So only those that have been idle for [`LEAST_IDLE_MS`] at least
//! may be forgotten before their time, the longest idle first; when that is not enough, *new* producers are
//! refused. Limits that nobody turns are constants here.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use talos_common::{ByteBudget, ByteSize, Clock, Env, Offload};
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::extent::Load;
use crate::logs::LogOptions;
use crate::metrics::LogMetrics;
use crate::producers::{MAX_PRODUCERS, PRODUCER_BYTES, Producers};
use crate::registry::WeakRegistry;

/// Appends wait at most this long after room ran out, and are refused from then on.
pub(crate) const DELAY: Duration = Duration::from_secs(5);
/// A partition that can not be sorted may take this part of all room, so that it keeps no other out.
const STUCK_PART: u64 = 16;
/// What is read from journals for answers at one time.
const READS_BYTES: usize = 64 << 20;

/// Nobody who appended this recently is forgotten for want of room, in milliseconds: clients give a batch up
/// after two minutes (`delivery.timeout.ms`), and some are told to try longer.
pub(crate) const LEAST_IDLE_MS: i64 = 15 * 60_000;
/// Where forgetting begins, in milliseconds; it goes on with half of that.
const MOST_IDLE_MS: i64 = 12 * 3_600_000;
/// While there is too little room, who has become idle is looked for this often.
const LOOK: Duration = Duration::from_secs(60);

/// The limits of one broker's log. Clones share them.
#[derive(Clone, Debug)]
pub(crate) struct Limits {
    pub(crate) backlog: Backlog,
    pub(crate) producers: ProducerRoom,
    /// Slabs that answers keep in memory.
    pub(crate) pins: ByteBudget,
    /// Journal bytes that are being read for answers.
    pub(crate) reads: ByteBudget,
    /// Looking into batches.
    pub(crate) cpu: Offload,
    pub(crate) metrics: LogMetrics,
}

impl Limits {
    pub(crate) fn new(
        options: &LogOptions,
        file_bytes: u64,
        env: &Env,
        metrics: LogMetrics,
    ) -> Self {
        let pins = ByteBudget::new(options.pinned_bytes);
        metrics.watch_pins(pins.clone());
        let producers = ProducerRoom::new(options, &env.clock, metrics.clone());
        let backlog = Backlog::new(options, file_bytes, env.clock.clone(), metrics.clone());
        let (reads, cpu) = (ByteBudget::new(READS_BYTES), env.cpu.clone());
        Self { backlog, producers, pins, reads, cpu, metrics }
    }
}

/// The raw batches of all partitions. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct Backlog {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    clock: Clock,
    metrics: LogMetrics,
    /// Sorting starts here, in raw bytes.
    sort_bytes: u64,
    raw_limit: u64,
    extent_limit: u64,
    raw_bytes: AtomicU64,
    extent_bytes: AtomicU64,
    /// Since when there is no room.
    full_since: watch::Sender<Option<Instant>>,
    /// The sorter.
    pressed: Notify,
}

impl Backlog {
    fn new(options: &LogOptions, file_bytes: u64, clock: Clock, metrics: LogMetrics) -> Self {
        Self {
            inner: Arc::new(Inner {
                clock,
                metrics,
                // What lies in the open file can not be sorted yet.
                sort_bytes: options.sort_bytes.saturating_add(file_bytes),
                // Below that, one file could use up all room and never be closed.
                raw_limit: options.raw_limit_bytes.max(file_bytes.saturating_mul(2)),
                extent_limit: (options.extent_bytes as u64).max(1),
                raw_bytes: AtomicU64::new(0),
                extent_bytes: AtomicU64::new(0),
                full_since: watch::Sender::new(None),
                pressed: Notify::new(),
            }),
        }
    }

    /// A partition's raw batches, which took `old`, take `new` from now on. Wakes who waits: never
    /// called under a lock.
    pub(crate) fn change(&self, old: Load, new: Load) {
        if old == new {
            return;
        }
        let inner = &*self.inner;
        let was_pressed = self.is_pressed();
        let raw = add(&inner.raw_bytes, old.raw_bytes, new.raw_bytes);
        let extents = add(&inner.extent_bytes, old.memory_bytes, new.memory_bytes);
        inner.metrics.backlog(raw, extents);
        if self.is_pressed() && !was_pressed {
            inner.pressed.notify_one();
        }
        if self.has_room() == self.is_open() {
            return;
        }
        inner.full_since.send_if_modified(|since| {
            // Looked at anew: of changes side by side the last to come here sees them all.
            let full = !self.has_room();
            inner.metrics.limited(full);
            if full == since.is_some() {
                return false;
            }
            *since = full.then(|| inner.clock.now());
            match full {
                true => {
                    tracing::warn!(why = self.why(), "produce is held up until sorting makes room")
                }
                false => tracing::info!("sorting made room: produce goes on"),
            }
            true
        });
        // It may have left things as they were when it was pressed last.
        inner.pressed.notify_one();
    }

    fn raw_bytes(&self) -> u64 {
        self.inner.raw_bytes.load(Ordering::SeqCst)
    }

    fn extent_bytes(&self) -> u64 {
        self.inner.extent_bytes.load(Ordering::SeqCst)
    }

    /// Whether appends pass without waiting.
    pub(crate) fn is_open(&self) -> bool {
        self.inner.full_since.borrow().is_none()
    }

    fn has_room(&self) -> bool {
        self.raw_bytes() < self.inner.raw_limit && self.extent_bytes() < self.inner.extent_limit
    }

    /// Whether sorting should start whatever the number of closed files is.
    pub(crate) fn is_pressed(&self) -> bool {
        self.raw_bytes() >= self.inner.sort_bytes.min(self.inner.raw_limit)
            || self.extent_bytes() >= self.inner.extent_limit / 2
    }

    /// Wakes the sorter.
    pub(crate) fn press(&self) {
        self.inner.pressed.notify_one();
    }

    /// Waits until [`Backlog::is_pressed`] became true, or [`Backlog::press`] was called. Cancel safe.
    pub(crate) async fn pressed(&self) {
        self.inner.pressed.notified().await;
    }

    /// The limit that is reached, for people.
    fn why(&self) -> String {
        let (raw, raw_limit) = (ByteSize(self.raw_bytes()), ByteSize(self.inner.raw_limit));
        let what = "batches that are not sorted yet take";
        if raw >= raw_limit {
            return format!("{what} {raw} of journals, log.raw_limit is {raw_limit}");
        }
        let (extents, limit) = (ByteSize(self.extent_bytes()), ByteSize(self.inner.extent_limit));
        format!("{what} {extents} of memory, memory.positions is {limit}")
    }

    /// Waits for room, at most until [`DELAY`] after it ran out. Cancel safe.
    ///
    /// # Errors
    /// There is none: which limit was reached, and how far.
    pub(crate) async fn room(&self) -> Result<(), String> {
        let inner = &*self.inner;
        let mut full = inner.full_since.subscribe();
        let Some(since) = *full.borrow_and_update() else { return Ok(()) };
        inner.metrics.delayed();
        let left = (since + DELAY).saturating_duration_since(inner.clock.now());
        if !left.is_zero() {
            let opened = full.wait_for(Option::is_none);
            if inner.clock.timeout(left, opened).await.is_some() {
                return Ok(());
            }
        }
        if self.is_open() {
            return Ok(());
        }
        inner.metrics.refused();
        Err(self.why())
    }

    /// Why a partition that can not be sorted and has `raw_bytes` takes no more, if it does not.
    pub(crate) fn refuses_stuck(&self, raw_bytes: u64) -> Option<String> {
        let limit = self.inner.raw_limit / STUCK_PART;
        (raw_bytes >= limit).then(|| {
            self.inner.metrics.refused();
            format!(
                "the partition can not be sorted and takes {} of journals; \
                 no such partition may take more than {}, a sixteenth of log.raw_limit",
                ByteSize(raw_bytes),
                ByteSize(limit)
            )
        })
    }
}

/// Replaces `old` by `new` in a sum, and gives the sum.
fn add(sum: &AtomicU64, old: u64, new: u64) -> u64 {
    let delta = new.wrapping_sub(old);
    sum.fetch_add(delta, Ordering::SeqCst).wrapping_add(delta)
}

/// The producers that all partitions together remember. Clones share the count.
#[derive(Clone, Debug)]
pub(crate) struct ProducerRoom {
    inner: Arc<Producing>,
}

#[derive(Debug)]
struct Producing {
    clock: Clock,
    /// Wall time in milliseconds at an instant.
    anchor: (i64, Instant),
    limit_bytes: u64,
    bytes: AtomicU64,
    metrics: LogMetrics,
    pressed: Notify,
}

impl ProducerRoom {
    fn new(options: &LogOptions, clock: &Clock, metrics: LogMetrics) -> Self {
        Self {
            inner: Arc::new(Producing {
                clock: clock.clone(),
                anchor: (clock.wall_ms(), clock.now()),
                limit_bytes: options.producer_bytes as u64,
                bytes: AtomicU64::new(0),
                metrics,
                pressed: Notify::new(),
            }),
        }
    }

    /// A partition that remembered `old` producers remembers `new` from now on. Wakes who waits: never
    /// called under a lock.
    pub(crate) fn change(&self, old: usize, new: usize) {
        if old == new {
            return;
        }
        let bytes = |count: usize| (count * PRODUCER_BYTES) as u64;
        let sum = add(&self.inner.bytes, bytes(old), bytes(new));
        self.inner.metrics.producers(sum);
        if self.is_pressed() {
            self.inner.pressed.notify_one();
        }
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes.load(Ordering::SeqCst)
    }

    fn is_pressed(&self) -> bool {
        self.bytes() >= self.inner.limit_bytes / 8 * 7
    }

    /// Why one more producer is refused by a partition that remembers `known`; `None`: it is taken.
    pub(crate) fn refuses(&self, known: &Producers) -> Option<String> {
        let (bytes, limit) = (self.bytes(), self.inner.limit_bytes);
        if bytes >= limit {
            return Some(format!(
                "idempotent producers take {} of memory, memory.producers is {}, and none has been \
                 idle for long: no new one is taken",
                ByteSize(bytes),
                ByteSize(limit)
            ));
        }
        let idle_since = self.now_ms() - LEAST_IDLE_MS;
        let full = known.len() >= MAX_PRODUCERS;
        (full && known.longest_idle().is_some_and(|last| last > idle_since)).then(|| {
            format!("the partition has {MAX_PRODUCERS} idempotent producers at work: no new one is taken")
        })
    }

    /// The earlier of the wall clock and the wall clock carried on since the start: a clock that jumps
    /// makes nobody look idle (E-R2).
    fn now_ms(&self) -> i64 {
        let (wall_ms, at) = self.inner.anchor;
        let since = self.inner.clock.now().saturating_duration_since(at).as_millis();
        let carried_on = wall_ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX));
        carried_on.min(self.inner.clock.wall_ms())
    }

    /// Forgets those that have been idle for longest whenever there is too little room. Runs until it is
    /// dropped.
    pub(crate) async fn keep(self, registry: WeakRegistry) {
        loop {
            self.inner.pressed.notified().await;
            let mut idle_ms = MOST_IDLE_MS;
            while self.is_pressed() {
                let Some(open) = registry.upgrade() else { return };
                for log in open.logs() {
                    log.expire_producers(self.now_ms() - idle_ms);
                    tokio::task::yield_now().await;
                }
                drop(open);
                match idle_ms / 2 {
                    half if half >= LEAST_IDLE_MS => idle_ms = half,
                    // All others are at work, or were a moment ago.
                    _ if idle_ms > LEAST_IDLE_MS => idle_ms = LEAST_IDLE_MS,
                    _ => self.inner.clock.sleep(LOOK).await,
                }
            }
        }
    }
}
