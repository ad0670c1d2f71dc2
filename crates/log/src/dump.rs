//! Reads what a stopped broker left in its store, verifies every checksum and says what is there: for
//! people and tools, not for recovery. Nothing is changed: only `list` and `read` are called.
//!
//! What is damage is decided by the code that recovery uses (`scan`): a frame that can not be
//! read is damage below what its lane states as durable, and a torn end above it.
//!
//! Memory is bounded by the partitions in the files of one broker directory and by one window of a
//! file; a listing of segments is read page by page.

mod frames;
mod journal;
mod root;
mod run_file;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LaneId, LeaderEpoch, TopicPartitionId};
use talos_storage::{Error as StorageError, FileInfo, FilePath, Prefix, Storage};

use crate::format::LanePosition;

pub use frames::{FrameRow, Frames};
pub use root::{RootReport, check_root};

/// The most damaged and unreadable places that are kept of one file; the rest is counted.
const MAX_LISTED: usize = 1_000;

/// What a damaged place means for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// It may have held acknowledged records.
    Records,
    /// It is too small to have held a record: recovery passes over it.
    Nothing,
    /// A second copy of it is whole.
    Copied,
    /// No catalog names the file: no record depends on it.
    Unneeded,
}

/// One damaged place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file's name in the store, or what else is damaged.
    pub file: String,
    /// Where it starts, in bytes.
    pub position: u64,
    /// Where it ends (exclusive), in the same file; `None`: with the file, or not known.
    pub end: Option<u64>,
    /// What is wrong there.
    pub what: String,
    /// What it means.
    pub loss: Loss,
}

/// What is known before the files are read; the more, the more is checked.
#[derive(Clone, Debug, Default)]
pub struct DumpOptions {
    /// The cluster of the store; `None`: that of the first header that can be read.
    pub cluster: Option<[u8; 16]>,
    /// Where lanes ended, as clean stops recorded it.
    pub clean_ends: BTreeMap<BrokerDir, LanePosition>,
    /// The newest registered epoch of each broker: a directory above it was never in use, and may be
    /// unfinished. `None`: not known, all directories are taken for registered.
    pub registered: Option<BTreeMap<BrokerId, BrokerEpoch>>,
}

/// One file of the store, or one that should be there.
#[derive(Clone, Debug)]
pub struct FileReport {
    /// Its name.
    pub path: FilePath,
    /// Its length; `None`: the file is missing.
    pub bytes: Option<u64>,
    /// What is in it; `None` when it is missing or nothing of it can be read.
    pub content: Option<Content>,
    /// Damaged places, in order of position; at most some hundred.
    pub damage: Vec<Damage>,
    /// How many more damaged or unreadable places there are.
    pub omitted: u64,
}

/// What a file holds.
#[derive(Clone, Debug)]
pub enum Content {
    /// A journal.
    Journal(JournalReport),
    /// A sorted journal or a segment.
    Runs(RunsReport),
}

/// What the header of a journal says, its random number left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalHeader {
    /// Version of the format.
    pub format: u16,
    /// Of which cluster.
    pub cluster: [u8; 16],
    /// Of which broker epoch.
    pub dir: BrokerDir,
    /// Which lane.
    pub lane: LaneId,
    /// Which file of the lane.
    pub number: u64,
    /// Length that the store gave it; 0 where files grow.
    pub preallocated_bytes: u64,
    /// Up to where the lane was durable when the file was begun.
    pub durable_to: LanePosition,
}

/// What one journal holds of one partition under one leader epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stretch {
    /// Lowest offset.
    pub base_offset: i64,
    /// Highest offset (exclusive).
    pub end_offset: i64,
    /// Batches; one that was sent again counts again.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Bytes of the batches.
    pub bytes: u64,
}

/// How a journal ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalEnd {
    /// With a close frame that names the next file.
    Closed(u64),
    /// With the note behind the lane's last flush: nothing is missing.
    Note,
    /// What follows can not be read: nobody was told about it, unless it is listed as damage.
    Torn(String),
    /// It was not read further because of damage.
    Stopped,
    /// It has no header: it was made ahead and never written to, unless damage is listed.
    Unused,
}

/// An unreadable place that is no damage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreadable {
    /// Where it starts.
    pub position: u64,
    /// Where it ends (exclusive); `None`: with the file.
    pub end: Option<u64>,
    /// Why it can not be read.
    pub what: String,
}

/// A journal as read.
#[derive(Clone, Debug)]
pub struct JournalReport {
    /// Its header, if it can be read.
    pub header: Option<JournalHeader>,
    /// How many frames of which kind.
    pub frames: BTreeMap<&'static str, u64>,
    /// What it holds by partition and the leader epoch that wrote it.
    pub partitions: BTreeMap<(TopicPartitionId, LeaderEpoch), Stretch>,
    /// The highest durable-to that the file itself states.
    pub states: LanePosition,
    /// Up to which position of this file (exclusive) its lane states everything as durable; at most
    /// the position of its end.
    pub durable_to: u64,
    /// Where the last readable frame ends.
    pub end: u64,
    /// How it ends there.
    pub ending: JournalEnd,
    /// Places above the durable-to, or in a replaced file, that can not be read.
    pub unreadable: Vec<Unreadable>,
    /// Sorted journals stand for it: it is about to be deleted.
    pub replaced: bool,
}

impl JournalReport {
    /// Batches in all partitions.
    pub fn batches(&self) -> u64 {
        self.partitions.values().map(|stretch| stretch.batches).sum()
    }

