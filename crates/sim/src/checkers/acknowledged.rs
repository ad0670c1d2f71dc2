//! P1: what was acknowledged is at its offset with its bytes at the end, and in every look that covers
//! that offset; what was once seen is still there too (P3: only what is durable is visible).

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_common::TopicPartitionId;

use super::{Violation, deleted, looks};
use crate::history::{BatchId, Event, Outcome, What};

/// Its name.
pub const NAME: &str = "acknowledged";

/// One attempted batch: where to, and its values.
pub(crate) type Batch = (TopicPartitionId, Arc<[Arc<str>]>);

/// All batches that were ever attempted.
pub(crate) fn batches(history: &[Event]) -> BTreeMap<BatchId, Batch> {
    let attempts = history.iter().filter_map(|event| match &event.what {
        What::Attempt { batch, tp, values, .. } => Some((*batch, (*tp, Arc::clone(values)))),
        _ => None,
    });
    attempts.collect()
}

/// Acknowledged records: moment, partition, offset, value.
pub(crate) fn records(history: &[Event]) -> Vec<(usize, TopicPartitionId, i64, Arc<str>)> {
    let batches = batches(history);
    let mut records = Vec::new();
    for (moment, event) in history.iter().enumerate() {
        let What::Answer { batch, outcome: Outcome::Acknowledged(base) } = &event.what else {
            continue;
        };
        if let Some((tp, values)) = batches.get(batch)
            && *base >= 0
        {
            for (offset, value) in (*base..).zip(values.iter()) {
                records.push((moment, *tp, offset, Arc::clone(value)));
            }
        }
    }
    records
}

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut violation =
        |moment, detail| violations.push(Violation { checker: NAME, moment, detail });
    let deleted = deleted(history);
    let mut known = records(history);
    for look in looks(history) {
        let seen = look.data.records.iter();
        known.extend(seen.map(|(at, value)| (look.moment, look.tp, *at, Arc::clone(value))));
    }
    let mut ends = BTreeMap::new();
    for (moment, event) in history.iter().enumerate() {
        if let What::Final { tp, data } = &event.what {
            match data {
                Ok(data) => {
                    let records: BTreeMap<i64, &str> =
                        data.records.iter().map(|(at, value)| (*at, &**value)).collect();
                    ends.insert(*tp, (data.log_start, records));
                }
                Err(why) => violation(moment, format!("{tp} can not be read at the end: {why}")),
            }
        }
    }
    for (moment, tp, offset, value) in known {
        let Some((log_start, records)) = ends.get(&tp) else { continue };
        if offset < *log_start || deleted.contains(&tp) {
            continue;
        }
        let found = records.get(&offset);
        if found != Some(&&*value) {
            violation(moment, format!("{tp} {offset}: {value:?} became {found:?}"));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn an_acknowledged_record_that_is_gone_or_another_is_found() {
        let run = |end| {
            let answer = answer(1, Outcome::Acknowledged(4));
            check(&events(vec![attempt(1, &["a", "b"]), answer, last(end)])).len()
        };
        assert_eq!(run(data(0, 6, &[(4, "a"), (5, "b")])), 0);
        assert_eq!(run(data(5, 6, &[(5, "b")])), 0, "below the log start");
        assert_eq!(run(data(0, 5, &[(4, "a")])), 1);
        assert_eq!(run(data(0, 6, &[(4, "a"), (5, "c")])), 1);
    }

    #[test]
    fn a_ghost_of_an_older_epoch_is_found() {
        // "x" was never acknowledged, its offset was given to "b"; then it is back.
        let whats = vec![
            attempt(1, &["x"]),
            answer(1, Outcome::Unknown),
            attempt(2, &["b"]),
            answer(2, Outcome::Acknowledged(0)),
            last(data(0, 1, &[(0, "x")])),
        ];
        assert_eq!(check(&events(whats)).len(), 1);
    }

    #[test]
    fn a_record_that_was_seen_and_is_gone_is_found() {
        let seen = fetched(0, 0, data(0, 1, &[(0, "a")]));
        assert_eq!(check(&events(vec![seen, last(data(0, 0, &[]))])).len(), 1);
    }
}
