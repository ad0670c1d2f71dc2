//! Files sorted by partition and offset: *sorted journals* (many partitions, in a broker directory) and
//! *segments* (one partition, named by its root). One format for both.
//!
//! ```text
//! label    88 bytes: what the file is, its length, length and CRC-32C of the index
//! index    one entry for each run (see [`RunEntry`]); in a segment, then the manifest
//! runs     record batches back to back, one run after the other
//! index    the same bytes again
//! label    the same bytes again
//! ```
//!
//! Numbers are little-endian. Label and index are derived from the runs, and lie far apart twice, so that
//! no single damage takes them. A run is cut into blocks of whole batches, each with a CRC-32C in the
//! index that covers all its bytes, base offsets and leader epochs included: a read takes whole blocks
//! and checks them.

mod label;
mod reader;

use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use talos_common::{LeaderEpoch, TopicId, TopicPartitionId};
use talos_protocol::batch::{BatchHeader, crc32c};
use talos_storage::FilePath;

use crate::epochs::Epochs;
use crate::producers::Producers;

pub(crate) use label::LABEL_BYTES;
pub(crate) use reader::{
    RunFileError, Stated, read_block_run, read_exact, read_index, stated_cluster,
};

use label::Label;

/// A block is closed once it has this many bytes.
const BLOCK_BYTES: u64 = 64 << 10;
const INDEX_VERSION: u8 = 1;

/// A stretch of whole batches of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Offset of the first record.
    pub(crate) base_offset: i64,
    /// Where it starts in the file; it ends where the next begins, the last with its run.
    pub(crate) position: u64,
    /// Largest timestamp in it, in milliseconds.
    pub(crate) max_timestamp: i64,
    /// CRC-32C of its bytes.
    pub(crate) crc: u32,
}

/// One run as the index has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RunEntry {
    pub(crate) partition: TopicPartitionId,
    /// The leader epoch that wrote the file.
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) base_offset: i64,
    /// Exclusive.
    pub(crate) end_offset: i64,
    pub(crate) position: u64,
    pub(crate) bytes: u64,
    /// The log's leader epochs up to the end of the run.
    pub(crate) epochs: Epochs,
    /// Producer state at the end of the run: the fold of everything below it.
    pub(crate) producers: Producers,
    pub(crate) blocks: Arc<[Block]>,
}

/// One live segment, as the manifest in the head's footer names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SegmentEntry {
    pub(crate) base_offset: i64,
    /// Exclusive.
    pub(crate) end_offset: i64,
    pub(crate) leader_epoch: LeaderEpoch,
    pub(crate) attempt: u64,
    /// Bytes of its batches.
    pub(crate) bytes: u64,
    /// Bytes of the whole file.
    pub(crate) file_bytes: u64,
    pub(crate) max_timestamp: i64,
}

impl SegmentEntry {
    pub(crate) fn path(&self, partition: TopicPartitionId) -> FilePath {
        FilePath::Segment {
            partition,
            base_offset: self.base_offset,
            leader_epoch: self.leader_epoch,
            attempt: self.attempt,
        }
    }
}

/// The index of a run file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunIndex {
    pub(crate) runs: Vec<RunEntry>,
    /// All live segments up to and with this one, oldest first; empty in a sorted journal.
    pub(crate) manifest: Vec<SegmentEntry>,
}

/// Builds a run file in memory; its callers keep it below a few dozen MiB.
#[derive(Debug, Default)]
pub(crate) struct RunFileBuilder {
    parts: Vec<Bytes>,
    /// Bytes of `parts`; positions count from the first run until the index in front has a length.
    position: u64,
    runs: Vec<RunEntry>,
    /// Bytes that the runs take in the index, about.
    index_bytes: u64,
}

/// How much of a file there was at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    parts: usize,
    position: u64,
}

/// A run that is being written.
#[derive(Debug)]
pub(crate) struct OpenRun {
    partition: TopicPartitionId,
    leader_epoch: LeaderEpoch,
    base_offset: i64,
    end_offset: i64,
    position: u64,
    blocks: Vec<Block>,
    /// Batches of the block that is being filled.
    block: Vec<Bytes>,
    block_bytes: u64,
    block_time: i64,
}

impl OpenRun {
    /// Offset behind its last record so far (exclusive).
    pub(crate) fn end_offset(&self) -> i64 {
        self.end_offset
    }
}

impl RunFileBuilder {
    /// Bytes so far, those of both indexes too: producer states may take more than batches.
    pub(crate) fn bytes(&self) -> u64 {
        self.position + 2 * (LABEL_BYTES + self.index_bytes)
    }

    /// How much there is, before a run is begun.
    pub(crate) fn mark(&self) -> Mark {
        Mark { parts: self.parts.len(), position: self.position }
    }