    /// Records in all partitions.
    pub fn records(&self) -> u64 {
        self.partitions.values().map(|stretch| stretch.records).sum()
    }
}

/// One run as read.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// Of which partition.
    pub partition: TopicPartitionId,
    /// The leader epoch that wrote the file.
    pub leader_epoch: LeaderEpoch,
    /// First offset.
    pub base_offset: i64,
    /// Exclusive.
    pub end_offset: i64,
    /// Where it starts in the file.
    pub position: u64,
    /// Bytes of its batches.
    pub bytes: u64,
    /// Blocks in the index.
    pub blocks: u64,
    /// Blocks whose checksums, and those of the batches in them, are right.
    pub blocks_verified: u64,
    /// Batches in verified blocks.
    pub batches: u64,
    /// Records in them.
    pub records: u64,
    /// Producers whose state stands at its end.
    pub producers: u64,
    /// The log's leader epochs up to its end, each with the offset of its first record.
    pub epochs: Vec<(LeaderEpoch, i64)>,
}

/// A live segment as a manifest names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestSegment {
    /// Its file.
    pub path: FilePath,
    /// First offset.
    pub base_offset: i64,
    /// Exclusive.
    pub end_offset: i64,
    /// Length of the file.
    pub file_bytes: u64,
}

/// A sorted journal or segment as read.
#[derive(Clone, Debug)]
pub struct RunsReport {
    /// Its runs.
    pub runs: Vec<RunReport>,
    /// The live segments up to and with this one; empty in a sorted journal.
    pub manifest: Vec<ManifestSegment>,
    /// Whether a catalog names it; `None` for a segment, which roots reach.
    pub named: Option<bool>,
}

/// Told of every stretch that was read, in bytes.
pub type Progress<'a> = dyn FnMut(u64) + Send + 'a;

/// Goes over all files of a store, in name order.
#[derive(Debug)]
pub struct Dump {
    storage: Arc<dyn Storage>,
    options: DumpOptions,
    dirs: VecDeque<(BrokerDir, Vec<FileInfo>)>,
    ready: VecDeque<FileReport>,
    segments: VecDeque<FileInfo>,
    last_segment: Option<FilePath>,
    published: BTreeMap<TopicPartitionId, u64>,
    files: u64,
    bytes: u64,
}

impl Dump {
    /// Lists the files of `storage`, to which nothing may be written meanwhile.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn new(
        storage: Arc<dyn Storage>,
        options: DumpOptions,
    ) -> Result<Self, StorageError> {
        let mut dump = Self {
            storage,
            options,
            dirs: VecDeque::new(),
            ready: VecDeque::new(),
            segments: VecDeque::new(),
            last_segment: None,
            published: BTreeMap::new(),
            files: 0,
            bytes: 0,
        };
        let mut dirs: BTreeMap<BrokerDir, Vec<FileInfo>> = BTreeMap::new();
        for prefix in [Prefix::Brokers, Prefix::Topics] {
            let mut after = None;
            loop {
                let page = dump.storage.list(prefix, after).await?;
                let Some(last) = page.last() else { break };
                after = Some(last.path.clone());
                for file in page {
                    dump.files += 1;
                    dump.bytes += file.len;
                    if let Some(dir) = file.path.dir() {
                        dirs.entry(dir).or_default().push(file);
                    }
                }
            }
        }
        dump.dirs = dirs.into_iter().collect();
        Ok(dump)
    }

    /// How many files there are, and their bytes.
    pub fn totals(&self) -> (u64, u64) {
        (self.files, self.bytes)
    }

    /// The broker directories whose files are still to be read; all of them at first.
    pub fn dirs(&self) -> impl Iterator<Item = BrokerDir> + '_ {
        self.dirs.iter().map(|(dir, _)| *dir)
    }

    /// The cluster, once it is known.
    pub fn cluster(&self) -> Option<[u8; 16]> {
        self.options.cluster
    }

    /// The newest root generation of each partition that journals read so far say was published.
    pub fn published(&self) -> &BTreeMap<TopicPartitionId, u64> {
        &self.published
    }

    /// The next file; `None` after the last. A file that is missing is reported too.
    ///
    /// # Errors
    /// Those of the store: the file could not be read at all, which says nothing about its content.
    pub async fn next(
        &mut self,
        progress: &mut Progress<'_>,
    ) -> Result<Option<FileReport>, StorageError> {
        loop {
            if let Some(report) = self.ready.pop_front() {
                return Ok(Some(report));
            }
            if let Some((dir, files)) = self.dirs.pop_front() {
                self.read_dir(dir, &files, progress).await?;
                continue;
            }
            if self.segments.is_empty() {
                let page = self.storage.list(Prefix::Topics, self.last_segment.clone()).await?;
                self.last_segment = page.last().map(|file| file.path.clone());
                self.segments = page.into();
            }
            let Some(file) = self.segments.pop_front() else { return Ok(None) };
            let report = self.read_runs(&file.path, file.len, None, progress).await?;
            return Ok(Some(report));
        }
    }
}

impl FileReport {
    fn new(path: FilePath, bytes: Option<u64>) -> Self {
        Self { path, bytes, content: None, damage: Vec::new(), omitted: 0 }
    }

    fn add(&mut self, damage: Damage) {
        if self.damage.len() < MAX_LISTED {
            self.damage.push(damage);
        } else {
            self.omitted += 1;
        }
    }
}
