//! The faults of memory storage: each really happens, is counted, and loses only what it may.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use talos_common::Env;
use talos_storage::conformance::{dir, journal, segment};
use talos_storage::memory::{Crash, Fault, Latency, Layout};
use talos_storage::{ErrorKind, MemoryOptions, MemoryStorage, Prefix, Storage, Writer};

const FILE_BYTES: u64 = 64 << 10;

/// Runs `test` on virtual time with the seed's chance.
fn simulate<T>(seed: u64, layout: Layout, test: impl AsyncFnOnce(MemoryStorage, &Env) -> T) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let env = Env::simulated(seed, 1_000_000);
        let options = MemoryOptions { layout, file_bytes: FILE_BYTES, ..MemoryOptions::default() };
        test(MemoryStorage::new(&env, options), &env).await
    })
}

async fn made(store: &MemoryStorage) -> Box<dyn Writer> {
    store.make_dir(dir(1)).await.unwrap();
    store.create(journal(1, 0)).await.unwrap()
}

fn bytes(of: u8, len: usize) -> Bytes {
    Bytes::from(vec![of; len])
}

/// Three appends are acknowledged, four more are in flight when the crash comes; gives what is left
/// of those four, and of the note.
async fn crash_with_appends_in_flight(store: MemoryStorage, env: &Env, how: Crash) -> [Bytes; 2] {
    let mut writer = made(&store).await;
    let mut acknowledged = Vec::new();
    for of in 1..=3 {
        acknowledged.extend_from_slice(&bytes(of, 1_000));
        writer.append(vec![bytes(of, 1_000)], Some(bytes(9, 50))).await.unwrap();
    }
    let crashed_early = env.rng.chance(300_000);
    let mut late = Vec::new();
    if !crashed_early {
        late.extend((4..8).map(|of| writer.append(vec![bytes(of, 2_000)], None)));
        env.clock.sleep(Duration::from_micros(env.rng.u64(0..4_000))).await;
    }
    let next = store.crash_and_reopen(how);
    for append in late {
        // Some may have become durable at the last moment; never is one refused as if undone.
        let result = append.await;
        assert!(result.is_ok() || result.unwrap_err().kind() == ErrorKind::Uncertain);
    }
    let dead = writer.append(vec![bytes(8, 10)], None).await.unwrap_err();
    assert_eq!(dead.kind(), ErrorKind::Uncertain);
    assert_eq!(store.create(journal(1, 1)).await.unwrap_err().kind(), ErrorKind::Uncertain);
    next.seal(dir(1)).await.unwrap();
    let content = next.read(&journal(1, 0), 0..11_000).await.unwrap();
    assert!(content.starts_with(&acknowledged), "acknowledged bytes are lost");
    let rest = content.slice(3_000..);
    let note = if crashed_early { rest.slice(..50.min(rest.len())) } else { Bytes::new() };
    [rest, note]
}

#[test]
fn a_power_loss_leaves_what_was_acknowledged_and_any_pieces_of_the_rest() {
    for layout in [Layout::Exact, Layout::Preallocated, Layout::Recycled] {
        let mut seen = BTreeSet::new();
        let mut faults = [0; 2];
        for seed in 0..300 {
            let [rest, note] = simulate(seed, layout, async |store, env| {
                let counts = store.faults().clone();
                let rest = crash_with_appends_in_flight(store, env, Crash::PowerLoss).await;
                faults[0] += counts.count(Fault::LostWrite);
                faults[1] += counts.count(Fault::TornWrite);
                rest
            });
            if !note.is_empty() {
                seen.insert(if note == bytes(9, 50) { "note kept" } else { "note lost" });
                continue;
            }
            let whole = |of: u8| {
                let from = (usize::from(of) - 4) * 2_000;
                rest.get(from..from + 2_000).is_some_and(|part| part == bytes(of, 2_000))
            };
            let some = |of: u8| rest.contains(&of);
            seen.extend((4..8).all(whole).then_some("all"));
            seen.extend((4..8).all(|of| !some(of)).then_some("nothing"));
            seen.extend((4..8).any(|of| some(of) && !whole(of)).then_some("torn"));
            seen.extend((5..8).any(|of| whole(of) && !whole(of - 1)).then_some("hole"));
        }
        assert!(faults.iter().all(|count| *count > 10), "{layout:?} {faults:?}");
        let mut expected = BTreeSet::from(["all", "nothing", "torn"]);
        if layout != Layout::Exact {
            expected.extend(["hole", "note kept", "note lost"]);
        }
        assert_eq!(seen, expected, "{layout:?}");
    }
}

