//! The records inside a batch: reading them one after the other, checking them as a broker must,
//! and building batches.
//!
//! Invariants: decompression always has an output limit; a record's lengths are checked against the
//! bytes that remain; nothing panics; keys, values and headers are slices of the (decompressed)
//! records.

mod builder;
mod compress;

use bytes::{Buf, Bytes};

use crate::batch::{Batch, BatchError, HEADER_BYTES, TimestampType};

pub use builder::{BatchBuilder, NewRecord};
pub use compress::{Scratch, compress, decompress};

/// How much work looking into a batch may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of all records of a batch together when decompressed (inclusive).
    pub max_decompressed_bytes: usize,
}

impl Default for Limits {
    /// 128 MiB, enough for a batch of 10 MiB of very regular text.
    fn default() -> Self {
        Self { max_decompressed_bytes: 128 * 1024 * 1024 }
    }
}

/// A header of a record. Keys should be UTF-8, which nothing guarantees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Its name.
    pub key: Bytes,
    /// Its value, or null.
    pub value: Option<Bytes>,
}

/// One record, as slices.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordView {
    /// Offset minus the base offset of the batch.
    pub offset_delta: i32,
    /// Timestamp in ms minus the base timestamp of the batch.
    pub timestamp_delta: i64,
    /// Its key, or null.
    pub key: Option<Bytes>,
    /// Its value, or null (a tombstone in compacted topics).
    pub value: Option<Bytes>,
    /// Its headers, in order.
    pub headers: Vec<Header>,
}

/// The records of a batch, front to back, read as they are asked for. Ends after the first error,
/// and after `records_count` records; then bytes that are left over are an error.
#[derive(Debug, Clone)]
pub struct RecordIter {
    rest: Bytes,
    index: i32,
    count: i32,
    done: bool,
}

/// The records of `batch`, decompressed if need be.
///
/// # Errors
/// Unknown compression, broken compressed data, or more than `limits` allow.
pub fn decode_records(batch: &Batch, limits: &Limits) -> Result<RecordIter, BatchError> {
    let rest = decompress(
        batch.header.attributes.compression()?,
        batch.stored_records(),
        limits.max_decompressed_bytes,
    )?;
    Ok(RecordIter { rest, index: 0, count: batch.header.records_count, done: false })
}

impl Batch {
    /// Timestamp in ms of a record of this batch.
    #[must_use]
    pub fn timestamp_of(&self, record: &RecordView) -> i64 {
        match self.header.attributes.timestamp_type() {
            TimestampType::LogAppendTime => self.header.max_timestamp,
            TimestampType::CreateTime => {
                self.header.base_timestamp.wrapping_add(record.timestamp_delta)
            }
        }
    }

    /// Offset of a record of this batch.
    #[must_use]
    pub fn offset_of(&self, record: &RecordView) -> i64 {
        self.header.base_offset.wrapping_add(i64::from(record.offset_delta))
    }
}

impl Iterator for RecordIter {
    type Item = Result<RecordView, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.done {
            return None;
        }
        if self.index >= self.count {
            self.done = true;
            let left = self.rest.len();
            return (left > 0).then_some(Err(BatchError::TrailingBytes(left)));
        }
        let record = read_record(&mut self.rest)
            .map_err(|what| BatchError::InvalidRecord { index: self.index, what });
        self.index += 1;
        self.done = record.is_err();
        Some(record)
    }
}

/// What a broker must know of the records of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InnerSummary {
    /// Smallest create timestamp in ms.
    pub min_timestamp: i64,
    /// Greatest create timestamp in ms.
    pub max_timestamp: i64,
    /// Offset delta of the first record that has the greatest timestamp.
    pub offset_delta_of_max_timestamp: i32,
    /// Whether a record has a null key, which compacted topics refuse.
    pub has_keyless_record: bool,
}

/// Checks the records of a batch from a producer as Kafka's broker does: as many as the header
/// says, offset deltas 0, 1, 2, ..., every length right, nothing left over. Uncompressed records
/// are checked in place. The CRC is not checked here. Timestamps are the producer's, also if the
/// attributes say log append time.
///
/// # Errors
/// Whatever is wrong with the records, by index; `CountMismatch` if the header contradicts itself.
pub fn validate_inner(batch: &Batch, limits: &Limits) -> Result<InnerSummary, BatchError> {
    validate_inner_with(&mut Scratch::new(), batch, limits)
}

