//! What every history must satisfy: one checker per file, each a pure function of the events.
//!
//! Each says which promise of the design it holds a run to. Their own tests show histories that they
//! must find fault with; `tests/planted.rs` shows broken brokers that they find.

pub mod acknowledged;
pub mod committed;
pub mod epochs;
pub mod fresh;
pub mod gaps;
pub mod honest;
pub mod idempotence;
pub mod monotone;
pub mod one_value;
pub mod progress;
pub mod retained;
pub mod sent;
pub mod timed;
pub mod trimmed;
pub mod visible;

use std::collections::{BTreeMap, BTreeSet};

use talos_common::TopicPartitionId;

use crate::history::{BatchId, Data, Event, Part, What};

/// What a checker found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Which checker.
    pub checker: &'static str,
    /// The event that shows it.
    pub moment: usize,
    /// What is wrong.
    pub detail: String,
}

/// A checker and its name.
pub type Checker = (&'static str, fn(&[Event]) -> Vec<Violation>);

/// All of them.
pub const ALL: [Checker; 15] = [
    (acknowledged::NAME, acknowledged::check),
    (committed::NAME, committed::check),
    (epochs::NAME, epochs::check),
    (fresh::NAME, fresh::check),
    (gaps::NAME, gaps::check),
    (honest::NAME, honest::check),
    (idempotence::NAME, idempotence::check),
    (monotone::NAME, monotone::check),
    (one_value::NAME, one_value::check),
    (progress::NAME, progress::check),
    (retained::NAME, retained::check),
    (sent::NAME, sent::check),
    (timed::NAME, timed::check),
    (trimmed::NAME, trimmed::check),
    (visible::NAME, visible::check),
];

/// What all checkers find.
pub fn check_all(history: &[Event]) -> Vec<Violation> {
    let known = without_excused(history);
    ALL.iter().flat_map(|(_, check)| check(known.as_deref().unwrap_or(history))).collect()
}

/// The same moments, without what is said of a partition after damage that may have taken acknowledged
/// records of it undetectably; `None` where nothing is excused.
fn without_excused(history: &[Event]) -> Option<Vec<Event>> {
    let mut excused: BTreeSet<TopicPartitionId> = BTreeSet::new();
    let mut of_batch: BTreeMap<BatchId, TopicPartitionId> = BTreeMap::new();
    let mut topics = BTreeSet::new();
    let mut left = Vec::with_capacity(history.len());
    let mut are_groups_excused = false;
    for event in history {
        if let What::Attempt { batch, tp, .. } = &event.what {
            of_batch.insert(*batch, *tp);
            topics.insert(tp.topic);
        }
        if let What::Damaged { excused: more, .. } = &event.what {
            excused.extend(more);
            are_groups_excused |= more.iter().any(|tp| !topics.contains(&tp.topic));
        }
        let is_out = |tp: &TopicPartitionId| excused.contains(tp);
        let mut event = event.clone();
        let drops = match &mut event.what {
            What::Attempt { tp, .. }
            | What::Listed { tp, .. }
            | What::Trimmed { tp, .. }
            | What::Timed { tp, .. }
            | What::EpochEnd { tp, .. }
            | What::Final { tp, .. } => is_out(tp),
            What::Answer { batch, .. } => of_batch.get(batch).is_some_and(is_out),
            What::Fetched { parts, .. } => {
                parts.retain(|part| !is_out(&part.tp));
                parts.is_empty()
            }
            What::Committed { .. } | What::CommitRead { .. } => are_groups_excused,
            _ => false,
        };
        if drops {
            event.what = What::Note("of an excused partition".into());
        }
        left.push(event);
    }
    (!excused.is_empty()).then_some(left)
}

/// Everything that was read of a partition: in fetches, with the moment before they were sent, and at
/// the end.
pub(crate) struct Look<'a> {
    /// The event.
    pub(crate) moment: usize,
    /// The moment before the request was sent.
    pub(crate) begun: usize,
    pub(crate) tp: TopicPartitionId,
    /// Where reading began.
    pub(crate) from: i64,
    pub(crate) data: &'a Data,
}

