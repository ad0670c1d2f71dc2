//! P4: an error never says «failed» where the truth is «unknown»: a batch whose every attempt was
//! refused with a definite error is never read.

use std::collections::{BTreeMap, BTreeSet};

use super::{Violation, acknowledged, looks};
use crate::history::{BatchId, Event, Outcome, What};

/// Its name.
pub const NAME: &str = "honest";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let batches = acknowledged::batches(history);
    let mut open: BTreeSet<BatchId> = BTreeSet::new();
    let mut refused: BTreeMap<BatchId, (usize, i16)> = BTreeMap::new();
    let mut maybe: BTreeSet<BatchId> = BTreeSet::new();
    for (moment, event) in history.iter().enumerate() {
        match &event.what {
            What::Attempt { batch, .. } => {
                open.insert(*batch);
            }
            What::Answer { batch, outcome } => {
                open.remove(batch);
                match outcome {
                    Outcome::Refused(code) => {
                        refused.insert(*batch, (moment, *code));
                    }
                    Outcome::Acknowledged(_) | Outcome::Unknown => {
                        maybe.insert(*batch);
                    }
                }
            }
            _ => {}
        }
    }
    let mut never = BTreeMap::new();
    for (batch, refusal) in refused {
        if !maybe.contains(&batch)
            && !open.contains(&batch)
            && let Some((tp, values)) = batches.get(&batch)
        {
            never.extend(values.iter().map(|value| ((*tp, value.clone()), refusal)));
        }
    }
    let mut violations = Vec::new();
    for look in looks(history) {
        for (offset, value) in &look.data.records {
            if let Some((moment, code)) = never.get(&(look.tp, value.clone())) {
                let tp = look.tp;
                let detail =
                    format!("{tp} {offset}: {value:?} is there, but was refused with {code}");
                violations.push(Violation { checker: NAME, moment: *moment, detail });
            }
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_refused_record_that_is_there_is_found() {
        let run = |answers: &[Outcome]| {
            let mut whats = Vec::new();
            for outcome in answers {
                whats.extend([attempt(1, &["a"]), answer(1, *outcome)]);
            }
            whats.push(last(data(0, 1, &[(0, "a")])));
            check(&events(whats)).len()
        };
        assert_eq!(run(&[Outcome::Refused(56)]), 1);
        assert_eq!(run(&[Outcome::Unknown, Outcome::Refused(56)]), 0);
        assert_eq!(run(&[Outcome::Refused(56), Outcome::Acknowledged(0)]), 0);
    }
}
