//! The four compressions of record batches, each with a limit on what comes out.

use std::io::{Read, Write};

use bytes::{Buf, Bytes};
use zstd::stream::raw::{DParameter, InBuffer, Operation, OutBuffer};

use crate::batch::{BatchError, Compression};

/// What the snappy framing of the Java library "xerial" starts with; two version numbers follow.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// Uncompressed bytes per block when we write that framing; as the Java library has it.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// Largest window of a zstd frame that is read (128 MiB, the library's own default).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
const ZSTD_LEVEL: i32 = 3;

/// What a [`Scratch`] keeps for its next use, in bytes.
const SCRATCH_KEPT_BYTES: usize = 4 * 1024 * 1024;
/// Room for output that is made at first.
const FIRST_ROOM_BYTES: usize = 32 * 1024;

/// Memory that decompression reuses from batch to batch. One per thread that validates batches;
/// keeps at most about 4 MiB between uses.
#[derive(Default)]
pub struct Scratch {
    out: Vec<u8>,
    zstd: Option<zstd::stream::raw::Decoder<'static>>,
}

impl std::fmt::Debug for Scratch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Scratch").field("capacity", &self.out.capacity()).finish_non_exhaustive()
    }
}

impl Scratch {
    /// Without memory yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// `stored` without its compression, as long as this is borrowed.
    ///
    /// # Errors
    /// As [`decompress`].
    pub(super) fn decompress<'a>(
        &'a mut self,
        compression: Compression,
        stored: &'a [u8],
        limit: usize,
    ) -> Result<&'a [u8], BatchError> {
        if self.out.capacity() > SCRATCH_KEPT_BYTES {
            self.out = Vec::new();
        }
        self.out.clear();
        match compression {
            Compression::None if stored.len() > limit => {
                return Err(BatchError::OutputLimit { limit });
            }
            Compression::None => return Ok(stored),
            Compression::Gzip => {
                self.read_limited(flate2::read::MultiGzDecoder::new(stored), limit)
            }
            Compression::Snappy => snappy(stored, limit, &mut self.out),
            Compression::Lz4 if !lz4_frame_has_end(stored) => Err(Failure::Broken),
            Compression::Lz4 => {
                self.read_limited(lz4_flex::frame::FrameDecoder::new(stored), limit)
            }
            Compression::Zstd => self.zstd(stored, limit),
        }
        .map_err(|failure| match failure {
            Failure::Broken => BatchError::Decompression(compression),
            Failure::Limit => BatchError::OutputLimit { limit },
        })?;
        Ok(&self.out)
    }

    fn read_limited(&mut self, reader: impl Read, limit: usize) -> Result<(), Failure> {
        let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
        reader.take(one_more).read_to_end(&mut self.out).map_err(broken)?;
        if self.out.len() > limit { Err(Failure::Limit) } else { Ok(()) }
    }

    fn zstd(&mut self, stored: &[u8], limit: usize) -> Result<(), Failure> {
        let decoder = match &mut self.zstd {
            Some(decoder) => {
                decoder.reinit().map_err(broken)?;
                decoder
            }
            none => {
                let mut decoder = zstd::stream::raw::Decoder::new().map_err(broken)?;
                decoder
                    .set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG_MAX))
                    .map_err(broken)?;
                none.insert(decoder)
            }
        };
        let mut input = InBuffer::around(stored);
        loop {
            let filled = self.out.len();
            if filled > limit {
                return Err(Failure::Limit);
            }
            if filled == self.out.capacity() {
                let room = filled.max(FIRST_ROOM_BYTES);
                self.out.reserve_exact(room.min(limit.saturating_add(1) - filled));
            }
            let room = self.out.capacity() - filled;
            let mut output = OutBuffer::around_pos(&mut self.out, filled);
            let wanted = decoder.run(&mut input, &mut output).map_err(broken)?;
            let written = self.out.len() - filled;
            let all_read = input.pos() >= stored.len();
            if all_read && wanted == 0 {
                // The end of a frame, and no other follows.
                return if self.out.len() > limit { Err(Failure::Limit) } else { Ok(()) };
            }
            if all_read && written < room {
                // It wants more input, and there is none.
                return Err(Failure::Broken);
            }
        }
    }
}

