//! Attacks on sorted journals, segments and roots: orders of durable steps, restarts and deletions in
//! which records or producer state would be lost, or one bad partition would hold up all others.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use support::journal::{Journal, batch_of, dir, led_by, record};
use support::{RULES, Running, World, batch, partition, produce, read_all, stamped};
use talos_common::{Env, LeaderEpoch};
use talos_log::validate::{BatchRules, validate};
use talos_log::{LogOptions, OpenError, OpenRequest, ReadError};
use talos_protocol::records::{BatchBuilder, NewRecord};
use talos_storage::FilePath;
use talos_storage::memory::{Crash, MemoryOptions, MemoryStorage};

const OPTIONS: LogOptions = LogOptions {
    sort_bytes: u64::MAX,
    segment_bytes: 1 << 20,
    lane_bytes: 64 << 10,
    tail_cache_bytes: 0,
    ..LogOptions::DEFAULT
};
/// Every partition that has anything gets a segment.
const SEGMENTS: LogOptions = LogOptions { segment_bytes: 1, ..OPTIONS };

/// The partition that only makes the journal go on to its next file.
const FILLER: u8 = 9;

fn setup(seed: u64) -> (Env, MemoryStorage, World) {
    let env = Env::simulated(seed, 1_700_000_000_000);
    let options = MemoryOptions { file_bytes: 24 << 10, ..MemoryOptions::default() };
    let storage = MemoryStorage::new(&env, options);
    let mut world = World::with_partitions(2);
    world.records.insert(partition(FILLER), support::Record::default());
    (env, storage, world)
}

async fn start(env: &Env, storage: &MemoryStorage, world: &mut World) -> Running {
    start_with(env, storage, world, OPTIONS).await
}

async fn start_with(
    env: &Env,
    storage: &MemoryStorage,
    world: &mut World,
    options: LogOptions,
) -> Running {
    world.start(env, Arc::new(storage.clone()), options).await
}

/// The process is killed; the handle of the next one.
fn kill(env: &Env, storage: &MemoryStorage) -> MemoryStorage {
    env.tasks.abort();
    storage.crash_and_reopen(Crash::Kill)
}

/// Has the journal go on in its next file.
async fn roll(running: &Running) {
    let value = "f".repeat(9 << 10);
    for _ in 0..3 {
        produce(&running.partitions[&partition(FILLER)], &batch(&[&value], 0)).await;
    }
}

async fn values(running: &Running, which: u8) -> Vec<String> {
    let log = running.partitions.get(&partition(which));
    let log = log.unwrap_or_else(|| panic!("{:?}", running.failed));
    let records = read_all(log, log.offsets().log_start, 1 << 20).await.unwrap();
    records.into_iter().map(|(_, value)| value).collect()
}

fn journals(storage: &MemoryStorage, epoch: u64) -> Vec<FilePath> {
    let of =
        |path: &FilePath| matches!(path, FilePath::Journal { dir: of, .. } if *of == dir(epoch));
    storage.files().into_iter().filter(of).collect()
}

fn sorted_journals(storage: &MemoryStorage) -> Vec<FilePath> {
    let of = |path: &FilePath| matches!(path, FilePath::Sorted { .. });
    storage.files().into_iter().filter(of).collect()
}

fn segments(storage: &MemoryStorage) -> Vec<FilePath> {
    let of = |path: &FilePath| matches!(path, FilePath::Segment { .. });
    storage.files().into_iter().filter(of).collect()
}

