//! The bytes of a journal file. `docs/design/storage-format.md` has the same as byte tables.
//!
//! A journal is a run of frames. Every frame begins with 12 bytes, all numbers little-endian:
//!
//! ```text
//! 0  u32 length    bytes of the whole frame, these 12 included
//! 4  u32 crc       CRC-32C of the covered bytes from 8 on, XORed with the file's mask
//! 8  u8  kind
//! 9  u8  version   of this kind's body
//! 10 u16 zero
//! ```
//!
//! The CRC covers the whole frame, except in a batch frame: there it ends with the batch's own CRC
//! field, and that CRC covers the rest. So the records are checksummed once, by their producer, and
//! checked on the way in and on every read from a file.
//!
//! The mask comes from the file's identity and a random number in its header: neither what a recycled
//! file holds of its former life passes (E-J6), nor a frame that a producer forged inside a record,
//! when recovery looks for the next frame behind a torn one (P6). Frames come in *flushes*: a flush frame, then what was written with it in one
//! append. A flush states up to where its lane was durable when it was built; that statement, and
//! nothing else, tells corruption from a torn end (P5).

mod sorted;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use talos_common::{BrokerDir, LaneId, LeaderEpoch, TopicId, TopicPartitionId};
use talos_protocol::batch::{CRC_START, HEADER_BYTES, crc32c};
use talos_storage::FilePath;

pub(crate) use sorted::{SORTED_END_BYTES, SORTED_FILE_BYTES};
pub use sorted::{SortedEnd, SortedFile};

/// Bytes in front of every frame's body.
pub const FRAME_HEADER_BYTES: usize = 12;
/// Bytes of a batch frame in front of its record batch.
pub const BATCH_PREFIX_BYTES: usize = FRAME_HEADER_BYTES + BATCH_BODY_BYTES;
/// Bytes of a flush frame.
pub const FLUSH_FRAME_BYTES: usize = FRAME_HEADER_BYTES + FLUSH_BODY_BYTES;
/// The first bytes of a file header's body.
pub const MAGIC: [u8; 8] = *b"TALOSJNL";
/// The journal format that this code writes, and the only one so far that it reads.
pub const FORMAT: u16 = 1;

const BATCH_BODY_BYTES: usize = 40;
const FLUSH_BODY_BYTES: usize = 32;
const HEADER_BODY_BYTES: usize = 78;
/// Bytes of a header frame.
pub(crate) const HEADER_FRAME_BYTES: usize = FRAME_HEADER_BYTES + HEADER_BODY_BYTES;
/// Where the nonce stands in a header frame.
pub(crate) const HEADER_NONCE_AT: usize = 62;
const PARTITION_BYTES: usize = 20;
const BODY_VERSION: u8 = 1;

/// A position in a lane: a file's number and a byte position in it. Positions order as the lane grew.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LanePosition {
    /// Number of the file within the lane.
    pub file: u64,
    /// Byte position in the file.
    pub position: u64,
}

/// Which journal file: what its frames' checksums are tied to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct JournalId {
    /// The broker directory.
    pub dir: BrokerDir,
    /// The lane in it.
    pub lane: LaneId,
    /// The file's number in the lane.
    pub number: u64,
}

impl JournalId {
    /// Its name in the store.
    pub fn path(&self) -> FilePath {
        FilePath::Journal { dir: self.dir, lane: self.lane, number: self.number }
    }

    /// What the checksum of the file's header frame is XORed with.
    pub fn header_mask(&self) -> u32 {
        let mut identity = [0_u8; 24];
        let mut at = identity.as_mut_slice();
        at.put_i32_le(self.dir.broker.0);
        at.put_u64_le(self.dir.epoch.0);
        at.put_u32_le(self.lane.0);
        at.put_u64_le(self.number);
        // Inverted, so that a run of zeros (a preallocated file) is no frame of file 0 either.
        !crc32c(&identity)
    }
}

/// What a batch frame says about its batch, besides the batch itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchMeta {
    /// Of which partition.
    pub partition: TopicPartitionId,
    /// The leader epoch that wrote this frame. The batch inside keeps the epoch that accepted it.
    pub leader_epoch: LeaderEpoch,
    /// Where that leader epoch's own records start (E-W14).
    pub epoch_start: i64,
    /// The leader's wall clock when it accepted the batch, in milliseconds since the Unix epoch.
    pub append_time_ms: i64,
}

