//! Storage on the local disk, for one broker: journals are preallocated, recycled files that one thread
//! writes and syncs; everything else is written whole and then named.
//!
//! Invariants: one process per data directory (a lock file); a name is made durable before its call
//! answers; a seal outlives its directory (E-H4, E-O3); a failed sync ends all writing (E-H6), and so
//! does a data directory that is removed or moved away under the process.

mod disk;
pub mod faults;
mod flusher;
mod handles;
mod layout;
mod names;
mod place;
mod read_only;

use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use talos_common::{BrokerDir, Clock, Env};
use tokio::sync::Semaphore;

use crate::{
    BoxFuture, Error, ErrorKind, FileInfo, FilePath, Prefix, READ_LIMIT_BYTES, Result, Storage,
    Traits, Writer,
};
use faults::DiskFaults;
use flusher::LocalWriter;
use names::Names;
pub use read_only::LocalReader;

/// How many calls may wait for the disk at once, reads aside.
const CALLS: usize = 4;
/// How many reads may wait for the disk at once.
const READS: usize = 8;
/// How often the data directory is looked for while nothing else does.
const LOOK: Duration = Duration::from_secs(2);
/// How often a read begins again because some file was deleted meanwhile.
const READ_TRIES: usize = 64;

/// How the local store is to be kept.
#[derive(Clone, Debug)]
pub struct LocalOptions {
    /// The data directory; made when it is missing.
    pub dir: PathBuf,
    /// The length of a journal file, in bytes.
    pub file_bytes: u64,
    /// How many journals are kept for recycling.
    pub spare_files: usize,
    /// Nothing new is made that would leave the file system with less than this, in bytes, so that
    /// the metadata beside it finds room.
    pub reserve_bytes: u64,
    /// Switches for tests; `None` in a real broker.
    pub faults: Option<DiskFaults>,
}

impl LocalOptions {
    /// Journals of 64 MiB, four spare ones, 64 MiB in reserve.
    pub fn new(dir: impl Into<PathBuf>) -> Self {
        let (file_bytes, spare_files, reserve_bytes) = (64 << 20, 4, 64 << 20);
        Self { dir: dir.into(), file_bytes, spare_files, reserve_bytes, faults: None }
    }
}

/// Why a store writes nothing any more.
#[derive(Clone, Debug)]
pub struct Failure {
    /// What ended it.
    pub error: Error,
    /// Whether its files were removed or moved away: only then what was acknowledged may be lost.
    pub files_are_gone: bool,
}

/// The local disk as a store. Clones share everything. Dropping the last clone waits for the calls that
/// run, the last writer too for its appends; then the data directory is free.
///
/// Calls need a tokio runtime: what may wait for the disk runs on its blocking threads.
#[derive(Clone, Debug)]
pub struct LocalStorage {
    names: Arc<Names>,
    calls: Arc<Semaphore>,
    reads: Arc<Semaphore>,
    running: Arc<Running>,
}

/// The calls that run on blocking threads, which a dropped future does not end.
#[derive(Debug, Default)]
struct Running(Arc<(Mutex<usize>, Condvar)>);

/// One call.
struct RunningCall(Arc<(Mutex<usize>, Condvar)>);

impl Running {
    fn begin(&self) -> RunningCall {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        RunningCall(Arc::clone(&self.0))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let (count, ended) = &*self.0;
        let count = count.lock().unwrap_or_else(PoisonError::into_inner);
        drop(ended.wait_while(count, |count| *count > 0).unwrap_or_else(PoisonError::into_inner));
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        *self.0.0.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.0.1.notify_all();
    }
}

impl LocalStorage {
    /// Opens the data directory, and makes it when it is missing. Blocks. `Unavailable` when another
    /// process has it; `Invalid` when it cannot be used.
    pub fn open(options: LocalOptions, env: &Env) -> Result<Self> {
        let names = Arc::new(Names::open(options, env)?);
        let (calls, reads) = (Arc::new(Semaphore::new(CALLS)), Arc::new(Semaphore::new(READS)));
        Ok(Self { names, calls, reads, running: Arc::default() })
    }

