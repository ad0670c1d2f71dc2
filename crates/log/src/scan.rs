//! Reading a sealed broker directory: which batches lie in its journals, and where they are damaged.
//!
//! A frame that cannot be read is either a *torn end*, which nobody was told about, or *damage*. What
//! tells them apart is the highest durable-to that the lane states anywhere: in a later flush, in the
//! next file's header, in the note behind the last flush, or in the record of a clean stop (P5). So a
//! lane is read to the end of its last file, beyond anything unreadable, before it is judged.

pub(crate) mod catalog;
pub(crate) mod cursor;
pub(crate) mod walk;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use talos_common::{BrokerDir, LaneId, LeaderEpoch, TopicPartitionId};
use talos_protocol::batch::BatchHeader;
use talos_storage::{FileInfo, FilePath, Storage};

use crate::format::{BatchMeta, Frame, IndexEntry, JournalId, LanePosition};
use crate::producers::ProducerStamp;
use crate::run::Run;
use crate::runs::{self, RunFileError, Stated};
use catalog::Catalogs;
pub(crate) use walk::ScanError;
use walk::{Damage, Found, LaneWalk};

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
    catalog: Catalogs,
    /// Their runs, by partition and leader epoch.
    pub(crate) runs: Runs,
    /// Sorted journals that can not be read, or are missing.
    unreadable: Vec<Unreadable>,
    /// Damage that may have taken a catalog, and the runs of the sorted journals that only it would
    /// have named. Without it they are what an unfinished pass left, and are not needed.
    pub(crate) doubt: Option<(Damage, Runs)>,
    lanes: Vec<LaneScan>,
}

/// Runs by partition and leader epoch.
pub(crate) type Runs = BTreeMap<(TopicPartitionId, LeaderEpoch), Vec<Arc<Run>>>;

/// A sorted journal whose index can not be read.
#[derive(Clone, Debug)]
pub(crate) struct Unreadable {
    number: u64,
    pub(crate) file: FilePath,
    pub(crate) position: u64,
    pub(crate) what: String,
}

/// What of a partition may lie in a sorted journal that can not be read.
#[derive(Clone, Debug)]
pub(crate) struct Missing<'a> {
    pub(crate) file: &'a Unreadable,
    /// Where its runs in the directory end (exclusive); `None`: nobody says.
    pub(crate) end_offset: Option<i64>,
    /// Whether its newest producer state in the directory can not be read.
    pub(crate) state: bool,
}

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
        let stated = clean_ends.get(&lane).copied().unwrap_or_default();
        let walk = LaneWalk::new(storage, cluster, (dir, lane), stated);
        let reader = LaneReader { batches: Vec::new(), lane_scan: LaneScan::default() };
        reader.read(walk, &files, &mut scan).await?;
    }
    read_sorted(storage, cluster, dir, files, &mut scan).await?;
    Ok(scan)
}

/// Reads the indexes of the sorted journals that the catalog names. What is named exists: one that is
/// missing or unreadable is kept in mind, and concerns the partitions that have runs in it.
async fn read_sorted(
    storage: &Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    files: &[FileInfo],
    scan: &mut DirScan,
) -> Result<(), ScanError> {
    let listed: BTreeMap<u64, u64> = files
        .iter()
        .filter_map(|info| match info.path {
            FilePath::Sorted { number, .. } => Some((number, info.len)),
            _ => None,
        })
        .collect();
    let mut wanted: Vec<(u64, u64, Stated)> = Vec::new();
    for file in scan.catalog.files() {
        let stated = Stated { index_crc: Some(file.index_crc), ..Stated::exactly(file.bytes) };
        wanted.push((file.number, file.set, stated));
        if listed.get(&file.number).is_some_and(|len| *len != file.bytes) {
            let (len, path) =
                (listed.get(&file.number), FilePath::Sorted { dir, number: file.number });
            tracing::error!(file = %path, ?len, stated = file.bytes, "a file has another length");
        }
    }
    if scan.doubt.is_some() {
        let unnamed = listed.iter().filter(|(number, _)| !scan.catalog.names(**number));
        wanted.extend(unnamed.map(|(number, len)| (*number, *number, Stated::listed(*len))));
    }
    if let Some((damage, _)) = &scan.doubt
        && wanted.len() < scan.catalog.file_count()
    {
        // Some are gone, and what said which is damaged.
        let Damage { file, position, what, .. } = damage.clone();
        scan.unreadable.push(Unreadable { number: u64::MAX, file, position, what });
    }
    for (number, set, stated) in wanted {
        let file = FilePath::Sorted { dir, number };
        match runs::read_index(storage, &file, stated, cluster).await {
            Ok(found) => {
                found.warn(&file);
                let named = scan.catalog.names(number);
                let runs = match &mut scan.doubt {
                    Some((_, runs)) if !named => runs,
                    _ => &mut scan.runs,
                };
                for entry in found.index.runs {
                    let pair = (entry.partition, entry.leader_epoch);
                    runs.entry(pair).or_default().push(Run::sorted(file.clone(), set, entry));
                }
            }
            Err(RunFileError::Storage(error)) => return Err(ScanError::Storage(error)),
            Err(RunFileError::Corrupt { file, position, what, .. }) => {
                tracing::error!(%file, position, what, "a sorted journal can not be read");
                scan.unreadable.push(Unreadable { number, file, position, what });
            }
        }
    }
    Ok(())
}