    /// Takes back what was added since `mark`: a run that was begun and will not be ended.
    pub(crate) fn rollback(&mut self, mark: Mark) {
        self.parts.truncate(mark.parts);
        self.position = mark.position;
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Begins a run whose first record has `base_offset`.
    pub(crate) fn begin(
        &self,
        partition: TopicPartitionId,
        leader_epoch: LeaderEpoch,
        base_offset: i64,
    ) -> OpenRun {
        OpenRun {
            partition,
            leader_epoch,
            base_offset,
            end_offset: base_offset,
            position: self.position,
            blocks: Vec::new(),
            block: Vec::new(),
            block_bytes: 0,
            block_time: i64::MIN,
        }
    }

    /// Adds one checked batch to the run, which must be the only open one.
    pub(crate) fn push(&mut self, run: &mut OpenRun, header: &BatchHeader, batch: Bytes) {
        run.end_offset = header.last_offset() + 1;
        run.block_bytes += batch.len() as u64;
        run.block_time = run.block_time.max(header.max_timestamp);
        if run.block.is_empty() {
            run.blocks.push(Block {
                base_offset: header.base_offset,
                position: self.position,
                max_timestamp: 0,
                crc: 0,
            });
        }
        run.block.push(batch);
        if run.block_bytes >= BLOCK_BYTES {
            self.close_block(run);
        }
    }

    fn close_block(&mut self, run: &mut OpenRun) {
        let Some(block) = run.blocks.last_mut() else { return };
        let mut bytes = BytesMut::with_capacity(run.block_bytes as usize);
        run.block.drain(..).for_each(|batch| bytes.extend_from_slice(&batch));
        block.crc = crc32c(&bytes);
        block.max_timestamp = run.block_time;
        self.position += bytes.len() as u64;
        self.parts.push(bytes.freeze());
        (run.block_bytes, run.block_time) = (0, i64::MIN);
    }

    /// Ends the run; `epochs` and `producers` are the log's up to its last record.
    pub(crate) fn end(&mut self, mut run: OpenRun, epochs: Epochs, producers: Producers) {
        if !run.block.is_empty() {
            self.close_block(&mut run);
        }
        let (starts, blocks) = (epochs.starts().len() as u64, run.blocks.len() as u64);
        self.index_bytes += 64 + 12 * starts + producers.encoded_bytes() + 28 * blocks;
        self.runs.push(RunEntry {
            partition: run.partition,
            leader_epoch: run.leader_epoch,
            base_offset: run.base_offset,
            end_offset: run.end_offset,
            position: run.position,
            bytes: self.position - run.position,
            epochs,
            producers,
            blocks: run.blocks.into(),
        });
    }

    /// The runs ended so far.
    pub(crate) fn runs(&self) -> &[RunEntry] {
        &self.runs
    }

    /// The whole file `path` in parts, and its index. `manifest` names the segments before this one,
    /// oldest first; `itself` is this one, whose `file_bytes` is filled in (`None` in a sorted journal).
    pub(crate) fn finish(
        self,
        cluster: [u8; 16],
        path: &FilePath,
        manifest: Vec<SegmentEntry>,
        itself: Option<SegmentEntry>,
    ) -> Finished {
        let mut index = RunIndex { runs: self.runs, manifest };
        index.manifest.extend(itself);
        let mut out = BytesMut::new();
        index.encode(&mut out);
        let before_runs = LABEL_BYTES + out.len() as u64;
        let bytes = self.position + 2 * before_runs;
        if let Some(last) = index.manifest.last_mut().filter(|_| itself.is_some()) {
            // Its width does not depend on its value.
            last.file_bytes = bytes;
            out.clear();
            index.encode(&mut out);
        }
        index.shift(before_runs);
        let index_crc = crc32c(&out);
        // An index describes at most some dozen MiB of batches and the manifest.
        let index_bytes = out.len() as u32;
        let label = Label { cluster, path: path.clone(), bytes, index_bytes, index_crc };
        let (label, encoded) = (label.encode().freeze(), out.freeze());
        let mut parts = Vec::with_capacity(self.parts.len() + 4);
        parts.extend([label.clone(), encoded.clone()]);
        parts.extend(self.parts);
        parts.extend([encoded, label]);
        Finished { parts, index, bytes, index_crc }
    }
}

/// A run file that can be published.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) parts: Vec<Bytes>,
    pub(crate) index: RunIndex,
    /// Of all parts.
    pub(crate) bytes: u64,
    pub(crate) index_crc: u32,
}

