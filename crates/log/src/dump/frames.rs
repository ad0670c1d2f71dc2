//! One file in detail: each frame of a journal, or each batch of a sorted journal or segment.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use talos_common::{LeaderEpoch, TopicPartitionId};
use talos_protocol::batch::{BatchHeader, crc32c, verify_crc};
use talos_storage::{Error as StorageError, FilePath, Prefix, Storage};

use super::run_file::batches;
use crate::format::{Frame, JournalId, LanePosition};
use crate::runs::{self, RunEntry, RunFileError, Stated};
use crate::scan::cursor::Cursor;

/// The name of a frame's kind.
pub(super) fn kind_name(frame: &Frame) -> &'static str {
    match frame {
        Frame::Header(_) => "header",
        Frame::Flush(_) => "flush",
        Frame::Batch(..) => "batch",
        Frame::Open { .. } => "open",
        Frame::Published { .. } => "published",
        Frame::Index { .. } => "index",
        Frame::Catalog { .. } => "catalog",
        Frame::Sorted { .. } => "sorted",
        Frame::Close { .. } => "close",
        Frame::Note { .. } => "note",
    }
}

/// One frame or batch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FrameRow {
    /// Where it starts in the file.
    pub position: u64,
    /// Its length.
    pub bytes: u64,
    /// What it is; `unreadable` for a stretch without a readable frame.
    pub kind: &'static str,
    /// Of which partition, if it is about one.
    pub partition: Option<TopicPartitionId>,
    /// The leader epoch that wrote it.
    pub leader_epoch: Option<LeaderEpoch>,
    /// First and last offset of a batch (both inclusive).
    pub offsets: Option<(i64, i64)>,
    /// Records of a batch.
    pub records: Option<i32>,
    /// Greatest timestamp of a batch, in milliseconds since the Unix epoch.
    pub max_timestamp_ms: Option<i64>,
    /// When the leader accepted the batch, in milliseconds since the Unix epoch; in journals only.
    pub append_time_ms: Option<i64>,
    /// What else there is to say.
    pub detail: String,
}

/// Goes over one file.
pub struct Frames<'a> {
    storage: &'a Arc<dyn Storage>,
    path: FilePath,
    len: u64,
    source: Source<'a>,
}

enum Source<'a> {
    Journal(Cursor<'a>),
    /// Runs that are still to be read, the block that is next in the first of them, and what was read.
    Runs(VecDeque<RunEntry>, usize, VecDeque<FrameRow>),
    Over,
}

impl fmt::Debug for Frames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Frames").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<'a> Frames<'a> {
    /// Of the file `path`; `None` when it is not there, or holds no frames. `cluster` is needed for
    /// sorted journals and segments.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn open(
        storage: &'a Arc<dyn Storage>,
        path: &FilePath,
        cluster: [u8; 16],
    ) -> Result<Option<Self>, StorageError> {
        let Some(len) = length(storage, path).await? else { return Ok(None) };
        let source = match path {
            FilePath::Journal { dir, lane, number } => {
                let id = JournalId { dir: *dir, lane: *lane, number: *number };
                Source::Journal(Cursor::new(storage, id, len))
            }
            FilePath::Sorted { .. } | FilePath::Segment { .. } => {
                match runs::read_index(storage, path, Stated::listed(len), cluster).await {
                    Ok(found) => Source::Runs(found.index.runs.into(), 0, VecDeque::new()),
                    Err(RunFileError::Storage(error)) => return Err(error),
                    Err(RunFileError::Corrupt { position, what, .. }) => {
                        let row = unreadable(position, len.saturating_sub(position), what);
                        Source::Runs(VecDeque::new(), 0, VecDeque::from([row]))
                    }
                }
            }
            FilePath::Cluster | FilePath::SealIndex { .. } => return Ok(None),
        };
        Ok(Some(Self { storage, path: path.clone(), len, source }))
    }

    /// The next frame or batch; `None` at the end.
    ///
    /// # Errors
    /// Those of the store.
    pub async fn next(&mut self) -> Result<Option<FrameRow>, StorageError> {
        loop {
            let (row, over) = match &mut self.source {
                Source::Journal(cursor) => {
                    let (row, over) = next_frame(cursor, self.len).await?;
                    (Some(row), over)
                }
                Source::Runs(runs, at, rows) => match rows.pop_front() {
                    Some(row) => (Some(row), false),
                    None => {
                        let Some(run) = runs.front() else { return Ok(None) };
                        *rows = read_block(self.storage, &self.path, run, *at).await?;
                        *at += 1;
                        if *at >= run.blocks.len() {
                            runs.pop_front();
                            *at = 0;
                        }
                        (None, false)
                    }
                },
                Source::Over => return Ok(None),
            };
            if over {
                self.source = Source::Over;
            }
            if row.is_some() {
                return Ok(row);
            }
        }
    }
}

/// The length of `path`.
async fn length(storage: &Arc<dyn Storage>, path: &FilePath) -> Result<Option<u64>, StorageError> {
    let prefix = match path {
        FilePath::Journal { dir, .. } | FilePath::Sorted { dir, .. } => Prefix::Dir(*dir),
        FilePath::Segment { partition, .. } => Prefix::Partition(*partition),
        FilePath::Cluster | FilePath::SealIndex { .. } => return Ok(None),
    };
    let mut after = None;
    loop {
        let page = storage.list(prefix, after).await?;
        if let Some(found) = page.iter().find(|file| file.path == *path) {
            return Ok(Some(found.len));
        }
        let Some(last) = page.last() else { return Ok(None) };
        after = Some(last.path.clone());
    }
}

