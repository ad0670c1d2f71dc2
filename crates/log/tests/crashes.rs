//! Random work, random faults, random ends of the process; after each restart the log is compared with
//! what clients were told. One seed is one run, and replays exactly.
#![allow(clippy::unwrap_used, clippy::panic, reason = "helpers of tests")]

mod support;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use support::{Running, World, batch, read_all, stamped};
use talos_common::{Env, TopicPartitionId};
use talos_log::{LogOptions, PartitionLog};
use talos_storage::FilePath;
use talos_storage::memory::{Crash, Fault, Latency, Layout, MemoryOptions, MemoryStorage};

/// What clients know of one partition.
#[derive(Debug, Default)]
struct Told {
    /// Acknowledged records by offset.
    acknowledged: BTreeMap<i64, String>,
    /// Everything that was ever read, by offset.
    seen: BTreeMap<i64, String>,
    high_watermark: i64,
    log_start: i64,
    /// Next number to send, and where the idempotent producer goes on.
    sent: u64,
    sequence: i32,
}

/// What the runs of a test had.
#[derive(Debug, Default)]
struct Seen {
    /// Injected faults and deleted directories.
    faults: u64,
    /// Sorted journals and segments that were there when a process ended.
    sorted: u64,
    segments: u64,
}

/// Which faults a run has.
#[derive(Clone, Copy)]
struct Plan {
    seed: u64,
    how: Crash,
    rates: &'static [(Fault, u32)],
    sorting: bool,
}

async fn run(plan: Plan, seen: &mut Seen) {
    let env = Env::simulated(plan.seed, 1_700_000_000_000);
    let layouts = [Layout::Exact, Layout::Preallocated, Layout::Recycled];
    let options = MemoryOptions {
        file_bytes: [24 << 10, 64 << 10, 1 << 20][env.rng.usize(..3)],
        appends_in_flight: env.rng.usize(1..5),
        layout: layouts[env.rng.usize(..3)],
        append_latency: Latency { min_us: 50, max_us: 3_000 },
        call_latency: Latency { min_us: 10, max_us: 500 },
    };
    // Sorting, where it is on, starts with each file that is closed.
    let log_options = LogOptions {
        sort_bytes: if plan.sorting { 1 } else { u64::MAX },
        segment_bytes: [4 << 10, 32 << 10][env.rng.usize(..2)],
        lane_bytes: 8 << 10,
        tail_cache_bytes: 4 << 10,
        ..LogOptions::DEFAULT
    };
    let mut storage = MemoryStorage::new(&env, options);
    let mut world = World::with_partitions(3);
    let mut told: BTreeMap<TopicPartitionId, Told> =
        world.records.keys().map(|id| (*id, Told::default())).collect();
    let mut tidied = 0;
    for _ in 0..5 {
        let handle = Arc::new(storage.clone());
        let running = world.start(&env, handle, log_options).await;
        assert!(running.failed.is_empty(), "seed {}: {:?}", plan.seed, running.failed);
        for (id, log) in &running.partitions {
            check(plan.seed, *id, log, told.get_mut(id).unwrap()).await;
        }
        for (fault, rate) in plan.rates {
            storage.faults().set_rate(*fault, *rate);
        }
        work(&env, &world, plan.sorting, &running.partitions, &mut told).await;
        storage.faults().heal();
        if plan.sorting {
            world.records.values().for_each(|record| record.root.heal());
            if env.rng.chance(500_000) {
                let gone = delete_one(&env, &mut world, &running, &mut told);
                let (sorted, ()) = tokio::join!(running.log.sort(), gone);
                assert_eq!(sorted, Ok(()), "seed {}", plan.seed);
                for (id, log) in running.partitions.iter().filter(|(_, log)| log.ended().is_none())
                {
                    check(plan.seed, *id, log, told.get_mut(id).unwrap()).await;
                }
            }
            for path in storage.files() {
                seen.sorted += u64::from(matches!(path, FilePath::Sorted { .. }));
                seen.segments += u64::from(matches!(path, FilePath::Segment { .. }));
            }
            tidied += world.tidy(&env, &running, &storage).await as u64;
        }
        if env.rng.chance(200_000) {
            world.stop(running).await;
        } else {
            // The tasks of the killed process must not go on in the next one.
            env.tasks.abort();
        }
        storage = storage.crash_and_reopen(plan.how);
    }
    let faults: u64 = plan.rates.iter().map(|(fault, _)| storage.faults().count(*fault)).sum();
    seen.faults += faults + tidied;
}

/// At times a topic is deleted while a pass runs.
async fn delete_one(
    env: &Env,
    world: &mut World,
    running: &Running,
    told: &mut BTreeMap<TopicPartitionId, Told>,
) {
    if running.partitions.len() < 2 || !env.rng.chance(150_000) {
        return;
    }
    env.clock.sleep(Duration::from_micros(env.rng.u64(..3_000))).await;
    let (id, log) = running.partitions.last_key_value().unwrap();
    log.end("the topic was deleted");
    running.log.forget(*id);
    world.records.remove(id);
    told.remove(id);
}

