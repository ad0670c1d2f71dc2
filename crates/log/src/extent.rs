//! Where durable batches lie, and what knowing that costs.

use std::collections::VecDeque;
use std::sync::{Arc, Weak};

use talos_storage::FilePath;

use crate::format::{BATCH_PREFIX_BYTES, JournalId};
use crate::tail_cache::{PIECE_OVERHEAD_BYTES, Piece};

/// The file that holds a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A journal, of this broker epoch or of one that is inherited.
    Journal {
        /// Which.
        id: JournalId,
        /// What its frames' checksums are XORed with.
        mask: u32,
    },
}

impl Place {
    pub(crate) fn path(&self) -> FilePath {
        let Self::Journal { id, .. } = self;
        id.path()
    }
}

/// One durable batch of one partition. There is one for every batch that is not sorted yet, so it is
/// kept small: batches of one file share their place.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// Offset of its first record.
    pub(crate) base_offset: i64,
    /// Largest timestamp in it, in milliseconds.
    pub(crate) max_timestamp: i64,
    /// Where in the file the record batch starts.
    pub(crate) position: u64,
    /// In which file.
    pub(crate) place: Arc<Place>,
    /// The bytes in memory, unless evicted.
    pub(crate) piece: Weak<Piece>,
    /// Bytes of the record batch.
    pub(crate) length: u32,
    /// Offsets behind the first one; never negative.
    pub(crate) last_offset_delta: i32,
}

const _: () = assert!(size_of::<Extent>() == 48);

/// What an extent may cost besides its own bytes: when each flush carries one batch, the remains of an
/// evicted piece live as long as the extent that points to it.
const EXTENT_OVERHEAD_BYTES: usize = PIECE_OVERHEAD_BYTES;

impl Extent {
    /// Offset of its last record (inclusive).
    pub(crate) fn last_offset(&self) -> i64 {
        self.base_offset + i64::from(self.last_offset_delta)
    }

    /// Whether it holds `offset` or lies above it.
    pub(crate) fn reaches(&self, offset: i64) -> bool {
        self.last_offset() >= offset
    }

    /// Bytes that it takes in its journal.
    fn raw_bytes(&self) -> u64 {
        BATCH_PREFIX_BYTES as u64 + u64::from(self.length)
    }
}

/// Extents of one group have their largest timestamp in common.
const GROUP: usize = 256;

/// A partition's raw batches in offset order, gap-free. Looking for a time passes over whole groups.
#[derive(Debug, Default)]
pub(crate) struct Extents {
    all: VecDeque<Extent>,
    /// The largest timestamp of each group of [`GROUP`] extents; the first group has lost `lost`.
    groups: VecDeque<i64>,
    lost: usize,
    raw_bytes: u64,
    /// Of the batches alone.
    batch_bytes: u64,
}

/// What raw batches take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Load {
    /// In journals, in bytes.
    pub(crate) raw_bytes: u64,
    /// In memory, in bytes.
    pub(crate) memory_bytes: u64,
}

impl From<VecDeque<Extent>> for Extents {
    fn from(from: VecDeque<Extent>) -> Self {
        let mut extents = Self::default();
        extents.all.reserve_exact(from.len());
        from.into_iter().for_each(|extent| extents.push(extent));
        extents
    }
}

impl Extents {
    pub(crate) fn push(&mut self, extent: Extent) {
        self.raw_bytes += extent.raw_bytes();
        self.batch_bytes += u64::from(extent.length);
        let time = extent.max_timestamp;
        match self.groups.back_mut() {
            Some(group) if !(self.lost + self.all.len()).is_multiple_of(GROUP) => {
                *group = time.max(*group);
            }
            Some(_) | None => self.groups.push_back(time),
        }
        self.all.push_back(extent);
    }

    /// Drops the first extents for as long as `goes`; memory that they leave empty is given back.
    pub(crate) fn drop_while(&mut self, goes: impl Fn(&Extent) -> bool) {
        while self.all.front().is_some_and(&goes) {
            let Some(extent) = self.all.pop_front() else { break };
            self.raw_bytes -= extent.raw_bytes();
            self.batch_bytes -= u64::from(extent.length);
            self.lost += 1;
            if self.lost == GROUP || self.all.is_empty() {
                self.groups.pop_front();
                self.lost = 0;
            }
        }
        if self.all.capacity() > 64 && self.all.len() < self.all.capacity() / 4 {
            self.all.shrink_to(self.all.len() * 2);
            self.groups.shrink_to_fit();
        }
    }

    /// What they take.
    pub(crate) fn load(&self) -> Load {
        let slots = self.all.capacity() * size_of::<Extent>();
        let memory_bytes = slots + self.all.len() * EXTENT_OVERHEAD_BYTES + self.groups.len() * 8;
        Load { raw_bytes: self.raw_bytes, memory_bytes: memory_bytes as u64 }
    }

