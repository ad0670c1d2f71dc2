//! Random sequences of operations: the invariants hold after each, everybody is answered once, and
//! what a log or a snapshot with the rest of the log says is what the live coordinator says (F24).

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Op {
    Join {
        who: usize,
        instance: Option<u8>,
        topics: u8,
        version: i16,
    },
    Sync {
        who: usize,
    },
    Heartbeat {
        who: usize,
    },
    Leave {
        who: usize,
    },
    Commit {
        who: usize,
        partition: i32,
        offset: i64,
    },
    CommitSimple {
        group: u8,
        partition: i32,
        offset: i64,
    },
    Delete {
        group: u8,
    },
    DeleteOffset {
        group: u8,
        partition: i32,
    },
    TopicDeleted {
        topic: u8,
    },
    Advance {
        ms: u64,
    },
    Take,
    Done {
        ok: bool,
    },
    Snapshot,
    Reload,
    /// Everybody joins, and once the join phase is over syncs: most runs see stable groups.
    Progress,
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let who = 0..8usize;
    let op = prop_oneof![
        6 => (who.clone(), proptest::option::of(0..3u8), 0..2u8, prop_oneof![Just(3i16), Just(9)])
            .prop_map(|(who, instance, topics, version)| Op::Join { who, instance, topics, version }),
        6 => who.clone().prop_map(|who| Op::Sync { who }),
        3 => who.clone().prop_map(|who| Op::Heartbeat { who }),
        1 => who.clone().prop_map(|who| Op::Leave { who }),
        3 => (who, 0..3i32, 0..100i64)
            .prop_map(|(who, partition, offset)| Op::Commit { who, partition, offset }),
        3 => (0..3u8, 0..3i32, 0..100i64)
            .prop_map(|(group, partition, offset)| Op::CommitSimple { group, partition, offset }),
        1 => (0..3u8).prop_map(|group| Op::Delete { group }),
        1 => (0..3u8, 0..3i32).prop_map(|(group, partition)| Op::DeleteOffset { group, partition }),
        1 => (0..2u8).prop_map(|topic| Op::TopicDeleted { topic }),
        3 => prop_oneof![Just(100u64), Just(3_000), Just(11_000), Just(700_000_000)]
            .prop_map(|ms| Op::Advance { ms }),
        6 => Just(Op::Take),
        6 => prop_oneof![8 => Just(true), 1 => Just(false)].prop_map(|ok| Op::Done { ok }),
        1 => Just(Op::Snapshot),
        1 => Just(Op::Reload),
        4 => Just(Op::Progress),
    ];
    proptest::collection::vec(op, 1..120)
}

/// A client as it knows itself: member id, instance, generation, the join it waits for.
#[derive(Clone, Debug, Default)]
struct Client {
    id: Option<Text>,
    instance: Option<Text>,
    generation: i32,
    leads: bool,
    everyone: Vec<Text>,
    waiting: Option<u64>,
}

struct World {
    sim: Sim,
    clients: Vec<Client>,
    in_flight: Option<crate::groups::shard::Batch>,
    /// Where the snapshot that runs began, and where the last complete one did.
    snapshot_start: usize,
    log_start: usize,
    asked: u64,
}

impl World {
    fn new() -> Self {
        let config = Config {
            snapshot_chunk_bytes: 300,
            max_batch_bytes: 600,
            retention_check_interval_ms: 3_600_000,
            ..Config::default()
        };
        Self {
            sim: Sim::with(config),
            clients: vec![Client::default(); 8],
            in_flight: None,
            snapshot_start: 0,
            log_start: 0,
            asked: 0,
        }
    }

    fn learn(&mut self) {
        self.sim.collect();
        for client in &mut self.clients {
            let Some(token) = client.waiting else { continue };
            let Some(Reply::Join(joined)) = self.sim.replies.get(&token) else { continue };
            client.waiting = None;
            match joined.code {
                Code::None | Code::MemberIdRequired => client.id = Some(joined.member_id.clone()),
                _ => client.id = None,
            }
            client.generation = joined.generation_id;
            client.leads = joined.code == Code::None && joined.leader == joined.member_id;
            client.everyone = joined.members.iter().map(|m| m.member_id.clone()).collect();
        }
    }

