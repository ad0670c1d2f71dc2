//! Stores that break their word.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Bytes, BytesMut};
use talos_common::{BrokerDir, Env};
use talos_storage::{
    AppendFuture, BoxFuture, FileInfo, FilePath, Prefix, Result, Storage, Traits, Writer,
};

/// Which word.
#[derive(Debug)]
enum Bug {
    /// Appends resolve when they are called.
    Early,
    /// The last third of each journal file that an earlier process wrote reads as zeros.
    Torn { own: Mutex<BTreeSet<BrokerDir>> },
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

pub(super) fn deleting(inner: Arc<dyn Storage>, env: &Env) -> Arc<dyn Storage> {
    let bug = Bug::Deleting { sealed: Arc::default() };
    Arc::new(Broken { inner, env: Some(env.clone()), bug })
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Where the bytes of a file stop being zeros, seen from its end, and two thirds of that.
async fn shown(storage: &dyn Storage, path: &FilePath) -> Result<u64> {
    let all = storage.read(path, 0..1 << 20).await?;
    let content = all.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    Ok(content as u64 / 3 * 2)
}

impl Storage for Broken {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        if let Bug::Torn { own } = &self.bug {
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
                Bug::Early | Bug::Torn { .. } => None,
            };
            let (env, appends) = (env.clone(), 0);
            Ok(Box::new(BrokenWriter { inner, env, sealed, appends }) as Box<dyn Writer>)
        })
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let Bug::Torn { own } = &self.bug else { return self.inner.read(path, range) };
        let is_old = matches!(path, FilePath::Journal { dir, .. } if !lock(own).contains(dir));
        if !is_old {
            return self.inner.read(path, range);
        }
        let path = path.clone();
        Box::pin(async move {
            let shown = shown(&*self.inner, &path).await?;
            let read = self.inner.read(&path, range.clone()).await?;
            let mut read = BytesMut::from(&*read);
            let keep = usize::try_from(shown.saturating_sub(range.start)).unwrap_or(usize::MAX);
            read.iter_mut().skip(keep).for_each(|byte| *byte = 0);
            Ok(read.freeze())
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
