//! What a sorting pass reads, and the sorted journals that it writes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use talos_common::BrokerDir;
use talos_protocol::batch::{BatchHeader, Batches};
use talos_storage::{FilePath, Storage};

use super::{PassError, Sorter};
use crate::format::SortedFile;
use crate::partition::PartitionLog;
use crate::partition::tiers::Sortable;
use crate::run::Run;
use crate::runs::{OpenRun, RunFileBuilder};

/// A sorted journal is closed once it has this many bytes: it is built in memory.
const SORTED_FILE_BYTES: u64 = 32 << 20;
/// Extents read at once.
const READ_EXTENTS: usize = 512;
/// Bytes read at once; one batch at least.
const READ_RUN_BYTES: usize = 4 << 20;

/// A run that takes the place of others once the catalog is durable.
#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) log: Arc<PartitionLog>,
    /// Offsets (end exclusive).
    pub(super) range: (i64, i64),
    pub(super) file: u64,
    /// Of the run in the file.
    pub(super) index: usize,
    /// Whether its end says what is known of producers.
    pub(super) has_state: bool,
}

/// A sorted journal that was published and that no catalog names yet.
#[derive(Debug)]
pub(super) struct NewFile {
    pub(super) stated: SortedFile,
    pub(super) runs: Vec<Arc<Run>>,
}

/// The sorted journals that one pass writes: one set.
pub(super) struct SortedFiles {
    storage: Arc<dyn Storage>,
    cluster: [u8; 16],
    dir: BrokerDir,
    next_number: Arc<AtomicU64>,
    /// Number of the first one.
    set: u64,
    number: u64,
    builder: RunFileBuilder,
    pub(super) files: BTreeMap<u64, NewFile>,
    pub(super) exchanges: Vec<Exchange>,
    /// All files that may be there.
    paths: Vec<FilePath>,
}

impl SortedFiles {
    pub(super) fn new(sorter: &Sorter) -> Self {
        let cluster = sorter.parts.cluster;
        let number = sorter.next_sorted.fetch_add(1, Ordering::Relaxed);
        Self {
            storage: Arc::clone(&sorter.parts.storage),
            cluster,
            dir: sorter.parts.dir,
            set: number,
            number,
            next_number: Arc::clone(&sorter.next_sorted),
            builder: RunFileBuilder::default(),
            files: BTreeMap::new(),
            exchanges: Vec::new(),
            paths: Vec::new(),
        }
    }

    /// Adds one partition's runs: older `pieces`, which are only merged, and the `last` one, with raw
    /// batches; with `keep_state` an empty run where only its producer state must be kept (E-J2). After an
    /// error nothing of the last one is there; `Some` says why some runs could not be merged.
    pub(super) async fn add(
        &mut self,
        log: &Arc<PartitionLog>,
        pieces: Vec<Sortable>,
        last: Sortable,
        keep_state: bool,
    ) -> Result<Option<PassError>, PassError> {
        let mut not_merged = None;
        for piece in &pieces {
            if let Err(error) = self.add_piece(log, piece, false, false).await {
                not_merged.get_or_insert(error);
            }
        }
        let Err(error) = self.add_piece(log, &last, keep_state, true).await else {
            return Ok(not_merged);
        };
        if last.runs.is_empty() {
            return Err(error);
        }
        // A damaged run must not keep the journals behind it.
        let raw = Sortable { runs: Vec::new(), ..last };
        self.add_piece(log, &raw, keep_state, true).await?;
        Ok(Some(not_merged.unwrap_or(error)))
    }

    /// After an error nothing of it is there.
    async fn add_piece(
        &mut self,
        log: &Arc<PartitionLog>,
        source: &Sortable,
        keep_state: bool,
        has_state: bool,
    ) -> Result<(), PassError> {
        let mark = self.builder.mark();
        let added = self.try_add(log, source, keep_state, has_state).await;
        if added.is_err() {
            self.builder.rollback(mark);
        }
        added
    }

    async fn try_add(
        &mut self,
        log: &Arc<PartitionLog>,
        source: &Sortable,
        keep_state: bool,
        has_state: bool,
    ) -> Result<(), PassError> {
        let (range, mut run) = match source.range() {
            Some(range) => (range, self.builder.begin(log.id(), log.leader_epoch(), range.0)),
            None if keep_state && !source.producers.is_empty() => {
                let at = log.offsets().log_start;
                ((at, at), self.builder.begin(log.id(), log.leader_epoch(), at))
            }
            None => return Ok(()),
        };
        let mut reader = SourceReader::new(source);
        loop {
            let batches = reader.next(log, &self.storage).await?;
            if batches.is_empty() {
                break;
            }
            push_all(&mut self.builder, &mut run, batches)?;
        }
        self.builder.end(run, source.epochs.clone(), source.producers.clone());
        let (log, file, index) = (Arc::clone(log), self.number, self.builder.runs().len() - 1);
        self.exchanges.push(Exchange { log, range, file, index, has_state });
        Ok(())
    }

    pub(super) async fn publish_if_full(&mut self) -> Result<(), PassError> {
        if self.builder.bytes() >= SORTED_FILE_BYTES {
            self.publish().await?;
        }
        Ok(())
    }

    async fn publish(&mut self) -> Result<(), PassError> {
        let path = FilePath::Sorted { dir: self.dir, number: self.number };
        let builder = std::mem::take(&mut self.builder);
        let finished = builder.finish(self.cluster, &path, Vec::new(), None);
        self.paths.push(path.clone());
        self.storage.publish(&path, finished.parts).await?;
        let (number, set) = (self.number, self.set);
        let (bytes, index_crc) = (finished.bytes, finished.index_crc);
        let runs = finished.index.runs.into_iter();
        let runs = runs.map(|entry| Run::sorted(path.clone(), set, entry)).collect();
        let stated = SortedFile { number, set, bytes, index_crc };
        self.files.insert(number, NewFile { stated, runs });
        self.number = self.next_number.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    pub(super) async fn flush(&mut self) -> Result<(), PassError> {
        if !self.builder.is_empty() {
            self.publish().await?;
        }
        Ok(())
    }

    /// The files that may be there and that no catalog will name.
    pub(super) fn discard(self) -> Vec<FilePath> {
        self.paths
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
