//! Sorted journals over many passes and restarts: read where they lie, merged by size, few in number; and
//! what a damaged one keeps.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use support::journal::dir;
use support::{CLUSTER, Running, World, batch, partition, produce, read_all, stamped};
use talos_common::{BrokerDir, Env, LeaderEpoch, TopicId, TopicPartitionId};
use talos_log::dump::{Content, Dump, DumpOptions, RunReport};
use talos_log::root::RootHandle;
use talos_log::{LogOptions, OpenError, OpenRequest, PartitionLog};
use talos_storage::memory::{Crash, MemoryOptions, MemoryStorage};
use talos_storage::{FilePath, Storage as _};

const OPTIONS: LogOptions = LogOptions {
    sort_bytes: u64::MAX,
    segment_bytes: 1 << 30,
    lane_bytes: 64 << 10,
    tail_cache_bytes: 0,
    ..LogOptions::DEFAULT
};

/// The partition that only makes the journal go on to its next file; nothing of it is kept.
const FILLER: u8 = 9;

struct Case {
    env: Env,
    storage: MemoryStorage,
    world: World,
    told: BTreeMap<u8, Vec<String>>,
    sequence: i32,
}

impl Case {
    fn new(seed: u64, partitions: u8) -> Self {
        let env = Env::simulated(seed, 1_700_000_000_000);
        let options = MemoryOptions { file_bytes: 24 << 10, ..MemoryOptions::default() };
        let storage = MemoryStorage::new(&env, options);
        let mut world = World::with_partitions(partitions);
        world.records.insert(partition(FILLER), support::Record::default());
        let told = (0..partitions).map(|which| (which, Vec::new())).collect();
        Self { env, storage, world, told, sequence: 0 }
    }

    async fn start(&mut self) -> Running {
        let running = self.world.start(&self.env, Arc::new(self.storage.clone()), OPTIONS).await;
        assert!(running.failed.is_empty(), "{:?}", running.failed);
        running
    }

    fn kill(&mut self) {
        self.env.tasks.abort();
        self.storage = self.storage.crash_and_reopen(Crash::Kill);
    }

    /// A record of `bytes` for each partition; that of partition 0 from an idempotent producer.
    async fn work(&mut self, running: &Running, bytes: usize) {
        for (which, told) in &mut self.told {
            let value = format!("{which}/{}/{}", told.len(), "x".repeat(bytes));
            let batch = match which {
                0 => stamped(&[&value], 7, 0, self.sequence),
                _ => batch(&[&value], 0),
            };
            produce(&running.partitions[&partition(*which)], &batch).await;
            told.push(value);
        }
        self.sequence += 1;
    }

    /// Has the journal go on in its next file, and everything sorted that is closed.
    async fn sort(&self, running: &Running) {
        let filler = &running.partitions[&partition(FILLER)];
        let value = "f".repeat(9 << 10);
        for _ in 0..3 {
            produce(filler, &batch(&[&value], 0)).await;
        }
        filler.advance_log_start(filler.offsets().high_watermark).await.unwrap();
        running.log.sort().await.unwrap();
    }

    async fn check(&self, running: &Running) {
        for (which, told) in &self.told {
            let log = &running.partitions[&partition(*which)];
            assert_eq!(&values(log).await, told, "partition {which}");
        }
        let retry = &self.told[&0];
        if let Some(last) = retry.last() {
            let log = &running.partitions[&partition(0)];
            let again = produce(log, &stamped(&[last], 7, 0, self.sequence - 1)).await;
            assert_eq!(again, retry.len() as i64 - 1, "a retry was appended");
        }
    }

    fn sorted(&self, of: Option<BrokerDir>) -> BTreeSet<FilePath> {
        let sorted = |path: &FilePath| match path {
            FilePath::Sorted { dir, .. } => of.is_none_or(|of| of == *dir),
            _ => false,
        };
        self.storage.files().into_iter().filter(sorted).collect()
    }

    fn bytes(&self, paths: &BTreeSet<FilePath>) -> u64 {
        paths.iter().map(|path| self.storage.copy(path).unwrap().content().len() as u64).sum()
    }

