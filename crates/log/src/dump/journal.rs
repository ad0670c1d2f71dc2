//! The journals of one broker directory, lane by lane, and the sorted journals that they name.

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_common::{BrokerDir, LaneId, TopicPartitionId};
use talos_protocol::batch::BatchHeader;
use talos_storage::{Error as StorageError, FileInfo, FilePath};

use super::frames::kind_name;
use super::{
    Content, Damage, Dump, FileReport, JournalEnd, JournalHeader, JournalReport, Loss, MAX_LISTED,
    Progress, Stretch, Unreadable,
};
use crate::format::{FileHeader, Frame, JournalId, LanePosition};
use crate::scan::ScanError;
use crate::scan::catalog::Catalogs;
use crate::scan::cursor::Cursor;
use crate::scan::walk::{Damage as Hole, FileEnd, Found, LaneWalk, Verdict};

impl Dump {
    /// Reads all files of `dir` and queues their reports.
    pub(super) async fn read_dir(
        &mut self,
        dir: BrokerDir,
        files: &[FileInfo],
        progress: &mut Progress<'_>,
    ) -> Result<(), StorageError> {
        let mut lanes: BTreeMap<LaneId, BTreeMap<u64, u64>> = BTreeMap::new();
        let mut sorted: BTreeMap<u64, u64> = BTreeMap::new();
        for info in files {
            match info.path {
                FilePath::Journal { lane, number, .. } => {
                    lanes.entry(lane).or_default().insert(number, info.len);
                }
                FilePath::Sorted { number, .. } => {
                    sorted.insert(number, info.len);
                }
                FilePath::Cluster | FilePath::SealIndex { .. } | FilePath::Segment { .. } => {}
            }
        }
        // Lane 0 has a file before the epoch is registered (E-J13).
        lanes.entry(LaneId(0)).or_default();
        let mut catalog = Catalogs::default();
        for (lane, files) in lanes {
            let reports = self.read_lane((dir, lane), &files, &mut catalog, progress).await?;
            self.ready.extend(reports.into_values());
        }
        for file in catalog.files().filter(|file| !sorted.contains_key(&file.number)) {
            let path = FilePath::Sorted { dir, number: file.number };
            let mut report = FileReport::new(path.clone(), None);
            report.add(missing(&path));
            self.ready.push_back(report);
        }
        for (number, len) in sorted {
            let path = FilePath::Sorted { dir, number };
            let named = Some(catalog.file(number).map(|file| file.index_crc));
            let report = self.read_runs(&path, len, named, progress).await?;
            self.ready.push_back(report);
        }
        Ok(())
    }

    /// Reads one lane; the last catalog frame replaces `catalog`.
    async fn read_lane(
        &mut self,
        (dir, lane): (BrokerDir, LaneId),
        files: &BTreeMap<u64, u64>,
        catalog: &mut Catalogs,
        progress: &mut Progress<'_>,
    ) -> Result<BTreeMap<FilePath, FileReport>, StorageError> {
        let storage = Arc::clone(&self.storage);
        if self.options.cluster.is_none() {
            self.options.cluster = first_cluster(&storage, (dir, lane), files).await?;
        }
        let cluster = self.options.cluster.unwrap_or_default();
        // Recorded of lane 0, the only one so far.
        let clean = self.options.clean_ends.get(&dir).filter(|_| lane == LaneId(0));
        let mut walk =
            LaneWalk::new(&storage, cluster, (dir, lane), clean.copied().unwrap_or_default());
        let mut reports = BTreeMap::new();
        for (number, len) in files {
            let path = JournalId { dir, lane, number: *number }.path();
            let mut report = FileReport::new(path.clone(), Some(*len));
            let mut journal = Counting {
                report: empty_report(),
                catalog: &mut *catalog,
                published: &mut self.published,
            };
            let mut told = 0;
            let outcome = walk.file(*number, *len, |found, frame| {
                progress(found.end - told);
                told = found.end;
                journal.take(found, frame)
            });
            let outcome = outcome.await;
            let mut journal = journal.report;
            match outcome {
                Ok((at, FileEnd::Note)) => (journal.end, journal.ending) = (at, JournalEnd::Note),
                Ok((_, FileEnd::Closed(next))) => journal.ending = JournalEnd::Closed(next),
                // Said by the hole that begins here.
                Ok((at, FileEnd::Unreadable)) => journal.end = at,
                Err(ScanError::Storage(error)) => return Err(error),
                Err(ScanError::Corrupt { file, position, what }) => {
                    journal.ending = JournalEnd::Stopped;
                    let (file, end, loss) = (file.to_string(), None, Loss::Records);
                    report.add(Damage { file, position, end, what, loss });
                }
            }
            progress(len.saturating_sub(told));
            report.content = Some(Content::Journal(journal));
            reports.insert(path, report);
        }
        if self.is_registered(dir) {
            walk.find_missing(files);
            walk.require_headers();
        }
        settle(&mut walk, &mut reports);
        Ok(reports)
    }

    fn is_registered(&self, dir: BrokerDir) -> bool {
        let Some(registered) = &self.options.registered else { return true };
        registered.get(&dir.broker).is_some_and(|newest| dir.epoch <= *newest)
    }
}

