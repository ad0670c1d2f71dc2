//! P1, R9: records go only because somebody said so: the log start lies no higher than somebody asked
//! for, except where the broker may delete old records by itself.

use std::collections::{BTreeMap, BTreeSet};

use super::{Violation, deleted, looks};
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "trimmed";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut free: BTreeSet<_> = deleted(history);
    let mut asked: BTreeMap<_, Vec<(usize, i64)>> = BTreeMap::new();
    for (moment, event) in history.iter().enumerate() {
        match &event.what {
            What::Retained { tp, .. } => {
                free.insert(*tp);
            }
            What::Trimming { tp, below } => {
                asked.entry(*tp).or_default().push((moment, *below));
            }
            _ => {}
        }
    }
    let mut violations = Vec::new();
    for look in looks(history).filter(|look| !free.contains(&look.tp)) {
        let (tp, start) = (look.tp, look.data.log_start);
        let asked = asked.get(&tp).map(Vec::as_slice).unwrap_or_default();
        let is_asked = asked
            .iter()
            .any(|(moment, below)| *moment < look.moment && (*below == -1 || *below >= start));
        if start > 0 && !is_asked {
            let detail = format!("{tp}: begins at {start}, and nobody asked for that");
            violations.push(Violation { checker: NAME, moment: look.moment, detail });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_log_start_that_nobody_asked_for_is_found() {
        let run = |below, start| {
            let trimming = What::Trimming { tp: TP, below };
            check(&events(vec![trimming, fetched(1, 0, data(start, 9, &[]))])).len()
        };
        assert_eq!(run(3, 3), 0);
        assert_eq!(run(-1, 5), 0);
        assert_eq!(run(3, 4), 1);
    }
}
