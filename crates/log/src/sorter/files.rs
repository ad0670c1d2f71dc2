//! What a sorting pass reads, and the sorted journals that it writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use talos_common::BrokerDir;
use talos_protocol::batch::{BatchHeader, Batches};
use talos_storage::{FilePath, Storage};

use super::{Exchange, PassError, Sorter};
use crate::partition::PartitionLog;
use crate::partition::tiers::Sortable;
use crate::run::Run;
use crate::runs::{OpenRun, RunFileBuilder, RunKind};

/// A sorted journal is closed once it has this many bytes: it is built in memory.
const SORTED_FILE_BYTES: u64 = 32 << 20;
/// Extents read at once.
const READ_EXTENTS: usize = 512;
/// Bytes read at once; one batch at least.
const READ_RUN_BYTES: usize = 4 << 20;

/// The sorted journals that one pass writes.
pub(super) struct SortedFiles {
    storage: Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    next_number: Arc<AtomicU64>,
    number: u64,
    builder: RunFileBuilder,
    pub(super) files: BTreeMap<u64, Vec<Arc<Run>>>,
    pub(super) exchanges: Vec<Exchange>,
    /// All files that may be there.
    paths: Vec<FilePath>,
}

impl SortedFiles {
    pub(super) fn new(sorter: &Sorter) -> Self {
        let cluster = sorter.parts.cluster;
        Self {
            storage: Arc::clone(&sorter.parts.storage),
            cluster,
            dir: sorter.parts.dir,
            number: sorter.next_sorted.fetch_add(1, Ordering::Relaxed),
            next_number: Arc::clone(&sorter.next_sorted),
            builder: RunFileBuilder::new(RunKind::Sorted, cluster),
            files: BTreeMap::new(),
            exchanges: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Adds one partition's run; an empty one when only its producer state must be kept (E-J2).
    /// After an error nothing of it is there.
    pub(super) async fn add(
        &mut self,
        log: &Arc<PartitionLog>,
        source: Sortable,
        keep_state: bool,
    ) -> Result<(), PassError> {
        let mark = self.builder.mark();
        let added = self.try_add(log, source, keep_state).await;
        if added.is_err() {
            self.builder.rollback(mark);
        }
        added
    }

    async fn try_add(
        &mut self,
        log: &Arc<PartitionLog>,
        source: Sortable,
        keep_state: bool,
    ) -> Result<(), PassError> {
        let (range, mut run) = match source.range() {
            Some(range) => (range, self.builder.begin(log.id(), log.leader_epoch(), range.0)),
            None if keep_state && !source.producers.is_empty() => {
                let at = log.offsets().log_start;
                ((at, at), self.builder.begin(log.id(), log.leader_epoch(), at))
            }
            None => return Ok(()),
        };
        let mut reader = SourceReader::new(&source);
        loop {
            let batches = reader.next(log, &self.storage).await?;
            if batches.is_empty() {
                break;
            }
            push_all(&mut self.builder, &mut run, batches)?;
        }
        self.builder.end(run, source.epochs, source.producers);
        let index = self.builder.runs().len() - 1;
        self.exchanges.push(Exchange { log: Arc::clone(log), range, file: self.number, index });
        Ok(())
    }

    pub(super) async fn publish_if_full(&mut self) -> Result<(), PassError> {
        if self.builder.bytes() >= SORTED_FILE_BYTES {
            self.publish().await?;
        }
        Ok(())
    }

    async fn publish(&mut self) -> Result<(), PassError> {
        let next = RunFileBuilder::new(RunKind::Sorted, self.cluster);
        let (parts, index) = std::mem::replace(&mut self.builder, next).finish(Vec::new(), None);
        let path = FilePath::Sorted { dir: self.dir, number: self.number };
        self.paths.push(path.clone());
        self.storage.publish(&path, parts).await?;
        let runs = index.runs.into_iter().map(|entry| Run::sorted(path.clone(), entry)).collect();
        self.files.insert(self.number, runs);
        self.number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> Result<(), PassError> {
        if !self.builder.is_empty() {
            self.publish().await?;
        }
        Ok(())
    }

    /// Deletes what was written: no catalog names it.
    pub(super) async fn discard(self) {
        delete_all(&self.storage, self.paths).await;
    }
}

/// Deletes files that nothing names. What can not be deleted now costs room, nothing else.
pub(super) async fn delete_all(storage: &Arc<dyn Storage>, paths: Vec<FilePath>) {
    for path in paths {
        if let Err(error) = storage.delete(&path).await {
            tracing::warn!(%path, %error, "a file that nothing needs stays");
        }
    }
}

pub(super) fn push_all(
    file: &mut RunFileBuilder,
    run: &mut OpenRun,
    batches: Vec<Bytes>,
) -> Result<(), PassError> {
    for batch in batches {
        let header = BatchHeader::parse(&batch)?;
        file.push(run, &header, batch);
    }
    Ok(())
}

/// Reads the batches of a source in order, some at a time.
pub(super) struct SourceReader<'a> {
    source: &'a Sortable,
    run: usize,
    /// Where the present run is read on.
    offset: i64,
    extent: usize,
}

impl<'a> SourceReader<'a> {
    pub(super) fn new(source: &'a Sortable) -> Self {
        Self { source, run: 0, offset: i64::MIN, extent: 0 }
    }

    /// The next batches; none at the end.
    pub(super) async fn next(
        &mut self,
        log: &Arc<PartitionLog>,
        storage: &Arc<dyn Storage>,
    ) -> Result<Vec<Bytes>, PassError> {
        while let Some(run) = self.source.runs.get(self.run) {
            let from = self.offset.max(run.base_offset);
            if from >= run.end_offset {
                self.run += 1;
                continue;
            }
            let bytes = run.read(storage, from, READ_RUN_BYTES).await?;
            let mut batches = Vec::new();
            for batch in Batches::new(bytes) {
                let batch = batch?;
                self.offset = batch.header.last_offset() + 1;
                batches.push(batch.bytes);
            }
            if batches.is_empty() {
                // Nothing at or above `from`: the run is done.
                self.run += 1;
                continue;
            }
            return Ok(batches);
        }
        let rest = self.source.extents.get(self.extent..).unwrap_or_default();
        let mut bytes = 0;
        let fits = rest.iter().take(READ_EXTENTS).take_while(|extent| {
            let first = bytes == 0;
            bytes += extent.length as usize;
            first || bytes <= READ_RUN_BYTES
        });
        let some = rest.get(..fits.count()).unwrap_or_default();
        self.extent += some.len();
        Ok(log.read_extents(some).await?)
    }
}
