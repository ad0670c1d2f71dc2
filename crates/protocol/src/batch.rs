//! Record batches of format version 2: the 61-byte header, without looking at the records inside.
//!
//! ```text
//! offset  0        8        12      16    17   21         23          27        35       43
//!         base     batch    leader  magic crc  attributes last offset base      max      producer
//!         offset   length   epoch   (i8)  u32  i16        delta       timestamp timestamp id
//!         i64      i32      i32                           i32         i64       i64      i64
//!         51       53       57      61
//!         producer base     records records ...
//!         epoch    sequence count
//!         i16      i32      i32
//! ```
//!
//! `batch length` counts what follows it. The CRC (CRC-32C) covers everything from `attributes` on,
//! so that base offset and leader epoch can be set without touching it.
//! Invariant: nothing here panics or allocates by what the bytes say.

use bytes::Bytes;
use thiserror::Error;

/// Bytes in front of the records of a batch.
pub const HEADER_BYTES: usize = 61;
/// Bytes in front of what `batch_length` counts.
pub const LENGTH_PREFIX_BYTES: usize = 12;
/// Bytes up to and with the magic byte; the same in all versions of the format.
pub const MAGIC_END: usize = 17;
/// First byte that the CRC covers.
pub const CRC_START: usize = 21;
/// The version of the format.
pub const MAGIC: i8 = 2;
/// Where a timestamp says "none".
pub const NO_TIMESTAMP: i64 = -1;
/// Where a producer id says "none".
pub const NO_PRODUCER_ID: i64 = -1;
/// Where a producer epoch says "none".
pub const NO_PRODUCER_EPOCH: i16 = -1;
/// Where a sequence says "none".
pub const NO_SEQUENCE: i32 = -1;

const MAGIC_AT: usize = 16;
const CRC_AT: usize = 17;
const ATTRIBUTES_AT: usize = 21;
const MAX_TIMESTAMP_AT: usize = 35;
const LEADER_EPOCH_AT: usize = 12;

/// Why bytes are not sound record batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("batch needs {needed} bytes where {remaining} remain")]
    Truncated {
        /// Bytes that the batch (or its header) needs.
        needed: usize,
        /// Bytes from the start of the batch to the end.
        remaining: usize,
    },
    /// A message set of Kafka before 0.11 (format 0 or 1), which Kafka 4 does not take any more.
    #[error("old message format {0}")]
    OldMagic(i8),
    /// A format that does not exist.
    #[error("unknown record batch format {0}")]
    UnknownMagic(i8),
    /// A batch length that is too small for a header, or negative.
    #[error("invalid batch length {0}")]
    InvalidLength(i32),
    /// The stored checksum is not that of the bytes.
    #[error("batch checksum is {computed:#010x}, expected {stored:#010x}")]
    BadCrc {
        /// As in the header.
        stored: u32,
        /// As computed over the bytes.
        computed: u32,
    },
    /// Record count and last offset delta contradict each other, or the records inside.
    #[error("batch says {count} records, last offset delta {last_offset_delta}")]
    CountMismatch {
        /// `records_count` of the header.
        count: i32,
        /// `last_offset_delta` of the header.
        last_offset_delta: i32,
    },
    /// The attributes name a compression that does not exist.
    #[error("unknown compression {0}")]
    UnknownCompression(i8),
    /// The records cannot be decompressed.
    #[error("records cannot be decompressed as {0:?}")]
    Decompression(Compression),
    /// The records are larger, decompressed, than the caller allows.
    #[error("records are larger than {limit} bytes when decompressed")]
    OutputLimit {
        /// The limit that applies, in bytes.
        limit: usize,
    },
    /// Record `index` of the batch is broken.
    #[error("record {index}: {what}")]
    InvalidRecord {
        /// Counted from 0.
        index: i32,
        /// What is wrong with it.
        what: &'static str,
    },
    /// Bytes are left over after the last record.
    #[error("{0} bytes are left over after the last record")]
    TrailingBytes(usize),
    /// A batch without records, or more than the format can hold, was to be built.
    #[error("a batch cannot hold this: {0}")]
    CannotBuild(&'static str),
}

/// How the records of a batch are compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(i8)]
pub enum Compression {
    /// Not at all.
    #[default]
    None = 0,
    /// GZIP (RFC 1952).
    Gzip = 1,
    /// Snappy, raw or in the framing of the Java library "xerial".
    Snappy = 2,
    /// LZ4 in its frame format.
    Lz4 = 3,
    /// Zstandard.
    Zstd = 4,
}

impl Compression {
    /// All of them, by rising number.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The compression with this number.
    #[must_use]
    pub fn from_code(code: i8) -> Option<Self> {
        Self::ALL.into_iter().find(|c| c.code() == code)
    }

