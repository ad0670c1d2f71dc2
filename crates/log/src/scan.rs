//! Reading a sealed broker directory: which batches lie in its journals, and where they are damaged.
//!
//! A frame that cannot be read is either a *torn end*, which nobody was told about, or *damage*. What
//! tells them apart is the highest durable-to that the lane states anywhere: in a later flush, in the
//! next file's header, in the note behind the last flush, or in the record of a clean stop (P5). So a
//! lane is read to the end of its last file, beyond anything unreadable, before it is judged.

mod cursor;

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use talos_common::{BrokerDir, LaneId, LeaderEpoch, TopicPartitionId};
use talos_protocol::batch::BatchHeader;
use talos_storage::{Error as StorageError, FileInfo, FilePath, Storage};

use crate::format::{
    BATCH_PREFIX_BYTES, BatchMeta, Frame, FrameError, IndexEntry, JournalId, LanePosition,
};
use crate::producers::ProducerStamp;
use crate::run::Run;
use crate::runs::{self, RunFileError, RunKind};
use cursor::Cursor;

/// The smallest frame that holds a batch: damage below this size can not have lost one.
const SMALLEST_BATCH_FRAME: u64 = (BATCH_PREFIX_BYTES + talos_protocol::batch::HEADER_BYTES) as u64;

/// How many file numbers in a row may have been skipped because their creation failed.
const MAX_SKIPPED: u64 = 1_000;

/// A batch that was found.
#[derive(Clone, Debug)]
pub(crate) struct ScannedBatch {
    pub(crate) meta: BatchMeta,
    pub(crate) base_offset: i64,
    /// Inclusive.
    pub(crate) last_offset: i64,
    pub(crate) max_timestamp: i64,
    pub(crate) accepted_epoch: LeaderEpoch,
    pub(crate) stamp: Option<ProducerStamp>,
    pub(crate) file: JournalId,
    /// What the file's checksums are XORed with.
    pub(crate) mask: u32,
    /// Where the record batch starts in the file.
    pub(crate) position: u64,
    /// Bytes of the record batch.
    pub(crate) length: u32,
    /// Whether it lies above everything that its lane states as durable: it may have been
    /// acknowledged to nobody, and may not be on stable storage yet (E-H6).
    pub(crate) above_durable: bool,
}

impl ScannedBatch {
    pub(crate) fn end(&self) -> LanePosition {
        let position = self.position + u64::from(self.length);
        LanePosition { file: self.file.number, position }
    }
}

/// A stretch below the durable-to that can not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// In which file.
    pub(crate) file: FilePath,
    /// Where it starts.
    pub(crate) position: u64,
    /// What is wrong there.
    pub(crate) what: String,
    from: LanePosition,
    /// Exclusive.
    to: LanePosition,
}

/// One sealed directory as read.
#[derive(Debug, Default)]
pub(crate) struct DirScan {
    /// By partition and the leader epoch that wrote the frames, in file order.
    pub(crate) batches: BTreeMap<(TopicPartitionId, LeaderEpoch), Vec<ScannedBatch>>,
    /// Where leader epochs' own records start, as open frames and batch frames state it.
    pub(crate) epoch_starts: BTreeMap<(TopicPartitionId, LeaderEpoch), i64>,
    /// The newest root generation that a frame says was published (E-J14).
    pub(crate) published: BTreeMap<TopicPartitionId, u64>,
    /// Live sorted journals, as the last catalog frame names them.
    pub(crate) catalog: Vec<u64>,
    /// Their runs, by partition and leader epoch.
    pub(crate) runs: Runs,
    /// Damage that may have taken a catalog, and the runs of the sorted journals that only it would
    /// have named. Without it they are what an unfinished pass left, and are not needed.
    pub(crate) doubt: Option<(Damage, Runs)>,
    lanes: Vec<LaneScan>,
}

/// Runs by partition and leader epoch.
pub(crate) type Runs = BTreeMap<(TopicPartitionId, LeaderEpoch), Vec<Arc<Run>>>;

#[derive(Debug, Default)]
struct LaneScan {
    damage: Vec<Damage>,
    indexes: Vec<IndexFrame>,
}

#[derive(Debug)]
struct IndexFrame {
    since: LanePosition,
    at: LanePosition,
    entries: Vec<IndexEntry>,
}

/// Why a directory could not be read at all.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{file} is corrupt at position {position}: {what}")]
    Corrupt { file: FilePath, position: u64, what: String },
}

