//! Faults that other brokers had, as promises of this log. Each test is named after its row in
//! `docs/faults.md`, which also says where the other rows are tested.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, Weak};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use bytes::Bytes;
use support::{Running, World, batch, partition, produce, read_all};
use talos_common::{Env, LeaderEpoch, TopicPartitionId};
use talos_log::root::{Root, RootError, RootHandle};
use talos_log::tail_cache::{Piece, Slab, TailCache};
use talos_log::waiters::FetchWaiter;
use talos_log::{AppendError, LaneEnd, LogOptions, OpenRequest, PartitionLog, ReadError};
use talos_storage::Storage;
use talos_storage::memory::{MemoryOptions, MemoryStorage};

fn setup(seed: u64, options: MemoryOptions) -> (Env, MemoryStorage) {
    let env = Env::simulated(seed, 1_700_000_000_000);
    let storage = MemoryStorage::new(&env, options);
    (env, storage)
}

async fn start(env: &Env, storage: &MemoryStorage, world: &mut World, cache: usize) -> Running {
    let options =
        LogOptions { lane_bytes: 64 << 10, tail_cache_bytes: cache, ..LogOptions::default() };
    world.start(env, Arc::new(storage.clone()), options).await
}

/// A root that counts its swaps and answers as it is told.
#[derive(Debug, Default)]
struct ToldRoot {
    swaps: AtomicUsize,
    answer: Mutex<Option<RootError>>,
}

impl RootHandle for ToldRoot {
    fn swap(&self, _: Bytes) -> Pin<Box<dyn Future<Output = Result<(), RootError>> + Send + '_>> {
        self.swaps.fetch_add(1, Ordering::Relaxed);
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(std::future::ready(answer.map_or(Ok(()), Err)))
    }

    fn read(&self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, RootError>> + Send + '_>> {
        let answer = self.answer.lock().unwrap().clone();
        Box::pin(std::future::ready(answer.map_or(Ok(None), Err)))
    }
}

/// A root that applies every swap and may lose its answers; keeps all that was ever written.
#[derive(Debug, Default)]
struct DoubtfulRoot {
    written: Mutex<Vec<Bytes>>,
    loses_answers: AtomicBool,
}

impl RootHandle for DoubtfulRoot {
    fn swap(
        &self,
        value: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<(), RootError>> + Send + '_>> {
        self.written.lock().unwrap().push(value);
        let lost = self.loses_answers.load(Ordering::Relaxed);
        let answer = if lost { Err(RootError::Uncertain("planned".into())) } else { Ok(()) };
        Box::pin(std::future::ready(answer))
    }

    fn read(&self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, RootError>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(self.written.lock().unwrap().last().cloned())))
    }
}

/// Opens a new partition of `running` with `root`.
async fn open_with<Handle: RootHandle + 'static>(
    running: &Running,
    root: &Arc<Handle>,
) -> Arc<PartitionLog> {
    let request = OpenRequest {
        id: partition(200),
        leader_epoch: LeaderEpoch(0),
        inherits: Vec::new(),
        root: None,
        root_handle: Arc::clone(root) as Arc<dyn RootHandle>,
    };
    let mut opened = running.log.open(vec![request], &Default::default()).await;
    opened.remove(0).1.unwrap().log
}

#[tokio::test(start_paused = true)]
async fn e_j4_a_root_that_refuses_its_leader_moves_nothing() {
    let (env, storage) = setup(1, MemoryOptions::default());
    let running = start(&env, &storage, &mut World::default(), 8 << 10).await;
    let root = Arc::new(ToldRoot::default());
    let log = open_with(&running, &root).await;
    for _ in 0..5 {
        produce(&log, &batch(&["a"], 0)).await;
    }
    let answers =
        [RootError::Fenced, RootError::Unavailable("".into()), RootError::Uncertain("".into())];
    for answer in answers {
        *root.answer.lock().unwrap() = Some(answer.clone());
        assert_eq!(log.advance_log_start(3).await, Err(answer));
        assert_eq!(log.offsets().log_start, 0);
        assert_eq!(read_all(&log, 0, 1 << 20).await.unwrap().len(), 5);
    }
    *root.answer.lock().unwrap() = None;
    assert_eq!(log.advance_log_start(3).await, Ok(3));
}

