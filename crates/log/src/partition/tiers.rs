//! What moves a partition's records from raw journals to runs and segments, and what deletes them: all
//! changes of the root, and the exchange of places in memory after the durable steps were taken.

use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};

use talos_common::{BrokerDir, LeaderEpoch};
use talos_storage::FilePath;

use super::{Offsets, PartitionLog, State};
use crate::epochs::Epochs;
use crate::extent::{Extent, Place};
use crate::format::Frame;
use crate::producers::Producers;
use crate::root::{Head, Root, RootError};
use crate::run::Run;
use crate::runs::SegmentEntry;

/// What a log still needs of former leaderships.
#[derive(Clone, Debug, Default)]
pub(crate) struct Inherits {
    /// Those in whose directories it may have something.
    pub(crate) pairs: Vec<(BrokerDir, LeaderEpoch)>,
    /// Where its producer state lies, until this leadership has put it elsewhere.
    pub(crate) state: Option<StateRun>,
}

/// The run of a sorted journal that says what is known of a log's producers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StateRun {
    pub(crate) file: FilePath,
    /// The set of sorted journals that the file belongs to.
    pub(crate) set: u64,
    /// Offset of the newest record of which it speaks.
    pub(crate) newest_offset: Option<i64>,
}

/// The root as this leadership knows it.
#[derive(Debug)]
pub(super) struct KnownRoot {
    /// As last read or swapped.
    pub(super) root: Root,
    /// The outcome of a later swap is unknown.
    pub(super) in_doubt: bool,
}

/// What of a partition may be written into a sorted journal or a segment.
#[derive(Debug)]
pub(crate) struct Sortable {
    /// Runs of sorted journals, behind all segments.
    pub(crate) runs: Vec<Arc<Run>>,
    /// Raw batches that go on from them, in closed files.
    pub(crate) extents: Vec<Extent>,
    /// Live segments before all that, oldest first.
    pub(crate) manifest: Vec<SegmentEntry>,
    /// What is known of producers below the end of `extents`.
    pub(crate) producers: Producers,
    /// The log's leader epochs.
    pub(crate) epochs: Epochs,
}

impl Sortable {
    pub(crate) fn bytes(&self) -> u64 {
        let raw: u64 = self.extents.iter().map(|extent| u64::from(extent.length)).sum();
        raw + self.runs.iter().map(|run| run.bytes).sum::<u64>()
    }

    /// Cuts it into what is to be written: the raw batches, and the runs that are `taken`, each piece
    /// with what follows it without a gap. The last piece, which may be empty, reaches to the end and has
    /// the producer state; that of older ones is needed nowhere.
    pub(crate) fn pieces(self, taken: impl Fn(&Run) -> bool) -> (Vec<Self>, Self) {
        let Self { runs, extents, manifest, producers, epochs } = self;
        let mut pieces: Vec<Self> = Vec::new();
        let mut piece: Vec<Arc<Run>> = Vec::new();
        for run in runs {
            if taken(&run) {
                piece.push(run);
                continue;
            }
            if let Some(last) = piece.last() {
                let epochs = epochs.below(last.end_offset);
                pieces.push(Self {
                    runs: std::mem::take(&mut piece),
                    extents: Vec::new(),
                    manifest: Vec::new(),
                    producers: Producers::new(),
                    epochs,
                });
            }
        }
        (pieces, Self { runs: piece, extents, manifest, producers, epochs })
    }

    /// The oldest journal of `dir` in which raw batches lie.
    pub(crate) fn first_file(&self, dir: BrokerDir) -> Option<u64> {
        first_file(self.extents.iter(), dir)
    }

    /// The offsets from the first to behind the last record; `None` when there is nothing.
    pub(crate) fn range(&self) -> Option<(i64, i64)> {
        let first = self.runs.first().map(|run| run.base_offset);
        let first = first.or(self.extents.first().map(|extent| extent.base_offset))?;
        let last = self.extents.last().map(|extent| extent.last_offset() + 1);
        Some((first, last.or(self.runs.last().map(|run| run.end_offset))?))
    }
}