    /// Bytes of their batches.
    pub(crate) fn batch_bytes(&self) -> u64 {
        self.batch_bytes
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Extent> {
        self.all.iter()
    }

    pub(crate) fn first(&self) -> Option<&Extent> {
        self.all.front()
    }

    /// Those from the one that holds `offset` on.
    pub(crate) fn reaching(&self, offset: i64) -> impl Iterator<Item = &Extent> {
        self.all.range(self.index_of(offset)..)
    }

    fn index_of(&self, offset: i64) -> usize {
        self.all.partition_point(|extent| !extent.reaches(offset))
    }

    /// The largest timestamp of those that begin at or above `offset`. Looks at no more than two groups
    /// one by one, so it costs little under a lock.
    pub(crate) fn largest_time(&self, offset: i64) -> Option<i64> {
        let mut at = self.all.partition_point(|extent| extent.base_offset < offset);
        let mut largest = None;
        while let Some(extent) = self.all.get(at) {
            match self.whole_group(at) {
                Some((time, next)) => {
                    largest = largest.max(Some(time));
                    at = next;
                }
                None => {
                    largest = largest.max(Some(extent.max_timestamp));
                    at += 1;
                }
            }
        }
        largest
    }

    /// The first from the one that holds `offset` on whose largest timestamp is at least `time`.
    pub(crate) fn first_at(&self, offset: i64, time: i64) -> Option<&Extent> {
        let mut at = self.index_of(offset);
        while let Some(extent) = self.all.get(at) {
            match self.whole_group(at) {
                Some((largest, next)) if largest < time => at = next,
                Some(_) | None if extent.max_timestamp >= time => return Some(extent),
                Some(_) | None => at += 1,
            }
        }
        None
    }

    /// When a group begins at `at`: its largest timestamp, and where the next one begins. The largest of
    /// a group that lost some may be that of one which is gone, so the first is whole only if it lost none.
    fn whole_group(&self, at: usize) -> Option<(i64, usize)> {
        let place = self.lost + at;
        if !place.is_multiple_of(GROUP) {
            return None;
        }
        let group = self.groups.get(place / GROUP)?;
        Some((*group, at + GROUP))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LaneId, Rng};

    fn extent(place: &Arc<Place>, n: i64, time: i64) -> Extent {
        Extent {
            base_offset: n * 2,
            max_timestamp: time,
            position: n as u64,
            place: Arc::clone(place),
            piece: Weak::new(),
            length: 10,
            last_offset_delta: 1,
        }
    }

    fn place() -> Arc<Place> {
        let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(1) };
        let id = JournalId { dir, lane: LaneId(0), number: 0 };
        Arc::new(Place::Journal { id, mask: 0 })
    }

    #[test]
    fn groups_answer_as_a_walk_over_all_extents_does() {
        let rng = Rng::from_seed(5);
        let place = place();
        let mut extents = Extents::default();
        let mut walked: VecDeque<Extent> = VecDeque::new();
        for round in 0..3_000_i64 {
            let new = extent(&place, round, rng.u64(..1_000) as i64);
            walked.push_back(new.clone());
            extents.push(new);
            if rng.u64(..4) == 0 && round > 700 {
                let gone = rng.u64(..8) as i64 + walked[0].base_offset;
                extents.drop_while(|extent| extent.last_offset() < gone);
                walked.retain(|extent| extent.last_offset() >= gone);
            }
            if round % 7 != 0 {
                continue;
            }
            let from = walked[0].base_offset + rng.u64(..2 * walked.len() as u64) as i64;
            let above = walked.iter().filter(|extent| extent.base_offset >= from);
            assert_eq!(extents.largest_time(from), above.map(|e| e.max_timestamp).max());
            let time = 900 + rng.u64(..110) as i64;
            let found = walked.iter().find(|e| e.reaches(from) && e.max_timestamp >= time);
            let base = |extent: &Extent| extent.base_offset;
            assert_eq!(extents.first_at(from, time).map(base), found.map(base));
            assert_eq!(
                extents.load().raw_bytes,
                walked.len() as u64 * (10 + BATCH_PREFIX_BYTES as u64)
            );
        }
    }

    #[test]
    fn r15_memory_of_extents_follows_their_number_down_as_well_as_up() {
        let place = place();
        let mut extents = Extents::default();
        let before = extents.load().memory_bytes;
        for n in 0..100_000 {
            extents.push(extent(&place, n, n));
        }
        let full = extents.load().memory_bytes;
        assert!(full >= 100_000 * 48, "{full}");
        extents.drop_while(|extent| extent.base_offset < 199_900);
        assert!(extents.load().memory_bytes < full / 100);
        extents.drop_while(|_| true);
        assert!(extents.load().memory_bytes <= before + 64 * 48);
        assert_eq!(extents.load().raw_bytes, 0);
        assert_eq!(extents.largest_time(0), None);
    }
}