    fn take(&mut self) {
        if self.in_flight.is_none() {
            self.in_flight = self.sim.shard.take_batch(self.sim.now);
            self.learn();
        }
    }

    fn done(&mut self, ok: bool) {
        let Some(batch) = self.in_flight.take() else { return };
        if ok {
            if batch.starts_snapshot {
                self.snapshot_start = self.sim.log.len();
            }
            if batch.ends_snapshot {
                self.log_start = self.snapshot_start;
            }
            self.sim.log.extend(batch.records.iter().cloned());
        }
        let outcome = if ok { Ok(()) } else { Err(Code::CoordinatorNotAvailable) };
        self.sim.shard.batch_done(batch, outcome, self.sim.now);
        self.learn();
    }

    fn settle(&mut self) {
        for _ in 0..10_000 {
            self.done(true);
            self.take();
            if self.in_flight.is_none() {
                return;
            }
        }
        panic!("the queue never empties");
    }

    fn run(&mut self, op: Op) {
        let now = self.sim.now;
        let name = |group: u8| Text::from(format!("s{group}"));
        match op {
            Op::Join { who, instance, topics, version } => {
                self.join(who, instance, topics, version)
            }
            Op::Sync { who } => self.sync(who),
            Op::Heartbeat { who } => {
                let client = self.clients[who].clone();
                let id = client.id.unwrap_or_else(|| "x".into());
                self.sim.heartbeat(&id, client.generation);
            }
            Op::Leave { who } => {
                let client = self.clients[who].clone();
                let id = client.id.unwrap_or_else(|| "x".into());
                self.sim.ask_leave(&[(&id, client.instance.as_deref())]);
            }
            Op::Commit { who, partition, offset } => {
                let client = self.clients[who].clone();
                let id = client.id.unwrap_or_else(|| "x".into());
                let mut request = commit_request(&id, client.generation, offset);
                request.offsets[0].partition = partition;
                self.sim.ask_commit(&request);
            }
            Op::CommitSimple { group, partition, offset } => {
                let mut request = commit_request("", -1, offset);
                request.group_id = name(group);
                request.offsets[0].partition = partition;
                self.sim.ask_commit(&request);
            }
            Op::Delete { group } => {
                let token = self.sim.token();
                let id = if group == 0 { "g".into() } else { name(group) };
                self.sim.shard.delete(&id, token);
            }
            Op::DeleteOffset { group, partition } => {
                let token = self.sim.token();
                self.sim.shard.delete_offsets(&name(group), &[("t".into(), partition)], token);
            }
            Op::TopicDeleted { topic } => {
                self.sim.shard.topic_deleted(&"t".into(), TopicId([7 + topic; 16]));
            }
            Op::Advance { ms } => {
                self.sim.now.mono_ms += ms;
                self.sim.now.wall_ms += ms as i64;
                self.sim.shard.tick(self.sim.now);
            }
            Op::Take => self.take(),
            Op::Done { ok } => self.done(ok),
            Op::Progress => self.progress(),
            Op::Snapshot => self.sim.shard.start_snapshot(),
            Op::Reload => {
                self.settle();
                let log = &self.sim.log[self.log_start..];
                let fold = fold_of(log);
                assert_eq!(fold, *self.sim.shard.fold(), "replay");
                self.sim.shard = Shard::new(self.sim.config.clone(), fold, now);
                self.clients.iter_mut().for_each(|client| client.waiting = None);
            }
        }
        self.learn();
    }

    fn join(&mut self, who: usize, instance: Option<u8>, topics: u8, version: i16) {
        if self.clients[who].waiting.is_some() && self.asked.is_multiple_of(3) {
            // Most clients wait patiently.
            return;
        }
        self.asked += 1;
        let client = &mut self.clients[who];
        let instance = instance.map(|i| Text::from(format!("i{i}")));
        let id = if client.instance == instance { client.id.clone() } else { None };
        client.instance = instance.clone();
        let mut request = join_request(&id.unwrap_or_else(|| "".into()));
        request.version = version;
        request.group_instance_id = instance;
        request.protocols[0].1 = subscription(if topics == 0 { &["t"] } else { &["t", "u"] });
        let token = self.sim.ask_join(&request);
        self.clients[who].waiting = Some(token);
    }