    /// The number in the attributes.
    #[must_use]
    pub const fn code(self) -> i8 {
        self as i8
    }

    /// The name in configurations, such as `zstd`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }
}

/// What the timestamps of a batch mean.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum TimestampType {
    /// Set by the producer, per record.
    #[default]
    CreateTime,
    /// Set by the broker for the whole batch, in `max_timestamp`.
    LogAppendTime,
}

/// The attributes of a batch: compression in bits 0 to 2, flags in bits 3 to 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Attributes(pub i16);

impl Attributes {
    const COMPRESSION: i16 = 0x07;
    const LOG_APPEND_TIME: i16 = 0x08;
    const TRANSACTIONAL: i16 = 0x10;
    const CONTROL: i16 = 0x20;
    const DELETE_HORIZON: i16 = 0x40;

    /// How the records are compressed.
    ///
    /// # Errors
    /// [`BatchError::UnknownCompression`].
    pub fn compression(self) -> Result<Compression, BatchError> {
        let code = i8::try_from(self.0 & Self::COMPRESSION).unwrap_or(i8::MAX);
        Compression::from_code(code).ok_or(BatchError::UnknownCompression(code))
    }

    /// What the timestamps mean.
    #[must_use]
    pub const fn timestamp_type(self) -> TimestampType {
        if self.0 & Self::LOG_APPEND_TIME == 0 {
            TimestampType::CreateTime
        } else {
            TimestampType::LogAppendTime
        }
    }

    /// Whether the batch belongs to a transaction.
    #[must_use]
    pub const fn is_transactional(self) -> bool {
        self.0 & Self::TRANSACTIONAL != 0
    }

    /// Whether the batch holds control records, which consumers never see.
    #[must_use]
    pub const fn is_control(self) -> bool {
        self.0 & Self::CONTROL != 0
    }

    /// Whether `base_timestamp` is the delete horizon of a compacted batch (KIP-534).
    #[must_use]
    pub const fn has_delete_horizon(self) -> bool {
        self.0 & Self::DELETE_HORIZON != 0
    }

    /// The same with another compression.
    #[must_use]
    pub fn with_compression(self, compression: Compression) -> Self {
        Self(self.0 & !Self::COMPRESSION | i16::from(compression.code()))
    }

    /// The same with another timestamp type.
    #[must_use]
    pub const fn with_timestamp_type(self, timestamp_type: TimestampType) -> Self {
        self.with(Self::LOG_APPEND_TIME, matches!(timestamp_type, TimestampType::LogAppendTime))
    }

    /// The same with the transactional flag set or cleared.
    #[must_use]
    pub const fn with_transactional(self, on: bool) -> Self {
        self.with(Self::TRANSACTIONAL, on)
    }

    /// The same with the control flag set or cleared.
    #[must_use]
    pub const fn with_control(self, on: bool) -> Self {
        self.with(Self::CONTROL, on)
    }

    const fn with(self, bit: i16, on: bool) -> Self {
        if on { Self(self.0 | bit) } else { Self(self.0 & !bit) }
    }
}

/// The header of a record batch of format 2, as it stands in the bytes; nothing but magic and
/// length was checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record (of the batch as it was written: compaction may have removed it).
    pub base_offset: i64,
    /// Bytes that follow the length field; at least 49.
    pub batch_length: i32,
    /// Leader epoch under which the batch was accepted; -1 from producers.
    pub partition_leader_epoch: i32,
    /// Format version, always [`MAGIC`].
    pub magic: i8,
    /// CRC-32C of everything from the attributes on.
    pub crc: u32,
    /// Compression and flags.
    pub attributes: Attributes,
    /// Last offset of the batch minus base offset.
    pub last_offset_delta: i32,
    /// What record timestamps are relative to, in ms; or the delete horizon.
    pub base_timestamp: i64,
    /// Greatest timestamp of a record in ms, or the time of the append; -1 for none.
    pub max_timestamp: i64,
    /// Producer id, or -1.
    pub producer_id: i64,
    /// Producer epoch, or -1.
    pub producer_epoch: i16,
    /// Sequence of the first record, or -1.
    pub base_sequence: i32,
    /// Number of records.
    pub records_count: i32,
}

