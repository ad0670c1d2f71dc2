//! The memory of all groups of one broker (P7): members, offsets and what waits to be written.
//!
//! Invariant: what a shard holds is counted here from its making to its end. The limit refuses what is
//! new; what is there may grow by a quarter beyond it, so that groups that exist can go on rebalancing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use talos_common::ByteBudget;

/// The memory of all groups of one broker.
#[derive(Debug)]
pub struct GroupMemory {
    limit_bytes: usize,
    used_bytes: AtomicUsize,
    /// Said in the log since it was last below the limit.
    said: AtomicBool,
    waiting: ByteBudget,
}

/// What one shard counts; taken back when dropped.
#[derive(Debug)]
pub(super) struct Account {
    memory: Arc<GroupMemory>,
    bytes: usize,
}

impl GroupMemory {
    /// At most about `limit_bytes` for groups, and `waiting_bytes` for requests that wait for an append.
    pub fn new(limit_bytes: usize, waiting_bytes: usize) -> Self {
        Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            said: AtomicBool::new(false),
            waiting: ByteBudget::new(waiting_bytes),
        }
    }

    /// About how much all groups take now, in bytes.
    pub fn used_bytes(&self) -> usize {
        self.used_bytes.load(Ordering::Relaxed)
    }

    /// Whether nothing new has room.
    pub(super) fn is_full(&self) -> bool {
        let (used_bytes, limit_bytes) = (self.used_bytes(), self.limit_bytes);
        let full = used_bytes >= limit_bytes;
        if !full {
            self.said.store(false, Ordering::Relaxed);
        } else if !self.said.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                used_bytes,
                limit_bytes,
                "new groups, members and offsets are refused: see memory.groups"
            );
        }
        full
    }

    /// Whether what is there has no room to grow by `bytes`.
    pub(super) fn is_beyond(&self, bytes: usize) -> bool {
        let limit_bytes = self.limit_bytes.saturating_add(self.limit_bytes / 4);
        self.used_bytes().saturating_add(bytes) > limit_bytes
    }

    /// The budget of requests that wait for an append.
    pub(super) fn waiting(&self) -> &ByteBudget {
        &self.waiting
    }
}

impl Account {
    pub(super) fn new(memory: Arc<GroupMemory>) -> Self {
        Self { memory, bytes: 0 }
    }

    pub(super) fn memory(&self) -> &GroupMemory {
        &self.memory
    }

    pub(super) fn set(&mut self, bytes: usize) {
        let used_bytes = &self.memory.used_bytes;
        if bytes >= self.bytes {
            used_bytes.fetch_add(bytes - self.bytes, Ordering::Relaxed);
        } else {
            used_bytes.fetch_sub(self.bytes - bytes, Ordering::Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
    }
}