    fn dirs(&self) -> BTreeSet<BrokerDir> {
        self.storage.files().iter().filter_map(FilePath::dir).collect()
    }

    /// All runs by file.
    async fn runs(&self) -> BTreeMap<FilePath, Vec<RunReport>> {
        let options = DumpOptions { cluster: Some(CLUSTER), ..DumpOptions::default() };
        let mut dump = Dump::new(Arc::new(self.storage.clone()), options).await.unwrap();
        let mut found = BTreeMap::new();
        while let Some(report) = dump.next(&mut |_| {}).await.unwrap() {
            if let Some(Content::Runs(content)) = report.content {
                found.insert(report.path, content.runs);
            }
        }
        found
    }
}

async fn values(log: &PartitionLog) -> Vec<String> {
    let records = read_all(log, log.offsets().log_start, 1 << 20).await.unwrap();
    records.into_iter().map(|(_, value)| value).collect()
}

#[tokio::test(start_paused = true)]
async fn e_w15_inherited_sorted_journals_are_read_where_they_lie() {
    let mut case = Case::new(1, 3);
    let running = case.start().await;
    case.work(&running, 500).await;
    case.sort(&running).await;
    // This one stays raw.
    case.work(&running, 500).await;
    case.kill();

    let running = case.start().await;
    case.check(&running).await;
    running.log.sort().await.unwrap();
    let runs = case.runs().await;
    let mine = case.sorted(Some(dir(2)));
    assert_eq!(mine.len(), 1, "what was raw is rewritten");
    for run in mine.iter().flat_map(|path| &runs[path]).filter(|run| run.bytes > 0) {
        assert!(run.base_offset >= 1, "{run:?} was in a sorted journal");
    }
    assert_eq!(case.world.tidy(&case.env, &running, &case.storage).await, 0, "it is needed");
    case.check(&running).await;
    case.kill();

    // Nothing raw is inherited now: not one byte is written again, producer state included.
    for epoch in 3..6 {
        let running = case.start().await;
        running.log.sort().await.unwrap();
        case.world.tidy(&case.env, &running, &case.storage).await;
        assert_eq!(case.sorted(Some(dir(epoch))), BTreeSet::new());
        case.check(&running).await;
        case.kill();
    }
    let running = case.start().await;
    case.world.tidy(&case.env, &running, &case.storage).await;
    let with_records: BTreeSet<_> = case.sorted(None).iter().filter_map(FilePath::dir).collect();
    assert_eq!(with_records, BTreeSet::from([dir(1), dir(2)]));
    assert_eq!(case.dirs(), BTreeSet::from([dir(1), dir(2), dir(6)]), "empty ones went");
}

#[tokio::test(start_paused = true)]
async fn e_w15_restarts_in_a_row_keep_few_directories_and_lose_nothing() {
    let mut case = Case::new(2, 3);
    let (mut most, mut written, mut produced) = (0, 0, 0);
    for _ in 0..25 {
        let running = case.start().await;
        case.check(&running).await;
        case.work(&running, 700).await;
        produced += 3 * 700;
        let before = case.sorted(None);
        case.sort(&running).await;
        written += case.bytes(&case.sorted(None).difference(&before).cloned().collect());
        case.world.tidy(&case.env, &running, &case.storage).await;
        most = most.max(case.dirs().len());
        case.check(&running).await;
        case.kill();
    }
    assert!(most <= 10, "{most} directories");
    // Twice for two powers of eight and once to begin with; labels and indexes beside the records.
    assert!(written < 6 * produced, "{written} bytes written for {produced}");
}

#[tokio::test(start_paused = true)]
async fn e_j9_a_record_is_written_again_once_for_each_power_of_eight() {
    let mut case = Case::new(3, 3);
    let running = case.start().await;
    let (mut written, mut produced, mut most) = (0, 0, 0);
    for _ in 0..130 {
        case.work(&running, 900).await;
        produced += 3 * 900;
        let before = case.sorted(None);
        case.sort(&running).await;
        let after = case.sorted(None);
        written += case.bytes(&after.difference(&before).cloned().collect());
        most = most.max(after.len());
    }
    // 130 passes: three classes of sets, so at most four times each record, and the indexes.
    assert!(written < 5 * produced, "{written} bytes written for {produced}");
    assert!(most <= 32, "{most} sorted journals");
    case.check(&running).await;
    case.kill();
    let running = case.start().await;
    case.check(&running).await;
}

