//! Reading: the tail from memory, the rest from its file, in one pass over the extents.
//!
//! What to read is decided under the partition's lock, as pieces and ranges; bytes are copied and files
//! read after it was released. Bytes from a file are checked before they are served; from memory they
//! are the bytes that were checked on their way in.
//!
//! An answer may wait for a slow reader. So it holds what it counts: its batches, and flushed buffers
//! only as far as their budget allows (see [`crate::tail_cache`]); never the rest of what was read along
//! with them. Neighbours that are copied become one buffer, however small they are (R15).

use std::sync::{Arc, PoisonError};

use bytes::{Bytes, BytesMut};
use talos_common::ByteBudget;
use talos_protocol::batch::BatchHeader;
use talos_storage::{ErrorKind, FilePath};

use super::{Offsets, PartitionLog};
use crate::extent::{Extent, Place};
use crate::format::{self, BATCH_PREFIX_BYTES, Frame};
use crate::ranges::read_range;
use crate::run::Run;
use crate::runs::RunFileError;
use crate::tail_cache::Piece;

/// Slices below this are copied: a small answer must not pin a large buffer.
const COPY_BELOW_BYTES: usize = 4 << 10;
/// Batches of one file whose gap is at most this are fetched in one read.
const COALESCE_GAP_BYTES: u64 = 64 << 10;
/// One read of a file.
const READ_BYTES: u64 = 4 << 20;

/// What a read gives.
#[derive(Debug)]
pub struct ReadOut {
    /// Whole record batches in offset order; the first holds the asked offset (or is the first above
    /// it).
    pub records: Vec<Bytes>,
    /// Bytes of `records`.
    pub bytes: usize,
    /// The offsets when the read was decided.
    pub offsets: Offsets,
}

/// Why a read gives nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReadError {
    /// OFFSET_OUT_OF_RANGE: below the log start or above the log end.
    #[error("offset {offset} is out of range: the log has {log_start} to {log_end}")]
    OutOfRange {
        /// As asked.
        offset: i64,
        /// First readable (inclusive).
        log_start: i64,
        /// Next to be written.
        log_end: i64,
    },
    /// NOT_LEADER_OR_FOLLOWER: this leadership is over.
    #[error("this broker does not lead the partition any more: {0}")]
    Ended(String),
    /// KAFKA_STORAGE_ERROR: the bytes are there but are not what was written (P5).
    #[error("{file} is corrupt at position {position}: {what}")]
    Corrupt {
        /// In which file.
        file: FilePath,
        /// Where the batch starts.
        position: u64,
        /// What is wrong.
        what: String,
    },
    /// KAFKA_STORAGE_ERROR: the store did not answer; the same read may succeed later.
    #[error("the store can not be read: {0}")]
    Unavailable(String),
}

/// A part of an answer, before anything is copied or read.
enum Part {
    /// Without a copy.
    Slice(Bytes),
    /// In memory, to be copied.
    Piece(Arc<Piece>, Extent),
    File(Extent),
}

/// The same when what is in memory was copied.
enum Ready {
    Memory(Bytes),
    File(Extent),
}

/// Where an answer comes from.
enum Plan {
    Parts(Vec<Part>),
    Run(Arc<Run>),
}

impl PartitionLog {
    /// Whole batches from the one that holds `offset` on, at most `max_bytes` of them; with
    /// `at_least_one` the first comes whole however large it is (KIP-74). Empty at the high watermark.
    /// Cancel safe.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn read(
        &self,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<ReadOut, ReadError> {
        loop {
            let (plan, offsets, moves) = self.plan(offset, max_bytes, at_least_one)?;
            let read = match plan {
                Plan::Parts(parts) => self.fetch(parts).await,
                Plan::Run(run) => self.read_run(&run, offset, max_bytes, at_least_one).await,
            };
            match read {
                Ok(records) => {
                    let bytes = records.iter().map(Bytes::len).sum();
                    return Ok(ReadOut { records, bytes, offsets });
                }
                // The file may have gone since the read was decided: sorted, or with the log start
                // (R9, R17). Then the records are elsewhere, or rightly out of range.
                Err(ReadError::Corrupt { .. }) if self.state().moves != moves => {}
                Err(error) => return Err(self.met(error)),
            }
        }
    }