/// What the first frame of a file says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileHeader {
    /// The journal's format.
    pub format: u16,
    /// Of which cluster (E-W3).
    pub cluster: [u8; 16],
    /// Which file.
    pub id: JournalId,
    /// Drawn at random for each file.
    pub nonce: u32,
    /// The length that the store gave the file when it was created; 0 where a file grows.
    pub preallocated_bytes: u64,
    /// Up to where the lane was durable when the file was begun; its own start for the first file.
    pub durable_to: LanePosition,
}

impl FileHeader {
    /// What the checksums of all frames behind the header are XORed with.
    pub fn mask(&self) -> u32 {
        self.id.header_mask() ^ self.nonce
    }
}

/// What a flush frame says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlushHeader {
    /// Up to where the lane was durable when this flush was built (exclusive).
    pub durable_to: LanePosition,
    /// Counts the lane's flushes from 0. One that is sent again keeps its number.
    pub sequence: u64,
    /// Bytes of the whole flush, this frame included.
    pub flush_bytes: u32,
    /// Frames behind this one.
    pub frames: u32,
}

/// Where a partition's log ends, as an index frame states it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexEntry {
    /// Which partition.
    pub partition: TopicPartitionId,
    /// Under which leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// Offset behind the last record in the lane so far (exclusive).
    pub end_offset: i64,
}

/// One frame of a journal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Frame {
    /// The first of a file.
    Header(FileHeader),
    /// The first of a flush.
    Flush(FlushHeader),
    /// One record batch, whole, as it is served.
    Batch(BatchMeta, Bytes),
    /// A leader begins: its own records start at this offset.
    Open {
        /// Which partition.
        partition: TopicPartitionId,
        /// The leader epoch that begins.
        leader_epoch: LeaderEpoch,
        /// Where its own records start.
        epoch_start: i64,
    },
    /// The partition's root in the metadata covers everything below `end_offset` (E-J14).
    Published {
        /// Which partition.
        partition: TopicPartitionId,
        /// What the root covers (exclusive).
        end_offset: i64,
        /// Of the root.
        root_generation: u64,
    },
    /// All partitions that this lane wrote since `since`, with their ends (E-J7, E-H12).
    Index {
        /// Where the stretch begins that this frame speaks of; it ends with this frame.
        since: LanePosition,
        /// One for each partition in the stretch.
        entries: Vec<IndexEntry>,
    },
    /// From here on these sorted journals stand for files of the lane (E-J13). What they are was said
    /// in sorted frames of the same generation before this frame.
    Catalog {
        /// Rises with every catalog of the directory.
        generation: u64,
        /// Raw files of this lane below this number are replaced.
        replaced_below: u64,
        /// How many live sorted journals there are.
        files: u32,
        /// How many partitions have runs in them.
        partitions: u32,
    },
    /// A part of what the catalog of `generation` says. It counts with that catalog only.
    Sorted {
        /// Of the catalog that follows.
        generation: u64,
        /// Live sorted journals of the directory.
        files: Vec<SortedFile>,
        /// Partitions that have runs in them.
        partitions: Vec<SortedEnd>,
    },
    /// The last frame of a file: the lane goes on in this file, which exists (E-J13).
    Close {
        /// Number of the next file.
        next_file: u64,
    },
    /// Not part of the file, overwritten by the next flush: everything before it is durable (E-J15).
    Note {
        /// Its own position.
        durable_to: LanePosition,
    },
}

/// Kinds as they stand in byte 8 of a frame. Never reused.
mod kind {
    pub(super) const HEADER: u8 = 1;
    pub(super) const FLUSH: u8 = 2;
    pub(super) const BATCH: u8 = 3;
    pub(super) const OPEN: u8 = 4;
    pub(super) const PUBLISHED: u8 = 5;
    pub(super) const INDEX: u8 = 6;
    pub(super) const CATALOG: u8 = 7;
    pub(super) const CLOSE: u8 = 8;
    pub(super) const NOTE: u8 = 9;
    pub(super) const SORTED: u8 = 10;
}

