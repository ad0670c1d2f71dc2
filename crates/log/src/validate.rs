//! What a batch from a producer must be before it is accepted: Apache Kafka's rules, with its error
//! for each. Pure and without locks, so that it runs beside everything else.

use bytes::{Bytes, BytesMut};
use talos_protocol::batch::{self, Batch, BatchError, BatchHeader, Compression, TimestampType};
use talos_protocol::records::{self, Limits};

use crate::producers::ProducerStamp;

/// A topic's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchRules {
    /// `max.message.bytes`: the largest batch, in bytes as sent.
    pub max_message_bytes: usize,
    /// `message.timestamp.type`.
    pub timestamp_type: TimestampType,
    /// `message.timestamp.before.max.ms`: how far a record's time may lie before ours.
    pub before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far a record's time may lie after ours.
    pub after_max_ms: i64,
    /// Whether `cleanup.policy` has `compact`: then every record needs a key.
    pub compacted: bool,
    /// Limit of a batch's records after decompression, in bytes.
    pub max_decompressed_bytes: usize,
}

/// Why a batch is refused. Each is definite: nothing was accepted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// CORRUPT_MESSAGE: the bytes are not what the producer checksummed.
    #[error("{0}")]
    Corrupt(BatchError),
    /// INVALID_RECORD: well-formed but not allowed.
    #[error("{0}")]
    InvalidRecord(String),
    /// UNSUPPORTED_FOR_MESSAGE_FORMAT: a format before version 2.
    #[error("record batch format {0} is not taken any more: use a client of Kafka 0.11 or newer")]
    OldFormat(i8),
    /// MESSAGE_TOO_LARGE.
    #[error("the record batch has {bytes} bytes, max.message.bytes of the topic is {limit}")]
    TooLarge {
        /// Of the batch.
        bytes: usize,
        /// Of the topic.
        limit: usize,
    },
    /// INVALID_TIMESTAMP: only the broker gives append times.
    #[error("a producer may not set the timestamp type LogAppendTime")]
    TimestampType,
    /// INVALID_TIMESTAMP.
    #[error("timestamp {timestamp} is out of range: the topic takes {from} to {to}")]
    Timestamp {
        /// The record's, in milliseconds since the Unix epoch.
        timestamp: i64,
        /// Earliest that is taken (inclusive).
        from: i64,
        /// Latest that is taken (inclusive).
        to: i64,
    },
}

/// A batch that may be accepted.
#[derive(Clone, Debug)]
pub struct ValidBatch {
    /// The whole batch; base offset and leader epoch still as sent.
    pub bytes: Bytes,
    /// Records in it, at least 1.
    pub records: i32,
    /// Largest timestamp, in milliseconds.
    pub max_timestamp: i64,
    /// Set when the topic's timestamps are the broker's: the time given to all its records.
    pub log_append_time: Option<i64>,
    /// The idempotent producer's stamp, if it has one.
    pub stamp: Option<ProducerStamp>,
    /// Whether it belongs to a transaction.
    pub transactional: bool,
}

/// Checks the records of one partition of a produce request: exactly one batch of format 2.
/// `now_ms` is the leader's wall clock.
///
/// # Errors
/// The first rule that is broken.
pub fn validate(records: &Bytes, rules: &BatchRules, now_ms: i64) -> Result<ValidBatch, Rejection> {
    let header = BatchHeader::parse(records).map_err(reject)?;
    let total = header.total_bytes();
    if total > rules.max_message_bytes {
        return Err(Rejection::TooLarge { bytes: total, limit: rules.max_message_bytes });
    }
    if records.len() < total {
        return Err(reject(BatchError::Truncated { needed: total, remaining: records.len() }));
    }
    if records.len() > total {
        let what = "a produce request must hold exactly one record batch for each partition";
        return Err(Rejection::InvalidRecord(what.into()));
    }
    batch::verify_crc(records).map_err(reject)?;
    check_header(&header)?;
    let sent_type = header.attributes.timestamp_type();
    if sent_type != rules.timestamp_type && sent_type == TimestampType::LogAppendTime {
        return Err(Rejection::TimestampType);
    }
    let inner = inspect(records, &header, rules)?;
    let valid = ValidBatch {
        bytes: records.clone(),
        records: header.records_count,
        max_timestamp: inner.max_timestamp,
        log_append_time: None,
        stamp: header.has_producer_id().then(|| {
            ProducerStamp::new(
                header.producer_id,
                header.producer_epoch,
                header.base_sequence,
                header.last_offset_delta,
            )
        }),
        transactional: header.attributes.is_transactional(),
    };
    match rules.timestamp_type {
        TimestampType::LogAppendTime => {
            let log_append_time = Some(now_ms);
            set_max_timestamp(ValidBatch { log_append_time, ..valid }, rules.timestamp_type, now_ms)
        }
        TimestampType::CreateTime => {
            check_timestamps(&inner, rules, now_ms)?;
            // As Kafka: the header is made to say what the records say.
            match inner.max_timestamp == header.max_timestamp {
                true => Ok(valid),
                false => set_max_timestamp(valid, rules.timestamp_type, inner.max_timestamp),
            }
        }
    }
}

