//! Every rule for a batch from a producer, broken one at a time: the refusal names the right rule, and
//! hostile bytes are a refusal like any other.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use support::RULES;
use talos_log::validate::{BatchRules, Rejection, codec_named, validate};
use talos_protocol::batch::{
    BatchError, BatchHeader, CRC_START, Compression, TimestampType, crc32c,
};
use talos_protocol::records::{BatchBuilder, NewRecord};

const NOW: i64 = 1_700_000_000_000;

fn record(time: i64) -> NewRecord {
    NewRecord::new(time, Some(Bytes::from_static(b"key")), Bytes::from_static(b"value"))
}

fn two() -> BatchBuilder {
    BatchBuilder::new().record(&record(NOW)).record(&record(NOW - 5))
}

/// The batch with bytes from `at` on replaced, and a CRC that holds again.
fn patched(bytes: &Bytes, at: usize, value: &[u8]) -> Bytes {
    let mut out = BytesMut::from(&bytes[..]);
    out[at..at + value.len()].copy_from_slice(value);
    let crc = crc32c(&out[CRC_START..]);
    out[CRC_START - 4..CRC_START].copy_from_slice(&crc.to_be_bytes());
    out.freeze()
}

fn refusal(bytes: &Bytes, rules: &BatchRules) -> Rejection {
    validate(bytes, rules, NOW).unwrap_err()
}

fn is_invalid(bytes: &Bytes, rules: &BatchRules) -> bool {
    matches!(refusal(bytes, rules), Rejection::InvalidRecord(_))
}

#[test]
fn a_sound_batch_is_taken_as_it_is() {
    for codec in Compression::ALL {
        let bytes = two().compression(codec).producer(7, 1, 40).build().unwrap();
        let valid = validate(&bytes, &RULES, NOW).unwrap();
        assert_eq!((valid.records, valid.max_timestamp), (2, NOW));
        assert_eq!(valid.bytes, bytes);
        let stamp = valid.stamp.unwrap();
        assert_eq!((stamp.producer_id, stamp.producer_epoch), (7, 1));
        assert_eq!((stamp.first_sequence, stamp.last_sequence), (40, 41));
        assert!(!valid.transactional && valid.log_append_time.is_none());
        assert_eq!(codec_named(codec.name()), Some(codec));
    }
    assert_eq!(codec_named("uncompressed"), Some(Compression::None));
    assert_eq!(codec_named("producer"), None);
}

#[test]
fn c4_a_batch_above_max_message_bytes_is_too_large_and_one_at_the_limit_is_not() {
    let bytes = two().build().unwrap();
    let limit = |max_message_bytes| BatchRules { max_message_bytes, ..RULES };
    assert!(validate(&bytes, &limit(bytes.len()), NOW).is_ok());
    let small = bytes.len() - 1;
    let expected = Rejection::TooLarge { bytes: bytes.len(), limit: small };
    assert_eq!(refusal(&bytes, &limit(small)), expected);
    // By its length field alone, before anything else is looked at.
    assert_eq!(refusal(&bytes.slice(..61), &limit(small)), expected);
}

#[test]
fn c7_a_record_without_a_key_is_refused_by_a_compacted_topic_only() {
    let keyless = NewRecord::value(NOW, Bytes::from_static(b"v"));
    let rules = BatchRules { compacted: true, ..RULES };
    for codec in Compression::ALL {
        let mixed = BatchBuilder::new().record(&record(NOW)).record(&keyless);
        let bytes = mixed.compression(codec).build().unwrap();
        assert!(is_invalid(&bytes, &rules), "{codec:?}");
        assert!(validate(&bytes, &RULES, NOW).is_ok());
        let keyed = two().compression(codec).build().unwrap();
        assert!(validate(&keyed, &rules, NOW).is_ok());
    }
}

#[test]
fn wrong_bytes_are_a_corrupt_message() {
    let bytes = two().build().unwrap();
    for at in CRC_START..bytes.len() {
        let mut flipped = BytesMut::from(&bytes[..]);
        flipped[at] ^= 1;
        let refusal = refusal(&flipped.freeze(), &RULES);
        assert!(
            matches!(refusal, Rejection::Corrupt(BatchError::BadCrc { .. })),
            "{at}: {refusal}"
        );
    }
    for cut in 0..bytes.len() {
        let refusal = refusal(&bytes.slice(..cut), &RULES);
        assert!(matches!(refusal, Rejection::Corrupt(BatchError::Truncated { .. })), "{refusal}");
    }
    let mut unknown = BytesMut::from(&bytes[..]);
    unknown[16] = 3;
    let refused = refusal(&unknown.freeze(), &RULES);
    assert_eq!(refused, Rejection::Corrupt(BatchError::UnknownMagic(3)));
}

#[test]
fn old_formats_are_named() {
    for magic in [0, 1] {
        let mut old = BytesMut::from(&two().build().unwrap()[..]);
        old[16] = magic as u8;
        assert_eq!(refusal(&old.freeze(), &RULES), Rejection::OldFormat(magic));
    }
}