#[test]
fn a_killed_process_leaves_the_page_cache_and_its_note() {
    let mut torn = 0;
    for seed in 0..200 {
        let [rest, note] = simulate(seed, Layout::Preallocated, async |store, env| {
            let counts = store.faults().clone();
            let rest = crash_with_appends_in_flight(store, env, Crash::Kill).await;
            torn += counts.count(Fault::TornWrite);
            rest
        });
        if !note.is_empty() {
            assert_eq!(note, bytes(9, 50), "a note survives the end of its process");
        }
        assert_eq!(rest.len(), 8_000);
    }
    assert!(torn > 10, "{torn}");
}

#[test]
fn what_a_killed_process_had_not_synced_can_still_be_lost_with_the_power() {
    let mut lost = 0;
    for seed in 0..50 {
        lost += simulate(seed, Layout::Preallocated, async |store, _| {
            let mut writer = made(&store).await;
            store.faults().set_stalled(true);
            drop(writer.append(vec![bytes(5, 100)], None));
            tokio::time::sleep(Duration::from_millis(50)).await;
            let next = store.crash_and_reopen(Crash::Kill);
            next.seal(dir(1)).await.unwrap();
            // E-H6: it is there to read, after the seal too, and yet not durable.
            assert_eq!(next.read(&journal(1, 0), 0..100).await.unwrap(), bytes(5, 100));
            let next = next.crash_and_reopen(Crash::PowerLoss);
            u64::from(next.read(&journal(1, 0), 0..100).await.unwrap() != bytes(5, 100))
        });
    }
    assert!((10..50).contains(&lost), "{lost}");
}

#[test]
fn a_lying_disk_loses_acknowledged_bytes() {
    let mut lost = 0;
    for seed in 0..50 {
        simulate(seed, Layout::Recycled, async |store, _| {
            let mut writer = made(&store).await;
            store.faults().set_lying(true);
            writer.append(vec![bytes(5, 3_000)], None).await.unwrap();
            assert_eq!(store.faults().count(Fault::Lie), 1);
            let next = store.crash_and_reopen(Crash::PowerLoss);
            let content = next.read(&journal(1, 0), 0..3_000).await.unwrap();
            lost += u64::from(content != bytes(5, 3_000));
        });
    }
    assert!((10..50).contains(&lost), "{lost}");
}

#[test]
fn a_zombie_writes_on_until_its_directory_is_sealed() {
    simulate(1, Layout::Exact, async |old, _| {
        let mut writer = made(&old).await;
        let new = old.handle_for_new_process();
        writer.append(vec![bytes(1, 10)], None).await.unwrap();
        assert_eq!(new.read(&journal(1, 0), 0..99).await.unwrap(), bytes(1, 10));
        new.seal(dir(1)).await.unwrap();
        let fenced = ErrorKind::Fenced;
        assert_eq!(writer.append(vec![bytes(1, 10)], None).await.unwrap_err().kind(), fenced);
        assert_eq!(old.create(journal(1, 1)).await.unwrap_err().kind(), fenced);
        old.make_dir(dir(2)).await.unwrap();
        assert_eq!(new.make_dir(dir(2)).await.unwrap_err().kind(), ErrorKind::Exists);
    });
}

