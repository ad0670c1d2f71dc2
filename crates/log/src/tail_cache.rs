//! The newest flushed buffers, kept within a byte budget: a fetch at the tail is slices of them.
//!
//! The cache only decides what stays in memory. Who reads holds a weak link to the piece it needs;
//! when the link is dead the piece was evicted and its bytes are read from the file (E-J8).
//!
//! A slice keeps its whole slab in memory for as long as an answer waits for a slow reader. So slices
//! are given out through [`Piece::pin`] alone, which takes the slab in full from a budget: when that is
//! used up, what is read is copied instead, and memory stays bounded whoever reads how slowly (P7).

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use talos_common::{ByteBudget, ByteLease};

/// One allocation that flushed buffers lie in, and how many answers keep it from being freed.
#[derive(Debug)]
pub struct Slab {
    bytes: usize,
    pins: Mutex<Pins>,
}

#[derive(Debug, Default)]
struct Pins {
    count: usize,
    lease: Option<ByteLease>,
}

impl Slab {
    /// A slab of `bytes`.
    pub fn new(bytes: usize) -> Arc<Self> {
        Arc::new(Self { bytes, pins: Mutex::default() })
    }

    fn pins(&self) -> MutexGuard<'_, Pins> {
        self.pins.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts one more pin; the first takes the whole slab from `budget`. Whether it may be.
    fn pin(&self, budget: &ByteBudget) -> bool {
        let mut pins = self.pins();
        if pins.count == 0 {
            pins.lease = budget.try_take(self.bytes);
            if pins.lease.is_none() {
                return false;
            }
        }
        pins.count += 1;
        true
    }

    fn unpin(&self) {
        let mut pins = self.pins();
        pins.count -= 1;
        let lease = if pins.count == 0 { pins.lease.take() } else { None };
        drop(pins);
        // Wakes who waits for the budget: not under the lock.
        drop(lease);
    }
}

/// A slice that keeps its slab in memory.
struct Pinned {
    bytes: Bytes,
    slab: Arc<Slab>,
}

impl AsRef<[u8]> for Pinned {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        // First the bytes, then what is said of them.
        self.bytes = Bytes::new();
        self.slab.unpin();
    }
}

/// One stretch of a journal file that is still in memory.
#[derive(Debug)]
pub struct Piece {
    /// Position of its first byte in the file.
    start: u64,
    /// The bytes as they were written.
    bytes: Bytes,
    slab: Arc<Slab>,
}

impl Piece {
    /// The bytes at `start` of a file, which lie in `slab`.
    pub fn new(start: u64, bytes: Bytes, slab: Arc<Slab>) -> Arc<Self> {
        Arc::new(Self { start, bytes, slab })
    }

    /// The bytes at `position..position + length` of the file, if they lie in this piece: to be copied.
    pub fn get(&self, position: u64, length: u32) -> Option<&[u8]> {
        let from = usize::try_from(position.checked_sub(self.start)?).ok()?;
        let to = from.checked_add(usize::try_from(length).ok()?)?;
        self.bytes.get(from..to)
    }

    /// The same without a copy. Keeps the piece's slab in memory until it is dropped, all of which is
    /// taken from `budget` meanwhile; `None` when that is used up.
    pub fn pin(&self, position: u64, length: u32, budget: &ByteBudget) -> Option<Bytes> {
        let slice = self.bytes.slice_ref(self.get(position, length)?);
        if !self.slab.pin(budget) {
            return None;
        }
        let slab = Arc::clone(&self.slab);
        Some(Bytes::from_owner(Pinned { bytes: slice, slab }))
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
pub(crate) const PIECE_OVERHEAD_BYTES: usize = 128;

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

    fn piece(start: u64) -> Arc<Piece> {
        Piece::new(start, Bytes::from(vec![7; 300]), Slab::new(300))
    }

    #[test]
    fn the_oldest_pieces_are_evicted_and_slices_stay_inside_their_piece() {
        let cache = TailCache::new(1_000);
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
        assert_eq!(piece.get(150, 250).map(<[u8]>::len), Some(250));
        assert!(piece.get(150, 251).is_none());
        assert!(piece.get(99, 1).is_none());
    }

    #[test]
    fn p7_a_pinned_slab_counts_once_and_in_full_until_its_last_slice_goes() {
        let budget = ByteBudget::new(2_048);
        let slab = Slab::new(1_024);
        let two = [0, 100]
            .map(|start| Piece::new(start, Bytes::from(vec![start as u8; 100]), Arc::clone(&slab)));
        let first = two[0].pin(0, 10, &budget).unwrap();
        assert_eq!(budget.free_bytes(), 1_024);
        let second = two[1].pin(100, 10, &budget).unwrap();
        let clone = second.slice(2..4);
        assert_eq!(budget.free_bytes(), 1_024);
        let other = Piece::new(0, Bytes::from(vec![9; 100]), Slab::new(1_024));
        let third = other.pin(0, 1, &budget).unwrap();
        let none = Piece::new(0, Bytes::from(vec![9; 100]), Slab::new(256));
        assert!(none.pin(0, 1, &budget).is_none(), "beyond the budget");
        drop((first, second, two));
        assert_eq!((budget.free_bytes(), &clone[..]), (0, &[100, 100][..]));
        drop(clone);
        assert_eq!(budget.free_bytes(), 1_024);
        drop(third);
        assert_eq!(budget.free_bytes(), 2_048);
    }
}