    fn progress(&mut self) {
        for _ in 0..2 {
            for who in 0..3 {
                if self.clients[who].waiting.is_none() {
                    self.join(who, None, 0, 9);
                    self.learn();
                }
            }
        }
        self.run(Op::Advance { ms: 3_000 });
        self.run(Op::Advance { ms: 3_000 });
        (0..self.clients.len()).for_each(|who| self.sync(who));
        self.settle();
    }

    fn sync(&mut self, who: usize) {
        let client = self.clients[who].clone();
        let Some(id) = client.id else { return };
        let plan = client.everyone.iter().map(|id| (&**id, id.as_bytes()));
        let plan: Vec<_> = if client.leads { plan.collect() } else { Vec::new() };
        self.sim.ask_sync(&id, client.generation, &plan);
    }

    /// Replays in every way give the live state.
    fn check(&mut self) {
        let live = self.sim.shard.fold().clone();
        assert_eq!(fold_of(&self.sim.log), live, "whole log");
        let kept = &self.sim.log[self.log_start..];
        assert_eq!(fold_of(kept), live, "from the last snapshot");
        assert_eq!(fold_of(kept.iter().chain(kept)), live, "replayed twice");
        assert_eq!(
            fold_of(self.sim.log.iter().chain(kept)),
            live,
            "snapshot on top of the old log"
        );
        let reloaded = Shard::new(self.sim.config.clone(), live, self.sim.now);
        reloaded.assert_invariants();
        // A group that is stable and stored is the same group after loading.
        let group = self.sim.shard.group("g").filter(|group| group.state() == State::Stable);
        if group.is_some() {
            let g = "g".into();
            assert_eq!(reloaded.describe(&g).members, self.sim.shard.describe(&g).members);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn replay_gives_the_live_state(ops in ops()) {
        let mut world = World::new();
        for op in ops {
            world.run(op);
        }
        world.settle();
        world.check();
        world.sim.shard.start_snapshot();
        world.settle();
        world.check();
        // When everybody is silent long enough, nobody waits and nothing is left.
        for _ in 0..40 {
            world.run(Op::Advance { ms: 600_000 });
            world.settle();
        }
        for client in &world.clients {
            prop_assert!(client.waiting.is_none(), "{client:?}");
        }
        for _ in 0..3 {
            world.run(Op::Advance { ms: 700_000_000 });
            world.settle();
        }
        world.check();
        prop_assert_eq!(world.sim.shard.bytes(), 0);
    }

    #[test]
    fn random_bytes_are_never_taken_for_more_than_they_are(
        kind in 0..3i16,
        version in 0..5i16,
        rest in proptest::collection::vec(any::<u8>(), 0..200),
    ) {
        let key = [&kind.to_be_bytes()[..], &[0, 1, b'g', 0, 1, b't', 0, 0, 0, 1]].concat();
        let key = if kind == 2 { &key[..5] } else { &key[..] };
        let value = [&version.to_be_bytes()[..], &rest].concat();
        if let Ok(record) = Record::decode(key, Some(&value)) {
            // What is read can be written, and reads back the same.
            let (key, value) = record.encode().unwrap();
            let again = Record::decode(&key, value.as_deref()).unwrap();
            let fields = |record: &Record| match record {
                Record::Offset { value: Some(v), .. } => (v.offset, v.metadata.len(), v.commit_ms),
                Record::Group { value: Some(v), .. } => {
                    (i64::from(v.generation), v.members.len(), 0)
                }
                _ => (0, 0, 0),
            };
            prop_assert_eq!(fields(&record), fields(&again));
        }
    }

    #[test]
    fn snapshots_are_bounded_by_the_live_state(commits in 1..400usize, partitions in 1..5i32) {
        let mut world = World::new();
        for offset in 0..commits {
            let mut request = commit_request("", -1, offset as i64);
            request.offsets[0].partition = offset as i32 % partitions;
            world.sim.ask_commit(&request);
        }
        world.settle();
        world.sim.shard.start_snapshot();
        world.settle();
        let kept = world.sim.log.len() - world.log_start;
        prop_assert_eq!(kept, commits.min(partitions as usize));
    }
}
