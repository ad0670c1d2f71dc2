//! Storage in memory, for simulation: a disk with a page cache, several processes that hold handles on
//! it, and faults. All latencies are virtual ([`talos_common::Clock`]), all chance is seeded.
//!
//! The disk keeps two truths per file: what is durable, and what only the page cache has. A killed
//! process loses what it had not yet written; a power loss loses any part of what is not durable.

mod crash;
mod disk;
mod faults;
mod file;
mod writer;

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use talos_common::{BrokerDir, Env};

pub use crash::{Crash, FileCopy};
pub use faults::{Fault, Faults};
pub use writer::Latency;

use crate::{
    BoxFuture, Error, ErrorKind, FileInfo, FilePath, LIST_PAGE, Prefix, READ_LIMIT_BYTES, Result,
    Storage, Traits, Writer,
};
use disk::{Dir, Disk, Lane, State};
use writer::MemoryWriter;

/// What journal files look like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Layout {
    /// As long as what was appended, without holes; notes are dropped. As HDFS.
    Exact,
    /// Of full length from the start, zeros above what was appended.
    Preallocated,
    /// Preallocated, and a new file begins with the bytes of a deleted one (E-J6). As the local disk.
    Recycled,
}

/// How a memory store behaves.
#[derive(Clone, Debug)]
pub struct MemoryOptions {
    /// The most bytes of one journal file.
    pub file_bytes: u64,
    /// The most appends of one writer in flight; they may become durable out of order.
    pub appends_in_flight: usize,
    /// What journal files look like.
    pub layout: Layout,
    /// From being written to being durable. A quarter of such a latency passes before the write.
    pub append_latency: Latency,
    /// Before and again after every other call takes effect.
    pub call_latency: Latency,
}

impl Default for MemoryOptions {
    /// A fast local disk that recycles files of 1 MiB, with four appends in flight.
    fn default() -> Self {
        Self {
            file_bytes: 1 << 20,
            appends_in_flight: 4,
            layout: Layout::Recycled,
            append_latency: Latency { min_us: 100, max_us: 8_000 },
            call_latency: Latency { min_us: 50, max_us: 1_000 },
        }
    }
}

/// One process' handle on a memory disk. Clones are the same process.
#[derive(Clone, Debug)]
pub struct MemoryStorage {
    disk: Arc<Disk>,
    process: u64,
}

impl MemoryStorage {
    /// An empty disk, and the first process' handle on it.
    pub fn new(env: &Env, options: MemoryOptions) -> Self {
        let disk = Arc::new(Disk::new(options, env.clock.clone(), env.rng.fork()));
        let process = disk.with(|state, _| state.start_process());
        Self { disk, process }
    }

    /// A handle of another process on the same disk. This one goes on working: a zombie.
    pub fn handle_for_new_process(&self) -> Self {
        let process = self.disk.with(|state, _| state.start_process());
        Self { disk: Arc::clone(&self.disk), process }
    }

    /// The disk's faults.
    pub fn faults(&self) -> &Faults {
        &self.disk.faults
    }

    async fn pause(&self) {
        let disk = &self.disk;
        let slow = disk.faults.roll(Fault::SlowCall, &disk.rng);
        let pause = disk.options.call_latency.draw(&disk.rng) * if slow { 100 } else { 1 };
        if !pause.is_zero() {
            disk.clock.sleep(pause).await;
        }
    }

    /// Runs `work` at one instant between two pauses.
    async fn call<T>(
        &self,
        work: impl FnOnce(&mut State, &mut disk::Replies) -> Result<T> + Send,
    ) -> Result<T> {
        self.pause().await;
        let result = self.disk.with(|state, replies| {
            state.check(self.process)?;
            work(state, replies)
        });
        self.pause().await;
        // Who was killed meanwhile does not hear how it ended.
        self.disk.with(|state, _| state.check(self.process))?;
        result
    }

    /// Like [`Self::call`] for a call that finds no room or whose answer is lost at times.
    async fn change<T>(
        &self,
        operation: &'static str,
        subject: String,
        work: impl FnOnce(&mut State) -> Result<T> + Send,
    ) -> Result<T> {
        self.call(|state, _| {
            let disk = &self.disk;
            if disk.faults.roll(Fault::Full, &disk.rng) {
                return Err(Error::new(ErrorKind::Full, operation, subject, "no space left"));
            }
            if !disk.faults.roll(Fault::LostAnswer, &disk.rng) {
                return work(state);
            }
            if disk.rng.chance(500_000) {
                drop(work(state));
            }
            Err(Error::new(ErrorKind::Uncertain, operation, subject, "the answer is lost"))
        })
        .await
    }
}

/// Fails unless `dir` takes new files.
fn check_open(
    state: &State,
    dir: BrokerDir,
    operation: &'static str,
    path: &FilePath,
) -> Result<()> {
    match state.dirs.get(&dir) {
        Some(Dir::Open) => Ok(()),
        Some(Dir::Sealed | Dir::Gone) => {
            Err(Error::new(ErrorKind::Fenced, operation, path, "the directory is sealed"))
        }
        None => Err(Error::new(ErrorKind::NotFound, operation, path, "no such directory")),
    }
}