struct LaneReader {
    batches: Vec<ScannedBatch>,
    lane_scan: LaneScan,
}

impl LaneReader {
    async fn read(
        mut self,
        mut walk: LaneWalk<'_>,
        files: &BTreeMap<u64, u64>,
        scan: &mut DirScan,
    ) -> Result<(), ScanError> {
        for (number, len) in files {
            walk.file(*number, *len, |found, frame| self.take(found, frame, scan)).await?;
        }
        walk.find_missing(files);
        walk.require_headers();
        let (damage, doubt) = walk.damage();
        self.lane_scan.damage = damage;
        let doubt = doubt.or_else(|| {
            let what = "parts of the catalog are missing";
            (!scan.catalog.is_complete()).then(|| walk.at_catalog(what))
        });
        scan.doubt = scan.doubt.take().or(doubt.map(|hole| (hole, Runs::new())));
        for mut batch in self.batches {
            let end = batch.end();
            if end.file < walk.replaced_below() {
                continue;
            }
            batch.above_durable = end.position > walk.limit(end.file);
            let pair = (batch.meta.partition, batch.meta.leader_epoch);
            scan.batches.entry(pair).or_default().push(batch);
        }
        scan.lanes.push(self.lane_scan);
        Ok(())
    }

    fn take(&mut self, found: &Found, frame: Frame, scan: &mut DirScan) -> Result<(), ScanError> {
        match frame {
            Frame::Batch(meta, bytes) => {
                let header =
                    BatchHeader::parse(&bytes).map_err(|error| found.corrupt(error.to_string()))?;
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
                let at = LanePosition { file: found.id.number, position: found.at };
                self.lane_scan.indexes.push(IndexFrame { since, at, entries });
            }
            Frame::Catalog { .. } | Frame::Sorted { .. } => scan.catalog.take(&frame),
            Frame::Header(_) | Frame::Flush(_) | Frame::Note { .. } | Frame::Close { .. } => {}
        }
        Ok(())
    }

    fn take_batch(
        &mut self,
        found: &Found,
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
}

impl DirScan {
    /// What of `pair` may lie in a sorted journal that can not be read.
    pub(crate) fn missing_of(&self, pair: (TopicPartitionId, LeaderEpoch)) -> Option<Missing<'_>> {
        let first = self.unreadable.first()?;
        let unreadable = |number| self.unreadable.iter().find(|file| file.number == number);
        // One that only a damaged catalog would have named: nobody says what is in it.
        let unnamed = self.unreadable.iter().find(|file| !self.catalog.names(file.number));
        match (unnamed, self.catalog.end_of(pair)) {
            (Some(file), _) => Some(Missing { file, end_offset: None, state: true }),
            (None, Some(end)) => {
                let state = end.state.and_then(unreadable);
                let (file, end_offset) = (state.unwrap_or(first), Some(end.end_offset));
                Some(Missing { file, end_offset, state: state.is_some() })
            }
            (None, None) if self.catalog.is_complete() => None,
            (None, None) => Some(Missing { file: first, end_offset: None, state: true }),
        }
    }

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
