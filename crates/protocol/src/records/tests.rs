//! Tests of record batches: batches of the Java client, what `kafka-protocol` makes of ours, and
//! broken ones.

use bytes::{Bytes, BytesMut};
use kafka_protocol::records::RecordBatchDecoder;

use super::*;
use crate::batch::{self, BatchHeader, Batches, Compression, HEADER_BYTES};

pub(crate) fn from_hex(text: &str) -> Bytes {
    text.as_bytes()
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

fn golden(name: &str) -> Bytes {
    include_str!("../../testdata/batches.txt")
        .lines()
        .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))
        .map(from_hex)
        .unwrap_or_else(|| panic!("no golden batch {name}"))
}

/// The records that Golden.java puts in every batch but the control batch.
fn plain_records() -> Vec<NewRecord> {
    (0..12)
        .map(|i| NewRecord {
            timestamp: if i == 4 { 1_700_000_100_000 } else { 1_700_000_000_000 + 1000 * i },
            key: (i % 3 != 2).then(|| format!("key{i}").into()),
            value: (i % 4 != 3).then(|| format!("value {i} ").repeat(i as usize * 20).into()),
            headers: if i % 5 == 0 {
                vec![(format!("h{i}").into(), Some(format!("x{i}").into())), ("null".into(), None)]
            } else {
                Vec::new()
            },
        })
        .collect()
}

fn read_all(batch: &Batch) -> Vec<NewRecord> {
    decode_records(batch, &Limits::default())
        .unwrap()
        .enumerate()
        .map(|(index, record)| {
            let record = record.unwrap();
            assert_eq!(record.offset_delta, index as i32);
            NewRecord {
                timestamp: batch.timestamp_of(&record),
                key: record.key,
                value: record.value,
                headers: record.headers.into_iter().map(|h| (h.key, h.value)).collect(),
            }
        })
        .collect()
}

fn built(compression: Compression) -> Bytes {
    let mut builder = BatchBuilder::new()
        .base_offset(100)
        .leader_epoch(5)
        .producer(7, 3, 40)
        .compression(compression);
    for record in &plain_records() {
        builder.push(record);
    }
    builder.build().unwrap()
}

#[test]
fn batches_of_the_java_client_are_read_in_every_compression() {
    for compression in Compression::ALL {
        let bytes = golden(compression.name());
        let batch = Batch::parse(&bytes).unwrap();
        assert_eq!(batch.bytes.len(), bytes.len());
        batch.verify_crc().unwrap();
        let h = &batch.header;
        assert_eq!(h.attributes.compression(), Ok(compression));
        assert_eq!((h.base_offset, h.partition_leader_epoch), (100, 5));
        assert_eq!((h.producer_id, h.producer_epoch, h.base_sequence), (7, 3, 40));
        assert_eq!((h.last_offset(), h.end_offset(), h.last_sequence()), (111, 112, 51));
        assert_eq!(h.max_timestamp, 1_700_000_100_000);
        assert_eq!(read_all(&batch), plain_records(), "{compression:?}");
        let summary = validate_inner(&batch, &Limits::default()).unwrap();
        assert_eq!(
            summary,
            InnerSummary {
                min_timestamp: 1_700_000_000_000,
                max_timestamp: 1_700_000_100_000,
                offset_delta_of_max_timestamp: 4,
                has_keyless_record: true,
            }
        );
    }
}

#[test]
fn our_uncompressed_batch_is_the_java_clients_byte_for_byte() {
    assert_eq!(built(Compression::None), golden("none"));
}

#[test]
fn our_batches_are_read_by_the_oracle_in_every_compression() {
    for compression in Compression::ALL {
        let mut bytes = BytesMut::from(built(compression).as_ref());
        let set = RecordBatchDecoder::decode(&mut bytes).unwrap();
        assert_eq!(set.records.len(), 12, "{compression:?}");
        for (theirs, ours) in set.records.iter().zip(plain_records()) {
            assert_eq!(theirs.key, ours.key, "{compression:?}");
            assert_eq!(theirs.value, ours.value, "{compression:?}");
            assert_eq!(theirs.timestamp, ours.timestamp);
            assert_eq!(theirs.producer_id, 7);
        }
    }
}