fn first_file<'a>(extents: impl Iterator<Item = &'a Extent>, dir: BrokerDir) -> Option<u64> {
    let files = extents.filter_map(|extent| {
        let Place::Journal { id, .. } = *extent.place;
        (id.dir == dir).then_some(id.number)
    });
    files.min()
}

impl PartitionLog {
    /// Moves the log start to `offset`, durably, through the root. Moving it back or to where it is
    /// changes nothing; beyond the high watermark is refused. Gives the log start afterwards.
    ///
    /// # Errors
    /// [`RootError`]; `OutOfRange` when `offset` lies above the high watermark.
    pub async fn advance_log_start(&self, offset: i64) -> Result<i64, RootError> {
        let mut known = self.root.lock().await;
        self.settle_root(&mut known).await?;
        let root = known.root;
        let Offsets { log_start, high_watermark, .. } = self.offsets();
        if offset > high_watermark {
            return Err(RootError::OutOfRange { offset, high_watermark });
        }
        if offset <= log_start {
            return Ok(log_start);
        }
        // Of the last record below, which a newer epoch need not have accepted.
        let epoch = self.state().epochs.of(offset - 1);
        let next = Root { log_start: offset, ..root.covering(offset, epoch) };
        self.swap(&mut known, next).await?;
        self.drop_below(offset, root.head);
        Ok(offset)
    }

    /// Before anything is swapped: if the outcome of a swap was unknown, the root is read again. What
    /// was applied after all counts from now on, and its generation is not given twice (E-J14).
    async fn settle_root(&self, known: &mut KnownRoot) -> Result<(), RootError> {
        if !known.in_doubt {
            return Ok(());
        }
        let stored = self.root_handle.read().await?;
        known.root = stored.map_or_else(|| Ok(Root::default()), |bytes| Root::decode(&bytes))?;
        known.in_doubt = false;
        let Root { log_start, generation, end_offset, head, .. } = known.root;
        let mut state = self.state();
        state.published = (generation > 0).then_some((generation, end_offset));
        let moved = log_start > state.log_start;
        drop(state);
        if moved {
            self.drop_below(log_start, head);
        }
        Ok(())
    }

    async fn swap(&self, known: &mut KnownRoot, next: Root) -> Result<(), RootError> {
        let next = Root { generation: known.root.generation + 1, ..next };
        // If this call is cut off, its outcome is unknown too.
        known.in_doubt = true;
        let swapped = self.root_handle.swap(next.encode()).await;
        known.in_doubt = matches!(swapped, Err(RootError::Uncertain(_) | RootError::Corrupt(_)));
        swapped?;
        known.root = next;
        self.state().published = Some((next.generation, next.end_offset));
        Ok(())
    }

    /// Forgets what lies wholly below the log start. The head stays: the root names it.
    fn drop_below(&self, offset: i64, head: Option<Head>) {
        let mut state = self.state();
        let load = state.extents.load();
        state.log_start = offset;
        state.moves += 1;
        let mut dead = Vec::new();
        while state.runs.front().is_some_and(|run| run.end_offset <= offset) {
            if let Some(run) = state.runs.pop_front() {
                state.size_bytes -= run.bytes;
                let is_head =
                    run.segment.zip(head).is_some_and(|(s, head)| s.attempt == head.attempt);
                if run.segment.is_some() && !is_head {
                    dead.push(run.file.clone());
                }
            }
        }
        let raw = state.extents.batch_bytes();
        state.extents.drop_while(|extent| !extent.reaches(offset));
        state.size_bytes -= raw - state.extents.batch_bytes();
        state.epochs.trim(offset);
        let left = state.extents.load();
        drop(state);
        self.lane.backlog().change(load, left);
        self.dead_segments.lock().unwrap_or_else(PoisonError::into_inner).append(&mut dead);
    }

