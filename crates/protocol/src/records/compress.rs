//! The four compressions of record batches, each with a limit on what comes out.

use std::io::{Read, Write};

use bytes::{Buf, Bytes};

use crate::batch::{BatchError, Compression};

/// What the snappy framing of the Java library "xerial" starts with; two version numbers follow.
const XERIAL_MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const XERIAL_HEADER_BYTES: usize = 16;
/// Uncompressed bytes per block when we write that framing; as the Java library has it.
const XERIAL_BLOCK_BYTES: usize = 32 * 1024;
/// Largest window of a zstd frame that is read (128 MiB, the library's own default).
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
const ZSTD_LEVEL: i32 = 3;

/// `stored` without its compression; [`Compression::None`] gives the same slice.
///
/// # Errors
/// `OutputLimit` above `limit` bytes (inclusive), `Decompression` if the data is broken.
pub fn decompress(
    compression: Compression,
    stored: Bytes,
    limit: usize,
) -> Result<Bytes, BatchError> {
    let broken = |_| BatchError::Decompression(compression);
    match compression {
        Compression::None if stored.len() > limit => Err(BatchError::OutputLimit { limit }),
        Compression::None => Ok(stored),
        Compression::Gzip => {
            read_limited(flate2::read::MultiGzDecoder::new(stored.as_ref()), limit, compression)
        }
        Compression::Snappy => snappy(&stored, limit),
        Compression::Lz4 => {
            read_limited(lz4_flex::frame::FrameDecoder::new(stored.as_ref()), limit, compression)
        }
        Compression::Zstd => {
            let mut decoder =
                zstd::stream::read::Decoder::with_buffer(stored.as_ref()).map_err(broken)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX).map_err(broken)?;
            read_limited(decoder, limit, compression)
        }
    }
}

fn read_limited(
    reader: impl Read,
    limit: usize,
    compression: Compression,
) -> Result<Bytes, BatchError> {
    let mut out = Vec::new();
    let one_more = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    reader
        .take(one_more)
        .read_to_end(&mut out)
        .map_err(|_| BatchError::Decompression(compression))?;
    if out.len() > limit {
        return Err(BatchError::OutputLimit { limit });
    }
    Ok(out.into())
}

fn snappy(stored: &Bytes, limit: usize) -> Result<Bytes, BatchError> {
    let broken = BatchError::Decompression(Compression::Snappy);
    let mut out = Vec::new();
    if !stored.starts_with(&XERIAL_MAGIC) {
        snappy_block(stored, limit, &mut out)?;
        return Ok(out.into());
    }
    let mut rest = stored.get(XERIAL_HEADER_BYTES..).ok_or(broken)?;
    while !rest.is_empty() {
        let length = rest.try_get_i32().map_err(|_| broken)?;
        let length = usize::try_from(length).map_err(|_| broken)?;
        let (block, after) = rest.split_at_checked(length).ok_or(broken)?;
        snappy_block(block, limit, &mut out)?;
        rest = after;
    }
    Ok(out.into())
}

/// Appends one raw snappy block to `out`, which must not grow above `limit`.
fn snappy_block(block: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), BatchError> {
    let broken = |_| BatchError::Decompression(Compression::Snappy);
    let length = snap::raw::decompress_len(block).map_err(broken)?;
    let start = out.len();
    let end = start.saturating_add(length);
    if end > limit {
        return Err(BatchError::OutputLimit { limit });
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
