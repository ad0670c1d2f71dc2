//! Reading run files: the index, and blocks of a run.

use std::sync::Arc;

use bytes::{Buf, Bytes};
use talos_protocol::batch::{BatchHeader, crc32c};
use talos_storage::{Error as StorageError, ErrorKind, FilePath, Storage};

use crate::ranges::read_range;

use super::{Block, FOOTER_BYTES, FORMAT, HEADER_BYTES, MAGIC, RunEntry, RunIndex, RunKind};

/// The largest index that is read; one of a segment of 64 MiB has some dozen KiB.
const MAX_INDEX_BYTES: u32 = 64 << 20;

/// Why a run file can not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RunFileError {
    #[error(transparent)]
    Storage(StorageError),
    #[error("{file} is corrupt at position {position}: {what}")]
    Corrupt { file: FilePath, position: u64, what: String },
}

fn corrupt(file: &FilePath, position: u64, what: impl Into<String>) -> RunFileError {
    RunFileError::Corrupt { file: file.clone(), position, what: what.into() }
}

/// Reads exactly `range` of `file`: what is reachable and missing is corruption (P5).
pub(crate) async fn read_exact(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
    start: u64,
    end: u64,
) -> Result<Bytes, RunFileError> {
    match read_range(storage, file, start..end).await {
        Ok(bytes) if bytes.len() as u64 == end - start => Ok(bytes),
        Ok(bytes) => Err(corrupt(file, start + bytes.len() as u64, "the file ends here")),
        Err(error) if error.kind() == ErrorKind::NotFound => {
            Err(corrupt(file, start, "the file is missing"))
        }
        Err(error) => Err(RunFileError::Storage(error)),
    }
}

/// Reads and checks header, footer and index of `file`, which has `len` bytes.
pub(crate) async fn read_index(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
    len: u64,
    kind: RunKind,
    cluster: [u8; 16],
) -> Result<RunIndex, RunFileError> {
    if len < HEADER_BYTES + FOOTER_BYTES {
        return Err(corrupt(file, len, "the file ends here"));
    }
    let header = read_exact(storage, file, 0, HEADER_BYTES).await?;
    check_header(&header, kind, cluster).map_err(|what| corrupt(file, 0, what))?;
    let footer_at = len - FOOTER_BYTES;
    let mut footer = read_exact(storage, file, footer_at, len).await?;
    if crc32c(&footer[..16]) != u32::from_le_bytes([footer[16], footer[17], footer[18], footer[19]])
        || footer[20..] != MAGIC
    {
        return Err(corrupt(file, footer_at, "no footer here"));
    }
    let (position, length, crc) = (footer.get_u64_le(), footer.get_u32_le(), footer.get_u32_le());
    if length > MAX_INDEX_BYTES || position.checked_add(length.into()) != Some(footer_at) {
        return Err(corrupt(file, footer_at, "the footer names no index"));
    }
    let index = read_exact(storage, file, position, footer_at).await?;
    if crc32c(&index) != crc {
        return Err(corrupt(file, position, "checksum mismatch in the index"));
    }
    RunIndex::decode(index)
        .filter(|index| index.runs.iter().all(|run| run.position + run.bytes <= position))
        .ok_or_else(|| corrupt(file, position, "an index of another version"))
}

/// The cluster that the header of `file` states, if it can be read at all.
pub(crate) async fn stated_cluster(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
) -> Result<Option<[u8; 16]>, StorageError> {
    let header = storage.read(file, 0..HEADER_BYTES).await?;
    let Some((body, crc)) = header.split_last_chunk::<4>() else { return Ok(None) };
    if crc32c(body).to_le_bytes() != *crc {
        return Ok(None);
    }
    Ok(body.get(12..28).and_then(|cluster| cluster.try_into().ok()))
}

fn check_header(header: &Bytes, kind: RunKind, cluster: [u8; 16]) -> Result<(), &'static str> {
    let (body, crc) = header.split_at(header.len() - 4);
    if crc32c(body).to_le_bytes() != crc {
        return Err("checksum mismatch in the header");
    }
    if body[..8] != MAGIC {
        return Err("not a run file");
    }
    if body[8..10] != FORMAT.to_le_bytes() {
        return Err("written by another version of Talos");
    }
    if body[10] != kind as u8 {
        return Err("another kind of run file");
    }
    if body[12..28] != cluster {
        return Err("the file belongs to another cluster");
    }
    Ok(())
}

/// Whole batches of a run from the one that holds `offset` on: at most `max_bytes`, but the first
/// batch always. One slice. Empty when the run ends before `offset`.
pub(crate) async fn read_block_run(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
    run: &RunEntry,
    offset: i64,
    max_bytes: usize,
) -> Result<Bytes, RunFileError> {
    let blocks = &run.blocks;
    let first = blocks.partition_point(|block| block.base_offset <= offset).saturating_sub(1);
    let Some(start) = blocks.get(first).map(|block| block.position) else {
        return Ok(Bytes::new());
    };
    let end_of = |at: usize| {
        blocks.get(at + 1).map_or(run.position + run.bytes, |next: &Block| next.position)
    };
    let wanted = start.saturating_add(max_bytes as u64);
    let mut last = first;
    while last + 1 < blocks.len() && end_of(last) < wanted {
        last += 1;
    }
    let bytes = read_exact(storage, file, start, end_of(last)).await?;
    for at in first..=last {
        let Some(block) = blocks.get(at) else { continue };
        // Both lie in what was read.
        let (from, to) = ((block.position - start) as usize, (end_of(at) - start) as usize);
        if crc32c(&bytes[from..to]) != block.crc {
            return Err(corrupt(file, block.position, "checksum mismatch in a block"));
        }
    }
    cut(&bytes, offset, max_bytes).map_err(|(at, what)| corrupt(file, start + at, what))
}

/// The batches of checked `bytes` from the one that holds `offset` on.
fn cut(bytes: &Bytes, offset: i64, max_bytes: usize) -> Result<Bytes, (u64, String)> {
    let mut at = 0;
    let mut from = None;
    while at < bytes.len() {
        let header = BatchHeader::parse(&bytes[at..]).map_err(|e| (at as u64, e.to_string()))?;
        let end = at + header.total_bytes();
        if end > bytes.len() {
            return Err((at as u64, "a batch leaves its block".into()));
        }
        match from {
            None if header.last_offset() >= offset => from = Some(at),
            Some(first) if end - first > max_bytes => return Ok(bytes.slice(first..at)),
            None | Some(_) => {}
        }
        at = end;
    }
    Ok(from.map_or_else(Bytes::new, |first| bytes.slice(first..)))
}
