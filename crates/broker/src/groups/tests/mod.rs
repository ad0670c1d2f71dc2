//! Tests of the group machine on a virtual clock, by hand: [`Sim`] is a shard, a log and the answers.

mod admin;
mod coordinator;
mod offsets;
mod property;
mod rebalance;
mod records;
mod statics;

use std::collections::BTreeMap;

use talos_common::TopicId;

use super::api::*;
use super::fold::Fold;
use super::records::Record;
use super::shard::{Config, Shard};
use super::state::{Now, Reply, State, Token};

pub(super) const SESSION_MS: i32 = 10_000;
pub(super) const REBALANCE_MS: i32 = 60_000;

/// A consumer's subscription, version 0.
pub(super) fn subscription(topics: &[&str]) -> Blob {
    let mut bytes = vec![0, 0];
    bytes.extend((topics.len() as u32).to_be_bytes());
    for topic in topics {
        bytes.extend((topic.len() as u16).to_be_bytes());
        bytes.extend(topic.as_bytes());
    }
    bytes.extend((-1i32).to_be_bytes());
    bytes.into()
}

pub(super) fn blob(bytes: &[u8]) -> Blob {
    bytes.into()
}

pub(super) fn join_request(member_id: &str) -> JoinRequest {
    JoinRequest {
        version: 9,
        group_id: "g".into(),
        session_timeout_ms: SESSION_MS,
        rebalance_timeout_ms: REBALANCE_MS,
        member_id: member_id.into(),
        group_instance_id: None,
        protocol_type: "consumer".into(),
        protocols: vec![("range".into(), subscription(&["t"]))],
        client_id: "c".into(),
        client_host: "/127.0.0.1".into(),
    }
}

pub(super) fn commit_request(member_id: &str, generation_id: i32, offset: i64) -> CommitRequest {
    CommitRequest {
        version: 9,
        group_id: "g".into(),
        generation_id,
        member_id: member_id.into(),
        group_instance_id: None,
        retention_ms: -1,
        offsets: vec![CommitOffset {
            topic: "t".into(),
            topic_id: TopicId([7; 16]),
            partition: 0,
            offset,
            leader_epoch: 3,
            metadata: Some("note".into()),
        }],
    }
}

/// Encoded key and value.
pub(super) type Raw = (Vec<u8>, Option<Vec<u8>>);

pub(super) fn fold_of<'a>(log: impl IntoIterator<Item = &'a Raw>) -> Fold {
    let mut fold = Fold::default();
    for (key, value) in log {
        fold.apply(Record::decode(key, value.as_deref()).unwrap());
    }
    fold
}

pub(super) struct Sim {
    pub(super) shard: Shard,
    pub(super) config: Config,
    pub(super) now: Now,
    pub(super) log: Vec<Raw>,
    pub(super) replies: BTreeMap<u64, Reply>,
    next: u64,
}

impl Sim {
    pub(super) fn new() -> Self {
        Self::with(Config::default())
    }

    pub(super) fn with(config: Config) -> Self {
        let now = Now { mono_ms: 0, wall_ms: 1_000_000 };
        let shard = Shard::new(config.clone(), Fold::default(), now);
        Self { shard, config, now, log: Vec::new(), replies: BTreeMap::new(), next: 0 }
    }

    /// Another coordinator on the same log.
    pub(super) fn reload(&mut self) {
        self.shard = Shard::new(self.config.clone(), fold_of(&self.log), self.now);
        self.collect();
    }

    pub(super) fn token(&mut self) -> Token {
        self.next += 1;
        Token(self.next)
    }

    pub(super) fn collect(&mut self) {
        for (token, reply) in self.shard.take_replies() {
            assert!(self.replies.insert(token.0, reply).is_none(), "answered twice");
        }
        self.shard.assert_invariants();
    }

    /// Appends what waits, until nothing does.
    pub(super) fn flush(&mut self) {
        while let Some(batch) = self.shard.take_batch(self.now) {
            self.log.extend(batch.records.iter().cloned());
            self.shard.batch_done(batch, Ok(()), self.now);
            self.collect();
        }
    }

    /// The log refuses what waits.
    pub(super) fn refuse(&mut self) {
        let batch = self.shard.take_batch(self.now).expect("something to append");
        self.shard.batch_done(batch, Err(Code::CoordinatorNotAvailable), self.now);
        self.collect();
    }

    /// Lets time pass, stopping at each deadline; appends are durable at once.
    pub(super) fn advance(&mut self, ms: u64) {
        let end = self.now.mono_ms + ms;
        loop {
            let next = self.shard.next_deadline().max(self.now.mono_ms).min(end);
            self.now.wall_ms += (next - self.now.mono_ms) as i64;
            self.now.mono_ms = next;
            self.shard.tick(self.now);
            self.collect();
            self.flush();
            if self.now.mono_ms == end && self.shard.next_deadline() > end {
                return;
            }
        }
    }

    pub(super) fn ask_join(&mut self, request: &JoinRequest) -> u64 {
        let token = self.token();
        let new_id = format!("{}-{}", request.client_id, token.0);
        self.shard.join(request, new_id.into(), token, self.now);
        self.collect();
        token.0
    }

    pub(super) fn joined(&self, token: u64) -> &JoinResponse {
        match self.replies.get(&token) {
            Some(Reply::Join(response)) => response,
            other => panic!("no join answer to {token}: {other:?}"),
        }
    }

    pub(super) fn waits(&self, token: u64) -> bool {
        !self.replies.contains_key(&token)
    }