/// [`validate_inner`] with memory that is reused from batch to batch.
///
/// # Errors
/// As [`validate_inner`].
pub fn validate_inner_with(
    scratch: &mut Scratch,
    batch: &Batch,
    limits: &Limits,
) -> Result<InnerSummary, BatchError> {
    let header = &batch.header;
    header.check_counts()?;
    let compression = header.attributes.compression()?;
    let stored = batch.bytes.get(HEADER_BYTES..).unwrap_or_default();
    let mut rest = scratch.decompress(compression, stored, limits.max_decompressed_bytes)?;
    let mut summary = InnerSummary {
        min_timestamp: i64::MAX,
        max_timestamp: i64::MIN,
        offset_delta_of_max_timestamp: 0,
        has_keyless_record: false,
    };
    for index in 0..header.records_count {
        let record =
            skim_record(&mut rest).map_err(|what| BatchError::InvalidRecord { index, what })?;
        if record.offset_delta != index {
            let what = "offset delta does not follow the one before";
            return Err(BatchError::InvalidRecord { index, what });
        }
        let timestamp = header.base_timestamp.wrapping_add(record.timestamp_delta);
        summary.min_timestamp = summary.min_timestamp.min(timestamp);
        if timestamp > summary.max_timestamp || index == 0 {
            summary.max_timestamp = timestamp;
            summary.offset_delta_of_max_timestamp = index;
        }
        summary.has_keyless_record |= !record.has_key;
    }
    match rest.len() {
        0 => Ok(summary),
        left => Err(BatchError::TrailingBytes(left)),
    }
}

const SHORT: &str = "ends too early";
const LENGTH: &str = "has an invalid length";
const VARINT: &str = "has an invalid variable-length integer";
const LEFT_OVER: &str = "is longer than its content";

/// A signed varint of at most 64 bits, zigzag coded.
fn varlong(b: &mut impl Buf) -> Result<i64, &'static str> {
    let mut value: u64 = 0;
    for shift in (0..70_u32).step_by(7) {
        if !b.has_remaining() {
            return Err(SHORT);
        }
        let byte = b.get_u8();
        let bits = u64::from(byte & 0x7f);
        if shift == 63 && bits > 1 {
            return Err(VARINT);
        }
        value |= bits << shift;
        if byte & 0x80 == 0 {
            return Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed());
        }
    }
    Err(VARINT)
}

/// A signed varint that must fit in 32 bits.
fn varint(b: &mut impl Buf) -> Result<i32, &'static str> {
    i32::try_from(varlong(b)?).map_err(|_| VARINT)
}

/// A length that must not be more than what remains; `None` is null (-1).
fn length(b: &mut impl Buf) -> Result<Option<usize>, &'static str> {
    match varint(b)? {
        -1 => Ok(None),
        raw => match usize::try_from(raw) {
            Ok(n) if n <= b.remaining() => Ok(Some(n)),
            Ok(_) => Err(SHORT),
            Err(_) => Err(LENGTH),
        },
    }
}

fn optional_bytes(b: &mut Bytes) -> Result<Option<Bytes>, &'static str> {
    Ok(length(b)?.map(|n| b.split_to(n)))
}

fn read_record(rest: &mut Bytes) -> Result<RecordView, &'static str> {
    let size = length(rest)?.ok_or(LENGTH)?;
    let mut b = rest.split_to(size);
    if !b.has_remaining() {
        return Err(SHORT);
    }
    // Attributes of a record mean nothing yet.
    b.advance(1);
    let timestamp_delta = varlong(&mut b)?;
    let offset_delta = varint(&mut b)?;
    let key = optional_bytes(&mut b)?;
    let value = optional_bytes(&mut b)?;
    // A header has at least two bytes, so the count cannot be more than what remains.
    let count = length(&mut b)?.ok_or(LENGTH)?;
    let mut headers = Vec::with_capacity(count.min(16));
    for _ in 0..count {
        let key = optional_bytes(&mut b)?.ok_or(LENGTH)?;
        let value = optional_bytes(&mut b)?;
        headers.push(Header { key, value });
    }
    if b.has_remaining() {
        return Err(LEFT_OVER);
    }
    Ok(RecordView { offset_delta, timestamp_delta, key, value, headers })
}

/// What [`validate_inner`] needs of a record.
struct Skimmed {
    offset_delta: i32,
    timestamp_delta: i64,
    has_key: bool,
}

fn skip(b: &mut &[u8]) -> Result<bool, &'static str> {
    match length(b)? {
        None => Ok(false),
        Some(n) => {
            b.advance(n);
            Ok(true)
        }
    }
}

fn skim_record(rest: &mut &[u8]) -> Result<Skimmed, &'static str> {
    let size = length(rest)?.ok_or(LENGTH)?;
    let (mut b, after) = rest.split_at_checked(size).ok_or(SHORT)?;
    *rest = after;
    if b.is_empty() {
        return Err(SHORT);
    }
    b.advance(1);
    let timestamp_delta = varlong(&mut b)?;
    let offset_delta = varint(&mut b)?;
    let has_key = skip(&mut b)?;
    skip(&mut b)?;
    let count = length(&mut b)?.ok_or(LENGTH)?;
    for _ in 0..count {
        if !skip(&mut b)? {
            return Err(LENGTH);
        }
        skip(&mut b)?;
    }
    if b.is_empty() {
        Ok(Skimmed { offset_delta, timestamp_delta, has_key })
    } else {
        Err(LEFT_OVER)
    }
}

#[cfg(test)]
pub(crate) mod tests;
