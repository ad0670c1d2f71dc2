//! Nothing is read that was not sent before to that very partition, byte for byte; and a record is not
//! there more often than it was sent.

use std::collections::BTreeMap;

use super::{Violation, looks};
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "sent";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    // When each value was first sent where, and how often.
    let mut sent: BTreeMap<_, (usize, usize)> = BTreeMap::new();
    for (moment, event) in history.iter().enumerate() {
        if let What::Attempt { tp, values, .. } = &event.what {
            for value in values.iter() {
                sent.entry((*tp, &**value)).or_insert((moment, 0)).1 += 1;
            }
        }
    }
    let mut violations = Vec::new();
    for look in looks(history) {
        let mut times: BTreeMap<&str, usize> = BTreeMap::new();
        for (offset, value) in &look.data.records {
            let times = times.entry(value).or_default();
            *times += 1;
            let (tp, moment) = (look.tp, look.moment);
            let detail = match sent.get(&(tp, &**value)) {
                None => format!("{tp} {offset}: {value:?} was never sent"),
                Some((first, _)) if *first > moment => {
                    format!("{tp} {offset}: {value:?} was sent later")
                }
                Some((_, attempts)) if attempts < times => {
                    format!("{tp} {offset}: {value:?} is there more often than it was sent")
                }
                Some(_) => continue,
            };
            violations.push(Violation { checker: NAME, moment, detail });
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn what_was_not_sent_or_too_often_there_is_found() {
        let run = |records| check(&events(vec![attempt(1, &["a"]), last(data(0, 9, records))]));
        assert_eq!(run(&[(0, "a")]).len(), 0);
        assert_eq!(run(&[(0, "b")]).len(), 1);
        assert_eq!(run(&[(0, "a"), (1, "a")]).len(), 1);
    }
}