#[tokio::test(start_paused = true)]
async fn a_sorted_journal_of_which_half_is_dead_is_written_again() {
    let mut case = Case::new(4, 3);
    let running = case.start().await;
    for _ in 0..6 {
        case.work(&running, 900).await;
    }
    case.sort(&running).await;
    let full = case.bytes(&case.sorted(None));
    for which in 1..3 {
        let log = &running.partitions[&partition(which)];
        let to = log.advance_log_start(log.offsets().high_watermark).await.unwrap();
        case.told.get_mut(&which).unwrap().drain(..to as usize);
    }
    running.log.sort().await.unwrap();
    let rest = case.bytes(&case.sorted(None));
    assert!(rest * 2 < full, "{rest} of {full} bytes are left");
    let before = case.sorted(None);
    running.log.sort().await.unwrap();
    assert_eq!(case.sorted(None), before, "once is enough");
    case.check(&running).await;
    case.kill();
    let running = case.start().await;
    case.check(&running).await;
}

#[tokio::test(start_paused = true)]
async fn p5_a_damaged_run_keeps_neither_raw_journals_nor_other_partitions() {
    let mut case = Case::new(5, 3);
    let running = case.start().await;
    case.work(&running, 500).await;
    case.sort(&running).await;
    let damaged = case.sorted(None).pop_first().unwrap();
    let run = case.runs().await[&damaged].iter().find(|run| run.partition == partition(1)).cloned();
    let at = run.unwrap().position + 70;
    case.storage.flip_bit(&damaged, at..at + 1, &case.env.rng).unwrap();
    // It is time to merge: all but that run are.
    let mut failed = 0;
    for _ in 0..8 {
        case.work(&running, 500).await;
        let filler = &running.partitions[&partition(FILLER)];
        for _ in 0..3 {
            produce(filler, &batch(&[&"f".repeat(9 << 10)], 0)).await;
        }
        filler.advance_log_start(filler.offsets().high_watermark).await.unwrap();
        if let Err(error) = running.log.sort().await {
            assert!(error.contains(&damaged.to_string()), "{error}");
            failed += 1;
        }
    }
    assert!(failed > 0, "nothing was merged");
    let raw = case.storage.files().into_iter();
    let raw = raw.filter(|path| matches!(path, FilePath::Journal { .. })).count();
    assert!(raw <= 2, "{raw} journals pile up behind a damaged run");
    let runs = case.runs().await;
    assert!(runs[&damaged].iter().any(|run| run.partition == partition(1)), "the evidence stays");
    let rest = read_all(&running.partitions[&partition(1)], 1, 1 << 20).await.unwrap();
    assert_eq!(rest.len(), 8);
    assert_eq!(values(&running.partitions[&partition(0)]).await, case.told[&0]);
    assert_eq!(values(&running.partitions[&partition(2)]).await, case.told[&2]);
}

/// Puts the content of each file under the other's name.
fn exchange(storage: &MemoryStorage, one: &FilePath, other: &FilePath) {
    let contents = [one, other].map(|path| storage.copy(path).unwrap().content().to_vec());
    for (path, content) in [other, one].into_iter().zip(contents) {
        storage.cut(path, 0);
        storage.extend(path, &content);
    }
}