#[test]
fn flags_of_the_java_client_are_understood() {
    let batch = Batch::parse(&golden("append_time")).unwrap();
    assert_eq!(batch.header.attributes.timestamp_type(), TimestampType::LogAppendTime);
    assert!(read_all(&batch).iter().all(|r| r.timestamp == 9999));
    assert!(!batch.header.has_producer_id());
    assert_eq!(batch.header.last_sequence(), -1);

    let batch = Batch::parse(&golden("transactional")).unwrap();
    assert!(batch.header.attributes.is_transactional());
    assert!(!batch.header.attributes.is_control());

    let batch = Batch::parse(&golden("control")).unwrap();
    batch.verify_crc().unwrap();
    assert!(batch.header.attributes.is_control());
    let record = &read_all(&batch)[0];
    assert_eq!(record.key.as_deref(), Some(&[0, 0, 0, 1][..]), "version 0, commit");
    let mut value = crate::Decoder::new(record.value.clone().unwrap());
    assert_eq!(value.i16(), Ok(0));
    let marker = <crate::messages::EndTxnMarker as crate::Message>::decode(&mut value, 0).unwrap();
    assert_eq!(marker.coordinator_epoch, 17);
}

#[test]
fn old_message_formats_are_told_apart() {
    for magic in [0, 1] {
        let bytes = golden(&format!("magic{magic}"));
        assert_eq!(Batch::parse(&bytes), Err(BatchError::OldMagic(magic)));
        assert_eq!(batch::peek_magic(&bytes), Some(magic));
    }
}

#[test]
fn log_append_time_is_set_as_the_java_client_does() {
    let golden = golden("append_time");
    let mut builder = BatchBuilder::new();
    for record in &plain_records() {
        builder.push(record);
    }
    let mut bytes = builder.build().unwrap().to_vec();
    batch::set_max_timestamp(&mut bytes, TimestampType::LogAppendTime, 9999).unwrap();
    assert_eq!(bytes, golden);
}

#[test]
fn base_offset_and_leader_epoch_need_no_new_crc() {
    let mut bytes = built(Compression::Zstd).to_vec();
    batch::set_base_offset(&mut bytes, 1 << 40).unwrap();
    batch::set_partition_leader_epoch(&mut bytes, 77).unwrap();
    batch::verify_crc(&bytes).unwrap();
    let header = BatchHeader::parse(&bytes).unwrap();
    assert_eq!((header.base_offset, header.partition_leader_epoch), (1 << 40, 77));
    assert!(batch::set_base_offset(&mut bytes[..60], 0).is_err());
    assert!(batch::set_max_timestamp(&mut bytes[..60], TimestampType::CreateTime, 0).is_err());
}

#[test]
fn a_record_set_is_walked_batch_by_batch_up_to_the_first_error() {
    let (a, b) = (built(Compression::None), built(Compression::Lz4));
    let set: Bytes = [a.as_ref(), b.as_ref(), &a[..100]].concat().into();
    let mut batches = Batches::new(set);
    assert_eq!(batches.next().unwrap().unwrap().bytes, a);
    assert_eq!(batches.next().unwrap().unwrap().bytes, b);
    assert_eq!(
        batches.next(),
        Some(Err(BatchError::Truncated { needed: a.len(), remaining: 100 }))
    );
    assert_eq!(batches.position(), a.len() + b.len());
    assert_eq!(batches.next(), None);
}

/// `batch` with `value` at `at` and a right CRC.
fn patched(batch: &Bytes, at: usize, value: &[u8]) -> Batch {
    let mut bytes = batch.to_vec();
    bytes[at..at + value.len()].copy_from_slice(value);
    batch::reseal(&mut bytes).unwrap();
    Batch::parse(&bytes.into()).unwrap()
}

