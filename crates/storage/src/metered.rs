//! A decorator that counts: calls, failures, bytes and time per operation. It changes no outcome.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use talos_common::{BrokerDir, Clock};

use crate::{AppendFuture, BoxFuture, FileInfo, FilePath, Prefix, Result, Storage, Traits, Writer};

/// A count that only rises.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Its value now.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    fn add(&self, by: u64) {
        self.0.fetch_add(by, Ordering::Relaxed);
    }
}

/// The counts of one operation. What was called and neither succeeded nor failed is under way, or its
/// future was dropped.
#[derive(Debug, Default)]
pub struct OperationMetrics {
    /// Calls begun.
    pub calls: Counter,
    /// Calls that succeeded.
    pub successes: Counter,
    /// Calls that failed, of whatever kind; being fenced is one.
    pub failures: Counter,
    /// Bytes of the data appended, published or read by calls that succeeded, notes aside.
    pub bytes: Counter,
    /// Microseconds from call to answer, summed up; for an append, to when its future was polled.
    pub busy_us: Counter,
}

/// The counts of one store.
#[derive(Debug, Default)]
pub struct StorageMetrics {
    /// [`Storage::make_dir`].
    pub make_dir: OperationMetrics,
    /// [`Storage::create`].
    pub create: OperationMetrics,
    /// [`Writer::append`].
    pub append: OperationMetrics,
    /// [`Storage::read`].
    pub read: OperationMetrics,
    /// [`Storage::seal`].
    pub seal: OperationMetrics,
    /// [`Storage::list`].
    pub list: OperationMetrics,
    /// [`Storage::delete`].
    pub delete: OperationMetrics,
    /// [`Storage::delete_dir`].
    pub delete_dir: OperationMetrics,
    /// [`Storage::publish`].
    pub publish: OperationMetrics,
}

impl StorageMetrics {
    /// All operations with their names, for whoever exports them.
    pub fn operations(&self) -> [(&'static str, &OperationMetrics); 9] {
        [
            ("make_dir", &self.make_dir),
            ("create", &self.create),
            ("append", &self.append),
            ("read", &self.read),
            ("seal", &self.seal),
            ("list", &self.list),
            ("delete", &self.delete),
            ("delete_dir", &self.delete_dir),
            ("publish", &self.publish),
        ]
    }
}

impl OperationMetrics {
    async fn count<T>(
        &self,
        clock: &Clock,
        work: impl Future<Output = Result<T>>,
        bytes: impl FnOnce(&T) -> u64,
    ) -> Result<T> {
        self.calls.add(1);
        let start = clock.now();
        let result = work.await;
        self.end(clock, start, result.as_ref().ok().map(bytes));
        result
    }

    /// `bytes` of a success.
    fn end(&self, clock: &Clock, start: tokio::time::Instant, bytes: Option<u64>) {
        let took = clock.now().saturating_duration_since(start).as_micros();
        self.busy_us.add(u64::try_from(took).unwrap_or(u64::MAX));
        match bytes {
            Some(bytes) => {
                self.successes.add(1);
                self.bytes.add(bytes);
            }
            None => self.failures.add(1),
        }
    }
}

/// A store whose calls are counted.
#[derive(Debug)]
pub struct Metered {
    inner: Arc<dyn Storage>,
    metrics: Arc<StorageMetrics>,
    clock: Clock,
}

impl Metered {
    /// Counts the calls of `inner` in `metrics`, by the time of `clock`.
    pub fn new(inner: Arc<dyn Storage>, metrics: Arc<StorageMetrics>, clock: Clock) -> Self {
        Self { inner, metrics, clock }
    }
}

fn none<T>(_: &T) -> u64 {
    0
}

impl Storage for Metered {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.metrics.make_dir.count(&self.clock, self.inner.make_dir(dir), none))
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        Box::pin(async move {
            let create = self.inner.create(path);
            let inner = self.metrics.create.count(&self.clock, create, none).await?;
            let (metrics, clock) = (Arc::clone(&self.metrics), self.clock.clone());
            Ok(Box::new(MeteredWriter { inner, metrics, clock }) as Box<dyn Writer>)
        })
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let read = self.inner.read(path, range);
        Box::pin(self.metrics.read.count(&self.clock, read, |bytes| bytes.len() as u64))
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(self.metrics.seal.count(&self.clock, self.inner.seal(dir), none))
    }

    fn list(
        &self,
        prefix: Prefix,
        after: Option<FilePath>,
    ) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(self.metrics.list.count(&self.clock, self.inner.list(prefix, after), none))
    }

    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.metrics.delete.count(&self.clock, self.inner.delete(path), none))
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.metrics.delete_dir.count(&self.clock, self.inner.delete_dir(dir), none))
    }

    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let publish = self.inner.publish(path, parts);
        Box::pin(self.metrics.publish.count(&self.clock, publish, move |()| bytes))
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }
}

#[derive(Debug)]
struct MeteredWriter {
    inner: Box<dyn Writer>,
    metrics: Arc<StorageMetrics>,
    clock: Clock,
}

impl Writer for MeteredWriter {
    fn append(&mut self, buffers: Vec<Bytes>, note: Option<Bytes>) -> AppendFuture {
        let bytes = buffers.iter().map(|buffer| buffer.len() as u64).sum();
        // The append begins with the call, not with the first poll.
        let (start, append) = (self.clock.now(), self.inner.append(buffers, note));
        let (metrics, clock) = (Arc::clone(&self.metrics), self.clock.clone());
        metrics.append.calls.add(1);
        Box::pin(async move {
            let result = append.await;
            metrics.append.end(&clock, start, result.is_ok().then_some(bytes));
            result
        })
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }
}
