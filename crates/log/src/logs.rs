//! All that one broker epoch writes: its lanes, its tail cache, and the one way to open partitions.
//!
//! First start, restart and take-over are the same path: directories of former epochs are sealed and
//! read, each partition is recovered from its root and what was found, and what may not be on stable
//! storage is written again before it is served.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use talos_common::{BrokerDir, Env, LaneId, LeaderEpoch, TopicId, TopicPartitionId};
use talos_storage::{Error as StorageError, ErrorKind, FilePath, Prefix, Storage};
use tokio::sync::{oneshot, watch};

use crate::epochs::Epochs;
use crate::format::{BatchMeta, Frame, LanePosition};
use crate::lane::{BatchFrame, Flusher, FlusherParts, Lane, LaneEnd, Refusal, control_room};
use crate::limits::Limits;
use crate::metrics::LogMetrics;
use crate::partition::tiers::Inherits;
use crate::partition::{OpenedLog, PartitionLog};
use crate::producers::Producers;
use crate::ranges::read_range;
use crate::recover::{self, KnownHead, Recovered};
use crate::registry::{Registry, Unneeded};
use crate::root::{Head, Root, RootHandle};
use crate::run::Run;
use crate::runs::{self, RunFileError, Stated};
use crate::scan::{self, DirScan, ScanError, ScannedBatch};
use crate::sorter::{Sorter, SorterParts};
use crate::tail_cache::TailCache;

/// The lane that all partitions use.
const LANE: LaneId = LaneId(0);
/// A journal file's room that no batch may take: header, flush frame, index and close frames; besides that
/// of control frames.
const FILE_RESERVE_BYTES: u64 = 2 << 20;

/// Limits of one broker's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogOptions {
    /// Closed raw journals are sorted once they have this many bytes.
    pub sort_bytes: u64,
    /// Bytes of a partition that are worth a segment, and of one segment.
    pub segment_bytes: u64,
    /// Bytes of batches that are accepted and not yet durable; at least one batch passes always.
    pub lane_bytes: usize,
    /// Bytes of flushed buffers kept in memory for reading.
    pub tail_cache_bytes: usize,
    /// Raw journal bytes at which appends are held up until sorting made room; above `sort_bytes`. Two
    /// journal files at least. What is accepted and not yet durable may come on top.
    pub raw_limit_bytes: u64,
    /// Memory of the positions of raw batches at which appends are held up; sorting starts at half of it.
    pub extent_bytes: usize,
    /// Bytes of flushed buffers that unsent answers may keep in memory; beyond, answers are copied.
    pub pinned_bytes: usize,
    /// Memory of what is remembered of idempotent producers. Beyond seven eighths of it those that were
    /// idle for longest are forgotten; at the limit new ones are refused.
    pub producer_bytes: usize,
}

impl LogOptions {
    /// The default.
    pub const DEFAULT: Self = Self {
        sort_bytes: 1 << 30,
        segment_bytes: 64 << 20,
        lane_bytes: 32 << 20,
        tail_cache_bytes: 256 << 20,
        raw_limit_bytes: 4 << 30,
        extent_bytes: 256 << 20,
        pinned_bytes: 64 << 20,
        producer_bytes: 256 << 20,
    };
}

impl Default for LogOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// One partition to open: what its claim gave.
#[derive(Debug)]
pub struct OpenRequest {
    /// Which partition.
    pub id: TopicPartitionId,
    /// The claimed leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// Former leaders whose records may not be published: broker epoch and leader epoch, oldest
    /// first.
    pub inherits: Vec<(BrokerDir, LeaderEpoch)>,
    /// The root record, if there is one.
    pub root: Option<Bytes>,
    /// Where to write it.
    pub root_handle: Arc<dyn RootHandle>,
}

/// A partition that is open.
#[derive(Debug)]
pub struct Opened {
    /// Its log.
    pub log: Arc<PartitionLog>,
    /// Inherited pairs that hold nothing it needs: they may leave its ownership record.
    pub unneeded: Vec<(BrokerDir, LeaderEpoch)>,
}

/// Why a partition can not be opened.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Acknowledged records may be missing: it stays closed until a person decides (P5).
    #[error(
        "partition {id} can not be opened without losing records: {file} at position {position}: {what}"
    )]
    Corrupt {
        /// Which partition.
        id: TopicPartitionId,
        /// In which file.
        file: String,
        /// Where.
        position: u64,
        /// What is wrong.
        what: String,
    },
    /// The store did not answer; opening may succeed later.
    #[error("partition {id} can not be opened now: {why}")]
    Unavailable {
        /// Which partition.
        id: TopicPartitionId,
        /// What failed.
        why: String,
    },
}

/// The log of one broker epoch.
#[derive(Debug)]
pub struct BrokerLog {
    env: Env,
    storage: Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    lane: Lane,
    registry: Registry,
    end: watch::Receiver<Option<LaneEnd>>,
}

