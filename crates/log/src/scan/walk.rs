//! Walks the files of one lane and tells a torn end from damage (P5). What the frames hold is given to
//! a visitor: recovery keeps the batches, a dump counts them.
//!
//! Invariant: nothing is judged before the whole lane was read, because any later frame may state that
//! what could not be read was durable.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use talos_common::{BrokerDir, LaneId};
use talos_storage::{Error as StorageError, FilePath, Storage};

use super::cursor::Cursor;
use crate::format::{BATCH_PREFIX_BYTES, Frame, FrameError, JournalId, LanePosition};

/// The smallest frame that holds a batch: damage below this size can not have lost one.
const SMALLEST_BATCH_FRAME: u64 = (BATCH_PREFIX_BYTES + talos_protocol::batch::HEADER_BYTES) as u64;

/// How many file numbers in a row may have been skipped because their creation failed.
const MAX_SKIPPED: u64 = 1_000;

/// A stretch below the durable-to that can not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// In which file.
    pub(crate) file: FilePath,
    /// Where it starts.
    pub(crate) position: u64,
    /// What is wrong there.
    pub(crate) what: String,
    pub(super) from: LanePosition,
    /// Exclusive.
    pub(super) to: LanePosition,
    /// Whether nothing can be read from there to the end of the file.
    pub(crate) reaches_end: bool,
}

impl Damage {
    /// Where it ends in its file (exclusive); `None`: with the file.
    pub(crate) fn end_in_file(&self) -> Option<u64> {
        (self.to.file == self.from.file).then_some(self.to.position)
    }
}

/// Why a directory could not be read at all.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ScanError {
    #[error(transparent)]
    Storage(#[from] StorageError),
    #[error("{file} is corrupt at position {position}: {what}")]
    Corrupt { file: FilePath, position: u64, what: String },
}

/// Where a frame was found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    pub(crate) id: JournalId,
    /// Of the file.
    pub(crate) len: u64,
    pub(crate) at: u64,
    /// Exclusive.
    pub(crate) end: u64,
    pub(crate) mask: u32,
}

impl Found {
    pub(crate) fn corrupt(&self, what: String) -> ScanError {
        ScanError::Corrupt { file: self.id.path(), position: self.at, what }
    }
}

/// How reading a file ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileEnd {
    /// At the note behind the last flush.
    Note,
    /// At a close frame, which names the next file.
    Closed(u64),
    /// No frame can be read from there to the end of the file.
    Unreadable,
}

/// What a stretch is that can not be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Above everything that is stated as durable.
    Torn,
    /// In a file that sorted journals stand for.
    Replaced,
    /// Damage that is too small to have held a record.
    Small,
    /// Damage that may have taken records.
    Damage,
}

/// One lane while it is read.
pub(crate) struct LaneWalk<'a> {
    storage: &'a Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    lane: LaneId,
    /// The highest durable-to stated so far.
    stated: LanePosition,
    /// Up to where a file counts, as the header of the file after it states it.
    limits: BTreeMap<u64, u64>,
    /// All that can not be read; judged once `stated` is final.
    holes: Vec<Damage>,
    /// The file that a close frame names as the next one.
    next_named: Option<u64>,
    /// Files whose header could be read.
    headed: BTreeSet<u64>,
    /// Files that had a header, which can not be read.
    begun: BTreeSet<u64>,
    /// Files below this number are replaced by sorted journals: gone, or about to be.
    replaced_below: u64,
    /// Where the last catalog stands.
    catalog_at: LanePosition,
}

impl<'a> LaneWalk<'a> {
    /// Of a cluster; `stated` is what a clean stop recorded as the lane's end.
    pub(crate) fn new(
        storage: &'a Arc<dyn Storage>,
        cluster: [u8; 16],
        (dir, lane): (BrokerDir, LaneId),
        stated: LanePosition,
    ) -> Self {
        Self {
            storage,
            cluster,
            dir,
            lane,
            stated,
            limits: BTreeMap::new(),
            holes: Vec::new(),
            next_named: None,
            headed: BTreeSet::new(),
            begun: BTreeSet::new(),
            replaced_below: 0,
            catalog_at: LanePosition::default(),
        }
    }

