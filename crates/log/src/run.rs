//! A run as a partition holds it: which file, which offsets, and its blocks once they are needed.

use std::sync::Arc;

use bytes::Bytes;
use talos_common::TopicPartitionId;
use talos_storage::{FilePath, Storage};
use tokio::sync::OnceCell;

use crate::producers::Producers;
use crate::runs::{self, RunEntry, RunFileError, SegmentEntry, Stated};

/// A stretch of one partition in a sorted journal or a segment.
#[derive(Debug)]
pub(crate) struct Run {
    pub(crate) file: FilePath,
    pub(crate) base_offset: i64,
    /// Exclusive.
    pub(crate) end_offset: i64,
    /// Bytes of its batches.
    pub(crate) bytes: u64,
    /// Largest timestamp in it, in milliseconds.
    pub(crate) max_timestamp: i64,
    /// Set when it is a segment.
    pub(crate) segment: Option<SegmentEntry>,
    /// Of a sorted journal: the set that its file belongs to.
    pub(crate) set: u64,
    cluster: [u8; 16],
    entry: OnceCell<Arc<RunEntry>>,
}

impl Run {
    /// A run of a sorted journal of the set `set`, whose index is in memory.
    pub(crate) fn sorted(file: FilePath, set: u64, entry: RunEntry) -> Arc<Self> {
        Self::loaded(file, entry, None, set)
    }

    /// A segment that was just written.
    pub(crate) fn written(file: FilePath, entry: RunEntry, segment: SegmentEntry) -> Arc<Self> {
        Self::loaded(file, entry, Some(segment), 0)
    }

    fn loaded(
        file: FilePath,
        entry: RunEntry,
        segment: Option<SegmentEntry>,
        set: u64,
    ) -> Arc<Self> {
        Arc::new(Self {
            file,
            base_offset: entry.base_offset,
            end_offset: entry.end_offset,
            bytes: entry.bytes,
            max_timestamp: entry.max_timestamp(),
            segment,
            set,
            cluster: [0; 16],
            entry: OnceCell::new_with(Some(Arc::new(entry))),
        })
    }

    /// The same run without its producer state, which only who recovers a log or has just sorted it
    /// needs: a log that kept it would remember every producer once for each run.
    pub(crate) fn lean(self: Arc<Self>) -> Arc<Self> {
        let Some(entry) = self.entry.get().filter(|entry| !entry.producers.is_empty()) else {
            return self;
        };
        let entry = RunEntry { producers: Producers::new(), ..RunEntry::clone(entry) };
        Arc::new(Self {
            file: self.file.clone(),
            base_offset: self.base_offset,
            end_offset: self.end_offset,
            bytes: self.bytes,
            max_timestamp: self.max_timestamp,
            segment: self.segment,
            set: self.set,
            cluster: self.cluster,
            entry: OnceCell::new_with(Some(Arc::new(entry))),
        })
    }

    /// A segment that a manifest names; its footer is read at first use.
    pub(crate) fn segment(
        partition: TopicPartitionId,
        segment: SegmentEntry,
        cluster: [u8; 16],
    ) -> Arc<Self> {
        Arc::new(Self {
            file: segment.path(partition),
            base_offset: segment.base_offset,
            end_offset: segment.end_offset,
            bytes: segment.bytes,
            max_timestamp: segment.max_timestamp,
            segment: Some(segment),
            set: 0,
            cluster,
            entry: OnceCell::new(),
        })
    }

    /// The run's blocks. Cancel safe.
    pub(crate) async fn entry(
        &self,
        storage: &Arc<dyn Storage>,
    ) -> Result<Arc<RunEntry>, RunFileError> {
        let load = async {
            let len = self.segment.map_or(0, |segment| segment.file_bytes);
            let stated = Stated::exactly(len);
            let found = runs::read_index(storage, &self.file, stated, self.cluster).await?;
            found.warn(&self.file);
            let run = found.index.runs.into_iter().next().filter(|run| {
                (run.base_offset, run.end_offset) == (self.base_offset, self.end_offset)
            });
            let lean = |run| Arc::new(RunEntry { producers: Producers::new(), ..run });
            run.map(lean).ok_or_else(|| RunFileError::Corrupt {
                file: self.file.clone(),
                position: 0,
                what: "the segment holds other offsets than the manifest says".into(),
                foreign: false,
            })
        };
        self.entry.get_or_try_init(|| load).await.cloned()
    }

    /// The run's producer state and epochs, if its index is in memory.
    pub(crate) fn known(&self) -> Option<&Arc<RunEntry>> {
        self.entry.get()
    }

    /// Whole batches from the one that holds `offset` on: see [`runs::read_block_run`].
    pub(crate) async fn read(
        &self,
        storage: &Arc<dyn Storage>,
        offset: i64,
        max_bytes: usize,
    ) -> Result<Bytes, RunFileError> {
        let entry = self.entry(storage).await?;
        runs::read_block_run(storage, &self.file, &entry, offset, max_bytes).await
    }
}