fn reject(error: BatchError) -> Rejection {
    match error {
        BatchError::OldMagic(magic) => Rejection::OldFormat(magic),
        BatchError::CountMismatch { .. }
        | BatchError::UnknownCompression(_)
        | BatchError::Decompression(_)
        | BatchError::OutputLimit { .. }
        | BatchError::InvalidRecord { .. }
        | BatchError::TrailingBytes(_)
        | BatchError::CannotBuild(_) => Rejection::InvalidRecord(error.to_string()),
        BatchError::Truncated { .. }
        | BatchError::UnknownMagic(_)
        | BatchError::InvalidLength(_)
        | BatchError::BadCrc { .. } => Rejection::Corrupt(error),
    }
}

fn check_header(header: &BatchHeader) -> Result<(), Rejection> {
    header.check_counts().map_err(reject)?;
    let invalid = |what: &str| Err(Rejection::InvalidRecord(what.into()));
    if header.attributes.is_control() {
        return invalid("clients may not write control batches");
    }
    if header.has_producer_id() {
        if header.producer_epoch < 0 || header.base_sequence < 0 {
            return invalid("a producer id needs a producer epoch and a sequence number from 0");
        }
    } else if header.attributes.is_transactional() {
        return invalid("a transactional batch needs a producer id");
    }
    Ok(())
}

/// What the records inside say.
struct Inner {
    min_timestamp: i64,
    max_timestamp: i64,
}

fn inspect(bytes: &Bytes, header: &BatchHeader, rules: &BatchRules) -> Result<Inner, Rejection> {
    let limits = Limits { max_decompressed_bytes: rules.max_decompressed_bytes };
    let batch = Batch { header: *header, bytes: bytes.clone() };
    let found = records::validate_inner(&batch, &limits).map_err(reject)?;
    if rules.compacted && found.has_keyless_record {
        let what = "a compacted topic takes no record without a key";
        return Err(Rejection::InvalidRecord(what.into()));
    }
    Ok(Inner { min_timestamp: found.min_timestamp, max_timestamp: found.max_timestamp })
}

fn check_timestamps(inner: &Inner, rules: &BatchRules, now_ms: i64) -> Result<(), Rejection> {
    let from = now_ms.saturating_sub(rules.before_max_ms);
    let to = now_ms.saturating_add(rules.after_max_ms);
    // -1 says «no timestamp», which Kafka takes.
    for timestamp in [inner.min_timestamp, inner.max_timestamp] {
        if timestamp != batch::NO_TIMESTAMP && !(from..=to).contains(&timestamp) {
            return Err(Rejection::Timestamp { timestamp, from, to });
        }
    }
    Ok(())
}

/// Changes what the header says of time; that needs a new CRC.
fn set_max_timestamp(
    valid: ValidBatch,
    timestamp_type: TimestampType,
    max_timestamp: i64,
) -> Result<ValidBatch, Rejection> {
    let mut bytes = BytesMut::from(&valid.bytes[..]);
    batch::set_max_timestamp(&mut bytes, timestamp_type, max_timestamp).map_err(reject)?;
    Ok(ValidBatch { bytes: bytes.freeze(), max_timestamp, ..valid })
}

/// The codec named by `compression.type`, or `None` for `producer`.
pub fn codec_named(name: &str) -> Option<Compression> {
    let name = if name == "uncompressed" { "none" } else { name };
    Compression::ALL.into_iter().find(|codec| codec.name() == name)
}