impl BatchHeader {
    /// Reads the header at the start of `bytes`, which may be shorter than the batch.
    ///
    /// # Errors
    /// `InvalidLength`, `OldMagic` or `UnknownMagic` as soon as the bytes show it, else `Truncated`.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        let remaining = bytes.len();
        let mut f = Fields(bytes);
        let truncated = |needed| BatchError::Truncated { needed, remaining };
        let (Some(base_offset), Some(batch_length)) = (f.i64(), f.i32()) else {
            return Err(truncated(LENGTH_PREFIX_BYTES));
        };
        let (Some(partition_leader_epoch), Some(magic)) = (f.i32(), f.i8()) else {
            return Err(truncated(MAGIC_END));
        };
        match magic {
            MAGIC => {}
            0 | 1 => return Err(BatchError::OldMagic(magic)),
            _ => return Err(BatchError::UnknownMagic(magic)),
        }
        if usize::try_from(batch_length).map_or(true, |n| n < HEADER_BYTES - LENGTH_PREFIX_BYTES) {
            return Err(BatchError::InvalidLength(batch_length));
        }
        let mut rest = move || {
            Some(Self {
                base_offset,
                batch_length,
                partition_leader_epoch,
                magic,
                crc: f.u32()?,
                attributes: Attributes(f.i16()?),
                last_offset_delta: f.i32()?,
                base_timestamp: f.i64()?,
                max_timestamp: f.i64()?,
                producer_id: f.i64()?,
                producer_epoch: f.i16()?,
                base_sequence: f.i32()?,
                records_count: f.i32()?,
            })
        };
        rest().ok_or_else(|| truncated(HEADER_BYTES))
    }

    /// Length in bytes of the whole batch, header included.
    #[must_use]
    pub fn total_bytes(&self) -> usize {
        usize::try_from(self.batch_length).unwrap_or(0).saturating_add(LENGTH_PREFIX_BYTES)
    }

    /// Offset of the last record (inclusive).
    #[must_use]
    pub fn last_offset(&self) -> i64 {
        self.base_offset.saturating_add(i64::from(self.last_offset_delta))
    }

    /// Offset after the last record.
    #[must_use]
    pub fn end_offset(&self) -> i64 {
        self.last_offset().saturating_add(1)
    }

    /// Sequence of the last record; sequences wrap from 2^31 - 1 to 0. -1 if there are none.
    #[must_use]
    pub fn last_sequence(&self) -> i32 {
        if self.base_sequence < 0 {
            return NO_SEQUENCE;
        }
        let last = i64::from(self.base_sequence) + i64::from(self.last_offset_delta);
        i32::try_from(last.rem_euclid(i64::from(i32::MAX) + 1)).unwrap_or(NO_SEQUENCE)
    }

    /// Whether a producer id is set: idempotent or transactional.
    #[must_use]
    pub const fn has_producer_id(&self) -> bool {
        self.producer_id > NO_PRODUCER_ID
    }

    /// Checks what must hold in a batch from a producer: at least one record, and a last offset
    /// delta that fits. (After compaction there may be fewer records.)
    ///
    /// # Errors
    /// [`BatchError::CountMismatch`].
    pub fn check_counts(&self) -> Result<(), BatchError> {
        if self.records_count < 1 || self.last_offset_delta != self.records_count - 1 {
            return Err(BatchError::CountMismatch {
                count: self.records_count,
                last_offset_delta: self.last_offset_delta,
            });
        }
        Ok(())
    }
}

/// Big-endian fields one after the other.
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn next<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*head)
    }
    fn i8(&mut self) -> Option<i8> {
        self.next().map(i8::from_be_bytes)
    }
    fn i16(&mut self) -> Option<i16> {
        self.next().map(i16::from_be_bytes)
    }
    fn i32(&mut self) -> Option<i32> {
        self.next().map(i32::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.next().map(u32::from_be_bytes)
    }
    fn i64(&mut self) -> Option<i64> {
        self.next().map(i64::from_be_bytes)
    }
}

/// CRC-32C as record batches have it.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    let wide = crc_fast::checksum(crc_fast::CrcAlgorithm::Crc32Iscsi, bytes);
    // The algorithm has 32 bits; the upper half is zero.
    u32::try_from(wide & u64::from(u32::MAX)).unwrap_or_default()
}

/// Checks the CRC of the batch that fills `batch`.
///
/// # Errors
/// `BadCrc`, or `Truncated` if there is no CRC.
pub fn verify_crc(batch: &[u8]) -> Result<(), BatchError> {
    let (stored, computed) = crcs(batch)?;
    if stored == computed { Ok(()) } else { Err(BatchError::BadCrc { stored, computed }) }
}

fn crcs(batch: &[u8]) -> Result<(u32, u32), BatchError> {
    let truncated = BatchError::Truncated { needed: HEADER_BYTES, remaining: batch.len() };
    let covered = batch.get(CRC_START..).ok_or(truncated)?;
    let stored = batch.get(CRC_AT..).and_then(|b| Fields(b).u32()).ok_or(truncated)?;
    Ok((stored, crc32c(covered)))
}