    /// Why nothing is written any more; `None` as long as all is well.
    pub fn failure(&self) -> Option<Failure> {
        self.names.failure().map(|(error, files_are_gone)| Failure { error, files_are_gone })
    }

    /// Waits until nothing is written any more, and says why. Whoever opened the store has to end the
    /// process then. While this waits it looks for the data directory every two seconds. Cancel safe.
    pub async fn failed(&self, clock: &Clock) -> Failure {
        loop {
            if let Some(failure) = self.failure() {
                return failure;
            }
            clock.sleep(LOOK).await;
            // What it finds is kept, and seen above.
            let _ = self.waiting(&self.calls, Names::check_place).await;
        }
    }

    /// Runs `work` on a thread that may wait. Goes on when the future is dropped.
    async fn waiting<T: Send + 'static>(
        &self,
        limit: &Arc<Semaphore>,
        work: impl FnOnce(&Names) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // The semaphores are never closed.
        let permit = Arc::clone(limit).acquire_owned().await;
        let (names, call) = (Arc::clone(&self.names), self.running.begin());
        let run = move || {
            let result = work(&names);
            drop((permit, names, call));
            result
        };
        let ended = |error| Error::new(ErrorKind::Fatal, "call", "local storage", error);
        tokio::task::spawn_blocking(run).await.map_err(ended)?
    }

    async fn read_file(&self, path: FilePath, range: Range<u64>) -> Result<Bytes> {
        let wanted = match range.end.checked_sub(range.start) {
            Some(wanted) if wanted <= READ_LIMIT_BYTES => wanted,
            Some(_) | None => {
                let detail = format!("bad range {range:?}");
                return Err(Error::new(ErrorKind::Invalid, "read", path, detail));
            }
        };
        for _ in 0..READ_TRIES {
            let handle = match self.names.handles.get(&path) {
                Ok(handle) => handle,
                Err(ticket) => {
                    let path = path.clone();
                    let open = move |names: &Names| names.open_for_reading(&path, ticket);
                    match self.waiting(&self.reads, open).await? {
                        Some(handle) => handle,
                        None => continue,
                    }
                }
            };
            let wanted = handle.readable(range.start, wanted);
            let mut out = Vec::with_capacity(wanted);
            handle.read_cached(range.start, wanted, &mut out);
            if out.len() < wanted {
                let (path, start, cold) = (path.clone(), range.start, Arc::clone(&handle));
                let read = move |_: &Names| match cold.read_waiting(start, wanted, &mut out) {
                    Ok(()) => Ok(out),
                    Err(error) => Err(Error::new(ErrorKind::Unavailable, "read", path, error)),
                };
                out = self.waiting(&self.reads, read).await?;
            }
            if !handle.is_retired() {
                return Ok(out.into());
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "read", path, "files are deleted too fast"))
    }
}

impl Storage for LocalStorage {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.waiting(&self.calls, move |names| names.make_dir(dir)))
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        Box::pin(async move {
            let journal = self.waiting(&self.calls, move |names| names.create(path)).await?;
            let flusher = Arc::clone(&self.names.flusher);
            let writer = LocalWriter::new(journal, flusher, self.names.options.file_bytes);
            Ok(Box::new(writer) as Box<dyn Writer>)
        })
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        Box::pin(self.read_file(path.clone(), range))
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(self.waiting(&self.calls, move |names| names.seal(dir)))
    }

    fn list(
        &self,
        prefix: Prefix,
        after: Option<FilePath>,
    ) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(self.waiting(&self.calls, move |names| {
            let unavailable = |error| Error::new(ErrorKind::Unavailable, "list", "files", error);
            names.layout.list(prefix, after.as_ref()).map_err(unavailable)
        }))
    }

    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>> {
        let path = path.clone();
        Box::pin(self.waiting(&self.calls, move |names| names.delete(&path)))
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.waiting(&self.calls, move |names| names.delete_dir(dir)))
    }

    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        let path = path.clone();
        Box::pin(self.waiting(&self.calls, move |names| names.publish(&path, &parts)))
    }

    fn traits(&self) -> Traits {
        Traits {
            appends_in_flight: 1,
            file_bytes: self.names.options.file_bytes,
            preallocated: true,
            durability: "fdatasync",
        }
    }
}
