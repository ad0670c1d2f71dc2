//! C8: the offset of a time is that of the first record at or after it: the record found is that old, and
//! no record that was acknowledged before, and is still there, comes first.

use std::collections::BTreeMap;

use super::{Violation, acknowledged, looks};
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "timed";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    if !history.iter().any(|event| matches!(event.what, What::Timed { .. })) {
        return Vec::new();
    }
    let mut by_value = BTreeMap::new();
    for event in history {
        if let What::Attempt { tp, values, time_ms, .. } = &event.what {
            by_value.extend(values.iter().map(|value| ((*tp, value.clone()), *time_ms)));
        }
    }
    // What was seen, or acknowledged, where.
    let mut values = BTreeMap::new();
    let mut starts: BTreeMap<_, i64> = BTreeMap::new();
    for look in looks(history) {
        let start = starts.entry(look.tp).or_default();
        *start = look.data.log_start.max(*start);
        values.extend(look.data.records.iter().map(|(at, value)| ((look.tp, *at), value.clone())));
    }
    let known = acknowledged::records(history);
    for (_, tp, offset, value) in &known {
        values.insert((*tp, *offset), value.clone());
    }
    let time_of = |tp, offset| {
        let value = values.get(&(tp, offset))?;
        by_value.get(&(tp, value.clone())).copied()
    };
    let mut violations = Vec::new();
    for (moment, event) in history.iter().enumerate() {
        let What::Timed { begun, tp, time_ms, found } = &event.what else { continue };
        let mut violation = |detail| violations.push(Violation { checker: NAME, moment, detail });
        if let Some((offset, time)) = found {
            let real = time_of(*tp, *offset);
            if time < time_ms || real.is_some_and(|real| real != *time) {
                violation(format!("{tp} {offset}: asked for {time_ms}, got {time}, is {real:?}"));
            }
        }
        let start = starts.get(tp).copied().unwrap_or(0);
        let earlier = known.iter().find(|(at, of, offset, _)| {
            of == tp
                && at < begun
                && *offset >= start
                && found.is_none_or(|(found, _)| *offset < found)
                && time_of(*of, *offset).is_some_and(|time| time >= *time_ms)
        });
        if let Some((_, _, offset, _)) = earlier {
            violation(format!("{tp}: {time_ms} is {found:?}, but {offset} comes first"));
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
    fn a_later_or_older_record_than_the_first_one_is_found() {
        let run = |time_ms, found| {
            let mut whats = Vec::new();
            for (number, time) in [(1, 10), (2, 20)] {
                let mut what = attempt(number, &[if number == 1 { "a" } else { "b" }]);
                if let What::Attempt { time_ms, .. } = &mut what {
                    *time_ms = time;
                }
                let base = i64::try_from(number).unwrap_or(0) - 1;
                whats.extend([what, answer(number, Outcome::Acknowledged(base))]);
            }
            whats.push(What::Timed { begun: 4, tp: TP, time_ms, found });
            check(&events(whats)).len()
        };
        assert_eq!(run(10, Some((0, 10))), 0);
        assert_eq!(run(11, Some((1, 20))), 0);
        assert_eq!(run(21, None), 0);
        assert_eq!(run(10, Some((1, 20))), 1, "the first is skipped");
        assert_eq!(run(11, Some((0, 10))), 1, "too old");
        assert_eq!(run(20, None), 1);
        assert_eq!(run(11, Some((1, 19))), 1, "not its time");
    }
}