    /// Raw files below this number are replaced by sorted journals.
    pub(crate) fn replaced_below(&self) -> u64 {
        self.replaced_below
    }

    /// Up to which position (exclusive) the lane states file `number` as durable.
    pub(crate) fn limit(&self, number: u64) -> u64 {
        match (self.limits.get(&number), number.cmp(&self.stated.file)) {
            (Some(limit), _) => *limit,
            (None, Ordering::Less) => u64::MAX,
            (None, Ordering::Equal) => self.stated.position,
            (None, Ordering::Greater) => 0,
        }
    }

    /// Reads the file `number` of `len` bytes, files in rising order; every frame is given to `visit`,
    /// whose error ends it. Gives where and how it ended.
    pub(crate) async fn file(
        &mut self,
        number: u64,
        len: u64,
        mut visit: impl FnMut(&Found, Frame) -> Result<(), ScanError>,
    ) -> Result<(u64, FileEnd), ScanError> {
        let id = JournalId { dir: self.dir, lane: self.lane, number };
        let mut cursor = Cursor::new(self.storage, id, len);
        loop {
            let at = cursor.position();
            let here = LanePosition { file: id.number, position: at };
            let next_file = LanePosition { file: id.number.saturating_add(1), position: 0 };
            let error = match cursor.next().await? {
                Ok(frame) => {
                    let found = Found { id, len, at, end: cursor.position(), mask: cursor.mask() };
                    let end = self.take(&found, &frame)?;
                    visit(&found, frame)?;
                    if let Some(end) = end {
                        return Ok((at, end));
                    }
                    continue;
                }
                Err(error) => error,
            };
            if let FrameError::Unknown { kind, version } = error {
                let what = format!(
                    "frame kind {kind} version {version} was written by a newer version of Talos"
                );
                return Err(ScanError::Corrupt { file: id.path(), position: at, what });
            }
            // Without the header's nonce nothing behind it can be read: most of all in a file that was
            // made ahead and never used.
            let found = if at == 0 { None } else { cursor.find_next().await? };
            let to = found.map_or(next_file, |position| LanePosition { position, ..here });
            self.hole(id, here, to, &error.to_string());
            if at == 0
                && let Some(durable_to) = cursor.lost_header().await?
            {
                self.begun.insert(number);
                self.begins(number, durable_to);
            }
            if found.is_none() {
                return Ok((at, FileEnd::Unreadable));
            }
        }
    }

    /// File `number` has a header, which states `durable_to`.
    fn begins(&mut self, number: u64, durable_to: LanePosition) {
        let LanePosition { file, position } = durable_to;
        self.stated = self.stated.max(durable_to);
        for before in file.max(number.saturating_sub(MAX_SKIPPED))..number {
            let limit = if before == file { position } else { 0 };
            self.limits.entry(before).or_insert(limit);
        }
    }

    fn hole(&mut self, id: JournalId, from: LanePosition, to: LanePosition, what: &str) {
        let (file, position, what) = (id.path(), from.position, what.to_owned());
        let reaches_end = to.file > from.file;
        self.holes.push(Damage { file, position, what, from, to, reaches_end });
    }

