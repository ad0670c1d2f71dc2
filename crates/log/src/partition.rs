//! One partition's log under one leadership: what the broker's handlers work with.
//!
//! ```text
//!        log start          high watermark       log end
//!            |                    |                 |
//!   deleted  |  durable, visible  |    accepted     |  next offset
//! -----------+--------------------+-----------------+------------
//! ```
//!
//! All three only rise. The watermark moves in `publish` alone, after the store
//! answered; readers stop before it, and producers are answered once it passed their batch (P3).
//!
//! One object is one leadership: a later leadership of the same partition is another object, so a
//! late completion of the former can not touch it (E-W13).

mod read;
pub(crate) mod tiers;
mod times;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use talos_common::{ByteLease, Clock, LeaderEpoch, TopicPartitionId};
use talos_storage::{FilePath, Storage};

use crate::epochs::Epochs;
use crate::extent::{Extent, Extents, Load};
use crate::format::BatchMeta;
use crate::lane::{BatchFrame, Lane, Refusal};
use crate::producers::{Producers, Verdict};
use crate::root::{Root, RootHandle};
use crate::run::Run;
use crate::validate::ValidBatch;
use crate::waiters::{Durable, FetchWaiter, Waiters};
use tiers::KnownRoot;

pub use read::{ReadError, ReadOut};
pub use times::TimestampOffset;

/// One partition's log under one leadership.
#[derive(Debug)]
pub struct PartitionLog {
    id: TopicPartitionId,
    leader_epoch: LeaderEpoch,
    /// Where this leadership's own records start.
    epoch_start: i64,
    lane: Lane,
    storage: Arc<dyn Storage>,
    clock: Clock,
    state: Mutex<State>,
    /// The root as last swapped. Held while a swap runs, so that swaps are one after the other.
    root: tokio::sync::Mutex<KnownRoot>,
    root_handle: Arc<dyn RootHandle>,
    /// Segments that the root does not reach any more; their files go later.
    dead_segments: Mutex<Vec<FilePath>>,
    /// Former leaderships in whose directories this log may still have something.
    inherits: Mutex<tiers::Inherits>,
    /// Whether the last sorting pass could not sort it.
    stuck: AtomicBool,
    /// The last damage that a read met.
    damage: Mutex<Option<String>>,
}

#[derive(Debug)]
struct State {
    /// Why the leadership ended, once it did.
    ended: Option<String>,
    log_start: i64,
    high_watermark: i64,
    log_end: i64,
    /// Segments and runs of sorted journals in offset order, gap-free, from the log start on.
    runs: VecDeque<Arc<Run>>,
    /// Durable batches in raw journals, gap-free, from the end of the runs to the watermark.
    extents: Extents,
    size_bytes: u64,
    /// Generation and end offset of the root as it was last read or swapped; `None` without a root.
    published: Option<(u64, i64)>,
    /// Rises whenever places are exchanged or dropped: what was planned before may be gone.
    moves: u64,
    epochs: Epochs,
    producers: Producers,
    waiters: Waiters,
}

/// The offsets of a log, read at one instant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Offsets {
    /// First readable offset.
    pub log_start: i64,
    /// First offset that is not yet durable and visible.
    pub high_watermark: i64,
    /// First offset of the oldest open transaction, else the high watermark.
    pub last_stable: i64,
    /// The next offset to assign.
    pub log_end: i64,
}

/// An accepted batch.
#[derive(Debug)]
pub struct Appended {
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record (inclusive).
    pub last_offset: i64,
    /// The time given to its records, when the topic's timestamps are the broker's; in milliseconds.
    pub log_append_time: Option<i64>,
    /// First readable offset of the log.
    pub log_start: i64,
    /// Resolves when the batch is durable and visible.
    pub durable: Durable,
}