/// Why bytes are no frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The bytes end before the frame does.
    #[error("cut off")]
    CutOff,
    /// A length that no frame has.
    #[error("impossible length")]
    Length,
    /// The checksum does not match.
    #[error("checksum mismatch")]
    Checksum,
    /// The checksum matches but the body cannot be read: written by a newer version.
    #[error("unknown kind {kind} version {version}")]
    Unknown {
        /// As found.
        kind: u8,
        /// As found.
        version: u8,
    },
}

/// Starts a frame at the end of `out`; gives where it starts.
fn begin(out: &mut BytesMut, kind: u8) -> usize {
    let start = out.len();
    out.put_u64_le(0);
    out.put_u8(kind);
    out.put_u8(BODY_VERSION);
    out.put_u16_le(0);
    start
}

/// Fills in length and checksum of the frame that began at `start`; the checksum ends at `covered`.
fn finish(out: &mut BytesMut, start: usize, covered: usize, mask: u32) {
    let length = out.len() - start;
    assert!(length <= MAX_FRAME_BYTES, "a frame of {length} bytes");
    let crc = crc32c(&out[start + 8..covered]) ^ mask;
    out[start..start + 4].copy_from_slice(&(length as u32).to_le_bytes());
    out[start + 4..start + 8].copy_from_slice(&crc.to_le_bytes());
}

/// The largest frame. A record batch has at most `i32::MAX` bytes in Kafka's protocol; ours must fit
/// into one journal file with room to spare, so this is no limit of its own.
pub const MAX_FRAME_BYTES: usize = 1 << 30;

fn put_partition(out: &mut BytesMut, partition: TopicPartitionId) {
    out.put_slice(&partition.topic.0);
    out.put_i32_le(partition.partition);
}

fn put_position(out: &mut BytesMut, at: LanePosition) {
    out.put_u64_le(at.file);
    out.put_u64_le(at.position);
}

/// Appends a batch frame to `out`, with base offset and accepting leader epoch patched into the batch
/// header (neither is covered by the batch's CRC). `batch` must be one whole version 2 batch that was
/// validated. The mask of the file is not known yet: [`toggle_mask`] ties the frame to its file.
pub fn put_batch(
    out: &mut BytesMut,
    meta: &BatchMeta,
    batch: &[u8],
    base_offset: i64,
    accepted_epoch: LeaderEpoch,
) {
    assert!(batch.len() >= HEADER_BYTES, "a batch of {} bytes", batch.len());
    let start = begin(out, kind::BATCH);
    put_partition(out, meta.partition);
    out.put_i32_le(meta.leader_epoch.0);
    out.put_i64_le(meta.epoch_start);
    out.put_i64_le(meta.append_time_ms);
    out.put_i64(base_offset);
    out.put_slice(&batch[8..12]);
    out.put_i32(accepted_epoch.0);
    out.put_slice(&batch[16..]);
    finish(out, start, start + BATCH_PREFIX_BYTES + CRC_START, 0);
}

/// Appends any other frame to `out`, tied to no file yet.
///
/// # Panics
/// On a batch frame, which has its own function.
pub fn put_frame(out: &mut BytesMut, frame: &Frame) {
    let kind = match frame {
        Frame::Header(_) => kind::HEADER,
        Frame::Flush(_) => kind::FLUSH,
        Frame::Batch(..) => unreachable!("batches go through put_batch"),
        Frame::Open { .. } => kind::OPEN,
        Frame::Published { .. } => kind::PUBLISHED,
        Frame::Index { .. } => kind::INDEX,
        Frame::Catalog { .. } => kind::CATALOG,
        Frame::Sorted { .. } => kind::SORTED,
        Frame::Close { .. } => kind::CLOSE,
        Frame::Note { .. } => kind::NOTE,
    };
    let start = begin(out, kind);
    match frame {
        Frame::Header(header) => {
            out.put_slice(&MAGIC);
            out.put_u16_le(header.format);
            out.put_slice(&header.cluster);
            out.put_i32_le(header.id.dir.broker.0);
            out.put_u64_le(header.id.dir.epoch.0);
            out.put_u32_le(header.id.lane.0);
            out.put_u64_le(header.id.number);
            out.put_u32_le(header.nonce);
            out.put_u64_le(header.preallocated_bytes);
            put_position(out, header.durable_to);
        }
        Frame::Flush(flush) => {
            put_position(out, flush.durable_to);
            out.put_u64_le(flush.sequence);
            out.put_u32_le(flush.flush_bytes);
            out.put_u32_le(flush.frames);
        }
        Frame::Batch(..) => {}
        Frame::Open { partition, leader_epoch, epoch_start } => {
            put_partition(out, *partition);
            out.put_i32_le(leader_epoch.0);
            out.put_i64_le(*epoch_start);
        }
        Frame::Published { partition, end_offset, root_generation } => {
            put_partition(out, *partition);
            out.put_i64_le(*end_offset);
            out.put_u64_le(*root_generation);
        }
        Frame::Index { since, entries } => {
            put_position(out, *since);
            for entry in entries {
                put_partition(out, entry.partition);
                out.put_i32_le(entry.leader_epoch.0);
                out.put_i64_le(entry.end_offset);
            }
        }
        Frame::Catalog { generation, replaced_below, files, partitions } => {
            out.put_u64_le(*generation);
            out.put_u64_le(*replaced_below);
            out.put_u32_le(*files);
            out.put_u32_le(*partitions);
        }
        Frame::Sorted { generation, files, partitions } => {
            sorted::put(out, *generation, files, partitions);
        }
        Frame::Close { next_file } => out.put_u64_le(*next_file),
        Frame::Note { durable_to } => put_position(out, *durable_to),
    }
    let covered = out.len();
    finish(out, start, covered, 0);
}

