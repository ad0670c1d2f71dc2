//! P3, P5: without compaction every answer is a gap-free stretch of offsets that begins at or before
//! the asked offset, and at the end the whole log from its start to its watermark is there.

use super::{Violation, looks};
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "gaps";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for look in looks(history) {
        let (tp, records) = (look.tp, &look.data.records);
        let mut violation = |detail| {
            violations.push(Violation { checker: NAME, moment: look.moment, detail });
        };
        let steps = records.iter().zip(records.iter().skip(1));
        for ((before, _), (after, _)) in steps {
            if *after != before + 1 {
                violation(format!("{tp}: {after} follows {before}"));
            }
        }
        let is_final =
            matches!(history.get(look.moment).map(|event| &event.what), Some(What::Final { .. }));
        match (records.first(), records.last()) {
            (Some((first, _)), Some((last, _))) => {
                if *first > look.from || *last < look.from {
                    violation(format!("{tp}: asked for {}, got {first} to {last}", look.from));
                }
                if is_final && last + 1 != look.data.high_watermark {
                    violation(format!("{tp}: ends at {last}, not below the watermark"));
                }
            }
            _ if is_final && look.data.log_start != look.data.high_watermark => {
                violation(format!("{tp}: nothing from log start to watermark"));
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
    fn gaps_are_found() {
        let run = |from, records| check(&events(vec![fetched(0, from, data(0, 9, records))])).len();
        assert_eq!(run(1, &[(0, "a"), (1, "b")]), 0, "a batch comes whole");
        assert_eq!(run(0, &[(0, "a"), (2, "c")]), 1);
        assert_eq!(run(0, &[(1, "b"), (2, "c")]), 1);
        assert_eq!(run(5, &[(1, "b"), (2, "c")]), 1);
        assert_eq!(check(&events(vec![last(data(0, 3, &[(0, "a")]))])).len(), 1);
        assert_eq!(check(&events(vec![last(data(0, 3, &[]))])).len(), 1);
    }
}