/// Why a batch was not accepted: definite, nothing was written.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// This leadership is over: NOT_LEADER_OR_FOLLOWER.
    #[error("this broker does not lead the partition any more: {0}")]
    Ended(String),
    /// The store takes nothing now, or a limit is reached: KAFKA_STORAGE_ERROR, retriable.
    #[error("{0}; produce again later")]
    Stalled(String),
    /// The batch fits in no journal file: MESSAGE_TOO_LARGE.
    #[error("the record batch has {bytes} bytes, the journal takes {limit}")]
    TooLarge {
        /// Of the batch.
        bytes: usize,
        /// Of the journal.
        limit: usize,
    },
    /// INVALID_PRODUCER_EPOCH.
    #[error("producer epoch {epoch} of producer {producer_id} is over: the newest is {newest}")]
    StaleProducerEpoch {
        /// Whose.
        producer_id: i64,
        /// As sent.
        epoch: i16,
        /// As known.
        newest: i16,
    },
    /// OUT_OF_ORDER_SEQUENCE_NUMBER.
    #[error(
        "sequence number {first} of producer {producer_id} is out of order: expected {expected}"
    )]
    OutOfOrderSequence {
        /// Whose.
        producer_id: i64,
        /// As sent.
        first: i32,
        /// What would have been accepted.
        expected: i32,
    },
}

/// What a partition's log is opened with: the outcome of recovery.
#[derive(Debug)]
pub(crate) struct OpenedLog {
    pub(crate) id: TopicPartitionId,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) root: Root,
    pub(crate) runs: VecDeque<Arc<Run>>,
    pub(crate) extents: VecDeque<Extent>,
    /// Everything below is durable (exclusive).
    pub(crate) durable_end: i64,
    /// Where the next record goes; what lies between is being written again.
    pub(crate) end_offset: i64,
    pub(crate) epochs: Epochs,
    pub(crate) producers: Producers,
    pub(crate) inherits: tiers::Inherits,
}

impl PartitionLog {
    pub(crate) fn new(
        opened: OpenedLog,
        lane: Lane,
        storage: Arc<dyn Storage>,
        clock: Clock,
        root_handle: Arc<dyn RootHandle>,
    ) -> Arc<Self> {
        let OpenedLog { id, leader_epoch, root, runs, extents, durable_end, .. } = opened;
        let (end_offset, epochs, producers) = (opened.end_offset, opened.epochs, opened.producers);
        let inherits = opened.inherits;
        let extents = Extents::from(extents);
        lane.backlog().change(Load::default(), extents.load());
        lane.limits().producers.change(0, producers.len());
        let runs: VecDeque<_> = runs.into_iter().map(Run::lean).collect();
        let size_bytes = extents.batch_bytes() + runs.iter().map(|run| run.bytes).sum::<u64>();
        let state = State {
            ended: None,
            log_start: root.log_start,
            high_watermark: durable_end,
            log_end: end_offset,
            runs,
            extents,
            size_bytes,
            published: (root.generation > 0).then_some((root.generation, root.end_offset)),
            moves: 0,
            epochs,
            producers,
            waiters: Waiters::default(),
        };
        Arc::new(Self {
            id,
            leader_epoch,
            epoch_start: end_offset,
            lane,
            storage,
            clock,
            state: Mutex::new(state),
            root: tokio::sync::Mutex::new(KnownRoot { root, in_doubt: false }),
            root_handle,
            dead_segments: Mutex::default(),
            inherits: Mutex::new(inherits),
            stuck: AtomicBool::new(false),
            damage: Mutex::default(),
        })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Which partition.
    pub fn id(&self) -> TopicPartitionId {
        self.id
    }

    /// Under which leader epoch.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.leader_epoch
    }

    /// The offsets now.
    pub fn offsets(&self) -> Offsets {
        let state = self.state();
        Offsets {
            log_start: state.log_start,
            high_watermark: state.high_watermark,
            last_stable: state.high_watermark,
            log_end: state.log_end,
        }
    }

    /// Bytes of all live record batches.
    pub fn size_bytes(&self) -> u64 {
        self.state().size_bytes
    }