#[test]
fn an_uncertain_append_is_durable_or_not_and_ends_its_writer() {
    let mut durable = 0;
    for seed in 0..60 {
        simulate(seed, Layout::Preallocated, async |store, _| {
            let mut writer = made(&store).await;
            writer.append(vec![bytes(1, 100)], None).await.unwrap();
            store.faults().fail_next(Fault::AppendUncertain, 1);
            let unknown = writer.append(vec![bytes(2, 100)], None);
            let behind = writer.append(vec![bytes(3, 100)], None);
            for append in [unknown, behind, writer.append(vec![bytes(4, 100)], None)] {
                assert_eq!(append.await.unwrap_err().kind(), ErrorKind::Uncertain);
            }
            assert_eq!(store.faults().count(Fault::AppendUncertain), 1);
            let next = store.crash_and_reopen(Crash::PowerLoss);
            let content = next.read(&journal(1, 0), 0..200).await.unwrap();
            assert_eq!(content[..100], bytes(1, 100));
            durable += u64::from(content[100..] == bytes(2, 100));
            // Others are not concerned.
            drop(next.create(journal(1, 1)).await.unwrap());
        });
    }
    assert!((10..55).contains(&durable), "{durable}");
}

#[test]
fn full_is_definite_and_a_failed_sync_is_the_end() {
    simulate(2, Layout::Preallocated, async |store, _| {
        let mut writer = made(&store).await;
        let faults = store.faults().clone();
        faults.set_full(true);
        let full = ErrorKind::Full;
        assert_eq!(store.create(journal(1, 1)).await.unwrap_err().kind(), full);
        let published = store.publish(&segment(1, 0, 0), vec![bytes(1, 9)]).await;
        assert_eq!(published.unwrap_err().kind(), full);
        assert_eq!(store.files(), [journal(1, 0)]);
        writer.append(vec![bytes(1, 9)], None).await.unwrap();
        faults.heal();
        let mut other = store.create(journal(1, 1)).await.unwrap();
        store.publish(&segment(1, 0, 0), vec![bytes(1, 9)]).await.unwrap();
        faults.fail_next(Fault::AppendFull, 1);
        assert_eq!(writer.append(vec![bytes(2, 9)], None).await.unwrap_err().kind(), full);
        assert_eq!(writer.append(vec![bytes(2, 9)], None).await.unwrap_err().kind(), full);
        assert_eq!(store.read(&journal(1, 0), 9..18).await.unwrap(), bytes(0, 9));
        faults.fail_next(Fault::SyncFails, 1);
        let fatal = ErrorKind::Fatal;
        assert_eq!(other.append(vec![bytes(3, 9)], None).await.unwrap_err().kind(), fatal);
        assert_eq!(other.append(vec![bytes(3, 9)], None).await.unwrap_err().kind(), fatal);
        assert_eq!(store.make_dir(dir(2)).await.unwrap_err().kind(), fatal);
        let next = store.crash_and_reopen(Crash::Kill);
        assert_eq!(next.read(&journal(1, 1), 0..9).await.unwrap(), bytes(3, 9));
        let counts = faults.counts();
        assert_eq!(counts[&Fault::Full], 2);
        assert_eq!((counts[&Fault::AppendFull], counts[&Fault::SyncFails]), (1, 1));
    });
}

#[test]
fn a_stalled_append_waits_for_the_end_of_the_stall() {
    simulate(3, Layout::Recycled, async |store, env| {
        let mut writer = made(&store).await;
        store.faults().set_stalled(true);
        let append = writer.append(vec![bytes(1, 10)], None);
        assert!(env.clock.timeout(Duration::from_secs(60), append).await.is_none());
        let append = writer.append(vec![bytes(2, 10)], None);
        let healing = async {
            env.clock.sleep(Duration::from_secs(1)).await;
            store.faults().set_stalled(false);
        };
        let (end, ()) = tokio::join!(append, healing);
        assert_eq!(end.unwrap(), 20);
        assert_eq!(store.faults().count(Fault::Stalled), 2);
    });
}

