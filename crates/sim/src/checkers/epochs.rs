//! OffsetForLeaderEpoch: the answer names an epoch up to the one asked for; where an epoch ends never goes
//! back, and no epoch ends behind a newer one.

use std::collections::BTreeMap;

use super::Violation;
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "epochs";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    // Per partition and epoch: moment and end of all answers.
    let mut ends: BTreeMap<_, BTreeMap<i32, Vec<(usize, i64)>>> = BTreeMap::new();
    let mut violations = Vec::new();
    for (moment, event) in history.iter().enumerate() {
        let What::EpochEnd { begun, tp, asked, epoch, end } = &event.what else { continue };
        let mut violation = |detail| violations.push(Violation { checker: NAME, moment, detail });
        if epoch > asked {
            violation(format!("{tp}: epoch {epoch} for {asked}"));
        }
        if *epoch < 0 {
            continue;
        }
        let of_tp = ends.entry(*tp).or_default();
        let before = |known: &Vec<(usize, i64)>| {
            known.iter().filter(|(at, _)| at < begun).map(|(_, end)| *end).max()
        };
        let known = of_tp.range(..=epoch).filter_map(|(of, known)| Some((of, before(known)?)));
        for (of, known) in known {
            if known > *end {
                violation(format!("{tp}: {epoch} ends at {end}, {of} ended at {known} before"));
            }
        }
        of_tp.entry(*epoch).or_default().push((moment, *end));
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn an_end_that_goes_back_and_an_epoch_above_the_asked_one_are_found() {
        let end = |begun, asked, epoch, end| What::EpochEnd { begun, tp: TP, asked, epoch, end };
        let run = |whats| check(&events(whats)).len();
        assert_eq!(run(vec![end(0, 1, 1, 5), end(1, 1, 1, 6), end(2, 2, 2, 9)]), 0);
        assert_eq!(run(vec![end(0, 1, 1, 5), end(1, 1, 1, 4)]), 1);
        assert_eq!(run(vec![end(0, 1, 1, 5), end(0, 1, 1, 4)]), 0, "they overlapped");
        assert_eq!(run(vec![end(0, 1, 1, 5), end(1, 2, 2, 4)]), 1);
        assert_eq!(run(vec![end(0, 1, 2, 5)]), 1);
    }
}
