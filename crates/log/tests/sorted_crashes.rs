//! A sorting pass that is cut off at every durable step, by a kill and by a loss of power; and damage to
//! every region of the files that it leaves. Afterwards each partition is complete, or (damage only)
//! refused with file and position; never wrong bytes, never a shorter log without an error.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use support::{CLUSTER, Running, World, batch, partition, produce, read_all, stamped};
use talos_common::{Env, TopicPartitionId};
use talos_log::dump::{Content, Dump, DumpOptions};
use talos_log::{LogOptions, OpenError, ReadError};
use talos_storage::FilePath;
use talos_storage::memory::{Crash, FileCopy, MemoryOptions, MemoryStorage};

const OPTIONS: LogOptions = LogOptions {
    sort_bytes: u64::MAX,
    segment_bytes: 6 << 10,
    lane_bytes: 32 << 10,
    tail_cache_bytes: 0,
    ..LogOptions::DEFAULT
};
/// Partition 0 gets segments, 1 and 2 sorted journals; 3 keeps nothing but its producers.
const PARTITIONS: u8 = 4;

/// What clients know: records from the log start on, and the batches of an idempotent producer.
#[derive(Clone, Debug, Default)]
struct Told {
    log_start: i64,
    values: BTreeMap<i64, String>,
    sequence: i32,
}

type AllTold = BTreeMap<TopicPartitionId, Told>;

struct Case {
    options: LogOptions,
    env: Env,
    storage: MemoryStorage,
    world: World,
    told: AllTold,
}

impl Case {
    /// Everything is there after each of three restarts, one of them with a pass.
    async fn survives_restarts(&mut self, how: Crash, what: &str) {
        for round in 0..3 {
            self.kill(how);
            let running = self.start().await;
            self.all_whole(&running, &format!("{what}, restart {round}")).await;
            if round == 1 {
                running.log.sort().await.unwrap();
            }
            self.world.tidy(&self.env, &running, &self.storage).await;
            self.all_whole(&running, &format!("{what}, restart {round}, tidied")).await;
        }
    }

    fn new(seed: u64) -> Self {
        let env = Env::simulated(seed, 1_700_000_000_000);
        let options = MemoryOptions { file_bytes: 24 << 10, ..MemoryOptions::default() };
        let storage = MemoryStorage::new(&env, options);
        let world = World::with_partitions(PARTITIONS);
        let told = world.records.keys().map(|id| (*id, Told::default())).collect();
        Self { options: OPTIONS, env, storage, world, told }
    }

    async fn start(&mut self) -> Running {
        self.world.start(&self.env, Arc::new(self.storage.clone()), self.options).await
    }

    /// Some batches for every partition, and the next journal file.
    async fn work(&mut self, running: &Running) {
        for n in 0..6 {
            for which in 0..PARTITIONS {
                let id = partition(which);
                let told = self.told.get_mut(&id).unwrap();
                let filler = if which == 0 { 2_000 } else { 100 * usize::from(which) };
                let value = format!("{which}/{n}/{}", "x".repeat(filler));
                let batch = match which {
                    1 | 3 => stamped(&[&value], 70 + i64::from(which), 0, told.sequence),
                    _ => batch(&[&value], n),
                };
                told.sequence += 1;
                let offset = produce(&running.partitions[&id], &batch).await;
                told.values.insert(offset, value);
            }
        }
        // The log of the last partition is emptied.
        let last = partition(PARTITIONS - 1);
        let log = &running.partitions[&last];
        let told = self.told.get_mut(&last).unwrap();
        told.log_start = log.advance_log_start(log.offsets().high_watermark).await.unwrap();
    }

    fn kill(&mut self, how: Crash) {
        self.env.tasks.abort();
        self.storage = self.storage.crash_and_reopen(how);
    }

