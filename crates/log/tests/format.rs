//! The disk format against random, changed and hostile bytes: what was written is read back, and
//! nothing else is ever taken for a frame.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use talos_common::{
    BrokerDir, BrokerEpoch, BrokerId, LaneId, LeaderEpoch, TopicId, TopicPartitionId,
};
use talos_log::format::{
    BATCH_PREFIX_BYTES, BatchMeta, FORMAT, FRAME_HEADER_BYTES, FileHeader, FlushHeader, Frame,
    FrameError, IndexEntry, JournalId, LanePosition, SortedEnd, SortedFile, parse, put_batch,
    put_frame, toggle_mask,
};
use talos_log::root::{Head, Root};
use talos_protocol::batch::BatchHeader;
use talos_protocol::records::{BatchBuilder, NewRecord};

fn position() -> impl Strategy<Value = LanePosition> {
    (any::<u64>(), any::<u64>()).prop_map(|(file, position)| LanePosition { file, position })
}

fn partition() -> impl Strategy<Value = TopicPartitionId> {
    (any::<[u8; 16]>(), any::<i32>())
        .prop_map(|(topic, partition)| TopicPartitionId { topic: TopicId(topic), partition })
}

fn journal() -> impl Strategy<Value = JournalId> {
    (0..i32::MAX, any::<u64>(), any::<u32>(), any::<u64>()).prop_map(
        |(broker, epoch, lane, number)| {
            let dir = BrokerDir { broker: BrokerId(broker), epoch: BrokerEpoch(epoch) };
            JournalId { dir, lane: LaneId(lane), number }
        },
    )
}

fn header() -> impl Strategy<Value = FileHeader> {
    (any::<[u8; 16]>(), journal(), any::<u32>(), any::<u64>(), position()).prop_map(
        |(cluster, id, nonce, preallocated_bytes, durable_to)| FileHeader {
            format: FORMAT,
            cluster,
            id,
            nonce,
            preallocated_bytes,
            durable_to,
        },
    )
}

fn index_entry() -> impl Strategy<Value = IndexEntry> {
    (partition(), any::<i32>(), any::<i64>()).prop_map(|(partition, epoch, end_offset)| {
        IndexEntry { partition, leader_epoch: LeaderEpoch(epoch), end_offset }
    })
}

fn sorted_file() -> impl Strategy<Value = SortedFile> {
    (any::<u64>(), any::<u64>(), any::<u64>(), any::<u32>())
        .prop_map(|(number, set, bytes, index_crc)| SortedFile { number, set, bytes, index_crc })
}

fn sorted_end() -> impl Strategy<Value = SortedEnd> {
    let state = proptest::option::of(0..u64::MAX);
    (partition(), any::<i32>(), any::<i64>(), state).prop_map(
        |(partition, epoch, end_offset, state)| {
            let leader_epoch = LeaderEpoch(epoch);
            SortedEnd { partition, leader_epoch, end_offset, state }
        },
    )
}