fn unreadable(position: u64, bytes: u64, detail: String) -> FrameRow {
    FrameRow { position, bytes, kind: "unreadable", detail, ..FrameRow::default() }
}

/// The next frame, and whether it is the file's last.
async fn next_frame(cursor: &mut Cursor<'_>, len: u64) -> Result<(FrameRow, bool), StorageError> {
    let position = cursor.position();
    match cursor.next().await? {
        Ok(frame) => {
            let over = match &frame {
                Frame::Close { .. } => true,
                Frame::Note { durable_to } => durable_to.position == position,
                _ => false,
            };
            let bytes = cursor.position() - position;
            Ok((describe(position, bytes, &frame), over))
        }
        Err(error) => {
            let found = cursor.find_next().await?;
            let bytes = found.unwrap_or(len) - position;
            Ok((unreadable(position, bytes, error.to_string()), found.is_none()))
        }
    }
}

fn batch_row(position: u64, header: &BatchHeader) -> FrameRow {
    FrameRow {
        position,
        bytes: header.total_bytes() as u64,
        kind: "batch",
        offsets: Some((header.base_offset, header.last_offset())),
        records: Some(header.records_count),
        max_timestamp_ms: Some(header.max_timestamp),
        detail: match header.has_producer_id() {
            true => format!(
                "accepted under epoch {}, producer {} epoch {} sequence {}",
                header.partition_leader_epoch,
                header.producer_id,
                header.producer_epoch,
                header.base_sequence
            ),
            false => format!("accepted under epoch {}", header.partition_leader_epoch),
        },
        ..FrameRow::default()
    }
}

fn at(position: LanePosition) -> String {
    format!("{}:{}", position.file, position.position)
}

fn describe(position: u64, bytes: u64, frame: &Frame) -> FrameRow {
    let mut row = FrameRow { position, bytes, kind: kind_name(frame), ..FrameRow::default() };
    match frame {
        Frame::Header(header) => {
            row.detail = format!(
                "{}, durable to {}, {} bytes preallocated",
                header.id.path(),
                at(header.durable_to),
                header.preallocated_bytes
            );
        }
        Frame::Flush(flush) => {
            row.detail = format!(
                "number {}, {} frames, {} bytes, durable to {}",
                flush.sequence,
                flush.frames,
                flush.flush_bytes,
                at(flush.durable_to)
            );
        }
        Frame::Batch(meta, batch) => {
            match BatchHeader::parse(batch) {
                Ok(header) => row = FrameRow { bytes, ..batch_row(position, &header) },
                Err(error) => row.detail = error.to_string(),
            }
            row.partition = Some(meta.partition);
            row.leader_epoch = Some(meta.leader_epoch);
            row.append_time_ms = Some(meta.append_time_ms);
        }
        Frame::Open { partition, leader_epoch, epoch_start } => {
            row.partition = Some(*partition);
            row.leader_epoch = Some(*leader_epoch);
            row.detail = format!("own records from offset {epoch_start}");
        }
        Frame::Published { partition, end_offset, root_generation } => {
            row.partition = Some(*partition);
            row.detail = format!("root generation {root_generation} covers to {end_offset}");
        }
        Frame::Index { since, entries } => {
            row.detail = format!("{} partitions since {}", entries.len(), at(*since));
        }
        Frame::Catalog { generation, replaced_below, files, partitions } => {
            row.detail = format!(
                "generation {generation}: {files} sorted journals with runs of {partitions} partitions \
                 replace files below {replaced_below}"
            );
        }
        Frame::Sorted { generation, files, partitions } => {
            let numbers: Vec<u64> = files.iter().map(|file| file.number).collect();
            let partitions = partitions.len();
            row.detail = format!(
                "generation {generation}: sorted journals {numbers:?}, {partitions} partitions"
            );
        }
        Frame::Close { next_file } => row.detail = format!("goes on in file {next_file}"),
        Frame::Note { durable_to } => row.detail = format!("durable to {}", at(*durable_to)),
    }
    row
}

/// The batches of one block of `run`.
async fn read_block(
    storage: &Arc<dyn Storage>,
    path: &FilePath,
    run: &RunEntry,
    number: usize,
) -> Result<VecDeque<FrameRow>, StorageError> {
    let Some(block) = run.blocks.get(number) else { return Ok(VecDeque::new()) };
    let start = block.position;
    let end = run.blocks.get(number + 1).map_or(run.position + run.bytes, |next| next.position);
    let bytes = match runs::read_exact(storage, path, start, end).await {
        Ok(bytes) => bytes,
        Err(RunFileError::Storage(error)) => return Err(error),
        Err(RunFileError::Corrupt { position, what, .. }) => {
            return Ok(VecDeque::from([unreadable(position, end - position, what)]));
        }
    };
    if crc32c(&bytes) != block.crc {
        let what = "checksum mismatch in a block".into();
        return Ok(VecDeque::from([unreadable(start, end - start, what)]));
    }
    Ok(batches(&bytes).map(|batch| row_of(run, start, &bytes, batch)).collect())
}

fn row_of(
    run: &RunEntry,
    start: u64,
    bytes: &Bytes,
    batch: Result<(usize, BatchHeader), (usize, String)>,
) -> FrameRow {
    match batch {
        Ok((at, header)) => {
            let mut row = batch_row(start + at as u64, &header);
            row.partition = Some(run.partition);
            row.leader_epoch = Some(run.leader_epoch);
            let batch = bytes.get(at..at + header.total_bytes()).unwrap_or_default();
            if let Err(error) = verify_crc(batch) {
                (row.kind, row.detail) = ("unreadable", error.to_string());
            }
            row
        }
        Err((at, what)) => {
            unreadable(start + at as u64, bytes.len().saturating_sub(at) as u64, what)
        }
    }
}
