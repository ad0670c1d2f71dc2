//! The coordinator on a log that can be slow, refuse, lose its leadership or lie, in virtual time.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use talos_common::{Env, LeaderEpoch};
use tokio::sync::Notify;

use super::*;
use crate::groups::{
    AppendError, Coordinator, Coordinators, GroupMemory, GroupRecord, LogChunk, LogRecord,
    OffsetLog,
};

#[derive(Debug, Default)]
struct TestLogState {
    start: i64,
    records: Vec<GroupRecord>,
    /// What the next appends do instead of succeeding.
    failures: VecDeque<AppendError>,
    appends: usize,
    hold: bool,
    unreadable: bool,
    reads: usize,
}

#[derive(Clone, Debug, Default)]
struct TestLog {
    state: Arc<Mutex<TestLogState>>,
    released: Arc<Notify>,
}

impl TestLog {
    fn with<T>(&self, step: impl FnOnce(&mut TestLogState) -> T) -> T {
        step(&mut self.state.lock().unwrap())
    }

    fn release(&self) {
        self.with(|state| state.hold = false);
        self.released.notify_waiters();
    }

    fn kept(&self) -> Vec<Raw> {
        self.with(|state| {
            let kept = state.records.iter().skip(state.start as usize);
            kept.map(|record| (record.key.clone(), record.value.clone())).collect()
        })
    }
}

impl OffsetLog for TestLog {
    fn start_offset(&self) -> i64 {
        self.with(|state| state.start)
    }

    fn end_offset(&self) -> i64 {
        self.with(|state| state.records.len() as i64)
    }

    async fn read(&self, from: i64) -> Result<LogChunk, AppendError> {
        while self.with(|state| state.hold) {
            self.released.notified().await;
        }
        self.with(|state| {
            state.reads += 1;
            if state.unreadable {
                return Err(AppendError::Corrupt("on purpose".into()));
            }
            let stretch = state.records.iter().enumerate().skip(from as usize).take(3);
            let records: Vec<_> = stretch
                .map(|(offset, record)| LogRecord {
                    offset: offset as i64,
                    key: Some(record.key.clone()),
                    value: record.value.clone(),
                })
                .collect();
            let next_offset = from + records.len() as i64;
            Ok(LogChunk { records, next_offset })
        })
    }

    async fn append(&self, records: Vec<GroupRecord>) -> Result<i64, AppendError> {
        assert!(!records.is_empty());
        while self.with(|state| state.hold) {
            self.released.notified().await;
        }
        self.with(|state| {
            state.appends += 1;
            if let Some(failure) = state.failures.pop_front() {
                return Err(failure);
            }
            let base = state.records.len() as i64;
            state.records.extend(records);
            Ok(base)
        })
    }

    async fn trim(&self, offset: i64) -> Result<(), AppendError> {
        self.with(|state| {
            assert!(offset >= state.start, "the log start never goes back");
            state.start = offset;
        });
        Ok(())
    }
}

fn env() -> Env {
    Env::simulated(7, 1_700_000_000_000)
}

fn open(env: &Env, log: &TestLog) -> Coordinator {
    Coordinator::open(env, Config::default(), 3, LeaderEpoch(1), log.clone())
}

async fn join(coordinator: &Coordinator, id: &str) -> JoinResponse {
    coordinator.join(join_request(id)).await
}

fn heartbeat(coordinator: &Coordinator, id: &Text, generation_id: i32) -> Code {
    coordinator.heartbeat(&HeartbeatRequest {
        group_id: "g".into(),
        generation_id,
        member_id: id.clone(),
        group_instance_id: None,
    })
}

fn sync_request(id: &Text, generation_id: i32, assignments: Vec<(Text, Blob)>) -> SyncRequest {
    SyncRequest {
        group_id: "g".into(),
        generation_id,
        member_id: id.clone(),
        group_instance_id: None,
        protocol_type: None,
        protocol_name: None,
        assignments,
    }
}

/// A stable group of one member, generation 1.
async fn stable(coordinator: &Coordinator) -> Text {
    let id = join(coordinator, "").await.member_id;
    let joined = join(coordinator, &id).await;
    assert_eq!((joined.code, joined.generation_id), (Code::None, 1));
    let plan = vec![(id.clone(), blob(b"all"))];
    let synced = coordinator.sync(sync_request(&id, 1, plan)).await;
    assert_eq!((synced.code, &synced.assignment[..]), (Code::None, &b"all"[..]));
    id
}

fn fetched(coordinator: &Coordinator) -> i64 {
    let topic = FetchTopic { topic: "t".into(), topic_id: TopicId::default(), partitions: vec![0] };
    let topics = Some(vec![topic]);
    let request = FetchRequest { group_id: "g".into(), topics, require_stable: true };
    coordinator.fetch(&request).unwrap()[0].offset
}