/// Produces to all partitions for a while, many batches in flight, and stops in the middle.
async fn work(
    env: &Env,
    world: &World,
    sorting: bool,
    partitions: &BTreeMap<TopicPartitionId, Arc<PartitionLog>>,
    told: &mut BTreeMap<TopicPartitionId, Told>,
) {
    let mut waiting = Vec::new();
    for _ in 0..env.rng.usize(5..80) {
        if sorting && env.rng.chance(8_000) {
            // The next segment, or the next move of the log start, finds the metadata away.
            let which = env.rng.usize(..partitions.len());
            world.records.values().nth(which).unwrap().root.fail_next();
        }
        let which = env.rng.usize(..partitions.len());
        let (id, log) = partitions.iter().nth(which).unwrap();
        let told = told.get_mut(id).unwrap();
        let count = env.rng.usize(1..4);
        let values: Vec<String> = (0..count)
            .map(|n| {
                let filler = "x".repeat(env.rng.usize(..600));
                format!("{which}/{}/{filler}", told.sent + n as u64)
            })
            .collect();
        let refs: Vec<&str> = values.iter().map(String::as_str).collect();
        let idempotent = which == 0;
        let batch = match idempotent {
            true => stamped(&refs, 77, 0, told.sequence),
            false => batch(&refs, 0),
        };
        let lease = log.admit(batch.bytes.len()).await;
        if let Ok(appended) = lease.and_then(|lease| log.append(&batch, Some(lease))) {
            told.sent += count as u64;
            told.sequence += count as i32;
            waiting.push((*id, values, appended));
        }
        if env.rng.chance(300_000) {
            env.clock.sleep(Duration::from_micros(env.rng.u64(..4_000))).await;
        }
        if env.rng.chance(30_000) {
            let to = env.rng.u64(..=log.offsets().high_watermark as u64) as i64;
            if let Ok(log_start) = log.advance_log_start(to).await {
                told.log_start = told.log_start.max(log_start);
            }
        }
    }
    env.clock.sleep(Duration::from_micros(env.rng.u64(..8_000))).await;
    for (id, values, mut appended) in waiting {
        let outcome = env.clock.timeout(Duration::ZERO, &mut appended.durable).await;
        if let Some(Ok(())) = outcome {
            let offsets = appended.base_offset..;
            told.get_mut(&id).unwrap().acknowledged.extend(offsets.zip(values));
        }
    }
}

/// Compares the reopened log with what clients were told, and goes on from it.
async fn check(seed: u64, id: TopicPartitionId, log: &PartitionLog, told: &mut Told) {
    let offsets = log.offsets();
    assert!(offsets.high_watermark >= told.high_watermark, "seed {seed} {id}: watermark went back");
    assert!(offsets.log_start >= told.log_start, "seed {seed} {id}: log start went back");
    told.log_start = offsets.log_start;
    let records = read_all(log, offsets.log_start, 10_000).await;
    let records = records.unwrap_or_else(|error| panic!("seed {seed} {id}: {error}"));
    let mut records = records;
    // What became durable meanwhile.
    records.retain(|(offset, _)| *offset < offsets.high_watermark);
    let expected = offsets.log_start..offsets.high_watermark;
    assert!(records.iter().map(|(offset, _)| *offset).eq(expected), "seed {seed} {id}: a gap");
    let records: BTreeMap<i64, String> = records.into_iter().collect();
    for (offset, value) in told.acknowledged.range(offsets.log_start..) {
        assert_eq!(records.get(offset), Some(value), "seed {seed} {id}: acknowledged, lost");
    }
    for (offset, value) in told.seen.range(offsets.log_start..) {
        assert_eq!(records.get(offset), Some(value), "seed {seed} {id}: one offset, two values");
    }
    told.high_watermark = offsets.high_watermark;
    told.seen = records;
    // The idempotent producer goes on behind what it finds, as one that retries would.
    let entry = log.producers();
    let newest = entry.iter().next().and_then(|(_, entry)| entry.batches.back().copied());
    told.sequence = newest.map_or(0, |batch| batch.last_sequence + 1);
}

async fn runs(
    seeds: std::ops::Range<u64>,
    how: Crash,
    rates: &'static [(Fault, u32)],
    sorting: bool,
) {
    let mut seen = Seen::default();
    for seed in seeds {
        run(Plan { seed, how, rates, sorting }, &mut seen).await;
    }
    assert!((rates.is_empty() && !sorting) || seen.faults > 0, "neither a fault nor a deletion");
    assert!(!sorting || (seen.sorted > 0 && seen.segments > 0), "nothing was sorted: {seen:?}");
}

#[tokio::test(start_paused = true)]
async fn p1_kill_9_loses_nothing_acknowledged() {
    runs(0..60, Crash::Kill, &[], false).await;
}

#[tokio::test(start_paused = true)]
async fn p1_power_loss_loses_nothing_acknowledged() {
    runs(100..160, Crash::PowerLoss, &[], false).await;
}

#[tokio::test(start_paused = true)]
async fn p1_failing_files_lose_nothing_acknowledged() {
    const RATES: &[(Fault, u32)] = &[(Fault::AppendUncertain, 60_000), (Fault::AppendFull, 30_000)];
    runs(200..240, Crash::PowerLoss, RATES, false).await;
    runs(240..280, Crash::Kill, RATES, false).await;
}

#[tokio::test(start_paused = true)]
async fn p1_lost_answers_and_slow_calls_lose_nothing_acknowledged() {
    const RATES: &[(Fault, u32)] = &[(Fault::LostAnswer, 200_000), (Fault::SlowCall, 100_000)];
    runs(300..340, Crash::PowerLoss, RATES, false).await;
}

#[tokio::test(start_paused = true)]
async fn e_j13_e_j14_sorting_and_segments_lose_nothing_acknowledged() {
    runs(500..560, Crash::Kill, &[], true).await;
    runs(560..620, Crash::PowerLoss, &[], true).await;
}

#[tokio::test(start_paused = true)]
async fn e_j13_sorting_on_failing_files_loses_nothing_acknowledged() {
    const RATES: &[(Fault, u32)] = &[(Fault::AppendUncertain, 40_000), (Fault::LostAnswer, 60_000)];
    runs(620..680, Crash::PowerLoss, RATES, true).await;
}