#[tokio::test(start_paused = true)]
async fn p5_a_run_file_under_another_name_is_refused_and_others_are_served() {
    let mut case = Case::new(6, 4);
    // Partition 0 has no run in the second sorted journal, and partition 3 none in either.
    let running = case.start().await;
    let told = &mut case.told;
    for (pass, which) in [(0, 0), (0, 1), (1, 1), (1, 2)] {
        let value = format!("{pass}/{which}");
        produce(&running.partitions[&partition(which)], &batch(&[&value], 0)).await;
        told.get_mut(&which).unwrap().push(value);
        if which == 1 && pass == 0 || which == 2 {
            let filler = &running.partitions[&partition(FILLER)];
            for _ in 0..3 {
                produce(filler, &batch(&[&"f".repeat(9 << 10)], 0)).await;
            }
            filler.advance_log_start(filler.offsets().high_watermark).await.unwrap();
            running.log.sort().await.unwrap();
        }
    }
    produce(&running.partitions[&partition(3)], &batch(&["3"], 0)).await;
    told.get_mut(&3).unwrap().push("3".into());
    case.kill();
    let files: Vec<_> = case.sorted(None).into_iter().collect();
    let [one, other] = files.as_slice() else { panic!("{files:?}") };
    exchange(&case.storage, one, other);
    let running = case.world.start(&case.env, Arc::new(case.storage.clone()), OPTIONS).await;
    for which in 0..3 {
        match &running.failed[&partition(which)] {
            OpenError::Corrupt { file, what, .. } => {
                assert!([one, other].iter().any(|path| path.to_string() == *file), "{file}");
                assert!(what.contains("by its label"), "{what}");
            }
            error @ OpenError::Unavailable { .. } => panic!("{error}"),
        }
    }
    assert_eq!(values(&running.partitions[&partition(3)]).await, ["3"]);
    case.kill();
    // Put back, all is well.
    exchange(&case.storage, one, other);
    let running = case.start().await;
    for (which, told) in &case.told {
        assert_eq!(&values(&running.partitions[&partition(*which)]).await, told);
    }
    // The damage of one concerns those in it.
    case.kill();
    case.storage.remove(other);
    let running = case.world.start(&case.env, Arc::new(case.storage.clone()), OPTIONS).await;
    assert_eq!(values(&running.partitions[&partition(0)]).await, case.told[&0]);
    assert_eq!(values(&running.partitions[&partition(3)]).await, case.told[&3]);
    let refused: Vec<_> = running.failed.keys().copied().collect();
    assert_eq!(refused, [partition(1), partition(2)]);
}

