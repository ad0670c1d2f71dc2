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
    /// Bytes that wait in the queues of all shards, whether or not somebody waits for them.
    queued_bytes: AtomicUsize,
}

/// What one shard counts; taken back when dropped.
#[derive(Debug)]
pub(super) struct Account {
    memory: Arc<GroupMemory>,
    bytes: usize,
    queued_bytes: usize,
}

impl GroupMemory {
    /// At most about `limit_bytes` for groups, and `waiting_bytes` for requests that wait for an append,
    /// and as much for what is to be appended.
    pub fn new(limit_bytes: usize, waiting_bytes: usize) -> Self {
        Self {
            limit_bytes,
            used_bytes: AtomicUsize::new(0),
            said: AtomicBool::new(false),
            waiting: ByteBudget::new(waiting_bytes),
            queued_bytes: AtomicUsize::new(0),
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

    /// Whether so much waits to be appended that only what is small may join it.
    pub(super) fn is_queue_full(&self) -> bool {
        self.queued_bytes.load(Ordering::Relaxed) >= self.waiting.limit_bytes()
    }

    /// The budget of requests that wait for an append.
    pub(super) fn waiting(&self) -> &ByteBudget {
        &self.waiting
    }
}

impl Account {
    pub(super) fn new(memory: Arc<GroupMemory>) -> Self {
        Self { memory, bytes: 0, queued_bytes: 0 }
    }

    pub(super) fn memory(&self) -> &GroupMemory {
        &self.memory
    }

    pub(super) fn set(&mut self, bytes: usize) {
        change(&self.memory.used_bytes, self.bytes, bytes);
        self.bytes = bytes;
    }

    pub(super) fn set_queued(&mut self, bytes: usize) {
        change(&self.memory.queued_bytes, self.queued_bytes, bytes);
        self.queued_bytes = bytes;
    }
}

fn change(count: &AtomicUsize, from: usize, to: usize) {
    if to >= from {
        count.fetch_add(to - from, Ordering::Relaxed);
    } else {
        count.fetch_sub(from - to, Ordering::Relaxed);
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        self.set(0);
        self.set_queued(0);
    }
}