    /// What is damaged in the files of this log, as far as reads met it: file, position and what is wrong.
    /// The records there can not be read; all others are served.
    pub fn damage(&self) -> Option<String> {
        self.damage.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Says what damage a read met; the same place is said once.
    pub(super) fn met(&self, error: ReadError) -> ReadError {
        if let ReadError::Corrupt { file, position, what } = &error {
            self.lane.limits().metrics.damaged_read();
            let text = error.to_string();
            let mut damage = self.damage.lock().unwrap_or_else(PoisonError::into_inner);
            if damage.as_ref() != Some(&text) {
                tracing::error!(
                    partition = %self.id, %file, position, what,
                    "damage in a file of an open partition: records there can not be read"
                );
                *damage = Some(text);
            }
        }
        error
    }

    /// Whether what a read from `offset` gives first is in memory, or still to come: a hint.
    pub fn is_at_tail(&self, offset: i64) -> bool {
        let state = self.state();
        if state.runs.back().is_some_and(|run| offset < run.end_offset) {
            return false;
        }
        let first = state.extents.reaching(offset).next();
        first.is_none_or(|extent| extent.piece.strong_count() > 0)
    }

    async fn read_run(
        &self,
        run: &Run,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<Vec<Bytes>, ReadError> {
        let bytes = run.read(&self.storage, offset, max_bytes).await?;
        let too_large = bytes.len() > max_bytes && !at_least_one;
        Ok(if too_large || bytes.is_empty() { Vec::new() } else { vec![bytes] })
    }

    fn plan(
        &self,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<(Plan, Offsets, u64), ReadError> {
        let state = self.state();
        if let Some(why) = &state.ended {
            return Err(ReadError::Ended(why.clone()));
        }
        let offsets = Offsets {
            log_start: state.log_start,
            high_watermark: state.high_watermark,
            last_stable: state.high_watermark,
            log_end: state.log_end,
        };
        if offset < offsets.log_start || offset > offsets.log_end {
            let Offsets { log_start, log_end, .. } = offsets;
            return Err(ReadError::OutOfRange { offset, log_start, log_end });
        }
        if max_bytes == 0 && !at_least_one {
            return Ok((Plan::Parts(Vec::new()), offsets, state.moves));
        }
        let run = state.runs.partition_point(|run| run.end_offset <= offset);
        if let Some(run) = state.runs.get(run) {
            return Ok((Plan::Run(Arc::clone(run)), offsets, state.moves));
        }
        let pins = &self.lane.limits().pins;
        let mut parts = Vec::new();
        let mut left = max_bytes;
        for extent in state.extents.reaching(offset) {
            let length = extent.length as usize;
            if length > left && !(at_least_one && parts.is_empty()) {
                break;
            }
            left = left.saturating_sub(length);
            parts.push(part(extent, (length >= COPY_BELOW_BYTES).then_some(pins)));
        }
        Ok((Plan::Parts(parts), offsets, state.moves))
    }

    /// The whole batches of `extents`, one by one, from memory or their files. A copy.
    pub(crate) async fn read_extents(&self, extents: &[Extent]) -> Result<Vec<Bytes>, ReadError> {
        let parts = extents.iter().map(|extent| part(extent, None)).collect();
        let mut buffers = self.fetch(parts).await?.into_iter();
        let mut buffer = Bytes::new();
        let mut batches = Vec::with_capacity(extents.len());
        for extent in extents {
            if buffer.is_empty() {
                buffer = buffers.next().unwrap_or_default();
            }
            // A buffer holds whole batches.
            batches.push(buffer.split_to(buffer.len().min(extent.length as usize)));
        }
        Ok(batches)
    }

    /// Reads the parts that are not in memory, neighbours in one read. Gives whole batches in order,
    /// several in a buffer.
    async fn fetch(&self, parts: Vec<Part>) -> Result<Vec<Bytes>, ReadError> {
        // First of all: a piece is not kept longer than its copy takes.
        let mut parts = copied(parts).into_iter().peekable();
        let mut records = Vec::new();
        while let Some(part) = parts.next() {
            let first = match part {
                Ready::Memory(bytes) => {
                    records.push(bytes);
                    continue;
                }
                Ready::File(extent) => extent,
            };
            let mut run = vec![first];
            while let Some(Ready::File(next)) = parts.peek()
                && goes_on(&run, next)
            {
                if let Some(Ready::File(next)) = parts.next() {
                    run.push(next);
                }
            }
            records.push(self.read_batches(run).await?);
        }
        Ok(records)
    }

    /// The batches of neighbours in one file, checked, without what lies between them.
    async fn read_batches(&self, run: Vec<Extent>) -> Result<Bytes, ReadError> {
        let Some((first, last)) = run.first().zip(run.last()) else { return Ok(Bytes::new()) };
        let (start, end) = (frame_start(first), last.position + u64::from(last.length));
        // More is read than is answered.
        let _lease = self.lane.limits().reads.take((end - start) as usize).await;
        let bytes = self.read_file(&first.place, start, end).await?;
        let mut batches = BytesMut::with_capacity(run.iter().map(|e| e.length as usize).sum());
        for extent in &run {
            batches.extend_from_slice(&checked(&bytes, start, extent)?);
        }
        Ok(batches.freeze())
    }

    async fn read_file(&self, place: &Place, start: u64, end: u64) -> Result<Bytes, ReadError> {
        let file = place.path();
        match read_range(&self.storage, &file, start..end).await {
            Ok(bytes) if bytes.len() as u64 == end - start => Ok(bytes),
            Ok(bytes) => Err(ReadError::Corrupt {
                file,
                position: start + bytes.len() as u64,
                what: "the file ends here".into(),
            }),
            Err(error) if error.kind() == ErrorKind::NotFound => Err(ReadError::Corrupt {
                file,
                position: start,
                what: "the file is missing".into(),
            }),
            Err(error) => Err(ReadError::Unavailable(error.to_string())),
        }
    }
}

/// Where to get the extent's batch from; without a copy if it is in memory and `pins` has room.
fn part(extent: &Extent, pins: Option<&ByteBudget>) -> Part {
    let (position, length) = (extent.position, extent.length);
    let Some(piece) = extent.piece.upgrade().filter(|p| p.get(position, length).is_some()) else {
        return Part::File(extent.clone());
    };
    match pins.and_then(|pins| piece.pin(position, length, pins)) {
        Some(bytes) => Part::Slice(bytes),
        None => Part::Piece(piece, extent.clone()),
    }
}

/// Copies what is to be copied; neighbours into one buffer.
fn copied(parts: Vec<Part>) -> Vec<Ready> {
    let mut ready = Vec::new();
    let mut parts = parts.into_iter().peekable();
    let mut copy = BytesMut::new();
    while let Some(part) = parts.next() {
        match part {
            Part::Slice(bytes) => ready.push(Ready::Memory(bytes)),
            Part::File(extent) => ready.push(Ready::File(extent)),
            Part::Piece(piece, extent) => {
                // Pieces do not change: the bytes were there when the part was made.
                let bytes = piece.get(extent.position, extent.length).unwrap_or_default();
                copy.extend_from_slice(bytes);
                if !matches!(parts.peek(), Some(Part::Piece(..))) {
                    ready.push(Ready::Memory(std::mem::take(&mut copy).freeze()));
                }
            }
        }
    }
    ready
}

/// Whether `next` is read along with `run`.
fn goes_on(run: &[Extent], next: &Extent) -> bool {
    let Some((first, last)) = run.first().zip(run.last()) else { return true };
    let end = last.position + u64::from(last.length);
    let next_end = next.position + u64::from(next.length);
    let near = next.position >= end && next.position - end <= COALESCE_GAP_BYTES;
    next.place == last.place && near && next_end - frame_start(first) <= READ_BYTES
}

/// Where the frame of the extent's batch starts in its file.
fn frame_start(extent: &Extent) -> u64 {
    extent.position - BATCH_PREFIX_BYTES as u64
}

/// The extent's batch out of `bytes`, which were read from `start`; its whole frame is checked,
/// because a file is not trusted (P5).
fn checked(bytes: &Bytes, start: u64, extent: &Extent) -> Result<Bytes, ReadError> {
    let corrupt = |what: String| ReadError::Corrupt {
        file: extent.place.path(),
        position: frame_start(extent),
        what,
    };
    let Place::Journal { mask, .. } = *extent.place;
    // The caller read a range around the extent.
    let frame = bytes.slice((frame_start(extent) - start) as usize..);
    let parsed = format::parse(&frame, mask).map_err(|error| corrupt(error.to_string()))?;
    let Frame::Batch(_, batch) = parsed.frame else {
        return Err(corrupt("not a batch frame".into()));
    };
    let header = BatchHeader::parse(&batch).map_err(|error| corrupt(error.to_string()))?;
    if header.base_offset != extent.base_offset {
        return Err(corrupt(format!("not the batch at offset {}", extent.base_offset)));
    }
    Ok(batch)
}

impl From<RunFileError> for ReadError {
    fn from(error: RunFileError) -> Self {
        match error {
            RunFileError::Storage(error) => Self::Unavailable(error.to_string()),
            RunFileError::Corrupt { file, position, what, .. } => {
                Self::Corrupt { file, position, what }
            }
        }
    }
}

/// Batches in one buffer, for callers that want no chain.
impl ReadOut {
    /// All records in one piece: a copy, unless there is just one slice.
    pub fn to_bytes(&self) -> Bytes {
        match self.records.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut all = BytesMut::with_capacity(self.bytes);
                many.iter().for_each(|part| all.extend_from_slice(part));
                all.freeze()
            }
        }
    }
}
