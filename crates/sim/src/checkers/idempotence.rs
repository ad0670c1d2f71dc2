//! J7, T2: what an idempotent producer sends in one session is in the log once, in order, without a
//! gap; and a batch that goes on exactly where the acknowledged ones end is never out of order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use talos_common::TopicPartitionId;
use talos_protocol::ErrorCode;

use super::{Violation, looks};
use crate::history::{BatchId, Event, Outcome, Stamp, What};

/// Its name.
pub const NAME: &str = "idempotence";

/// A session's batches in one partition.
type Session = (i64, i16, TopicPartitionId);

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut violations = refusals(history);
    let mut sequences: BTreeMap<(TopicPartitionId, Arc<str>), (Session, i32)> = BTreeMap::new();
    for event in history {
        if let What::Attempt { tp, values, stamp: Some(stamp), .. } = &event.what {
            for (sequence, value) in (stamp.sequence..).zip(values.iter()) {
                let session = (stamp.id, stamp.epoch, *tp);
                sequences.insert((*tp, Arc::clone(value)), (session, sequence));
            }
        }
    }
    for look in looks(history) {
        let mut newest: BTreeMap<Session, i32> = BTreeMap::new();
        for (offset, value) in &look.data.records {
            let known = sequences.get(&(look.tp, Arc::clone(value)));
            let Some((session, sequence)) = known else { continue };
            let before = newest.insert(*session, *sequence);
            // What lies before the answer was seen elsewhere.
            if before.is_some_and(|before| *sequence != before + 1) {
                let tp = look.tp;
                let detail =
                    format!("{tp} {offset}: sequence {sequence} follows {before:?} ({value:?})");
                violations.push(Violation { checker: NAME, moment: look.moment, detail });
            }
        }
    }
    violations
}

/// OUT_OF_ORDER_SEQUENCE_NUMBER for a batch all of whose predecessors were acknowledged before it was
/// sent, while no successor may have been taken. (As in Kafka a producer that a partition does not know
/// may begin anywhere: where the first of several batches in flight is refused for another reason, a
/// later one may get in before it.)
fn refusals(history: &[Event]) -> Vec<Violation> {
    let mut stamps: BTreeMap<BatchId, (Session, Stamp)> = BTreeMap::new();
    let mut sent: BTreeMap<Session, BTreeMap<i32, BatchId>> = BTreeMap::new();
    let mut acknowledged: BTreeSet<BatchId> = BTreeSet::new();
    let mut is_next: BTreeMap<BatchId, bool> = BTreeMap::new();
    let mut violations = Vec::new();
    for (moment, event) in history.iter().enumerate() {
        match &event.what {
            What::Attempt { batch, tp, stamp: Some(stamp), .. } => {
                let session = (stamp.id, stamp.epoch, *tp);
                stamps.insert(*batch, (session, *stamp));
                let sent = sent.entry(session).or_default();
                sent.insert(stamp.sequence, *batch);
                let earlier = sent.range(..stamp.sequence);
                let all = earlier.map(|(_, batch)| batch).all(|b| acknowledged.contains(b));
                let later = sent.range(stamp.sequence + 1..).next().is_some();
                is_next.insert(*batch, all && !later);
            }
            What::Answer { batch, outcome: Outcome::Acknowledged(_) } => {
                acknowledged.insert(*batch);
            }
            What::Answer { batch, outcome: Outcome::Refused(code) }
                if *code == ErrorCode::OutOfOrderSequenceNumber.code()
                    && is_next.get(batch) == Some(&true) =>
            {
                let stamp = stamps.get(batch);
                let detail = format!("out of order, though nothing is missing before {stamp:?}");
                violations.push(Violation { checker: NAME, moment, detail });
            }
            _ => {}
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn duplicates_gaps_and_wrong_order_are_found() {
        let run = |records| {
            let first = stamped(1, 0, &["a", "b"]);
            let second = stamped(2, 2, &["c"]);
            check(&events(vec![first, second, last(data(0, 9, records))])).len()
        };
        assert_eq!(run(&[(0, "a"), (1, "b"), (2, "c")]), 0);
        assert_eq!(run(&[(0, "b"), (1, "c")]), 0, "the log may begin anywhere");
        assert_eq!(run(&[(0, "a"), (1, "c")]), 1);
        assert_eq!(run(&[(0, "a"), (1, "b"), (2, "a"), (3, "b")]), 1);
        assert_eq!(run(&[(0, "c"), (1, "a"), (2, "b")]), 1);
    }

    #[test]
    fn a_refusal_without_a_reason_is_found() {
        let out_of_order = || answer(2, Outcome::Refused(45));
        let acknowledged = answer(1, Outcome::Acknowledged(0));
        let run = |whats| check(&events(whats)).len();
        let (first, second) = (stamped(1, 0, &["a"]), stamped(2, 1, &["b"]));
        assert_eq!(run(vec![first.clone(), acknowledged, second.clone(), out_of_order()]), 1);
        let unknown = answer(1, Outcome::Unknown);
        assert_eq!(run(vec![first, unknown, second, out_of_order()]), 0);
    }
}