#[test]
fn broken_headers_have_distinct_errors() {
    let bytes = built(Compression::None);
    for cut in 0..bytes.len() {
        let error = Batch::parse(&bytes.slice(..cut)).unwrap_err();
        assert!(matches!(error, BatchError::Truncated { .. }), "cut at {cut}: {error}");
    }
    let with = |at: usize, value: &[u8]| {
        let mut bytes = bytes.to_vec();
        bytes[at..at + value.len()].copy_from_slice(value);
        Bytes::from(bytes)
    };
    assert_eq!(Batch::parse(&with(16, &[3])), Err(BatchError::UnknownMagic(3)));
    assert_eq!(Batch::parse(&with(16, &[0xff])), Err(BatchError::UnknownMagic(-1)));
    for length in [0, 48, -1, i32::MIN] {
        let error = Batch::parse(&with(8, &length.to_be_bytes())).unwrap_err();
        assert_eq!(error, BatchError::InvalidLength(length));
    }
    let long = Batch::parse(&with(8, &i32::MAX.to_be_bytes())).unwrap_err();
    assert!(matches!(long, BatchError::Truncated { .. }));
    for at in batch::CRC_START - 4..bytes.len() {
        let flipped = with(at, &[bytes[at] ^ 1]);
        assert!(
            matches!(batch::verify_crc(&flipped), Err(BatchError::BadCrc { .. })),
            "a flipped bit at {at}"
        );
    }
}

#[test]
fn counts_offsets_and_trailing_bytes_are_checked_inside() {
    for compression in Compression::ALL {
        let bytes = built(compression);
        let limits = Limits::default();
        let mismatch = patched(&bytes, 57, &13_i32.to_be_bytes());
        assert!(matches!(
            validate_inner(&mismatch, &limits),
            Err(BatchError::CountMismatch { count: 13, last_offset_delta: 11 })
        ));
        let mut more = bytes.to_vec();
        more[23..27].copy_from_slice(&12_i32.to_be_bytes());
        let more = patched(&more.into(), 57, &13_i32.to_be_bytes());
        assert_eq!(
            validate_inner(&more, &limits),
            Err(BatchError::InvalidRecord { index: 12, what: SHORT })
        );
        assert!(decode_records(&more, &limits).unwrap().last().unwrap().is_err());
        let mut fewer = bytes.to_vec();
        fewer[23..27].copy_from_slice(&10_i32.to_be_bytes());
        let fewer = patched(&fewer.into(), 57, &11_i32.to_be_bytes());
        assert!(matches!(validate_inner(&fewer, &limits), Err(BatchError::TrailingBytes(_))));
        assert!(matches!(
            decode_records(&fewer, &limits).unwrap().last(),
            Some(Err(BatchError::TrailingBytes(_)))
        ));
        for count in [0, -1, i32::MIN] {
            let none = patched(&bytes, 57, &i32::to_be_bytes(count));
            assert!(validate_inner(&none, &limits).is_err());
        }
        let count = i32::MAX;
        let mut many = bytes.to_vec();
        many[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        let many = patched(&many.into(), 57, &count.to_be_bytes());
        assert!(validate_inner(&many, &limits).is_err());
    }
    let unknown = patched(&built(Compression::None), 21, &7_i16.to_be_bytes());
    assert_eq!(
        validate_inner(&unknown, &Limits::default()),
        Err(BatchError::UnknownCompression(7))
    );
    // The offset delta of the first record: length, attributes, timestamp delta, then it.
    let body = built(Compression::None);
    let first = (HEADER_BYTES..).find(|at| body[*at] == 0).unwrap();
    let wrong = patched(&body, first + 2, &[2]);
    assert!(matches!(
        validate_inner(&wrong, &Limits::default()),
        Err(BatchError::InvalidRecord { index: 0, .. })
    ));
}

#[test]
fn decompression_stops_at_the_limit() {
    let zeros = vec![0_u8; 8 << 20];
    for compression in Compression::ALL {
        let small = compress(compression, &zeros).unwrap();
        assert_eq!(
            decompress(compression, small.clone(), zeros.len() - 1),
            Err(BatchError::OutputLimit { limit: zeros.len() - 1 }),
            "{compression:?}"
        );
        assert_eq!(decompress(compression, small, zeros.len()).unwrap(), zeros);
    }
    // Raw snappy that claims 4 GiB.
    let liar = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff, 0x0f, 0]);
    assert!(decompress(Compression::Snappy, liar, 1 << 20).is_err());
    // Raw snappy is read as well as the framed form.
    let raw = snap::raw::Encoder::new().compress_vec(b"hello hello hello").unwrap();
    assert_eq!(decompress(Compression::Snappy, raw.into(), 100).unwrap(), "hello hello hello");
}