    /// Why the leadership ended, or `None` while it lasts.
    pub fn ended(&self) -> Option<String> {
        self.state().ended.clone()
    }

    /// Takes `bytes` of the lane's room: what must come before [`PartitionLog::append`]. Waits while the
    /// lane is full, and a bounded time while raw batches take more than they may (E-J8). Cancel safe.
    ///
    /// # Errors
    /// [`AppendError::Stalled`]: sorting makes no room. It may be tried again.
    pub async fn admit(&self, bytes: usize) -> Result<ByteLease, AppendError> {
        let backlog = self.lane.backlog();
        if self.stuck.load(Ordering::Relaxed) {
            let raw_bytes = self.state().extents.load().raw_bytes;
            if let Some(why) = backlog.refuses_stuck(raw_bytes) {
                return Err(AppendError::Stalled(why));
            }
        }
        loop {
            let lease = self.lane.room().take(bytes).await;
            if backlog.is_open() {
                return Ok(lease);
            }
            // Others may need the lane's room: those that sort.
            drop(lease);
            backlog.room().await.map_err(AppendError::Stalled)?;
        }
    }

    /// Accepts one validated batch: gives it its offsets and its place in the journal. Does not wait
    /// for the store: [`Appended::durable`] does. A retried batch gets its old offsets, and waits
    /// for the old one's durability. `lease` is given back when the batch is durable.
    ///
    /// # Errors
    /// See [`AppendError`]: nothing was accepted.
    pub fn append(
        self: &Arc<Self>,
        batch: &ValidBatch,
        lease: Option<ByteLease>,
    ) -> Result<Appended, AppendError> {
        let (bytes, limit) = (batch.bytes.len(), self.lane.max_batch_bytes());
        if bytes > limit {
            return Err(AppendError::TooLarge { bytes, limit });
        }
        let mut state = self.state();
        if let Some(why) = &state.ended {
            return Err(AppendError::Ended(why.clone()));
        }
        if let Some(duplicate) = state.check_producer(batch)? {
            return Ok(duplicate);
        }
        let known = state.producers.len();
        if let Some(stamp) = &batch.stamp
            && !state.producers.knows(stamp.producer_id)
            && let Some(why) = self.lane.limits().producers.refuses(&state.producers)
        {
            return Err(AppendError::Stalled(why));
        }
        let base_offset = state.log_end;
        let last_offset = base_offset + i64::from(batch.records) - 1;
        let append_time_ms = batch.log_append_time.unwrap_or_else(|| self.clock.wall_ms());
        let frame = BatchFrame {
            partition: Arc::clone(self),
            meta: BatchMeta {
                partition: self.id,
                leader_epoch: self.leader_epoch,
                epoch_start: self.epoch_start,
                append_time_ms,
            },
            base_offset,
            last_offset,
            accepted_epoch: self.leader_epoch,
            max_timestamp: batch.max_timestamp,
            _lease: lease,
        };
        self.lane.push(frame, &batch.bytes).map_err(|refusal| match refusal {
            Refusal::Stalled(why) => AppendError::Stalled(why),
            Refusal::Closed(why) => AppendError::Ended(why),
        })?;
        state.log_end = last_offset + 1;
        state.epochs.note(self.leader_epoch, base_offset);
        if let Some(stamp) = &batch.stamp {
            let time = batch.max_timestamp;
            state.producers.apply(stamp, base_offset, last_offset, time, append_time_ms);
        }
        let appended = Appended {
            base_offset,
            last_offset,
            log_append_time: batch.log_append_time,
            log_start: state.log_start,
            durable: state.waiters.wait_for(last_offset + 1),
        };
        let now_known = state.producers.len();
        drop(state);
        self.lane.limits().producers.change(known, now_known);
        Ok(appended)
    }