    /// Whether the partition is complete; false when it is refused.
    async fn is_whole(&self, running: &Running, id: TopicPartitionId, what: &str) -> bool {
        let Some(log) = running.partitions.get(&id) else {
            let error = &running.failed[&id];
            assert!(matches!(error, OpenError::Corrupt { .. }), "{what}: {error}");
            return false;
        };
        let told = &self.told[&id];
        let offsets = log.offsets();
        assert!(offsets.log_start >= told.log_start, "{what}: {id}: the log start went back");
        let end = told.values.last_key_value().map_or(0, |(offset, _)| offset + 1);
        assert!(offsets.high_watermark >= end, "{what}: {id}: a shorter log without an error");
        let read = match read_all(log, offsets.log_start, 3_000).await {
            Ok(read) => read,
            Err(ReadError::Corrupt { .. }) => return false,
            Err(error) => panic!("{what}: {error}"),
        };
        let expected: Vec<_> =
            told.values.range(offsets.log_start..).map(|(o, v)| (*o, v.clone())).collect();
        assert_eq!(read, expected, "{what}: {id}");
        // The newest batches of the idempotent producer are known: a retry changes nothing.
        if matches!(id.partition, 1 | 3) && told.sequence > 0 {
            let (offset, value) = told.values.last_key_value().unwrap();
            let retry = stamped(&[value], 70 + i64::from(id.partition), 0, told.sequence - 1);
            assert_eq!(produce(log, &retry).await, *offset, "{what}: {id}: a retry was appended");
        }
        true
    }

    async fn all_whole(&self, running: &Running, what: &str) {
        for id in self.world.records.keys() {
            assert!(self.is_whole(running, *id, what).await, "{what}: {id} {:?}", running.failed);
        }
    }
}

/// How many sorted journals and segments there are.
fn written(storage: &MemoryStorage) -> (usize, usize) {
    let files = storage.files();
    let sorted = files.iter().filter(|path| matches!(path, FilePath::Sorted { .. })).count();
    let segments = files.iter().filter(|path| matches!(path, FilePath::Segment { .. })).count();
    (sorted, segments)
}

/// Runs to a state with inherited raw and sorted files, then has a pass cut off after `steps` steps.
/// Gives whether it was.
async fn cut_off(seed: u64, steps: u64, how: Crash) -> bool {
    let what = format!("seed {seed}, {how:?} after {steps} steps");
    let mut case = Case::new(seed);
    for round in 0..2 {
        let running = case.start().await;
        case.work(&running).await;
        if round == 0 {
            case.work(&running).await;
            running.log.sort().await.unwrap();
            assert!(written(&case.storage).0 > 0 && written(&case.storage).1 > 0, "{what}");
            case.work(&running).await;
        }
        case.kill(Crash::Kill);
    }
    let running = case.start().await;
    case.all_whole(&running, &what).await;
    case.work(&running).await;
    // Deletions between the places: in segments, runs and raw batches.
    for which in 0..2 {
        let log = &running.partitions[&partition(which)];
        let to = case.env.rng.u64(0..log.offsets().high_watermark as u64) as i64;
        let told = case.told.get_mut(&partition(which)).unwrap();
        told.log_start = log.advance_log_start(to).await.unwrap();
    }
    case.storage.crash_after(steps, how);
    let storage = case.storage.clone();
    let done = tokio::select! {
        biased;
        () = storage.crashed() => false,
        sorted = running.log.sort() => {
            sorted.unwrap();
            true
        }
    };
    if done {
        case.world.tidy(&case.env, &running, &case.storage).await;
    }
    case.survives_restarts(how, &what).await;
    !done
}

#[tokio::test(start_paused = true)]
async fn e_j13_e_j14_a_pass_may_be_cut_off_after_any_durable_step() {
    for (seed, how) in [(1, Crash::Kill), (2, Crash::PowerLoss), (3, Crash::Kill)] {
        let mut steps = 1;
        while cut_off(seed, steps, how).await {
            steps += 1;
            assert!(steps < 60);
        }
        assert!(steps > 3, "only {steps} steps");
    }
}

