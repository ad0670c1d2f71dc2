//! P3: what was acknowledged before a request was sent is in its answer: the watermark lies above it,
//! and a fetch that could return it returns something, unless the broker has little memory for answers.

use std::collections::BTreeMap;

use talos_common::TopicPartitionId;

use super::{Violation, acknowledged, deleted};
use crate::history::{End, Event, What};

/// Its name.
pub const NAME: &str = "fresh";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let deleted = deleted(history);
    // Per partition the highest acknowledged end up to each moment.
    let mut ends: BTreeMap<TopicPartitionId, BTreeMap<usize, i64>> = BTreeMap::new();
    for (moment, tp, offset, _) in acknowledged::records(history) {
        let ends = ends.entry(tp).or_default();
        let before = ends.last_key_value().map_or(0, |(_, end)| *end);
        ends.insert(moment, before.max(offset + 1));
    }
    let end_before = |tp: &TopicPartitionId, moment: usize| {
        let before = ends.get(tp)?.range(..moment).next_back();
        before.map(|(_, end)| *end)
    };
    let is_tight = history.iter().any(|event| matches!(event.what, What::Tight));
    let mut violations = Vec::new();
    for (moment, event) in history.iter().enumerate() {
        let mut violation = |detail| violations.push(Violation { checker: NAME, moment, detail });
        match &event.what {
            What::Fetched { begun, parts, .. } => {
                let mut is_empty = true;
                let mut missed = None;
                for part in parts {
                    let Ok(data) = &part.data else {
                        // An error answers at once, with or without records.
                        is_empty = false;
                        continue;
                    };
                    is_empty &= data.records.is_empty();
                    let Some(end) = end_before(&part.tp, *begun) else { continue };
                    if data.high_watermark < end && !deleted.contains(&part.tp) {
                        let tp = part.tp;
                        let watermark = data.high_watermark;
                        violation(format!("{tp}: watermark {watermark}, acknowledged up to {end}"));
                    }
                    if part.from < end {
                        missed = Some(format!("{}: nothing from {} of {end}", part.tp, part.from));
                    }
                }
                if is_empty
                    && !is_tight
                    && let Some(missed) = missed
                {
                    violation(missed);
                }
            }
            What::Listed { begun, tp, end: End::Last, offset, .. } => {
                if let Some(end) = end_before(tp, *begun)
                    && *offset < end
                {
                    violation(format!("{tp}: ends at {offset}, acknowledged up to {end}"));
                }
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
    use crate::history::Outcome;

    #[test]
    fn a_stale_answer_is_found() {
        let run = |begun, data| {
            let answer = answer(1, Outcome::Acknowledged(0));
            check(&events(vec![attempt(1, &["a"]), answer, fetched(begun, 0, data)])).len()
        };
        assert_eq!(run(2, data(0, 1, &[(0, "a")])), 0);
        assert_eq!(run(1, data(0, 0, &[])), 0, "sent before");
        assert_eq!(run(2, data(0, 1, &[])), 1);
        assert_eq!(run(2, data(0, 0, &[])), 2);
        let stale = fetched(3, 0, data(0, 0, &[]));
        let answer = answer(1, Outcome::Acknowledged(0));
        let whats = vec![What::Tight, attempt(1, &["a"]), answer, stale];
        assert_eq!(
            check(&events(whats)).len(),
            1,
            "the watermark is right also where memory is tight"
        );
    }
}