    /// Gets a member id (version 4 and up), then waits to join. The member id and the token.
    pub(super) fn start(&mut self) -> (Text, u64) {
        let first = self.ask_join(&join_request(""));
        assert_eq!(self.joined(first).code, Code::MemberIdRequired);
        let id = self.joined(first).member_id.clone();
        let token = self.ask_join(&join_request(&id));
        (id, token)
    }

    pub(super) fn ask_sync(
        &mut self,
        id: &str,
        generation_id: i32,
        assignments: &[(&str, &[u8])],
    ) -> u64 {
        let token = self.token();
        let request = SyncRequest {
            group_id: "g".into(),
            generation_id,
            member_id: id.into(),
            group_instance_id: None,
            protocol_type: Some("consumer".into()),
            protocol_name: Some("range".into()),
            assignments: assignments.iter().map(|(id, a)| ((*id).into(), blob(a))).collect(),
        };
        self.shard.sync(&request, token, self.now);
        self.collect();
        token.0
    }

    pub(super) fn synced(&self, token: u64) -> (Code, &[u8]) {
        match self.replies.get(&token) {
            Some(Reply::Sync(response)) => (response.code, &response.assignment),
            other => panic!("no sync answer to {token}: {other:?}"),
        }
    }

    pub(super) fn heartbeat(&mut self, id: &str, generation_id: i32) -> Code {
        let request = HeartbeatRequest {
            group_id: "g".into(),
            generation_id,
            member_id: id.into(),
            group_instance_id: None,
        };
        let code = self.shard.heartbeat(&request, self.now);
        self.collect();
        code
    }

    pub(super) fn ask_leave(&mut self, members: &[(&str, Option<&str>)]) -> u64 {
        let token = self.token();
        let leaving: Vec<_> = members
            .iter()
            .map(|(id, instance)| LeaveMember {
                member_id: (*id).into(),
                group_instance_id: instance.map(Text::from),
            })
            .collect();
        self.shard.leave(&"g".into(), &leaving, token, self.now);
        self.collect();
        token.0
    }

    pub(super) fn left(&self, token: u64) -> &LeaveResponse {
        match self.replies.get(&token) {
            Some(Reply::Leave(response)) => response,
            other => panic!("no leave answer to {token}: {other:?}"),
        }
    }

    pub(super) fn ask_commit(&mut self, request: &CommitRequest) -> u64 {
        let token = self.token();
        self.shard.commit(request, token, self.now);
        self.collect();
        token.0
    }

    pub(super) fn codes(&self, token: u64) -> &[Code] {
        match self.replies.get(&token) {
            Some(Reply::Codes(codes)) => codes,
            other => panic!("no codes for {token}: {other:?}"),
        }
    }

    /// Commits and gives the code of the first offset.
    pub(super) fn commit(&mut self, id: &str, generation: i32, offset: i64) -> Code {
        let token = self.ask_commit(&commit_request(id, generation, offset));
        self.flush();
        self.codes(token)[0]
    }

    /// The offset of `t-0`.
    pub(super) fn fetched(&self) -> i64 {
        let topic =
            FetchTopic { topic: "t".into(), topic_id: TopicId([7; 16]), partitions: vec![0] };
        let request =
            FetchRequest { group_id: "g".into(), topics: Some(vec![topic]), require_stable: true };
        self.shard.fetch(&request)[0].offset
    }

    pub(super) fn delete(&mut self) -> Code {
        let token = self.token();
        self.shard.delete(&"g".into(), token);
        self.collect();
        self.flush();
        match self.replies.get(&token.0) {
            Some(Reply::Code(code)) => *code,
            other => panic!("{other:?}"),
        }
    }

    pub(super) fn state(&self) -> Option<State> {
        self.shard.group("g").map(|group| group.state())
    }

    /// A stable group of `count` dynamic members at generation 1, each assigned its index. The
    /// first id is the leader's.
    pub(super) fn stable(&mut self, count: usize) -> Vec<Text> {
        let members: Vec<_> = (0..count).map(|_| self.start()).collect();
        self.advance(self.config.initial_rebalance_delay_ms);
        self.advance(self.config.initial_rebalance_delay_ms);
        self.finish(&members)
    }

    /// Syncs everybody who joined with `members`' tokens. The leader's id comes first.
    pub(super) fn finish(&mut self, members: &[(Text, u64)]) -> Vec<Text> {
        let first = self.joined(members[0].1).clone();
        assert_eq!(first.code, Code::None);
        let plan: Vec<(Text, [u8; 1])> =
            members.iter().enumerate().map(|(i, (id, _))| (id.clone(), [i as u8])).collect();
        let plan: Vec<(&str, &[u8])> = plan.iter().map(|(id, a)| (&**id, &a[..])).collect();
        let mut waiting = Vec::new();
        for (id, token) in members {
            let joined = self.joined(*token).clone();
            assert_eq!((joined.code, &joined.member_id), (Code::None, id));
            let plan = if joined.leader == *id { &plan[..] } else { &[] };
            waiting.push(self.ask_sync(id, joined.generation_id, plan));
        }
        self.flush();
        for (index, token) in waiting.into_iter().enumerate() {
            assert_eq!(self.synced(token), (Code::None, &[index as u8][..]));
        }
        assert_eq!(self.state(), Some(State::Stable));
        let mut ids: Vec<_> = members.iter().map(|(id, _)| id.clone()).collect();
        ids.sort_by_key(|id| *id != first.leader);
        ids
    }
}