    /// What the frame says of the lane; an end if it is the file's last one.
    fn take(&mut self, found: &Found, frame: &Frame) -> Result<Option<FileEnd>, ScanError> {
        let Found { id, len, at, .. } = *found;
        let here = LanePosition { file: id.number, position: at };
        let corrupt = |what: String| found.corrupt(what);
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
                    let to = LanePosition { file: id.number.saturating_add(1), position: 0 };
                    self.hole(id, from, to, "the file was cut here");
                }
                self.begins(id.number, header.durable_to);
            }
            Frame::Flush(flush) => self.stated = self.stated.max(flush.durable_to),
            Frame::Catalog { replaced_below, .. } => {
                self.replaced_below = *replaced_below;
                self.catalog_at = here;
            }
            Frame::Note { durable_to } if *durable_to == here => {
                // The lane's last flush ended here, acknowledged; the next was not begun.
                self.stated = self.stated.max(here);
                let next_file = LanePosition { file: id.number.saturating_add(1), position: 0 };
                self.hole(id, here, next_file, "the file ends here");
                return Ok(Some(FileEnd::Note));
            }
            Frame::Close { next_file } => {
                self.next_named = Some(*next_file);
                return Ok(Some(FileEnd::Closed(*next_file)));
            }
            // A note anywhere else is what a former flush left.
            Frame::Note { .. }
            | Frame::Batch(..)
            | Frame::Open { .. }
            | Frame::Published { .. }
            | Frame::Sorted { .. }
            | Frame::Index { .. } => {}
        }
        Ok(None)
    }

    /// Files that must be there and are not: the first, the one that a close frame names, and every
    /// one in which something is stated as durable.
    pub(crate) fn find_missing(&mut self, files: &BTreeMap<u64, u64>) {
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
            let to = LanePosition { file: number.saturating_add(1), position: 0 };
            self.hole(id, from, to, "the file is missing");
        }
    }

    /// The first file, and one that a close frame names, had a durable header before anything could
    /// depend on it; and so had one that was begun: it may hold anything, unless a later header says that
    /// it counts for nothing.
    pub(crate) fn require_headers(&mut self) {
        let begun = self.begun.iter().filter(|number| !self.limits.contains_key(number)).copied();
        let required: BTreeSet<u64> = begun.chain([0]).chain(self.next_named).collect();
        for number in required {
            let needed = number >= self.replaced_below && !self.headed.contains(&number);
            if needed && self.limit(number) == 0 {
                self.stated = self.stated.max(LanePosition { file: number, position: 1 });
            }
        }
    }

    /// Everything that could not be read, in the order of the lane, and what it is. The stretch of
    /// damage ends with what is stated as durable.
    pub(crate) fn judge(&mut self) -> Vec<(Damage, Verdict)> {
        let holes = std::mem::take(&mut self.holes);
        holes.into_iter().map(|hole| self.judge_one(hole)).collect()
    }

    fn judge_one(&self, hole: Damage) -> (Damage, Verdict) {
        let limit = self.limit(hole.from.file);
        if hole.from.position >= limit {
            return (hole, Verdict::Torn);
        }
        if hole.from.file < self.replaced_below {
            return (hole, Verdict::Replaced);
        }
        // A file that is gone, has no header or was cut: what it held is not known.
        let missing = hole.to.file > hole.from.file && limit == hole.from.position + 1;
        let to = hole.to.min(LanePosition { file: hole.from.file, position: limit });
        let small = !missing && to.position - hole.from.position < SMALLEST_BATCH_FRAME;
        (Damage { to, ..hole }, if small { Verdict::Small } else { Verdict::Damage })
    }

    /// Damage to what belongs to the last catalog.
    pub(super) fn at_catalog(&self, what: &str) -> Damage {
        let at = self.catalog_at;
        let id = JournalId { dir: self.dir, lane: self.lane, number: at.file };
        let (file, position, what) = (id.path(), at.position, what.to_owned());
        Damage { file, position, what, from: at, to: at, reaches_end: false }
    }

    /// Holes below what is stated as durable that are large enough to have lost a batch; and the first
    /// one of any size behind the last catalog, which may have been a newer catalog.
    pub(super) fn damage(&mut self) -> (Vec<Damage>, Option<Damage>) {
        let (mut damage, mut doubt) = (Vec::new(), None);
        for (hole, verdict) in self.judge() {
            let Damage { file, position, what, .. } = &hole;
            let hides_catalog = hole.from > self.catalog_at;
            match verdict {
                Verdict::Torn | Verdict::Replaced => continue,
                Verdict::Small => {
                    tracing::warn!(%file, position, what, "damage too small to have held a record");
                }
                Verdict::Damage => {
                    tracing::error!(%file, position, what, "damage in a journal");
                    damage.push(hole.clone());
                }
            }
            if hides_catalog && doubt.is_none() {
                doubt = Some(hole);
            }
        }
        (damage, doubt)
    }
}
