//! Stores that break their word.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use talos_common::{BrokerDir, Env};
use talos_log::format::{BATCH_PREFIX_BYTES, Frame};
use talos_protocol::batch::{CRC_START, crc32c};
use talos_storage::{
    AppendFuture, BoxFuture, FileInfo, FilePath, Prefix, Result, Storage, Traits, Writer,
};

use crate::damage::journal::{Journal, Placed};

/// No file of a memory disk has more bytes.
const FILE_BYTES: u64 = 1 << 20;
/// Where batch frames and open frames say where their leader epoch's own records start.
const EPOCH_START: Range<usize> = 36..44;

/// Which word.
#[derive(Debug)]
enum Bug {
    /// Appends resolve when they are called.
    Early,
    /// The last third of each journal file that an earlier process wrote reads as zeros.
    Torn { own: Mutex<BTreeSet<BrokerDir>> },
    /// Frames that an earlier process wrote do not say where their leader epoch starts, so that nothing
    /// bounds older epochs (E-W14). With the changed files.
    Unbounded { own: Mutex<BTreeSet<BrokerDir>>, files: Mutex<BTreeMap<FilePath, Bytes>> },
    /// A sealed directory's journals are deleted as soon as something is appended elsewhere.
    Deleting { sealed: Arc<Mutex<BTreeSet<BrokerDir>>> },
}

#[derive(Debug)]
struct Broken {
    inner: Arc<dyn Storage>,
    env: Option<Env>,
    bug: Bug,
}

pub(super) fn early(inner: Arc<dyn Storage>, env: &Env) -> Arc<dyn Storage> {
    Arc::new(Broken { inner, env: Some(env.clone()), bug: Bug::Early })
}

pub(super) fn torn(inner: Arc<dyn Storage>, start: u64) -> Arc<dyn Storage> {
    if start == 1 {
        return inner;
    }
    Arc::new(Broken { inner, env: None, bug: Bug::Torn { own: Mutex::default() } })
}

pub(super) fn unbounded(inner: Arc<dyn Storage>) -> Arc<dyn Storage> {
    let bug = Bug::Unbounded { own: Mutex::default(), files: Mutex::default() };
    Arc::new(Broken { inner, env: None, bug })
}

