//! Reading run files: the index, and blocks of a run.

use std::sync::Arc;

use bytes::Bytes;
use talos_protocol::batch::{BatchHeader, crc32c};
use talos_storage::{Error as StorageError, ErrorKind, FilePath, Storage};

use crate::ranges::read_range;

use super::{Block, LABEL_BYTES, Label, RunEntry, RunIndex};

/// The largest index that is read; one of a segment of 64 MiB has some dozen KiB.
const MAX_INDEX_BYTES: u32 = 64 << 20;

/// Why a run file can not be read.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum RunFileError {
    #[error(transparent)]
    Storage(StorageError),
    #[error("{file} is corrupt at position {position}: {what}")]
    Corrupt {
        file: FilePath,
        position: u64,
        what: String,
        /// Nothing in it is damaged: it is another file.
        foreign: bool,
    },
}

fn corrupt(file: &FilePath, position: u64, what: impl Into<String>) -> RunFileError {
    RunFileError::Corrupt { file: file.clone(), position, what: what.into(), foreign: false }
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

/// What is known of a run file before it is read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stated {
    /// Bytes of the file; with `exact` that is a fact, else what a listing says.
    pub(crate) bytes: u64,
    pub(crate) exact: bool,
    /// CRC-32C of its index, if a catalog states it.
    pub(crate) index_crc: Option<u32>,
    /// Read the second copies of label and index too, though the first ones are whole.
    pub(crate) both: bool,
}

impl Stated {
    /// A file of exactly this length.
    pub(crate) fn exactly(bytes: u64) -> Self {
        Self { bytes, exact: true, index_crc: None, both: false }
    }

    /// A file of about this length, all of whose copies are to be looked at.
    pub(crate) fn listed(bytes: u64) -> Self {
        Self { bytes, exact: false, index_crc: None, both: true }
    }
}

/// An index that was read.
#[derive(Debug)]
pub(crate) struct Indexed {
    pub(crate) index: RunIndex,
    /// Damage to one of two copies, with its position: nothing is lost.
    pub(crate) repaired: Vec<(u64, String)>,
}

impl Indexed {
    /// Says what was repaired.
    pub(crate) fn warn(&self, file: &FilePath) {
        for (position, what) in &self.repaired {
            tracing::error!(%file, position, what, "damage that its second copy makes good");
        }
    }
}

/// Reads and checks label and index of `file`, of which either copy will do.
pub(crate) async fn read_index(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
    stated: Stated,
    cluster: [u8; 16],
) -> Result<Indexed, RunFileError> {
    let mut repaired = Vec::new();
    let last = stated.bytes.saturating_sub(LABEL_BYTES);
    let label = |at| read_label(storage, file, at, stated, cluster);
    let label = either(&mut repaired, label(0), label(last), stated.both).await?;
    let before_runs = LABEL_BYTES + u64::from(label.index_bytes);
    let run_bytes = label.bytes.checked_sub(2 * before_runs);
    let Some(run_bytes) = run_bytes.filter(|_| label.index_bytes <= MAX_INDEX_BYTES) else {
        return Err(corrupt(file, 0, "the label names no index"));
    };
    if !stated.exact && label.bytes != stated.bytes {
        let what = format!("it has {} bytes, not {}", stated.bytes, label.bytes);
        repaired.push((stated.bytes.min(label.bytes), what));
    }
    let index = |at| read_copy(storage, file, at, &label);
    let second = label.bytes - before_runs;
    let bytes = either(&mut repaired, index(LABEL_BYTES), index(second), stated.both).await?;
    let mut index = RunIndex::decode(bytes, run_bytes)
        .ok_or_else(|| corrupt(file, LABEL_BYTES, "an index of another version"))?;
    index.shift(before_runs);
    Ok(Indexed { index, repaired })
}

/// The first copy, or the second where the first is damaged; the error of the first when both are. With
/// `both` the second one is looked at in any case.
async fn either<T>(
    repaired: &mut Vec<(u64, String)>,
    first: impl Future<Output = Result<T, RunFileError>>,
    second: impl Future<Output = Result<T, RunFileError>>,
    both: bool,
) -> Result<T, RunFileError> {
    let first = first.await;
    match first {
        Err(RunFileError::Corrupt { file, position, what, foreign: false }) => {
            let lost = RunFileError::Corrupt { file, position, what: what.clone(), foreign: false };
            match second.await {
                Err(RunFileError::Corrupt { foreign: false, .. }) => Err(lost),
                second => {
                    repaired.push((position, what));
                    second
                }
            }
        }
        Ok(found) if both => {
            match second.await {
                Err(RunFileError::Corrupt { position, what, .. }) => {
                    repaired.push((position, what));
                }
                Err(error @ RunFileError::Storage(_)) => return Err(error),
                Ok(_) => {}
            }
            Ok(found)
        }
        first => first,
    }
}

async fn read_label(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
    at: u64,
    stated: Stated,
    cluster: [u8; 16],
) -> Result<Label, RunFileError> {
    let bytes = read_exact(storage, file, at, at + LABEL_BYTES).await?;
    let label = Label::decode(&bytes).map_err(|what| corrupt(file, at, what))?;
    let foreign = |what: String| RunFileError::Corrupt {
        file: file.clone(),
        position: at,
        what,
        foreign: true,
    };
    label.check(file, cluster).map_err(foreign)?;
    if stated.exact && label.bytes != stated.bytes {
        return Err(foreign(format!(
            "it has {} bytes by its label, not {}",
            label.bytes, stated.bytes
        )));
    }
    if stated.index_crc.is_some_and(|crc| crc != label.index_crc) {
        return Err(foreign("it is not the file that the catalog names".into()));
    }
    Ok(label)
}

async fn read_copy(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
    at: u64,
    label: &Label,
) -> Result<Bytes, RunFileError> {
    let bytes = read_exact(storage, file, at, at + u64::from(label.index_bytes)).await?;
    if crc32c(&bytes) != label.index_crc {
        return Err(corrupt(file, at, "checksum mismatch in the index"));
    }
    Ok(bytes)
}

/// The cluster that the label of `file` states, if it can be read at all.
pub(crate) async fn stated_cluster(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
) -> Result<Option<[u8; 16]>, StorageError> {
    let bytes = storage.read(file, 0..LABEL_BYTES).await?;
    Ok(Label::decode(&bytes).ok().map(|label| label.cluster))
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
