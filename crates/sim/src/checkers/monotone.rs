//! P3: watermark and log start never go back: an answer to a request that was sent after another
//! answer came states no less than that one.

use std::collections::BTreeMap;

use talos_common::TopicPartitionId;

use super::{Violation, looks};
use crate::history::{End, Event, What};

/// Its name.
pub const NAME: &str = "monotone";

/// One statement of one of a partition's ends.
struct Stated {
    moment: usize,
    begun: usize,
    value: i64,
}

/// See the module.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut starts: BTreeMap<TopicPartitionId, Vec<Stated>> = BTreeMap::new();
    let mut ends: BTreeMap<TopicPartitionId, Vec<Stated>> = BTreeMap::new();
    for look in looks(history) {
        let (moment, begun) = (look.moment, look.begun);
        let value = look.data.log_start;
        starts.entry(look.tp).or_default().push(Stated { moment, begun, value });
        let value = look.data.high_watermark;
        ends.entry(look.tp).or_default().push(Stated { moment, begun, value });
    }
    for (moment, event) in history.iter().enumerate() {
        match &event.what {
            What::Listed { begun, tp, end, offset, .. } => {
                let side = match end {
                    End::First => &mut starts,
                    End::Last => &mut ends,
                };
                let stated = Stated { moment, begun: *begun, value: *offset };
                side.entry(*tp).or_default().push(stated);
            }
            What::Trimmed { begun, tp, low, .. } => {
                let stated = Stated { moment, begun: *begun, value: *low };
                starts.entry(*tp).or_default().push(stated);
            }
            _ => {}
        }
    }
    let mut violations = Vec::new();
    for (what, side) in [("log start", starts), ("watermark", ends)] {
        for (tp, mut stated) in side {
            stated.sort_by_key(|stated| stated.moment);
            violations.extend(one(what, tp, &stated));
        }
    }
    violations
}

fn one(what: &str, tp: TopicPartitionId, stated: &[Stated]) -> Vec<Violation> {
    let mut violations = Vec::new();
    // The highest value of all answers up to each moment.
    let mut highest: BTreeMap<usize, i64> = BTreeMap::new();
    let mut top = i64::MIN;
    for now in stated {
        let before = highest.range(..now.begun).next_back().map(|(_, value)| *value);
        if let Some(before) = before
            && now.value < before
        {
            let detail = format!("{tp}: the {what} went back from {before} to {}", now.value);
            violations.push(Violation { checker: NAME, moment: now.moment, detail });
        }
        top = top.max(now.value);
        highest.insert(now.moment, top);
    }
    violations
}

#[cfg(test)]
mod tests {
    use super::super::testing::*;
    use super::*;

    #[test]
    fn a_watermark_or_log_start_that_goes_back_is_found() {
        let run = |first, begun, second| {
            check(&events(vec![fetched(0, 0, first), fetched(begun, 0, second)])).len()
        };
        assert_eq!(run(data(1, 5, &[]), 1, data(1, 5, &[])), 0);
        assert_eq!(run(data(1, 5, &[]), 1, data(1, 4, &[])), 1);
        assert_eq!(run(data(1, 5, &[]), 1, data(0, 5, &[])), 1);
        assert_eq!(run(data(1, 5, &[]), 0, data(1, 4, &[])), 0, "they overlapped");
    }

    #[test]
    fn an_end_offset_that_is_back_at_0_after_the_log_was_emptied_is_found() {
        let trimmed = What::Trimmed { client: 1, begun: 0, tp: TP, low: 7 };
        let listed = What::Listed { client: 2, begun: 1, tp: TP, end: End::First, offset: 0 };
        assert_eq!(check(&events(vec![trimmed, listed])).len(), 1);
    }
}
