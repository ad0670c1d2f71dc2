//! What the catalogs of one broker directory say: which sorted journals are live, and which partitions
//! have runs in them. So a sorted journal that is missing, or can not be read, concerns only those.

use std::collections::BTreeMap;

use talos_common::{LeaderEpoch, TopicPartitionId};

use crate::format::{Frame, SortedEnd, SortedFile};

/// The catalogs that were read so far; the last one holds.
#[derive(Debug, Default)]
pub(crate) struct Catalogs {
    /// By generation, from that of the last catalog on.
    parts: BTreeMap<u64, Parts>,
    last: Option<Last>,
}

#[derive(Debug, Default)]
struct Parts {
    files: BTreeMap<u64, SortedFile>,
    ends: BTreeMap<(TopicPartitionId, LeaderEpoch), SortedEnd>,
}

/// The last catalog frame.
#[derive(Clone, Copy, Debug)]
struct Last {
    generation: u64,
    files: u32,
    partitions: u32,
}

impl Catalogs {
    /// Takes a frame of the lane, in its order; frames of other kinds say nothing.
    pub(crate) fn take(&mut self, frame: &Frame) {
        match frame {
            Frame::Sorted { generation, files, partitions } => {
                if self.last.is_some_and(|last| *generation < last.generation) {
                    return;
                }
                // A flush that is sent again says the same again.
                let parts = self.parts.entry(*generation).or_default();
                parts.files.extend(files.iter().map(|file| (file.number, *file)));
                let ends = partitions.iter().map(|end| ((end.partition, end.leader_epoch), *end));
                parts.ends.extend(ends);
            }
            Frame::Catalog { generation, files, partitions, .. } => {
                let (generation, files, partitions) = (*generation, *files, *partitions);
                self.last = Some(Last { generation, files, partitions });
                self.parts.retain(|of, _| *of >= generation);
            }
            Frame::Header(_)
            | Frame::Flush(_)
            | Frame::Batch(..)
            | Frame::Open { .. }
            | Frame::Published { .. }
            | Frame::Index { .. }
            | Frame::Close { .. }
            | Frame::Note { .. } => {}
        }
    }

    fn parts(&self) -> Option<&Parts> {
        self.parts.get(&self.last?.generation)
    }

    /// The live sorted journals, by number.
    pub(crate) fn files(&self) -> impl Iterator<Item = &SortedFile> {
        self.parts().into_iter().flat_map(|parts| parts.files.values())
    }

    /// The live sorted journal `number`.
    pub(crate) fn file(&self, number: u64) -> Option<&SortedFile> {
        self.parts()?.files.get(&number)
    }

    /// Whether `number` is live.
    pub(crate) fn names(&self, number: u64) -> bool {
        self.file(number).is_some()
    }

    /// What the runs of a partition that `leader_epoch` wrote hold.
    pub(crate) fn end_of(&self, pair: (TopicPartitionId, LeaderEpoch)) -> Option<&SortedEnd> {
        self.parts()?.ends.get(&pair)
    }

    /// How many live sorted journals there are, whether or not it was read which.
    pub(crate) fn file_count(&self) -> usize {
        self.last.map_or(0, |last| last.files as usize)
    }

    /// Whether all parts of the last catalog were read.
    pub(crate) fn is_complete(&self) -> bool {
        let Some(last) = self.last else { return true };
        let (files, partitions) =
            self.parts().map_or((0, 0), |parts| (parts.files.len(), parts.ends.len()));
        files == last.files as usize && partitions == last.partitions as usize
    }
}
