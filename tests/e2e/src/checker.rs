//! Judges a history of clients at a broker that was being killed (promises P1, P3, P4).
//!
//! Pure: events in, violations out. What is checked, and what each rule needs to be true:
//!
//! - an acknowledged record is at its offset with its bytes, at the end and in every read;
//! - a (partition, offset) pair has one value for ever, and what was once read stays readable;
//! - nothing is read that was never sent, or that was refused for certain;
//! - idempotent writers: no duplicate, no gap, order kept in each partition; other writers:
//!   duplicates only of records that were on their way while the broker was down;
//! - log start and high watermark, as seen by one client, never go back;
//! - what was acknowledged before a read or a question began is in the answer;
//! - no more is deleted than was asked for; committed group offsets are neither lost nor invented.
//!
//! The last reader, named `final`, reads every partition from its start to its end after all
//! writers have finished; without it nothing is proved, which is a violation too.

mod facts;
mod reads;
#[cfg(test)]
mod tests;
mod writes;

use crate::history::{Event, Id, Offset, Partition, Pass};

use facts::Facts;

/// Name of the reader that reads everything at the end.
pub const FINAL: &str = "final";

/// What a broker must never do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Violation {
    /// An acknowledged record is not there at the end.
    Lost {
        /// Which record.
        id: Id,
        /// Where it was acknowledged.
        at: (Partition, Offset),
    },
    /// A place has had two values.
    TwoValues {
        /// The place.
        at: (Partition, Offset),
        /// The value that was learned first.
        first: Id,
        /// The other one.
        second: Id,
    },
    /// A record does not have the bytes that were sent.
    BadBytes {
        /// The place.
        at: (Partition, Offset),
        /// Which record it says it is.
        id: Id,
    },
    /// A record was read that had not been sent, or not to this partition.
    NeverSent {
        /// The place.
        at: (Partition, Offset),
        /// Which record it says it is.
        id: Id,
    },
    /// A record was refused for certain, but is there.
    Phantom {
        /// The place.
        at: (Partition, Offset),
        /// Which record.
        id: Id,
        /// The error number.
        code: i64,
    },
    /// A record is there twice without an excuse.
    Duplicate {
        /// Which record.
        id: Id,
        /// First place.
        first: (Partition, Offset),
        /// Second place.
        second: (Partition, Offset),
    },
    /// An idempotent writer's records are out of order.
    Order {
        /// The place of the later one.
        at: (Partition, Offset),
        /// The record there.
        id: Id,
        /// The number before it.
        after: i64,
    },
    /// An idempotent writer's record is missing though later ones are there.
    Gap {
        /// The record.
        id: Id,
        /// Where it should be.
        partition: Partition,
    },
    /// A record that was read is not there at the end.
    Vanished {
        /// Which record.
        id: Id,
        /// Where it was read.
        at: (Partition, Offset),
    },
    /// A reader got no record at an offset between two others, or before the end.
    Hole {
        /// The pass.
        pass: Pass,
        /// The place.
        at: (Partition, Offset),
    },
    /// A read came to an end of the partition below what was acknowledged before it began.
    StaleRead {
        /// The pass.
        pass: Pass,
        /// The end it saw, exclusive.
        end: (Partition, Offset),
        /// The acknowledged offset.
        acknowledged: Offset,
    },
    /// A position that must be readable was refused.
    Refused {
        /// The position.
        at: (Partition, Offset),
    },
    /// A watermark was below what was acknowledged before it was asked for.
    StaleMark {
        /// Who asked.
        client: String,
        /// The watermark.
        high: (Partition, Offset),
        /// The acknowledged offset.
        acknowledged: Offset,
    },
    /// Log start or high watermark went back.
    WentBack {
        /// Who saw it.
        client: String,
        /// Which of the two.
        what: &'static str,
        /// Now.
        at: (Partition, Offset),
        /// Before.
        before: Offset,
    },
    /// The log starts later than anyone asked for.
    TrimmedTooMuch {
        /// The log start.
        low: (Partition, Offset),
        /// The most that was asked for.
        asked: Offset,
    },
    /// A committed group offset is lost.
    CommitLost {
        /// The group.
        group: String,
        /// What was acknowledged.
        acknowledged: Offset,
        /// What was read back.
        found: Offset,
    },
    /// A committed group offset was never asked for.
    CommitInvented {
        /// The group.
        group: String,
        /// What was read back.
        found: Offset,
        /// The most that was asked for.
        asked: Offset,
    },
    /// The history proves nothing about a partition.
    Incomplete {
        /// Why.
        reason: String,
    },
}

/// How much a history proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Records sent.
    pub sent: usize,
    /// Records acknowledged.
    pub acknowledged: usize,
    /// Records without a good outcome.
    pub failed: usize,
    /// Records read, with repetitions.
    pub read: usize,
    /// Records that are there more than once, with an excuse.
    pub excused_duplicates: usize,
    /// Passes that came to the end of a partition.
    pub passes: usize,
    /// Answers with watermarks.
    pub marks: usize,
    /// How often the broker was killed.
    pub kills: usize,
}

/// Judges a history; without violations when it is empty of them.
pub fn check(events: &[Event]) -> (Summary, Vec<Violation>) {
    let facts = Facts::gather(events);
    let mut found = Vec::new();
    let excused_duplicates = writes::check(&facts, &mut found);
    reads::check(&facts, events, &mut found);
    let summary = Summary { excused_duplicates, ..facts.summary(events) };
    (summary, found)
}
