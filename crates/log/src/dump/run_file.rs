//! Sorted journals and segments: header, footer, index, and every block of every run.

use std::sync::Arc;

use bytes::Bytes;
use talos_protocol::batch::{BatchHeader, crc32c, verify_crc};
use talos_storage::{Error as StorageError, FilePath, Storage};

use super::{
    Content, Damage, Dump, FileReport, Loss, ManifestSegment, Progress, RunReport, RunsReport,
};
use crate::runs::{self, Block, RunEntry, RunFileError, RunIndex, Stated};

/// Read at once, unless one block is larger.
const WINDOW_BYTES: u64 = 4 << 20;

impl Dump {
    /// Reads and verifies one sorted journal or segment of `len` bytes. `named` is `None` for a segment,
    /// else the checksum of its index as a catalog states it, if one names it.
    pub(super) async fn read_runs(
        &mut self,
        path: &FilePath,
        len: u64,
        named: Option<Option<u32>>,
        progress: &mut Progress<'_>,
    ) -> Result<FileReport, StorageError> {
        let mut report = FileReport::new(path.clone(), Some(len));
        let loss = if named == Some(None) { Loss::Unneeded } else { Loss::Records };
        if self.options.cluster.is_none() {
            self.options.cluster = runs::stated_cluster(&self.storage, path).await?;
        }
        let cluster = self.options.cluster.unwrap_or_default();
        let stated = Stated { index_crc: named.flatten(), ..Stated::listed(len) };
        let found = runs::read_index(&self.storage, path, stated, cluster).await;
        let index = match found {
            Ok(found) => {
                for (position, what) in found.repaired {
                    let (file, end, loss) = (path.to_string(), None, Loss::Copied);
                    report.add(Damage { file, position, end, what, loss });
                }
                found.index
            }
            Err(RunFileError::Storage(error)) => return Err(error),
            Err(RunFileError::Corrupt { position, what, .. }) => {
                report.add(Damage { file: path.to_string(), position, end: None, what, loss });
                progress(len);
                return Ok(report);
            }
        };
        let mut told = 0;
        let mut runs = Vec::with_capacity(index.runs.len());
        for run in &index.runs {
            runs.push(verify(&self.storage, run, &mut report, loss).await?);
            // A cut file has fewer.
            let read = run.bytes.min(len.saturating_sub(told));
            progress(read);
            told += read;
        }
        progress(len.saturating_sub(told));
        report.damage.sort_by_key(|damage| damage.position);
        let manifest = manifest(&index);
        report.content = Some(Content::Runs(RunsReport {
            runs,
            manifest,
            named: named.map(|crc| crc.is_some()),
        }));
        Ok(report)
    }
}

fn manifest(index: &RunIndex) -> Vec<ManifestSegment> {
    let Some(partition) = index.runs.first().map(|run| run.partition) else { return Vec::new() };
    let name = |segment: &runs::SegmentEntry| ManifestSegment {
        path: segment.path(partition),
        base_offset: segment.base_offset,
        end_offset: segment.end_offset,
        file_bytes: segment.file_bytes,
    };
    index.manifest.iter().map(name).collect()
}

/// Where block `at` of `run` ends.
fn end_of(run: &RunEntry, at: usize) -> u64 {
    run.blocks.get(at + 1).map_or(run.position + run.bytes, |next| next.position)
}

/// Verifies all blocks of one run, a window at a time.
async fn verify(
    storage: &Arc<dyn Storage>,
    run: &RunEntry,
    report: &mut FileReport,
    loss: Loss,
) -> Result<RunReport, StorageError> {
    let mut out = RunReport {
        partition: run.partition,
        leader_epoch: run.leader_epoch,
        base_offset: run.base_offset,
        end_offset: run.end_offset,
        position: run.position,
        bytes: run.bytes,
        blocks: run.blocks.len() as u64,
        blocks_verified: 0,
        batches: 0,
        records: 0,
        producers: run.producers.len() as u64,
        epochs: run.epochs.starts().to_vec(),
    };
    let file = report.path.to_string();
    let mut next_offset = run.base_offset;
    let mut first = 0;
    while let Some(start) = run.blocks.get(first).map(|block| block.position) {
        let mut last = first;
        while last + 1 < run.blocks.len() && end_of(run, last + 1) - start <= WINDOW_BYTES {
            last += 1;
        }
        let bytes = match runs::read_exact(storage, &report.path, start, end_of(run, last)).await {
            Ok(bytes) => bytes,
            Err(RunFileError::Storage(error)) => return Err(error),
            Err(RunFileError::Corrupt { position, what, .. }) => {
                report.add(Damage { file: file.clone(), position, end: None, what, loss });
                return Ok(out);
            }
        };
        for at in first..=last {
            let Some(block) = run.blocks.get(at) else { continue };
            let end = end_of(run, at);
            // Both lie in what was read.
            let block_bytes =
                bytes.slice((block.position - start) as usize..(end - start) as usize);
            match check_block(block, &block_bytes, &mut next_offset, run.end_offset) {
                Ok(counts) => {
                    out.blocks_verified += 1;
                    out.batches += counts.batches;
                    out.records += counts.records;
                }
                Err((position, what)) => {
                    let end = Some(end);
                    report.add(Damage { file: file.clone(), position, end, what, loss });
                }
            }
        }
        first = last + 1;
    }
    Ok(out)
}

struct BlockCounts {
    batches: u64,
    records: u64,
}

/// Checks one block and the batches in it; the error has a position in the file. Offsets rise from
/// `next_offset` and stay below `end_offset`.
fn check_block(
    block: &Block,
    bytes: &Bytes,
    next_offset: &mut i64,
    end_offset: i64,
) -> Result<BlockCounts, (u64, String)> {
    if crc32c(bytes) != block.crc {
        return Err((block.position, "checksum mismatch in a block".into()));
    }
    let mut counts = BlockCounts { batches: 0, records: 0 };
    for batch in batches(bytes) {
        let (at, header) = batch.map_err(|(at, what)| (block.position + at as u64, what))?;
        let position = block.position + at as u64;
        let batch = bytes.get(at..at + header.total_bytes()).unwrap_or_default();
        verify_crc(batch).map_err(|error| (position, error.to_string()))?;
        if header.base_offset < *next_offset || header.last_offset() >= end_offset {
            let (base, last) = (header.base_offset, header.last_offset());
            return Err((position, format!("offsets {base} to {last} do not belong here")));
        }
        *next_offset = header.last_offset() + 1;
        counts.batches += 1;
        counts.records += u64::try_from(header.records_count).unwrap_or(0);
    }
    Ok(counts)
}

/// The batches that lie back to back in `bytes`, with their positions in it; ends at the first error.
pub(super) fn batches(
    bytes: &Bytes,
) -> impl Iterator<Item = Result<(usize, BatchHeader), (usize, String)>> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = bytes.get(at..).filter(|rest| !rest.is_empty())?;
        let here = at;
        let header = BatchHeader::parse(rest).map_err(|error| error.to_string());
        let header = header.and_then(|header| match header.total_bytes() <= rest.len() {
            true => Ok(header),
            false => Err("a batch leaves its block".into()),
        });
        // Nothing can be told about what follows a broken one.
        at = header.as_ref().map_or(bytes.len(), |header| here + header.total_bytes());
        Some(header.map(|header| (here, header)).map_err(|what| (here, what)))
    })
}
