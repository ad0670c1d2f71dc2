//! P5, swept: every kind of damage to every region of every file of a stopped broker. After each the
//! partitions are complete, or refused with the file and the position; never wrong bytes, never a
//! shorter log without an error.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use support::{World, batch, partition, produce, read_all};
use talos_common::{Env, TopicPartitionId};
use talos_log::{LogOptions, OpenError, ReadError};
use talos_storage::FilePath;
use talos_storage::memory::{Crash, Fault, FileCopy, Layout, MemoryOptions, MemoryStorage};

const OPTIONS: LogOptions = LogOptions {
    sort_bytes: u64::MAX,
    segment_bytes: 8 << 10,
    lane_bytes: 8 << 10,
    tail_cache_bytes: 0,
    ..LogOptions::DEFAULT
};

/// What each partition holds, acknowledged.
type Content = BTreeMap<TopicPartitionId, Vec<String>>;

struct Stopped {
    env: Env,
    storage: MemoryStorage,
    copies: Vec<FileCopy>,
    /// Copies of the same files taken half way.
    older: Vec<FileCopy>,
    world: World,
    content: Content,
}

/// A broker that ran twice and was killed: several files, several flushes each.
async fn stopped(seed: u64, clean: bool) -> Stopped {
    let env = Env::simulated(seed, 1_700_000_000_000);
    let options = MemoryOptions {
        file_bytes: 16 << 10,
        appends_in_flight: 1,
        layout: Layout::Recycled,
        ..MemoryOptions::default()
    };
    let mut storage = MemoryStorage::new(&env, options);
    let mut world = World::with_partitions(3);
    let mut content = Content::new();
    let mut older = Vec::new();
    for run in 0..2 {
        let running = world.start(&env, Arc::new(storage.clone()), OPTIONS).await;
        for n in 0..30 {
            let which = partition(n % 3);
            let value = format!("{run}/{n}/{}", "x".repeat(env.rng.usize(..900)));
            produce(&running.partitions[&which], &batch(&[&value], 0)).await;
            content.entry(which).or_default().push(value);
            if n == 15 {
                older = copies(&storage);
            }
        }
        match clean {
            true => {
                world.stop(running).await;
            }
            false => env.tasks.abort(),
        }
        storage = storage.crash_and_reopen(Crash::Kill);
    }
    let copies = copies(&storage);
    Stopped { env, storage, copies, older, world, content }
}

fn copies(storage: &MemoryStorage) -> Vec<FileCopy> {
    storage.files().iter().filter_map(|path| storage.copy(path)).collect()
}

impl Stopped {
    /// Starts on the damaged files and compares; then puts everything back. Gives how many
    /// partitions were refused.
    async fn judge(&mut self, damage: &str) -> usize {
        let world = World {
            epoch: self.world.epoch,
            records: self.world.records.iter().map(|(id, record)| (*id, copy_of(record))).collect(),
            clean_ends: self.world.clean_ends.clone(),
        };
        let before = std::mem::replace(&mut self.world, world);
        let storage = self.storage.handle_for_new_process();
        let running = self.world.start(&self.env, Arc::new(storage.clone()), OPTIONS).await;
        let mut refused = 0;
        for (id, values) in &self.content {
            let Some(log) = running.partitions.get(id) else {
                let error = &running.failed[id];
                assert!(matches!(error, OpenError::Corrupt { .. }), "{damage}: {error}");
                refused += 1;
                continue;
            };
            match read_all(log, 0, 1 << 20).await {
                Ok(read) => {
                    let read: Vec<String> = read.into_iter().map(|(_, value)| value).collect();
                    assert_eq!(&read, values, "{damage}: partition {id} changed without an error");
                }
                Err(ReadError::Corrupt { .. }) => refused += 1,
                Err(error) => panic!("{damage}: {error}"),
            }
        }
        self.env.tasks.abort();
        storage.crash(Crash::Kill);
        self.world = before;
        self.world.epoch += 1;
        for copy in &self.copies {
            self.storage.restore(copy);
        }
        for path in self.storage.files() {
            if !self.copies.iter().any(|copy| *copy.path() == path) {
                self.storage.remove(&path);
            }
        }
        self.storage = self.storage.handle_for_new_process();
        refused
    }
}

fn copy_of(record: &support::Record) -> support::Record {
    support::Record {
        leader: record.leader,
        inherits: record.inherits.clone(),
        root: Arc::clone(&record.root),
    }
}

#[tokio::test(start_paused = true)]
async fn p5_a_flipped_bit_anywhere_is_repaired_or_refused() {
    for clean in [false, true] {
        let mut stopped = stopped(1, clean).await;
        let files: Vec<(FilePath, u64)> = stopped
            .copies
            .iter()
            .map(|copy| (copy.path().clone(), copy.content().len() as u64))
            .collect();
        let mut refused = 0;
        for (path, len) in &files {
            for position in (0..*len).step_by(37) {
                let rng = stopped.env.rng.clone();
                if stopped.storage.flip_bit(path, position..position + 1, &rng).is_some() {
                    refused += stopped.judge(&format!("bit at {path}:{position}")).await;
                }
            }
        }
        assert!(refused > 0, "no damage was ever noticed");
        assert!(stopped.storage.faults().count(Fault::FlippedBit) > 100);
    }
}

