//! The background task that rewrites closed journals by partition, publishes segments, and lets files
//! go: so files and metadata writes follow bytes, not partitions (E-J9).
//!
//! One pass: every partition's batches in closed journals (and in directories that are inherited) go
//! into a segment when there are enough of them, else into a sorted journal with those of other
//! partitions. The order of durable steps is the point:
//!
//! ```text
//! segment durable → root swapped → published frame durable ┐
//! sorted journals durable ─────────→ catalog frame durable ┴→ places exchanged → raw files deleted
//! ```
//!
//! A pass that is cut off anywhere leaves files that nothing names.

mod files;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use talos_common::{BrokerDir, Env, LaneId, TopicPartitionId};
use talos_protocol::batch::BatchHeader;
use talos_storage::{Error as StorageError, FilePath, Storage};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::extent::Place;
use crate::format::{Frame, JournalId};
use crate::lane::Lane;
use crate::partition::PartitionLog;
use crate::partition::ReadError;
use crate::partition::tiers::Sortable;
use crate::producers::Producers;
use crate::registry::Registry;
use crate::root::RootError;
use crate::run::Run;
use crate::runs::{RunFileBuilder, RunFileError, RunKind, SegmentEntry};
use files::{SortedFiles, SourceReader, delete_all, push_all};

/// More live sorted journals than this are merged.
const MAX_SORTED: usize = 32;
/// A segment's file goes this long after the root stopped reaching it: readers may be at it.
const DELETE_DELAY: Duration = Duration::from_secs(60);
/// Between looks at what may go, and after a pass that failed.
const PAUSE: Duration = Duration::from_secs(30);

/// The same while raw batches take much room, and between rolls of the journal for their sake.
const PAUSE_PRESSED: Duration = Duration::from_secs(2);

/// Control frames in one flush, which must fit into one file.
const FRAMES_PER_FLUSH: usize = 1_000;

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
    /// Live sorted journals of this directory and the runs in them.
    live: BTreeMap<u64, Vec<LiveRun>>,
    /// The sorted journal that holds a partition's newest producer state.
    newest_state: BTreeMap<TopicPartitionId, u64>,
    /// Up to which offset of its producers' batches a partition's state was saved by this sorter.
    saved: BTreeMap<TopicPartitionId, Option<i64>>,
    dying: VecDeque<(Instant, FilePath)>,
}

#[derive(Debug)]
struct LiveRun {
    partition: TopicPartitionId,
    has_producers: bool,
}

