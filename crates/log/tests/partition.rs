//! The log of one broker over a store in memory: append, read, restart, roll, and what clients hear
//! when the store fails.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::{World, batch, partition, produce, read_all, stamped};
use talos_common::{Env, LeaderEpoch};
use talos_log::waiters::FetchWaiter;
use talos_log::{AppendError, LaneEnd, LogOptions, ReadError};
use talos_storage::memory::{Crash, Fault, MemoryOptions, MemoryStorage};
use talos_storage::{FilePath, Storage};

fn small() -> LogOptions {
    LogOptions { lane_bytes: 64 << 10, tail_cache_bytes: 8 << 10, ..LogOptions::default() }
}

fn setup(seed: u64, options: MemoryOptions) -> (Env, MemoryStorage) {
    let env = Env::simulated(seed, 1_700_000_000_000);
    let storage = MemoryStorage::new(&env, options);
    (env, storage)
}

#[tokio::test(start_paused = true)]
async fn records_are_read_as_they_were_produced_from_memory_and_from_the_file() {
    let (env, storage) = setup(1, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = world.start(&env, Arc::new(storage), small()).await;
    let log = &running.partitions[&partition(0)];
    let values: Vec<String> = (0..400).map(|n| format!("value {n} {}", "x".repeat(n))).collect();
    for (n, pair) in values.chunks(2).enumerate() {
        let pair: Vec<&str> = pair.iter().map(String::as_str).collect();
        assert_eq!(produce(log, &batch(&pair, 0)).await, n as i64 * 2);
    }
    for max_bytes in [1, 5_000, 1 << 20] {
        let read = read_all(log, 0, max_bytes).await.unwrap();
        assert!(read.iter().map(|(_, value)| value).eq(values.iter()));
        assert!(read.iter().map(|(offset, _)| *offset).eq(0..400));
    }
    // C1: an offset inside a batch gets the whole batch.
    let inside = log.read(11, 1, true).await.unwrap();
    assert_eq!(inside.records.len(), 1);
    assert_eq!(read_all(log, 11, 1).await.unwrap()[0].0, 11);
    assert!(log.read(11, 1, false).await.unwrap().records.is_empty());
    assert!(matches!(log.read(401, 1, true).await, Err(ReadError::OutOfRange { .. })));
    assert!(log.read(400, 1, true).await.unwrap().records.is_empty());
}

#[tokio::test(start_paused = true)]
async fn nothing_is_visible_or_acknowledged_before_it_is_durable() {
    let (env, storage) = setup(2, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    storage.faults().set_stalled(true);
    let mut appended = log.append(&batch(&["a"], 0), None).unwrap();
    assert_eq!((appended.base_offset, log.offsets().log_end), (0, 1));
    let waited = env.clock.timeout(Duration::from_secs(60), &mut appended.durable).await;
    assert_eq!(waited, None);
    assert_eq!(log.offsets().high_watermark, 0);
    assert!(log.read(0, 1_000, true).await.unwrap().records.is_empty());
    storage.faults().set_stalled(false);
    appended.durable.await.unwrap();
    assert_eq!(log.offsets().high_watermark, 1);
    assert!(storage.faults().count(Fault::Stalled) > 0);
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_is_woken_once_and_told_which_partition_moved() {
    let (env, storage) = setup(3, MemoryOptions::default());
    let mut world = World::with_partitions(2);
    let running = world.start(&env, Arc::new(storage), small()).await;
    let waiter = FetchWaiter::new();
    for n in 0..2 {
        running.partitions[&partition(n)].register(&waiter, usize::from(n));
    }
    produce(&running.partitions[&partition(1)], &batch(&["a"], 0)).await;
    assert_eq!(waiter.changed().await, [1]);
    assert!(env.clock.timeout(Duration::from_secs(9), waiter.changed()).await.is_none());
    running.partitions[&partition(0)].end("moved");
    assert_eq!(waiter.changed().await, [0]);
}

#[tokio::test(start_paused = true)]
async fn j7_t2_a_retried_batch_gets_its_old_offset_also_after_a_restart() {
    let (env, storage) = setup(4, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let mut running = world.start(&env, Arc::new(storage.clone()), small()).await;
    for n in 0..6 {
        let log = &running.partitions[&partition(0)];
        assert_eq!(produce(log, &stamped(&["a", "b"], 9, 0, n * 2)).await, i64::from(n) * 2);
    }
    for restart in 0..3 {
        let log = &running.partitions[&partition(0)];
        for n in 1..6 {
            assert_eq!(produce(log, &stamped(&["a", "b"], 9, 0, n * 2)).await, i64::from(n) * 2);
        }
        let too_old = log.append(&stamped(&["a", "b"], 9, 0, 0), None);
        assert!(matches!(too_old, Err(AppendError::OutOfOrderSequence { expected: 12, .. })));
        let gap = log.append(&stamped(&["a"], 9, 0, 14), None);
        assert!(matches!(gap, Err(AppendError::OutOfOrderSequence { expected: 12, .. })));
        assert_eq!(log.offsets().log_end, 12, "restart {restart}");
        let next = storage.crash_and_reopen(Crash::Kill);
        running = world.start(&env, Arc::new(next.clone()), small()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn f1_e_h9_a_failed_file_is_replaced_and_the_same_frames_are_written_again() {
    for seed in 0..20 {
        let (env, storage) = setup(seed, MemoryOptions::default());
        let mut world = World::with_partitions(2);
        let running = world.start(&env, Arc::new(storage.clone()), small()).await;
        storage.faults().set_rate(Fault::AppendUncertain, 200_000);
        let mut sent = [Vec::new(), Vec::new()];
        for n in 0..60 {
            let value = format!("{n}");
            let which = n % 2;
            let log = &running.partitions[&partition(which)];
            produce(log, &batch(&[&value], 0)).await;
            sent[usize::from(which)].push(value);
        }
        storage.faults().heal();
        assert!(storage.faults().count(Fault::AppendUncertain) > 0);
        let next = storage.crash_and_reopen(Crash::PowerLoss);
        let running = world.start(&env, Arc::new(next), small()).await;
        assert!(running.failed.is_empty(), "{:?}", running.failed);
        for which in 0..2 {
            let log = &running.partitions[&partition(which)];
            let read = read_all(log, 0, 1 << 20).await.unwrap();
            assert!(read.iter().map(|(_, value)| value).eq(sent[usize::from(which)].iter()));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_store_refuses_definitely_and_serves_again_without_a_restart() {
    let options = MemoryOptions { file_bytes: 64 << 10, ..MemoryOptions::default() };
    let (env, storage) = setup(5, options);
    let mut world = World::with_partitions(1);
    let running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    storage.faults().set_full(true);
    let value = "x".repeat(8 << 10);
    let mut accepted = Vec::new();
    let refused = loop {
        match log.append(&batch(&[&value], 0), None) {
            Ok(appended) => accepted.push(appended),
            Err(error) => break error,
        }
        env.clock.sleep(Duration::from_millis(500)).await;
        assert!(accepted.len() < 100);
    };
    assert!(matches!(refused, AppendError::Stalled(_)), "{refused}");
    // Reads go on meanwhile.
    assert!(!read_all(log, 0, 1 << 20).await.unwrap().is_empty());
    storage.faults().set_full(false);
    let count = accepted.len();
    for appended in accepted {
        appended.durable.await.unwrap();
    }
    assert_eq!(produce(log, &batch(&["after"], 0)).await, count as i64);
    assert!(running.metrics.counts().stalls > 0);
}

#[tokio::test(start_paused = true)]
async fn a_roll_takes_the_file_that_was_made_ahead_and_waits_for_nothing() {
    let options = MemoryOptions { file_bytes: 64 << 10, ..MemoryOptions::default() };
    let (env, storage) = setup(7, options);
    let mut world = World::with_partitions(1);
    let running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    let journals =
        || storage.files().iter().filter(|it| matches!(it, FilePath::Journal { .. })).count();
    let value = "x".repeat(8 << 10);
    for _ in 0..5 {
        produce(log, &batch(&[&value], 0)).await;
    }
    env.clock.sleep(Duration::from_millis(1)).await;
    assert_eq!(journals(), 2, "the second file is there before the first is full");
    // From here on no file can be made: the roll must not need one.
    storage.faults().set_full(true);
    for _ in 0..5 {
        produce(log, &batch(&[&value], 0)).await;
    }
    assert_eq!(running.metrics.counts().stalls, 0);
    storage.faults().set_full(false);
    let next = storage.crash_and_reopen(Crash::PowerLoss);
    let running = world.start(&env, Arc::new(next), small()).await;
    assert_eq!(running.partitions[&partition(0)].offsets().high_watermark, 10);
}

#[tokio::test(start_paused = true)]
async fn a_file_made_ahead_and_never_used_counts_for_nothing() {
    for how in [Crash::Kill, Crash::PowerLoss] {
        let options = MemoryOptions { file_bytes: 64 << 10, ..MemoryOptions::default() };
        let (env, storage) = setup(8, options);
        let mut world = World::with_partitions(1);
        let running = world.start(&env, Arc::new(storage.clone()), small()).await;
        let value = "x".repeat(8 << 10);
        for _ in 0..5 {
            produce(&running.partitions[&partition(0)], &batch(&[&value], 0)).await;
        }
        env.clock.sleep(Duration::from_millis(1)).await;
        let next = storage.crash_and_reopen(how);
        let running = world.start(&env, Arc::new(next), small()).await;
        let log = &running.partitions[&partition(0)];
        assert_eq!(log.offsets().high_watermark, 5);
        assert_eq!(produce(log, &batch(&["after"], 0)).await, 5);
    }
}

#[tokio::test(start_paused = true)]
async fn e_h6_a_failed_sync_ends_the_lane_and_nothing_acknowledged_is_lost() {
    let (env, storage) = setup(6, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    produce(log, &batch(&["kept"], 0)).await;
    storage.faults().fail_next(Fault::SyncFails, 1);
    let appended = log.append(&batch(&["unknown"], 0), None).unwrap();
    assert!(appended.durable.await.is_err());
    assert!(matches!(running.log.ended().await, LaneEnd::Fatal(_)));
    assert!(matches!(log.append(&batch(&["x"], 0), None), Err(AppendError::Ended(_))));
    let next = storage.crash_and_reopen(Crash::PowerLoss);
    let running = world.start(&env, Arc::new(next), small()).await;
    let read = read_all(&running.partitions[&partition(0)], 0, 1 << 20).await.unwrap();
    assert_eq!(read[0], (0, "kept".to_owned()));
}

#[tokio::test(start_paused = true)]
async fn f2_a_sealed_directory_ends_the_lane_as_fenced_and_what_was_in_flight_is_unknown() {
    let (env, storage) = setup(7, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    storage.faults().set_stalled(true);
    let appended = log.append(&batch(&["in flight"], 0), None).unwrap();
    let other = storage.handle_for_new_process();
    other.seal(running.log.dir()).await.unwrap();
    storage.faults().set_stalled(false);
    // Durable before the seal or never: either way the lane ends and takes nothing more.
    let _ = appended.durable.await;
    let _ = log.append(&batch(&["late"], 0), None);
    assert!(matches!(running.log.ended().await, LaneEnd::Fenced(_)));
    assert!(matches!(log.append(&batch(&["x"], 0), None), Err(AppendError::Ended(_))));
    assert!(matches!(log.read(0, 1, true).await, Err(ReadError::Ended(_))));
}

#[tokio::test(start_paused = true)]
async fn delete_records_survives_a_restart_and_offsets_are_never_given_again() {
    let (env, storage) = setup(8, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let mut running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    for n in 0..10 {
        produce(log, &stamped(&["a", "b"], 5, 0, n * 2)).await;
    }
    assert_eq!(log.advance_log_start(7).await.unwrap(), 7);
    assert_eq!(log.advance_log_start(3).await.unwrap(), 7);
    assert!(log.advance_log_start(21).await.is_err());
    assert!(matches!(log.read(6, 1, true).await, Err(ReadError::OutOfRange { .. })));
    let mut storage = storage.crash_and_reopen(Crash::PowerLoss);
    running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    // E-J3: it does not go back.
    assert_eq!(log.offsets().log_start, 7);
    assert_eq!(read_all(log, 7, 1 << 20).await.unwrap().len(), 13);
    // E-J2, F10: an emptied log keeps its end and its producers.
    assert_eq!(log.advance_log_start(20).await.unwrap(), 20);
    for _ in 0..2 {
        storage = storage.crash_and_reopen(Crash::Kill);
        running = world.start(&env, Arc::new(storage.clone()), small()).await;
        let log = &running.partitions[&partition(0)];
        let offsets = log.offsets();
        assert_eq!((offsets.log_start, offsets.high_watermark), (20, 20));
        assert_eq!(produce(log, &stamped(&["a", "b"], 5, 0, 18)).await, 18);
    }
    let log = &running.partitions[&partition(0)];
    assert_eq!(produce(log, &stamped(&["next"], 5, 0, 20)).await, 20);
}

#[tokio::test(start_paused = true)]
async fn records_are_found_by_time_exactly_and_epochs_know_their_ends() {
    let (env, storage) = setup(9, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let mut running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = &running.partitions[&partition(0)];
    for time in [100, 200, 150, 300] {
        produce(log, &batch(&["a", "b"], time)).await;
    }
    let at = |time| {
        let log = Arc::clone(log);
        async move { log.offset_for_timestamp(time).await.unwrap().map(|at| at.offset) }
    };
    assert_eq!(at(0).await, Some(0));
    assert_eq!(at(101).await, Some(2));
    assert_eq!(at(201).await, Some(6));
    assert_eq!(at(301).await, None);
    assert_eq!(log.max_timestamp().await.unwrap().map(|at| at.offset), Some(6));
    let next = storage.crash_and_reopen(Crash::Kill);
    running = world.start(&env, Arc::new(next), small()).await;
    let log = &running.partitions[&partition(0)];
    assert_eq!(log.leader_epoch(), LeaderEpoch(1));
    produce(log, &batch(&["c"], 400)).await;
    assert_eq!(log.end_of_epoch(LeaderEpoch(0)), Some((LeaderEpoch(0), 8)));
    assert_eq!(log.end_of_epoch(LeaderEpoch(1)), Some((LeaderEpoch(1), 9)));
    assert_eq!(log.retention_offset(Some(180), None), 2);
    assert_eq!(log.retention_offset(Some(1_000), None), 9);
    assert_eq!(log.retention_offset(None, Some(0)), 9);
}

#[tokio::test(start_paused = true)]
async fn a_clean_stop_states_where_the_lane_ends() {
    let (env, storage) = setup(10, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = world.start(&env, Arc::new(storage.clone()), small()).await;
    let log = Arc::clone(&running.partitions[&partition(0)]);
    let mut waiting = Vec::new();
    for _ in 0..50 {
        waiting.push(log.append(&batch(&["a"], 0), None).unwrap().durable);
    }
    let end = world.stop(running).await;
    assert!(matches!(end, LaneEnd::Stopped(position) if position.position > 0), "{end:?}");
    for durable in waiting {
        durable.await.unwrap();
    }
    assert!(matches!(log.append(&batch(&["x"], 0), None), Err(AppendError::Ended(_))));
    let next = storage.crash_and_reopen(Crash::PowerLoss);
    let running = world.start(&env, Arc::new(next), small()).await;
    assert_eq!(running.partitions[&partition(0)].offsets().high_watermark, 50);
}