#[allow(clippy::disallowed_methods, reason = "the test joins what it starts")]
fn spawn<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(work)
}

async fn stop(env: Env) {
    env.tasks.stop();
    env.tasks.join().await;
}

#[tokio::test(start_paused = true)]
async fn a_group_lives_through_a_restart() {
    let (env, log) = (env(), TestLog::default());
    let first = open(&env, &log);
    assert!(first.loaded().await);
    let id = stable(&first).await;
    assert!(id.starts_with("c-") && id.len() == 38, "{id}");
    assert_eq!(first.commit(commit_request(&id, 1, 5)).await, [Code::None]);
    first.close();
    assert_eq!(heartbeat(&first, &id, 1), Code::NotCoordinator);
    assert_eq!(first.commit(commit_request(&id, 1, 6)).await, [Code::NotCoordinator]);
    assert_eq!(join(&first, &id).await.code, Code::NotCoordinator);
    let second = open(&env, &log);
    assert!(second.loaded().await);
    assert_eq!((heartbeat(&second, &id, 1), fetched(&second)), (Code::None, 5));
    // Timers run by themselves: silent, the member goes.
    env.clock.sleep(Duration::from_secs(11)).await;
    assert_eq!(heartbeat(&second, &id, 1), Code::UnknownMemberId);
    assert_eq!(second.delete("g".into()).await, Code::None);
    assert!(second.list(&[], &[]).unwrap().is_empty());
    assert_eq!(fold_of(&log.kept()), Fold::default());
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn while_loading_clients_are_told_to_wait() {
    let (env, log) = (env(), TestLog::default());
    let first = open(&env, &log);
    first.loaded().await;
    let id = stable(&first).await;
    first.close();
    log.with(|state| state.hold = true);
    let second = open(&env, &log);
    tokio::task::yield_now().await;
    assert_eq!(join(&second, &id).await.code, Code::CoordinatorLoadInProgress);
    let sync = second.sync(sync_request(&id, 1, Vec::new())).await;
    assert_eq!(sync.code, Code::RebalanceInProgress);
    assert_eq!(heartbeat(&second, &id, 1), Code::None);
    let commit = second.commit(commit_request(&id, 1, 5)).await;
    assert_eq!(commit, [Code::CoordinatorLoadInProgress]);
    assert_eq!(second.list(&[], &[]), Err(Code::CoordinatorLoadInProgress));
    assert_eq!(second.describe(&"g".into()).code, Code::CoordinatorLoadInProgress);
    // Loading takes longer than any session; the member is alive all the same.
    env.clock.sleep(Duration::from_secs(60)).await;
    log.release();
    assert!(second.loaded().await);
    env.clock.sleep(Duration::from_secs(9)).await;
    assert_eq!(heartbeat(&second, &id, 1), Code::None);
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn commits_that_come_during_an_append_share_the_next() {
    let (env, log) = (env(), TestLog::default());
    let coordinator = open(&env, &log);
    coordinator.loaded().await;
    log.with(|state| state.hold = true);
    let mut commits = Vec::new();
    for offset in 0..100 {
        let coordinator = coordinator.clone();
        commits
            .push(spawn(async move { coordinator.commit(commit_request("", -1, offset)).await }));
    }
    env.clock.sleep(Duration::from_millis(10)).await;
    assert_eq!(fetched(&coordinator), -1);
    log.release();
    for commit in commits {
        assert_eq!(commit.await.unwrap(), [Code::None]);
    }
    assert_eq!(fetched(&coordinator), 99);
    assert!(log.with(|state| state.appends) <= 2);
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn a_refusing_log_gives_a_retriable_error_and_service_returns() {
    let (env, log) = (env(), TestLog::default());
    let coordinator = open(&env, &log);
    coordinator.loaded().await;
    log.with(|state| state.failures.push_back(AppendError::Unavailable));
    let refused = coordinator.commit(commit_request("", -1, 5)).await;
    assert_eq!(refused, [Code::CoordinatorNotAvailable]);
    assert_eq!(fetched(&coordinator), -1);
    assert_eq!(coordinator.commit(commit_request("", -1, 6)).await, [Code::None]);
    assert_eq!(fetched(&coordinator), 6);
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn an_unknown_outcome_is_not_called_a_failure_and_ends_the_coordinator() {
    let expected = [
        (AppendError::Uncertain, Code::RequestTimedOut),
        (AppendError::NotLeader, Code::NotCoordinator),
    ];
    for (failure, code) in expected {
        let (env, log) = (env(), TestLog::default());
        let coordinator = open(&env, &log);
        coordinator.loaded().await;
        let id = join(&coordinator, "").await.member_id;
        let parked = {
            let coordinator = coordinator.clone();
            spawn(async move { join(&coordinator, &id).await })
        };
        env.clock.sleep(Duration::from_millis(1)).await;
        log.with(|state| state.failures.push_back(failure));
        let other = CommitRequest { group_id: "h".into(), ..commit_request("", -1, 5) };
        assert_eq!(coordinator.commit(other).await, [code]);
        assert_eq!(parked.await.unwrap().code, Code::NotCoordinator);
        coordinator.ended().await;
        let later = CommitRequest { group_id: "h".into(), ..commit_request("", -1, 6) };
        assert_eq!(coordinator.commit(later).await, [Code::NotCoordinator]);
        stop(env).await;
    }
}

#[tokio::test(start_paused = true)]
async fn closing_with_an_append_under_way_leaves_its_outcome_open() {
    let (env, log) = (env(), TestLog::default());
    let coordinator = open(&env, &log);
    coordinator.loaded().await;
    log.with(|state| state.hold = true);
    let commit = {
        let coordinator = coordinator.clone();
        spawn(async move { coordinator.commit(commit_request("", -1, 5)).await })
    };
    env.clock.sleep(Duration::from_millis(1)).await;
    coordinator.close();
    assert_eq!(commit.await.unwrap(), [Code::RequestTimedOut]);
    log.release();
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn stopping_lets_the_accepted_work_finish() {
    let (env, log) = (env(), TestLog::default());
    let coordinator = open(&env, &log);
    coordinator.loaded().await;
    log.with(|state| state.hold = true);
    let commit = {
        let coordinator = coordinator.clone();
        spawn(async move { coordinator.commit(commit_request("", -1, 5)).await })
    };
    env.clock.sleep(Duration::from_millis(1)).await;
    env.tasks.stop();
    env.clock.sleep(Duration::from_millis(1)).await;
    log.release();
    assert_eq!(commit.await.unwrap(), [Code::None]);
    env.tasks.join().await;
}

#[tokio::test(start_paused = true)]
async fn the_log_stays_bounded_by_snapshots_however_much_is_committed() {
    let (env, log) = (env(), TestLog::default());
    let config =
        Config { snapshot_every_bytes: 10_000, snapshot_chunk_bytes: 500, ..Config::default() };
    let coordinator = Coordinator::open(&env, config.clone(), 3, LeaderEpoch(1), log.clone());
    coordinator.loaded().await;
    let mut longest = 0;
    for offset in 0..3_000 {
        let mut request = commit_request("", -1, offset);
        request.offsets[0].partition = offset as i32 % 20;
        assert_eq!(coordinator.commit(request).await, [Code::None]);
        longest = longest.max(log.kept().len());
    }
    assert!(longest < 600, "{longest} records kept of 3000");
    let total = log.with(|state| state.records.len());
    assert!(total < 3_000 * 3 / 2, "{total} records written");
    assert!(log.with(|state| state.start) > 2_000);
    // What is left of the log says the same.
    let again = Coordinator::open(&env, config, 3, LeaderEpoch(2), log.clone());
    again.loaded().await;
    assert_eq!(fetched(&again), 2_980);
    let all = FetchRequest { group_id: "g".into(), topics: None, require_stable: false };
    assert_eq!(again.fetch(&all), coordinator.fetch(&all));
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn a_state_larger_than_the_snapshot_interval_does_not_snapshot_for_ever() {
    let (env, log) = (env(), TestLog::default());
    let config = Config { snapshot_every_bytes: 2_000, ..Config::default() };
    let coordinator = Coordinator::open(&env, config, 3, LeaderEpoch(1), log.clone());
    coordinator.loaded().await;
    for partition in 0..500 {
        let mut request = commit_request("", -1, 1);
        request.offsets[0].partition = partition;
        coordinator.commit(request).await;
    }
    env.clock.sleep(Duration::from_secs(1)).await;
    let total = log.with(|state| state.records.len());
    env.clock.sleep(Duration::from_secs(60)).await;
    assert_eq!(log.with(|state| state.records.len()), total);
    assert!(!coordinator.is_snapshotting());
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn a_corrupt_log_is_not_loaded_and_an_unknown_kind_is_skipped() {
    let (env, log) = (env(), TestLog::default());
    let first = open(&env, &log);
    first.loaded().await;
    first.commit(commit_request("", -1, 5)).await;
    first.close();
    log.with(|state| {
        state.records.push(GroupRecord { key: vec![0, 3, 1, 2], value: Some(vec![9]) });
    });
    let second = open(&env, &log);
    assert!(second.loaded().await);
    assert_eq!(fetched(&second), 5);
    second.close();
    log.with(|state| state.records.push(GroupRecord { key: vec![0, 1, 0], value: None }));
    let third = open(&env, &log);
    assert!(!third.loaded().await);
    assert!(third.is_unreadable());
    assert_eq!(third.commit(commit_request("", -1, 6)).await, [Code::CoordinatorNotAvailable]);
    assert_eq!(join(&third, "").await.code, Code::CoordinatorNotAvailable);
    assert_eq!(heartbeat(&third, &"m".into(), 1), Code::CoordinatorNotAvailable);
    log.with(|state| state.unreadable = true);
    assert!(!open(&env, &log).loaded().await);
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn a_log_that_cannot_be_read_is_read_again_after_pauses_that_double() {
    let (env, log) = (env(), TestLog::default());
    log.with(|state| {
        state.records.push(GroupRecord { key: vec![0, 3, 1, 2], value: Some(vec![9]) });
        state.unreadable = true;
    });
    let all = Coordinators::new(env.clone(), Config::default(), 50);
    let mut reads_at = Vec::new();
    for second in 0..100 {
        // Many requests a second, each of which asks for the coordinator.
        for _ in 0..100 {
            let _ = all.open(3, LeaderEpoch(1), log.clone());
        }
        env.clock.sleep(Duration::from_secs(1)).await;
        if log.with(|state| std::mem::take(&mut state.reads)) > 0 {
            reads_at.push(second);
        }
    }
    assert_eq!(reads_at, [0, 6, 17, 38, 79]);
    // In the end it can be read again, and serves.
    log.with(|state| state.unreadable = false);
    for _ in 0..300 {
        let _ = all.open(3, LeaderEpoch(1), log.clone());
        env.clock.sleep(Duration::from_secs(1)).await;
    }
    let served = all.of_group("g").unwrap();
    assert!(served.loaded().await);
    assert_eq!(served.commit(commit_request("", -1, 5)).await, [Code::None]);
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn p4_a_write_that_takes_too_long_is_unknown_and_may_have_its_effect_later() {
    let (env, log) = (env(), TestLog::default());
    let coordinator = open(&env, &log);
    coordinator.loaded().await;
    let id = stable(&coordinator).await;
    log.with(|state| state.hold = true);
    let before = env.clock.now();
    let codes = coordinator.commit(commit_request(&id, 1, 5)).await;
    assert_eq!(codes, [Code::RequestTimedOut]);
    assert_eq!(env.clock.now() - before, Duration::from_secs(5));
    assert_eq!(fetched(&coordinator), -1);
    // A leader that joins anew and assigns: its write waits behind.
    let joined = join(&coordinator, &id).await;
    assert_eq!((joined.code, joined.generation_id), (Code::None, 2));
    let plan = vec![(id.clone(), blob(b"all"))];
    let synced = coordinator.sync(sync_request(&id, 2, plan.clone())).await;
    assert_eq!(synced.code, Code::NotCoordinator);
    log.release();
    env.clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(fetched(&coordinator), 5);
    let synced = coordinator.sync(sync_request(&id, 2, plan)).await;
    assert_eq!((synced.code, &synced.assignment[..]), (Code::None, &b"all"[..]));
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn p4_a_commit_that_found_no_room_to_wait_is_definitely_refused() {
    let (env, log) = (env(), TestLog::default());
    let memory = Arc::new(GroupMemory::new(1 << 20, 1));
    let config = Config { memory, ..Config::default() };
    let coordinator = Coordinator::open(&env, config, 3, LeaderEpoch(1), log.clone());
    coordinator.loaded().await;
    log.with(|state| state.hold = true);
    let first = coordinator.commit(commit_request("", -1, 5)).await;
    assert_eq!(first, [Code::RequestTimedOut]);
    let second = coordinator.commit(commit_request("", -1, 6)).await;
    assert_eq!(second, [Code::CoordinatorNotAvailable]);
    log.release();
    env.clock.sleep(Duration::from_secs(1)).await;
    assert_eq!(fetched(&coordinator), 5);
    stop(env).await;
}

#[tokio::test(start_paused = true)]
async fn the_registry_keeps_one_coordinator_per_partition_the_latest() {
    let env = env();
    let all = Coordinators::new(env.clone(), Config::default(), 50);
    assert!(all.of_group("g").is_none());
    let (old, new) = (TestLog::default(), TestLog::default());
    let first = all.open(3, LeaderEpoch(4), old.clone());
    first.loaded().await;
    first.commit(commit_request("", -1, 5)).await;
    assert_eq!(all.of_group("g").unwrap().leader_epoch(), LeaderEpoch(4));
    let second = all.open(3, LeaderEpoch(6), new.clone());
    first.ended().await;
    // What came late for an earlier epoch changes nothing (E-G3).
    all.close(3, LeaderEpoch(5));
    assert_eq!(all.open(3, LeaderEpoch(5), old).leader_epoch(), LeaderEpoch(6));
    assert!(second.loaded().await);
    assert_eq!(fetched(&all.of_group("g").unwrap()), -1);
    all.close(3, LeaderEpoch(6));
    assert!(all.of_group("g").is_none());
    assert!(all.all().is_empty());
    stop(env).await;
}
