//! The background task that rewrites closed journals by partition, publishes segments, and lets files
//! go: so files and metadata writes follow bytes, not partitions (E-J9).
//!
//! One pass: every partition's batches in closed journals (and in directories that are inherited) go
//! into a segment when there are enough of them, else into a sorted journal with those of other
//! partitions. Sorted journals are merged by size, those of former epochs are read where they lie
//! (E-W15). The order of durable steps is the point:
//!
//! ```text
//! segment durable → root swapped → published frame durable ┐
//! sorted journals durable ─────────→ catalog frame durable ┴→ places exchanged → raw files deleted
//! ```
//!
//! A pass that is cut off anywhere leaves files that nothing names. When the store has no room, a pass takes
//! one of the own files and merges nothing.

mod catalog;
mod files;
mod plan;
mod segments;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use talos_common::{BrokerDir, Env, LaneId, LeaderEpoch, TopicPartitionId};
use talos_storage::{Error as StorageError, FilePath, Storage};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::extent::Place;
use crate::format::{JournalId, SortedFile};
use crate::lane::Lane;
use crate::partition::PartitionLog;
use crate::partition::ReadError;
use crate::partition::tiers::Sortable;
use crate::producers::Producers;
use crate::registry::Registry;
use crate::root::RootError;
use crate::runs::RunFileError;
use files::{Exchange, NewFile, SortedFiles};
use plan::Merge;
use segments::Garbage;

/// Between looks at what may go, and after a pass that failed.
const PAUSE: Duration = Duration::from_secs(30);

/// The same while raw batches take much room, and between rolls of the journal for their sake.
const PAUSE_PRESSED: Duration = Duration::from_secs(2);

/// What a sorter is made of.
#[derive(Debug)]
pub(crate) struct SorterParts {
    pub(crate) env: Env,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) cluster: [u8; 16],
    pub(crate) dir: BrokerDir,
    pub(crate) lane_id: LaneId,
    pub(crate) lane: Lane,
    pub(crate) registry: Registry,
    /// Number of the journal file that is being written.
    pub(crate) current_file: watch::Receiver<u64>,
    /// Closed raw bytes that start a pass.
    pub(crate) sort_bytes: u64,
    /// Bytes of a partition that are worth a segment, and of one segment.
    pub(crate) segment_bytes: u64,
}

#[derive(Debug)]
pub(crate) struct Sorter {
    parts: SorterParts,
    /// Raw files below this are deleted.
    replaced_below: u64,
    /// Numbers are never used again, whatever became of their files.
    next_sorted: Arc<AtomicU64>,
    /// Of the last catalog.
    generation: u64,
    /// Live sorted journals of this directory.
    live: BTreeMap<u64, LiveFile>,
    /// Where a partition's newest producer state lies in them.
    newest_state: BTreeMap<TopicPartitionId, NewestState>,
    /// Under which leader epoch a partition was sorted last: what is known of its state is of that one.
    led: BTreeMap<TopicPartitionId, LeaderEpoch>,
    /// Up to which offset of its producers' batches a partition's state was saved by this sorter.
    saved: BTreeMap<TopicPartitionId, Option<i64>>,
    dying: VecDeque<(Instant, FilePath)>,
    /// Sorted journals that no catalog names any more, or never did.
    unnamed: Vec<FilePath>,
    garbage: Garbage,
}

#[derive(Debug)]
struct LiveFile {
    stated: SortedFile,
    /// Bytes of the batches in it when it was written.
    batch_bytes: u64,
}

#[derive(Clone, Copy, Debug)]
struct NewestState {
    file: u64,
    has_producers: bool,
}

/// What a pass wrote before it is named.
struct Collected {
    /// The partitions that were sorted.
    logs: Vec<Arc<PartitionLog>>,
    /// Raw files below this hold nothing else.
    replaced_below: u64,
    /// The first failure of one partition.
    failed: Option<PassError>,
}