#[tokio::test(start_paused = true)]
async fn e_j14_a_root_of_unknown_outcome_is_read_again_and_no_generation_is_given_twice() {
    let (env, storage) = setup(6, MemoryOptions::default());
    let running = start(&env, &storage, &mut World::default(), 8 << 10).await;
    let root = Arc::new(DoubtfulRoot::default());
    let log = open_with(&running, &root).await;
    for _ in 0..5 {
        produce(&log, &batch(&["a"], 0)).await;
    }
    root.loses_answers.store(true, Ordering::Relaxed);
    assert!(matches!(log.advance_log_start(2).await, Err(RootError::Uncertain(_))));
    assert_eq!(log.offsets().log_start, 0);
    root.loses_answers.store(false, Ordering::Relaxed);
    // It was applied: what lies below counts no more, and it is not undone.
    assert_eq!(log.advance_log_start(1).await, Ok(2));
    assert_eq!(log.offsets().log_start, 2);
    assert_eq!(log.advance_log_start(4).await, Ok(4));
    let written = root.written.lock().unwrap().clone();
    let roots: Vec<_> = written.iter().map(|bytes| Root::decode(bytes).unwrap()).collect();
    let seen: Vec<_> = roots.iter().map(|root| (root.generation, root.log_start)).collect();
    assert_eq!(seen, [(1, 2), (2, 4)]);
}

#[tokio::test(start_paused = true)]
async fn f19_moving_the_log_start_to_where_it_is_deletes_and_writes_nothing() {
    let (env, storage) = setup(2, MemoryOptions::default());
    let running = start(&env, &storage, &mut World::default(), 8 << 10).await;
    let root = Arc::new(ToldRoot::default());
    let log = open_with(&running, &root).await;
    for _ in 0..5 {
        produce(&log, &batch(&["a"], 0)).await;
    }
    // To the very end, and again, with records that came after it.
    assert_eq!(log.advance_log_start(5).await, Ok(5));
    produce(&log, &batch(&["kept"], 0)).await;
    assert_eq!(log.advance_log_start(5).await, Ok(5));
    assert_eq!(log.advance_log_start(0).await, Ok(5));
    assert_eq!(root.swaps.load(Ordering::Relaxed), 1);
    assert_eq!(read_all(&log, 5, 1 << 20).await.unwrap(), [(5, "kept".to_owned())]);
}

#[tokio::test(start_paused = true)]
async fn f4_a_seal_also_stops_the_file_that_comes_next() {
    let options = MemoryOptions { file_bytes: 64 << 10, ..MemoryOptions::default() };
    let (env, storage) = setup(3, options);
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world, 8 << 10).await;
    let log = &running.partitions[&partition(0)];
    // The present file is full and the next one can not be made yet.
    storage.faults().set_full(true);
    let value = "x".repeat(8 << 10);
    let mut waiting = Vec::new();
    while let Ok(appended) = log.append(&batch(&[&value], 0), None) {
        waiting.push(appended.durable);
        env.clock.sleep(Duration::from_millis(500)).await;
        assert!(waiting.len() < 100);
    }
    let sealed = storage.handle_for_new_process().seal(running.log.dir()).await.unwrap();
    storage.faults().set_full(false);
    assert!(matches!(running.log.ended().await, LaneEnd::Fenced(_)));
    let acknowledged = log.offsets().high_watermark;
    for (n, durable) in waiting.into_iter().enumerate() {
        assert_eq!(durable.await.is_ok(), (n as i64) < acknowledged);
    }
    let again = storage.handle_for_new_process().seal(running.log.dir()).await.unwrap();
    assert_eq!(again.len(), sealed.len(), "a file came into a sealed directory");
}

#[tokio::test(start_paused = true)]
async fn f3_an_unknown_outcome_is_never_reported_as_a_refusal() {
    let (env, storage) = setup(4, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world, 8 << 10).await;
    let log = &running.partitions[&partition(0)];
    storage.faults().set_stalled(true);
    let accepted = log.append(&batch(&["a"], 0), None).unwrap();
    log.end("moved");
    // Accepted before: not known. Offered afterwards: refused, and nothing was written.
    let unknown = accepted.durable.await.unwrap_err();
    assert!(unknown.to_string().contains("not known"), "{unknown}");
    assert!(matches!(log.append(&batch(&["b"], 0), None), Err(AppendError::Ended(_))));
    storage.faults().set_stalled(false);
}

