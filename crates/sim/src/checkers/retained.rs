//! E-R2: where only old records may go, none goes before its time, whatever the broker's clock shows.

use std::collections::BTreeMap;

use super::{Violation, acknowledged, looks};
use crate::history::{Event, What};

/// Its name.
pub const NAME: &str = "retained";

/// See the module. Records are timestamped with the right time.
pub fn check(history: &[Event]) -> Vec<Violation> {
    let mut keep = BTreeMap::new();
    let mut sent: BTreeMap<_, i64> = BTreeMap::new();
    for event in history {
        match &event.what {
            What::Retained { tp, keep_ms: Some(ms) } => {
                keep.insert(*tp, *ms);
            }
            What::Attempt { tp, values, time_ms, .. } => {
                sent.extend(values.iter().map(|value| ((*tp, value.clone()), *time_ms)));
            }
            _ => {}
        }
    }
    // Of each partition the times of its acknowledged records, and up to where it was looked at.
    let mut known: BTreeMap<_, BTreeMap<i64, i64>> = BTreeMap::new();
    for (_, tp, offset, value) in acknowledged::records(history) {
        if let Some(time_ms) = sent.get(&(tp, value)) {
            known.entry(tp).or_default().insert(offset, *time_ms);
        }
    }
    let mut gone: BTreeMap<_, i64> = BTreeMap::new();
    let mut violations = Vec::new();
    for look in looks(history) {
        let Some(keep_ms) = keep.get(&look.tp) else { continue };
        let from = gone.insert(look.tp, look.data.log_start).unwrap_or(0);
        let since_us = history.get(look.moment).map_or(0, |event| event.at_us);
        let now_ms = crate::START_MS + i64::try_from(since_us / 1_000).unwrap_or(0);
        let of_tp = known.get(&look.tp).into_iter();
        let new = of_tp.flat_map(|of| of.range(from..look.data.log_start.max(from)));
        for (offset, time_ms) in new.filter(|(_, time_ms)| now_ms - **time_ms < *keep_ms) {
            let (tp, age_ms) = (look.tp, now_ms - time_ms);
            let detail = format!("{tp} {offset} is deleted and is {age_ms} ms old");
            violations.push(Violation { checker: NAME, moment: look.moment, detail });
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
    fn a_record_that_goes_before_its_time_is_found() {
        let run = |seen_at_us, log_start| {
            let mut sent = attempt(1, &["a"]);
            if let What::Attempt { time_ms, .. } = &mut sent {
                *time_ms = crate::START_MS;
            }
            let retained = What::Retained { tp: TP, keep_ms: Some(100) };
            let mut history = events(vec![
                retained,
                sent,
                answer(1, Outcome::Acknowledged(0)),
                fetched(3, log_start, data(log_start, 1, &[])),
            ]);
            history[3].at_us = seen_at_us;
            check(&history).len()
        };
        assert_eq!(run(99_000, 1), 1);
        assert_eq!(run(100_000, 1), 0);
        assert_eq!(run(0, 0), 0);
    }
}