    /// The store made these batches durable: makes them visible, then answers their producers.
    pub(crate) fn publish(&self, extents: impl Iterator<Item = Extent>) {
        let mut state = self.state();
        let load = state.extents.load();
        for extent in extents {
            // Lanes hand on in order, and this partition has one lane (E-J5).
            assert_eq!(extent.base_offset, state.high_watermark, "{}: a gap in the log", self.id);
            state.high_watermark = extent.last_offset() + 1;
            state.size_bytes += u64::from(extent.length);
            state.extents.push(extent);
        }
        let high_watermark = state.high_watermark;
        let wake = state.waiters.reached(high_watermark);
        let more = state.extents.load();
        drop(state);
        // Before anyone is answered: who sends on because of it finds the limits as they are.
        self.lane.backlog().change(load, more);
        wake.up();
    }

    /// Ends this leadership: nothing more is accepted or served; who waits hears that the outcome is
    /// not known.
    pub fn end(&self, why: &str) {
        let mut state = self.state();
        state.ended.get_or_insert_with(|| why.into());
        let wake = state.waiters.ended(why);
        drop(state);
        wake.up();
    }

    /// Has `waiter` marked with `key` whenever the watermark moves or the leadership ends, for as long
    /// as the waiter lives. Look at the partition again after registering.
    pub fn register(&self, waiter: &Arc<FetchWaiter>, key: usize) {
        self.state().waiters.register(waiter, key);
    }

    /// For a client whose last record was accepted under `epoch`: see [`Epochs::end_of`].
    pub fn end_of_epoch(&self, epoch: LeaderEpoch) -> Option<(LeaderEpoch, i64)> {
        let state = self.state();
        state.epochs.end_of(epoch, self.leader_epoch, state.high_watermark)
    }

    /// The leader epoch of the newest record, if there is one.
    pub fn newest_epoch(&self) -> Option<LeaderEpoch> {
        self.state().epochs.newest()
    }

    /// Forgets producers that last appended before `deadline_ms` by this leader's clock.
    pub fn expire_producers(&self, deadline_ms: i64) -> usize {
        let mut state = self.state();
        let known = state.producers.len();
        let forgotten = state.producers.expire(deadline_ms);
        drop(state);
        self.lane.limits().producers.change(known, known - forgotten);
        forgotten
    }

    /// Whether anything is known of any producer.
    pub(crate) fn has_producers(&self) -> bool {
        !self.state().producers.is_empty()
    }

    /// A copy of the producer state, for people and tests.
    pub fn producers(&self) -> Producers {
        self.state().producers.clone()
    }
}

impl Drop for PartitionLog {
    fn drop(&mut self) {
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        self.lane.backlog().change(state.extents.load(), Load::default());
        self.lane.limits().producers.change(state.producers.len(), 0);
    }
}

impl State {
    /// The old offsets of a retried batch, `None` for a new one.
    fn check_producer(&mut self, batch: &ValidBatch) -> Result<Option<Appended>, AppendError> {
        let Some(stamp) = &batch.stamp else { return Ok(None) };
        match self.producers.check(stamp) {
            Verdict::New => Ok(None),
            Verdict::Duplicate(old) => {
                let durable = if old.last_offset < self.high_watermark {
                    Durable::done()
                } else {
                    self.waiters.wait_for(old.last_offset + 1)
                };
                Ok(Some(Appended {
                    base_offset: old.base_offset,
                    last_offset: old.last_offset,
                    log_append_time: batch.log_append_time.map(|_| old.max_timestamp),
                    log_start: self.log_start,
                    durable,
                }))
            }
            Verdict::StaleEpoch { newest } => Err(AppendError::StaleProducerEpoch {
                producer_id: stamp.producer_id,
                epoch: stamp.producer_epoch,
                newest,
            }),
            Verdict::OutOfOrder { expected } => Err(AppendError::OutOfOrderSequence {
                producer_id: stamp.producer_id,
                first: stamp.first_sequence,
                expected,
            }),
        }
    }
}