    /// Segments that were cut off by the log start since the last call.
    pub(crate) fn take_dead_segments(&self) -> Vec<FilePath> {
        std::mem::take(&mut *self.dead_segments.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The segments that exist for the root and for readers: those that are live, and the head.
    pub(crate) async fn segments(&self) -> BTreeSet<FilePath> {
        let head = self.root.lock().await.root.head;
        let partition = self.id;
        let head = head.map(|Head { base_offset, leader_epoch, attempt, .. }| FilePath::Segment {
            partition,
            base_offset,
            leader_epoch,
            attempt,
        });
        let state = self.state();
        let live = state.runs.iter().filter(|run| run.segment.is_some());
        live.map(|run| run.file.clone()).chain(head).collect()
    }

    /// The offset up to which records may be deleted by retention: segments, runs and raw batches
    /// whose newest record is older than `before_ms`, and the oldest ones beyond `limit_bytes`.
    pub fn retention_offset(&self, before_ms: Option<i64>, limit_bytes: Option<u64>) -> i64 {
        let state = self.state();
        let mut kept_bytes = state.size_bytes;
        let mut offset = state.log_start;
        let runs = state.runs.iter().map(|run| (run.max_timestamp, run.bytes, run.end_offset));
        let extents = state.extents.iter();
        let extents = extents.map(|e| (e.max_timestamp, u64::from(e.length), e.last_offset() + 1));
        for (max_timestamp, bytes, end_offset) in runs.chain(extents) {
            let too_old = before_ms.is_some_and(|before| max_timestamp < before);
            let too_much = limit_bytes.is_some_and(|limit| kept_bytes - bytes >= limit);
            if !too_old && !too_much {
                break;
            }
            kept_bytes -= bytes;
            offset = end_offset;
        }
        offset
    }

    /// What may be sorted: raw batches in files for which `is_closed`, and the runs of sorted journals
    /// before them. `None` once the leadership ended.
    pub(crate) fn sortable(&self, is_closed: impl Fn(&Place) -> bool) -> Option<Sortable> {
        let state = self.state();
        if state.ended.is_some() {
            return None;
        }
        let runs = state.runs.iter().filter(|run| run.segment.is_none()).cloned().collect();
        let closed = state.extents.iter().take_while(|extent| is_closed(&extent.place));
        let extents: Vec<Extent> = closed.cloned().collect();
        let end = extents.last().map(|extent| extent.last_offset() + 1);
        let end = end.or(state.runs.back().map(|run| run.end_offset)).unwrap_or(state.log_start);
        Some(Sortable {
            runs,
            extents,
            manifest: state.runs.iter().filter_map(|run| run.segment).collect(),
            producers: state.producers.below(end),
            epochs: state.epochs.below(end),
        })
    }

    /// The oldest journal of `dir` in which raw batches lie, whether or not the leadership lasts.
    pub(crate) fn first_file(&self, dir: BrokerDir) -> Option<u64> {
        first_file(self.state().extents.iter(), dir)
    }

    /// Bytes of the raw batches that [`PartitionLog::sortable`] would give.
    pub(crate) fn sortable_bytes(&self, is_closed: impl Fn(&Place) -> bool) -> u64 {
        let state = self.state();
        let closed = state.extents.iter().take_while(|extent| is_closed(&extent.place));
        let closed = closed.filter(|_| state.ended.is_none());
        closed.map(|extent| u64::from(extent.length)).sum()
    }

    /// The runs of sorted journals that stay when those in `replaced` (offset ranges, ends exclusive)
    /// give way to others.
    pub(crate) fn sorted_runs_beside(&self, replaced: &[(i64, i64)]) -> Vec<Arc<Run>> {
        let stays = |run: &&Arc<Run>| {
            let beside = |(from, to): &(i64, i64)| {
                from == to || run.end_offset <= *from || run.base_offset >= *to
            };
            run.segment.is_none() && replaced.iter().all(beside)
        };
        self.state().runs.iter().filter(stays).cloned().collect()
    }

    fn inherits(&self) -> MutexGuard<'_, Inherits> {
        self.inherits.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The inherited run that says what is known of producers, while no other does.
    pub(crate) fn inherited_state(&self) -> Option<StateRun> {
        self.inherits().state.clone()
    }

    /// The producer state lies in the own directory now, or in a segment.
    pub(crate) fn drop_inherited_state(&self) {
        self.inherits().state = None;
    }

    /// Says whether the last sorting pass could not sort this partition: its raw batches stay, so it
    /// must not take all room for such.
    pub(crate) fn set_stuck(&self, stuck: bool) {
        self.stuck.store(stuck, Ordering::Relaxed);
    }

    /// Takes the inherited pairs in whose directories nothing of this log is read any more. Called
    /// when a pass has put everything raw into `own`.
    pub(crate) fn take_unneeded(&self, own: BrokerDir) -> Vec<(BrokerDir, LeaderEpoch)> {
        let mut used: BTreeSet<BrokerDir> = BTreeSet::from([own]);
        let state = self.state();
        used.extend(state.runs.iter().filter_map(|run| run.file.dir()));
        used.extend(state.extents.iter().map(|extent| {
            let Place::Journal { id, .. } = *extent.place;
            id.dir
        }));
        let has_producers = !state.producers.is_empty();
        drop(state);
        let mut inherits = self.inherits();
        let state = inherits.state.as_ref().filter(|_| has_producers);
        used.extend(state.and_then(|state| state.file.dir()));
        let pairs = std::mem::take(&mut inherits.pairs);
        let (kept, unneeded) = pairs.into_iter().partition(|(dir, _)| used.contains(dir));
        inherits.pairs = kept;
        unneeded
    }

    /// Puts `runs`, which hold the same records as the places from `base_offset` to `end_offset`
    /// (exclusive), in their stead.
    pub(crate) fn replace(&self, base_offset: i64, end_offset: i64, runs: Vec<Arc<Run>>) {
        let mut state = self.state();
        let load = state.extents.load();
        let State { runs: old, extents, log_start, .. } = &mut *state;
        old.retain(|run| run.end_offset <= base_offset || run.base_offset >= end_offset);
        extents.drop_while(|extent| extent.last_offset() < end_offset);
        let at = old.partition_point(|run| run.end_offset <= base_offset);
        let live = runs.into_iter().filter(|run| run.end_offset > *log_start).map(Run::lean);
        let tail = old.split_off(at);
        old.extend(live);
        old.extend(tail);
        let size_bytes = extents.batch_bytes() + old.iter().map(|run| run.bytes).sum::<u64>();
        state.size_bytes = size_bytes;
        state.moves += 1;
        let left = state.extents.load();
        drop(state);
        self.lane.backlog().change(load, left);
    }

    /// The frame that states the root as it is, to be made durable before anything goes that an older
    /// root may need (E-J14); `None` without a root.
    pub(crate) fn published(&self) -> Option<Frame> {
        let (root_generation, end_offset) = self.state().published?;
        Some(Frame::Published { partition: self.id, end_offset, root_generation })
    }

    /// Makes `segments`, which are durable, part of the log: the last one becomes the head.
    pub(crate) async fn publish_segments(
        &self,
        base_offset: i64,
        segments: Vec<Arc<Run>>,
    ) -> Result<(), RootError> {
        let mut known = self.root.lock().await;
        self.settle_root(&mut known).await?;
        let root = known.root;
        let Some((newest, run)) = segments.last().and_then(|run| Some((run.segment?, run))) else {
            return Ok(());
        };
        let head = Head {
            base_offset: newest.base_offset,
            leader_epoch: newest.leader_epoch,
            attempt: newest.attempt,
            file_bytes: newest.file_bytes,
        };
        let epoch = run.known().and_then(|entry| entry.epochs.newest());
        let next = root.covering(newest.end_offset, epoch);
        let old = root.head;
        self.swap(&mut known, Root { head: Some(head), ..next }).await?;
        let end_offset = newest.end_offset;
        self.replace(base_offset, end_offset, segments);
        if let Some(old) = old {
            self.drop_old_head(old);
        }
        Ok(())
    }

    /// The head that was replaced stayed when the log start passed it, because the root named it.
    fn drop_old_head(&self, old: Head) {
        let state = self.state();
        let is_live = state
            .runs
            .iter()
            .any(|run| run.segment.is_some_and(|segment| segment.attempt == old.attempt));
        drop(state);
        if !is_live {
            let Head { base_offset, leader_epoch, attempt, .. } = old;
            let path = FilePath::Segment { partition: self.id, base_offset, leader_epoch, attempt };
            self.dead_segments.lock().unwrap_or_else(PoisonError::into_inner).push(path);
        }
    }
}