#[tokio::test(start_paused = true)]
async fn e_w1_a_pair_whose_run_took_the_place_of_raw_batches_is_needed() {
    let (env, mut storage, mut world) = setup(1);
    let running = start(&env, &storage, &mut world).await;
    produce(&running.partitions[&partition(0)], &batch(&["a"], 0)).await;
    storage = kill(&env, &storage);

    // One run holds the inherited batch and an own one; the process dies before the ownership record
    // hears that the first directory is not needed any more.
    let running = start(&env, &storage, &mut world).await;
    produce(&running.partitions[&partition(0)], &batch(&["b"], 0)).await;
    roll(&running).await;
    running.log.sort().await.unwrap();
    assert_eq!(sorted_journals(&storage).len(), 1);
    storage = kill(&env, &storage);

    let running = start(&env, &storage, &mut world).await;
    let inherits = &world.records[&partition(0)].inherits;
    assert!(inherits.iter().any(|(of, _)| *of == dir(2)), "{inherits:?}");
    world.tidy(&env, &running, &storage).await;
    assert_eq!(values(&running, 0).await, ["a", "b"]);
    storage = kill(&env, &storage);
    let running = start(&env, &storage, &mut world).await;
    assert_eq!(values(&running, 0).await, ["a", "b"]);
}

#[tokio::test(start_paused = true)]
async fn e_w14_a_run_states_where_its_leader_epoch_began() {
    let (env, storage, mut world) = setup(2);
    let mut old = Journal::first(1);
    old.durable((0..5).map(|n| record(0, 5, 0, n, "old")));
    // Of the last flushes offset 5 is lost and one batch [6, 9) is on disk.
    let ghosts = BatchBuilder::new();
    let ghost = NewRecord::value(0, Bytes::from_static(b"ghost"));
    let ghosts = ghosts.record(&ghost).record(&ghost).record(&ghost).build().unwrap();
    old.flush(old.end(), [batch_of(0, 5, 0, 6, ghosts)]);
    old.store(&storage).await;
    led_by(&mut world, 0, &[(1, 5)]);
    let running = start(&env, &storage, &mut world).await;
    let log = &running.partitions[&partition(0)];
    for n in 5..8 {
        assert_eq!(produce(log, &batch(&["new"], 0)).await, n);
    }
    log.advance_log_start(7).await.unwrap();
    roll(&running).await;
    running.log.sort().await.unwrap();
    assert!(!journals(&storage, 2).iter().any(|path| path.to_string().ends_with("/0")));
    let storage = kill(&env, &storage);
    let running = start(&env, &storage, &mut world).await;
    assert_eq!(values(&running, 0).await, ["new"]);
}

#[tokio::test(start_paused = true)]
async fn e_w14_a_ghost_that_reaches_into_a_newer_epoch_does_not_count() {
    // Epoch 6 wrote 5 and 6, which were deleted; its directory is not inherited any more.
    let (env, storage, mut world) = setup(3);
    let mut old = Journal::first(1);
    old.durable((0..5).map(|n| record(0, 5, 0, n, "old")));
    let ghost = NewRecord::value(0, Bytes::from_static(b"ghost"));
    let ghosts = BatchBuilder::new().record(&ghost).record(&ghost).record(&ghost).build().unwrap();
    old.flush(old.end(), [batch_of(0, 5, 0, 6, ghosts)]);
    old.store(&storage).await;
    led_by(&mut world, 0, &[(1, 5)]);
    support::journal::rooted(&world, 0, 7, 7, Some(6));
    let running = start(&env, &storage, &mut world).await;
    assert_eq!(values(&running, 0).await, Vec::<String>::new());
    assert_eq!(running.partitions[&partition(0)].offsets().log_end, 7);
}