#[tokio::test(start_paused = true)]
async fn f13_r1_every_watermark_is_that_of_its_own_flush_and_wakes_who_waits_for_it() {
    let (env, storage) = setup(5, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world, 8 << 10).await;
    let log = &running.partitions[&partition(0)];
    let waiter = FetchWaiter::new();
    log.register(&waiter, 7);
    let mut waiting = Vec::new();
    // Several flushes in flight, of different sizes.
    for n in 0..60_i64 {
        let value = "x".repeat((n as usize * 37) % 700);
        let appended = log.append(&batch(&[&value, "b"], 0), None).unwrap();
        assert_eq!(appended.base_offset, n * 2);
        waiting.push(appended);
        if n % 3 == 0 {
            env.clock.sleep(Duration::from_micros(700)).await;
        }
        let offsets = log.offsets();
        let visible = read_all(log, 0, 1 << 20).await.unwrap().len() as i64;
        assert!(visible >= offsets.high_watermark && visible <= log.offsets().high_watermark);
    }
    for appended in waiting {
        appended.durable.await.unwrap();
        assert!(log.offsets().high_watermark > appended.last_offset);
        let read = log.read(appended.last_offset, 1, true).await.unwrap();
        assert_eq!(read.records.len(), 1, "acknowledged, and not to be read");
    }
    assert_eq!(waiter.changed().await, [7]);
}

/// Calls back into the partition when it is woken, from another thread, as a task of a multi-threaded
/// runtime may.
struct Callback {
    log: Weak<PartitionLog>,
    called: AtomicUsize,
    blocked: AtomicUsize,
}

