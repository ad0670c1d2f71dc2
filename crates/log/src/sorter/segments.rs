//! Partitions that are worth files of their own, and the files that no root reaches any more.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use talos_common::{LeaderEpoch, TopicPartitionId};
use talos_protocol::batch::BatchHeader;
use talos_storage::{Error as StorageError, FilePath, Prefix};
use tokio::time::Instant;

use super::files::{SourceReader, delete_all, push_all};
use super::{PassError, Sorter};
use crate::partition::PartitionLog;
use crate::partition::tiers::Sortable;
use crate::root::RootError;
use crate::run::Run;
use crate::runs::{RunFileBuilder, SegmentEntry};

/// A segment's file goes this long after the root stopped reaching it: readers may be at it.
const DELETE_DELAY: Duration = Duration::from_secs(60);

/// Partitions that are looked through for garbage in one turn.
const SWEEPS: usize = 100;

/// Segments of former leaders that no root reaches: what a pass left that was cut off, or whose deletion
/// was. They are this leader's to delete (E-J4): the root was read after its claim, no older leader can change
/// it any more, and a newer one reaches nothing of theirs that this one does not.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    /// Leaderships that were noticed.
    seen: BTreeMap<TopicPartitionId, LeaderEpoch>,
    /// Those whose files are still to be looked through, and since when.
    waiting: VecDeque<(Instant, TopicPartitionId)>,
}

impl Sorter {
    /// Looks through the files of partitions that are led for a while, some in each turn, once for each
    /// leadership: so listings follow leaderships, not time.
    pub(super) async fn collect_garbage(&mut self) {
        let now = self.parts.env.clock.now();
        for log in self.parts.registry.logs() {
            let (id, epoch) = (log.id(), log.leader_epoch());
            if self.garbage.seen.insert(id, epoch) != Some(epoch) && epoch > LeaderEpoch(0) {
                self.garbage.waiting.push_back((now, id));
            }
        }
        self.garbage.seen.retain(|id, _| self.parts.registry.holds(*id));
        for _ in 0..SWEEPS {
            let Some((since, id)) = self.garbage.waiting.front().copied() else { return };
            if now.duration_since(since) < DELETE_DELAY {
                return;
            }
            self.garbage.waiting.pop_front();
            let Some(log) = self.parts.registry.get(id) else { continue };
            if let Err(error) = self.sweep(&log).await {
                tracing::debug!(partition = %id, %error, "its files are looked through later");
                self.garbage.waiting.push_back((now, id));
            }
        }
    }

    /// Deletes the segments of lower leader epochs that neither the root nor a reader of `log` reaches.
    async fn sweep(&self, log: &PartitionLog) -> Result<(), StorageError> {
        let mut after = None;
        loop {
            let page = self.parts.storage.list(Prefix::Partition(log.id()), after).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.path.clone());
            // Read after the listing: what came since has this leader's epoch.
            let mut needed = log.segments().await;
            needed.extend(self.dying.iter().map(|(_, path)| path.clone()));
            for file in page {
                let FilePath::Segment { leader_epoch, .. } = file.path else { continue };
                let is_older = leader_epoch < log.leader_epoch();
                if is_older && !needed.contains(&file.path) && log.ended().is_none() {
                    tracing::info!(path = %file.path, "deleting a segment that no root reaches");
                    self.parts.storage.delete(&file.path).await?;
                }
            }
        }
    }

    /// Publishes all of `source` as segments and makes the root reach them.
    pub(super) async fn write_segments(
        &mut self,
        log: &Arc<PartitionLog>,
        source: Sortable,
    ) -> Result<(), PassError> {
        let Some((base_offset, _)) = source.range() else { return Ok(()) };
        let mut paths = Vec::new();
        let outcome = match self.publish_all(log, &source, &mut paths).await {
            Ok(segments) => log.publish_segments(base_offset, segments).await.map_err(Into::into),
            Err(error) => Err(error),
        };
        match &outcome {
            // They may be reached, now or by the next leader.
            Ok(()) | Err(PassError::Root(RootError::Uncertain(_))) => return outcome,
            Err(PassError::Root(RootError::Fenced | RootError::Corrupt(_))) => return outcome,
            Err(_) => {}
        }
        delete_all(&self.parts.storage, paths).await;
        outcome
    }

    /// Writes `source` into segments; gives also the names of those that may be there after an error.
    async fn publish_all(
        &mut self,
        log: &Arc<PartitionLog>,
        source: &Sortable,
        paths: &mut Vec<FilePath>,
    ) -> Result<Vec<Arc<Run>>, PassError> {
        let mut manifest = source.manifest.clone();
        let mut segments = Vec::new();
        let mut reader = SourceReader::new(source);
        let mut next = reader.next(log, &self.parts.storage).await?;
        while !next.is_empty() {
            let mut file = RunFileBuilder::default();
            let first = BatchHeader::parse(next.first().map_or(&[], |batch| batch))?.base_offset;
            let mut run = file.begin(log.id(), log.leader_epoch(), first);
            // One piece at least: every segment holds something.
            loop {
                push_all(&mut file, &mut run, next)?;
                next = reader.next(log, &self.parts.storage).await?;
                if next.is_empty() || file.bytes() >= self.parts.segment_bytes {
                    break;
                }
            }
            let end = run.end_offset();
            file.end(run, source.epochs.below(end), source.producers.below(end));
            segments.push(self.publish_segment(log, file, &mut manifest, paths).await?);
        }
        Ok(segments)
    }

    async fn publish_segment(
        &self,
        log: &Arc<PartitionLog>,
        file: RunFileBuilder,
        manifest: &mut Vec<SegmentEntry>,
        paths: &mut Vec<FilePath>,
    ) -> Result<Arc<Run>, PassError> {
        let attempt = self.parts.env.rng.u64(..);
        let run = file.runs().first().ok_or(PassError::Closed)?;
        let itself = SegmentEntry {
            base_offset: run.base_offset,
            end_offset: run.end_offset,
            leader_epoch: run.leader_epoch,
            attempt,
            bytes: run.bytes,
            file_bytes: 0,
            max_timestamp: run.max_timestamp(),
        };
        let path = itself.path(log.id());
        let cluster = self.parts.cluster;
        let finished = file.finish(cluster, &path, manifest.clone(), Some(itself));
        let index = finished.index;
        let run = index.runs.into_iter().next().zip(index.manifest.last().copied());
        let (run, segment) = run.ok_or(PassError::Closed)?;
        paths.push(path.clone());
        self.parts.storage.publish(&path, finished.parts).await?;
        *manifest = index.manifest;
        Ok(Run::written(path, run, segment))
    }

    pub(super) async fn delete_dead_segments(&mut self) {
        let now = self.parts.env.clock.now();
        for log in self.parts.registry.logs() {
            self.dying.extend(log.take_dead_segments().into_iter().map(|path| (now, path)));
        }
        while let Some((since, path)) = self.dying.front() {
            if now.duration_since(*since) < DELETE_DELAY {
                return;
            }
            if let Err(error) = self.parts.storage.delete(path).await {
                tracing::warn!(%path, %error, "a segment can not be deleted; it is tried again");
                return;
            }
            self.dying.pop_front();
        }
    }
}