#[tokio::test(start_paused = true)]
async fn e_j13_a_damaged_catalog_is_refused_never_a_shorter_log() {
    let (env, mut storage, mut world) = setup(4);
    let running = start(&env, &storage, &mut world).await;
    for which in 0..2 {
        produce(&running.partitions[&partition(which)], &stamped(&["a"], 7, 0, 0)).await;
    }
    storage = kill(&env, &storage);
    // Everything inherited is put into the own directory, and the former one goes.
    let running = start(&env, &storage, &mut world).await;
    running.log.sort().await.unwrap();
    world.tidy(&env, &running, &storage).await;
    assert!(journals(&storage, 1).is_empty());
    env.clock.sleep(Duration::from_secs(3)).await;
    storage = kill(&env, &storage);

    let path = journals(&storage, 2).remove(0);
    let whole = storage.copy(&path).unwrap();
    let mut refused = 0;
    for position in 0..1_000 {
        assert!(storage.flip_bit(&path, position..position + 1, &env.rng).is_some());
        let epoch = world.epoch;
        let mut again = World { epoch, ..World::with_partitions(2) };
        for (id, record) in &world.records {
            let record = support::Record {
                leader: record.leader,
                inherits: record.inherits.clone(),
                root: Arc::clone(&record.root),
            };
            again.records.insert(*id, record);
        }
        let running = start(&env, &storage, &mut again).await;
        world.epoch = again.epoch;
        for which in 0..2 {
            match running.failed.get(&partition(which)) {
                Some(error) => {
                    assert!(matches!(error, OpenError::Corrupt { .. }), "{position}: {error}");
                    refused += 1;
                }
                None => {
                    assert_eq!(values(&running, which).await, ["a"], "bit at {position}");
                    let producers = running.partitions[&partition(which)].producers();
                    assert_eq!(producers.len(), 1, "bit at {position}");
                }
            }
        }
        storage = kill(&env, &storage);
        storage.restore(&whole);
    }
    assert!(refused > 0);
    // Untouched, it is whole.
    let running = start(&env, &storage, &mut world).await;
    assert_eq!(values(&running, 0).await, ["a"]);
}

