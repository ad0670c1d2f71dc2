//! J3: after the faults heal, every client reaches its aim in bounded virtual time; and nothing happens
//! that must never happen whatever the faults (a panic, an answer that is none).

use super::Violation;
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "progress";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for (moment, event) in history.iter().enumerate() {
        let detail = match &event.what {
            What::Stuck(who) => format!("no progress after the faults healed: {who}"),
            What::Broken(what) => what.clone(),
            _ => continue,
        };
        violations.push(Violation { checker: NAME, moment, detail });
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_client_that_is_stuck_is_found() {
        let done = What::Done("producer 1".into());
        assert_eq!(check(&events(vec![done])).len(), 0);
        assert_eq!(check(&events(vec![What::Stuck("producer 1".into())])).len(), 1);
    }
}
