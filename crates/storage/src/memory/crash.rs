//! Ends of processes and of the machine, and surgery on the files of a stopped store.

use std::ops::Range;

use talos_common::{BrokerDir, Env, Rng};

use super::MemoryStorage;
use super::disk::Dir;
use super::faults::Fault;
use crate::FilePath;

/// How a process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Crash {
    /// `kill -9`: what it had written stays in the page cache, notes too; a write under way may be torn.
    Kill,
    /// The machine loses power: all processes end, and any part of what is not durable is lost.
    PowerLoss,
}

/// A file as it was at one time.
#[derive(Clone, Debug)]
pub struct FileCopy {
    path: FilePath,
    content: Vec<u8>,
}

impl FileCopy {
    /// Its name.
    pub fn path(&self) -> &FilePath {
        &self.path
    }

    /// Its bytes.
    pub fn content(&self) -> &[u8] {
        &self.content
    }
}

impl MemoryStorage {
    /// Ends this handle's process, or, with the power, every process. Their calls and writers fail from
    /// now on, and do nothing.
    pub fn crash(&self, how: Crash) {
        let disk = &self.disk;
        disk.with(|state, replies| state.crash(self.process, how, disk, replies));
        disk.faults.wake();
    }

    /// How many changes took effect on this disk: directories made, files created, published or deleted,
    /// appends durable, seals.
    pub fn steps(&self) -> u64 {
        self.disk.with(|state, _| state.steps)
    }

    /// Crashes as soon as `steps` more changes took effect, before anyone hears of the last. A later
    /// plan replaces an earlier one.
    pub fn crash_after(&self, steps: u64, how: Crash) {
        self.disk.with(|state, _| state.planned = Some((state.steps + steps, self.process, how)));
    }

    /// Waits until this handle's process has ended. Cancel safe.
    pub async fn crashed(&self) {
        let mut changed = self.disk.faults.watch();
        while self.disk.with(|state, _| state.check(self.process).is_ok()) {
            // The sender lives as long as the disk.
            let _ = changed.changed().await;
        }
    }

    /// [`Self::crash`], and the handle of the process that starts next.
    pub fn crash_and_reopen(&self, how: Crash) -> Self {
        self.crash(how);
        self.handle_for_new_process()
    }

    /// All files, in name order.
    pub fn files(&self) -> Vec<FilePath> {
        self.disk.with(|state, _| state.files.keys().cloned().collect())
    }

    /// A copy of `path` as a reader sees it now.
    pub fn copy(&self, path: &FilePath) -> Option<FileCopy> {
        self.disk.with(|state, _| {
            let content = state.files.get(path)?.content();
            Some(FileCopy { path: path.clone(), content })
        })
    }

    /// Puts `copy` back, whether or not the file is there.
    pub fn restore(&self, copy: &FileCopy) {
        let disk = &self.disk;
        disk.faults.note(Fault::Restored);
        disk.with(|state, _| {
            let id = state.next_id();
            let (content, now) = (copy.content.clone(), disk.clock.wall_ms());
            state.files.insert(copy.path.clone(), super::file::File::new(id, 0, content, now));
        });
    }

    /// Whether `dir` was made and is not deleted: a file put back there can matter.
    pub fn has_dir(&self, dir: BrokerDir) -> bool {
        self.disk.with(|state, _| state.dirs.get(&dir).is_some_and(|dir| *dir != Dir::Gone))
    }

    /// Another disk with the same directories and files as readers see them now, all of it durable,
    /// without faults and writers; and the first process' handle on it.
    pub fn fork(&self, env: &Env) -> Self {
        let fork = Self::new(env, self.disk.options.clone());
        let now = env.clock.wall_ms();
        let (dirs, contents) = self.disk.with(|state, _| {
            let contents = state.files.iter().map(|(path, file)| (path.clone(), file.content()));
            (state.dirs.clone(), contents.collect::<Vec<_>>())
        });
        fork.disk.with(|state, _| {
            state.dirs = dirs;
            for (path, content) in contents {
                let id = state.next_id();
                state.files.insert(path, super::file::File::new(id, 0, content, now));
            }
        });
        fork
    }

    /// Changes the content of `path`; false when it is missing.
    fn operate(&self, fault: Fault, path: &FilePath, work: impl FnOnce(&mut Vec<u8>)) -> bool {
        let done = self.disk.with(|state, _| {
            let Some(file) = state.files.get_mut(path) else { return false };
            let mut content = file.content();
            work(&mut content);
            file.replace(content);
            true
        });
        if done {
            self.disk.faults.note(fault);
        }
        done
    }

    /// Turns one bit of `path` in `range` (end exclusive) and gives its byte's position; `None` when the
    /// file has no byte there.
    pub fn flip_bit(&self, path: &FilePath, range: Range<u64>, rng: &Rng) -> Option<u64> {
        let len = self.disk.with(|state, _| state.files.get(path).map(super::file::File::len))?;
        if range.start >= range.end.min(len) {
            return None;
        }
        let at = rng.u64(range.start..range.end.min(len));
        let bit = rng.u64(0..8);
        self.operate(Fault::FlippedBit, path, |content| {
            if let Some(byte) = usize::try_from(at).ok().and_then(|at| content.get_mut(at)) {
                *byte ^= 1 << bit;
            }
        })
        .then_some(at)
    }

    /// Cuts `path` to `len` bytes; false when it is missing or not longer.
    pub fn cut(&self, path: &FilePath, len: u64) -> bool {
        let longer = self.copy(path).is_some_and(|copy| copy.content.len() as u64 > len);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        longer && self.operate(Fault::Cut, path, |content| content.truncate(len))
    }

    /// Puts `bytes` behind the end of `path`; false when it is missing.
    pub fn extend(&self, path: &FilePath, bytes: &[u8]) -> bool {
        self.operate(Fault::Extended, path, |content| content.extend_from_slice(bytes))
    }

    /// Takes `path` away, behind everyone's back; false when it is missing.
    pub fn remove(&self, path: &FilePath) -> bool {
        let removed = self.disk.with(|state, _| state.files.remove(path).is_some());
        if removed {
            self.disk.faults.note(Fault::Removed);
        }
        removed
    }
}