/// A run that takes the place of others once the catalog is durable.
#[derive(Debug)]
struct Exchange {
    log: Arc<PartitionLog>,
    range: (i64, i64),
    file: u64,
    index: usize,
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
            live: BTreeMap::new(),
            newest_state: BTreeMap::new(),
            saved: BTreeMap::new(),
            dying: VecDeque::new(),
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
        }
    }

    fn pause(&self) -> Duration {
        // Nobody can produce once there is no room.
        if self.parts.lane.backlog().is_pressed() { PAUSE_PRESSED } else { PAUSE }
    }

    fn is_due(&self) -> bool {
        let closed = *self.parts.current_file.borrow() - self.replaced_below;
        closed.saturating_mul(self.parts.storage.traits().file_bytes) >= self.parts.sort_bytes
            || self.parts.lane.backlog().is_pressed()
    }

    /// One pass over all partitions. One that can not be sorted holds up no other: its raw batches stay
    /// where they are, with the files from the first of them on, and the pass fails at its end.
    async fn pass(&mut self) -> Result<(), PassError> {
        let upto = *self.parts.current_file.borrow_and_update();
        let mut sorted = SortedFiles::new(self);
        let collected = match self.collect(&mut sorted, upto).await {
            Ok(collected) => sorted.flush().await.map(|()| collected),
            Err(error) => Err(error),
        };
        let Collected { logs, replaced_below, failed } = match collected {
            Ok(collected) => collected,
            Err(error) => {
                sorted.discard().await;
                return Err(error);
            }
        };
        let SortedFiles { files, exchanges, .. } = sorted;
        let named: Vec<u64> = self.live.keys().chain(files.keys()).copied().collect();
        let replaced_below = replaced_below.max(self.replaced_below);
        self.state_catalog(named, replaced_below).await?;
        self.exchange(files, exchanges, &logs);
        let dir = self.parts.dir;
        for number in self.replaced_below..replaced_below {
            let id = JournalId { dir, lane: self.parts.lane_id, number };
            self.parts.storage.delete(&id.path()).await?;
        }
        self.replaced_below = replaced_below;
        self.drop_dead_sorted().await?;
        failed.map_or(Ok(()), Err)
    }

    /// Writes what may be sorted of every partition into segments, or into `sorted`.
    async fn collect(
        &mut self,
        sorted: &mut SortedFiles,
        upto: u64,
    ) -> Result<Collected, PassError> {
        let dir = self.parts.dir;
        let is_closed = |place: &Place| {
            let Place::Journal { id, .. } = place;
            id.dir != dir || id.number < upto
        };
        let merge = self.live.len() > MAX_SORTED;
        let mut collected = Collected { logs: Vec::new(), replaced_below: upto, failed: None };
        for log in self.parts.registry.logs() {
            let source = log.sortable(is_closed);
            let first_file = source.first_file(dir);
            let outcome = self.sort_one(&log, source, merge, sorted).await;
            log.set_stuck(outcome.as_ref().is_err_and(PassError::is_damage));
            match outcome {
                Ok(()) => collected.logs.push(log),
                Err(error) => {
                    tracing::warn!(partition = %log.id(), %error, "a partition is not sorted");
                    let kept = first_file.unwrap_or(upto);
                    collected.replaced_below = collected.replaced_below.min(kept);
                    collected.failed.get_or_insert(error);
                }
            }
            sorted.publish_if_full().await?;
        }
        Ok(collected)
    }

    async fn sort_one(
        &mut self,
        log: &Arc<PartitionLog>,
        mut source: Sortable,
        merge: bool,
        sorted: &mut SortedFiles,
    ) -> Result<(), PassError> {
        let dir = self.parts.dir;
        let inherited = |run: &Arc<Run>| run.file.dir().is_some_and(|of| of != dir);
        let newest = source.producers.newest_offset();
        if source.bytes() >= self.parts.segment_bytes {
            self.write_segments(log, source).await?;
            // The head's footer has the producer state from now on.
            self.newest_state.remove(&log.id());
            self.saved.insert(log.id(), newest);
            return Ok(());
        }
        if !merge && !source.runs.iter().any(inherited) {
            source.runs.clear();
        }
        let is_saved = self.saved.get(&log.id()).copied().flatten() >= newest;
        let moves = merge && self.newest_state.contains_key(&log.id());
        sorted.add(log, source, moves || !is_saved).await
    }

    /// Makes a catalog durable, and before it, what is known of the roots: from then on what it does not
    /// name may go, which an older root may need (E-J14).
    async fn state_catalog(&self, sorted: Vec<u64>, replaced_below: u64) -> Result<(), PassError> {
        let logs = self.parts.registry.logs();
        let mut frames: Vec<Frame> = logs.iter().filter_map(|log| log.published()).collect();
        frames.push(Frame::Catalog { sorted, replaced_below });
        self.make_durable(&frames).await
    }

    /// Makes the frames durable, in their order.
    async fn make_durable(&self, frames: &[Frame]) -> Result<(), PassError> {
        for some in frames.chunks(FRAMES_PER_FLUSH) {
            let durable = self.parts.lane.push_control(some).map_err(|_| PassError::Closed)?;
            durable.await.map_err(|_| PassError::Closed)?;
        }
        Ok(())
    }

    /// The catalog is durable: readers take the new places.
    fn exchange(
        &mut self,
        files: BTreeMap<u64, Vec<Arc<Run>>>,
        exchanges: Vec<Exchange>,
        logs: &[Arc<PartitionLog>],
    ) {
        for (number, runs) in &files {
            let live = runs.iter().filter_map(|run| {
                let entry = run.known()?;
                let has_producers = !entry.producers.is_empty();
                Some(LiveRun { partition: entry.partition, has_producers })
            });
            self.live.insert(*number, live.collect());
        }
        for Exchange { log, range, file, index } in exchanges {
            self.newest_state.insert(log.id(), file);
            let run = files.get(&file).and_then(|runs| runs.get(index));
            let state = run.and_then(|run| run.known()).map(|entry| &entry.producers);
            self.saved.insert(log.id(), state.and_then(Producers::newest_offset));
            if let Some(run) = run.filter(|run| run.bytes > 0) {
                log.replace(range.0, range.1, vec![Arc::clone(run)]);
            }
        }
        self.newest_state.retain(|id, _| self.parts.registry.holds(*id));
        self.saved.retain(|id, _| self.parts.registry.holds(*id));
        self.parts.registry.note_unneeded(logs, self.parts.dir);
    }

    /// Lets sorted journals go in which no run is needed: a catalog without them first.
    async fn drop_dead_sorted(&mut self) -> Result<(), PassError> {
        let mut used = BTreeSet::new();
        let mut emptied = BTreeSet::new();
        for log in self.parts.registry.logs() {
            used.extend(log.run_files());
            if !log.has_producers() {
                emptied.insert(log.id());
            }
        }
        let dir = self.parts.dir;
        let is_live = |number: u64, runs: &[LiveRun]| {
            used.contains(&FilePath::Sorted { dir, number })
                || runs.iter().any(|run| {
                    let newest = self.newest_state.get(&run.partition) == Some(&number);
                    let open = self.parts.registry.holds(run.partition);
                    run.has_producers && newest && open && !emptied.contains(&run.partition)
                })
        };
        let dead: Vec<u64> = self
            .live
            .iter()
            .filter(|(number, runs)| !is_live(**number, runs))
            .map(|(number, _)| *number)
            .collect();
        if dead.is_empty() {
            return Ok(());
        }
        let sorted = self.live.keys().filter(|number| !dead.contains(number)).copied().collect();
        self.state_catalog(sorted, self.replaced_below).await?;
        for number in dead {
            self.live.remove(&number);
            self.parts.storage.delete(&FilePath::Sorted { dir, number }).await?;
        }
        Ok(())
    }

    /// Publishes all of `source` as segments and makes the root reach them.
    async fn write_segments(
        &mut self,
        log: &Arc<PartitionLog>,
        source: Sortable,
    ) -> Result<(), PassError> {
        let Some((base_offset, _)) = source.range() else { return Ok(()) };
        let mut paths = Vec::new();
        let outcome = match self.publish_all(log, &source, &mut paths).await {
            Ok(segments) => log.publish_segments(base_offset, segments).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        match &outcome {
            // They may be reached, now or by the next leader.
            Ok(()) | Err(PassError::Root(RootError::Uncertain(_))) => return outcome,
            Err(PassError::Root(RootError::Fenced | RootError::Corrupt(_))) => return outcome,
            Err(_) => {}
        }
        delete_all(&self.parts.storage, paths).await;
        outcome
    }

    /// Writes `source` into segments; gives also the names of those that may be there after an error.
    async fn publish_all(
        &mut self,
        log: &Arc<PartitionLog>,
        source: &Sortable,
        paths: &mut Vec<FilePath>,
    ) -> Result<Vec<Arc<Run>>, PassError> {
        let mut manifest = source.manifest.clone();
        let mut segments = Vec::new();
        let mut reader = SourceReader::new(source);
        let mut next = reader.next(log, &self.parts.storage).await?;
        while !next.is_empty() {
            let mut file = RunFileBuilder::new(RunKind::Segment, self.parts.cluster);
            let first = BatchHeader::parse(next.first().map_or(&[], |batch| batch))?.base_offset;
            let mut run = file.begin(log.id(), log.leader_epoch(), first);
            // One piece at least: every segment holds something.
            loop {
                push_all(&mut file, &mut run, next)?;
                next = reader.next(log, &self.parts.storage).await?;
                if next.is_empty() || file.bytes() >= self.parts.segment_bytes {
                    break;
                }
            }
            let end = run.end_offset();
            file.end(run, source.epochs.below(end), source.producers.below(end));
            segments.push(self.publish_segment(log, file, &mut manifest, paths).await?);
        }
        Ok(segments)
    }

    async fn publish_segment(
        &self,
        log: &Arc<PartitionLog>,
        file: RunFileBuilder,
        manifest: &mut Vec<SegmentEntry>,
        paths: &mut Vec<FilePath>,
    ) -> Result<Arc<Run>, PassError> {
        let attempt = self.parts.env.rng.u64(..);
        let itself = file.runs().first().map(|run| SegmentEntry {
            base_offset: run.base_offset,
            end_offset: run.end_offset,
            leader_epoch: run.leader_epoch,
            attempt,
            bytes: run.bytes,
            file_bytes: 0,
            max_timestamp: run.max_timestamp(),
        });
        let (parts, index) = file.finish(manifest.clone(), itself);
        let (run, segment) = index
            .runs
            .into_iter()
            .next()
            .zip(index.manifest.last().copied())
            .ok_or(PassError::Closed)?;
        let path = segment.path(log.id());
        paths.push(path.clone());
        self.parts.storage.publish(&path, parts).await?;
        *manifest = index.manifest;
        Ok(Run::written(path, run, segment))
    }

    async fn delete_dead_segments(&mut self) {
        let now = self.parts.env.clock.now();
        for log in self.parts.registry.logs() {
            self.dying.extend(log.take_dead_segments().into_iter().map(|path| (now, path)));
        }
        while let Some((since, path)) = self.dying.front() {
            if now.duration_since(*since) < DELETE_DELAY {
                return;
            }
            if let Err(error) = self.parts.storage.delete(path).await {
                tracing::warn!(%path, %error, "a segment can not be deleted; it is tried again");
                return;
            }
            self.dying.pop_front();
        }
    }
}