impl BrokerLog {
    /// Makes the broker directory and the first file of its lane: what must be there before the
    /// epoch is registered. `Exists`, or an unknown outcome: take another epoch (E-H4).
    ///
    /// # Errors
    /// Those of the store.
    pub async fn create(
        env: Env,
        storage: Arc<dyn Storage>,
        cluster: [u8; 16],
        dir: BrokerDir,
        options: LogOptions,
        metrics: LogMetrics,
    ) -> Result<Self, StorageError> {
        storage.make_dir(dir).await?;
        let file_bytes = storage.traits().file_bytes;
        let reserve = FILE_RESERVE_BYTES.min(file_bytes / 16) + control_room(file_bytes);
        let max_batch = usize::try_from(file_bytes - reserve).unwrap_or(usize::MAX);
        // What waits for one flush must fit into one file.
        let limits = Limits::new(&options, file_bytes, &env, metrics.clone());
        let lane = Lane::new(options.lane_bytes.min(max_batch / 2), max_batch, limits);
        let parts = FlusherParts {
            env: env.clone(),
            storage: Arc::clone(&storage),
            cluster,
            dir,
            lane_id: LANE,
            lane: lane.clone(),
            cache: TailCache::new(options.tail_cache_bytes),
            metrics,
            current_file: watch::Sender::new(0),
        };
        let registry = Registry::default();
        let sorter = Sorter::new(SorterParts {
            env: env.clone(),
            storage: Arc::clone(&storage),
            cluster,
            dir,
            lane_id: LANE,
            lane: lane.clone(),
            registry: registry.clone(),
            current_file: parts.current_file.subscribe(),
            sort_bytes: options.sort_bytes,
            segment_bytes: options.segment_bytes,
        });
        let flusher = Flusher::create(parts).await?;
        let (sender, end) = watch::channel(None);
        env.tasks.spawn("flusher", async move {
            let end = flusher.run().await;
            sender.send_replace(Some(end));
        });
        env.tasks.spawn_background("sorter", sorter.run());
        let keep = lane.limits().producers.clone().keep(registry.downgrade());
        let tasks = env.tasks.clone();
        env.tasks.spawn_background("producer state", async move {
            tokio::select! {
                biased;
                () = tasks.stopping() => {}
                () = keep => {}
            }
        });
        Ok(Self { env, storage, cluster, dir, lane, registry, end })
    }

    /// The directory of this epoch.
    pub fn dir(&self) -> BrokerDir {
        self.dir
    }

    /// Waits until the lane ended, and says why. Cancel safe.
    pub async fn ended(&self) -> LaneEnd {
        let mut end = self.end.clone();
        let ended = end.wait_for(Option::is_some).await.map(|end| (*end).clone());
        match ended {
            Ok(Some(end)) => end,
            Ok(None) | Err(_) => LaneEnd::Fatal("the flusher task was cut off".into()),
        }
    }

    /// Accepts nothing more, makes everything accepted durable, states where the lane ends, and stops.
    pub async fn stop(&self) -> LaneEnd {
        self.lane.stop();
        self.ended().await
    }

    /// Opens partitions. Directories that they inherit are sealed and read once. The failure of one
    /// partition is its own. `clean_ends` is what clean stops recorded of inherited directories.
    pub async fn open(
        &self,
        mut requests: Vec<OpenRequest>,
        clean_ends: &BTreeMap<BrokerDir, LanePosition>,
    ) -> Vec<(TopicPartitionId, Result<Opened, OpenError>)> {
        let own = self.leave_out_own_pairs(&mut requests);
        let dirs: BTreeSet<BrokerDir> =
            requests.iter().flat_map(|r| &r.inherits).map(|(dir, _)| *dir).collect();
        let mut scans = BTreeMap::new();
        let mut failed = BTreeMap::new();
        for dir in dirs {
            match self.seal_and_scan(dir, clean_ends.get(&dir)).await {
                Ok(scan) => {
                    scans.insert(dir, scan);
                }
                Err(error) => {
                    tracing::error!(%dir, %error, "a broker directory can not be read");
                    failed.insert(dir, error);
                }
            }
        }
        let mut opening = Vec::with_capacity(requests.len());
        for request in requests {
            let id = request.id;
            let broken = request.inherits.iter().find_map(|(dir, _)| failed.get(dir));
            let outcome = match broken {
                Some(error) => Err(scan_failed(id, error)),
                None => self.start_open(request, &scans).await,
            };
            opening.push((id, outcome));
        }
        let mut opened = Vec::with_capacity(opening.len());
        for (id, outcome) in opening {
            let outcome = match outcome {
                Ok(Opening { opened, waiting }) => match all_durable(waiting).await {
                    true => Ok(opened),
                    false => {
                        let why = "the journal ended while the partition was opened".into();
                        Err(OpenError::Unavailable { id, why })
                    }
                },
                Err(error) => Err(error),
            };
            opened.push((id, outcome));
        }
        for (id, outcome) in &mut opened {
            match outcome {
                Ok(opened) => opened.unneeded.extend(own.get(id).into_iter().flatten()),
                Err(_) => self.registry.remove(*id),
            }
        }
        opened
    }

