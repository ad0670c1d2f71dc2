//! Event orders that lose or invent records in a log without the rule that each test is named after.
//! `docs/faults.md` lists all of them.
//!
//! Most begin with journals made by hand, as a former broker epoch may have left them.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::sync::Arc;
use std::time::Duration;

use support::journal::{Item, Journal, at, dir, led_by, record, rooted};
use support::{Running, World, batch, partition, produce, read_all, stamped};
use talos_common::{Env, LeaderEpoch};
use talos_log::format::{Frame, IndexEntry};
use talos_log::{LogOptions, OpenError, OpenRequest};
use talos_storage::Storage;
use talos_storage::memory::{Crash, Layout, MemoryOptions, MemoryStorage};

const OPTIONS: LogOptions = LogOptions {
    sort_bytes: u64::MAX,
    segment_bytes: 64 << 10,
    lane_bytes: 64 << 10,
    tail_cache_bytes: 8 << 10,
    ..LogOptions::DEFAULT
};

fn setup(seed: u64, options: MemoryOptions) -> (Env, MemoryStorage) {
    let env = Env::simulated(seed, 1_700_000_000_000);
    let storage = MemoryStorage::new(&env, options);
    (env, storage)
}

async fn start(env: &Env, storage: &MemoryStorage, world: &mut World) -> Running {
    world.start(env, Arc::new(storage.clone()), OPTIONS).await
}

/// Stores the journals, opens everything, and gives what partition 0 then holds.
async fn recovered(
    world: &mut World,
    journals: &[&Journal],
) -> Result<Vec<(i64, String)>, OpenError> {
    let (env, storage) = setup(1, MemoryOptions::default());
    for journal in journals {
        journal.store(&storage).await;
    }
    let mut running = start(&env, &storage, world).await;
    if let Some(error) = running.failed.remove(&partition(0)) {
        return Err(error);
    }
    let log = &running.partitions[&partition(0)];
    Ok(read_all(log, log.offsets().log_start, 1 << 20).await.unwrap())
}

fn texts(records: &[(i64, String)]) -> Vec<(i64, &str)> {
    records.iter().map(|(offset, value)| (*offset, value.as_str())).collect()
}

#[tokio::test(start_paused = true)]
async fn e_w14_ghosts_of_an_older_epoch_never_beat_records_of_a_newer_one() {
    let mut old = Journal::first(1);
    old.durable((0..5).map(|n| record(0, 5, 0, n, "old")));
    // Of the last flushes [5, 6) is lost and [6, 9) is on disk.
    old.flush(old.end(), (6..9).map(|n| record(0, 5, 0, n, "ghost")));
    let mut new = Journal::first(2);
    new.durable([record(0, 6, 5, 5, "new"), record(0, 6, 5, 6, "new")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5), (2, 6)]);
    rooted(&world, 0, 6, 6, Some(6));
    let records = recovered(&mut world, &[&old, &new]).await.unwrap();
    assert_eq!(texts(&records), [(6, "new")]);
}

#[tokio::test(start_paused = true)]
async fn e_w14_the_root_remembers_the_newer_epoch_when_its_directory_is_not_needed_any_more() {
    let mut old = Journal::first(1);
    old.durable((0..5).map(|n| record(0, 5, 0, n, "old")));
    old.flush(old.end(), (6..9).map(|n| record(0, 5, 0, n, "ghost")));
    let mut world = World::with_partitions(1);
    // Epoch 6 wrote 5 and 6; both were deleted, so only the older pair is inherited.
    led_by(&mut world, 0, &[(1, 5)]);
    rooted(&world, 0, 7, 7, Some(6));
    assert_eq!(recovered(&mut world, &[&old]).await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn e_w2_only_frames_of_exactly_the_inherited_pair_count() {
    // One broker led at epoch 5, gave the partition up without hearing of two appends, and led again.
    let mut journal = Journal::first(1);
    journal.durable([record(0, 5, 0, 0, "ghost"), record(0, 5, 0, 1, "ghost")]);
    journal.durable([record(0, 6, 0, 0, "real")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 6)]);
    let records = recovered(&mut world, &[&journal]).await.unwrap();
    assert_eq!(texts(&records), [(0, "real")]);
}

#[tokio::test(start_paused = true)]
async fn e_w8_a_claimer_that_died_before_it_opened_leaves_nothing_and_loses_nothing() {
    let mut first = Journal::first(1);
    first.durable([record(0, 5, 0, 0, "a"), record(0, 5, 0, 1, "b")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5), (2, 6)]);
    let records = recovered(&mut world, &[&first, &Journal::first(2)]).await.unwrap();
    assert_eq!(texts(&records), [(0, "a"), (1, "b")]);
    // The pair without frames left the ownership record, the other one stays.
    assert_eq!(world.records[&partition(0)].inherits, [(dir(1), LeaderEpoch(5))]);
}