/// Runs to a state in which nine directories with sorted journals are inherited, then has the pass cut
/// off that merges the smallest. Gives whether it was.
async fn cut_off_merge(seed: u64, steps: u64, how: Crash) -> bool {
    let what = format!("seed {seed}, {how:?} after {steps} steps");
    let mut case = Case::new(seed);
    case.options = LogOptions { segment_bytes: 1 << 20, ..OPTIONS };
    for round in 0..9 {
        let running = case.start().await;
        case.work(&running).await;
        // Sets of different sizes, so that there are not eight alike before there are nine in all.
        for _ in 0..if round % 3 == 0 { 6 } else { 0 } {
            case.work(&running).await;
        }
        running.log.sort().await.unwrap();
        case.world.tidy(&case.env, &running, &case.storage).await;
        case.kill(Crash::Kill);
    }
    let dirs = |case: &Case| {
        let files = case.storage.files();
        files.iter().filter_map(FilePath::dir).collect::<BTreeSet<_>>().len()
    };
    let running = case.start().await;
    assert_eq!(dirs(&case), 10, "{what}");
    case.work(&running).await;
    case.work(&running).await;
    case.storage.crash_after(steps, how);
    let storage = case.storage.clone();
    let merged = async {
        running.log.sort().await.unwrap();
        case.world.tidy(&case.env, &running, &storage).await
    };
    let done = tokio::select! {
        biased;
        () = storage.crashed() => false,
        tidied = merged => {
            assert!(tidied > 0, "{what}: nothing was merged");
            // No crash any more.
            case.storage.crash_after(1 << 40, how);
            true
        }
    };
    case.survives_restarts(how, &what).await;
    assert!(dirs(&case) <= 10, "{what}: directories pile up");
    !done
}

#[tokio::test(start_paused = true)]
async fn e_w15_a_merge_of_directories_may_be_cut_off_after_any_durable_step() {
    for (seed, how) in [(21, Crash::Kill), (22, Crash::PowerLoss)] {
        let mut steps = 1;
        while cut_off_merge(seed, steps, how).await {
            steps += 1;
            assert!(steps < 60);
        }
        assert!(steps > 3, "only {steps} steps");
    }
}

/// A killed broker that left sorted journals and segments: inherited ones, own ones and raw files; or,
/// `idle` since its last pass, nothing behind the catalog that would miss what it names.
async fn left(seed: u64, idle: bool) -> Case {
    let mut case = Case::new(seed);
    for round in 0..3 {
        let running = case.start().await;
        case.work(&running).await;
        if round != 1 {
            running.log.sort().await.unwrap();
            case.world.tidy(&case.env, &running, &case.storage).await;
        }
        if !idle || round < 2 {
            case.work(&running).await;
        }
        case.kill(Crash::Kill);
    }
    let (sorted, segments) = written(&case.storage);
    assert!(sorted > 0 && segments > 0, "nothing was sorted");
    case
}

impl Case {
    /// Starts on damaged files; then puts all back. Gives the partitions that were refused.
    async fn judge(&mut self, copies: &[FileCopy], what: &str) -> BTreeSet<TopicPartitionId> {
        let records = self.world.records.iter().map(|(id, record)| {
            let inherits = record.inherits.clone();
            let root = Arc::new(support::TestRoot::default());
            *root.0.lock().unwrap() = record.root.0.lock().unwrap().clone();
            (*id, support::Record { leader: record.leader, inherits, root })
        });
        let again = World {
            epoch: self.world.epoch,
            records: records.collect(),
            clean_ends: self.world.clean_ends.clone(),
        };
        let before = std::mem::replace(&mut self.world, again);
        let running = self.start().await;
        let mut refused = BTreeSet::new();
        for id in before.records.keys() {
            if !self.is_whole(&running, *id, what).await {
                refused.insert(*id);
            }
        }
        let epoch = self.world.epoch;
        self.world = World { epoch, ..before };
        self.kill(Crash::Kill);
        for copy in copies {
            self.storage.restore(copy);
        }
        for path in self.storage.files() {
            if !copies.iter().any(|copy| *copy.path() == path) {
                self.storage.remove(&path);
            }
        }
        refused
    }
}