    /// Forgets a partition that was closed: its records are not sorted any more.
    pub fn forget(&self, id: TopicPartitionId) {
        self.registry.remove(id);
    }

    /// Waits until partitions no longer need some of their inherited pairs, and gives these: they may
    /// leave the ownership records, and a directory that no record names may be deleted. Cancel safe.
    pub async fn unneeded(&self) -> Vec<Unneeded> {
        self.registry.unneeded().await
    }

    /// Sorts what is closed now, whatever its size. What an open partition inherits is put into this
    /// epoch's own directory.
    ///
    /// # Errors
    /// What failed, for people: the next pass tries again.
    pub async fn sort(&self) -> Result<(), String> {
        let outcome = self.registry.ask_to_sort().await;
        outcome.unwrap_or_else(|_| Err("the broker is stopping".into()))
    }

    /// Deletes the segments of a topic that is gone for good.
    ///
    /// # Errors
    /// Those of the store; calling again goes on.
    pub async fn delete_topic(&self, topic: TopicId) -> Result<(), StorageError> {
        let mut after = None;
        loop {
            let page = self.storage.list(Prefix::Topic(topic), after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.path.clone());
            for file in &page {
                self.storage.delete(&file.path).await?;
            }
        }
    }

    /// A partition inherits from this very epoch when an earlier opening here failed after its claim.
    /// Nothing under that pair was ever visible: at most a first part of what was to be written again,
    /// which is written again now. Our own directory is not ours to seal, so the pairs are left out.
    fn leave_out_own_pairs(
        &self,
        requests: &mut [OpenRequest],
    ) -> BTreeMap<TopicPartitionId, Vec<(BrokerDir, LeaderEpoch)>> {
        let mut own: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for request in requests {
            let pairs = request.inherits.extract_if(.., |(dir, _)| *dir == self.dir);
            own.entry(request.id).or_default().extend(pairs);
        }
        own
    }

    async fn seal_and_scan(
        &self,
        dir: BrokerDir,
        clean_end: Option<&LanePosition>,
    ) -> Result<DirScan, ScanError> {
        let files = self.storage.seal(dir).await?;
        let clean_ends = clean_end.map(|end| (LANE, *end)).into_iter().collect();
        scan::scan(&self.storage, self.cluster, dir, &files, &clean_ends).await
    }

    /// Recovers one partition and, if needed, starts to write again what may not be durable.
    async fn start_open(
        &self,
        request: OpenRequest,
        scans: &BTreeMap<BrokerDir, DirScan>,
    ) -> Result<Opening, OpenError> {
        let OpenRequest { id, leader_epoch, inherits, root, root_handle } = request;
        let corrupt =
            |file: String, position, what| OpenError::Corrupt { id, file, position, what };
        let root = match &root {
            Some(bytes) => Root::decode(bytes).map_err(|error| {
                corrupt("the partition's root record".into(), 0, error.to_string())
            })?,
            None => Root::default(),
        };
        let head = match root.head {
            Some(head) => Some(self.read_head(id, &root, head).await?),
            None => None,
        };
        let recovered = recover::recover(id, root, head, &inherits, scans)
            .map_err(|lost| corrupt(lost.file, lost.position, lost.what))?;
        let Recovered { root, runs, extents, rewrite, end_offset, epochs, producers, .. } =
            recovered;
        let Recovered { unneeded, state, .. } = recovered;
        let durable_end = rewrite.first().map_or(end_offset, |batch| batch.base_offset);
        let opened = OpenedLog {
            id,
            leader_epoch,
            root,
            runs,
            extents,
            durable_end,
            end_offset,
            epochs,
            producers,
            inherits: Inherits {
                pairs: inherits.into_iter().filter(|pair| !unneeded.contains(pair)).collect(),
                state,
            },
        };
        let (storage, clock) = (Arc::clone(&self.storage), self.env.clock.clone());
        let log = PartitionLog::new(opened, self.lane.clone(), storage, clock, root_handle);
        // Known to the sorter before anything of it is in a journal: a closed file whose records are
        // not all in a sorted one must not go.
        self.registry.insert(&log);
        // A directory that goes must not take the only statement of the root with it (E-J14).
        let stated = match log.published().filter(|_| !unneeded.is_empty()) {
            Some(frame) => Some(
                self.lane
                    .push_control(&[frame])
                    .map_err(|refusal| OpenError::Unavailable { id, why: refusal.to_string() })?,
            ),
            None => None,
        };
        let rewritten = self.write_again(&log, end_offset, rewrite).await?;
        let waiting = stated.into_iter().chain(rewritten).collect();
        Ok(Opening { opened: Opened { log, unneeded }, waiting })
    }