impl Wake for Callback {
    fn wake(self: Arc<Self>) {
        let Some(log) = self.log.upgrade() else { return };
        let (sender, done) = sync_channel(1);
        let thread = std::thread::spawn(move || {
            let offsets = log.offsets();
            let _ = sender.send(offsets.high_watermark);
        });
        // Only a lock that is held by who woke us can make this take long.
        match done.recv_timeout(Duration::from_secs(10)) {
            Ok(_) => {
                self.called.fetch_add(1, Ordering::Relaxed);
                thread.join().unwrap();
            }
            Err(_) => {
                self.blocked.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn r4_producers_and_fetches_are_woken_with_no_lock_held() {
    let (env, storage) = setup(6, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world, 8 << 10).await;
    let log = &running.partitions[&partition(0)];
    let callback = Arc::new(Callback {
        log: Arc::downgrade(log),
        called: AtomicUsize::new(0),
        blocked: AtomicUsize::new(0),
    });
    let waker = Waker::from(Arc::clone(&callback));
    let waiter = FetchWaiter::new();
    log.register(&waiter, 0);
    let mut appended = log.append(&batch(&["a"], 0), None).unwrap();
    let mut changed = std::pin::pin!(waiter.changed());
    assert!(Pin::new(&mut appended.durable).poll(&mut Context::from_waker(&waker)).is_pending());
    assert!(changed.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    env.clock.sleep(Duration::from_secs(1)).await;
    let mut ended = log.append(&batch(&["b"], 0), None).unwrap();
    assert!(Pin::new(&mut ended.durable).poll(&mut Context::from_waker(&waker)).is_pending());
    log.end("moved");
    assert_eq!(callback.blocked.load(Ordering::Relaxed), 0, "woken under the partition's lock");
    assert_eq!(callback.called.load(Ordering::Relaxed), 3);
}

#[tokio::test(start_paused = true)]
async fn r6_a_corrupt_batch_fails_reads_of_itself_and_of_nothing_else() {
    let (env, storage) = setup(7, MemoryOptions::default());
    let mut world = World::with_partitions(2);
    // Nothing stays in memory: every read goes to the file.
    let running = start(&env, &storage, &mut world, 0).await;
    let (bad, good) = (&running.partitions[&partition(0)], &running.partitions[&partition(1)]);
    for n in 0..3 {
        produce(bad, &batch(&[&format!("bad {n}")], 0)).await;
        produce(good, &batch(&[&format!("good {n}")], 0)).await;
    }
    let path = storage.files()[0].clone();
    let copy = storage.copy(&path).unwrap();
    let found = copy.content().windows(5).position(|bytes| bytes == b"bad 1").unwrap() as u64;
    storage.flip_bit(&path, found..found + 1, &env.rng).unwrap();
    assert_eq!(read_all(good, 0, 1 << 20).await.unwrap().len(), 3);
    assert_eq!(read_all(bad, 2, 1 << 20).await.unwrap().len(), 1);
    assert_eq!(bad.read(0, 1, true).await.unwrap().records.len(), 1);
    for offset in [0, 1] {
        let error = bad.read(offset, 1 << 20, true).await.unwrap_err();
        let ReadError::Corrupt { file, position, .. } = error else { panic!("{error}") };
        assert!(file == path && position < found && found < position + 200);
    }
    // It is remembered for whoever runs the broker.
    assert!(bad.damage().unwrap().contains(&path.to_string()));
    assert_eq!((good.damage(), running.metrics.counts().damaged_reads), (None, 2));
    // New records are taken and served.
    produce(bad, &batch(&["bad 3"], 0)).await;
    assert_eq!(read_all(bad, 2, 1 << 20).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn r9_r17_a_read_that_is_overtaken_by_the_log_start_is_out_of_range_not_corrupt() {
    let (env, storage) = setup(8, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world, 0).await;
    let log = &running.partitions[&partition(0)];
    for _ in 0..3 {
        produce(log, &batch(&["a"], 0)).await;
    }
    let path = storage.files()[0].clone();
    let (read, ()) = tokio::join!(log.read(0, 1 << 20, true), async {
        log.advance_log_start(3).await.unwrap();
        assert!(storage.remove(&path));
    });
    assert_eq!(read.unwrap_err(), ReadError::OutOfRange { offset: 0, log_start: 3, log_end: 3 });
    assert!(matches!(log.read(2, 1, true).await, Err(ReadError::OutOfRange { .. })));
    assert!(log.read(3, 1, true).await.unwrap().records.is_empty());
}

#[test]
fn r15_the_budget_counts_what_small_pieces_cost_besides_their_bytes() {
    let cache = TailCache::new(100_000);
    let mut links = Vec::new();
    for start in 0..10_000 {
        let piece = Piece::new(start, Bytes::from_static(b"x"), Slab::new(1));
        links.push(Arc::downgrade(&piece));
        cache.insert(piece);
    }
    let alive = links.iter().filter(|link| link.strong_count() > 0).count();
    // One byte of payload each, and at least as much again as a piece has fields.
    assert!(alive * size_of::<Piece>() < 100_000, "{alive} pieces live");
    assert!(alive > 100 && cache.bytes() <= 100_000);
}

#[tokio::test(start_paused = true)]
async fn p7_what_is_accepted_and_not_durable_is_bounded_and_waits_in_turn() {
    let (env, storage) = setup(9, MemoryOptions::default());
    let mut world = World::with_partitions(2);
    let running = start(&env, &storage, &mut world, 8 << 10).await;
    storage.faults().set_stalled(true);
    let value = "x".repeat(10 << 10);
    let of = |n: u8| -> (TopicPartitionId, Arc<PartitionLog>) {
        (partition(n), Arc::clone(&running.partitions[&partition(n)]))
    };
    let mut accepted = Vec::new();
    for n in 0..20 {
        let (_, log) = of(n % 2);
        let batch = batch(&[&value], 0);
        let lease = env.clock.timeout(Duration::from_secs(60), log.admit(batch.bytes.len())).await;
        let Some(Ok(lease)) = lease else { break };
        accepted.push(log.append(&batch, Some(lease)).unwrap());
    }
    assert!((2..=6).contains(&accepted.len()), "{} batches of 10 KiB in 64 KiB", accepted.len());
    storage.faults().set_stalled(false);
    for appended in accepted {
        appended.durable.await.unwrap();
    }
    let (_, log) = of(0);
    produce(&log, &batch(&[&value], 0)).await;
}