#[tokio::test(start_paused = true)]
async fn e_j5_an_offset_counts_once_wherever_and_however_often_it_was_written() {
    // Offsets 1 and 2 were written again into the next file, behind 3: file order means nothing.
    let mut first = Journal::first(1);
    first.flush(first.end(), [record(0, 5, 0, 0, "a"), record(0, 5, 0, 1, "b")]);
    let mut second = Journal::number(1, 1, at(0, first.end().position));
    second.flush(second.end(), [record(0, 5, 0, 3, "d"), record(0, 5, 0, 2, "c")]);
    second.durable([record(0, 5, 0, 1, "b"), record(0, 5, 0, 2, "c")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let records = recovered(&mut world, &[&first, &second]).await.unwrap();
    assert_eq!(texts(&records), [(0, "a"), (1, "b"), (2, "c"), (3, "d")]);
}

#[tokio::test(start_paused = true)]
async fn e_j5_a_gap_below_durable_to_is_missing_records_above_it_a_ghost() {
    let mut journal = Journal::first(1);
    journal.durable([record(0, 5, 0, 0, "a"), record(0, 5, 0, 2, "c")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let error = recovered(&mut world, &[&journal]).await.unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");

    let mut journal = Journal::first(1);
    journal.durable([record(0, 5, 0, 0, "a")]);
    journal.flush(journal.end(), [record(0, 5, 0, 2, "c")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let records = recovered(&mut world, &[&journal]).await.unwrap();
    assert_eq!(texts(&records), [(0, "a")]);
}

#[tokio::test(start_paused = true)]
async fn e_j6_what_a_recycled_file_holds_of_its_former_life_does_not_count() {
    let mut journal = Journal::first(1);
    journal.durable([record(0, 5, 0, 0, "a")]);
    // The same file in another life: same name, same pair, frames that would go on gap-free.
    let mut former = Journal::of_cluster(support::CLUSTER, 1, 0, at(0, 0), 0xdead);
    former.bytes.truncate(0);
    former.durable([record(0, 5, 0, 1, "former"), record(0, 5, 0, 2, "former")]);
    let end = journal.bytes.len();
    journal.bytes.extend_from_slice(&former.bytes);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let records = recovered(&mut world, &[&journal]).await.unwrap();
    assert_eq!(texts(&records), [(0, "a")]);

    // In its own life it would count.
    journal.bytes.truncate(end);
    journal.durable([record(0, 5, 0, 1, "b")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    assert_eq!(recovered(&mut world, &[&journal]).await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn p6_a_frame_forged_inside_a_record_is_not_found_behind_a_torn_one() {
    // A producer that knows the format, the file's name and everything but the random number in its
    // header writes a whole flush into a record.
    let mut forged = Journal::of_cluster(support::CLUSTER, 1, 0, at(0, 0), 0);
    forged.bytes.truncate(0);
    forged.flush(at(9, 9), [record(0, 5, 0, 1, "forged")]);
    let value = talos_protocol::records::NewRecord::value(0, forged.bytes.freeze());
    let holder = talos_protocol::records::BatchBuilder::new().record(&value).build().unwrap();
    let mut journal = Journal::first(1);
    journal.durable([record(0, 5, 0, 0, "a")]);
    let torn = journal.end();
    journal.flush(torn, [support::journal::batch_of(0, 5, 0, 1, holder)]);
    journal.damage(torn.position + 60);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let records = recovered(&mut world, &[&journal]).await.unwrap();
    assert_eq!(texts(&records), [(0, "a")]);
}

#[tokio::test(start_paused = true)]
async fn e_j6_p5_the_same_bad_frame_is_damage_below_durable_to_and_a_torn_end_above() {
    for stated in [false, true] {
        let mut journal = Journal::first(1);
        journal.durable([record(0, 5, 0, 0, "a")]);
        let last = journal.flush(journal.end(), [record(0, 5, 0, 1, "b")]);
        if stated {
            journal.flush(journal.end(), []);
        }
        journal.damage(last[0].position - 3);
        let mut world = World::with_partitions(1);
        led_by(&mut world, 0, &[(1, 5)]);
        match recovered(&mut world, &[&journal]).await {
            Ok(records) => assert!(!stated && texts(&records) == [(0, "a")]),
            Err(OpenError::Corrupt { file, position, .. }) => {
                assert!(stated && file == journal.id.path().to_string() && position > 0);
            }
            Err(error) => panic!("{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn e_j7_e_h12_a_damaged_frame_stops_only_partitions_that_nothing_proves_whole() {
    let mut journal = Journal::first(1);
    let since = journal.end();
    let zero = journal.flush(since, [record(0, 5, 0, 0, "0")])[0];
    journal.flush(journal.end(), [record(1, 5, 0, 0, "1"), record(2, 5, 0, 0, "2")]);
    journal.durable([record(1, 5, 0, 1, "1")]);
    let before_index = journal.clone();
    let entry = |n, end_offset| IndexEntry {
        partition: partition(n),
        leader_epoch: LeaderEpoch(5),
        end_offset,
    };
    let entries = vec![entry(0, 1), entry(1, 2), entry(2, 1)];
    journal.durable([Item::Frame(Frame::Index { since, entries })]);
    // Of partition 3 nothing was ever written. The bad frame is one of partition 0.
    for (mut journal, closed) in [(journal, vec![0]), (before_index, vec![0, 3])] {
        journal.damage(zero.position - 3);
        let (env, storage) = setup(2, MemoryOptions::default());
        journal.store(&storage).await;
        let mut world = World::with_partitions(4);
        (0..4).for_each(|n| led_by(&mut world, n, &[(1, 5)]));
        let running = start(&env, &storage, &mut world).await;
        let failed: Vec<_> = running.failed.keys().copied().collect();
        assert_eq!(failed, closed.into_iter().map(partition).collect::<Vec<_>>());
        for n in [1, 2] {
            assert!(
                !read_all(&running.partitions[&partition(n)], 0, 1_000).await.unwrap().is_empty()
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn e_j13_files_that_must_exist_and_do_not_are_corruption() {
    let mut first = Journal::first(1);
    first.durable([record(0, 5, 0, 0, "a")]);
    let close = Item::Frame(Frame::Close { next_file: 1 });
    first.flush(first.end(), [close]);
    let mut second = Journal::number(1, 1, first.end());
    second.durable([record(0, 5, 0, 1, "b")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    assert_eq!(recovered(&mut world, &[&first, &second]).await.unwrap().len(), 2);

    // The file that a close frame names.
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let error = recovered(&mut world, &[&first]).await.unwrap_err();
    assert!(error.to_string().contains(&second.id.path().to_string()), "{error}");

    // The first file, in a directory that is there.
    let (env, storage) = setup(3, MemoryOptions::default());
    storage.make_dir(dir(1)).await.unwrap();
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let running = start(&env, &storage, &mut world).await;
    assert!(matches!(running.failed[&partition(0)], OpenError::Corrupt { .. }));
}

#[tokio::test(start_paused = true)]
async fn e_h4_r10_a_missing_directory_is_not_a_sealed_and_empty_one() {
    let (env, storage) = setup(4, MemoryOptions::default());
    let mut world = World::with_partitions(2);
    led_by(&mut world, 0, &[(1, 5)]);
    let running = start(&env, &storage, &mut world).await;
    let error = &running.failed[&partition(0)];
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
    // The partition that inherits nothing is served.
    produce(&running.partitions[&partition(1)], &batch(&["a"], 0)).await;
}

#[tokio::test(start_paused = true)]
async fn e_w3_a_journal_of_another_cluster_is_refused() {
    let mut journal = Journal::of_cluster(*b"somebody else's!", 1, 0, at(0, 0), 7);
    journal.durable([record(0, 5, 0, 0, "foreign")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let error = recovered(&mut world, &[&journal]).await.unwrap_err();
    assert!(error.to_string().contains("another cluster"), "{error}");
}

#[tokio::test(start_paused = true)]
async fn e_h7_a_file_shorter_than_a_later_durable_to_is_corruption() {
    // Not preallocated: only what is stated later can tell.
    let layout = Layout::Exact;
    let options = MemoryOptions { file_bytes: 24 << 10, layout, ..MemoryOptions::default() };
    let (env, storage) = setup(5, options);
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world).await;
    let value = "x".repeat(4 << 10);
    for _ in 0..8 {
        produce(&running.partitions[&partition(0)], &batch(&[&value], 0)).await;
    }
    let first = storage.files()[0].clone();
    assert!(storage.files().len() > 1);
    env.tasks.abort();
    let storage = storage.crash_and_reopen(Crash::Kill);
    let whole = storage.copy(&first).unwrap();
    for to in [0, 100, whole.content().len() as u64 / 2] {
        assert!(storage.cut(&first, to));
        let mut again = World { epoch: world.epoch + to, ..World::with_partitions(1) };
        led_by(&mut again, 0, &[(1, 0)]);
        again.epoch = world.epoch + 1 + to;
        let running = start(&env, &storage, &mut again).await;
        let error = &running.failed[&partition(0)];
        assert!(matches!(error, OpenError::Corrupt { .. }), "cut to {to}: {error}");
        storage.restore(&whole);
    }
}

#[tokio::test(start_paused = true)]
async fn e_h9_a_torn_write_in_a_file_that_failed_is_no_damage_once_the_next_file_says_so() {
    let mut first = Journal::first(1);
    first.durable([record(0, 5, 0, 0, "a")]);
    let failed_at = first.end();
    first.flush(failed_at, [record(0, 5, 0, 1, "b")]);
    first.damage(failed_at.position + 60);
    // The lane rolled and wrote the same frame again; it is far beyond that place now.
    let mut second = Journal::number(1, 1, failed_at);
    second.durable([record(0, 5, 0, 1, "b")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5)]);
    let records = recovered(&mut world, &[&first, &second]).await.unwrap();
    assert_eq!(texts(&records), [(0, "a"), (1, "b")]);
}

#[tokio::test(start_paused = true)]
async fn e_j1_a_journal_that_is_missing_from_the_listing_is_corruption() {
    let options = MemoryOptions { file_bytes: 24 << 10, ..MemoryOptions::default() };
    let (env, storage) = setup(6, options);
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world).await;
    let value = "x".repeat(4 << 10);
    for _ in 0..12 {
        produce(&running.partitions[&partition(0)], &batch(&[&value], 0)).await;
    }
    env.tasks.abort();
    let storage = storage.crash_and_reopen(Crash::Kill);
    let files = storage.files();
    assert!(files.len() > 2);
    for (n, path) in files.iter().enumerate() {
        let copy = storage.copy(path).unwrap();
        storage.remove(path);
        let mut again = World::with_partitions(1);
        led_by(&mut again, 0, &[(1, 0)]);
        again.epoch = 10 + n as u64;
        let running = start(&env, &storage, &mut again).await;
        let error = &running.failed[&partition(0)];
        assert!(matches!(error, OpenError::Corrupt { .. }), "without {path}: {error}");
        storage.restore(&copy);
    }
}

#[tokio::test(start_paused = true)]
async fn e_j14_a_root_older_than_a_published_frame_is_refused() {
    // The journal says that generation 2 of the root covers [0, 1); what it replaced may be gone.
    for (root_generation, refused) in [(1, false), (2, true)] {
        let mut journal = Journal::first(1);
        let partition = partition(0);
        let published = Frame::Published { partition, end_offset: 1, root_generation };
        journal.durable([record(0, 5, 0, 0, "a"), Item::Frame(published)]);
        let mut world = World::with_partitions(1);
        led_by(&mut world, 0, &[(1, 5)]);
        rooted(&world, 0, 0, 0, None);
        let outcome = recovered(&mut world, &[&journal]).await;
        match outcome {
            Ok(records) => assert!(!refused && texts(&records) == [(0, "a")]),
            Err(error) => assert!(refused && error.to_string().contains("generation 1"), "{error}"),
        }
    }
}

#[tokio::test(start_paused = true)]
async fn e_j15_the_last_acknowledged_flush_is_damage_not_a_torn_end_after_a_kill() {
    let (env, storage) = setup(7, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world).await;
    let log = &running.partitions[&partition(0)];
    produce(log, &batch(&["a"], 0)).await;
    produce(log, &batch(&["the last one before the kill"], 0)).await;
    env.tasks.abort();
    let storage = storage.crash_and_reopen(Crash::Kill);
    let path = storage.files()[0].clone();
    let content = storage.copy(&path).unwrap();
    let needle = b"the last one";
    let found = content.content().windows(needle.len()).position(|bytes| bytes == needle).unwrap();
    storage.flip_bit(&path, found as u64..found as u64 + 1, &env.rng).unwrap();
    let running = start(&env, &storage, &mut world).await;
    let error = &running.failed[&partition(0)];
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}

/// A broker whose last `count` batches are in the page cache, never synced and never acknowledged,
/// killed.
async fn killed_with_unsynced(
    env: &Env,
    storage: &MemoryStorage,
    world: &mut World,
    count: i32,
) -> MemoryStorage {
    let running = start(env, storage, world).await;
    let log = &running.partitions[&partition(0)];
    for n in 0..3 {
        produce(log, &stamped(&["acknowledged"], 9, 0, n)).await;
    }
    storage.faults().set_stalled(true);
    for n in 3..3 + count {
        let appended = log.append(&stamped(&[&format!("unsynced {n}")], 9, 0, n), None).unwrap();
        drop(appended);
        env.clock.sleep(Duration::from_millis(3)).await;
    }
    env.clock.sleep(Duration::from_millis(20)).await;
    env.tasks.abort();
    storage.crash(Crash::Kill);
    storage.faults().heal();
    storage.handle_for_new_process()
}

#[tokio::test(start_paused = true)]
async fn e_h5_e_h6_what_lies_above_durable_to_is_written_again_before_it_is_visible() {
    let mut adopted = 0;
    for seed in 0..20 {
        let (env, storage) = setup(seed, MemoryOptions::default());
        let mut world = World::with_partitions(1);
        let storage = killed_with_unsynced(&env, &storage, &mut world, 3).await;
        let running = start(&env, &storage, &mut world).await;
        assert!(running.failed.is_empty(), "seed {seed}: {:?}", running.failed);
        let seen = read_all(&running.partitions[&partition(0)], 0, 1 << 20).await.unwrap();
        adopted += seen.len() - 3;
        // What a consumer saw survives the loss of power, with the former directory's pages.
        env.tasks.abort();
        let storage = storage.crash_and_reopen(Crash::PowerLoss);
        let running = start(&env, &storage, &mut world).await;
        assert!(running.failed.is_empty(), "seed {seed}: {:?}", running.failed);
        let log = &running.partitions[&partition(0)];
        assert_eq!(read_all(log, 0, 1 << 20).await.unwrap(), seen, "seed {seed}");
        assert_eq!(log.offsets().log_end, seen.len() as i64);
    }
    assert!(adopted > 0, "nothing was ever found above durable-to");
}

#[tokio::test(start_paused = true)]
async fn e_t1_e_t3_a_retry_of_an_adopted_batch_gets_the_adopted_offset() {
    let mut adopted = 0;
    for seed in 20..40 {
        let (env, storage) = setup(seed, MemoryOptions::default());
        let mut world = World::with_partitions(1);
        let storage = killed_with_unsynced(&env, &storage, &mut world, 2).await;
        let running = start(&env, &storage, &mut world).await;
        let log = &running.partitions[&partition(0)];
        adopted += log.offsets().log_end - 3;
        // The producer heard nothing of its last two and sends them again.
        for n in 3..5 {
            let offset = produce(log, &stamped(&[&format!("unsynced {n}")], 9, 0, n)).await;
            assert_eq!(offset, i64::from(n), "seed {seed}");
        }
        assert_eq!(log.offsets().log_end, 5, "seed {seed}");
    }
    assert!(adopted > 0, "nothing was ever adopted");
}

#[tokio::test(start_paused = true)]
async fn e_h6_opening_that_is_cut_off_by_a_power_loss_closes_no_partition() {
    let mut cut_off = 0;
    for seed in 40..120 {
        let (env, storage) = setup(seed, MemoryOptions::default());
        let mut world = World::with_partitions(1);
        let storage = killed_with_unsynced(&env, &storage, &mut world, 4).await;
        // While what was found above durable-to is being written again.
        storage.crash_after(2 + seed % 4, Crash::PowerLoss);
        let outcome = tokio::select! {
            biased;
            () = storage.crashed() => None,
            running = world.start(&env, Arc::new(storage.clone()), OPTIONS) => Some(running),
        };
        cut_off += usize::from(outcome.is_none());
        env.tasks.abort();
        let storage = storage.crash_and_reopen(Crash::PowerLoss);
        let running = start(&env, &storage, &mut world).await;
        assert!(running.failed.is_empty(), "seed {seed}: {:?}", running.failed);
        let records = read_all(&running.partitions[&partition(0)], 0, 1 << 20).await.unwrap();
        assert!(records.len() >= 3, "seed {seed}: acknowledged records are gone");
        assert!(records[3..].iter().all(|(n, value)| *value == format!("unsynced {n}")));
    }
    assert!(cut_off > 0, "opening was never cut off");
}

#[tokio::test(start_paused = true)]
async fn e_h6_a_half_written_rewrite_does_not_demand_the_rest_of_it() {
    // Epoch 5 left two unsynced batches, which power took. Epoch 6 had begun to write them again: of
    // that only the first reached the disk, and it says that its own records would start at 3.
    let mut old = Journal::first(1);
    old.durable([record(0, 5, 0, 0, "a")]);
    let mut new = Journal::first(2);
    new.flush(new.end(), [record(0, 6, 3, 1, "b")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5), (2, 6)]);
    let records = recovered(&mut world, &[&old, &new]).await.unwrap();
    assert_eq!(texts(&records), [(0, "a"), (1, "b")]);

    // A record of its own does demand it: it was accepted when all before it was durable.
    new.flush(new.end(), [record(0, 6, 3, 3, "own")]);
    let mut world = World::with_partitions(1);
    led_by(&mut world, 0, &[(1, 5), (2, 6)]);
    let error = recovered(&mut world, &[&old, &new]).await.unwrap_err();
    assert!(matches!(error, OpenError::Corrupt { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn e_t2_producers_expire_by_the_leaders_clock_also_after_a_restart() {
    let (env, storage) = setup(8, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let mut running = start(&env, &storage, &mut world).await;
    // The records' own timestamps are of 1970.
    produce(&running.partitions[&partition(0)], &stamped(&["a"], 9, 0, 0)).await;
    let appended = env.clock.wall_ms();
    for _ in 0..2 {
        let log = &running.partitions[&partition(0)];
        assert_eq!(log.expire_producers(appended - 1_000), 0);
        assert_eq!(log.producers().len(), 1);
        env.tasks.abort();
        // Long after: opening itself forgets nobody.
        env.clock.shift_wall(30 * 24 * 3_600_000);
        let next = storage.crash_and_reopen(Crash::Kill);
        running = start(&env, &next, &mut world).await;
    }
    let log = &running.partitions[&partition(0)];
    assert_eq!(log.expire_producers(appended + 60_000), 1);
}

#[tokio::test(start_paused = true)]
async fn e_w13_f7_f9_a_late_completion_of_a_former_leadership_touches_nothing() {
    let (env, storage) = setup(9, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world).await;
    let old = Arc::clone(&running.partitions[&partition(0)]);
    produce(&old, &batch(&["a"], 0)).await;
    storage.faults().set_stalled(true);
    let in_flight = old.append(&batch(&["b"], 0), None).unwrap();
    old.end("the partition moved");
    // The same broker leads again, from a root that covers what was acknowledged.
    rooted(&world, 0, 0, 1, Some(0));
    let record = &world.records[&partition(0)];
    let request = OpenRequest {
        id: partition(0),
        leader_epoch: LeaderEpoch(2),
        inherits: Vec::new(),
        root: record.root.0.lock().unwrap().clone(),
        root_handle: Arc::clone(&record.root) as _,
    };
    let (_, opened) = running.log.open(vec![request], &world.clean_ends).await.remove(0);
    let new = opened.unwrap().log;
    let mut later = new.append(&batch(&["c"], 0), None).unwrap();
    assert_eq!(later.base_offset, 1);
    storage.faults().set_stalled(false);
    later.durable.await.unwrap();
    assert_eq!((new.offsets().high_watermark, new.offsets().log_end), (2, 2));
    // F3: what became of the former append is not known, which is not «failed».
    assert!(in_flight.durable.await.is_err());
    assert!(old.read(0, 1, true).await.is_err());
    later = new.append(&batch(&["d"], 0), None).unwrap();
    later.durable.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn e_j2_an_emptied_log_goes_on_where_it_ended_when_no_directory_is_left() {
    let (env, mut storage) = setup(10, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world).await;
    let log = &running.partitions[&partition(0)];
    for _ in 0..4 {
        produce(log, &batch(&["a", "b"], 0)).await;
    }
    log.advance_log_start(8).await.unwrap();
    for _ in 0..3 {
        env.tasks.abort();
        storage = storage.crash_and_reopen(Crash::PowerLoss);
        let running = start(&env, &storage, &mut world).await;
        let offsets = running.partitions[&partition(0)].offsets();
        assert_eq!((offsets.log_start, offsets.log_end), (8, 8));
        // Nothing of the former epochs is needed: only the root says where the log ends.
        assert_eq!(world.records[&partition(0)].inherits, []);
    }
}

#[tokio::test(start_paused = true)]
async fn r18_the_root_keeps_the_epoch_of_its_own_last_record_not_of_the_newest() {
    let (env, storage) = setup(11, MemoryOptions::default());
    let mut world = World::with_partitions(1);
    let running = start(&env, &storage, &mut world).await;
    for _ in 0..10 {
        produce(&running.partitions[&partition(0)], &batch(&["old"], 0)).await;
    }
    env.tasks.abort();
    let storage = storage.crash_and_reopen(Crash::Kill);
    let running = start(&env, &storage, &mut world).await;
    let log = &running.partitions[&partition(0)];
    produce(log, &batch(&["new"], 0)).await;
    log.advance_log_start(5).await.unwrap();
    let before = log.end_of_epoch(LeaderEpoch(0));
    assert_eq!(before, Some((LeaderEpoch(0), 10)));
    env.tasks.abort();
    let storage = storage.crash_and_reopen(Crash::Kill);
    let running = start(&env, &storage, &mut world).await;
    let log = &running.partitions[&partition(0)];
    assert_eq!(log.end_of_epoch(LeaderEpoch(0)), before);
    assert_eq!(read_all(log, 5, 1 << 20).await.unwrap().len(), 6);
}
