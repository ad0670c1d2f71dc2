//! Broken brokers are found: each bug is planted from outside, and one of the checkers that are meant
//! to find it does, within a few seeds; the same runs without the bug are clean.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeSet;

use talos_sim::planted::Planted;
use talos_sim::run;

/// Seeds within which each bug must show.
const SEEDS: u64 = 40;
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
fn dropping_one_batch_in_a_thousand_is_found() {
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
fn e_w14_adopting_a_ghost_of_an_older_leader_epoch_is_found() {
    found(Planted::AdoptAGhost, &["acknowledged", "one_value"]);
}
