//! What the log may hold when sorting does not come after producers, or readers not after the log: it is
//! bounded, who has to wait hears a definite error, and service returns by itself (P7, E-J8, R15).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::{Running, World, batch, partition, produce, read_all, stamped};
use talos_common::{BrokerDir, Env};
use talos_log::validate::ValidBatch;
use talos_log::{AppendError, LogOptions, PartitionLog};
use talos_storage::memory::{Crash, MemoryOptions, MemoryStorage};
use talos_storage::{
    BoxFuture, Error, ErrorKind, FileInfo, FilePath, Prefix, Result, Storage, Traits, Writer,
};
use tokio::sync::watch;

const FILE_BYTES: u64 = 64 << 10;
const RAW_LIMIT: u64 = 256 << 10;
const OPTIONS: LogOptions = LogOptions {
    sort_bytes: 128 << 10,
    segment_bytes: 1 << 20,
    lane_bytes: 24 << 10,
    tail_cache_bytes: 64 << 10,
    raw_limit_bytes: RAW_LIMIT,
    extent_bytes: 4 << 20,
    pinned_bytes: 1 << 20,
    producer_bytes: 1 << 20,
};

/// What becomes of files that are written whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Publishing {
    Works,
    Fails,
    StandsStill,
}

/// A store in which publishing can be switched off.
#[derive(Clone, Debug)]
struct Switched {
    inner: MemoryStorage,
    publishing: Arc<watch::Sender<Publishing>>,
}

impl Switched {
    fn new(env: &Env, file_bytes: u64) -> Self {
        let options = MemoryOptions { file_bytes, ..MemoryOptions::default() };
        let publishing = Arc::new(watch::Sender::new(Publishing::Works));
        Self { inner: MemoryStorage::new(env, options), publishing }
    }

    fn set(&self, publishing: Publishing) {
        self.publishing.send_replace(publishing);
    }

    /// The process is killed; the handle of the next one.
    fn kill(&self, env: &Env) -> Self {
        env.tasks.abort();
        Self { inner: self.inner.crash_and_reopen(Crash::Kill), ..self.clone() }
    }
}

impl Storage for Switched {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        self.inner.make_dir(dir)
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        self.inner.create(path)
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        self.inner.read(path, range)
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        self.inner.seal(dir)
    }

    fn list(
        &self,
        prefix: Prefix,
        after: Option<FilePath>,
    ) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        self.inner.list(prefix, after)
    }

    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>> {
        self.inner.delete(path)
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        self.inner.delete_dir(dir)
    }

    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        let path = path.clone();
        Box::pin(async move {
            let mut switch = self.publishing.subscribe();
            let goes_on = |publishing: &Publishing| *publishing != Publishing::StandsStill;
            let publishing = *switch.wait_for(goes_on).await.unwrap();
            if publishing == Publishing::Fails {
                return Err(Error::new(ErrorKind::Unavailable, "publish", path, "switched off"));
            }
            self.inner.publish(&path, parts).await
        })
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }
}

fn env(seed: u64) -> Env {
    Env::simulated(seed, 1_700_000_000_000)
}

async fn start(env: &Env, store: &Switched, world: &mut World, options: LogOptions) -> Running {
    world.start(env, Arc::new(store.clone()), options).await
}

/// Appends and waits until it is durable, unless it is refused.
async fn try_produce(
    log: &Arc<PartitionLog>,
    batch: &ValidBatch,
) -> std::result::Result<i64, AppendError> {
    let lease = log.admit(batch.bytes.len()).await?;
    let appended = log.append(batch, Some(lease))?;
    appended.durable.await.unwrap();
    Ok(appended.base_offset)
}

/// Produces until it is refused; gives how many were taken, and the error.
async fn fill(log: &Arc<PartitionLog>, batch: &ValidBatch) -> (i64, AppendError) {
    for taken in 0..100_000 {
        if let Err(error) = try_produce(log, batch).await {
            return (taken, error);
        }
    }
    panic!("there is no limit: {:?}", log.offsets());
}

/// Waits until produce is taken again.
async fn until_served(env: &Env, log: &Arc<PartitionLog>, batch: &ValidBatch) {
    for _ in 0..60 {
        if try_produce(log, batch).await.is_ok() {
            return;
        }
        env.clock.sleep(Duration::from_secs(1)).await;
    }
    panic!("service did not return");
}

fn big() -> ValidBatch {
    batch(&["x".repeat(4 << 10).as_str()], 0)
}