fn patch(batch: &mut [u8], at: usize, value: &[u8]) -> Result<(), BatchError> {
    let remaining = batch.len();
    match batch.get_mut(at..at + value.len()) {
        Some(slot) if remaining >= HEADER_BYTES => {
            slot.copy_from_slice(value);
            Ok(())
        }
        _ => Err(BatchError::Truncated { needed: HEADER_BYTES, remaining }),
    }
}

/// Sets the base offset. The CRC stays right.
///
/// # Errors
/// `Truncated` if `batch` is shorter than a header.
pub fn set_base_offset(batch: &mut [u8], base_offset: i64) -> Result<(), BatchError> {
    patch(batch, 0, &base_offset.to_be_bytes())
}

/// Sets the leader epoch. The CRC stays right.
///
/// # Errors
/// `Truncated` if `batch` is shorter than a header.
pub fn set_partition_leader_epoch(batch: &mut [u8], epoch: i32) -> Result<(), BatchError> {
    patch(batch, LEADER_EPOCH_AT, &epoch.to_be_bytes())
}

/// Sets greatest timestamp and timestamp type, and a new CRC. `batch` must be exactly one batch.
/// With [`TimestampType::LogAppendTime`] every record then has `max_timestamp`.
///
/// # Errors
/// `Truncated` if `batch` is shorter than a header.
pub fn set_max_timestamp(
    batch: &mut [u8],
    timestamp_type: TimestampType,
    max_timestamp: i64,
) -> Result<(), BatchError> {
    let attributes = BatchHeader::parse(batch)?.attributes.with_timestamp_type(timestamp_type);
    patch(batch, ATTRIBUTES_AT, &attributes.0.to_be_bytes())?;
    patch(batch, MAX_TIMESTAMP_AT, &max_timestamp.to_be_bytes())?;
    reseal(batch)
}

/// Sets the CRC to that of the bytes.
pub(crate) fn reseal(batch: &mut [u8]) -> Result<(), BatchError> {
    let (_, computed) = crcs(batch)?;
    patch(batch, CRC_AT, &computed.to_be_bytes())
}

/// One whole batch: its header and all its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The header at the start of `bytes`.
    pub header: BatchHeader,
    /// Header and records; exactly `header.total_bytes()` long.
    pub bytes: Bytes,
}

impl Batch {
    /// The batch that `bytes` starts with; what follows it is left out. The CRC is not checked.
    ///
    /// # Errors
    /// As [`BatchHeader::parse`], and `Truncated` if the batch is longer than `bytes`.
    pub fn parse(bytes: &Bytes) -> Result<Self, BatchError> {
        let header = BatchHeader::parse(bytes)?;
        let needed = header.total_bytes();
        if bytes.len() < needed {
            return Err(BatchError::Truncated { needed, remaining: bytes.len() });
        }
        Ok(Self { header, bytes: bytes.slice(..needed) })
    }

    /// Checks the CRC.
    ///
    /// # Errors
    /// `BadCrc`.
    pub fn verify_crc(&self) -> Result<(), BatchError> {
        verify_crc(&self.bytes)
    }

    /// The records as they are stored, perhaps compressed.
    #[must_use]
    pub fn stored_records(&self) -> Bytes {
        if self.bytes.len() < HEADER_BYTES {
            Bytes::new()
        } else {
            self.bytes.slice(HEADER_BYTES..)
        }
    }
}

/// The batches of a record set, front to back; ends after the first error. A set that was cut off
/// in the middle of a batch, as a Fetch answer may be, ends in `Truncated`.
#[derive(Debug, Clone)]
pub struct Batches {
    rest: Bytes,
    position: usize,
}

impl Batches {
    /// The batches in `records`.
    #[must_use]
    pub fn new(records: Bytes) -> Self {
        Self { rest: records, position: 0 }
    }

    /// Bytes of the batches given out so far: where the next one starts, or where an error is.
    #[must_use]
    pub fn position(&self) -> usize {
        self.position
    }
}

impl Iterator for Batches {
    type Item = Result<Batch, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let batch = Batch::parse(&self.rest);
        match &batch {
            Ok(batch) => {
                self.position += batch.bytes.len();
                self.rest = self.rest.slice(batch.bytes.len()..);
            }
            Err(_) => self.rest = Bytes::new(),
        }
        Some(batch)
    }
}

/// The magic byte of the batch or message that `bytes` starts with, if it is there.
#[must_use]
pub fn peek_magic(bytes: &[u8]) -> Option<i8> {
    bytes.get(MAGIC_AT).map(|b| i8::from_be_bytes([*b]))
}
