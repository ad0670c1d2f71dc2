//! The tree in an SQLite file: the metadata of a single broker.
//!
//! ```text
//! transact ─► bounded queue ─► one OS thread: BEGIN, a savepoint per transaction, one COMMIT (fsync)
//! get, children ─► a second connection: the last committed state, never behind a slow commit
//! ```
//!
//! Invariants:
//! - a change is answered after its COMMIT returned, with `synchronous=FULL`, so it is durable;
//! - an answer that depends on an uncommitted neighbour in the same COMMIT (a refusal too) is given
//!   only when that COMMIT succeeded;
//! - nothing read is trusted: every row has a checksum over path, version and value, and the file as
//!   a whole a count and sum of them, checked at opening (P5);
//! - `<file>-mark` holds the number of the last COMMIT, written after it without a sync: a file that
//!   comes back older (a damaged or missing write-ahead log, an old copy, an empty file) is noticed, unless power was
//!   lost too [E-J14, E-J15].
//!
//! One process at a time opens a file: the lock of the data directory sees to that. Its ephemeral nodes
//! end with it.

mod file;
mod mark;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{mpsc, oneshot};

use crate::store::{BoxFuture, Error, MetaStore, Node, Op, Result, Version, Watch};
use crate::tree::{check_ops, check_path, name, parent};
use crate::watchers::Watchers;

/// How many transactions may wait for the writer thread; more wait in their callers.
const QUEUE: usize = 256;

/// The tree in one SQLite file.
#[derive(Debug)]
pub struct SqliteMeta {
    path: PathBuf,
    reader: Mutex<Option<Connection>>,
    queue: Mutex<Option<mpsc::Sender<writer::Job>>>,
    writer: Mutex<Option<JoinHandle<()>>>,
    watchers: Arc<Watchers>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SqliteMeta {
    /// Opens the file at `path`, or makes it; its directory must exist. Checks all of it: `Corrupt` names
    /// the file and what is wrong. Blocks for as long as reading the file takes. Ephemeral nodes of
    /// before are gone.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref().to_owned();
        let opened = file::open(&path)?;
        let reader = file::connect(&path)?;
        let watchers = Arc::new(Watchers::default());
        let (queue, jobs) = mpsc::channel(QUEUE);
        let writer = writer::Writer::new(&path, opened, jobs, Arc::clone(&watchers));
        let thread = std::thread::Builder::new()
            .name("talos-meta".into())
            .spawn(move || writer.run())
            .map_err(|error| Error::Unavailable(format!("no thread for metadata: {error}")))?;
        Ok(Self {
            path,
            reader: Mutex::new(Some(reader)),
            queue: Mutex::new(Some(queue)),
            writer: Mutex::new(Some(thread)),
            watchers,
        })
    }

    /// Limits the size of the file to `bytes` (rounded down to pages of 4 KiB; at least what it has);
    /// `None`: no limit. Changes that would need more are `Full`. In effect for changes after this call.
    pub async fn limit_bytes(&self, bytes: Option<u64>) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.enqueue(writer::Job::Limit { bytes, done }).await?;
        answer.await.map_err(|_| Error::Closed)?
    }

    /// Finishes what waits and closes the file. Later calls are `Closed`. Dropping does the same.
    pub fn close(&self) {
        // The writer ends when the queue is empty and has no sender left.
        drop(lock(&self.queue).take());
        drop(lock(&self.reader).take());
        if let Some(thread) = lock(&self.writer).take()
            && thread.join().is_err()
        {
            tracing::error!("the metadata writer panicked: a broken invariant");
        }
        self.watchers.close();
    }

    async fn enqueue(&self, job: writer::Job) -> Result<()> {
        let queue = lock(&self.queue).clone().ok_or(Error::Closed)?;
        queue.send(job).await.map_err(|_| Error::Closed)
    }

    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T>) -> Result<T> {
        read(lock(&self.reader).as_ref().ok_or(Error::Closed)?)
    }

    fn read_node(&self, path: &str) -> Result<Option<Node>> {
        check_path(path)?;
        if path == "/" {
            return self.read(|_| Ok(Some(Node { value: Bytes::new(), version: Version(0) })));
        }
        self.read(|db| {
            let failed = |error| file::read_error(&self.path, &error);
            let mut select = db.prepare_cached(file::SELECT_NODE).map_err(failed)?;
            let row = select
                .query_row(params![parent(path), name(path)], file::Row::read)
                .optional()
                .map_err(failed)?;
            row.map(|row| row.verified(&self.path)).transpose()
        })
    }

    fn read_names(&self, path: &str) -> Result<Vec<String>> {
        check_path(path)?;
        self.read(|db| {
            let failed = |error| file::read_error(&self.path, &error);
            let mut select = db.prepare_cached(file::SELECT_NAMES).map_err(failed)?;
            let names = select.query_map([path], |row| row.get(0)).map_err(failed)?;
            names.collect::<rusqlite::Result<_>>().map_err(failed)
        })
    }

    fn read_nodes(&self, path: &str) -> Result<Vec<(String, Node)>> {
        check_path(path)?;
        self.read(|db| {
            let failed = |error| file::read_error(&self.path, &error);
            let mut select = db.prepare_cached(file::SELECT_CHILDREN).map_err(failed)?;
            let rows = select.query_map([path], file::Row::read).map_err(failed)?;
            let mut children = Vec::new();
            for row in rows {
                let row = row.map_err(failed)?;
                children.push((row.name.clone(), row.verified(&self.path)?));
            }
            Ok(children)
        })
    }
}

impl Drop for SqliteMeta {
    fn drop(&mut self) {
        self.close();
    }
}

impl MetaStore for SqliteMeta {
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>> {
        let result = self.read_node(path);
        Box::pin(std::future::ready(result))
    }

    fn children(&self, path: &str) -> BoxFuture<'_, Result<Vec<String>>> {
        let result = self.read_names(path);
        Box::pin(std::future::ready(result))
    }

    fn read_children(&self, path: &str) -> BoxFuture<'_, Result<Vec<(String, Node)>>> {
        let result = self.read_nodes(path);
        Box::pin(std::future::ready(result))
    }

    fn transact(&self, ops: Vec<Op>) -> BoxFuture<'_, Result<Vec<Version>>> {
        Box::pin(async move {
            check_ops(&ops)?;
            let (done, answer) = oneshot::channel();
            self.enqueue(writer::Job::Transact { ops, done }).await?;
            let ended = |_| Error::Uncertain("the metadata writer ended before it answered".into());
            answer.await.map_err(ended)?
        })
    }

    fn watch(&self, prefix: &str) -> BoxFuture<'_, Result<Box<dyn Watch>>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            check_path(&prefix)?;
            self.read(|_| Ok(()))?;
            Ok(self.watchers.add(&prefix))
        })
    }

    /// Every read sees all that was committed; nothing to wait for.
    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move { self.read(|_| Ok(())) })
    }

    fn describe(&self) -> String {
        format!("sqlite file {}", self.path.display())
    }
}
