//! The log on a real disk: what the memory store only imitates. Few and quick; the rest is tested on
//! virtual time.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use support::{Running, World, batch, partition, produce, read_all, stamped};
use talos_common::Env;
use talos_log::{AppendError, LaneEnd, LogOptions};
use talos_storage::local::faults::{DiskFault, DiskFaults};
use talos_storage::{LocalOptions, LocalStorage, Storage};

fn open(dir: &Path, env: &Env, faults: &DiskFaults) -> Arc<dyn Storage> {
    let options = LocalOptions {
        file_bytes: 256 << 10,
        spare_files: 1,
        reserve_bytes: 0,
        faults: Some(faults.clone()),
        ..LocalOptions::new(dir)
    };
    Arc::new(LocalStorage::open(options, env).unwrap())
}

async fn start(env: &Env, storage: Arc<dyn Storage>, world: &mut World, cache: usize) -> Running {
    let options =
        LogOptions { lane_bytes: 128 << 10, tail_cache_bytes: cache, ..LogOptions::default() };
    world.start(env, storage, options).await
}

/// The process is gone: its tasks ended and the data directory is free again.
async fn kill(env: Env, running: Running) {
    env.tasks.abort();
    drop((running, env));
    // The aborted tasks drop what they hold when the runtime comes to them.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn appends_rolls_restarts_and_reads_from_memory_and_from_files() {
    let dir = tempfile::tempdir().unwrap();
    let (mut world, mut sent) = (World::with_partitions(2), [Vec::new(), Vec::new()]);
    for run in 0..3 {
        let env = Env::system();
        let storage = open(dir.path(), &env, &DiskFaults::new());
        let running = start(&env, storage, &mut world, 32 << 10).await;
        assert!(running.failed.is_empty(), "{:?}", running.failed);
        for n in 0..30 {
            let which = n % 2;
            let value = format!("{run}/{n}/{}", "x".repeat(20 << 10));
            let log = &running.partitions[&partition(which)];
            let offset = produce(log, &batch(&[&value, "b"], 0)).await;
            assert_eq!(offset, sent[usize::from(which)].len() as i64);
            sent[usize::from(which)].extend([value, "b".to_owned()]);
        }
        for which in 0..2 {
            let read = read_all(&running.partitions[&partition(which)], 0, 50_000).await.unwrap();
            assert!(read.iter().map(|(_, value)| value).eq(&sent[usize::from(which)]));
        }
        let journals = std::fs::read_dir(dir.path().join(format!("brokers/{}", running.log.dir())));
        assert!(journals.unwrap().count() > 2, "it never rolled");
        // Once stopped cleanly, else killed.
        if run == 1 {
            assert!(matches!(world.stop(running).await, LaneEnd::Stopped(_)));
            env.tasks.abort();
        } else {
            kill(env, running).await;
        }
    }
}

#[tokio::test]
async fn e_h6_a_failing_sync_is_fatal_and_the_next_start_has_all_that_was_acknowledged() {
    let dir = tempfile::tempdir().unwrap();
    let (env, faults) = (Env::system(), DiskFaults::new());
    let mut world = World::with_partitions(1);
    let running = start(&env, open(dir.path(), &env, &faults), &mut world, 32 << 10).await;
    let log = &running.partitions[&partition(0)];
    for n in 0..5 {
        produce(log, &stamped(&["acknowledged"], 3, 0, n)).await;
    }
    faults.set_sync_error(true);
    let unknown = log.append(&stamped(&["unknown"], 3, 0, 5), None).unwrap();
    assert!(unknown.durable.await.is_err());
    assert!(matches!(running.log.ended().await, LaneEnd::Fatal(_)));
    assert!(matches!(log.append(&batch(&["x"], 0), None), Err(AppendError::Ended(_))));
    assert!(faults.count(DiskFault::SyncError) > 0);
    kill(env, running).await;

    let env = Env::system();
    let storage = open(dir.path(), &env, &DiskFaults::new());
    let running = start(&env, storage, &mut world, 32 << 10).await;
    let log = &running.partitions[&partition(0)];
    // The retry gets offset 5 whether or not the first attempt reached the disk.
    assert_eq!(produce(log, &stamped(&["unknown"], 3, 0, 5)).await, 5);
    let read = read_all(log, 0, 1 << 20).await.unwrap();
    assert_eq!(read.len(), 6);
    assert!(read[..5].iter().all(|(_, value)| value == "acknowledged"));
    kill(env, running).await;
}

