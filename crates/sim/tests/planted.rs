//! Broken brokers are found: each bug is planted from outside, and one of the checkers that are meant
//! to find it does, within a few seeds; the same runs without the bug are clean.
//!
//! For the bug that has no seam outside the broker (a ghost of an older leader epoch) the recorded
//! history of a real run is changed instead.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::sync::Arc;

use talos_sim::checkers::{self, acknowledged, one_value};
use talos_sim::history::{Outcome, What};
use talos_sim::planted::Planted;
use talos_sim::{Plan, run};

/// Seeds within which each bug must show.
const SEEDS: u64 = 12;
/// Seeds whose control runs must be clean.
const CONTROLS: u64 = 4;

fn found(bug: Planted, by: &[&str]) {
    let mut found = BTreeSet::new();
    for seed in 0..SEEDS {
        let report = run(bug.plan(seed)).unwrap();
        found.extend(report.violations.iter().map(|violation| violation.checker));
        if by.iter().all(|checker| found.contains(checker)) {
            break;
        }
    }
    for checker in by {
        assert!(found.contains(checker), "{bug:?} was not found by {checker}, but by {found:?}");
    }
    for seed in 0..CONTROLS {
        let report = run(bug.control(seed)).unwrap();
        assert!(report.violations.is_empty(), "without {bug:?}: {}", report.verdict());
    }
}

#[test]
fn acknowledging_before_the_flush_is_found() {
    found(Planted::AcknowledgeBeforeFlush, &["acknowledged"]);
}

#[test]
fn dropping_a_batch_now_and_then_is_found() {
    found(Planted::DropABatch, &["acknowledged", "one_value"]);
}

#[test]
fn serving_past_the_watermark_is_found() {
    found(Planted::ServePastTheWatermark, &["visible"]);
}

#[test]
fn showing_what_is_not_written_yet_is_found() {
    // After the crash the broker itself finds that its own statements do not hold, and refuses.
    found(Planted::VisibleBeforeWritten, &["acknowledged"]);
}

#[test]
fn forgetting_the_dedupe_state_on_restart_is_found() {
    found(Planted::ForgetTheDedupeState, &["idempotence"]);
}

#[test]
fn taking_a_torn_middle_for_a_torn_end_is_found() {
    found(Planted::TornMiddleAsTornEnd, &["acknowledged", "one_value"]);
}

#[test]
fn an_end_offset_back_at_0_after_the_log_was_emptied_is_found() {
    found(Planted::EndOffsetBackToZero, &["monotone"]);
}

#[test]
fn deleting_a_journal_before_nothing_needs_it_is_found() {
    found(Planted::DeleteJournalTooEarly, &["acknowledged"]);
}

#[test]
fn adopting_a_ghost_of_an_older_leader_epoch_is_found() {
    // A batch whose outcome nobody knew takes the place of the acknowledged one at the end.
    let mut report = run(Plan::of_seed(0)).unwrap();
    assert!(report.violations.is_empty(), "{}", report.verdict());
    let unknown = report.history.iter().find_map(|event| match &event.what {
        What::Answer { batch, outcome: Outcome::Unknown } => Some(*batch),
        _ => None,
    });
    let ghost = report.history.iter().find_map(|event| match &event.what {
        What::Attempt { batch, values, .. } if Some(*batch) == unknown => {
            Some(Arc::clone(&values[0]))
        }
        _ => None,
    });
    let ghost = ghost.expect("seed 0 has a batch of unknown outcome");
    let last = report.history.iter_mut().rev().find_map(|event| match &mut event.what {
        What::Final { data: Ok(data), .. } if !data.records.is_empty() => Some(data),
        _ => None,
    });
    last.expect("something is there at the end").records[0].1 = ghost;
    let found: BTreeSet<_> =
        checkers::check_all(&report.history).iter().map(|found| found.checker).collect();
    assert!(found.contains(acknowledged::NAME), "{found:?}");
    assert!(found.contains(one_value::NAME), "{found:?}");
}