#[test]
fn a_lost_answer_is_reported_as_unknown_whether_or_not_it_was_applied() {
    let mut applied = [0; 3];
    for seed in 0..40 {
        simulate(seed, Layout::Recycled, async |store, _| {
            let unknown = ErrorKind::Uncertain;
            store.faults().fail_next(Fault::LostAnswer, 1);
            assert_eq!(store.make_dir(dir(1)).await.unwrap_err().kind(), unknown);
            applied[0] += u32::from(store.make_dir(dir(1)).await.is_err());
            store.faults().fail_next(Fault::LostAnswer, 2);
            assert_eq!(store.create(journal(1, 0)).await.unwrap_err().kind(), unknown);
            let published = store.publish(&segment(1, 0, 0), vec![bytes(1, 9)]).await;
            assert_eq!(published.unwrap_err().kind(), unknown);
            applied[1] += u32::from(store.create(journal(1, 0)).await.is_err());
            applied[2] += u32::from(store.read(&segment(1, 0, 0), 0..1).await.is_ok());
            assert_eq!(store.faults().count(Fault::LostAnswer), 3);
        });
    }
    assert!(applied.iter().all(|applied| (5..35).contains(applied)), "{applied:?}");
}

#[test]
fn files_can_be_damaged_and_put_back() {
    simulate(4, Layout::Preallocated, async |store, env| {
        let mut writer = made(&store).await;
        let path = journal(1, 0);
        writer.append(vec![bytes(1, 100)], None).await.unwrap();
        let old = store.copy(&path).unwrap();
        assert_eq!((old.path(), old.content().len() as u64), (&path, FILE_BYTES));
        writer.append(vec![bytes(2, 100)], None).await.unwrap();
        let store = store.crash_and_reopen(Crash::Kill);
        let at = store.flip_bit(&path, 10..20, &env.rng).unwrap();
        let damaged = store.read(&path, at..at + 1).await.unwrap();
        assert!((10..20).contains(&at) && (damaged[0] ^ 1).is_power_of_two());
        assert!(store.cut(&path, 150) && !store.cut(&path, 150));
        assert_eq!(store.read(&path, 100..999).await.unwrap(), bytes(2, 50));
        assert!(store.extend(&path, b"tail"));
        assert_eq!(store.read(&path, 150..999).await.unwrap(), "tail");
        assert_eq!(store.flip_bit(&path, 154..200, &env.rng), None);
        assert!(store.remove(&path) && !store.remove(&path));
        assert_eq!(store.list(Prefix::Brokers, None).await.unwrap(), []);
        store.restore(&old);
        let content = store.read(&path, 0..200).await.unwrap();
        assert_eq!(content, [bytes(1, 100), bytes(0, 100)].concat());
        for fault in
            [Fault::FlippedBit, Fault::Cut, Fault::Extended, Fault::Removed, Fault::Restored]
        {
            assert_eq!(store.faults().count(fault), 1, "{fault:?}");
        }
    });
}

#[test]
fn a_recycled_journal_shows_its_former_life_above_its_position() {
    simulate(5, Layout::Recycled, async |store, _| {
        let mut writer = made(&store).await;
        writer.append(vec![bytes(1, 1_000)], None).await.unwrap();
        store.delete(&journal(1, 0)).await.unwrap();
        let mut writer = store.create(journal(1, 1)).await.unwrap();
        writer.append(vec![bytes(2, 100)], None).await.unwrap();
        let content = store.read(&journal(1, 1), 0..1_001).await.unwrap();
        assert_eq!(content, [bytes(2, 100), bytes(1, 900), bytes(0, 1)].concat());
    });
}

#[test]
fn a_crash_can_be_planned_for_each_step_and_nobody_hears_of_that_step() {
    // A directory, two files, three appends.
    let life = async |store: &MemoryStorage, heard: &mut u64| -> talos_storage::Result<()> {
        store.make_dir(dir(1)).await?;
        *heard += 1;
        let mut writer = store.create(journal(1, 0)).await?;
        *heard += 1;
        store.publish(&segment(1, 0, 0), vec![bytes(1, 9)]).await?;
        *heard += 1;
        for of in 0..3 {
            writer.append(vec![bytes(of, 100)], None).await?;
            *heard += 1;
        }
        Ok(())
    };
    for how in [Crash::Kill, Crash::PowerLoss] {
        for step in 1..=6 {
            simulate(step, Layout::Preallocated, async |store, _| {
                store.crash_after(step, how);
                let mut heard = 0;
                let died = life(&store, &mut heard).await.unwrap_err();
                assert_eq!((died.kind(), heard), (ErrorKind::Uncertain, step - 1));
                store.crashed().await;
                assert_eq!(store.steps(), step);
                let next = store.handle_for_new_process();
                assert_eq!(next.files().len() as u64, (step - 1).min(2), "{step}");
                if step > 3 {
                    let content = next.read(&journal(1, 0), 0..300).await.unwrap();
                    for of in 0..step - 3 {
                        let from = of as usize * 100;
                        assert_eq!(content[from..from + 100], bytes(of as u8, 100));
                    }
                }
            });
        }
    }
}

