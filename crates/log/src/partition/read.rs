//! Reading: the tail from memory, the rest from its file, in one pass over the extents.
//!
//! What to read is decided under the partition's lock, as slices and ranges; files are read after it
//! was released. Bytes from a file are checked before they are served; from memory they are the
//! bytes that were checked on their way in.

use bytes::{Bytes, BytesMut};
use talos_common::LeaderEpoch;
use talos_protocol::batch::Batch;
use talos_protocol::records::{Limits, decode_records};
use talos_storage::{ErrorKind, FilePath};

use super::{Offsets, PartitionLog};
use crate::extent::{Extent, Place};

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
        let (parts, offsets) = self.plan(offset, max_bytes, at_least_one)?;
        let records = match parts.iter().any(|part| matches!(part, Part::File(_))) {
            false => parts
                .into_iter()
                .filter_map(|part| match part {
                    Part::Memory(bytes) => Some(bytes),
                    Part::File(_) => None,
                })
                .collect(),
            true => match self.fetch(parts).await {
                Ok(records) => records,
                // Its file may have gone with the log start since the read was decided (R17, R9).
                Err(_) if self.offsets().log_start > offset => {
                    return Err(self.out_of_range(offset));
                }
                Err(error) => return Err(error),
            },
        };
        let bytes = records.iter().map(Bytes::len).sum();
        Ok(ReadOut { records, bytes, offsets })
    }

    fn out_of_range(&self, offset: i64) -> ReadError {
        let Offsets { log_start, log_end, .. } = self.offsets();
        ReadError::OutOfRange { offset, log_start, log_end }
    }

    fn plan(
        &self,
        offset: i64,
        max_bytes: usize,
        at_least_one: bool,
    ) -> Result<(Vec<Part>, Offsets), ReadError> {
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
        Ok((parts, offsets))
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
            let (place, start) = (first.place, first.position);
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
        match self.storage.read(&file, start..end).await {
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
        let mut from = self.offsets().log_start;
        loop {
            let Some(extent) = self
                .first_extent(|extent| extent.max_timestamp >= timestamp && extent.reaches(from))?
            else {
                return Ok(None);
            };
            // The batch's largest time may belong to a record below the log start: then go on.
            let found = self.find_in(&extent, |at| at.timestamp >= timestamp && at.offset >= from);
            match found.await? {
                Some(found) => return Ok(Some(found)),
                None => from = extent.last_offset + 1,
            }
        }
    }

    /// The record with the largest timestamp, the first of them if there are several (KIP-734).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn max_timestamp(&self) -> Result<Option<TimestampOffset>, ReadError> {
        let largest = {
            let state = self.state();
            state.extents.iter().map(|extent| extent.max_timestamp).max()
        };
        let Some(largest) = largest else { return Ok(None) };
        let Some(extent) = self.first_extent(|extent| extent.max_timestamp == largest)? else {
            return Ok(None);
        };
        self.find_in(&extent, |at| at.timestamp == largest).await
    }

    fn first_extent(&self, wanted: impl Fn(&Extent) -> bool) -> Result<Option<Extent>, ReadError> {
        let state = self.state();
        match &state.ended {
            Some(why) => Err(ReadError::Ended(why.clone())),
            None => Ok(state.extents.iter().find(|extent| wanted(extent)).cloned()),
        }
    }

    /// The first record of one batch that is `wanted`.
    async fn find_in(
        &self,
        extent: &Extent,
        wanted: impl Fn(&TimestampOffset) -> bool,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let memory = extent.piece.upgrade();
        let bytes = match memory.and_then(|piece| piece.slice(extent.position, extent.length)) {
            Some(bytes) => bytes,
            None => {
                let end = extent.position + u64::from(extent.length);
                let bytes = self.read_file(extent.place, extent.position, end).await?;
                checked(&bytes, extent.position, extent)?
            }
        };
        let corrupt = |what: String| ReadError::Corrupt {
            file: extent.place.path(),
            position: extent.position,
            what,
        };
        let batch = Batch::parse(&bytes).map_err(|error| corrupt(error.to_string()))?;
        let limits = Limits { max_decompressed_bytes: READ_LIMIT_BYTES };
        let records =
            decode_records(&batch, &limits).map_err(|error| corrupt(error.to_string()))?;
        for record in records {
            let record = record.map_err(|error| corrupt(error.to_string()))?;
            let (timestamp, offset) = (batch.timestamp_of(&record), batch.offset_of(&record));
            let at = TimestampOffset { timestamp, offset, epoch: extent.epoch };
            if wanted(&at) {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }
}

/// Limit of a batch's records after decompression when the broker looks inside for a timestamp.
const READ_LIMIT_BYTES: usize = 256 << 20;

/// The extent's batch out of `bytes`, which were read from `start`; checked, because a file is not
/// trusted (P5).
fn checked(bytes: &Bytes, start: u64, extent: &Extent) -> Result<Bytes, ReadError> {
    let corrupt = |what: String| ReadError::Corrupt {
        file: extent.place.path(),
        position: extent.position,
        what,
    };
    // The caller read a range around the extent.
    let from = (extent.position - start) as usize;
    let batch = bytes.slice(from..from + extent.length as usize);
    let parsed = Batch::parse(&batch).map_err(|error| corrupt(error.to_string()))?;
    if parsed.bytes.len() != batch.len() || parsed.header.base_offset != extent.base_offset {
        return Err(corrupt(format!("not the batch at offset {}", extent.base_offset)));
    }
    parsed.verify_crc().map_err(|error| corrupt(error.to_string()))?;
    Ok(batch)
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