fn check_free(state: &State, operation: &'static str, path: &FilePath) -> Result<()> {
    if state.files.contains_key(path) {
        return Err(Error::new(ErrorKind::Exists, operation, path, "the file is there already"));
    }
    Ok(())
}

fn list_page(state: &State, prefix: Prefix, after: Option<&FilePath>) -> Vec<FileInfo> {
    let first = prefix.first();
    let start = after.map_or(&first, |after| after.max(&first));
    state
        .files
        .range(start..)
        .filter(|(path, _)| after != Some(*path))
        .take_while(|(path, _)| prefix.holds(path))
        .take(LIST_PAGE)
        .map(|(path, file)| FileInfo {
            path: path.clone(),
            len: file.len(),
            modified_ms: file.modified_ms,
        })
        .collect()
}

impl Storage for MemoryStorage {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.change("make directory", dir.to_string(), move |state| {
            if state.dirs.contains_key(&dir) {
                let detail = "it is there or was there before";
                return Err(Error::new(ErrorKind::Exists, "make directory", dir, detail));
            }
            state.dirs.insert(dir, Dir::Open);
            state.steps += 1;
            Ok(())
        }))
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        Box::pin(async move {
            let FilePath::Journal { dir, .. } = path else {
                return Err(Error::new(ErrorKind::Invalid, "create", path, "not a journal"));
            };
            let made = self.change("create", path.to_string(), |state| {
                check_open(state, dir, "create", &path)?;
                check_free(state, "create", &path)?;
                let file = state.make_file(&self.disk);
                let (lane, queue) = (state.next_id(), VecDeque::new());
                let (process, dead, dropped) = (self.process, None, false);
                let of =
                    Lane { process, path: path.clone(), dir, file: file.id, dead, queue, dropped };
                state.files.insert(path.clone(), file);
                state.lanes.insert(lane, of);
                state.steps += 1;
                Ok(lane)
            });
            let lane = made.await?;
            Ok(Box::new(MemoryWriter::new(Arc::clone(&self.disk), lane, path)) as Box<dyn Writer>)
        })
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let path = path.clone();
        Box::pin(self.call(move |state, _| {
            if range.start > range.end || range.end - range.start > READ_LIMIT_BYTES {
                let detail = format!("bad range {range:?}");
                return Err(Error::new(ErrorKind::Invalid, "read", path, detail));
            }
            let file = state.files.get(&path).ok_or_else(|| Error::not_found("read", &path))?;
            Ok(file.read(range))
        }))
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(async move {
            self.call(|state, replies| {
                match state.dirs.get(&dir) {
                    Some(Dir::Open) => state.seal(dir, &self.disk, replies),
                    Some(Dir::Sealed) => {}
                    Some(Dir::Gone) | None => {
                        let detail = "never made, or deleted";
                        return Err(Error::new(ErrorKind::NotFound, "seal", dir, detail));
                    }
                }
                Ok(())
            })
            .await?;
            self.disk.faults.wake();
            self.disk.with(|state, _| {
                let mut files = Vec::new();
                loop {
                    let after = files.last().map(|file: &FileInfo| file.path.clone());
                    let page = list_page(state, Prefix::Dir(dir), after.as_ref());
                    if page.is_empty() {
                        return Ok(files);
                    }
                    files.extend(page);
                }
            })
        })
    }

    fn list(
        &self,
        prefix: Prefix,
        after: Option<FilePath>,
    ) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(self.call(move |state, _| Ok(list_page(state, prefix, after.as_ref()))))
    }

    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>> {
        let path = path.clone();
        Box::pin(self.call(move |state, _| {
            state.remove_file(&path, &self.disk);
            Ok(())
        }))
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.call(move |state, _| {
            let error = |kind, detail| Err(Error::new(kind, "delete directory", dir, detail));
            match state.dirs.get(&dir) {
                None => return error(ErrorKind::NotFound, "no such directory"),
                Some(Dir::Open) => return error(ErrorKind::Invalid, "it is not sealed"),
                Some(Dir::Gone) => return Ok(()),
                Some(Dir::Sealed) => {}
            }
            let first = Prefix::Dir(dir).first();
            let below = state.files.range(first..).map(|(path, _)| path);
            let below: Vec<_> =
                below.take_while(|path| Prefix::Dir(dir).holds(path)).cloned().collect();
            for path in &below {
                state.remove_file(path, &self.disk);
            }
            state.dirs.insert(dir, Dir::Gone);
            Ok(())
        }))
    }

    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        let path = path.clone();
        Box::pin(self.change("publish", path.to_string(), move |state| {
            if matches!(path, FilePath::Journal { .. }) {
                return Err(Error::new(ErrorKind::Invalid, "publish", path, "a journal"));
            }
            if let Some(dir) = path.dir() {
                check_open(state, dir, "publish", &path)?;
            }
            check_free(state, "publish", &path)?;
            let (id, now) = (state.next_id(), self.disk.clock.wall_ms());
            state.steps += 1;
            state.files.insert(path, file::File::new(id, 0, parts.concat(), now));
            Ok(())
        }))
    }

    fn traits(&self) -> Traits {
        Traits {
            appends_in_flight: self.disk.options.appends_in_flight,
            file_bytes: self.disk.options.file_bytes,
            preallocated: self.disk.options.layout != Layout::Exact,
            durability: "simulated fdatasync",
        }
    }
}