#[tokio::test(start_paused = true)]
async fn e_j8_p7_at_the_raw_limit_appends_wait_are_then_refused_and_service_returns() {
    for broken in [Publishing::Fails, Publishing::StandsStill] {
        let (env, mut world) = (env(1), World::with_partitions(2));
        let store = Switched::new(&env, FILE_BYTES);
        let running = start(&env, &store, &mut world, OPTIONS).await;
        let log = &running.partitions[&partition(0)];
        store.set(broken);
        let before = env.clock.now();
        let (taken, error) = fill(log, &big()).await;
        // First it waited, a bounded time; then it said what is wrong.
        let waited = env.clock.now().duration_since(before);
        assert!(waited >= Duration::from_secs(5) && waited < Duration::from_secs(8), "{waited:?}");
        let AppendError::Stalled(why) = &error else { panic!("{error}") };
        assert!(why.contains("log.raw_limit is 256KiB") && why.contains("not sorted"), "{why}");
        let counts = running.metrics.counts();
        assert!(counts.raw_bytes >= RAW_LIMIT && counts.raw_bytes < RAW_LIMIT + (32 << 10));
        assert_eq!((counts.limited, counts.delays, counts.refusals), (1, 1, 1));
        // From then on at once, for every partition, while reads go on.
        let before = env.clock.now();
        for n in 0..2 {
            assert!(try_produce(&running.partitions[&partition(n)], &big()).await.is_err());
        }
        assert_eq!(env.clock.now(), before);
        assert_eq!(read_all(log, 0, 1 << 20).await.unwrap().len() as i64, taken);

        // Control frames went through all the time, or sorting could not end it.
        store.set(Publishing::Works);
        until_served(&env, log, &big()).await;
        let counts = running.metrics.counts();
        assert!(counts.limited == 0 && counts.raw_bytes < RAW_LIMIT, "{counts:?}");
        for _ in 0..200 {
            produce(&running.partitions[&partition(1)], &big()).await;
        }
        assert_eq!(read_all(log, 0, 1 << 20).await.unwrap().len() as i64, taken + 1);
        let store = store.kill(&env);
        let running = start(&env, &store, &mut world, OPTIONS).await;
        let all = [0, 1].map(|n| running.partitions[&partition(n)].offsets().high_watermark);
        assert_eq!(all, [taken + 1, 200]);
        for n in 0..2 {
            let log = &running.partitions[&partition(n)];
            let read = read_all(log, 0, 1 << 20).await.unwrap();
            assert_eq!(read.len() as i64, all[usize::from(n)]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn e_j8_an_append_that_waits_is_taken_when_sorting_makes_room_in_time() {
    let (env, mut world) = (env(2), World::with_partitions(1));
    let store = Switched::new(&env, FILE_BYTES);
    let running = start(&env, &store, &mut world, OPTIONS).await;
    let log = &running.partitions[&partition(0)];
    store.set(Publishing::StandsStill);
    while running.metrics.counts().limited == 0 {
        produce(log, &big()).await;
    }
    let one_more = big();
    let (taken, ()) = tokio::join!(try_produce(log, &one_more), async {
        env.clock.sleep(Duration::from_secs(4)).await;
        store.set(Publishing::Works);
    });
    assert!(taken.is_ok(), "{taken:?}");
    let counts = running.metrics.counts();
    assert_eq!((counts.delays, counts.refusals), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn e_j8_what_is_inherited_counts_and_is_sorted_before_it_keeps_anyone_out() {
    let (env, mut world) = (env(3), World::with_partitions(2));
    let store = Switched::new(&env, FILE_BYTES);
    let unlimited = LogOptions { sort_bytes: u64::MAX, raw_limit_bytes: u64::MAX, ..OPTIONS };
    let running = start(&env, &store, &mut world, unlimited).await;
    while running.metrics.counts().raw_bytes < 2 * RAW_LIMIT {
        produce(&running.partitions[&partition(0)], &big()).await;
    }
    let sent = running.partitions[&partition(0)].offsets().high_watermark;
    let store = store.kill(&env);
    let running = start(&env, &store, &mut world, OPTIONS).await;
    assert!(running.failed.is_empty());
    until_served(&env, &running.partitions[&partition(1)], &big()).await;
    assert!(running.metrics.counts().raw_bytes < RAW_LIMIT);
    let read = read_all(&running.partitions[&partition(0)], 0, 1 << 20).await.unwrap();
    assert_eq!(read.len() as i64, sent);
}

#[tokio::test(start_paused = true)]
async fn e_j8_a_partition_that_can_not_be_sorted_keeps_no_other_out() {
    let (env, mut world) = (env(4), World::with_partitions(2));
    let store = Switched::new(&env, FILE_BYTES);
    let options = LogOptions { tail_cache_bytes: 0, ..OPTIONS };
    let running = start(&env, &store, &mut world, options).await;
    let [hurt, good] = [0, 1].map(|n| &running.partitions[&partition(n)]);
    produce(hurt, &batch(&["needle needle needle"], 0)).await;
    let file = store.inner.files()[0].clone();
    let content = store.inner.copy(&file).unwrap();
    let at = content.content().windows(6).position(|bytes| bytes == b"needle").unwrap() as u64;
    store.inner.flip_bit(&file, at..at + 1, &env.rng).unwrap();
    // Both are produced to for as long as they take it.
    let mut refused = 0;
    for _ in 0..400 {
        match try_produce(hurt, &big()).await {
            Ok(_) => assert_eq!(refused, 0),
            Err(error) => {
                assert!(error.to_string().contains("can not be sorted"), "{error}");
                refused += 1;
            }
        }
        produce(good, &big()).await;
    }
    assert!(refused > 100, "{refused}");
    assert_eq!(good.offsets().high_watermark, 400);
    assert!(running.metrics.counts().raw_bytes < RAW_LIMIT);
}

#[tokio::test(start_paused = true)]
async fn r15_positions_of_one_byte_records_start_sorting_long_before_the_raw_limit() {
    let (env, mut world) = (env(5), World::with_partitions(3));
    // Everything lies in the open file, and nothing else is due.
    let store = Switched::new(&env, 16 << 20);
    let extent_bytes = 256 << 10;
    let raw_limit_bytes = u64::MAX;
    let options = LogOptions { sort_bytes: u64::MAX, raw_limit_bytes, extent_bytes, ..OPTIONS };
    let running = start(&env, &store, &mut world, options).await;
    let mut largest = 0;
    for n in 0..6_000_u32 {
        let log = &running.partitions[&partition((n % 3) as u8)];
        let appended = log.append(&batch(&["x"], 0), Some(log.admit(100).await.unwrap())).unwrap();
        if n % 10 == 0 {
            appended.durable.await.unwrap();
        }
        largest = largest.max(running.metrics.counts().extent_bytes);
    }
    let counts = running.metrics.counts();
    assert_eq!(counts.refusals, 0);
    // Memory grows in steps; six thousand positions would take a MiB.
    assert!(largest < 400 << 10, "{largest}");
    assert!(largest > 64 << 10, "{largest}");
    for n in 0..3 {
        let log = &running.partitions[&partition(n)];
        log.append(&batch(&["x"], 0), None).unwrap().durable.await.unwrap();
        assert_eq!(read_all(log, 0, 1 << 20).await.unwrap().len(), 2_001);
    }
}

#[tokio::test(start_paused = true)]
async fn r15_p7_with_a_sorter_that_stands_still_positions_of_small_batches_stay_bounded() {
    let (env, mut world) = (env(6), World::with_partitions(1));
    let store = Switched::new(&env, 16 << 20);
    let extent_bytes = 128 << 10;
    let options = LogOptions { extent_bytes, raw_limit_bytes: u64::MAX, ..OPTIONS };
    let running = start(&env, &store, &mut world, options).await;
    let log = &running.partitions[&partition(0)];
    store.set(Publishing::StandsStill);
    let (taken, error) = fill(log, &batch(&["x"], 0)).await;
    assert!(error.to_string().contains("memory.positions is 128KiB"), "{error}");
    // What was accepted before the limit was seen, and the step in which memory grows.
    let counts = running.metrics.counts();
    assert!(counts.extent_bytes < 2 * extent_bytes as u64, "{counts:?}");
    assert!(counts.raw_bytes < 1 << 20);
    assert_eq!(read_all(log, 0, 1 << 20).await.unwrap().len() as i64, taken);
    store.set(Publishing::Works);
    until_served(&env, log, &batch(&["y"], 0)).await;
    assert_eq!(read_all(log, 0, 1 << 20).await.unwrap().len() as i64, taken + 1);
}

/// How many producers the limit stands for, in bytes.
const PRODUCERS: usize = 100;

#[tokio::test(start_paused = true)]
async fn p7_new_producers_are_refused_before_one_at_work_is_forgotten() {
    let (env, mut world) = (env(7), World::with_partitions(2));
    let store = Switched::new(&env, 16 << 20);
    let options = LogOptions { producer_bytes: PRODUCERS * 384, ..OPTIONS };
    let running = start(&env, &store, &mut world, options).await;
    let of = |id: i64| &running.partitions[&partition((id % 2) as u8)];
    let mut offsets = Vec::new();
    let error = loop {
        let id = offsets.len() as i64;
        match try_produce(of(id), &stamped(&["a"], id, 0, 0)).await {
            Ok(offset) => offsets.push(offset),
            Err(error) => break error,
        }
        assert!(offsets.len() < 1_000);
    };
    assert_eq!(offsets.len(), PRODUCERS);
    assert!(error.to_string().contains("memory.producers is 38400B"), "{error}");
    assert_eq!(running.metrics.counts().producer_bytes, 38_400);
    // Who is known goes on, and nobody's retry is written twice.
    for (id, offset) in offsets.iter().enumerate() {
        let again = try_produce(of(id as i64), &stamped(&["a"], id as i64, 0, 0)).await;
        assert_eq!(again.as_ref(), Ok(offset));
    }
    // Two of them are at work all the time; the rest rests.
    for minute in 1..30 {
        for id in 0..2 {
            try_produce(of(id), &stamped(&["b"], id, 0, minute)).await.unwrap();
        }
        env.clock.sleep(Duration::from_secs(60)).await;
        let known: usize = running.partitions.values().map(|log| log.producers().len()).sum();
        assert!(minute >= 14 || known == PRODUCERS, "{known} in minute {minute}");
    }
    for id in 1_000..1_080 {
        try_produce(of(id), &stamped(&["c"], id, 0, 0)).await.unwrap();
    }
    for id in 0..2 {
        let end = of(id).offsets().log_end;
        try_produce(of(id), &stamped(&["b"], id, 0, 29)).await.unwrap();
        assert_eq!(of(id).offsets().log_end, end, "a retry was written twice");
    }
}

#[tokio::test(start_paused = true)]
async fn p7_slow_readers_of_old_buffers_keep_no_more_of_them_than_their_budget() {
    let (env, mut world) = (env(8), World::with_partitions(1));
    let store = Switched::new(&env, 16 << 20);
    let options = LogOptions {
        pinned_bytes: 2 << 20,
        tail_cache_bytes: 64 << 20,
        lane_bytes: 1 << 20,
        raw_limit_bytes: u64::MAX,
        sort_bytes: u64::MAX,
        ..OPTIONS
    };
    let running = start(&env, &store, &mut world, options).await;
    let log = &running.partitions[&partition(0)];
    let value = |n: i64| format!("{n:08}").repeat(2 << 10);
    for n in 0..1_000 {
        produce(log, &batch(&[&value(n)], 0)).await;
    }
    // A different buffer for each reader, and none of them takes its answer.
    let mut unsent = Vec::new();
    for offset in (0..1_000).step_by(50) {
        unsent.push((offset, log.read(offset, 1, true).await.unwrap()));
        let pinned = running.metrics.counts().pinned_bytes;
        assert!(pinned > 0 && pinned <= 2 << 20, "{pinned}");
    }
    assert_eq!(unsent.len(), 20);
    for (offset, read) in &unsent {
        let bytes = read.to_bytes();
        assert!(bytes.ends_with(&value(*offset).into_bytes()[..8]) || bytes.len() > 16 << 10);
        let found = bytes.windows(8).any(|part| part == format!("{offset:08}").as_bytes());
        assert!(found, "offset {offset}");
    }
    drop(unsent);
    assert_eq!(running.metrics.counts().pinned_bytes, 0);
}

#[tokio::test(start_paused = true)]
async fn r15_small_batches_are_copied_into_one_buffer_and_pin_nothing() {
    for tail_cache_bytes in [1 << 20, 0] {
        let (env, mut world) = (env(9), World::with_partitions(2));
        let store = Switched::new(&env, 16 << 20);
        let options = LogOptions { tail_cache_bytes, ..OPTIONS };
        let running = start(&env, &store, &mut world, options).await;
        let [log, other] = [0, 1].map(|n| &running.partitions[&partition(n)]);
        for _ in 0..300 {
            produce(log, &batch(&["x"], 0)).await;
            produce(other, &batch(&["x".repeat(100).as_str()], 0)).await;
        }
        let read = log.read(0, 1 << 20, true).await.unwrap();
        assert_eq!((read.records.len(), running.metrics.counts().pinned_bytes), (1, 0));
        assert_eq!(read.records[0].len(), read.bytes);
        assert_eq!(read_all(log, 0, 1 << 20).await.unwrap().len(), 300);
    }
}