impl RunIndex {
    /// With positions that count from the first run.
    fn encode(&self, out: &mut BytesMut) {
        out.put_u8(INDEX_VERSION);
        out.put_u32_le(self.runs.len() as u32);
        for run in &self.runs {
            out.put_slice(&run.partition.topic.0);
            out.put_i32_le(run.partition.partition);
            out.put_i32_le(run.leader_epoch.0);
            out.put_i64_le(run.base_offset);
            out.put_i64_le(run.end_offset);
            out.put_u64_le(run.position);
            out.put_u64_le(run.bytes);
            out.put_u32_le(run.epochs.starts().len() as u32);
            for (epoch, start) in run.epochs.starts() {
                out.put_i32_le(epoch.0);
                out.put_i64_le(*start);
            }
            run.producers.encode(out);
            out.put_u32_le(run.blocks.len() as u32);
            for block in run.blocks.iter() {
                out.put_i64_le(block.base_offset);
                out.put_u64_le(block.position);
                out.put_i64_le(block.max_timestamp);
                out.put_u32_le(block.crc);
            }
        }
        out.put_u32_le(self.manifest.len() as u32);
        for segment in &self.manifest {
            out.put_i64_le(segment.base_offset);
            out.put_i64_le(segment.end_offset);
            out.put_i32_le(segment.leader_epoch.0);
            out.put_u64_le(segment.attempt);
            out.put_u64_le(segment.bytes);
            out.put_u64_le(segment.file_bytes);
            out.put_i64_le(segment.max_timestamp);
        }
    }

    /// Turns positions that count from the first run into positions in the file.
    fn shift(&mut self, before_runs: u64) {
        for run in &mut self.runs {
            run.position += before_runs;
            let shifted =
                |block: &Block| Block { position: block.position + before_runs, ..*block };
            run.blocks = run.blocks.iter().map(shifted).collect();
        }
    }

    /// Reads what `encode` wrote of runs that take `run_bytes` in all; `None` for all other bytes.
    fn decode(mut bytes: Bytes, run_bytes: u64) -> Option<Self> {
        let from = &mut bytes;
        if from.try_get_u8().ok()? != INDEX_VERSION {
            return None;
        }
        let mut index = Self::default();
        for _ in 0..from.try_get_u32_le().ok()? {
            let run = RunEntry::decode(from)?;
            if run.position + run.bytes > run_bytes {
                return None;
            }
            index.runs.push(run);
        }
        for _ in 0..from.try_get_u32_le().ok()? {
            index.manifest.push(SegmentEntry {
                base_offset: from.try_get_i64_le().ok()?,
                end_offset: from.try_get_i64_le().ok()?,
                leader_epoch: LeaderEpoch(from.try_get_i32_le().ok()?),
                attempt: from.try_get_u64_le().ok()?,
                bytes: from.try_get_u64_le().ok()?,
                file_bytes: from.try_get_u64_le().ok()?,
                max_timestamp: from.try_get_i64_le().ok()?,
            });
        }
        from.is_empty().then_some(index)
    }
}

impl RunEntry {
    fn decode(from: &mut Bytes) -> Option<Self> {
        let mut topic = [0_u8; 16];
        from.try_copy_to_slice(&mut topic).ok()?;
        let partition = from.try_get_i32_le().ok()?;
        let partition = TopicPartitionId { topic: TopicId(topic), partition };
        let leader_epoch = LeaderEpoch(from.try_get_i32_le().ok()?);
        let (base_offset, end_offset) = (from.try_get_i64_le().ok()?, from.try_get_i64_le().ok()?);
        let (position, bytes) = (from.try_get_u64_le().ok()?, from.try_get_u64_le().ok()?);
        let mut epochs = Epochs::default();
        for _ in 0..from.try_get_u32_le().ok()? {
            let epoch = LeaderEpoch(from.try_get_i32_le().ok()?);
            epochs.note(epoch, from.try_get_i64_le().ok()?);
        }
        let producers = Producers::decode(from)?;
        let mut blocks = Vec::new();
        for _ in 0..from.try_get_u32_le().ok()? {
            blocks.push(Block {
                base_offset: from.try_get_i64_le().ok()?,
                position: from.try_get_u64_le().ok()?,
                max_timestamp: from.try_get_i64_le().ok()?,
                crc: from.try_get_u32_le().ok()?,
            });
        }
        let sound = base_offset <= end_offset
            && position.checked_add(bytes).is_some()
            && blocks.is_empty() == (bytes == 0)
            && blocks.windows(2).all(|pair| pair[0].position < pair[1].position)
            && blocks.first().is_none_or(|first| first.position == position)
            && blocks.last().is_none_or(|last| last.position < position + bytes);
        sound.then(|| Self {
            partition,
            leader_epoch,
            base_offset,
            end_offset,
            position,
            bytes,
            epochs,
            producers,
            blocks: blocks.into(),
        })
    }

    /// Largest timestamp in the run, in milliseconds; `i64::MIN` when it is empty.
    pub(crate) fn max_timestamp(&self) -> i64 {
        self.blocks.iter().map(|block| block.max_timestamp).max().unwrap_or(i64::MIN)
    }
}

#[cfg(test)]
mod tests;