/// Reads the directory `dir` of cluster `cluster`, which was sealed with these files. `clean_ends` is
/// what a clean stop recorded: where each lane ended.
pub(crate) async fn scan(
    storage: &Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    files: &[FileInfo],
    clean_ends: &BTreeMap<LaneId, LanePosition>,
) -> Result<DirScan, ScanError> {
    let mut lanes: BTreeMap<LaneId, BTreeMap<u64, u64>> = BTreeMap::new();
    for info in files {
        if let FilePath::Journal { lane, number, .. } = info.path {
            lanes.entry(lane).or_default().insert(number, info.len);
        }
    }
    for lane in clean_ends.keys() {
        lanes.entry(*lane).or_default();
    }
    // Lane 0 has a file before the epoch is registered (E-J13).
    lanes.entry(LaneId(0)).or_default();
    let mut scan = DirScan::default();
    for (lane, files) in lanes {
        let reader = LaneReader {
            storage,
            cluster,
            dir,
            lane,
            stated: clean_ends.get(&lane).copied().unwrap_or_default(),
            batches: Vec::new(),
            limits: BTreeMap::new(),
            holes: Vec::new(),
            lane_scan: LaneScan::default(),
            next_named: None,
            headed: BTreeSet::new(),
            replaced_below: 0,
            catalog_at: LanePosition::default(),
        };
        reader.read(&files, &mut scan).await?;
    }
    read_sorted(storage, cluster, dir, files, &mut scan).await?;
    Ok(scan)
}

/// Reads the indexes of the sorted journals that the catalog names. What is named exists: a missing or
/// unreadable one concerns every partition of the directory.
async fn read_sorted(
    storage: &Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    files: &[FileInfo],
    scan: &mut DirScan,
) -> Result<(), ScanError> {
    let unnamed = files.iter().filter_map(|info| match info.path {
        FilePath::Sorted { number, .. } => Some(number),
        _ => None,
    });
    let unnamed: Vec<u64> = match &scan.doubt {
        Some(_) => unnamed.filter(|number| !scan.catalog.contains(number)).collect(),
        None => Vec::new(),
    };
    let named = scan.catalog.len();
    for (at, number) in scan.catalog.clone().into_iter().chain(unnamed).enumerate() {
        let file = FilePath::Sorted { dir, number };
        let len = files.iter().find(|info| info.path == file).map_or(0, |info| info.len);
        let index = runs::read_index(storage, &file, len, RunKind::Sorted, cluster).await;
        let index = index.map_err(|error| match error {
            RunFileError::Storage(error) => ScanError::Storage(error),
            RunFileError::Corrupt { file, position, what } => {
                ScanError::Corrupt { file, position, what }
            }
        })?;
        let runs = match &mut scan.doubt {
            Some((_, runs)) if at >= named => runs,
            _ => &mut scan.runs,
        };
        for entry in index.runs {
            let pair = (entry.partition, entry.leader_epoch);
            runs.entry(pair).or_default().push(Run::sorted(file.clone(), entry));
        }
    }
    Ok(())
}

/// Where a frame was found.
#[derive(Clone, Copy)]
struct Found {
    id: JournalId,
    /// Of the file.
    len: u64,
    at: u64,
    /// Exclusive.
    end: u64,
    mask: u32,
}

struct LaneReader<'a> {
    storage: &'a Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    lane: LaneId,
    /// The highest durable-to stated so far.
    stated: LanePosition,
    batches: Vec<ScannedBatch>,
    /// Up to where a file counts, as the header of the file after it states it.
    limits: BTreeMap<u64, u64>,
    /// All that can not be read; judged once `stated` is final.
    holes: Vec<Damage>,
    lane_scan: LaneScan,
    /// The file that a close frame names as the next one.
    next_named: Option<u64>,
    /// Files whose header could be read.
    headed: BTreeSet<u64>,
    /// Files below this number are replaced by sorted journals: gone, or about to be.
    replaced_below: u64,
    /// Where the last catalog stands.
    catalog_at: LanePosition,
}