/// All looks, in order.
pub(crate) fn looks(history: &[Event]) -> impl Iterator<Item = Look<'_>> {
    history.iter().enumerate().flat_map(|(moment, event)| {
        let looks: Vec<Look<'_>> = match &event.what {
            What::Fetched { begun, parts, .. } => parts
                .iter()
                .filter_map(|Part { tp, from, data }| {
                    let data = data.as_ref().ok()?;
                    Some(Look { moment, begun: *begun, tp: *tp, from: *from, data })
                })
                .collect(),
            What::Final { tp, data: Ok(data) } => {
                let from = data.log_start;
                vec![Look { moment, begun: moment, tp: *tp, from, data }]
            }
            _ => Vec::new(),
        };
        looks
    })
}

/// Partitions whose topic somebody tried to delete.
pub(crate) fn deleted(history: &[Event]) -> BTreeSet<TopicPartitionId> {
    let deleting = history.iter().filter_map(|event| match &event.what {
        What::Deleting { tp } => Some(*tp),
        _ => None,
    });
    deleting.collect()
}

#[cfg(test)]
mod tests {
    use super::testing::*;
    use super::*;
    use crate::history::Outcome;

    #[test]
    fn what_is_excused_is_so_for_its_partition_and_from_the_damage_on() {
        let run = |excused: Vec<TopicPartitionId>, at_first: bool| {
            let damaged = What::Damaged { what: "test".into(), excused };
            let mut whats = vec![attempt(1, &["a"]), answer(1, Outcome::Acknowledged(0))];
            whats.insert(if at_first { 0 } else { 2 }, damaged);
            whats.push(fetched(3, 0, data(0, 0, &[])));
            whats.push(last(data(0, 0, &[])));
            check_all(&events(whats)).len()
        };
        assert_eq!(run(Vec::new(), false), 3, "lost, the watermark went back, nothing came");
        assert_eq!(run(vec![TP], false), 0);
        let other = TopicPartitionId { partition: 1, ..TP };
        assert_eq!(run(vec![other], false), 3);
    }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Small histories.

    use std::sync::Arc;

    use talos_common::{TopicId, TopicPartitionId};

    use super::*;
    use crate::history::{BatchId, Outcome, Stamp};

    pub(crate) const TP: TopicPartitionId =
        TopicPartitionId { topic: TopicId([7; 16]), partition: 0 };

    pub(crate) fn events(whats: Vec<What>) -> Vec<Event> {
        whats.into_iter().map(|what| Event { at_us: 0, what }).collect()
    }

    pub(crate) fn batch(number: u64) -> BatchId {
        BatchId { producer: 1, number }
    }

    pub(crate) fn attempt(number: u64, values: &[&str]) -> What {
        let values = values.iter().map(|value| Arc::from(*value)).collect();
        What::Attempt { batch: batch(number), tp: TP, values, stamp: None, time_ms: 0 }
    }

    pub(crate) fn stamped(number: u64, sequence: i32, values: &[&str]) -> What {
        let values = values.iter().map(|value| Arc::from(*value)).collect();
        let stamp = Some(Stamp { id: 5, epoch: 0, sequence });
        What::Attempt { batch: batch(number), tp: TP, values, stamp, time_ms: 0 }
    }

    pub(crate) fn answer(number: u64, outcome: Outcome) -> What {
        What::Answer { batch: batch(number), outcome }
    }

    pub(crate) fn data(log_start: i64, high_watermark: i64, records: &[(i64, &str)]) -> Data {
        let records = records.iter().map(|(at, value)| (*at, Arc::from(*value))).collect();
        Data { log_start, high_watermark, records }
    }

    pub(crate) fn fetched(begun: usize, from: i64, data: Data) -> What {
        let parts = vec![Part { tp: TP, from, data: Ok(data) }];
        What::Fetched { client: 9, begun, parts }
    }

    pub(crate) fn last(data: Data) -> What {
        What::Final { tp: TP, data: Ok(data) }
    }
}