/// Ties the untied frame that starts at `start` of `out` to the file with `mask`; doing it twice with
/// the same mask unties it again.
pub fn toggle_mask(out: &mut [u8], start: usize, mask: u32) {
    if let Some(field) = out.get_mut(start + 4..start + 8) {
        for (byte, mask) in field.iter_mut().zip(mask.to_le_bytes()) {
            *byte ^= mask;
        }
    }
}

/// One frame that passed its checksum, and its length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parsed {
    /// The frame.
    pub frame: Frame,
    /// Bytes it takes in the file.
    pub length: usize,
}

/// Reads the frame at the start of `bytes`, which lie in a file with `mask`. A batch's own checksum is
/// checked too. Slices, no copies.
///
/// # Errors
/// Whatever the bytes are, an error and never a panic; see [`FrameError`].
pub fn parse(bytes: &Bytes, mask: u32) -> Result<Parsed, FrameError> {
    let mut head = bytes.get(..FRAME_HEADER_BYTES).ok_or(FrameError::CutOff)?;
    let length = head.get_u32_le() as usize;
    let crc = head.get_u32_le() ^ mask;
    let (kind, version) = (head.get_u8(), head.get_u8());
    if !(FRAME_HEADER_BYTES..=MAX_FRAME_BYTES).contains(&length) {
        return Err(FrameError::Length);
    }
    let covered = if kind == kind::BATCH { BATCH_PREFIX_BYTES + CRC_START } else { length };
    if length < covered {
        return Err(FrameError::Length);
    }
    let checked = bytes.get(8..covered).ok_or(FrameError::CutOff)?;
    if crc32c(checked) != crc {
        return Err(FrameError::Checksum);
    }
    if bytes.len() < length {
        return Err(FrameError::CutOff);
    }
    let body = bytes.slice(FRAME_HEADER_BYTES..length);
    if version != BODY_VERSION {
        return Err(FrameError::Unknown { kind, version });
    }
    let frame = parse_body(kind, version, body)?;
    Ok(Parsed { frame, length })
}

/// What the checksum of the flush frame at the start of `bytes` is XORed with, if it is undamaged.
pub(crate) fn mask_of_flush(bytes: &[u8]) -> Option<u32> {
    let flush = bytes.get(..FLUSH_FRAME_BYTES)?;
    let stated = flush.get(4..8)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*stated) ^ crc32c(&flush[8..]))
}