#[test]
fn scratch_memory_does_not_leak_from_one_batch_into_the_next() {
    let mut scratch = Scratch::new();
    let limits = Limits::default();
    for round in 0..3 {
        for compression in Compression::ALL {
            let good = Batch::parse(&built(compression)).unwrap();
            assert!(
                validate_inner_with(&mut scratch, &good, &limits).is_ok(),
                "{compression:?} round {round}"
            );
            // A cut stream must be an error, not what the buffer held before.
            let stored = good.stored_records();
            for cut in [1, 5, stored.len() / 2] {
                let end = stored.len() - cut;
                let cut_off = scratch.decompress(compression, &stored[..end], 1 << 20);
                assert!(
                    compression == Compression::None || cut_off.is_err(),
                    "{compression:?} cut by {cut}"
                );
            }
        }
    }
    // Two frames one after the other are one stream.
    let twice: Vec<u8> =
        [b"first ".as_ref(), b"second"].map(|t| zstd::encode_all(t, 1).unwrap()).concat();
    assert_eq!(scratch.decompress(Compression::Zstd, &twice, 100).unwrap(), b"first second");
    assert!(scratch.decompress(Compression::Zstd, &twice, 11).is_err());
    assert_eq!(scratch.decompress(Compression::Zstd, &twice, 12).unwrap(), b"first second");
}

#[test]
fn mutated_batches_are_survived() {
    let mut rng = fastrand::Rng::with_seed(1);
    let mut scratch = Scratch::new();
    let limits = Limits { max_decompressed_bytes: 1 << 20 };
    for compression in Compression::ALL {
        let bytes = built(compression);
        for _ in 0..1500 {
            let mut mutant = bytes.to_vec();
            for _ in 0..rng.usize(1..4) {
                let at = rng.usize(21..mutant.len());
                mutant[at] = if rng.bool() { rng.u8(..) } else { mutant[at] ^ (1 << rng.u8(..8)) };
            }
            let batch = Batch::parse(&mutant.into()).unwrap();
            let checked = validate_inner(&batch, &limits);
            assert_eq!(checked, validate_inner_with(&mut scratch, &batch, &limits));
            let read: Result<Vec<_>, _> =
                decode_records(&batch, &limits).and_then(Iterator::collect);
            if checked.is_ok() {
                assert_eq!(read.unwrap().len(), batch.header.records_count as usize);
            }
        }
    }
}

#[test]
fn sequences_wrap() {
    let mut builder = BatchBuilder::new().producer(1, 0, i32::MAX - 1);
    for _ in 0..4 {
        builder.push(&NewRecord::value(0, "v"));
    }
    let header = BatchHeader::parse(&builder.build().unwrap()).unwrap();
    assert_eq!(header.last_sequence(), 1);
    assert!(BatchBuilder::new().build().is_err(), "no records");
}

proptest::proptest! {
    #[test]
    fn varints_come_back(value: i64) {
        let mut bytes = BytesMut::new();
        builder::put_varlong(&mut bytes, value);
        let mut rest: &[u8] = &bytes;
        proptest::prop_assert_eq!(varlong(&mut rest), Ok(value));
        proptest::prop_assert!(rest.is_empty());
    }

    #[test]
    fn noise_is_not_a_record(noise: Vec<u8>) {
        let mut bytes = Bytes::from(noise);
        let mut slice: &[u8] = &bytes.clone();
        let skimmed = skim_record(&mut slice);
        let read = read_record(&mut bytes);
        proptest::prop_assert_eq!(skimmed.is_ok(), read.is_ok());
    }
}