/// The whole lane was read: what can not be read is judged, and each file learns how far it counts.
fn settle(walk: &mut LaneWalk<'_>, reports: &mut BTreeMap<FilePath, FileReport>) {
    for (hole, verdict) in walk.judge() {
        let report = reports
            .entry(hole.file.clone())
            .or_insert_with(|| FileReport::new(hole.file.clone(), None));
        report.judged(&hole, verdict);
    }
    for (path, report) in reports.iter_mut() {
        let (FilePath::Journal { number, .. }, Some(Content::Journal(journal))) =
            (path, &mut report.content)
        else {
            continue;
        };
        journal.durable_to = walk.limit(*number).min(journal.end);
        journal.replaced = *number < walk.replaced_below();
        report.damage.sort_by_key(|damage| damage.position);
    }
}

fn missing(path: &FilePath) -> Damage {
    Damage {
        file: path.to_string(),
        position: 0,
        end: None,
        what: "the file is missing".into(),
        loss: Loss::Records,
    }
}

/// The cluster that the first readable header of the lane states.
async fn first_cluster(
    storage: &Arc<dyn talos_storage::Storage>,
    (dir, lane): (BrokerDir, LaneId),
    files: &BTreeMap<u64, u64>,
) -> Result<Option<[u8; 16]>, StorageError> {
    for (number, len) in files {
        let mut cursor = Cursor::new(storage, JournalId { dir, lane, number: *number }, *len);
        if let Ok(Frame::Header(header)) = cursor.next().await? {
            return Ok(Some(header.cluster));
        }
    }
    Ok(None)
}

fn empty_report() -> JournalReport {
    JournalReport {
        header: None,
        frames: BTreeMap::new(),
        partitions: BTreeMap::new(),
        states: LanePosition::default(),
        durable_to: 0,
        end: 0,
        ending: JournalEnd::Stopped,
        unreadable: Vec::new(),
        replaced: false,
    }
}

impl FileReport {
    /// Takes a place that can not be read.
    fn judged(&mut self, hole: &Hole, verdict: Verdict) {
        let (file, position, what) = (hole.file.to_string(), hole.position, hole.what.clone());
        let end = hole.end_in_file();
        if let Some(Content::Journal(journal)) = &mut self.content
            && position == journal.end
            && journal.ending == JournalEnd::Stopped
            && hole.reaches_end
        {
            journal.ending = match (position, verdict) {
                (0, Verdict::Torn) => JournalEnd::Unused,
                _ => JournalEnd::Torn(what.clone()),
            };
        }
        match verdict {
            Verdict::Damage => self.add(Damage { file, position, end, what, loss: Loss::Records }),
            Verdict::Small => self.add(Damage { file, position, end, what, loss: Loss::Nothing }),
            Verdict::Torn | Verdict::Replaced => {
                let Some(Content::Journal(journal)) = &mut self.content else { return };
                let ends = matches!(journal.ending, JournalEnd::Note | JournalEnd::Unused);
                if ends && position == journal.end {
                    // Behind the last flush, and in a file that was not begun, there is nothing.
                } else if journal.unreadable.len() < MAX_LISTED {
                    journal.unreadable.push(Unreadable { position, end, what });
                } else {
                    self.omitted += 1;
                }
            }
        }
    }
}

/// Counts what the frames of one file hold.
struct Counting<'a> {
    report: JournalReport,
    catalog: &'a mut Catalogs,
    published: &'a mut BTreeMap<TopicPartitionId, u64>,
}

impl Counting<'_> {
    fn take(&mut self, found: &Found, frame: Frame) -> Result<(), ScanError> {
        let report = &mut self.report;
        *report.frames.entry(kind_name(&frame)).or_default() += 1;
        report.end = found.end;
        match frame {
            Frame::Header(header) => {
                report.states = report.states.max(header.durable_to);
                report.header = Some(facts(&header));
            }
            Frame::Flush(flush) => report.states = report.states.max(flush.durable_to),
            Frame::Batch(meta, bytes) => {
                let header =
                    BatchHeader::parse(&bytes).map_err(|error| found.corrupt(error.to_string()))?;
                let (base_offset, end_offset) = (header.base_offset, header.last_offset() + 1);
                let stretch =
                    report.partitions.entry((meta.partition, meta.leader_epoch)).or_insert(
                        Stretch { base_offset, end_offset, batches: 0, records: 0, bytes: 0 },
                    );
                stretch.base_offset = stretch.base_offset.min(base_offset);
                stretch.end_offset = stretch.end_offset.max(end_offset);
                stretch.batches += 1;
                stretch.records += u64::try_from(header.records_count).unwrap_or(0);
                stretch.bytes += bytes.len() as u64;
            }
            Frame::Published { partition, root_generation, .. } => {
                let newest = self.published.entry(partition).or_default();
                *newest = (*newest).max(root_generation);
            }
            Frame::Catalog { .. } | Frame::Sorted { .. } => self.catalog.take(&frame),
            Frame::Note { durable_to } => report.states = report.states.max(durable_to),
            Frame::Open { .. } | Frame::Index { .. } | Frame::Close { .. } => {}
        }
        Ok(())
    }
}

fn facts(header: &FileHeader) -> JournalHeader {
    let FileHeader { format, cluster, id, preallocated_bytes, durable_to, .. } = *header;
    let JournalId { dir, lane, number } = id;
    JournalHeader { format, cluster, dir, lane, number, preallocated_bytes, durable_to }
}