/// Whether an LZ4 frame reaches its end mark. The decoder takes a frame that is cut off between two
/// blocks for a whole one, so the lengths of the blocks are walked here.
fn lz4_frame_has_end(stored: &[u8]) -> bool {
    const BLOCK_CHECKSUM: u8 = 0x10;
    const CONTENT_SIZE: u8 = 0x08;
    const CONTENT_CHECKSUM: u8 = 0x04;
    const DICTIONARY_ID: u8 = 0x01;
    let Some(flags) = stored.get(4).copied() else { return false };
    let bytes_if = |flag, n: usize| if flags & flag == 0 { 0 } else { n };
    // Magic, flags, block size, header checksum, and what is optional.
    let mut at = 7 + bytes_if(CONTENT_SIZE, 8) + bytes_if(DICTIONARY_ID, 4);
    loop {
        let Some(word) = stored.get(at..).and_then(|rest| rest.first_chunk::<4>()) else {
            return false;
        };
        at += 4;
        // The highest bit says that the block is not compressed.
        let length = usize::try_from(u32::from_le_bytes(*word) & 0x7fff_ffff).unwrap_or(usize::MAX);
        if length == 0 {
            return stored.len() >= at + bytes_if(CONTENT_CHECKSUM, 4);
        }
        at = at.saturating_add(length).saturating_add(bytes_if(BLOCK_CHECKSUM, 4));
    }
}

enum Failure {
    Broken,
    Limit,
}

fn broken<E>(_: E) -> Failure {
    Failure::Broken
}

/// `stored` without its compression; [`Compression::None`] gives the same slice.
///
/// # Errors
/// `OutputLimit` above `limit` bytes (inclusive), `Decompression` if the data is broken.
pub fn decompress(
    compression: Compression,
    stored: Bytes,
    limit: usize,
) -> Result<Bytes, BatchError> {
    let mut scratch = Scratch::new();
    scratch.decompress(compression, &stored, limit)?;
    Ok(if compression == Compression::None { stored } else { scratch.out.into() })
}

fn snappy(stored: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    if !stored.starts_with(&XERIAL_MAGIC) {
        return snappy_block(stored, limit, out);
    }
    let mut rest = stored.get(XERIAL_HEADER_BYTES..).ok_or(Failure::Broken)?;
    while !rest.is_empty() {
        let length = rest.try_get_i32().map_err(broken)?;
        let length = usize::try_from(length).map_err(broken)?;
        let (block, after) = rest.split_at_checked(length).ok_or(Failure::Broken)?;
        snappy_block(block, limit, out)?;
        rest = after;
    }
    Ok(())
}

/// Appends one raw snappy block to `out`, which must not grow above `limit`.
fn snappy_block(block: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let length = snap::raw::decompress_len(block).map_err(broken)?;
    let start = out.len();
    let end = start.saturating_add(length);
    if end > limit {
        return Err(Failure::Limit);
    }
    out.resize(end, 0);
    let room = out.get_mut(start..).unwrap_or_default();
    snap::raw::Decoder::new().decompress(block, room).map_err(broken)?;
    Ok(())
}

/// `records` compressed.
///
/// # Errors
/// `CannotBuild`, if the compressor refuses (too much data).
pub fn compress(compression: Compression, records: &[u8]) -> Result<Bytes, BatchError> {
    compressed(compression, records)
        .map(Bytes::from)
        .map_err(|_| BatchError::CannotBuild("records that cannot be compressed"))
}

fn compressed(compression: Compression, records: &[u8]) -> std::io::Result<Vec<u8>> {
    match compression {
        Compression::None => Ok(records.to_vec()),
        Compression::Gzip => {
            let mut e = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
            e.write_all(records)?;
            e.finish()
        }
        Compression::Snappy => {
            let mut out = XERIAL_MAGIC.to_vec();
            out.extend_from_slice(&1_i32.to_be_bytes());
            out.extend_from_slice(&1_i32.to_be_bytes());
            for block in records.chunks(XERIAL_BLOCK_BYTES) {
                let packed = snap::raw::Encoder::new().compress_vec(block)?;
                let length = i32::try_from(packed.len()).map_err(std::io::Error::other)?;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&packed);
            }
            Ok(out)
        }
        Compression::Lz4 => {
            // Kafka's own reader takes independent blocks only.
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(lz4_flex::frame::BlockMode::Independent)
                .block_size(lz4_flex::frame::BlockSize::Max64KB);
            let mut e = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            e.write_all(records)?;
            e.finish().map_err(std::io::Error::other)
        }
        Compression::Zstd => zstd::stream::encode_all(records, ZSTD_LEVEL),
    }
}
