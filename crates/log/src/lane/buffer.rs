//! The buffer that is being filled: frames in the order in which they were accepted.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use talos_common::{ByteLease, LeaderEpoch};
use tokio::sync::oneshot;

use crate::format::{self, BATCH_PREFIX_BYTES, BatchMeta, Frame, toggle_mask};
use crate::partition::PartitionLog;
use crate::tail_cache::Slab;

/// Chunks are at least this large, so that many small flushes share one allocation.
const CHUNK_BYTES: usize = 1 << 20;

/// A batch on its way into the lane.
#[derive(Debug)]
pub(crate) struct BatchFrame {
    /// Hears when the batch is durable.
    pub(crate) partition: Arc<PartitionLog>,
    /// What the frame says about the batch.
    pub(crate) meta: BatchMeta,
    /// Offset of the first record.
    pub(crate) base_offset: i64,
    /// Offset of the last record (inclusive).
    pub(crate) last_offset: i64,
    /// The leader epoch that accepted the batch.
    pub(crate) accepted_epoch: LeaderEpoch,
    /// Largest timestamp in it, in milliseconds.
    pub(crate) max_timestamp: i64,
    /// The lane's room that the batch takes until it is durable.
    pub(crate) _lease: Option<ByteLease>,
}

/// A batch in a buffer.
#[derive(Debug)]
pub(crate) struct PlacedBatch {
    pub(crate) frame: BatchFrame,
    /// In which chunk.
    pub(crate) chunk: usize,
    /// Where in the chunk the record batch starts.
    pub(crate) start: usize,
    /// Bytes of the record batch.
    pub(crate) length: u32,
}

/// A stretch of frames and the allocation that it lies in.
#[derive(Debug)]
pub(crate) struct Chunk<B> {
    pub(crate) bytes: B,
    pub(crate) slab: Arc<Slab>,
}

#[derive(Debug, Default)]
pub(crate) struct Buffer {
    full: Vec<Chunk<BytesMut>>,
    current: BytesMut,
    /// Of `current`; `None` as long as that is empty memory.
    slab: Option<Arc<Slab>>,
    /// Chunk and start of every frame.
    frames: Vec<(usize, usize)>,
    batches: Vec<PlacedBatch>,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Buffer {
    /// Bytes of all frames.
    pub(crate) fn bytes(&self) -> usize {
        self.full.iter().map(|chunk| chunk.bytes.len()).sum::<usize>() + self.current.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty() && self.waiting.is_empty()
    }

    /// Makes room for `bytes` in the current chunk.
    fn reserve(&mut self, bytes: usize) {
        if self.current.capacity() - self.current.len() >= bytes {
            return;
        }
        let size = bytes.max(CHUNK_BYTES);
        let full = std::mem::replace(&mut self.current, BytesMut::with_capacity(size));
        if let Some(slab) = self.slab.replace(Slab::new(size))
            && !full.is_empty()
        {
            self.full.push(Chunk { bytes: full, slab });
        }
    }

    pub(crate) fn push_batch(&mut self, frame: BatchFrame, bytes: &[u8]) {
        self.reserve(BATCH_PREFIX_BYTES + bytes.len());
        let (chunk, start) = (self.full.len(), self.current.len());
        let out = &mut self.current;
        format::put_batch(out, &frame.meta, bytes, frame.base_offset, frame.accepted_epoch);
        self.frames.push((chunk, start));
        // A batch is below MAX_FRAME_BYTES.
        let length = bytes.len() as u32;
        let start = start + BATCH_PREFIX_BYTES;
        self.batches.push(PlacedBatch { frame, chunk, start, length });
    }

    pub(crate) fn push_frame(&mut self, frame: &Frame) {
        let mut bytes = BytesMut::new();
        format::put_frame(&mut bytes, frame);
        self.reserve(bytes.len());
        self.frames.push((self.full.len(), self.current.len()));
        self.current.extend_from_slice(&bytes);
    }

    pub(crate) fn notify(&mut self, durable: oneshot::Sender<()>) {
        self.waiting.push(durable);
    }

    /// Takes everything; what is left of the current chunk is filled on.
    pub(crate) fn take(&mut self) -> Filled {
        let mut chunks = std::mem::take(&mut self.full);
        let last = self.current.split();
        if let Some(slab) = self.slab.clone().filter(|_| !last.is_empty()) {
            chunks.push(Chunk { bytes: last, slab });
        }
        let bytes = chunks.iter().map(|chunk| chunk.bytes.len()).sum();
        Filled {
            chunks,
            frames: std::mem::take(&mut self.frames),
            batches: std::mem::take(&mut self.batches),
            waiting: std::mem::take(&mut self.waiting),
            bytes,
        }
    }
}

/// What goes into one flush, tied to no file yet.
#[derive(Debug)]
pub(crate) struct Filled {
    chunks: Vec<Chunk<BytesMut>>,
    frames: Vec<(usize, usize)>,
    pub(crate) batches: Vec<PlacedBatch>,
    pub(crate) waiting: Vec<oneshot::Sender<()>>,
    /// Bytes of all frames.
    pub(crate) bytes: usize,
}

impl Filled {
    /// How many frames it holds.
    pub(crate) fn frame_count(&self) -> usize {
        self.frames.len()
    }

    /// Ties the frames to the file with `mask` and gives the chunks to write.
    pub(crate) fn tie(mut self, mask: u32) -> Tied {
        for (chunk, start) in &self.frames {
            if let Some(chunk) = self.chunks.get_mut(*chunk) {
                toggle_mask(&mut chunk.bytes, *start, mask);
            }
        }
        let freeze = |Chunk { bytes, slab }: Chunk<BytesMut>| Chunk { bytes: bytes.freeze(), slab };
        let chunks = self.chunks.into_iter().map(freeze).collect();
        let Self { frames, batches, waiting, bytes, .. } = self;
        Tied { chunks, mask, frames, batches, waiting, bytes }
    }
}

/// A flush whose frames are tied to a file.
#[derive(Debug)]
pub(crate) struct Tied {
    pub(crate) chunks: Vec<Chunk<Bytes>>,
    mask: u32,
    frames: Vec<(usize, usize)>,
    pub(crate) batches: Vec<PlacedBatch>,
    pub(crate) waiting: Vec<oneshot::Sender<()>>,
    bytes: usize,
}

impl Tied {
    /// The same frames, tied to no file, for another one. Copies only what others still read.
    pub(crate) fn untie(self) -> Filled {
        let Self { chunks, mask, frames, batches, waiting, bytes } = self;
        let owned = |Chunk { bytes, slab }: Chunk<Bytes>| match bytes.try_into_mut() {
            Ok(bytes) => Chunk { bytes, slab },
            Err(shared) => Chunk { bytes: shared[..].into(), slab: Slab::new(shared.len()) },
        };
        let mut chunks: Vec<_> = chunks.into_iter().map(owned).collect();
        for (chunk, start) in &frames {
            if let Some(chunk) = chunks.get_mut(*chunk) {
                toggle_mask(&mut chunk.bytes, *start, mask);
            }
        }
        Filled { chunks, frames, batches, waiting, bytes }
    }
}