#[derive(Debug, thiserror::Error)]
enum PassError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    RunFile(#[from] RunFileError),
    #[error(transparent)]
    Root(#[from] RootError),
    #[error("{0}")]
    Batch(#[from] talos_protocol::batch::BatchError),
    #[error("the journal is closed")]
    Closed,
}

impl PassError {
    /// Whether trying again can not help: something was damaged.
    fn is_damage(&self) -> bool {
        matches!(
            self,
            Self::Read(ReadError::Corrupt { .. })
                | Self::RunFile(RunFileError::Corrupt { .. })
                | Self::Batch(_)
        )
    }
}

impl Sorter {
    pub(crate) fn new(parts: SorterParts) -> Self {
        Self {
            parts,
            replaced_below: 0,
            next_sorted: Arc::default(),
            generation: 0,
            live: BTreeMap::new(),
            newest_state: BTreeMap::new(),
            led: BTreeMap::new(),
            saved: BTreeMap::new(),
            dying: VecDeque::new(),
            unnamed: Vec::new(),
            garbage: Garbage::default(),
        }
    }

    /// Runs until the broker stops.
    pub(crate) async fn run(mut self) {
        let tasks = self.parts.env.tasks.clone();
        let registry = self.parts.registry.clone();
        let backlog = self.parts.lane.backlog().clone();
        let mut rolled: Option<Instant> = None;
        loop {
            let pause = self.pause();
            tokio::select! {
                biased;
                () = tasks.stopping() => return,
                changed = self.parts.current_file.changed() => if changed.is_err() { return },
                () = registry.asked_to_sort() => {}
                () = backlog.pressed() => {}
                () = self.parts.env.clock.sleep(pause) => {}
            }
            let asked = registry.take_asks();
            if !asked.is_empty() || self.is_due() {
                let outcome = self.pass().await;
                if let Err(error) = &outcome {
                    tracing::warn!(%error, "sorting the journals failed; it is tried again");
                    if asked.is_empty() {
                        tokio::select! {
                            biased;
                            () = tasks.stopping() => return,
                            // Something went: it may succeed now.
                            () = registry.asked_to_sort() => registry.nudge(),
                            () = backlog.pressed() => {}
                            () = self.parts.env.clock.sleep(self.pause()) => {}
                        }
                    }
                }
                let outcome = outcome.map_err(|error| error.to_string());
                for asked in asked {
                    // Whoever asked may have left.
                    let _ = asked.send(outcome.clone());
                }
            }
            // What presses may lie in the open file.
            let now = self.parts.env.clock.now();
            let is_time = rolled.is_none_or(|at| now.duration_since(at) >= PAUSE_PRESSED);
            if backlog.is_pressed() && (is_time || !backlog.is_open()) {
                rolled = Some(now);
                self.parts.lane.ask_to_roll();
            }
            self.delete_dead_segments().await;
            self.collect_garbage().await;
        }
    }

    fn pause(&self) -> Duration {
        // Nobody can produce once there is no room.
        let pressed = self.parts.lane.backlog().is_pressed() || self.parts.lane.is_stalled();
        if pressed { PAUSE_PRESSED } else { PAUSE }
    }

    fn is_due(&self) -> bool {
        let closed = *self.parts.current_file.borrow() - self.replaced_below;
        closed.saturating_mul(self.parts.storage.traits().file_bytes) >= self.parts.sort_bytes
            || self.parts.lane.backlog().is_pressed()
            || (self.parts.lane.is_stalled() && closed > 0)
    }

    /// One pass over all partitions. One that can not be sorted holds up no other: its raw batches stay
    /// where they are, with the files from the first of them on, and the pass fails at its end.
    async fn pass(&mut self) -> Result<(), PassError> {
        let mut upto = *self.parts.current_file.borrow_and_update();
        let stalled = self.parts.lane.is_stalled();
        if stalled {
            // On a full disk one of the own files at a time: what is still needed of it takes the least
            // room, and then it goes. What is inherited is sorted as a whole.
            upto = upto.min(self.replaced_below + 1);
        }
        let merge = if stalled { Merge::default() } else { self.plan(upto) };
        let mut sorted = SortedFiles::new(self);
        let collected = match self.collect(&mut sorted, &merge, upto).await {
            Ok(collected) => sorted.flush().await.map(|()| collected),
            Err(error) => Err(error),
        };
        let Collected { logs, replaced_below, failed } = match collected {
            Ok(collected) => collected,
            Err(error) => {
                self.unnamed.extend(sorted.discard());
                self.delete_unnamed().await;
                return Err(error);
            }
        };
        let SortedFiles { files, exchanges, .. } = sorted;
        let replaced_below = replaced_below.max(self.replaced_below);
        let dead = self.enlist(&files, &exchanges);
        self.state_catalog(&exchanges, replaced_below).await?;
        self.exchange(&files, exchanges, &logs);
        let dir = self.parts.dir;
        // Before anything can fail: no later pass knows them any more.
        self.unnamed.extend(dead.into_iter().map(|number| FilePath::Sorted { dir, number }));
        for number in self.replaced_below..replaced_below {
            let id = JournalId { dir, lane: self.parts.lane_id, number };
            self.parts.storage.delete(&id.path()).await?;
        }
        self.replaced_below = replaced_below;
        self.delete_unnamed().await;
        failed.map_or(Ok(()), Err)
    }

    /// Which batches are in files that nothing is written to any more.
    fn is_closed(&self, upto: u64) -> impl Fn(&Place) -> bool + Copy + use<> {
        let dir = self.parts.dir;
        move |place| {
            let Place::Journal { id, .. } = place;
            id.dir != dir || id.number < upto
        }
    }

    /// What can not be deleted now is tried again with the next pass.
    async fn delete_unnamed(&mut self) {
        let mut kept = Vec::new();
        for path in std::mem::take(&mut self.unnamed) {
            if let Err(error) = self.parts.storage.delete(&path).await {
                tracing::warn!(%path, %error, "a file that nothing needs stays for now");
                kept.push(path);
            }
        }
        self.unnamed = kept;
    }

    /// What of the sorted journals is written again with what this pass sorts.
    fn plan(&self, upto: u64) -> Merge {
        let own = self.parts.dir;
        let mut sets = BTreeMap::new();
        let mut files: BTreeMap<u64, u64> = BTreeMap::new();
        for (number, file) in &self.live {
            sets.insert((own, file.stated.set), 0);
            files.insert(*number, 0);
        }
        let mut incoming = 0;
        for log in self.parts.registry.all() {
            incoming += log.sortable_bytes(self.is_closed(upto));
            if let Some(state) = log.inherited_state()
                && let FilePath::Sorted { dir, .. } = state.file
            {
                sets.entry((dir, state.set)).or_default();
            }
            for run in log.sorted_runs_beside(&[]) {
                let FilePath::Sorted { dir, number } = run.file else { continue };
                *sets.entry((dir, run.set)).or_default() += run.bytes;
                if dir == own {
                    *files.entry(number).or_default() += run.bytes;
                }
            }
        }
        let half_dead = files.into_iter().filter(|(number, bytes)| {
            self.live.get(number).is_some_and(|file| bytes * 2 < file.batch_bytes)
        });
        let half_dead = half_dead.map(|(number, _)| FilePath::Sorted { dir: own, number });
        Merge { sets: plan::choose(&sets, incoming, own), files: half_dead.collect() }
    }

    /// Writes what may be sorted of every partition into segments, or into `sorted`.
    async fn collect(
        &mut self,
        sorted: &mut SortedFiles,
        merge: &Merge,
        upto: u64,
    ) -> Result<Collected, PassError> {
        let mut collected = Collected { logs: Vec::new(), replaced_below: upto, failed: None };
        let dir = self.parts.dir;
        for log in self.parts.registry.all() {
            let Some(source) = log.sortable(self.is_closed(upto)) else {
                // Its leadership ended: its raw batches are the next leader's to read.
                let kept = log.first_file(dir).unwrap_or(upto);
                collected.replaced_below = collected.replaced_below.min(kept);
                continue;
            };
            let first_file = source.first_file(dir);
            let outcome = self.sort_one(&log, source, merge, sorted).await;
            log.set_stuck(outcome.as_ref().is_err_and(PassError::is_damage));
            let error = match outcome {
                Ok(not_merged) => {
                    collected.logs.push(Arc::clone(&log));
                    not_merged
                }
                Err(error) => {
                    let kept = first_file.unwrap_or(upto);
                    collected.replaced_below = collected.replaced_below.min(kept);
                    Some(error)
                }
            };
            if let Some(error) = error {
                tracing::warn!(partition = %log.id(), %error, "a partition is not sorted");
                collected.failed.get_or_insert(error);
            }
            sorted.publish_if_full().await?;
        }
        Ok(collected)
    }

    /// An error: its raw batches stay where they are. `Some`: runs that were to be merged stay.
    async fn sort_one(
        &mut self,
        log: &Arc<PartitionLog>,
        source: Sortable,
        merge: &Merge,
        sorted: &mut SortedFiles,
    ) -> Result<Option<PassError>, PassError> {
        let id = log.id();
        let epoch = log.leader_epoch();
        if self.led.insert(id, epoch).is_some_and(|led| led != epoch) {
            // What a former leadership of this same process saved is under its own pair.
            self.newest_state.remove(&id);
            self.saved.remove(&id);
        }
        let newest = source.producers.newest_offset();
        if source.bytes() >= self.parts.segment_bytes {
            self.write_segments(log, source).await?;
            // The head's footer has the producer state from now on.
            self.newest_state.remove(&id);
            self.saved.insert(id, newest);
            log.drop_inherited_state();
            return Ok(None);
        }
        let inherited = log.inherited_state();
        let saved = self.saved.get(&id).copied().flatten();
        let saved = saved.max(inherited.as_ref().and_then(|state| state.newest_offset));
        let moves = match self.newest_state.get(&id) {
            Some(state) => self.live.get(&state.file).is_some_and(|file| {
                let path = FilePath::Sorted { dir: self.parts.dir, number: state.file };
                merge.takes(&path, file.stated.set)
            }),
            None => inherited.is_some_and(|state| merge.takes(&state.file, state.set)),
        };
        let keep_state = moves || saved < newest;
        let (pieces, last) = source.pieces(|run| merge.takes_run(run));
        sorted.add(log, pieces, last, keep_state).await
    }

    /// Takes new files up and leaves out those in which nothing is needed, once places are exchanged.
    /// Gives the latter.
    fn enlist(&mut self, files: &BTreeMap<u64, NewFile>, exchanges: &[Exchange]) -> Vec<u64> {
        for exchange in exchanges.iter().filter(|exchange| exchange.has_state) {
            let Exchange { log, file, index, .. } = exchange;
            let run = files.get(file).and_then(|file| file.runs.get(*index));
            let state = run.and_then(|run| run.known()).map(|entry| &entry.producers);
            let has_producers = state.is_some_and(|state| !state.is_empty());
            self.newest_state.insert(log.id(), NewestState { file: *file, has_producers });
            self.saved.insert(log.id(), state.and_then(Producers::newest_offset));
        }
        self.newest_state.retain(|id, _| self.parts.registry.holds(*id));
        self.saved.retain(|id, _| self.parts.registry.holds(*id));
        self.led.retain(|id, _| self.parts.registry.holds(*id));
        let mut replaced: BTreeMap<TopicPartitionId, Vec<(i64, i64)>> = BTreeMap::new();
        for exchange in exchanges {
            replaced.entry(exchange.log.id()).or_default().push(exchange.range);
        }
        let mut used: BTreeSet<u64> = files.keys().copied().collect();
        for log in self.parts.registry.all() {
            let ranges = replaced.get(&log.id()).map_or(&[][..], Vec::as_slice);
            used.extend(log.sorted_runs_beside(ranges).iter().filter_map(|run| match run.file {
                FilePath::Sorted { dir, number } if dir == self.parts.dir => Some(number),
                _ => None,
            }));
            let state = self.newest_state.get(&log.id()).filter(|state| state.has_producers);
            used.extend(state.filter(|_| log.has_producers()).map(|state| state.file));
        }
        for (number, file) in files {
            let batch_bytes = file.runs.iter().map(|run| run.bytes).sum();
            self.live.insert(*number, LiveFile { stated: file.stated, batch_bytes });
        }
        let dead: Vec<u64> =
            self.live.keys().filter(|number| !used.contains(number)).copied().collect();
        self.live.retain(|number, _| used.contains(number));
        let live = &self.live;
        self.newest_state.retain(|_, state| live.contains_key(&state.file));
        dead
    }

    /// The catalog is durable: readers take the new places.
    fn exchange(
        &mut self,
        files: &BTreeMap<u64, NewFile>,
        exchanges: Vec<Exchange>,
        logs: &[Arc<PartitionLog>],
    ) {
        for Exchange { log, range, file, index, has_state } in exchanges {
            let run = files.get(&file).and_then(|file| file.runs.get(index));
            if let Some(run) = run.filter(|run| run.bytes > 0) {
                log.replace(range.0, range.1, vec![Arc::clone(run)]);
            }
            if has_state {
                log.drop_inherited_state();
            }
        }
        self.parts.registry.note_unneeded(logs, self.parts.dir);
    }
}