#[tokio::test(start_paused = true)]
async fn p5_a_cut_extended_or_removed_file_is_repaired_or_refused() {
    for clean in [false, true] {
        let mut stopped = stopped(2, clean).await;
        let files: Vec<(FilePath, u64)> = stopped
            .copies
            .iter()
            .map(|copy| (copy.path().clone(), copy.content().len() as u64))
            .collect();
        let mut refused = 0;
        for (path, len) in &files {
            for to in (0..*len).step_by(211) {
                if stopped.storage.cut(path, to) {
                    refused += stopped.judge(&format!("{path} cut to {to}")).await;
                }
            }
            if stopped.storage.extend(path, &[0xa5; 5_000]) {
                assert_eq!(stopped.judge(&format!("{path} extended")).await, 0);
            }
            if stopped.storage.remove(path) {
                let gone = stopped.judge(&format!("{path} removed")).await;
                assert!(gone > 0, "{path} removed and nobody noticed");
                refused += gone;
            }
        }
        assert!(refused > 0);
    }
}

#[tokio::test(start_paused = true)]
async fn e_j15_a_file_put_back_from_an_older_copy_is_refused_after_a_clean_stop() {
    let mut stopped = stopped(3, true).await;
    let newest = stopped.copies.iter().map(|copy| copy.path().clone()).max();
    assert!(newest.is_some());
    let older = stopped.older.clone();
    let mut refused = 0;
    for copy in &older {
        stopped.storage.restore(copy);
        refused += stopped.judge(&format!("{} from an older copy", copy.path())).await;
    }
    assert!(refused > 0);
}

#[tokio::test(start_paused = true)]
async fn other_partitions_are_served_when_a_batch_of_one_is_damaged() {
    let mut stopped = stopped(4, true).await;
    // Somewhere in the middle of the first run's first file: later index frames name who is concerned.
    let path = stopped.copies[0].path().clone();
    let rng = stopped.env.rng.clone();
    let mut best = usize::MAX;
    for position in (600..6_000).step_by(101) {
        stopped.storage.flip_bit(&path, position..position + 1, &rng);
        let refused = stopped.judge("one bit").await;
        best = best.min(if refused == 0 { usize::MAX } else { refused });
        stopped.env.clock.sleep(Duration::from_millis(1)).await;
    }
    assert_eq!(best, 1, "damage to one batch closes one partition");
}

/// A file behind one that failed is named by no close frame: that it was begun is known from itself.
#[tokio::test(start_paused = true)]
async fn p5_a_damaged_header_is_not_taken_for_a_file_that_was_made_ahead_and_never_used() {
    for layout in [Layout::Recycled, MemoryOptions::default().layout] {
        let env = Env::simulated(3, 1_700_000_000_000);
        let file_bytes = 16 << 10;
        let options = MemoryOptions { file_bytes, layout, ..MemoryOptions::default() };
        let storage = MemoryStorage::new(&env, options);
        let mut world = World::with_partitions(1);
        let running = world.start(&env, Arc::new(storage.clone()), OPTIONS).await;
        let log = &running.partitions[&partition(0)];
        produce(log, &batch(&["a"], 0)).await;
        storage.faults().fail_next(Fault::AppendUncertain, 1);
        for value in ["b", "c"] {
            produce(log, &batch(&[value], 0)).await;
        }
        env.tasks.abort();
        let storage = storage.crash_and_reopen(Crash::Kill);
        let newest = storage.files().into_iter().rfind(|path| path.dir().is_some()).unwrap();
        let header = 90;
        for at in 0..=header {
            let env = Env::simulated(at, 1_700_000_000_000);
            let records = world.records.iter().map(|(id, record)| (*id, copy_of(record)));
            let (records, clean_ends) = (records.collect(), BTreeMap::new());
            let mut world = World { epoch: world.epoch, records, clean_ends };
            let storage = storage.fork(&env);
            if at < header {
                storage.flip_bit(&newest, at..at + 1, &env.rng).unwrap();
            }
            let running = world.start(&env, Arc::new(storage.clone()), OPTIONS).await;
            let what = format!("byte {at} of {newest}");
            match running.partitions.get(&partition(0)) {
                Some(log) => {
                    let found = read_all(log, 0, 1 << 20).await.unwrap();
                    assert_eq!(found.len(), 3, "{what}: a shorter log without an error");
                    assert_eq!(at, header, "{what}: nothing was damaged");
                }
                None => {
                    let error = running.failed[&partition(0)].to_string();
                    assert!(at < header && error.contains(&newest.to_string()), "{what}: {error}");
                }
            }
            env.tasks.abort();
        }
    }
}
