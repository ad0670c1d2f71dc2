//! Which sorted journals a pass writes again. Pure.
//!
//! What one pass writes is a *set*: files of bounded size, because a file is built in memory, that hold each
//! partition at most once. A partition has at most one run in each set, so the number of sets is what reads
//! and starts pay for. Sets are merged by size, eight of one class into one of the next: a record is
//! written again once for each class, not once for each pass.

use std::collections::{BTreeMap, BTreeSet};

use talos_common::BrokerDir;
use talos_storage::FilePath;

use crate::run::Run;

/// So many sets of one size class become one of the next.
const FAN_IN: usize = 8;
/// At most so many sets are kept, whatever their sizes.
const MAX_SETS: usize = 32;
/// More inherited directories than this are not read in place: the smallest are merged (E-W15).
const MAX_DIRS: usize = 8;

/// The files that one pass of one broker epoch wrote.
pub(super) type SetKey = (BrokerDir, u64);

/// What is written again.
#[derive(Debug, Default)]
pub(super) struct Merge {
    pub(super) sets: BTreeSet<SetKey>,
    /// Single files of which half is dead.
    pub(super) files: BTreeSet<FilePath>,
}

impl Merge {
    pub(super) fn takes(&self, file: &FilePath, set: u64) -> bool {
        let in_set = file.dir().is_some_and(|dir| self.sets.contains(&(dir, set)));
        in_set || self.files.contains(file)
    }

    pub(super) fn takes_run(&self, run: &Run) -> bool {
        self.takes(&run.file, run.set)
    }
}

/// Sets of one class differ by less than the fan-in.
fn class(bytes: u64) -> u32 {
    bytes.max(1).ilog2() / FAN_IN.ilog2()
}

/// Chooses among `sets`, given with their live bytes, for a pass that writes `incoming` new bytes into a
/// set of the broker directory `own`.
pub(super) fn choose(
    sets: &BTreeMap<SetKey, u64>,
    incoming: u64,
    own: BrokerDir,
) -> BTreeSet<SetKey> {
    let mut chosen = BTreeSet::new();
    // What this pass writes is one set, too.
    let mut written = incoming;
    let mut rest: Vec<(u64, SetKey)> = sets.iter().map(|(key, bytes)| (*bytes, *key)).collect();
    rest.sort_unstable();
    let mut take = |rest: &mut Vec<(u64, SetKey)>,
                    written: &mut u64,
                    is_taken: &dyn Fn(&(u64, SetKey)) -> bool| {
        rest.retain(|set| {
            let taken = is_taken(set);
            if taken {
                *written += set.0;
                chosen.insert(set.1);
            }
            !taken
        });
    };
    // The directories that hold least.
    let mut dirs: BTreeMap<BrokerDir, u64> = BTreeMap::new();
    for (bytes, (dir, _)) in rest.iter().filter(|(_, (dir, _))| *dir != own) {
        *dirs.entry(*dir).or_default() += bytes;
    }
    let mut by_bytes: Vec<(u64, BrokerDir)> = dirs.into_iter().map(|(dir, b)| (b, dir)).collect();
    by_bytes.sort_unstable();
    by_bytes.truncate(by_bytes.len().saturating_sub(MAX_DIRS));
    take(&mut rest, &mut written, &|(_, (dir, _))| by_bytes.iter().any(|(_, of)| of == dir));
    // Full classes. Each turn takes at least one set.
    loop {
        let mut members: BTreeMap<u32, usize> = BTreeMap::new();
        let new = (written > 0).then(|| class(written));
        rest.iter().map(|(bytes, _)| class(*bytes)).chain(new).for_each(|of| {
            *members.entry(of).or_default() += 1;
        });
        let full = members.into_iter().find(|(_, count)| *count >= FAN_IN);
        let Some((full, _)) = full else { break };
        take(&mut rest, &mut written, &|(bytes, _)| class(*bytes) == full);
    }
    // Too many of all sizes: the smallest.
    if rest.len() + usize::from(written > 0) > MAX_SETS {
        let kept = MAX_SETS - FAN_IN;
        let small: BTreeSet<SetKey> =
            rest.iter().take(rest.len().saturating_sub(kept)).map(|(_, key)| *key).collect();
        take(&mut rest, &mut written, &|(_, key)| small.contains(key));
    }
    chosen
}

#[cfg(test)]
mod tests {
    use talos_common::{BrokerEpoch, BrokerId};

    use super::*;

    fn dir(epoch: u64) -> BrokerDir {
        BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(epoch) }
    }

    /// Passes of `sizes` bytes; gives bytes written, and the most sets there were.
    fn passes(sizes: impl Iterator<Item = u64>, own: impl Fn(u64) -> BrokerDir) -> (u64, usize) {
        let (mut sets, mut written, mut most) = (BTreeMap::new(), 0, 0);
        for (number, size) in sizes.enumerate() {
            let own = own(number as u64);
            let merged: u64 =
                choose(&sets, size, own).iter().filter_map(|key| sets.remove(key)).sum();
            sets.insert((own, number as u64), size + merged);
            written += size + merged;
            most = most.max(sets.len());
        }
        (written, most)
    }

    #[test]
    fn e_j9_a_byte_is_written_once_for_each_class_of_size() {
        for count in [8_u64, 64, 512, 4_096] {
            let (written, most) = passes((0..count).map(|_| 1_000), |_| dir(1));
            // Once when it is produced, and once for each power of eight.
            let limit = 1_000 * count * (2 + u64::from(count.ilog2() / 3));
            assert!(written <= limit, "{count} passes wrote {written}");
            assert!(most <= 29, "{most} sets");
        }
    }

    #[test]
    fn passes_of_all_sizes_leave_few_sets_and_write_little() {
        let sizes = || (0..2_000_u64).map(|n| 1 << (n * 7 % 30));
        let produced: u64 = sizes().sum();
        let (written, most) = passes(sizes(), |_| dir(1));
        assert!(most <= MAX_SETS, "{most} sets");
        assert!(written < 12 * produced, "{written} for {produced}");
    }

    #[test]
    fn e_w15_restarts_without_records_write_nothing_and_with_some_keep_few_directories() {
        let eight: BTreeMap<SetKey, u64> = (0..8).map(|n| ((dir(n), 0), 1 << (3 * n))).collect();
        assert!(choose(&eight, 0, dir(8)).is_empty());
        let nine: BTreeMap<SetKey, u64> = (0..9).map(|n| ((dir(n), 0), 1 << (3 * n))).collect();
        assert_eq!(choose(&nine, 0, dir(9)), BTreeSet::from([(dir(0), 0)]), "the smallest");
        let (written, most) = passes((0..300).map(|_| 1_000), dir);
        assert!(most <= MAX_DIRS + 1, "{most} directories");
        // More than the classes alone: with few directories the smallest are merged before there are eight.
        assert!(written < 1_000 * 300 * 15, "{written}");
    }
}