#[tokio::test]
async fn a_full_disk_refuses_definitely_and_serves_again_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (env, faults) = (Env::system(), DiskFaults::new());
    let mut world = World::with_partitions(1);
    let running = start(&env, open(dir.path(), &env, &faults), &mut world, 32 << 10).await;
    let log = &running.partitions[&partition(0)];
    faults.set_full(true);
    let value = "x".repeat(20 << 10);
    let mut accepted = Vec::new();
    let refused = loop {
        let mut appended = match log.append(&batch(&[&value], 0), None) {
            Ok(appended) => appended,
            Err(error) => break error,
        };
        // Durable, or the file is full and the lane finds no next one.
        while env.clock.timeout(Duration::from_millis(5), &mut appended.durable).await.is_none() {
            if running.metrics.counts().stalls > 0 {
                accepted.push(appended);
                break;
            }
        }
        assert!(accepted.len() < 100);
    };
    assert!(matches!(refused, AppendError::Stalled(_)), "{refused}");
    let visible = log.offsets().high_watermark;
    assert_eq!(read_all(log, 0, 1 << 20).await.unwrap().len() as i64, visible);
    assert!(visible > 5 && faults.count(DiskFault::Full) > 0);
    faults.set_full(false);
    for appended in accepted {
        appended.durable.await.unwrap();
    }
    let end = log.offsets().log_end;
    assert_eq!(produce(log, &batch(&["after"], 0)).await, end);
    kill(env, running).await;
}

#[tokio::test]
async fn a_full_disk_is_freed_by_deleting_although_no_new_file_can_be_made() {
    let dir = tempfile::tempdir().unwrap();
    let (env, faults) = (Env::system(), DiskFaults::new());
    let mut world = World::with_partitions(2);
    let (lane_bytes, tail_cache_bytes) = (128 << 10, 32 << 10);
    let sort_bytes = 512 << 10;
    let options = LogOptions { lane_bytes, tail_cache_bytes, sort_bytes, ..LogOptions::default() };
    let running = world.start(&env, open(dir.path(), &env, &faults), options).await;
    let bulk = &running.partitions[&partition(1)];
    let value = "x".repeat(20 << 10);
    // Some closed files, but not enough for a pass.
    for _ in 0..20 {
        produce(bulk, &batch(&[&value], 0)).await;
    }
    faults.set_full(true);
    while running.metrics.counts().stalls == 0 {
        let appended = bulk.append(&batch(&[&value], 0), None);
        let Ok(mut appended) = appended else { continue };
        let _ = env.clock.timeout(Duration::from_millis(5), &mut appended.durable).await;
    }
    // What the deleted partition held goes, which a record in a journal has to say first.
    bulk.end("its topic was deleted");
    running.log.forget(partition(1));
    let log = &running.partitions[&partition(0)];
    let mut outcome = log.append(&batch(&["after"], 0), None);
    for _ in 0..2_000 {
        let Err(AppendError::Stalled(_)) = outcome else { break };
        env.clock.sleep(Duration::from_millis(5)).await;
        outcome = log.append(&batch(&["after"], 0), None);
    }
    outcome.unwrap().durable.await.unwrap();
    assert!(faults.count(DiskFault::Full) > 0);
    world.records.remove(&partition(1));
    kill(env, running).await;
    let env = Env::system();
    let running = world.start(&env, open(dir.path(), &env, &DiskFaults::new()), options).await;
    assert!(running.failed.is_empty(), "{:?}", running.failed);
    assert_eq!(read_all(&running.partitions[&partition(0)], 0, 1 << 20).await.unwrap().len(), 1);
    kill(env, running).await;
}

#[tokio::test]
async fn reads_of_memory_and_files_go_on_while_a_sync_stands_still() {
    let dir = tempfile::tempdir().unwrap();
    let (env, faults) = (Env::system(), DiskFaults::new());
    let mut world = World::with_partitions(1);
    // A small cache: the first records are in the file only.
    let running = start(&env, open(dir.path(), &env, &faults), &mut world, 8 << 10).await;
    let log = &running.partitions[&partition(0)];
    let value = "x".repeat(3 << 10);
    for _ in 0..10 {
        produce(log, &batch(&[&value], 0)).await;
    }
    faults.set_sync_stall(true);
    let stalled = log.append(&batch(&["stalled"], 0), None).unwrap();
    while faults.count(DiskFault::SyncStall) == 0 {
        tokio::task::yield_now().await;
    }
    assert_eq!(read_all(log, 0, 5_000).await.unwrap().len(), 10);
    assert_eq!(log.offsets().high_watermark, 10);
    faults.set_sync_stall(false);
    stalled.durable.await.unwrap();
    assert_eq!(read_all(log, 0, 5_000).await.unwrap().len(), 11);
    kill(env, running).await;
}