impl LaneReader<'_> {
    async fn read(
        mut self,
        files: &BTreeMap<u64, u64>,
        scan: &mut DirScan,
    ) -> Result<(), ScanError> {
        for (number, len) in files {
            let id = JournalId { dir: self.dir, lane: self.lane, number: *number };
            self.read_file(id, *len, scan).await?;
        }
        self.find_missing(files);
        self.require_headers();
        self.judge(scan);
        for mut batch in std::mem::take(&mut self.batches) {
            let end = batch.end();
            if end.file < self.replaced_below {
                continue;
            }
            batch.above_durable = end.position > self.limit(end.file);
            let pair = (batch.meta.partition, batch.meta.leader_epoch);
            scan.batches.entry(pair).or_default().push(batch);
        }
        scan.lanes.push(self.lane_scan);
        Ok(())
    }

    /// Up to which position (exclusive) the lane states file `number` as durable.
    fn limit(&self, number: u64) -> u64 {
        match (self.limits.get(&number), number.cmp(&self.stated.file)) {
            (Some(limit), _) => *limit,
            (None, Ordering::Less) => u64::MAX,
            (None, Ordering::Equal) => self.stated.position,
            (None, Ordering::Greater) => 0,
        }
    }

    async fn read_file(
        &mut self,
        id: JournalId,
        len: u64,
        scan: &mut DirScan,
    ) -> Result<(), ScanError> {
        let mut cursor = Cursor::new(self.storage, id, len);
        loop {
            let at = cursor.position();
            let here = LanePosition { file: id.number, position: at };
            let next_file = LanePosition { file: id.number + 1, position: 0 };
            match cursor.next().await? {
                Ok(Frame::Note { durable_to }) if durable_to == here => {
                    // The lane's last flush ended here, acknowledged; the next was not begun.
                    self.stated = self.stated.max(here);
                    self.hole(id, here, next_file, "the file ends here");
                    return Ok(());
                }
                Ok(Frame::Close { next_file }) => {
                    self.next_named = Some(next_file);
                    return Ok(());
                }
                Ok(frame) => {
                    let at = Found { id, len, at, end: cursor.position(), mask: cursor.mask() };
                    self.take(at, frame, scan)?;
                }
                Err(FrameError::Unknown { kind, version }) => {
                    let what = format!(
                        "frame kind {kind} version {version} was written by a newer version of Talos"
                    );
                    return Err(ScanError::Corrupt { file: id.path(), position: at, what });
                }
                Err(error) => {
                    let found = cursor.find_next().await?;
                    let to = found.map_or(next_file, |position| LanePosition { position, ..here });
                    self.hole(id, here, to, &error.to_string());
                    if found.is_none() {
                        return Ok(());
                    }
                }
            }
        }
    }

    fn hole(&mut self, id: JournalId, from: LanePosition, to: LanePosition, what: &str) {
        let (file, position, what) = (id.path(), from.position, what.to_owned());
        self.holes.push(Damage { file, position, what, from, to });
    }

    fn take(&mut self, found: Found, frame: Frame, scan: &mut DirScan) -> Result<(), ScanError> {
        let Found { id, len, at, .. } = found;
        let corrupt = |what: String| ScanError::Corrupt { file: id.path(), position: at, what };
        match frame {
            Frame::Header(header) => {
                if header.cluster != self.cluster {
                    return Err(corrupt("the file belongs to another cluster".into()));
                }
                if header.id != id {
                    return Err(corrupt(format!("the file is {} by its header", header.id.path())));
                }
                self.headed.insert(id.number);
                if len < header.preallocated_bytes {
                    // It had its whole length before anything was written to it.
                    let from = LanePosition { file: id.number, position: len };
                    self.stated = self.stated.max(LanePosition { position: len + 1, ..from });
                    let to = LanePosition { file: id.number + 1, position: 0 };
                    self.hole(id, from, to, "the file was cut here");
                }
                let LanePosition { file, position } = header.durable_to;
                self.stated = self.stated.max(header.durable_to);
                for number in file.max(id.number.saturating_sub(MAX_SKIPPED))..id.number {
                    let limit = if number == file { position } else { 0 };
                    self.limits.entry(number).or_insert(limit);
                }
            }
            Frame::Flush(flush) => self.stated = self.stated.max(flush.durable_to),
            Frame::Batch(meta, bytes) => {
                let header = BatchHeader::parse(&bytes).map_err(|e| corrupt(e.to_string()))?;
                self.take_batch(found, meta, &header, &bytes, scan);
            }
            Frame::Open { partition, leader_epoch, epoch_start } => {
                scan.epoch_starts.insert((partition, leader_epoch), epoch_start);
            }
            Frame::Published { partition, root_generation, .. } => {
                let newest = scan.published.entry(partition).or_default();
                *newest = (*newest).max(root_generation);
            }
            Frame::Index { since, entries } => {
                let at = LanePosition { file: id.number, position: at };
                self.lane_scan.indexes.push(IndexFrame { since, at, entries });
            }
            // Catalogs follow each other: the last one holds.
            Frame::Catalog { sorted, replaced_below } => {
                scan.catalog = sorted;
                self.replaced_below = replaced_below;
                self.catalog_at = LanePosition { file: id.number, position: at };
            }
            // A note anywhere else is what a former flush left; a close frame ends the file.
            Frame::Note { .. } | Frame::Close { .. } => {}
        }
        Ok(())
    }

    fn take_batch(
        &mut self,
        found: Found,
        meta: BatchMeta,
        header: &BatchHeader,
        bytes: &Bytes,
        scan: &mut DirScan,
    ) {
        scan.epoch_starts.insert((meta.partition, meta.leader_epoch), meta.epoch_start);
        let stamp = header.has_producer_id().then(|| {
            let (id, epoch) = (header.producer_id, header.producer_epoch);
            ProducerStamp::new(id, epoch, header.base_sequence, header.last_offset_delta)
        });
        self.batches.push(ScannedBatch {
            meta,
            base_offset: header.base_offset,
            last_offset: header.last_offset(),
            max_timestamp: header.max_timestamp,
            accepted_epoch: LeaderEpoch(header.partition_leader_epoch),
            stamp,
            file: found.id,
            mask: found.mask,
            position: found.end - bytes.len() as u64,
            // A frame's length has 30 bits.
            length: bytes.len() as u32,
            above_durable: false,
        });
    }

    /// Files that must be there and are not: the first, the one that a close frame names, and every
    /// one in which something is stated as durable.
    fn find_missing(&mut self, files: &BTreeMap<u64, u64>) {
        let stated = (self.stated.position > 0).then_some(self.stated.file);
        let limited =
            self.limits.iter().filter(|(_, limit)| **limit > 0).map(|(number, _)| *number);
        let expected: BTreeSet<u64> =
            limited.chain([0]).chain(stated).chain(self.next_named).collect();
        for number in expected {
            if files.contains_key(&number) || number < self.replaced_below {
                continue;
            }
            // Its creation, at least, was durable before anything named it.
            if self.limit(number) == 0 {
                self.stated = self.stated.max(LanePosition { file: number, position: 1 });
            }
            let id = JournalId { dir: self.dir, lane: self.lane, number };
            let from = LanePosition { file: number, position: 0 };
            let to = LanePosition { file: number + 1, position: 0 };
            self.hole(id, from, to, "the file is missing");
        }
    }

    /// The first file, and one that a close frame names, had a durable header before anything could
    /// depend on it.
    fn require_headers(&mut self) {
        for number in [Some(0), self.next_named].into_iter().flatten() {
            let needed = number >= self.replaced_below && !self.headed.contains(&number);
            if needed && self.limit(number) == 0 {
                self.stated = self.stated.max(LanePosition { file: number, position: 1 });
            }
        }
    }

    /// Holes below what is stated as durable that are large enough to have lost a batch are damage.
    fn judge(&mut self, scan: &mut DirScan) {
        for hole in std::mem::take(&mut self.holes) {
            let limit = self.limit(hole.from.file);
            if hole.from.position >= limit || hole.from.file < self.replaced_below {
                continue;
            }
            // A file that is gone, has no header or was cut: what it held is not known.
            let missing = hole.to.file > hole.from.file && limit == hole.from.position + 1;
            let to = hole.to.min(LanePosition { file: hole.from.file, position: limit });
            let Damage { file, position, what, .. } = &hole;
            if hole.from > self.catalog_at && scan.doubt.is_none() {
                scan.doubt = Some((hole.clone(), Runs::new()));
            }
            if !missing && to.position - hole.from.position < SMALLEST_BATCH_FRAME {
                tracing::warn!(%file, position, what, "damage too small to have held a record");
            } else {
                tracing::error!(%file, position, what, "damage in a journal");
                self.lane_scan.damage.push(Damage { to, ..hole });
            }
        }
    }
}

impl DirScan {
    /// The damage that may have taken batches of `partition` written under `leader_epoch`, unless
    /// what was found proves otherwise: `end_offset` is where the batches end that count, and `proven`
    /// where the last of them lies. A ghost proves nothing (E-J7).
    pub(crate) fn damage_of(
        &self,
        partition: TopicPartitionId,
        leader_epoch: LeaderEpoch,
        end_offset: i64,
        proven: Option<LanePosition>,
    ) -> Option<&Damage> {
        self.lanes.iter().find_map(|lane| {
            lane.damage.iter().find(|hole| {
                let covering = lane
                    .indexes
                    .iter()
                    .find(|index| index.since <= hole.from && hole.to <= index.at);
                match covering {
                    // The index names all partitions of the stretch and where they ended.
                    Some(index) => index.entries.iter().any(|entry| {
                        entry.partition == partition
                            && entry.leader_epoch == leader_epoch
                            && entry.end_offset > end_offset
                    }),
                    // Batches behind the hole that go on gap-free prove that none was in it.
                    None => proven.is_none_or(|last| last < hole.to),
                }
            })
        })
    }
}
