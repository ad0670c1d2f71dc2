//! A store that counts what the log does behind its clients' backs: so that a test can prove that the
//! runs met it. It changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use talos_common::BrokerDir;
use talos_storage::{BoxFuture, FileInfo, FilePath, Prefix, Result, Storage, Traits, Writer};

/// How often each thing happened. Clones share it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counts(Arc<Mutex<BTreeMap<String, u64>>>);

impl Counts {
    pub(crate) fn add(&self, what: &str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what.to_owned()).or_default() += 1;
    }

    pub(crate) fn all(&self) -> BTreeMap<String, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[derive(Debug)]
struct Observed {
    inner: Arc<dyn Storage>,
    counts: Counts,
    /// Directories that this process made, and its newest journal.
    own: Mutex<(BTreeSet<BrokerDir>, Option<FilePath>)>,
}

pub(crate) fn observed(inner: Arc<dyn Storage>, counts: Counts) -> Arc<dyn Storage> {
    Arc::new(Observed { inner, counts, own: Mutex::default() })
}

impl Observed {
    fn is_own(&self, path: &FilePath) -> bool {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        path.dir().is_some_and(|dir| own.0.contains(&dir))
    }

    fn is_newest(&self, path: &FilePath) -> bool {
        let own = self.own.lock().unwrap_or_else(PoisonError::into_inner);
        own.1.as_ref() == Some(path)
    }
}

impl Storage for Observed {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner).0.insert(dir);
        self.inner.make_dir(dir)
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        Box::pin(async move {
            let inner = self.inner.create(path.clone()).await?;
            self.own.lock().unwrap_or_else(PoisonError::into_inner).1 = Some(path);
            Ok(inner)
        })
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        match path {
            // Only closed journals are sorted: this is a reader behind the tail cache.
            FilePath::Journal { .. } if self.is_newest(path) => self.counts.add("log evicted read"),
            FilePath::Segment { .. } => self.counts.add("log segment read"),
            FilePath::Sorted { .. } => self.counts.add("log sorted journal read"),
            FilePath::Journal { .. } | FilePath::Cluster | FilePath::SealIndex { .. } => {}
        }
        self.inner.read(path, range)
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
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
        self.counts.add(match path {
            FilePath::Journal { .. } => "log sorting pass that replaced a journal",
            FilePath::Sorted { .. } => "log sorted journal deleted",
            FilePath::Segment { .. } => "log segment deleted",
            FilePath::Cluster | FilePath::SealIndex { .. } => "log other file deleted",
        });
        self.inner.delete(path)
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        self.counts.add("log broker directory deleted");
        self.inner.delete_dir(dir)
    }

    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        match path {
            FilePath::Sorted { .. } if self.is_own(path) => self.counts.add("log sorted journal"),
            FilePath::Segment { .. } => self.counts.add("log segment"),
            _ => {}
        }
        self.inner.publish(path, parts)
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }
}
