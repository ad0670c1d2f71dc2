//! J2, P3: a committed offset that was acknowledged, or seen, before it is read never reads lower; and
//! no offset is read that nobody committed.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "committed";

/// See the module. In these runs the members of a group only ever commit higher offsets.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut known: BTreeMap<_, BTreeMap<usize, i64>> = BTreeMap::new();
    let mut tried: BTreeMap<_, Vec<i64>> = BTreeMap::new();
    let mut violations = Vec::new();
    for (moment, event) in history.iter().enumerate() {
        let (key, offset) = match &event.what {
            What::Committing { group, tp, offset } => {
                tried.entry((*group, *tp)).or_default().push(*offset);
                continue;
            }
            What::Committed { group, tp, offset } => ((*group, *tp), *offset),
            What::CommitRead { group, begun, tp, offset } => {
                let key = (*group, *tp);
                let before = known.get(&key).and_then(|known| known.range(..*begun).next_back());
                let is_known = tried.get(&key).is_some_and(|tried| tried.contains(offset));
                let detail = match before {
                    Some((_, before)) if before > offset => {
                        Some(format!("group {group} {tp}: {before} reads as {offset}"))
                    }
                    _ if *offset != -1 && !is_known => {
                        Some(format!("group {group} {tp}: nobody committed {offset}"))
                    }
                    _ => None,
                };
                let found = detail.map(|detail| Violation { checker: NAME, moment, detail });
                violations.extend(found);
                (key, *offset)
            }
            _ => continue,
        };
        let known = known.entry(key).or_default();
        let highest = known.last_key_value().map_or(i64::MIN, |(_, highest)| *highest);
        known.insert(moment, highest.max(offset));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_commit_that_reads_lower_or_was_never_made_is_found() {
        let run = |begun, offset| {
            let whats = vec![
                What::Committing { group: 1, tp: TP, offset: 5 },
                What::Committed { group: 1, tp: TP, offset: 5 },
                What::CommitRead { group: 1, begun, tp: TP, offset },
            ];
            check(&events(whats)).len()
        };
        assert_eq!(run(2, 5), 0);
        assert_eq!(run(1, -1), 0, "read before");
        assert_eq!(run(2, -1), 1);
        assert_eq!(run(2, 0), 1);
        assert_eq!(run(2, 9), 1);
    }
}
