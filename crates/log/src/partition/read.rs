//! Reading: the tail from memory, the rest from its file, in one pass over the extents.
//!
//! What to read is decided under the partition's lock, as slices and ranges; files are read after it
//! was released. Bytes from a file are checked before they are served; from memory they are the
//! bytes that were checked on their way in.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use talos_common::LeaderEpoch;
use talos_protocol::batch::{BatchError, BatchHeader, Batches};
use talos_protocol::records::{Limits, decode_records};
use talos_storage::{ErrorKind, FilePath};

use super::{Offsets, PartitionLog};
use crate::extent::{Extent, Place};
use crate::format::{self, BATCH_PREFIX_BYTES, Frame};
use crate::ranges::read_range;
use crate::run::Run;
use crate::runs::RunFileError;

/// Slices below this are copied: a small answer must not pin a large buffer.
const COPY_BELOW_BYTES: usize = 4 << 10;
/// Batches of one file whose gap is at most this are fetched in one read.
const COALESCE_GAP_BYTES: u64 = 64 << 10;
/// One read of a file.
const READ_BYTES: u64 = 8 << 20;

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

/// A record found by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp, in milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// The leader epoch that accepted it.
    pub epoch: LeaderEpoch,
}

/// A part of an answer, before files are read.
enum Part {
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
                Err(error) => return Err(error),
            }
        }
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
        let first = state.extents.partition_point(|extent| !extent.reaches(offset));
        let mut parts = Vec::new();
        let mut left = max_bytes;
        for extent in state.extents.range(first..) {
            let length = extent.length as usize;
            if length > left && !(at_least_one && parts.is_empty()) {
                break;
            }
            left = left.saturating_sub(length);
            let piece = extent.piece.upgrade();
            let bytes = piece.and_then(|piece| piece.slice(extent.position, extent.length));
            parts.push(match bytes {
                Some(bytes) if length < COPY_BELOW_BYTES => {
                    Part::Memory(Bytes::copy_from_slice(&bytes))
                }
                Some(bytes) => Part::Memory(bytes),
                None => Part::File(extent.clone()),
            });
        }
        Ok((Plan::Parts(parts), offsets, state.moves))
    }

    /// The whole batches of `extents`, from memory or their files.
    pub(crate) async fn read_extents(&self, extents: &[Extent]) -> Result<Vec<Bytes>, ReadError> {
        let parts = extents.iter().map(|extent| {
            let piece = extent.piece.upgrade();
            match piece.and_then(|piece| piece.slice(extent.position, extent.length)) {
                Some(bytes) => Part::Memory(bytes),
                None => Part::File(extent.clone()),
            }
        });
        self.fetch(parts.collect()).await
    }

    /// Reads the parts that are not in memory, neighbours in one read.
    async fn fetch(&self, parts: Vec<Part>) -> Result<Vec<Bytes>, ReadError> {
        let mut records = Vec::with_capacity(parts.len());
        let mut parts = parts.into_iter().peekable();
        while let Some(part) = parts.next() {
            let first = match part {
                Part::Memory(bytes) => {
                    records.push(bytes);
                    continue;
                }
                Part::File(extent) => extent,
            };
            let (place, start) = (first.place, frame_start(&first));
            let mut end = first.position + u64::from(first.length);
            let mut run = vec![first];
            while let Some(Part::File(next)) = parts.peek() {
                let next_end = next.position + u64::from(next.length);
                let near = next.position >= end && next.position - end <= COALESCE_GAP_BYTES;
                if next.place != place || !near || next_end - start > READ_BYTES {
                    break;
                }
                end = next_end;
                if let Some(Part::File(next)) = parts.next() {
                    run.push(next);
                }
            }
            let bytes = self.read_file(place, start, end).await?;
            for extent in run {
                records.push(checked(&bytes, start, &extent)?);
            }
        }
        Ok(records)
    }

    async fn read_file(&self, place: Place, start: u64, end: u64) -> Result<Bytes, ReadError> {
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

    /// The first record at or after `timestamp`, by record timestamps; `None` when there is none
    /// below the high watermark.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn offset_for_timestamp(
        &self,
        timestamp: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let from = self.offsets().log_start;
        // The batch's largest time may belong to a record below the log start: then it goes on.
        self.find(
            from,
            |time| time >= timestamp,
            |at| at.timestamp >= timestamp && at.offset >= from,
        )
        .await
    }

    /// The record with the largest timestamp, the first of them if there are several (KIP-734).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn max_timestamp(&self) -> Result<Option<TimestampOffset>, ReadError> {
        let Some((from, largest)) = self.largest_time().await? else { return Ok(None) };
        // A larger one belongs to a record below the log start.
        self.find(from, |time| time >= largest, |at| at.timestamp == largest && at.offset >= from)
            .await
    }

    /// The log start and the largest timestamp of the records from there on. The largest of a run or a
    /// batch that reaches below the log start may be that of a deleted record.
    async fn largest_time(&self) -> Result<Option<(i64, i64)>, ReadError> {
        loop {
            let (from, whole, cut, moves) = {
                let state = self.state();
                let from = state.log_start;
                let runs = state.runs.iter().filter(|run| run.base_offset >= from);
                let raw = state.extents.iter().filter(|extent| extent.base_offset >= from);
                let times = runs.map(|run| run.max_timestamp);
                let whole = times.chain(raw.map(|extent| extent.max_timestamp)).max();
                let run = state.runs.front().filter(|run| run.base_offset < from);
                let raw = state.extents.front().filter(|extent| extent.base_offset < from);
                let cut = run.cloned().map(Stretch::Run);
                (from, whole, cut.or(raw.cloned().map(Stretch::Raw)), state.moves)
            };
            let live = match cut {
                Some(stretch) => self.largest_from(stretch, from).await,
                None => Ok(None),
            };
            match live {
                Ok(live) => return Ok(live.max(whole).map(|largest| (from, largest))),
                Err(ReadError::Corrupt { .. }) if self.state().moves != moves => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The largest timestamp in a stretch, of the records at or above `from`.
    async fn largest_from(&self, stretch: Stretch, from: i64) -> Result<Option<i64>, ReadError> {
        let run = match stretch {
            Stretch::Raw(extent) => {
                let bytes = self.read_extents(&[extent]).await?;
                let mut times = bytes.iter().map(|bytes| largest_in(bytes, from));
                return times.try_fold(None, |largest, time| Ok(time?.max(largest)));
            }
            Stretch::Run(run) => run,
        };
        let entry = run.entry(&self.storage).await?;
        let above = entry.blocks.iter().filter(|block| block.base_offset >= from);
        let end = above.clone().map(|block| block.base_offset).min().unwrap_or(run.end_offset);
        let mut largest = above.map(|block| block.max_timestamp).max();
        // The block in which the log begins.
        let mut at = from;
        while at < end {
            let bytes = run.read(&self.storage, at, FIND_BYTES).await?;
            let Some(last) = last_offset(&bytes)? else { break };
            largest = largest.max(largest_in(&bytes, from)?);
            at = last + 1;
        }
        Ok(largest)
    }

    /// The first record that is `wanted`, looking only into stretches whose largest timestamp `may`
    /// lead to one.
    async fn find(
        &self,
        mut from: i64,
        may: impl Fn(i64) -> bool,
        wanted: impl Fn(&TimestampOffset) -> bool,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        while let Some((stretch, moves)) = self.next_stretch(from, &may)? {
            let (bytes, end) = match self.read_stretch(stretch, from, &may).await {
                Ok(read) => read,
                // As in `read`: look again where the records are now.
                Err(ReadError::Corrupt { .. }) if self.state().moves != moves => continue,
                Err(error) => return Err(error),
            };
            for bytes in bytes {
                if let Some(found) = find_in(&bytes, &wanted)? {
                    return Ok(Some(found));
                }
            }
            from = end.max(from + 1);
        }
        Ok(None)
    }

    /// Some batches of the stretch at or after `from`, and the offset behind what they cover.
    async fn read_stretch(
        &self,
        stretch: Stretch,
        from: i64,
        may: impl Fn(i64) -> bool,
    ) -> Result<(Vec<Bytes>, i64), ReadError> {
        let run = match stretch {
            Stretch::Raw(extent) => {
                let end = extent.last_offset + 1;
                return Ok((self.read_extents(&[extent]).await?, end));
            }
            Stretch::Run(run) => run,
        };
        let entry = run.entry(&self.storage).await?;
        // Blocks have their own largest timestamps: go to the first that may.
        let first = entry.blocks.partition_point(|b| b.base_offset <= from).saturating_sub(1);
        let mut blocks = entry.blocks.iter().skip(first);
        let Some(block) = blocks.find(|block| may(block.max_timestamp)) else {
            return Ok((Vec::new(), run.end_offset));
        };
        let at = block.base_offset.max(from);
        let bytes = run.read(&self.storage, at, FIND_BYTES).await?;
        let last = last_offset(&bytes)?;
        Ok((vec![bytes], last.map_or(run.end_offset, |last| last + 1)))
    }

    /// The first run or raw batch that reaches `from` and whose largest timestamp `may` do.
    fn next_stretch(
        &self,
        from: i64,
        may: impl Fn(i64) -> bool,
    ) -> Result<Option<(Stretch, u64)>, ReadError> {
        let state = self.state();
        if let Some(why) = &state.ended {
            return Err(ReadError::Ended(why.clone()));
        }
        let mut runs = state.runs.iter();
        if let Some(run) = runs.find(|run| run.end_offset > from && may(run.max_timestamp)) {
            return Ok(Some((Stretch::Run(Arc::clone(run)), state.moves)));
        }
        let mut extents = state.extents.iter();
        let extent = extents.find(|extent| extent.reaches(from) && may(extent.max_timestamp));
        Ok(extent.cloned().map(|extent| (Stretch::Raw(extent), state.moves)))
    }
}

enum Stretch {
    Run(Arc<Run>),
    Raw(Extent),
}

/// Bytes of a run that are looked through at once for a timestamp.
const FIND_BYTES: usize = 256 << 10;

/// The offset of the last record in whole batches.
fn last_offset(bytes: &Bytes) -> Result<Option<i64>, ReadError> {
    let mut last = None;
    for batch in Batches::new(bytes.clone()) {
        last = Some(batch.map_err(unreadable)?.header.last_offset());
    }
    Ok(last)
}

/// The largest timestamp of the records at or above `from` in whole, checked batches.
fn largest_in(bytes: &Bytes, from: i64) -> Result<Option<i64>, ReadError> {
    let limits = Limits { max_decompressed_bytes: READ_LIMIT_BYTES };
    let mut largest = None;
    for batch in Batches::new(bytes.clone()) {
        let batch = batch.map_err(unreadable)?;
        if batch.header.base_offset >= from {
            largest = largest.max(Some(batch.header.max_timestamp));
            continue;
        }
        for record in decode_records(&batch, &limits).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            if batch.offset_of(&record) >= from {
                largest = largest.max(Some(batch.timestamp_of(&record)));
            }
        }
    }
    Ok(largest)
}

/// The first record in whole, checked batches that is `wanted`.
fn find_in(
    bytes: &Bytes,
    wanted: impl Fn(&TimestampOffset) -> bool,
) -> Result<Option<TimestampOffset>, ReadError> {
    let limits = Limits { max_decompressed_bytes: READ_LIMIT_BYTES };
    for batch in Batches::new(bytes.clone()) {
        let batch = batch.map_err(unreadable)?;
        let epoch = LeaderEpoch(batch.header.partition_leader_epoch);
        for record in decode_records(&batch, &limits).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            let (timestamp, offset) = (batch.timestamp_of(&record), batch.offset_of(&record));
            let at = TimestampOffset { timestamp, offset, epoch };
            if wanted(&at) {
                return Ok(Some(at));
            }
        }
    }
    Ok(None)
}

/// The checksums held, so the producer sent it so.
fn unreadable(error: BatchError) -> ReadError {
    ReadError::Unavailable(format!("a batch can not be looked into: {error}"))
}

/// Limit of a batch's records after decompression when the broker looks inside for a timestamp.
const READ_LIMIT_BYTES: usize = 256 << 20;

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
    let Place::Journal { mask, .. } = extent.place;
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