/// Everything at once, as a trace of all outcomes.
async fn trace(store: MemoryStorage, env: &Env) -> Vec<String> {
    let mut trace = Vec::new();
    let mut store = store;
    for fault in [Fault::Full, Fault::AppendUncertain, Fault::LostAnswer, Fault::SlowCall] {
        store.faults().set_rate(fault, 100_000);
    }
    for epoch in 1..20 {
        trace.push(format!("{:?}", store.make_dir(dir(epoch)).await));
        let Ok(mut writer) = store.create(journal(epoch, 0)).await else { continue };
        for _ in 0..4 {
            let appends: Vec<_> =
                (0..4).map(|of| writer.append(vec![bytes(of, 700)], Some(bytes(9, 20)))).collect();
            for append in appends {
                trace.push(format!("{:?} at {}", append.await, env.clock.wall_ms()));
            }
        }
        drop(writer.append(vec![bytes(5, 700)], None));
        env.clock.sleep(Duration::from_millis(1)).await;
        let how = if epoch % 2 == 0 { Crash::Kill } else { Crash::PowerLoss };
        store = store.crash_and_reopen(how);
        trace.push(format!("{:?}", store.seal(dir(epoch)).await));
        trace.push(format!("{:?}", store.read(&journal(epoch, 0), 0..20_000).await));
    }
    trace.push(format!("{:?}", store.faults().counts()));
    trace
}

#[test]
fn one_seed_gives_one_run() {
    let run = |seed| simulate(seed, Layout::Recycled, trace);
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let counts = run(1).pop().unwrap();
    for fault in ["Full", "AppendUncertain", "LostAnswer", "SlowCall", "TornWrite"] {
        assert!(counts.contains(fault), "{counts}");
    }
}

#[test]
fn appends_become_durable_out_of_order_and_resolve_in_order() {
    let mut overtaken = 0;
    for seed in 0..100 {
        simulate(seed, Layout::Preallocated, async |store, _| {
            let mut writer = made(&store).await;
            let first = writer.append(vec![bytes(1, 512)], None);
            let second = writer.append(vec![bytes(2, 512)], None);
            tokio::time::sleep(Duration::from_millis(2)).await;
            let next = store.crash_and_reopen(Crash::PowerLoss);
            let content = next.read(&journal(1, 0), 0..1_024).await.unwrap();
            let there = |of, part: &[u8]| part == bytes(of, 512);
            let found = (there(1, &content[..512]), there(2, &content[512..]));
            overtaken += u64::from(found == (false, true));
            let (first, second) = (first.await, second.await);
            assert!(first.is_ok() || second.is_err());
            assert!(first.is_err() || found.0);
            assert!(second.is_err() || found.1);
        });
    }
    assert!(overtaken > 5, "{overtaken}");
}

#[test]
fn latencies_lie_in_their_range() {
    let options = MemoryOptions {
        append_latency: Latency { min_us: 8_000, max_us: 12_000 },
        call_latency: Latency::NONE,
        ..MemoryOptions::default()
    };
    simulate(6, Layout::Exact, async |_, env| {
        let store = MemoryStorage::new(env, options);
        let mut writer = made(&store).await;
        assert_eq!(env.clock.wall_ms(), 1_000_000);
        writer.append(vec![bytes(1, 10)], None).await.unwrap();
        assert!((1_000_010..=1_000_016).contains(&env.clock.wall_ms()));
        store.faults().fail_next(Fault::SlowCall, 1);
        writer.append(vec![bytes(1, 10)], None).await.unwrap();
        assert!(env.clock.wall_ms() >= 1_000_800);
    });
}
