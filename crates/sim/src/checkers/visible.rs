//! P3: nothing is served at or above the watermark that the same answer states, and the log start does
//! not lie above it.

use super::{Violation, looks};
use crate::history::Event;

/// Its name.
pub const NAME: &str = "visible";

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut violations = Vec::new();
    for look in looks(history) {
        let (tp, data) = (look.tp, look.data);
        let mut violation = |detail| {
            violations.push(Violation { checker: NAME, moment: look.moment, detail });
        };
        if let Some((last, _)) = data.records.last()
            && *last >= data.high_watermark
        {
            violation(format!("{tp}: {last} is served, the watermark is {}", data.high_watermark));
        }
        if data.log_start > data.high_watermark || data.log_start < 0 {
            violation(format!("{tp}: from {} to {}", data.log_start, data.high_watermark));
        }
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_record_past_the_watermark_is_found() {
        let run = |data| check(&events(vec![fetched(0, 0, data)])).len();
        assert_eq!(run(data(0, 1, &[(0, "a")])), 0);
        assert_eq!(run(data(0, 1, &[(0, "a"), (1, "b")])), 1);
        assert_eq!(run(data(2, 1, &[])), 1);
    }
}
