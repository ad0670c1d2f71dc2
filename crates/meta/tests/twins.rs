//! Random runs: SQLite against its twin in memory, and many brokers under faults.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use common::{broker_dir, client, cluster, new_topic};
use talos_common::{Env, Rng, Tasks, TopicPartitionId};
use talos_meta::store::Op;
use talos_meta::{
    ClaimError, Error, LeadError, MemoryMeta, Meta, MetaStore, RootChange, SqliteMeta, Version,
};

/// A few paths, so that operations meet.
fn random_op(rng: &Rng) -> Op {
    let part = |depth: u64| ["a", "b", "c\u{fc}"][usize::try_from(rng.u64(..depth)).unwrap()];
    let path = match rng.u64(..3) {
        0 => format!("/{}", part(3)),
        1 => format!("/{}/{}", part(2), part(3)),
        _ => format!("/{}/{}/{}", part(2), part(2), part(2)),
    };
    let version = Version(i32::try_from(rng.u64(..3)).unwrap());
    match rng.u64(..8) {
        0..3 => {
            let value = Bytes::from(vec![b'x'; rng.usize(..20)]);
            Op::Create { path, value, ephemeral: rng.chance(100_000) }
        }
        3..5 => Op::Set { path, value: Bytes::from(vec![b'y'; rng.usize(..20)]), version },
        5..7 => Op::Delete { path, version },
        _ => Op::Check { path, version },
    }
}

async fn dump(store: &dyn MetaStore) -> BTreeMap<String, (Bytes, Version)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![String::new()];
    while let Some(folder) = folders.pop() {
        let path = if folder.is_empty() { "/" } else { folder.as_str() };
        for (name, node) in store.read_children(path).await.unwrap() {
            let path = format!("{folder}/{name}");
            folders.push(path.clone());
            found.insert(path, (node.value, node.version));
        }
    }
    found
}

#[tokio::test]
async fn sqlite_answers_exactly_as_memory_does() {
    let mut applied = 0;
    for seed in 0..20 {
        let rng = Rng::from_seed(seed);
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("meta.sqlite");
        let mut sqlite = SqliteMeta::open(&file).unwrap();
        let tree = MemoryMeta::new(&Env::simulated(seed, 0));
        let mut memory = tree.handle();
        for step in 0..150 {
            let ops: Vec<Op> = (0..1 + rng.u64(..4)).map(|_| random_op(&rng)).collect();
            let expected = memory.transact(ops.clone()).await;
            applied += usize::from(expected.is_ok());
            assert_eq!(sqlite.transact(ops.clone()).await, expected, "{seed}/{step}: {ops:?}");
            if rng.chance(50_000) {
                drop(sqlite);
                sqlite = SqliteMeta::open(&file).unwrap();
                drop(memory);
                memory = tree.handle();
            }
        }
        assert_eq!(dump(&sqlite).await, dump(&memory).await, "seed {seed}");
    }
    assert!(applied > 100, "{applied} transactions were applied");
}

/// What the brokers of one run saw.
#[derive(Default)]
struct History {
    /// Per partition: leader epoch → who claimed it.
    claims: BTreeMap<TopicPartitionId, BTreeMap<i32, i32>>,
    /// Per partition: versions of the root that a swap was told it made.
    swaps: BTreeMap<TopicPartitionId, BTreeSet<i32>>,
    fenced: usize,
    stale: usize,
}

impl History {
    fn highest(&self, tp: TopicPartitionId) -> i32 {
        self.claims.get(&tp).and_then(|claims| claims.keys().next_back().copied()).unwrap_or(-1)
    }
}

/// One broker: claims, swaps, releases, dies and comes back, until its steps are done.
async fn broker(meta: Meta, id: i32, tps: Vec<TopicPartitionId>, history: Arc<Mutex<History>>) {
    let rng = meta_rng(id, &tps);
    let mut epoch = 0;
    let mut dir = None;
    for _ in 0..60 {
        let Some(own) = dir else {
            epoch += 1;
            if meta.register(broker_dir(id, epoch)).await.is_ok() {
                dir = Some(broker_dir(id, epoch));
            }
            continue;
        };
        if rng.chance(100_000) {
            let _ = meta.mark_dead(own, None).await;
            dir = None;
            continue;
        }
        for claim in meta.claim_many(own, &tps).await {
            let claim = match claim {
                Ok(claim) => claim,
                Err(ClaimError::NotAlive) => {
                    dir = None;
                    break;
                }
                Err(_) => continue,
            };
            let (tp, leader_epoch) = (claim.partition, claim.leader_epoch.0);
            {
                let mut history = history.lock().unwrap();
                let before = history.claims.entry(tp).or_default().insert(leader_epoch, id);
                assert_eq!(before, None, "{tp}: leader epoch {leader_epoch} was claimed twice");
                let pairs: BTreeSet<_> = claim.inherits.iter().collect();
                assert_eq!(pairs.len(), claim.inherits.len(), "a pair twice");
            }
            let lead = claim.lead(own);
            let mut expected = claim.root.as_ref().map(|root| root.version);
            for _ in 0..rng.u64(..4) {
                if rng.chance(100_000) {
                    // Others may claim from now on, while this one goes on as if nothing had happened.
                    let _ = meta.mark_dead(own, None).await;
                    tokio::time::sleep(std::time::Duration::from_millis(rng.u64(..2_000))).await;
                }
                let newer = history.lock().unwrap().highest(tp) > leader_epoch;
                let value = Bytes::from(format!("{id} {leader_epoch} {}", rng.u64(..)));
                match meta.swap(&lead, RootChange { expected, value }).await {
                    Ok(swapped) => {
                        assert!(!newer, "{tp}: a swap of {leader_epoch} after a newer claim");
                        let mut history = history.lock().unwrap();
                        let first = history.swaps.entry(tp).or_default().insert(swapped.root.0);
                        assert!(first, "{tp}: root version {:?} twice", swapped.root);
                        expected = Some(swapped.root);
                    }
                    Err(LeadError::Fenced { .. }) => {
                        history.lock().unwrap().fenced += 1;
                        break;
                    }
                    Err(LeadError::Stale { .. }) => {
                        history.lock().unwrap().stale += 1;
                        break;
                    }
                    // Unknown or not applied: this leader has lost count, and claims again.
                    Err(LeadError::Store(_)) => break,
                }
            }
            match rng.u64(..3) {
                0 => drop(meta.release(&lead, None).await),
                1 => drop(meta.drop_inherited(&lead, &claim.inherits).await),
                _ => {}
            }
        }
    }
}

