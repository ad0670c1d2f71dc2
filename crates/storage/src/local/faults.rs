//! Faults of a real local disk, switched by tests: a shared handle with switches and counts. A store
//! that was opened without one pays for a single test of an `Option` per call.

use std::collections::BTreeMap;
use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use tokio::sync::watch;

/// A fault that happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DiskFault {
    /// No room was found.
    Full,
    /// A write failed.
    WriteError,
    /// A write wrote less than it was given.
    ShortWrite,
    /// A sync failed.
    SyncError,
    /// A sync stood still for a while.
    SyncStall,
}

/// The switches. Clones share everything.
#[derive(Clone, Debug)]
pub struct DiskFaults {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    moved_on: Condvar,
    /// How many syncs stand still now.
    stalled: watch::Sender<usize>,
}

#[derive(Debug, Default)]
struct State {
    full: bool,
    sync_error: bool,
    sync_stall: bool,
    write_error: bool,
    write_full: bool,
    short_write_bytes: Option<usize>,
    syncs: u64,
    counts: BTreeMap<DiskFault, u64>,
}

impl Default for DiskFaults {
    fn default() -> Self {
        Self::new()
    }
}

impl DiskFaults {
    /// All switches off.
    pub fn new() -> Self {
        let stalled = watch::Sender::new(0);
        let (state, moved_on) = (Mutex::default(), Condvar::new());
        Self { inner: Arc::new(Inner { state, moved_on, stalled }) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// No room: whatever needs new blocks fails with `ENOSPC`. Preallocated files can be written.
    pub fn set_full(&self, full: bool) {
        self.state().full = full;
    }

    /// Every sync fails with `EIO`.
    pub fn set_sync_error(&self, on: bool) {
        self.state().sync_error = on;
    }

    /// Every sync stands still until switched off, or until the last handle of the store is dropped
    /// (calls that wait for a sync hold one: a test switches it off before its runtime ends).
    pub fn set_sync_stall(&self, on: bool) {
        self.state().sync_stall = on;
        self.inner.moved_on.notify_all();
    }

    /// Every write fails with `EIO`.
    pub fn set_write_error(&self, on: bool) {
        self.state().write_error = on;
    }

    /// Every write fails with `ENOSPC`, preallocated or not: as on a file system that copies on write.
    pub fn set_write_full(&self, on: bool) {
        self.state().write_full = on;
    }

    /// No write writes more than this at once.
    pub fn set_short_writes(&self, bytes: Option<usize>) {
        self.state().short_write_bytes = bytes;
    }

    /// How often `fault` happened.
    pub fn count(&self, fault: DiskFault) -> u64 {
        self.state().counts.get(&fault).copied().unwrap_or(0)
    }

    /// How many syncs were asked for, of files and folders.
    pub fn syncs(&self) -> u64 {
        self.state().syncs
    }

    /// Waits until a sync stands still. Cancel safe.
    pub async fn until_stalled(&self) {
        let mut stalled = self.inner.stalled.subscribe();
        // The sender lives as long as `self`.
        let _ = stalled.wait_for(|stalled| *stalled > 0).await;
    }

    pub(super) fn check_room(&self) -> io::Result<()> {
        let mut state = self.state();
        if !state.full {
            return Ok(());
        }
        *state.counts.entry(DiskFault::Full).or_default() += 1;
        Err(Errno::NOSPC.into())
    }

    /// Before a write of `bytes`: how many of them to write.
    pub(super) fn before_write(&self, bytes: usize) -> io::Result<usize> {
        let mut state = self.state();
        if state.write_error {
            *state.counts.entry(DiskFault::WriteError).or_default() += 1;
            return Err(Errno::IO.into());
        }
        if state.write_full {
            *state.counts.entry(DiskFault::Full).or_default() += 1;
            return Err(Errno::NOSPC.into());
        }
        match state.short_write_bytes {
            Some(most) if most < bytes => {
                *state.counts.entry(DiskFault::ShortWrite).or_default() += 1;
                Ok(most.max(1))
            }
            Some(_) | None => Ok(bytes),
        }
    }

    /// Before a sync; stands still as long as it should.
    pub(super) fn before_sync(&self) -> io::Result<()> {
        let mut state = self.state();
        state.syncs += 1;
        if state.sync_stall {
            *state.counts.entry(DiskFault::SyncStall).or_default() += 1;
            self.inner.stalled.send_modify(|stalled| *stalled += 1);
            while state.sync_stall {
                state = self.inner.moved_on.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            self.inner.stalled.send_modify(|stalled| *stalled -= 1);
        }
        if state.sync_error {
            *state.counts.entry(DiskFault::SyncError).or_default() += 1;
            return Err(Errno::IO.into());
        }
        Ok(())
    }
}