#[tokio::test(start_paused = true)]
async fn e_j7_a_ghost_behind_a_damaged_batch_proves_nothing() {
    let (env, storage, mut world) = setup(5);
    let mut journal = Journal::first(1);
    let ends = journal.durable([record(0, 5, 0, 0, "acknowledged")]);
    journal.flush(journal.end(), [record(0, 5, 0, 1, "never acknowledged")]);
    journal.damage(ends[0].position - 4);
    journal.store(&storage).await;
    led_by(&mut world, 0, &[(1, 5)]);
    let running = start(&env, &storage, &mut world).await;
    let error = running.failed.get(&partition(0)).expect("a shorter log without an error");
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn e_j14_a_root_older_than_a_deletion_is_refused() {
    let (env, storage, mut world) = setup(6);
    let running = start(&env, &storage, &mut world).await;
    let log = &running.partitions[&partition(0)];
    for _ in 0..4 {
        produce(log, &batch(&["a"], 0)).await;
    }
    roll(&running).await;
    running.log.sort().await.unwrap();
    let older = world.records[&partition(0)].root.0.lock().unwrap().clone();
    log.advance_log_start(4).await.unwrap();
    // What was deleted leaves the sorted journals, and these the catalog.
    roll(&running).await;
    running.log.sort().await.unwrap();
    roll(&running).await;
    running.log.sort().await.unwrap();
    let storage = kill(&env, &storage);
    *world.records[&partition(0)].root.0.lock().unwrap() = older;
    let running = start(&env, &storage, &mut world).await;
    let error = running.failed.get(&partition(0)).expect("a shorter log without an error");
    assert!(error.to_string().contains("older"), "{error}");
    assert!(running.partitions.contains_key(&partition(FILLER)));
}

#[tokio::test(start_paused = true)]
async fn e_j14_a_published_root_is_stated_also_when_the_rest_of_the_pass_fails() {
    let (env, storage, mut world) = setup(7);
    let running =
        start_with(&env, &storage, &mut world, LogOptions { segment_bytes: 4 << 10, ..OPTIONS })
            .await;
    let log = &running.partitions[&partition(0)];
    produce(log, &batch(&["a".repeat(5_000).as_str()], 0)).await;
    produce(&running.partitions[&partition(1)], &batch(&["b"], 0)).await;
    roll(&running).await;
    let older = world.records[&partition(0)].root.0.lock().unwrap().clone();
    // Partition 0 gets a segment and its root; with the next one the pass fails.
    world.records[&partition(FILLER)].root.fail_next();
    let first = running.log.sort().await;
    assert!(first.is_err());
    assert!(!segments(&storage).is_empty());
    running.log.sort().await.unwrap();
    // The raw files are gone, but for the present one and one that may be made ahead.
    assert!(journals(&storage, 1).len() <= 2, "{:?}", storage.files());
    let storage = kill(&env, &storage);
    *world.records[&partition(0)].root.0.lock().unwrap() = older;
    let running = start(&env, &storage, &mut world).await;
    let error = running.failed.get(&partition(0)).expect("a shorter log without an error");
    assert!(error.to_string().contains("older"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn e_j14_the_statement_outlives_the_directory_that_held_it() {
    let (env, mut storage, mut world) = setup(8);
    let running = start_with(&env, &storage, &mut world, SEGMENTS).await;
    let log = &running.partitions[&partition(0)];
    produce(log, &batch(&["a"], 0)).await;
    roll(&running).await;
    running.log.sort().await.unwrap();
    let older = world.records[&partition(0)].root.0.lock().unwrap().clone();
    produce(log, &batch(&["b"], 0)).await;
    roll(&running).await;
    running.log.sort().await.unwrap();
    storage = kill(&env, &storage);
    let running = start_with(&env, &storage, &mut world, SEGMENTS).await;
    running.log.sort().await.unwrap();
    world.tidy(&env, &running, &storage).await;
    assert!(journals(&storage, 1).is_empty());
    storage = kill(&env, &storage);
    *world.records[&partition(0)].root.0.lock().unwrap() = older;
    let running = start(&env, &storage, &mut world).await;
    let error = running.failed.get(&partition(0)).expect("a shorter log without an error");
    assert!(error.to_string().contains("older"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn p5_a_damaged_source_holds_up_no_other_partition_and_nothing_piles_up() {
    let (env, storage, mut world) = setup(9);
    let running = start(&env, &storage, &mut world).await;
    produce(&running.partitions[&partition(0)], &batch(&["before"], 0)).await;
    produce(&running.partitions[&partition(1)], &batch(&["one"], 0)).await;
    roll(&running).await;
    produce(&running.partitions[&partition(0)], &batch(&["needle needle needle"], 0)).await;
    produce(&running.partitions[&partition(1)], &batch(&["two"], 0)).await;
    roll(&running).await;
    let damaged = journals(&storage, 1)
        .into_iter()
        .find_map(|path| {
            let copy = storage.copy(&path)?;
            let at = copy.content().windows(6).position(|bytes| bytes == b"needle")?;
            Some((path, at as u64))
        })
        .unwrap();
    storage.flip_bit(&damaged.0, damaged.1..damaged.1 + 1, &env.rng).unwrap();
    // Whoever asked hears of it; all others are sorted.
    let error = running.log.sort().await.unwrap_err();
    assert!(error.contains("corrupt"), "{error}");
    let sorted = sorted_journals(&storage).len();
    assert_eq!(sorted, 1);
    assert!(storage.copy(&damaged.0).is_some(), "the damaged file is kept: it is the evidence");
    for _ in 0..3 {
        assert!(running.log.sort().await.is_err());
        assert_eq!(sorted_journals(&storage).len(), sorted, "unnamed files pile up");
    }
    roll(&running).await;
    assert!(running.log.sort().await.is_err());
    assert_eq!(values(&running, 1).await, ["one", "two"]);
    let log = &running.partitions[&partition(0)];
    assert!(matches!(read_all(log, 1, 1 << 20).await, Err(ReadError::Corrupt { .. })));
    let storage = kill(&env, &storage);
    let running = start(&env, &storage, &mut world).await;
    assert!(matches!(running.failed[&partition(0)], OpenError::Corrupt { .. }));
    assert_eq!(values(&running, 1).await, ["one", "two"]);
    assert_eq!(values(&running, FILLER).await.len(), 9);
}

#[tokio::test(start_paused = true)]
async fn p5_a_root_that_can_not_be_swapped_holds_up_no_other_partition() {
    let (env, storage, mut world) = setup(10);
    let running = start_with(&env, &storage, &mut world, SEGMENTS).await;
    produce(&running.partitions[&partition(0)], &batch(&["a"], 0)).await;
    produce(&running.partitions[&partition(1)], &batch(&["b"], 0)).await;
    roll(&running).await;
    world.records[&partition(0)].root.fail_next();
    assert!(running.log.sort().await.is_err());
    // Partition 1 and the filler have theirs; what was written for partition 0 is gone again.
    assert_eq!(segments(&storage).len(), 2, "{:?}", segments(&storage));
    assert_eq!(values(&running, 0).await, ["a"]);
    running.log.sort().await.unwrap();
    assert_eq!(segments(&storage).len(), 3);
    let storage = kill(&env, &storage);
    let running = start(&env, &storage, &mut world).await;
    assert_eq!(
        (values(&running, 0).await, values(&running, 1).await),
        (vec!["a".into()], vec!["b".into()])
    );
}

#[tokio::test(start_paused = true)]
async fn t2_e_j2_a_retry_is_known_after_deletion_sorting_and_restarts() {
    let (env, mut storage, mut world) = setup(11);
    let running = start(&env, &storage, &mut world).await;
    let log = &running.partitions[&partition(0)];
    assert_eq!(produce(log, &stamped(&["a"], 9, 0, 0)).await, 0);
    // Deleted before it was ever sorted.
    log.advance_log_start(1).await.unwrap();
    roll(&running).await;
    running.log.sort().await.unwrap();
    // The same once more, behind a state that was saved.
    assert_eq!(produce(log, &stamped(&["b"], 9, 0, 1)).await, 1);
    log.advance_log_start(2).await.unwrap();
    roll(&running).await;
    running.log.sort().await.unwrap();
    for round in 0..4 {
        storage = kill(&env, &storage);
        let running = start(&env, &storage, &mut world).await;
        let log = &running.partitions[&partition(0)];
        assert_eq!(produce(log, &stamped(&["a"], 9, 0, 0)).await, 0, "round {round}");
        assert_eq!(produce(log, &stamped(&["b"], 9, 0, 1)).await, 1, "round {round}");
        assert_eq!(log.offsets().log_end, 2);
        if round % 2 == 1 {
            running.log.sort().await.unwrap();
            world.tidy(&env, &running, &storage).await;
        }
    }
}

/// All records are there, and what is known of producers is not: a retry would be written twice.
#[tokio::test(start_paused = true)]
async fn p5_e_t1_a_lost_producer_state_is_refused_though_all_records_are_there() {
    for state_is_lost in [false, true] {
        let (env, storage, mut world) = setup(16);
        let running = start(&env, &storage, &mut world).await;
        let log = &running.partitions[&partition(0)];
        produce(log, &batch(&["deleted"], 0)).await;
        produce(&running.partitions[&partition(1)], &batch(&["other"], 0)).await;
        roll(&running).await;
        running.log.sort().await.unwrap();
        let records = sorted_journals(&storage);
        assert_eq!(records.len(), 1);
        // The root covers all of its records, so that only the state of the newest file is missed.
        assert_eq!(produce(log, &stamped(&["also deleted"], 7, 0, 0)).await, 1);
        log.advance_log_start(2).await.unwrap();
        roll(&running).await;
        running.log.sort().await.unwrap();
        let newest: Vec<_> =
            sorted_journals(&storage).into_iter().filter(|path| !records.contains(path)).collect();
        assert_eq!(newest.len(), 1);
        let storage = kill(&env, &storage);
        if state_is_lost {
            assert!(storage.remove(&newest[0]));
        }
        let running = start(&env, &storage, &mut world).await;
        assert_eq!(values(&running, 1).await, ["other"]);
        match running.partitions.get(&partition(0)) {
            Some(log) if !state_is_lost => {
                assert_eq!(produce(log, &stamped(&["also deleted"], 7, 0, 0)).await, 1);
            }
            Some(_) => panic!("opened without its producers"),
            None if state_is_lost => {
                let error = running.failed[&partition(0)].to_string();
                assert!(error.contains(&newest[0].to_string()), "{error}");
            }
            None => panic!("{:?}", running.failed),
        }
        env.tasks.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn e_h4_a_partition_that_is_opened_again_does_not_seal_its_own_directory() {
    let (env, mut storage, mut world) = setup(12);
    let running = start(&env, &storage, &mut world).await;
    produce(&running.partitions[&partition(0)], &batch(&["a"], 0)).await;
    storage = kill(&env, &storage);
    let running = start(&env, &storage, &mut world).await;
    // Opening failed (here: it was not even tried), and the partition was claimed once more.
    let record = &world.records[&partition(0)];
    let request = OpenRequest {
        id: partition(0),
        leader_epoch: LeaderEpoch(2),
        inherits: vec![(dir(1), LeaderEpoch(0)), (dir(2), LeaderEpoch(1))],
        root: None,
        root_handle: Arc::clone(&record.root) as _,
    };
    let (_, opened) = running.log.open(vec![request], &world.clean_ends).await.remove(0);
    let opened = opened.unwrap();
    assert_eq!(opened.unneeded, [(dir(2), LeaderEpoch(1))]);
    let read = read_all(&opened.log, 0, 1 << 20).await.unwrap();
    assert_eq!(read, [(0, "a".to_owned())]);
    assert_eq!(produce(&opened.log, &batch(&["b"], 0)).await, 1);
    produce(&running.partitions[&partition(1)], &batch(&["others go on"], 0)).await;
}

#[tokio::test(start_paused = true)]
async fn a_batch_larger_than_one_read_is_served_sorted_and_recovered() {
    let env = Env::simulated(13, 1_700_000_000_000);
    let options = MemoryOptions { file_bytes: 80 << 20, ..MemoryOptions::default() };
    let mut storage = MemoryStorage::new(&env, options);
    let mut world = World::with_partitions(1);
    world.records.insert(partition(FILLER), support::Record::default());
    let value = Bytes::from(vec![b'x'; 66 << 20]);
    let large = BatchBuilder::new().record(&NewRecord::value(0, value.clone())).build().unwrap();
    let limit = 128 << 20;
    let rules = BatchRules { max_message_bytes: limit, max_decompressed_bytes: limit, ..RULES };
    let large = validate(&large, &rules, 0).unwrap();
    let options = LogOptions { lane_bytes: 80 << 20, ..OPTIONS };
    let running = start_with(&env, &storage, &mut world, options).await;
    let log = &running.partitions[&partition(0)];
    produce(log, &large).await;
    produce(log, &large).await;
    let whole = async |running: &Running| {
        let log = &running.partitions[&partition(0)];
        for offset in 0..2 {
            let read = log.read(offset, 1 << 20, true).await.unwrap();
            assert!(read.bytes > value.len());
        }
    };
    whole(&running).await;
    storage = kill(&env, &storage);
    let running = start_with(&env, &storage, &mut world, options).await;
    assert!(running.failed.is_empty(), "{:?}", running.failed);
    whole(&running).await;
    running.log.sort().await.unwrap();
    whole(&running).await;
    world.tidy(&env, &running, &storage).await;
    storage = kill(&env, &storage);
    let running = start_with(&env, &storage, &mut world, options).await;
    whole(&running).await;
    env.tasks.abort();
    drop(storage);
}

#[tokio::test(start_paused = true)]
async fn kip_734_the_largest_timestamp_is_one_of_a_live_record() {
    for options in [OPTIONS, SEGMENTS] {
        let (env, storage, mut world) = setup(14);
        let running = start_with(&env, &storage, &mut world, options).await;
        let log = &running.partitions[&partition(0)];
        for time in [500, 900, 300, 400, 100] {
            produce(log, &batch(&["a"], time)).await;
        }
        for sorted in [false, true] {
            if sorted {
                roll(&running).await;
                running.log.sort().await.unwrap();
            }
            let newest = log.max_timestamp().await.unwrap().unwrap();
            let start = log.offsets().log_start;
            let expected = if start <= 1 { (900, 1) } else { (400, 3) };
            assert_eq!((newest.timestamp, newest.offset), expected);
            log.advance_log_start(if sorted { 3 } else { 1 }).await.unwrap();
        }
        let newest = log.max_timestamp().await.unwrap().unwrap();
        assert_eq!((newest.timestamp, newest.offset), (400, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn a_head_below_the_log_start_goes_when_the_next_one_takes_its_place() {
    let (env, storage, mut world) = setup(15);
    let running = start_with(&env, &storage, &mut world, SEGMENTS).await;
    let log = &running.partitions[&partition(0)];
    for round in 0..3 {
        let end = produce(log, &batch(&["a"], 0)).await + 1;
        roll(&running).await;
        running.log.sort().await.unwrap();
        log.advance_log_start(end).await.unwrap();
        env.clock.sleep(Duration::from_secs(200)).await;
        let of = |path: &FilePath| matches!(path, FilePath::Segment { partition: of, .. } if *of == partition(0));
        let kept = segments(&storage).into_iter().filter(of).count();
        assert_eq!(kept, 1, "round {round}: only the head stays");
    }
}

#[tokio::test(start_paused = true)]
async fn r18_the_end_of_an_epoch_is_the_same_after_deletion_and_restart() {
    let (env, mut storage, mut world) = setup(16);
    for _ in 0..3 {
        let running = start_with(&env, &storage, &mut world, SEGMENTS).await;
        let log = &running.partitions[&partition(0)];
        produce(log, &batch(&["a"], 0)).await;
        produce(log, &batch(&["a"], 0)).await;
        roll(&running).await;
        running.log.sort().await.unwrap();
        storage = kill(&env, &storage);
    }
    // Epochs 0 to 2 are in segments; of epoch 3 there is only what was deleted.
    let running = start_with(&env, &storage, &mut world, SEGMENTS).await;
    let log = &running.partitions[&partition(0)];
    produce(log, &batch(&["a"], 0)).await;
    for log_start in [3, 7] {
        log.advance_log_start(log_start).await.unwrap();
    }
    let ends = |log: &talos_log::PartitionLog| -> Vec<_> {
        (0..4).map(|epoch| log.end_of_epoch(LeaderEpoch(epoch))).collect()
    };
    let before = ends(log);
    storage = kill(&env, &storage);
    let running = start_with(&env, &storage, &mut world, SEGMENTS).await;
    assert_eq!(ends(&running.partitions[&partition(0)])[..3], before[..3]);
    let newest = running.partitions[&partition(0)].end_of_epoch(LeaderEpoch(3));
    assert_eq!(newest, Some((LeaderEpoch(3), 7)));
}

#[tokio::test(start_paused = true)]
async fn everyone_who_asks_for_a_pass_hears_of_one() {
    let (env, storage, mut world) = setup(17);
    let running = start(&env, &storage, &mut world).await;
    produce(&running.partitions[&partition(0)], &batch(&["a"], 0)).await;
    roll(&running).await;
    let (first, second) = tokio::join!(running.log.sort(), running.log.sort());
    assert_eq!((first, second), (Ok(()), Ok(())));
}