fn meta_rng(id: i32, tps: &[TopicPartitionId]) -> Rng {
    let seed = tps.first().map_or(0, |tp| u64::from(tp.topic.0[3]));
    Rng::from_seed(seed * 10 + u64::try_from(id).unwrap())
}

async fn soak(seed: u64) -> (String, History) {
    let (tree, meta) = cluster(seed).await;
    let (topic, _) = meta.create_topic(new_topic("t", 4)).await.unwrap();
    let tps: Vec<_> = topic.partition_ids().collect();
    let faults = tree.faults();
    faults.set_lost_answers(150_000);
    faults.set_unavailable(50_000);
    faults.set_slow(300_000, 1..=50);
    let history = Arc::new(Mutex::new(History::default()));
    let tasks = Tasks::new();
    for id in 1..=3 {
        let meta = client(&tree, seed * 10 + u64::try_from(id).unwrap());
        let (tps, history) = (tps.clone(), Arc::clone(&history));
        tasks.spawn("broker", broker(meta, id, tps, history));
    }
    let done = async {
        tasks.join().await;
        None
    };
    // A failed check in a task must fail the test.
    let panicked = async { Some(tasks.panicked().await) };
    tokio::pin!(done, panicked);
    let failed = tokio::select! {
        biased;
        failed = &mut panicked => failed,
        failed = &mut done => failed,
    };
    assert_eq!(failed, None, "seed {seed}");
    let counts = faults.counts();
    for count in [
        counts.slow,
        counts.unavailable,
        counts.lost_applied,
        counts.lost_dropped,
        counts.lost_late,
    ] {
        assert!(count > 0, "seed {seed}: {counts:?}");
    }
    // Healed, whoever is alive makes progress.
    faults.heal();
    let dir = broker_dir(9, 1);
    meta.register(dir).await.unwrap();
    for id in 1..=3 {
        let (broker, _) = meta.broker(broker_dir(id, 1).broker).await.unwrap().unwrap();
        meta.mark_dead(broker_dir(id, broker.epoch.0), None).await.unwrap();
    }
    let claims = meta.claim_many(dir, &tps).await;
    for claim in &claims {
        let claim = claim.as_ref().unwrap();
        assert!(claim.leader_epoch.0 > history.lock().unwrap().highest(claim.partition));
    }
    let history = std::mem::take(&mut *history.lock().unwrap());
    (format!("{counts:?} {claims:?}"), history)
}

#[tokio::test(start_paused = true)]
async fn many_brokers_under_faults_never_share_a_leader_epoch_or_swap_after_a_newer_claim() {
    let (mut swaps, mut fenced) = (0, 0);
    for seed in 1..=10 {
        let (_, history) = soak(seed).await;
        swaps += history.swaps.values().map(BTreeSet::len).sum::<usize>();
        fenced += history.fenced + history.stale;
    }
    assert!(swaps > 200 && fenced > 0, "{swaps} swaps, {fenced} refused: too quiet a run");
}

#[test]
fn a_seed_replays_exactly() {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true)
            .build()
            .unwrap();
        runtime.block_on(soak(77)).0
    };
    assert_eq!(run(), run());
}

#[tokio::test(start_paused = true)]
async fn faults_happen_as_set_and_are_counted() {
    let (tree, meta) = cluster(88).await;
    let faults = tree.faults();
    faults.set_down(true);
    assert!(matches!(meta.cluster().await, Err(Error::Unavailable(_))));
    faults.set_down(false);
    meta.cluster().await.unwrap();
    let before = faults.counts();
    faults.set_unavailable(1_000_000);
    for _ in 0..5 {
        assert!(matches!(meta.cluster().await, Err(Error::Unavailable(_))));
    }
    assert_eq!(faults.counts().unavailable, before.unavailable + 5);
    faults.heal();
    faults.set_slow(1_000_000, 40..=40);
    let clock = talos_common::Clock::simulated(0);
    let start = clock.wall_ms();
    meta.cluster().await.unwrap();
    assert_eq!(clock.wall_ms() - start, 40);
    faults.heal();

    let session = tree.handle();
    let create =
        |path: &str, ephemeral| Op::Create { path: path.into(), value: Bytes::new(), ephemeral };
    session.transact(vec![create("/live", true)]).await.unwrap();
    let mut watch = meta.store().watch("/live").await.unwrap();
    session.expire_session();
    assert_eq!(meta.store().get("/live").await.unwrap(), None);
    let gone = talos_meta::store::WatchEvent::Changed("/live".into());
    assert_eq!(watch.next().await.unwrap(), gone);
    session.transact(vec![create("/live", true)]).await.unwrap();
    drop(session);
    assert_eq!(meta.store().get("/live").await.unwrap(), None);
}
