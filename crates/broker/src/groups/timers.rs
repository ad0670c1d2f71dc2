//! The deadlines of one group, in the order they fall due. Times are monotonic milliseconds.

use std::collections::{BTreeMap, BTreeSet};

use super::api::Text;

/// What falls due.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Timer {
    /// The join phase ends.
    Join,
    /// Members that have not sent SyncGroup are removed.
    Sync,
    /// A member or pending member was silent for too long.
    Session(Text),
}

/// At most one deadline per timer.
#[derive(Clone, Debug, Default)]
pub(super) struct Timers {
    due: BTreeSet<(u64, Timer)>,
    at: BTreeMap<Timer, u64>,
}

impl Timers {
    /// Sets or moves the deadline of `timer`.
    pub(super) fn schedule(&mut self, timer: Timer, at_ms: u64) {
        self.cancel(&timer);
        self.due.insert((at_ms, timer.clone()));
        self.at.insert(timer, at_ms);
    }

    pub(super) fn cancel(&mut self, timer: &Timer) {
        if let Some(at_ms) = self.at.remove(timer) {
            self.due.remove(&(at_ms, timer.clone()));
        }
    }

    /// The earliest deadline.
    pub(super) fn next(&self) -> Option<u64> {
        self.due.first().map(|(at_ms, _)| *at_ms)
    }

    /// Takes the earliest timer that is due at `now_ms` (inclusive).
    pub(super) fn pop_due(&mut self, now_ms: u64) -> Option<Timer> {
        if self.next()? > now_ms {
            return None;
        }
        let (_, timer) = self.due.pop_first()?;
        self.at.remove(&timer);
        Some(timer)
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.at.len()
    }
}
