//! Stating what is live: the frames before which nothing may go.

use std::collections::BTreeMap;

use bytes::BytesMut;
use talos_common::TopicPartitionId;

use super::files::Exchange;
use super::{PassError, Sorter};
use crate::format::{self, Frame, SORTED_END_BYTES, SORTED_FILE_BYTES, SortedEnd, SortedFile};

/// Control frames in one flush have at most so many bytes; and a small part of a file, so that a catalog
/// needs no room that a file near its end does not have.
const FLUSH_BYTES: u64 = 256 << 10;
const FLUSHES_PER_FILE: u64 = 128;
/// Of a sorted frame, without its entries.
const SORTED_FRAME_BYTES: usize = 24;

impl Sorter {
    /// Makes a catalog of all live sorted journals durable, and before it, what is known of the roots: from
    /// then on what it does not name may go, which an older root may need (E-J14).
    pub(super) async fn state_catalog(
        &mut self,
        exchanges: &[Exchange],
        replaced_below: u64,
    ) -> Result<(), PassError> {
        self.generation += 1;
        let limit = FLUSH_BYTES.min(self.parts.storage.traits().file_bytes / FLUSHES_PER_FILE);
        let logs = self.parts.registry.all();
        let mut frames: Vec<Frame> = logs.iter().filter_map(|log| log.published()).collect();
        let files: Vec<SortedFile> = self.live.values().map(|file| file.stated).collect();
        let partitions = self.sorted_ends(exchanges);
        let generation = self.generation;
        // Half of a flush each, so that any fits behind what waits already.
        let room = (limit as usize / 2).saturating_sub(SORTED_FRAME_BYTES);
        for files in files.chunks((room / SORTED_FILE_BYTES).max(1)) {
            let (files, partitions) = (files.to_vec(), Vec::new());
            frames.push(Frame::Sorted { generation, files, partitions });
        }
        for partitions in partitions.chunks((room / SORTED_END_BYTES).max(1)) {
            let (files, partitions) = (Vec::new(), partitions.to_vec());
            frames.push(Frame::Sorted { generation, files, partitions });
        }
        frames.push(Frame::Catalog {
            generation,
            replaced_below,
            // Both are what fits into memory.
            files: files.len() as u32,
            partitions: partitions.len() as u32,
        });
        self.make_durable(&frames, limit).await
    }

    /// Where the runs of all partitions in the own directory end, once places are exchanged.
    fn sorted_ends(&self, exchanges: &[Exchange]) -> Vec<SortedEnd> {
        let mut by_log: BTreeMap<TopicPartitionId, Vec<(i64, i64)>> = BTreeMap::new();
        for exchange in exchanges {
            by_log.entry(exchange.log.id()).or_default().push(exchange.range);
        }
        let mut ends = Vec::new();
        for log in self.parts.registry.all() {
            let partition = log.id();
            let replaced = by_log.get(&partition).map_or(&[][..], Vec::as_slice);
            let kept = log.sorted_runs_beside(replaced);
            let kept = kept.iter().filter(|run| run.file.dir() == Some(self.parts.dir));
            let own = kept.map(|run| run.end_offset);
            let state = self.newest_state.get(&partition);
            let state_at = state.map(|_| i64::MIN);
            let end = own.chain(replaced.iter().map(|range| range.1)).chain(state_at).max();
            let Some(end_offset) = end else { continue };
            let state = state.filter(|state| state.has_producers).map(|state| state.file);
            let leader_epoch = log.leader_epoch();
            ends.push(SortedEnd { partition, leader_epoch, end_offset, state });
        }
        ends
    }

    /// Makes the frames durable, in their order, at most about `limit` bytes at a time.
    async fn make_durable(&self, frames: &[Frame], limit: u64) -> Result<(), PassError> {
        let mut rest = frames;
        while !rest.is_empty() {
            let (mut bytes, mut count) = (0, 0);
            for frame in rest {
                let mut encoded = BytesMut::new();
                format::put_frame(&mut encoded, frame);
                bytes += encoded.len() as u64;
                if count > 0 && bytes > limit {
                    break;
                }
                count += 1;
            }
            let (some, later) = rest.split_at(count);
            let durable = self.parts.lane.push_control(some).map_err(|_| PassError::Closed)?;
            durable.await.map_err(|_| PassError::Closed)?;
            rest = later;
        }
        Ok(())
    }
}