/// A sorted journal or segment: which partitions have runs in it, and where these begin and end.
struct RunFile {
    partitions: BTreeSet<TopicPartitionId>,
    runs: std::ops::Range<u64>,
}

async fn run_files(storage: &MemoryStorage) -> BTreeMap<FilePath, RunFile> {
    let options = DumpOptions { cluster: Some(CLUSTER), ..DumpOptions::default() };
    let mut dump = Dump::new(Arc::new(storage.clone()), options).await.unwrap();
    let mut found = BTreeMap::new();
    while let Some(report) = dump.next(&mut |_| {}).await.unwrap() {
        if let Some(Content::Runs(content)) = report.content {
            let start = content.runs.iter().map(|run| run.position).min().unwrap();
            let end = content.runs.iter().map(|run| run.position + run.bytes).max().unwrap();
            let partitions = content.runs.iter().map(|run| run.partition).collect();
            found.insert(report.path, RunFile { partitions, runs: start..end });
        }
    }
    found
}

#[tokio::test(start_paused = true)]
async fn p5_damage_to_sorted_journals_segments_and_what_names_them_is_refused() {
    for idle in [false, true] {
        sweep(left(11 + u64::from(idle), idle).await).await;
    }
}

/// Whether it is a journal that was made ahead and not begun, which nobody misses: what it holds is its
/// former life's, if anything.
fn is_unused(copy: &FileCopy) -> bool {
    let FilePath::Journal { dir, number, .. } = copy.path() else { return false };
    let states =
        |at: usize, wanted: u64| copy.content().get(at..at + 8) == Some(&wanted.to_le_bytes());
    !(states(42, dir.epoch.0) && states(54, *number))
}

async fn sweep(mut case: Case) {
    let files = case.storage.files();
    let copies: Vec<FileCopy> = files.iter().filter_map(|path| case.storage.copy(path)).collect();
    assert_eq!(case.judge(&copies, "no damage").await, BTreeSet::new());
    let run_files = run_files(&case.storage).await;
    let newest = case.world.epoch - 1;
    let mut refused = 0;
    for copy in &copies {
        let path = copy.path();
        if let Some(file) = run_files.get(path) {
            sweep_run_file(&mut case, &copies, copy, file).await;
            continue;
        }
        if is_unused(copy) {
            continue;
        }
        let len = copy.content().len() as u64;
        let dense = |at: u64| matches!(path, FilePath::Journal { dir, .. } if dir.epoch.0 == newest && at < 2_000);
        let mut at = 0;
        while at < len {
            let rng = case.env.rng.clone();
            case.storage.flip_bit(path, at..at + 1, &rng).unwrap();
            refused += case.judge(&copies, &format!("bit at {path}:{at}")).await.len();
            at += if dense(at) { 7 } else { 173 };
        }
        for to in (0..len).step_by(1_009).chain([len - 1]) {
            if case.storage.cut(path, to) {
                case.judge(&copies, &format!("{path} cut to {to}")).await;
            }
        }
        case.storage.extend(path, &[0xa5; 700]);
        case.judge(&copies, &format!("{path} extended")).await;
        case.storage.remove(path);
        let n = case.judge(&copies, &format!("{path} removed")).await;
        assert!(!n.is_empty(), "{path} removed and nobody noticed");
    }
    assert!(refused > 0);
}

