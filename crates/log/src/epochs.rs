//! Which leader epoch accepted which offsets: what OffsetForLeaderEpoch is answered from (KIP-101).

use talos_common::LeaderEpoch;

/// The epochs of a partition's log, each with the offset of its first record. Both rise strictly.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Epochs {
    starts: Vec<(LeaderEpoch, i64)>,
}

impl Epochs {
    /// Notes that the record at `offset` was accepted under `epoch`. Offsets must not fall.
    pub fn note(&mut self, epoch: LeaderEpoch, offset: i64) {
        if self.starts.last().is_none_or(|(newest, _)| *newest < epoch) {
            self.starts.push((epoch, offset));
        }
    }

    /// Forgets epochs that have no record at or above `log_start`.
    pub fn trim(&mut self, log_start: i64) {
        let dead = self.starts.iter().skip(1).take_while(|(_, start)| *start <= log_start).count();
        self.starts.drain(..dead);
        if let Some((_, start)) = self.starts.first_mut() {
            *start = (*start).max(log_start);
        }
    }

    /// The epochs that accepted records below `end_offset` (exclusive).
    pub fn below(&self, end_offset: i64) -> Self {
        let starts = self.starts.iter().filter(|(_, start)| *start < end_offset).copied();
        Self { starts: starts.collect() }
    }

    /// The newest epoch that accepted a record.
    pub fn newest(&self) -> Option<LeaderEpoch> {
        self.starts.last().map(|(epoch, _)| *epoch)
    }

    /// The epoch that accepted the record at `offset`; `None` below the first one that is known.
    pub fn of(&self, offset: i64) -> Option<LeaderEpoch> {
        let above = self.starts.partition_point(|(_, start)| *start <= offset);
        self.starts.get(above.checked_sub(1)?).map(|(epoch, _)| *epoch)
    }

    /// Where the records that `epoch` accepted start, if there are any.
    pub(crate) fn start_of(&self, epoch: LeaderEpoch) -> Option<i64> {
        let at = self.starts.binary_search_by_key(&epoch, |(of, _)| *of).ok()?;
        self.starts.get(at).map(|(_, start)| *start)
    }

    /// The epochs with the offset of the first record of each, oldest first.
    pub fn starts(&self) -> &[(LeaderEpoch, i64)] {
        &self.starts
    }

    /// For a client whose last record has epoch `asked`: the largest epoch not above it that has
    /// records here, and the offset behind its last record. `log_end` is exclusive; `current` is the
    /// leader's epoch. `None` when nothing is known about so old an epoch (Kafka answers -1, -1).
    pub fn end_of(
        &self,
        asked: LeaderEpoch,
        current: LeaderEpoch,
        log_end: i64,
    ) -> Option<(LeaderEpoch, i64)> {
        if asked == current {
            return Some((current, log_end));
        }
        if asked > current {
            return None;
        }
        let above = self.starts.partition_point(|(epoch, _)| *epoch <= asked);
        let end = self.starts.get(above).map_or(log_end, |(_, start)| *start);
        match above.checked_sub(1).and_then(|at| self.starts.get(at)) {
            Some((epoch, _)) => Some((*epoch, end)),
            // Older than everything: its records would end where the first epoch begins.
            None => self.starts.first().map(|(_, start)| (asked, *start)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next_with_records() {
        let mut epochs = Epochs::default();
        for (epoch, offset) in [(2, 0), (2, 50), (5, 100), (7, 130)] {
            epochs.note(LeaderEpoch(epoch), offset);
        }
        let end_of = |asked| {
            epochs.end_of(LeaderEpoch(asked), LeaderEpoch(9), 200).map(|(e, end)| (e.0, end))
        };
        assert_eq!(end_of(9), Some((9, 200)));
        assert_eq!(end_of(8), Some((7, 200)));
        assert_eq!(end_of(5), Some((5, 130)));
        assert_eq!(end_of(3), Some((2, 100)));
        assert_eq!(end_of(1), Some((1, 0)));
        assert_eq!(end_of(10), None);
        epochs.trim(120);
        assert_eq!(epochs.starts(), [(LeaderEpoch(5), 120), (LeaderEpoch(7), 130)]);
    }
}