#[test]
fn exactly_one_batch_is_taken() {
    let bytes = two().build().unwrap();
    let both = Bytes::from([&bytes[..], &bytes[..]].concat());
    assert!(is_invalid(&both, &RULES));
    let trailing = Bytes::from([&bytes[..], b"x"].concat());
    assert!(is_invalid(&trailing, &RULES));
}

#[test]
fn counts_must_agree_with_each_other_and_with_the_records() {
    let bytes = two().build().unwrap();
    let (last_offset_delta, count) = (23, 57);
    for wrong in [-1_i32, 0, 2, 3, i32::MAX] {
        assert!(is_invalid(&patched(&bytes, last_offset_delta, &wrong.to_be_bytes()), &RULES));
    }
    for wrong in [-1_i32, 0, 1, 3, i32::MAX] {
        assert!(is_invalid(&patched(&bytes, count, &wrong.to_be_bytes()), &RULES));
        // Both fields agree, the records do not.
        let both = patched(&bytes, last_offset_delta, &wrong.wrapping_sub(1).to_be_bytes());
        assert!(is_invalid(&patched(&both, count, &wrong.to_be_bytes()), &RULES), "{wrong}");
    }
}

#[test]
fn control_batches_and_half_set_producers_are_refused() {
    assert!(is_invalid(&two().control(true).build().unwrap(), &RULES));
    assert!(is_invalid(&two().transactional(true).build().unwrap(), &RULES));
    assert!(is_invalid(&two().producer(5, -1, 0).build().unwrap(), &RULES));
    assert!(is_invalid(&two().producer(5, 0, -1).build().unwrap(), &RULES));
    let unknown_codec = patched(&two().build().unwrap(), CRC_START, &7_i16.to_be_bytes());
    assert!(is_invalid(&unknown_codec, &RULES));
    let transactional = two().transactional(true).producer(5, 0, 0).build().unwrap();
    assert!(validate(&transactional, &RULES, NOW).unwrap().transactional);
}

#[test]
fn timestamps_must_lie_in_the_topics_range_both_ends_included() {
    let rules = BatchRules { before_max_ms: 100, after_max_ms: 10, ..RULES };
    let of = |time| BatchBuilder::new().record(&record(NOW)).record(&record(time)).build().unwrap();
    for time in [NOW - 100, NOW, NOW + 10] {
        assert!(validate(&of(time), &rules, NOW).is_ok(), "{time}");
    }
    for timestamp in [NOW - 101, NOW + 11, 0] {
        let (from, to) = (NOW - 100, NOW + 10);
        assert_eq!(refusal(&of(timestamp), &rules), Rejection::Timestamp { timestamp, from, to });
    }
    let by_producer = two().timestamp_type(TimestampType::LogAppendTime).build().unwrap();
    assert_eq!(refusal(&by_producer, &RULES), Rejection::TimestampType);
}

#[test]
fn the_header_is_made_to_say_what_the_records_say() {
    let lying = patched(&two().build().unwrap(), 35, &(NOW + 999).to_be_bytes());
    let valid = validate(&lying, &RULES, NOW).unwrap();
    assert_eq!(valid.max_timestamp, NOW);
    let header = BatchHeader::parse(&valid.bytes).unwrap();
    assert_eq!(header.max_timestamp, NOW);
    talos_protocol::batch::verify_crc(&valid.bytes).unwrap();

    let rules = BatchRules { timestamp_type: TimestampType::LogAppendTime, ..RULES };
    let valid = validate(&two().build().unwrap(), &rules, NOW + 7).unwrap();
    assert_eq!((valid.max_timestamp, valid.log_append_time), (NOW + 7, Some(NOW + 7)));
    let header = BatchHeader::parse(&valid.bytes).unwrap();
    assert_eq!(header.attributes.timestamp_type(), TimestampType::LogAppendTime);
    talos_protocol::batch::verify_crc(&valid.bytes).unwrap();
}

#[test]
fn p6_a_small_batch_that_decompresses_into_much_is_refused_at_the_limit() {
    let zeros = NewRecord::value(NOW, Bytes::from(vec![0; 1 << 20]));
    let rules = BatchRules { max_decompressed_bytes: 64 << 10, ..RULES };
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Lz4, Compression::Zstd] {
        let bytes = BatchBuilder::new().record(&zeros).compression(codec).build().unwrap();
        assert!(is_invalid(&bytes, &rules), "{codec:?}");
    }
}

proptest! {
    #[test]
    fn p6_hostile_batches_are_a_refusal_and_never_a_panic(
        noise in vec(any::<u8>(), 0..200), changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..6),
        codec in 0..5_usize
    ) {
        let _ = validate(&Bytes::from(noise), &RULES, NOW);
        // Changed bytes under a CRC that holds: everything behind it is looked at.
        let bytes = two().compression(Compression::ALL[codec]).build().unwrap();
        let mut bytes = BytesMut::from(&bytes[..]);
        for (at, value) in changes {
            let at = CRC_START + at.index(bytes.len() - CRC_START);
            bytes[at] = value;
        }
        let bytes = patched(&bytes.freeze(), 0, &[0]);
        if let Ok(valid) = validate(&bytes, &RULES, NOW) {
            prop_assert!(valid.records >= 1 && valid.bytes.len() == bytes.len());
        }
    }
}