    /// Reads the head's footer and the manifest in it. What the root reaches and is missing is
    /// corruption.
    async fn read_head(
        &self,
        id: TopicPartitionId,
        root: &Root,
        head: Head,
    ) -> Result<KnownHead, OpenError> {
        let Head { base_offset, leader_epoch, attempt, file_bytes } = head;
        let file = FilePath::Segment { partition: id, base_offset, leader_epoch, attempt };
        let stated = Stated::exactly(file_bytes);
        let found = runs::read_index(&self.storage, &file, stated, self.cluster).await;
        let found = found.map_err(|error| match error {
            RunFileError::Storage(error) => OpenError::Unavailable { id, why: error.to_string() },
            RunFileError::Corrupt { file, position, what, .. } => {
                OpenError::Corrupt { id, file: file.to_string(), position, what }
            }
        })?;
        found.warn(&file);
        let index = found.index;
        let live = index.manifest.iter().filter(|segment| segment.end_offset > root.log_start);
        let segments = live.map(|segment| Run::segment(id, *segment, self.cluster)).collect();
        let (epochs, producers) = match index.runs.into_iter().next() {
            Some(run) => (run.epochs, run.producers),
            None => (Epochs::default(), Producers::new()),
        };
        Ok(KnownHead { segments, epochs, producers })
    }

    async fn read_again(
        &self,
        id: TopicPartitionId,
        batch: &ScannedBatch,
    ) -> Result<Bytes, OpenError> {
        let range = batch.position..batch.position + u64::from(batch.length);
        match read_range(&self.storage, &batch.file.path(), range).await {
            Ok(bytes) if bytes.len() == batch.length as usize => Ok(bytes),
            Ok(_) => Err(OpenError::Corrupt {
                id,
                file: batch.file.path().to_string(),
                position: batch.position,
                what: "the file became shorter".into(),
            }),
            Err(error) => Err(OpenError::Unavailable { id, why: error.to_string() }),
        }
    }

    /// Pushes the batches under this leader's own pair, and a frame that says where its own records
    /// start. Gives what resolves when all of it is durable.
    async fn write_again(
        &self,
        log: &Arc<PartitionLog>,
        epoch_start: i64,
        rewrite: Vec<ScannedBatch>,
    ) -> Result<Option<oneshot::Receiver<()>>, OpenError> {
        if rewrite.is_empty() {
            return Ok(None);
        }
        let (partition, leader_epoch) = (log.id(), log.leader_epoch());
        let refused =
            |refusal: Refusal| OpenError::Unavailable { id: partition, why: refusal.to_string() };
        for batch in rewrite {
            let bytes = self.read_again(partition, &batch).await?;
            // As any batch: one flush must fit into one file. No limit of raw batches holds it up: it
            // was accepted once.
            let lease = self.lane.room().take(bytes.len()).await;
            let append_time_ms = batch.meta.append_time_ms;
            let frame = BatchFrame {
                partition: Arc::clone(log),
                meta: BatchMeta { partition, leader_epoch, epoch_start, append_time_ms },
                base_offset: batch.base_offset,
                last_offset: batch.last_offset,
                accepted_epoch: batch.accepted_epoch,
                max_timestamp: batch.max_timestamp,
                _lease: Some(lease),
            };
            self.lane.push(frame, &bytes).map_err(refused)?;
        }
        let open = Frame::Open { partition, leader_epoch, epoch_start };
        self.lane.push_control(&[open]).map(Some).map_err(refused)
    }
}

struct Opening {
    opened: Opened,
    /// Resolve when what the opening wrote is durable; neither says it of the other (E-J14).
    waiting: Vec<oneshot::Receiver<()>>,
}

/// Whether all of it became durable; false when the journal ended before.
async fn all_durable(waiting: Vec<oneshot::Receiver<()>>) -> bool {
    for durable in waiting {
        if durable.await.is_err() {
            return false;
        }
    }
    true
}

fn scan_failed(id: TopicPartitionId, error: &ScanError) -> OpenError {
    match error {
        ScanError::Storage(error) if error.kind() == ErrorKind::NotFound => OpenError::Corrupt {
            id,
            file: error.to_string(),
            position: 0,
            what: "a broker directory that the partition inherits is missing".into(),
        },
        ScanError::Storage(error) => OpenError::Unavailable { id, why: error.to_string() },
        ScanError::Corrupt { file, position, what } => OpenError::Corrupt {
            id,
            file: file.to_string(),
            position: *position,
            what: what.clone(),
        },
    }
}