#[tokio::test(start_paused = true)]
async fn p5_an_exchanged_segment_is_refused_and_other_partitions_are_served() {
    let env = Env::simulated(7, 1_700_000_000_000);
    let options = MemoryOptions { file_bytes: 24 << 10, ..MemoryOptions::default() };
    let storage = MemoryStorage::new(&env, options);
    let mut world = World::with_partitions(3);
    let options = LogOptions { segment_bytes: 1, ..OPTIONS };
    let running = world.start(&env, Arc::new(storage.clone()), options).await;
    for which in 0..2 {
        produce(&running.partitions[&partition(which)], &batch(&["a"], 0)).await;
    }
    for _ in 0..3 {
        produce(&running.partitions[&partition(2)], &batch(&[&"f".repeat(9 << 10)], 0)).await;
    }
    running.log.sort().await.unwrap();
    env.tasks.abort();
    let storage = storage.crash_and_reopen(Crash::Kill);
    let segment = |which| {
        let of = partition(which);
        let mut files = storage.files().into_iter();
        files.find(|path| matches!(path, FilePath::Segment { partition, .. } if *partition == of))
    };
    exchange(&storage, &segment(0).unwrap(), &segment(1).unwrap());
    let running = world.start(&env, Arc::new(storage.clone()), options).await;
    for which in 0..2 {
        let error = running.failed[&partition(which)].to_string();
        assert!(
            error.contains("by its label") && error.contains(&segment(which).unwrap().to_string())
        );
    }
    assert_eq!(values(&running.partitions[&partition(2)]).await.len(), 3);
    env.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn e_j9_partitions_that_trickle_make_few_files_and_no_change_of_a_root() {
    const PARTITIONS: i32 = 20_000;
    let env = Env::simulated(8, 1_700_000_000_000);
    let options = MemoryOptions { file_bytes: 1 << 20, ..MemoryOptions::default() };
    let storage = MemoryStorage::new(&env, options);
    let mut world = World::default();
    let id = |n| TopicPartitionId { topic: TopicId([7; 16]), partition: n };
    world.records.extend((0..PARTITIONS).map(|n| (id(n), support::Record::default())));
    let mut running = world.start(&env, Arc::new(storage.clone()), OPTIONS).await;
    let mut storage = storage;
    for round in 0..3 {
        let mut waiting = Vec::new();
        for (id, log) in &running.partitions {
            let batch = batch(&[&format!("{}/{round}/{}", id.partition, "x".repeat(200))], 0);
            let lease = log.admit(batch.bytes.len()).await.unwrap();
            waiting.push(log.append(&batch, Some(lease)).unwrap().durable);
        }
        for durable in waiting {
            durable.await.unwrap();
        }
        running.log.sort().await.unwrap();
        if round == 1 {
            env.tasks.abort();
            storage = storage.crash_and_reopen(Crash::Kill);
            running = world.start(&env, Arc::new(storage.clone()), OPTIONS).await;
            assert!(running.failed.is_empty(), "{}", running.failed.len());
        }
    }
    let files = storage.files();
    assert!(files.len() <= 12, "{} files for {PARTITIONS} partitions: {files:?}", files.len());
    let rooted = world.records.values().filter(|record| record.root.0.lock().unwrap().is_some());
    assert_eq!(rooted.count(), 0, "metadata writes follow bytes, not partitions");
    for log in running.partitions.values() {
        assert_eq!(values(log).await.len(), 3);
    }
    env.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn a_pass_while_leaderships_end_keeps_what_they_need() {
    let mut case = Case::new(9, 3);
    let running = case.start().await;
    case.work(&running, 500).await;
    case.sort(&running).await;
    let before = case.sorted(None);
    assert!(!before.is_empty());
    // The broker stops: its partitions end, its journal not yet.
    for log in running.partitions.values() {
        log.end("the broker stopped");
    }
    running.log.sort().await.unwrap();
    assert_eq!(case.sorted(None), before);
    case.kill();
    let running = case.start().await;
    case.check(&running).await;
    // What is lost then is still missed.
    case.kill();
    for path in &before {
        case.storage.remove(path);
    }
    let running = case.world.start(&case.env, Arc::new(case.storage.clone()), OPTIONS).await;
    assert_eq!(running.failed.len(), 3, "{:?}", running.failed.keys());
    case.env.tasks.abort();
}

/// A leadership that ends here goes on elsewhere: the claimer reads what lies in this directory, which
/// it may not have sealed yet when a pass sorts the other partitions.
#[tokio::test(start_paused = true)]
async fn e_w8_raw_batches_of_a_leadership_that_ended_outlive_a_pass_for_others() {
    let mut case = Case::new(11, 3);
    let running = case.start().await;
    case.work(&running, 500).await;
    let ended = &running.partitions[&partition(1)];
    let root = &case.world.records[&partition(1)].root;
    ended.end("another broker leads it");
    // Several files behind that one hold nothing of it.
    for _ in 0..2 {
        case.sort(&running).await;
    }
    assert!(root.0.lock().unwrap().is_none(), "nothing of it was published");
    let sorted = case.sorted(None);
    assert!(!sorted.is_empty(), "the others are sorted");
    case.kill();
    let running = case.start().await;
    case.check(&running).await;
    case.env.tasks.abort();
}

/// An opening fails after a pass has sorted what the partition inherits; the next one, of the same broker
/// epoch, reads the former directory again, and must not hear that it is not needed.
#[tokio::test(start_paused = true)]
async fn e_w1_what_a_former_opening_did_not_need_is_not_said_of_the_next_one() {
    // Those that are not opened again keep the file alive.
    let mut case = Case::new(12, 4);
    let running = case.start().await;
    case.work(&running, 500).await;
    // The producer state of partition 0 is all that is left of it.
    let log = &running.partitions[&partition(0)];
    log.advance_log_start(1).await.unwrap();
    case.kill();
    let running = case.start().await;
    running.log.sort().await.unwrap();
    for which in [0, 1] {
        running.log.forget(partition(which));
        let record = case.world.records.get_mut(&partition(which)).unwrap();
        let (own, epoch) = record.leader.unwrap();
        let next = LeaderEpoch(epoch.0 + 1);
        record.leader = Some((own, next));
        let request = OpenRequest {
            id: partition(which),
            leader_epoch: next,
            inherits: record.inherits.iter().copied().chain([(own, epoch)]).collect(),
            root: record.root.0.lock().unwrap().clone(),
            root_handle: Arc::clone(&record.root) as Arc<dyn RootHandle>,
        };
        let (_, opened) = running.log.open(vec![request], &BTreeMap::new()).await.remove(0);
        opened.unwrap();
    }
    case.world.tidy(&case.env, &running, &case.storage).await;
    assert!(case.dirs().contains(&dir(1)), "the directory in which both are read went");
    // Both are sorted again, under the new pair, and only then the directory goes.
    running.log.sort().await.unwrap();
    case.world.tidy(&case.env, &running, &case.storage).await;
    assert!(!case.dirs().contains(&dir(1)));
    case.kill();
    let running = case.start().await;
    assert_eq!(values(&running.partitions[&partition(1)]).await, case.told[&1]);
    let again = stamped(&[&case.told[&0][0]], 7, 0, 0);
    assert_eq!(produce(&running.partitions[&partition(0)], &again).await, 0, "it was appended");
    case.env.tasks.abort();
}

#[tokio::test(start_paused = true)]
async fn e_j4_segments_of_former_leaders_that_no_root_reaches_are_the_leaders_garbage() {
    let env = Env::simulated(10, 1_700_000_000_000);
    let options = MemoryOptions { file_bytes: 24 << 10, ..MemoryOptions::default() };
    let mut storage = MemoryStorage::new(&env, options);
    let mut world = World::with_partitions(2);
    let options = LogOptions { segment_bytes: 1, ..OPTIONS };
    let running = world.start(&env, Arc::new(storage.clone()), options).await;
    let log = &running.partitions[&partition(0)];
    for value in ["deleted", "kept"] {
        produce(log, &batch(&[value], 0)).await;
        for _ in 0..3 {
            produce(&running.partitions[&partition(1)], &batch(&[&"f".repeat(9 << 10)], 0)).await;
        }
        running.log.sort().await.unwrap();
    }
    let of = |storage: &MemoryStorage, which| -> BTreeSet<FilePath> {
        let files = storage.files().into_iter();
        let of = partition(which);
        files
            .filter(|path| matches!(path, FilePath::Segment { partition, .. } if *partition == of))
            .collect()
    };
    let live: BTreeSet<_> = of(&storage, 0);
    assert_eq!(live.len(), 2);
    // The process dies before the first one goes; and with one written that no root will name.
    log.advance_log_start(1).await.unwrap();
    let unreached = |leader_epoch, attempt| FilePath::Segment {
        partition: partition(0),
        base_offset: 1,
        leader_epoch: LeaderEpoch(leader_epoch),
        attempt,
    };
    let parts = || vec![bytes::Bytes::from_static(b"whatever")];
    for (epoch, attempt) in [(0, 7), (1, 8), (2, 9)] {
        storage.publish(&unreached(epoch, attempt), parts()).await.unwrap();
    }
    env.tasks.abort();
    storage = storage.crash_and_reopen(Crash::Kill);
    let running = world.start(&env, Arc::new(storage.clone()), options).await;
    env.clock.sleep(std::time::Duration::from_secs(45)).await;
    assert_eq!(of(&storage, 0).len(), 5, "a former leader's readers have time");
    env.clock.sleep(std::time::Duration::from_secs(100)).await;
    let kept: BTreeSet<_> = of(&storage, 0);
    // Those of this leader epoch and above may be somebody's.
    let mut expected = BTreeSet::from([unreached(1, 8), unreached(2, 9)]);
    expected.extend(live.iter().last().cloned());
    assert_eq!(kept, expected);
    assert_eq!(values(&running.partitions[&partition(0)]).await, ["kept"]);
    assert_eq!(values(&running.partitions[&partition(1)]).await.len(), 6);
    env.tasks.abort();
}