fn parse_body(kind: u8, version: u8, mut body: Bytes) -> Result<Frame, FrameError> {
    // The checksum held, so a body of another shape was written by code that this code is not.
    let unknown = FrameError::Unknown { kind, version };
    let need = |body: &Bytes, bytes: usize| if body.len() < bytes { Err(unknown) } else { Ok(()) };
    let frame = match kind {
        kind::HEADER => {
            need(&body, HEADER_BODY_BYTES)?;
            Frame::Header(parse_file_header(&mut body).ok_or(unknown)?)
        }
        kind::FLUSH => {
            need(&body, FLUSH_BODY_BYTES)?;
            Frame::Flush(FlushHeader {
                durable_to: get_position(&mut body),
                sequence: body.get_u64_le(),
                flush_bytes: body.get_u32_le(),
                frames: body.get_u32_le(),
            })
        }
        kind::BATCH => {
            need(&body, BATCH_BODY_BYTES + HEADER_BYTES)?;
            let meta = BatchMeta {
                partition: get_partition(&mut body),
                leader_epoch: LeaderEpoch(body.get_i32_le()),
                epoch_start: body.get_i64_le(),
                append_time_ms: body.get_i64_le(),
            };
            check_batch(&body)?;
            return Ok(Frame::Batch(meta, body));
        }
        kind::OPEN => {
            need(&body, PARTITION_BYTES + 12)?;
            Frame::Open {
                partition: get_partition(&mut body),
                leader_epoch: LeaderEpoch(body.get_i32_le()),
                epoch_start: body.get_i64_le(),
            }
        }
        kind::PUBLISHED => {
            need(&body, PARTITION_BYTES + 16)?;
            Frame::Published {
                partition: get_partition(&mut body),
                end_offset: body.get_i64_le(),
                root_generation: body.get_u64_le(),
            }
        }
        kind::INDEX => {
            need(&body, 16)?;
            parse_index(&mut body)
        }
        kind::CATALOG => {
            need(&body, 24)?;
            sorted::parse_catalog(&mut body)
        }
        kind::SORTED => {
            need(&body, 12)?;
            sorted::parse(&mut body).ok_or(unknown)?
        }
        kind::CLOSE => {
            need(&body, 8)?;
            Frame::Close { next_file: body.get_u64_le() }
        }
        kind::NOTE => {
            need(&body, 16)?;
            Frame::Note { durable_to: get_position(&mut body) }
        }
        _ => return Err(unknown),
    };
    if body.is_empty() { Ok(frame) } else { Err(unknown) }
}

fn parse_file_header(body: &mut Bytes) -> Option<FileHeader> {
    let mut magic = [0_u8; 8];
    body.copy_to_slice(&mut magic);
    let format = body.get_u16_le();
    let mut cluster = [0_u8; 16];
    body.copy_to_slice(&mut cluster);
    let dir = BrokerDir {
        broker: talos_common::BrokerId(body.get_i32_le()),
        epoch: talos_common::BrokerEpoch(body.get_u64_le()),
    };
    let id = JournalId { dir, lane: LaneId(body.get_u32_le()), number: body.get_u64_le() };
    let nonce = body.get_u32_le();
    let preallocated_bytes = body.get_u64_le();
    let durable_to = get_position(body);
    (magic == MAGIC && format == FORMAT).then_some(FileHeader {
        format,
        cluster,
        id,
        nonce,
        preallocated_bytes,
        durable_to,
    })
}

fn parse_index(body: &mut Bytes) -> Frame {
    let since = get_position(body);
    let mut entries = Vec::with_capacity(body.len() / (PARTITION_BYTES + 12));
    while body.len() >= PARTITION_BYTES + 12 {
        entries.push(IndexEntry {
            partition: get_partition(body),
            leader_epoch: LeaderEpoch(body.get_i32_le()),
            end_offset: body.get_i64_le(),
        });
    }
    Frame::Index { since, entries }
}

fn get_partition(body: &mut Bytes) -> TopicPartitionId {
    let mut topic = [0_u8; 16];
    body.copy_to_slice(&mut topic);
    TopicPartitionId { topic: TopicId(topic), partition: body.get_i32_le() }
}

fn get_position(body: &mut Bytes) -> LanePosition {
    LanePosition { file: body.get_u64_le(), position: body.get_u64_le() }
}

/// Checks that `batch` is exactly one version 2 record batch whose CRC holds. The record count and
/// everything else in its header is covered by that CRC.
fn check_batch(batch: &Bytes) -> Result<(), FrameError> {
    let mut at = batch.slice(8..CRC_START);
    let length = at.get_i32();
    at.advance(5);
    let crc = at.get_u32();
    if usize::try_from(length).ok().and_then(|length| length.checked_add(12)) != Some(batch.len()) {
        return Err(FrameError::Length);
    }
    if crc32c(&batch[CRC_START..]) != crc { Err(FrameError::Checksum) } else { Ok(()) }
}
