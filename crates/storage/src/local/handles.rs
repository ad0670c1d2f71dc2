//! Open files for reading, the last used ones kept. A file that was deleted, and maybe recycled, is
//! never served under its old name: whoever read from a handle looks afterwards whether it was retired,
//! and a file is retired before anybody may write to it again.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::buffer::spare_capacity;
use rustix::io::ReadWriteFlags;

use crate::FilePath;

/// How many files stay open.
const KEPT: usize = 256;
/// How much is read from the page cache at once: its zeroing stays in the processor's cache.
const CHUNK_BYTES: usize = 128 << 10;

#[derive(Debug)]
pub(super) struct Handle {
    file: File,
    /// Files of this store never change their length.
    len: u64,
    retired: AtomicBool,
}

#[derive(Debug, Default)]
pub(super) struct Handles {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    handles: BTreeMap<FilePath, (Arc<Handle>, u64)>,
    /// When each was last used, oldest first.
    uses: BTreeMap<u64, FilePath>,
    now: u64,
    /// Rises with every retirement.
    retirements: u64,
}

impl Handles {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The open handle of `path`, or the ticket for [`Self::insert`].
    pub(super) fn get(&self, path: &FilePath) -> Result<Arc<Handle>, u64> {
        let state = &mut *self.state();
        let Some((handle, used)) = state.handles.get_mut(path) else {
            return Err(state.retirements);
        };
        if let Some(path) = state.uses.remove(used) {
            state.now += 1;
            *used = state.now;
            state.uses.insert(state.now, path);
        }
        Ok(Arc::clone(handle))
    }

    /// Keeps `file`, opened after `ticket` was given. `None` when some file was retired since: it may
    /// be this one, so it has to be opened again.
    pub(super) fn insert(
        &self,
        path: &FilePath,
        ticket: u64,
        file: File,
    ) -> io::Result<Option<Arc<Handle>>> {
        let len = file.metadata()?.len();
        let handle = Arc::new(Handle { file, len, retired: AtomicBool::new(false) });
        let state = &mut *self.state();
        if state.retirements != ticket {
            return Ok(None);
        }
        state.now += 1;
        if let Some((_, used)) =
            state.handles.insert(path.clone(), (Arc::clone(&handle), state.now))
        {
            state.uses.remove(&used);
        }
        state.uses.insert(state.now, path.clone());
        if state.handles.len() > KEPT {
            state.drop_oldest();
        }
        Ok(Some(handle))
    }

    /// The file `path` has lost its name: no read that ends from now on may be answered from it.
    pub(super) fn retire(&self, path: &FilePath) {
        let state = &mut *self.state();
        state.retirements += 1;
        if let Some((handle, used)) = state.handles.remove(path) {
            state.uses.remove(&used);
            handle.retired.store(true, Ordering::SeqCst);
        }
    }
}

impl State {
    /// Forgets the handle that was not used for longest. One that is being read from stays, so that
    /// it can be retired.
    fn drop_oldest(&mut self) {
        let idle = |path: &FilePath| {
            self.handles.get(path).is_some_and(|(handle, _)| Arc::strong_count(handle) == 1)
        };
        let oldest = self.uses.iter().find(|(_, path)| idle(path)).map(|(used, _)| *used);
        if let Some(path) = oldest.and_then(|used| self.uses.remove(&used)) {
            self.handles.remove(&path);
        }
    }
}

impl Handle {
    /// Looked at after a read: whether its bytes may be those of another file.
    pub(super) fn is_retired(&self) -> bool {
        self.retired.load(Ordering::SeqCst)
    }

    /// How many bytes the file has from `start` on, `wanted` at most.
    pub(super) fn readable(&self, start: u64, wanted: u64) -> usize {
        let most = self.len.saturating_sub(start).min(wanted);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// Reads on until `out` has `wanted` bytes, as far as the page cache has them: never waits.
    pub(super) fn read_cached(&self, start: u64, wanted: usize, out: &mut Vec<u8>) {
        while out.len() < wanted {
            let have = out.len();
            out.resize(wanted.min(have + CHUNK_BYTES), 0);
            let into = out.get_mut(have..).unwrap_or_default();
            let at = start + have as u64;
            let flags = ReadWriteFlags::NOWAIT;
            // Not cached, or a file system that cannot tell: the waiting read finds out.
            let read = rustix::io::preadv2(&self.file, &mut [IoSliceMut::new(into)], at, flags);
            let read = read.unwrap_or(0);
            out.truncate(have + read);
            if read == 0 {
                return;
            }
        }
    }

    /// Reads on until `out` has `wanted` bytes or the file ends; waits for the disk.
    pub(super) fn read_waiting(
        &self,
        start: u64,
        wanted: usize,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        while out.len() < wanted {
            let at = start + out.len() as u64;
            out.reserve_exact(wanted - out.len());
            match rustix::io::pread(&self.file, spare_capacity(out), at) {
                Ok(0) => break,
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        out.truncate(wanted);
        Ok(())
    }
}
