//! A data directory opened for looking only: for tools that read what a stopped broker left.
//!
//! Invariant: nothing is made, changed or removed, the lock file included; while it is open no broker
//! can start on the directory.

use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use rustix::fs::FlockOperation;
use talos_common::BrokerDir;
use tokio::sync::Semaphore;

use super::READS;
use super::layout::Layout;
use crate::{
    BoxFuture, Error, ErrorKind, FileInfo, FilePath, Prefix, READ_LIMIT_BYTES, Result, Storage,
    Traits, Writer,
};

/// The data directory of a broker that is not running. Reads and lists; every other call of [`Storage`]
/// is `Invalid`. Clones share everything; the last one gives the directory free.
///
/// Calls need a tokio runtime: what may wait for the disk runs on its blocking threads.
#[derive(Clone, Debug)]
pub struct LocalReader {
    layout: Layout,
    reads: Arc<Semaphore>,
    /// Held, shared with other readers.
    _lock: Arc<Option<File>>,
}

impl LocalReader {
    /// Opens `dir`. Blocks. `NotFound` when there is no such directory, `Invalid` when it is not a
    /// broker's or can not be read, `Unavailable` when a broker uses it.
    pub fn open(dir: impl Into<PathBuf>) -> Result<Self> {
        let dir = dir.into();
        let shown = dir.display();
        let invalid = |error: io::Error| Error::new(ErrorKind::Invalid, "open", &shown, error);
        match std::fs::metadata(&dir) {
            Ok(data) if data.is_dir() => {}
            Ok(_) => return Err(Error::new(ErrorKind::Invalid, "open", &shown, "not a folder")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                return Err(Error::new(ErrorKind::NotFound, "open", &shown, "no such folder"));
            }
            Err(error) => return Err(invalid(error)),
        }
        let lock = lock_shared(&dir)?;
        let layout = Layout { root: dir.clone() };
        for folder in ["brokers", "topics"] {
            if !layout.folder(folder).is_dir() {
                let detail = format!("not a broker's data folder: it has no folder {folder}");
                return Err(Error::new(ErrorKind::Invalid, "open", &shown, detail));
            }
        }
        let reads = Arc::new(Semaphore::new(READS));
        Ok(Self { layout, reads, _lock: Arc::new(lock) })
    }

    async fn waiting<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Layout) -> Result<T> + Send + 'static,
    ) -> Result<T> {
        // The semaphore is never closed.
        let permit = Arc::clone(&self.reads).acquire_owned().await;
        let layout = self.layout.clone();
        let run = move || {
            let result = work(&layout);
            drop(permit);
            result
        };
        let ended = |error| Error::new(ErrorKind::Fatal, "call", "local storage", error);
        tokio::task::spawn_blocking(run).await.map_err(ended)?
    }
}

/// Keeps brokers away. A copy of a data directory may have no lock file: then nobody is kept away.
fn lock_shared(dir: &Path) -> Result<Option<File>> {
    let path = dir.join("lock");
    let invalid = |error: &dyn std::fmt::Display| {
        Error::new(ErrorKind::Invalid, "lock", path.display(), error)
    };
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(invalid(&error)),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => Ok(Some(file)),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let detail = "a broker uses this data folder: stop it first";
            Err(Error::new(ErrorKind::Unavailable, "open", dir.display(), detail))
        }
        Err(error) => Err(invalid(&error)),
    }
}

fn read(layout: &Layout, path: &FilePath, range: Range<u64>) -> Result<Bytes> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => Error::not_found("read", path),
        _ => Error::new(ErrorKind::Unavailable, "read", path, error),
    };
    let file = File::open(layout.file(path)).map_err(failed)?;
    let len = file.metadata().map_err(failed)?.len();
    let wanted = range.end.min(len).saturating_sub(range.start);
    // At most READ_LIMIT_BYTES, as checked by the caller.
    let mut out = vec![0; wanted as usize];
    let mut filled = 0;
    while let Some(rest) = out.get_mut(filled..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, range.start + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(failed(error)),
        }
    }
    out.truncate(filled);
    Ok(out.into())
}

fn refused<T: Send + 'static>(
    operation: &'static str,
    subject: impl std::fmt::Display,
) -> BoxFuture<'static, Result<T>> {
    let error = Error::new(ErrorKind::Invalid, operation, subject, "opened for reading only");
    Box::pin(std::future::ready(Err(error)))
}

impl Storage for LocalReader {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        refused("make directory", dir)
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        refused("create", path)
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.clone();
        Box::pin(async move {
            match range.end.checked_sub(range.start) {
                Some(wanted) if wanted <= READ_LIMIT_BYTES => {}
                Some(_) | None => {
                    let detail = format!("bad range {range:?}");
                    return Err(Error::new(ErrorKind::Invalid, "read", path, detail));
                }
            }
            self.waiting(move |layout| read(layout, &path, range)).await
        })
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        refused("seal", dir)
    }

    fn list(
        &self,
        prefix: Prefix,
        after: Option<FilePath>,
    ) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(self.waiting(move |layout| {
            let unavailable = |error| Error::new(ErrorKind::Unavailable, "list", "files", error);
            layout.list(prefix, after.as_ref()).map_err(unavailable)
        }))
    }

    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>> {
        refused("delete", path)
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        refused("delete directory", dir)
    }

    fn publish(&self, path: &FilePath, _parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        refused("publish", path)
    }

    fn traits(&self) -> Traits {
        Traits {
            appends_in_flight: 1,
            file_bytes: 0,
            preallocated: true,
            durability: "opened for reading only",
        }
    }
}
