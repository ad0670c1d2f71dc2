//! Many seeds with all kinds of faults: every checker is content with every run, every kind of fault
//! was really met, and a seed replays exactly.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::{Mutex, OnceLock};

use talos_sim::{Plan, run, run_seed};

/// Seeds of this test command, in parts that run side by side.
const SEEDS: u64 = 520;
const PARTS: u64 = 4;

/// Every kind of fault, and of everything else that matters, that the seeds must meet.
const KINDS: [&str; 67] = [
    "client acknowledged after unknown",
    "client commit",
    "client deleted records",
    "client deletes a topic",
    "client end of a leader epoch",
    "client left a group",
    "client long poll answered",
    "client offset by time",
    "client outcome unknown",
    "client partitions created",
    "client produce without an answer",
    "client refused for want of storage",
    "damage: a bit flipped",
    "damage: cut",
    "damage: extended",
    "damage: journal",
    "damage: older copy",
    "damage: removed",
    "damage: segment",
    "damage: sorted journal",
    "disk AppendFull",
    "disk AppendUncertain",
    "disk Full",
    "disk LostAnswer",
    "disk LostWrite",
    "disk SlowCall",
    "disk Stalled",
    "disk SyncFails",
    "disk TornWrite",
    "ghost of an older leader epoch",
    "group snapshot",
    "log broker directory deleted",
    "log evicted read",
    "log retention",
    "log segment",
    "log segment deleted",
    "log segment read",
    "log sorted journal",
    "log sorted journal deleted",
    "log sorted journal read",
    "log sorting pass that replaced a journal",
    "meta full",
    "meta lost answer, applied",
    "meta lost answer, dropped",
    "meta lost answer, late",
    "meta slow",
    "meta unavailable",
    "metadata from an older copy",
    "network chop",
    "network cut",
    "network delay",
    "network refused",
    "network slow reader",
    "partition refused because of damage",
    "partition served on older metadata",
    "pause",
    "process clean stop",
    "process flush failed",
    "process kill",
    "process kill at step",
    "process power loss",
    "process power loss at step",
    "process step while stopping",
    "process while starting",
    "recovery with damage",
    "start refused on a damaged store",
    "wall clock jump",
];

/// The faults that the parts met, and how many parts are through.
type Met = Mutex<(u64, BTreeMap<String, u64>)>;

fn met() -> &'static Met {
    static MET: OnceLock<Met> = OnceLock::new();
    MET.get_or_init(Met::default)
}

/// Runs one part; whichever part is the last to end looks whether all kinds of faults were met.
fn part(number: u64) {
    let mut failed = Vec::new();
    let mut faults: BTreeMap<String, u64> = BTreeMap::new();
    for seed in (number..SEEDS).step_by(usize::try_from(PARTS).unwrap()) {
        let report = run_seed(seed).unwrap();
        for (kind, count) in &report.faults {
            *faults.entry(kind.clone()).or_default() += count;
        }
        if !report.violations.is_empty() {
            failed.push(report.verdict());
        }
    }
    let mut met = met().lock().unwrap();
    met.0 += 1;
    for (kind, count) in faults {
        *met.1.entry(kind).or_default() += count;
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
    if met.0 == PARTS {
        let missing: Vec<_> =
            KINDS.iter().filter(|kind| met.1.get(**kind).is_none_or(|count| *count == 0)).collect();
        assert!(missing.is_empty(), "never met: {missing:?}, met: {:?}", met.1);
    }
}

#[test]
fn seeds_part_0() {
    part(0);
}

#[test]
fn seeds_part_1() {
    part(1);
}

#[test]
fn seeds_part_2() {
    part(2);
}

#[test]
fn seeds_part_3() {
    part(3);
}

#[test]
fn a_seed_replays_exactly() {
    for seed in [3, 76, 407, 495] {
        let (first, second) = (run_seed(seed).unwrap(), run_seed(seed).unwrap());
        assert!(first.history.len() > 50, "seed {seed} did next to nothing");
        let differs = first.history.iter().zip(&second.history).position(|(a, b)| a != b);
        assert_eq!(differs, None, "seed {seed}: {:?}", differs.map(|at| &first.history[at]));
        assert_eq!(first.fingerprint(), second.fingerprint(), "seed {seed}");
        assert_eq!(first.faults, second.faults, "seed {seed}");
    }
}

#[test]
fn another_seed_is_another_run() {
    assert_ne!(run_seed(1).unwrap().fingerprint(), run_seed(2).unwrap().fingerprint());
}

#[test]
fn a_failing_run_names_its_command() {
    let mut report = run(Plan::of_seed(11)).unwrap();
    assert!(report.violations.is_empty(), "{}", report.verdict());
    report.violations.push(talos_sim::checkers::Violation {
        checker: "test",
        moment: 0,
        detail: "on purpose".into(),
    });
    assert!(report.verdict().contains("cargo run -p talos-sim -- --seed 11"));
}
