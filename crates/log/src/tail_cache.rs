//! The newest flushed buffers, kept within a byte budget: a fetch at the tail is slices of them.
//!
//! The cache only decides what stays in memory. Who reads holds a weak link to the piece it needs;
//! when the link is dead the piece was evicted and its bytes are read from the file (E-J8).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;

/// One stretch of a journal file that is still in memory.
#[derive(Debug)]
pub struct Piece {
    /// Position of its first byte in the file.
    pub start: u64,
    /// The bytes as they were written.
    pub bytes: Bytes,
}

impl Piece {
    /// The bytes at `position..position + length` of the file, if they lie in this piece.
    pub fn slice(&self, position: u64, length: u32) -> Option<Bytes> {
        let from = usize::try_from(position.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(usize::try_from(length).ok()?)?;
        (to <= self.bytes.len()).then(|| self.bytes.slice(from..to))
    }
}

/// The pieces, oldest out first. Clones share one cache.
#[derive(Clone, Debug)]
pub struct TailCache {
    inner: Arc<Mutex<Inner>>,
    limit_bytes: usize,
}

#[derive(Debug, Default)]
struct Inner {
    pieces: VecDeque<Arc<Piece>>,
    bytes: usize,
}

/// What one piece costs besides its bytes.
const PIECE_OVERHEAD_BYTES: usize = 128;

impl TailCache {
    /// A cache of at most `limit_bytes`; 0 keeps nothing.
    pub fn new(limit_bytes: usize) -> Self {
        Self { inner: Arc::default(), limit_bytes }
    }

    /// Keeps `piece`, evicting older ones as needed.
    pub fn insert(&self, piece: Arc<Piece>) {
        let mut evicted = Vec::new();
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        inner.bytes += piece.bytes.len() + PIECE_OVERHEAD_BYTES;
        inner.pieces.push_back(piece);
        while inner.bytes > self.limit_bytes {
            let Some(oldest) = inner.pieces.pop_front() else { break };
            inner.bytes -= oldest.bytes.len() + PIECE_OVERHEAD_BYTES;
            evicted.push(oldest);
        }
        // Freed outside the lock.
        drop(inner);
    }

    /// Bytes held now, overhead included.
    pub fn bytes(&self) -> usize {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner).bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_pieces_are_evicted_and_slices_stay_inside_their_piece() {
        let cache = TailCache::new(1_000);
        let piece = |start| Arc::new(Piece { start, bytes: Bytes::from(vec![7; 300]) });
        let first = Arc::downgrade(&{
            let first = piece(0);
            cache.insert(Arc::clone(&first));
            first
        });
        assert!(first.upgrade().is_some());
        for n in 1..4 {
            cache.insert(piece(n * 300));
        }
        assert!(first.upgrade().is_none());
        assert!(cache.bytes() <= 1_000);
        let piece = piece(100);
        assert_eq!(piece.slice(150, 250).map(|b| b.len()), Some(250));
        assert!(piece.slice(150, 251).is_none());
        assert!(piece.slice(99, 1).is_none());
    }
}