/// Every kind of frame but batches.
fn control() -> impl Strategy<Value = Frame> {
    let flush = (position(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
        |(durable_to, sequence, flush_bytes, frames)| {
            Frame::Flush(FlushHeader { durable_to, sequence, flush_bytes, frames })
        },
    );
    let open = (partition(), any::<i32>(), any::<i64>()).prop_map(|(partition, epoch, start)| {
        Frame::Open { partition, leader_epoch: LeaderEpoch(epoch), epoch_start: start }
    });
    let published = (partition(), any::<i64>(), any::<u64>()).prop_map(
        |(partition, end_offset, root_generation)| Frame::Published {
            partition,
            end_offset,
            root_generation,
        },
    );
    let index = (position(), vec(index_entry(), 0..20))
        .prop_map(|(since, entries)| Frame::Index { since, entries });
    let catalog = (any::<u64>(), any::<u64>(), any::<u32>(), any::<u32>()).prop_map(
        |(generation, replaced_below, files, partitions)| Frame::Catalog {
            generation,
            replaced_below,
            files,
            partitions,
        },
    );
    let sorted = (any::<u64>(), vec(sorted_file(), 0..20), vec(sorted_end(), 0..20)).prop_map(
        |(generation, files, partitions)| Frame::Sorted { generation, files, partitions },
    );
    prop_oneof![
        header().prop_map(Frame::Header),
        flush,
        open,
        published,
        index,
        catalog,
        sorted,
        any::<u64>().prop_map(|next_file| Frame::Close { next_file }),
        position().prop_map(|durable_to| Frame::Note { durable_to }),
    ]
}

fn batch() -> impl Strategy<Value = Bytes> {
    vec(vec(any::<u8>(), 0..200), 1..5).prop_map(|values| {
        let mut builder = BatchBuilder::new();
        values.into_iter().for_each(|value| builder.push(&NewRecord::value(5, value)));
        builder.build().unwrap()
    })
}

fn meta() -> impl Strategy<Value = BatchMeta> {
    (partition(), any::<i32>(), any::<i64>(), any::<i64>()).prop_map(
        |(partition, epoch, epoch_start, append_time_ms)| BatchMeta {
            partition,
            leader_epoch: LeaderEpoch(epoch),
            epoch_start,
            append_time_ms,
        },
    )
}

/// One frame of any kind, tied to the file with `mask`.
fn any_frame(mask: u32) -> impl Strategy<Value = Bytes> {
    let control = control().prop_map(|frame| {
        let mut out = BytesMut::new();
        put_frame(&mut out, &frame);
        out
    });
    let batch =
        (meta(), batch(), any::<i64>(), any::<i32>()).prop_map(|(meta, bytes, base, epoch)| {
            let mut out = BytesMut::new();
            put_batch(&mut out, &meta, &bytes, base, LeaderEpoch(epoch));
            out
        });
    prop_oneof![3 => control, 1 => batch].prop_map(move |mut out| {
        toggle_mask(&mut out, 0, mask);
        out.freeze()
    })
}

proptest! {
    #[test]
    fn every_control_frame_is_read_as_it_was_written(
        frame in control(), mask: u32, behind in vec(any::<u8>(), 0..50)
    ) {
        let mut out = BytesMut::new();
        put_frame(&mut out, &frame);
        toggle_mask(&mut out, 0, mask);
        let length = out.len();
        out.extend_from_slice(&behind);
        let parsed = parse(&out.freeze(), mask).unwrap();
        prop_assert_eq!((parsed.frame, parsed.length), (frame, length));
    }

    #[test]
    fn a_batch_frame_holds_the_batch_with_offset_and_epoch_set(
        meta in meta(), bytes in batch(), base: i64, epoch: i32, mask: u32
    ) {
        let mut out = BytesMut::new();
        put_batch(&mut out, &meta, &bytes, base, LeaderEpoch(epoch));
        toggle_mask(&mut out, 0, mask);
        let parsed = parse(&out.freeze(), mask).unwrap();
        prop_assert_eq!(parsed.length, BATCH_PREFIX_BYTES + bytes.len());
        let Frame::Batch(read_meta, read) = parsed.frame else { panic!("not a batch") };
        prop_assert_eq!(read_meta, meta);
        let header = BatchHeader::parse(&read).unwrap();
        prop_assert_eq!((header.base_offset, header.partition_leader_epoch), (base, epoch));
        prop_assert_eq!(&read[8..12], &bytes[8..12]);
        prop_assert_eq!(&read[16..], &bytes[16..]);
    }

    #[test]
    fn a_frame_of_another_file_never_parses(bytes in any_frame(0), mask in 1_u32..) {
        prop_assert_eq!(parse(&bytes, mask), Err(FrameError::Checksum));
    }

    #[test]
    fn a_changed_frame_never_parses(bytes in any_frame(77), at: prop::sample::Index, bit in 0_u8..8) {
        let mut changed = BytesMut::from(&bytes[..]);
        let at = at.index(changed.len());
        changed[at] ^= 1_u8 << bit;
        // Offset and epoch of a batch are not under its CRC, but under the frame's.
        prop_assert!(parse(&changed.freeze(), 77).is_err(), "byte {at}");
    }

    #[test]
    fn a_cut_frame_never_parses(bytes in any_frame(77), at: prop::sample::Index) {
        let cut = bytes.slice(..at.index(bytes.len()));
        prop_assert!(parse(&cut, 77).is_err());
    }

    #[test]
    fn hostile_bytes_are_an_error_and_never_a_panic(
        mut bytes in vec(any::<u8>(), 0..300), mask: u32, kind in 0_u8..12, length in 0_u32..320
    ) {
        let _ = parse(&Bytes::from(bytes.clone()), mask);
        // Also with a checksum that holds, so that the body is looked at.
        if bytes.len() >= FRAME_HEADER_BYTES {
            let length = length.min(bytes.len() as u32);
            bytes[..4].copy_from_slice(&length.to_le_bytes());
            bytes[8..12].copy_from_slice(&[kind, 1, 0, 0]);
            let covered = if kind == 3 { BATCH_PREFIX_BYTES + 21 } else { length as usize };
            if let Some(checked) = bytes.get(8..covered) {
                let crc = talos_protocol::batch::crc32c(checked) ^ mask;
                bytes[4..8].copy_from_slice(&crc.to_le_bytes());
            }
            if let Ok(parsed) = parse(&Bytes::from(bytes.clone()), mask) {
                prop_assert!((FRAME_HEADER_BYTES..=bytes.len()).contains(&parsed.length));
            }
        }
    }

    #[test]
    fn zeros_are_no_frame_of_any_file(id in journal(), nonce: u32, length in 0_usize..200) {
        let zeros = Bytes::from(vec![0; length]);
        prop_assert!(parse(&zeros, id.header_mask()).is_err());
        prop_assert!(parse(&zeros, id.header_mask() ^ nonce).is_err());
    }

    #[test]
    fn a_root_is_read_as_it_was_written_and_other_bytes_are_an_error(
        log_start in 0..i64::MAX / 2, more in 0..i64::MAX / 2, epoch in -1..i32::MAX,
        head in proptest::option::of((any::<i64>(), any::<i32>(), any::<u64>(), any::<u64>())),
        generation: u64,
        noise in vec(any::<u8>(), 0..80)
    ) {
        let head = head.map(|(base_offset, epoch, attempt, file_bytes)| {
            Head { base_offset, leader_epoch: LeaderEpoch(epoch), attempt, file_bytes }
        });
        let end_epoch = (epoch >= 0).then_some(LeaderEpoch(epoch));
        let root = Root { log_start, end_offset: log_start + more, end_epoch, head, generation };
        prop_assert_eq!(Root::decode(&root.encode()), Ok(root));
        prop_assert!(Root::decode(&noise).is_err());
    }
}

#[test]
fn a_frame_of_a_newer_version_is_named_and_not_taken_for_damage() {
    let mut out = BytesMut::new();
    put_frame(&mut out, &Frame::Close { next_file: 1 });
    for (kind, version) in [(8, 2), (10, 1)] {
        out[8] = kind;
        out[9] = version;
        let crc = talos_protocol::batch::crc32c(&out[8..]);
        out[4..8].copy_from_slice(&crc.to_le_bytes());
        let parsed = parse(&out.clone().freeze(), 0);
        assert_eq!(parsed, Err(FrameError::Unknown { kind, version }));
    }
}

#[test]
fn every_file_has_its_own_mask() {
    let id = |broker, epoch, lane, number| JournalId {
        dir: BrokerDir { broker: BrokerId(broker), epoch: BrokerEpoch(epoch) },
        lane: LaneId(lane),
        number,
    };
    let ids = [id(1, 1, 0, 0), id(1, 1, 0, 1), id(1, 1, 1, 0), id(1, 2, 0, 0), id(2, 1, 0, 0)];
    let masks: std::collections::BTreeSet<u32> = ids.iter().map(JournalId::header_mask).collect();
    assert_eq!(masks.len(), ids.len());
}