/// Damage to a run file concerns those that have runs in it; to what is derived from them, nobody.
async fn sweep_run_file(case: &mut Case, copies: &[FileCopy], copy: &FileCopy, file: &RunFile) {
    let path = copy.path();
    let len = copy.content().len() as u64;
    let others = |refused: &BTreeSet<TopicPartitionId>| {
        refused.difference(&file.partitions).copied().collect::<Vec<_>>()
    };
    let mut at = 0;
    let mut refused_any = file.runs.is_empty();
    while at < len {
        let rng = case.env.rng.clone();
        case.storage.flip_bit(path, at..at + 1, &rng).unwrap();
        let refused = case.judge(copies, &format!("bit at {path}:{at}")).await;
        assert_eq!(others(&refused), [], "bit at {path}:{at}");
        if file.runs.contains(&at) {
            refused_any |= !refused.is_empty();
            at += 173;
        } else {
            assert_eq!(refused, BTreeSet::new(), "bit at {path}:{at}, which a copy makes good");
            at += 7;
        }
    }
    assert!(refused_any, "{path}: damaged records and nobody noticed");
    for to in (0..len).step_by(1_009).chain([file.runs.end, len - 1]) {
        if case.storage.cut(path, to) {
            let refused = case.judge(copies, &format!("{path} cut to {to}")).await;
            assert_eq!(others(&refused), [], "{path} cut to {to}");
            assert!(to < file.runs.end || refused.is_empty(), "{path} cut to {to}");
        }
    }
    case.storage.extend(path, &[0xa5; 700]);
    let refused = case.judge(copies, &format!("{path} extended")).await;
    assert_eq!(refused, BTreeSet::new(), "{path} extended");
    // Both copies of the index; a file that is gone; another file under this name.
    let rng = case.env.rng.clone();
    case.storage.flip_bit(path, 120..121, &rng);
    case.storage.flip_bit(path, file.runs.end + 30..file.runs.end + 31, &rng);
    let both = case.judge(copies, &format!("{path}: both copies")).await;
    case.storage.remove(path);
    let gone = case.judge(copies, &format!("{path} removed")).await;
    let mut exchanged = Vec::new();
    let same = |of: &&FileCopy| {
        of.path() != path && std::mem::discriminant(of.path()) == std::mem::discriminant(path)
    };
    if let Some(other) = copies.iter().find(same) {
        case.storage.cut(path, 0);
        case.storage.extend(path, other.content());
        exchanged.push(case.judge(copies, &format!("{path} is {}", other.path())).await);
    }
    for refused in [both, gone].into_iter().chain(exchanged) {
        assert_eq!(others(&refused), [], "{path}");
        assert!(!refused.is_empty(), "{path} is no use and nobody noticed");
    }
}

#[tokio::test(start_paused = true)]
async fn e_j14_an_older_root_and_older_files_are_refused_or_change_nothing() {
    let mut case = Case::new(12);
    let mut roots = Vec::new();
    let mut older = Vec::new();
    let running = case.start().await;
    for _ in 0..3 {
        case.work(&running).await;
        running.log.sort().await.unwrap();
        let copies = case.storage.files();
        older.extend(copies.iter().filter_map(|path| case.storage.copy(path)));
        let root = |record: &support::Record| record.root.0.lock().unwrap().clone();
        roots.push(
            case.world.records.iter().map(|(id, r)| (*id, root(r))).collect::<BTreeMap<_, _>>(),
        );
    }
    case.world.stop(running).await;
    case.kill(Crash::Kill);
    let files = case.storage.files();
    let copies: Vec<FileCopy> = files.iter().filter_map(|path| case.storage.copy(path)).collect();
    let newest = roots.pop().unwrap();
    roots.push(BTreeMap::new());
    let mut refused = 0;
    for old in &roots {
        for id in newest.keys() {
            let root = Arc::clone(&case.world.records[id].root);
            *root.0.lock().unwrap() = old.get(id).cloned().flatten();
            refused += case.judge(&copies, &format!("an older root of {id}")).await.len();
            *root.0.lock().unwrap() = newest[id].clone();
        }
    }
    assert!(refused > 0);
    for copy in &older {
        case.storage.restore(copy);
        case.judge(&copies, &format!("{} from an older copy", copy.path())).await;
    }
}
