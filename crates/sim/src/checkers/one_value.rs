//! P3: a (partition, offset) pair has one value for ever, whoever acknowledges or reads it.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Violation, acknowledged, looks};
use crate::history::Event;

/// Its name.
pub const NAME: &str = "one_value";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut all = acknowledged::records(history);
    for look in looks(history) {
        let seen = look.data.records.iter();
        all.extend(seen.map(|(at, value)| (look.moment, look.tp, *at, Arc::clone(value))));
    }
    all.sort_by_key(|(moment, ..)| *moment);
    let mut values: BTreeMap<_, Arc<str>> = BTreeMap::new();
    let mut violations = Vec::new();
    for (moment, tp, offset, value) in all {
        let known = values.entry((tp, offset)).or_insert_with(|| Arc::clone(&value));
        if *known != value {
            let detail = format!("{tp} {offset}: {known:?} and {value:?}");
            violations.push(Violation { checker: NAME, moment, detail });
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
    fn two_values_of_one_offset_are_found() {
        let acknowledged = |n| answer(n, Outcome::Acknowledged(0));
        let same = vec![attempt(1, &["a"]), acknowledged(1), acknowledged(1)];
        assert_eq!(check(&events(same)).len(), 0);
        let two = vec![attempt(1, &["a"]), acknowledged(1), attempt(2, &["b"]), acknowledged(2)];
        assert_eq!(check(&events(two)).len(), 1);
        let looks =
            vec![fetched(0, 0, data(0, 1, &[(0, "a")])), fetched(1, 0, data(0, 1, &[(0, "b")]))];
        assert_eq!(check(&events(looks)).len(), 1);
    }
}
