//! The bodies of catalog frames and of sorted frames: a sorted frame is a part of what a catalog says. A catalog can be larger than one frame
//! should be, so it is said in parts, and the catalog frame behind them counts what they held.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use talos_common::{LeaderEpoch, TopicPartitionId};

use super::{Frame, PARTITION_BYTES, get_partition, put_partition};

/// Bytes of one [`SortedFile`] in a frame.
pub(crate) const SORTED_FILE_BYTES: usize = 28;
/// Bytes of one [`SortedEnd`] in a frame.
pub(crate) const SORTED_END_BYTES: usize = PARTITION_BYTES + 20;
/// Stands for no sorted journal: their numbers rise from 0.
const NO_FILE: u64 = u64::MAX;

/// A live sorted journal, as a sorted frame states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedFile {
    /// Its number in the broker directory.
    pub number: u64,
    /// The set that it belongs to: the number of the first file that the same pass wrote.
    pub set: u64,
    /// Its exact length.
    pub bytes: u64,
    /// CRC-32C of its index.
    pub index_crc: u32,
}

/// What the live sorted journals hold of one partition, as a sorted frame states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SortedEnd {
    /// Which partition.
    pub partition: TopicPartitionId,
    /// The leader epoch that wrote its runs.
    pub leader_epoch: LeaderEpoch,
    /// Offset behind the last record of its runs (exclusive).
    pub end_offset: i64,
    /// The sorted journal with its newest producer state; `None` when no state is needed from any.
    pub state: Option<u64>,
}

pub(super) fn put(
    out: &mut BytesMut,
    generation: u64,
    files: &[SortedFile],
    partitions: &[SortedEnd],
) {
    out.put_u64_le(generation);
    // Writers keep a frame small.
    out.put_u32_le(files.len() as u32);
    for file in files {
        out.put_u64_le(file.number);
        out.put_u64_le(file.set);
        out.put_u64_le(file.bytes);
        out.put_u32_le(file.index_crc);
    }
    for end in partitions {
        put_partition(out, end.partition);
        out.put_i32_le(end.leader_epoch.0);
        out.put_i64_le(end.end_offset);
        out.put_u64_le(end.state.unwrap_or(NO_FILE));
    }
}

/// Reads the body of a catalog frame, of which 24 bytes are there.
pub(super) fn parse_catalog(body: &mut Bytes) -> Frame {
    Frame::Catalog {
        generation: body.get_u64_le(),
        replaced_below: body.get_u64_le(),
        files: body.get_u32_le(),
        partitions: body.get_u32_le(),
    }
}

/// Reads what [`put`] wrote, of which the first 12 bytes are there; `None` for fewer files than it says.
pub(super) fn parse(body: &mut Bytes) -> Option<Frame> {
    let generation = body.get_u64_le();
    let count = body.get_u32_le() as usize;
    if body.len() / SORTED_FILE_BYTES < count {
        return None;
    }
    let mut files = Vec::with_capacity(count);
    for _ in 0..count {
        files.push(SortedFile {
            number: body.get_u64_le(),
            set: body.get_u64_le(),
            bytes: body.get_u64_le(),
            index_crc: body.get_u32_le(),
        });
    }
    let mut partitions = Vec::with_capacity(body.len() / SORTED_END_BYTES);
    while body.len() >= SORTED_END_BYTES {
        partitions.push(SortedEnd {
            partition: get_partition(body),
            leader_epoch: LeaderEpoch(body.get_i32_le()),
            end_offset: body.get_i64_le(),
            state: Some(body.get_u64_le()).filter(|number| *number != NO_FILE),
        });
    }
    Some(Frame::Sorted { generation, files, partitions })
}