pub(super) fn deleting(inner: Arc<dyn Storage>, env: &Env) -> Arc<dyn Storage> {
    let bug = Bug::Deleting { sealed: Arc::default() };
    Arc::new(Broken { inner, env: Some(env.clone()), bug })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the bytes of a file stop being zeros, seen from its end, and two thirds of that.
async fn shown(storage: &dyn Storage, path: &FilePath) -> Result<u64> {
    let all = storage.read(path, 0..FILE_BYTES).await?;
    let content = all.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Ok(content as u64 / 3 * 2)
}

/// The same journal without where leader epochs start.
fn without_starts(path: &FilePath, content: &[u8]) -> Bytes {
    let journal = Journal::read(path, content);
    let mask = journal.frames.iter().find_map(|placed| match &placed.frame {
        Frame::Header(header) => Some(header.mask()),
        _ => None,
    });
    let mut out = BytesMut::from(content);
    for Placed { at, end, frame } in &journal.frames {
        let is_batch = matches!(frame, Frame::Batch(..));
        if !is_batch && !matches!(frame, Frame::Open { .. }) {
            continue;
        }
        let (at, end) = (usize::try_from(*at).unwrap_or(0), usize::try_from(*end).unwrap_or(0));
        let covered = if is_batch { BATCH_PREFIX_BYTES + CRC_START } else { end - at };
        let Some(frame) = out.get_mut(at..end) else { continue };
        if let Some(start) = frame.get_mut(EPOCH_START) {
            start.copy_from_slice(&i64::MAX.to_le_bytes());
        }
        let crc = crc32c(frame.get(8..covered).unwrap_or_default()) ^ mask.unwrap_or(0);
        if let Some(field) = frame.get_mut(4..8) {
            field.copy_from_slice(&crc.to_le_bytes());
        }
    }
    out.freeze()
}

impl Broken {
    /// What a reader sees instead of a file that an earlier process wrote, where it is another.
    async fn shown_instead(&self, path: &FilePath) -> Result<Option<Bytes>> {
        match &self.bug {
            Bug::Early | Bug::Deleting { .. } => Ok(None),
            Bug::Torn { .. } => {
                let shown = usize::try_from(shown(&*self.inner, path).await?).unwrap_or(usize::MAX);
                let all = self.inner.read(path, 0..FILE_BYTES).await?;
                let mut all = BytesMut::from(&*all);
                all.iter_mut().skip(shown).for_each(|byte| *byte = 0);
                Ok(Some(all.freeze()))
            }
            Bug::Unbounded { files, .. } => {
                if let Some(known) = lock(files).get(path) {
                    return Ok(Some(known.clone()));
                }
                let all = self.inner.read(path, 0..FILE_BYTES).await?;
                let changed = without_starts(path, &all);
                lock(files).insert(path.clone(), changed.clone());
                Ok(Some(changed))
            }
        }
    }
}

impl Storage for Broken {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        if let Bug::Torn { own } | Bug::Unbounded { own, .. } = &self.bug {
            lock(own).insert(dir);
        }
        self.inner.make_dir(dir)
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        Box::pin(async move {
            let inner = self.inner.create(path).await?;
            let (Some(env), bug) = (&self.env, &self.bug) else { return Ok(inner) };
            let sealed = match bug {
                Bug::Deleting { sealed } => Some((Arc::clone(sealed), Arc::clone(&self.inner))),
                Bug::Early | Bug::Torn { .. } | Bug::Unbounded { .. } => None,
            };
            let (env, appends) = (env.clone(), 0);
            Ok(Box::new(BrokenWriter { inner, env, sealed, appends }) as Box<dyn Writer>)
        })
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let own = match &self.bug {
            Bug::Torn { own } | Bug::Unbounded { own, .. } => own,
            Bug::Early | Bug::Deleting { .. } => return self.inner.read(path, range),
        };
        let is_old = matches!(path, FilePath::Journal { dir, .. } if !lock(own).contains(dir));
        if !is_old {
            return self.inner.read(path, range);
        }
        let path = path.clone();
        Box::pin(async move {
            let read = self.inner.read(&path, range.clone()).await?;
            let Some(instead) = self.shown_instead(&path).await? else { return Ok(read) };
            let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(instead.len());
            Ok(instead.slice(index(range.start)..index(range.end)))
        })
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        if let Bug::Deleting { sealed } = &self.bug {
            lock(sealed).insert(dir);
        }
        self.inner.seal(dir)
    }

    fn list(
        &self,
        prefix: Prefix,
        after: Option<FilePath>,
    ) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>> {
        self.inner.delete(path)
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        self.inner.delete_dir(dir)
    }

    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        self.inner.publish(path, parts)
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }
}

/// Directories to delete, and where.
type Sealed = (Arc<Mutex<BTreeSet<BrokerDir>>>, Arc<dyn Storage>);

#[derive(Debug)]
struct BrokenWriter {
    inner: Box<dyn Writer>,
    env: Env,
    sealed: Option<Sealed>,
    appends: u32,
}

impl BrokenWriter {
    /// Appends and tells at once that it is done.
    fn append_early(&mut self, buffers: Vec<Bytes>, note: Option<Bytes>) -> AppendFuture {
        let bytes: u64 = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        let end = self.inner.position() + bytes;
        let append = self.inner.append(buffers, note);
        self.env.tasks.spawn("append", async move {
            let _ = append.await;
        });
        Box::pin(std::future::ready(Ok(end)))
    }
}

impl Writer for BrokenWriter {
    fn append(&mut self, buffers: Vec<Bytes>, note: Option<Bytes>) -> AppendFuture {
        self.appends += 1;
        let Some((sealed, storage)) = &self.sealed else { return self.append_early(buffers, note) };
        // The first few are those of the opening.
        if self.appends > 4 {
            for dir in std::mem::take(&mut *lock(sealed)) {
                let storage = Arc::clone(storage);
                self.env.tasks.spawn("deletion", async move {
                    for file in storage.list(Prefix::Dir(dir), None).await.unwrap_or_default() {
                        let _ = storage.delete(&file.path).await;
                    }
                });
            }
        }
        self.inner.append(buffers, note)
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }
}
