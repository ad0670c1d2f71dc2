//! All groups of one partition of `__consumer_offsets`, without I/O and without a clock.
//!
//! Events come in as calls with the present time; answers collect in [`Shard::take_replies`], records
//! to append in a queue that [`Shard::take_batch`] empties. Whoever drives a shard has at most one
//! batch in flight and reports its outcome with [`Shard::batch_done`].
//!
//! Invariants: the [`Fold`] takes a record over only when its batch is durable; OffsetFetch and
//! snapshots read nothing else; answers that promise durability follow it; a group that is being
//! deleted is `Dead` until the outcome is known, so nothing can be committed behind its tombstones.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::api::{
    Code, HeartbeatRequest, JoinRequest, JoinResponse, LeaveMember, LeaveResponse, SyncRequest,
    SyncResponse, Text,
};
use super::fold::{Fold, SnapshotCursor, offset_bytes};
use super::join::Join;
use super::memory::{Account, GroupMemory};
use super::records::{Record, TEXT_MAX_BYTES};
use super::state::{Effects, Group, Now, Reply, State, Then, Token, protocols_bytes};

mod admin;
mod offsets;

/// Limits and times. The first six are Kafka's settings.
#[derive(Clone, Debug)]
pub struct Config {
    /// `group.min.session.timeout.ms`, inclusive.
    pub min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`, inclusive.
    pub max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub initial_rebalance_delay_ms: u64,
    /// `group.max.size`, in members.
    pub group_max_size: usize,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offset.metadata.max.bytes` (Kafka counts UTF-16 units, and so do we).
    pub offset_metadata_max_bytes: usize,
    /// Between two looks for expired offsets.
    pub retention_check_interval_ms: u64,
    /// Groups of one partition; beyond it new ones are refused with POLICY_VIOLATION.
    pub max_groups: usize,
    /// Memory of one group's members; beyond it joins are refused with GROUP_MAX_SIZE_REACHED.
    pub max_group_bytes: usize,
    /// Memory of one partition; beyond it new groups, members and offsets are refused.
    pub max_bytes: usize,
    /// Memory of all partitions; the same. Clones of a configuration share it.
    pub memory: Arc<GroupMemory>,
    /// `offsets.commit.timeout.ms`: how long a write is waited for.
    pub commit_timeout: Duration,
    /// Largest value that the log takes.
    pub max_record_bytes: usize,
    /// Bytes of keys and values of one append, about.
    pub max_batch_bytes: usize,
    /// Appended bytes after which a snapshot is due (E-G2).
    pub snapshot_every_bytes: u64,
    /// Bytes of a snapshot that go into one append, about.
    pub snapshot_chunk_bytes: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            min_session_timeout_ms: 6_000,
            max_session_timeout_ms: 1_800_000,
            initial_rebalance_delay_ms: 3_000,
            group_max_size: i32::MAX as usize,
            offsets_retention_ms: 7 * 24 * 3_600_000,
            offset_metadata_max_bytes: 4_096,
            retention_check_interval_ms: 600_000,
            max_groups: 100_000,
            max_group_bytes: 8 << 20,
            max_bytes: 256 << 20,
            memory: Arc::new(GroupMemory::new(256 << 20, 16 << 20)),
            commit_timeout: Duration::from_secs(5),
            max_record_bytes: 1_000_000,
            max_batch_bytes: 512 << 10,
            snapshot_every_bytes: 64 << 20,
            snapshot_chunk_bytes: 128 << 10,
        }
    }
}

/// Records that belong together, and what follows their outcome.
#[derive(Debug)]
struct Write {
    group: Text,
    records: Vec<Record>,
    after: After,
}

#[derive(Debug)]
enum After {
    Group(Then),
    /// An OffsetCommit or OffsetDelete: answer these codes, or the failure where they say none.
    Codes {
        token: Token,
        codes: Vec<Code>,
        commits: bool,
    },
    /// Somebody asked for the deletion of the group, or it expired.
    Deleted {
        token: Option<Token>,
    },
    /// Offsets were removed; nobody waits.
    Removed,
}

/// Records to append as one batch, in order.
#[derive(Debug)]
pub struct Batch {
    /// Encoded keys and values.
    pub records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    /// Bytes of all keys and values.
    pub bytes: u64,
    /// Those of them that only repeat what is durable.
    pub snapshot_bytes: u64,
    /// The batch begins with the first records of a snapshot: what lies before it can go when the
    /// snapshot is complete.
    pub starts_snapshot: bool,
    /// With this batch durable the snapshot is complete.
    pub ends_snapshot: bool,
    cursor: Option<SnapshotCursor>,
    writes: Vec<Write>,
}

#[derive(Debug)]
struct Entry {
    group: Group,
    /// Writes of the group that are queued or in flight.
    writes: usize,
    /// Commits of them, by partition.
    commits: BTreeMap<(Text, i32), usize>,
    deadline: Option<u64>,
    bytes: usize,
}

/// See the module.
#[derive(Debug)]
pub struct Shard {
    config: Config,
    fold: Fold,
    groups: BTreeMap<Text, Entry>,
    deadlines: BTreeSet<(u64, Text)>,
    next_expiry_ms: u64,
    queue: VecDeque<Write>,
    queued_bytes: usize,
    snapshot: Option<SnapshotCursor>,
    replies: Vec<(Token, Reply)>,
    group_bytes: usize,
    account: Account,
}

impl Shard {
    /// Takes over what a log says. Sessions start now (E-G2).
    pub fn new(config: Config, fold: Fold, now: Now) -> Self {
        let mut shard = Self {
            next_expiry_ms: now.mono_ms.saturating_add(config.retention_check_interval_ms),
            account: Account::new(Arc::clone(&config.memory)),
            config,
            fold: Fold::default(),
            groups: BTreeMap::new(),
            deadlines: BTreeSet::new(),
            queue: VecDeque::new(),
            queued_bytes: 0,
            snapshot: None,
            replies: Vec::new(),
            group_bytes: 0,
        };
        for (id, keys) in fold.groups() {
            let group = match &keys.generation {
                Some(stored) => Group::from_stored(id.clone(), stored, now),
                None => Group::new(id.clone()),
            };
            shard.add_group(group);
        }
        shard.fold = fold;
        shard.account.set(shard.bytes());
        for id in shard.groups.keys().cloned().collect::<Vec<_>>() {
            shard.with_group(&id, |group, config, fx| group.loaded(config, now, fx));
        }
        shard
    }

    /// What the log says.
    pub fn fold(&self) -> &Fold {
        &self.fold
    }

    /// A group's present state.
    pub fn group(&self, id: &str) -> Option<&Group> {
        self.groups.get(id).map(|entry| &entry.group)
    }

    /// Answers since the last call, in order.
    pub fn take_replies(&mut self) -> Vec<(Token, Reply)> {
        std::mem::take(&mut self.replies)
    }

    /// When [`Shard::tick`] is due, in monotonic milliseconds.
    pub fn next_deadline(&self) -> u64 {
        let group = self.deadlines.first().map_or(u64::MAX, |(at_ms, _)| *at_ms);
        group.min(self.next_expiry_ms)
    }

    /// Handles everything that is due.
    pub fn tick(&mut self, now: Now) {
        // Each round handles a group that was due when the call began; what it sets anew can wait.
        for _ in 0..self.deadlines.len() {
            let Some((at_ms, id)) = self.deadlines.first().cloned() else { break };
            if at_ms > now.mono_ms {
                break;
            }
            self.with_group(&id, |group, config, fx| group.tick(config, now, fx));
        }
        if self.next_expiry_ms <= now.mono_ms {
            let every_ms = self.config.retention_check_interval_ms.max(1);
            self.next_expiry_ms = now.mono_ms.saturating_add(every_ms);
            self.expire(now);
        }
    }

    // ---- membership

    /// JoinGroup. `new_id` is a fresh member id, used when the request has none.
    pub fn join(&mut self, request: &JoinRequest, new_id: Text, token: Token, now: Now) {
        let member_id = &request.member_id;
        if let Some(code) = self.refuses_join(request) {
            let response = JoinResponse::error(code, member_id.clone());
            return self.replies.push((token, Reply::Join(response)));
        }
        if !self.groups.contains_key(&request.group_id) {
            let code = match member_id.is_empty() {
                true => self.refuses_group(),
                false => Some(Code::UnknownMemberId),
            };
            if let Some(code) = code {
                let response = JoinResponse::error(code, member_id.clone());
                return self.replies.push((token, Reply::Join(response)));
            }
            self.add_group(Group::new(request.group_id.clone()));
        }
        let join = Join { request, new_id, token, now };
        self.with_group(&request.group_id, |group, config, fx| group.join(config, &join, fx));
    }

    fn refuses_join(&self, request: &JoinRequest) -> Option<Code> {
        let session = self.config.min_session_timeout_ms..=self.config.max_session_timeout_ms;
        let protocols = request.protocols.iter().map(|(name, _)| name);
        let mut texts = [&request.group_id, &request.protocol_type, &request.client_id]
            .into_iter()
            .chain([&request.member_id, &request.client_host])
            .chain(&request.group_instance_id)
            .chain(protocols);
        if request.group_id.is_empty() {
            Some(Code::InvalidGroupId)
        } else if !session.contains(&request.session_timeout_ms) {
            Some(Code::InvalidSessionTimeout)
        } else if texts.any(|text| text.len() > TEXT_MAX_BYTES) {
            Some(Code::InvalidRequest)
        } else if self.is_full() && !self.groups.contains_key(&request.group_id) {
            Some(Code::PolicyViolation)
        } else if (self.is_full() && request.member_id.is_empty()) || self.refuses_growth(request) {
            Some(Code::GroupMaxSizeReached)
        } else {
            None
        }
    }

    /// Whether a member joins with more than there is room for.
    fn refuses_growth(&self, request: &JoinRequest) -> bool {
        let group = self.group(&request.group_id);
        let present = group.map_or(0, |group| group.member_bytes(&request.member_id));
        self.is_growth_refused(protocols_bytes(&request.protocols), present)
    }

    /// Whether what is there may not grow from `present` bytes to `next`.
    fn is_growth_refused(&self, next: usize, present: usize) -> bool {
        next > present && self.account.memory().is_beyond(next - present)
    }

    /// Too many groups for one more?
    fn refuses_group(&self) -> Option<Code> {
        let full = self.groups.len() >= self.config.max_groups || self.is_full();
        if full {
            let (groups, bytes) = (self.groups.len(), self.bytes());
            tracing::debug!(groups, bytes, "new group refused: there is no room for more");
        }
        full.then_some(Code::PolicyViolation)
    }

    fn is_full(&self) -> bool {
        self.bytes() >= self.config.max_bytes || self.account.memory().is_full()
    }

    /// About how much memory groups and offsets take.
    pub fn bytes(&self) -> usize {
        self.group_bytes + self.fold.bytes()
    }

    /// SyncGroup.
    pub fn sync(&mut self, request: &SyncRequest, token: Token, now: Now) {
        let sent = request.assignments.iter().map(|(_, assignment)| assignment.len()).sum();
        let present = self.group(&request.group_id).map_or(0, Group::assignment_bytes);
        let code = match self.groups.contains_key(&request.group_id) {
            _ if request.group_id.is_empty() => Code::InvalidGroupId,
            // While the log stands still, the same assignment may be sent again and again.
            _ if sent > 0 && self.account.memory().is_queue_full() => Code::CoordinatorNotAvailable,
            _ if self.is_growth_refused(sent, present) => Code::CoordinatorNotAvailable,
            true => {
                return self.with_group(&request.group_id, |group, config, fx| {
                    group.sync(config, request, token, now, fx);
                });
            }
            false => Code::UnknownMemberId,
        };
        self.replies.push((token, Reply::Sync(SyncResponse::error(code))));
    }

    /// Heartbeat.
    pub fn heartbeat(&mut self, request: &HeartbeatRequest, now: Now) -> Code {
        if request.group_id.is_empty() {
            return Code::InvalidGroupId;
        }
        let mut code = Code::UnknownMemberId;
        self.with_group(&request.group_id, |group, _, _| code = group.heartbeat(request, now));
        code
    }

    /// LeaveGroup.
    pub fn leave(&mut self, group_id: &Text, members: &[LeaveMember], token: Token, now: Now) {
        let response = match self.groups.contains_key(group_id) {
            _ if group_id.is_empty() => LeaveResponse::error(Code::InvalidGroupId),
            true => {
                return self.with_group(group_id, |group, config, fx| {
                    group.leave(config, members, token, now, fx);
                });
            }
            false => LeaveResponse {
                code: Code::None,
                members: vec![Code::UnknownMemberId; members.len()],
            },
        };
        self.replies.push((token, Reply::Leave(response)));
    }

    // ---- the log

    /// Starts a snapshot with the next batch; without effect while one runs.
    pub fn start_snapshot(&mut self) {
        self.snapshot.get_or_insert_default();
    }

    /// Whether a snapshot is under way.
    pub fn is_snapshotting(&self) -> bool {
        self.snapshot.is_some()
    }

    /// Whether [`Shard::take_batch`] has something to give.
    pub fn has_batch(&self) -> bool {
        self.snapshot.is_some() || !self.queue.is_empty()
    }

    /// The next records to append. None may be in flight: a snapshot's records repeat what is
    /// durable, so nothing newer may stand before them.
    pub fn take_batch(&mut self, now: Now) -> Option<Batch> {
        let mut batch = Batch {
            records: Vec::new(),
            bytes: 0,
            snapshot_bytes: 0,
            starts_snapshot: false,
            ends_snapshot: false,
            cursor: None,
            writes: Vec::new(),
        };
        if let Some(cursor) = &self.snapshot {
            batch.starts_snapshot = *cursor == SnapshotCursor::default();
            let mut cursor = cursor.clone();
            let chunk = self.fold.snapshot_chunk(&mut cursor, self.config.snapshot_chunk_bytes);
            batch.ends_snapshot = chunk.is_empty();
            batch.push(&chunk);
            batch.snapshot_bytes = batch.bytes;
            batch.cursor = Some(cursor);
        }
        while batch.bytes - batch.snapshot_bytes < self.config.max_batch_bytes as u64
            && let Some(write) = self.queue.pop_front()
        {
            self.queued_bytes = self.queued_bytes.saturating_sub(write.bytes());
            self.account.set_queued(self.queued_bytes);
            if batch.push(&write.records) {
                batch.writes.push(write);
            } else {
                self.finish(write, Err(Code::UnknownServerError), now);
            }
        }
        let empty = batch.records.is_empty() && batch.cursor.is_none();
        (!empty).then_some(batch)
    }

    /// The outcome of a batch: durable, or `Err` with what to answer when it is certain that no
    /// record of it is or will be in the log. (An unknown outcome ends the shard.)
    pub fn batch_done(&mut self, batch: Batch, outcome: Result<(), Code>, now: Now) {
        if outcome.is_ok() && self.snapshot.is_some() && batch.cursor.is_some() {
            self.snapshot = if batch.ends_snapshot { None } else { batch.cursor };
        }
        for write in batch.writes {
            self.finish(write, outcome, now);
        }
    }

    fn finish(&mut self, write: Write, outcome: Result<(), Code>, now: Now) {
        let Write { group: id, records, after } = write;
        if let Some(entry) = self.groups.get_mut(&id) {
            entry.writes = entry.writes.saturating_sub(1);
            if matches!(after, After::Codes { commits: true, .. }) {
                entry.release(&records);
            }
        }
        if outcome.is_ok() {
            records.into_iter().for_each(|record| self.fold.apply(record));
        }
        match after {
            After::Group(then) => {
                return self.with_group(&id, |group, config, fx| {
                    group.written(config, then, outcome, now, fx);
                });
            }
            After::Codes { token, mut codes, .. } => {
                if let Err(failure) = outcome {
                    codes.iter_mut().filter(|c| **c == Code::None).for_each(|c| *c = failure);
                }
                self.replies.push((token, Reply::Codes(codes)));
            }
            After::Deleted { token } => {
                if let Some(entry) = self.groups.get_mut(&id) {
                    entry.group.state = State::Empty;
                    if outcome.is_ok() {
                        // Forgotten below, unless tombstones of a deleted topic are still queued.
                        entry.group = Group::new(id.clone());
                    }
                }
                let code = outcome.err().unwrap_or(Code::None);
                self.replies.extend(token.map(|token| (token, Reply::Code(code))));
            }
            After::Removed => {}
        }
        self.settle(&id);
    }

    fn enqueue(&mut self, group: Text, records: Vec<Record>, after: After) {
        if let Some(entry) = self.groups.get_mut(&group) {
            entry.writes += 1;
            if matches!(after, After::Codes { commits: true, .. }) {
                entry.hold(&records);
            }
        }
        let write = Write { group, records, after };
        self.queued_bytes += write.bytes();
        self.account.set_queued(self.queued_bytes);
        self.queue.push_back(write);
    }

    // ---- the table

    fn add_group(&mut self, group: Group) {
        let id = group.id.clone();
        let commits = BTreeMap::new();
        let entry = Entry { group, writes: 0, commits, deadline: None, bytes: 0 };
        self.groups.insert(id.clone(), entry);
        self.index(&id);
    }

    fn remove_group(&mut self, id: &Text) {
        let Some(entry) = self.groups.remove(id) else { return };
        self.group_bytes -= entry.bytes;
        self.account.set(self.bytes());
        if let Some(at_ms) = entry.deadline {
            self.deadlines.remove(&(at_ms, id.clone()));
        }
    }

    /// Runs one step of a group, if it exists, and takes its effects over.
    fn with_group(&mut self, id: &Text, step: impl FnOnce(&mut Group, &Config, &mut Effects)) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let mut fx = Effects::default();
        step(&mut entry.group, &self.config, &mut fx);
        self.replies.extend(fx.replies);
        for (value, then) in fx.writes {
            let record = Record::Group { group: id.clone(), value: Some(value) };
            self.enqueue(id.clone(), vec![record], After::Group(then));
        }
        self.settle(id);
    }

    /// Forgets a group that leaves no trace, else keeps its deadline and size.
    fn settle(&mut self, id: &Text) {
        let Some(entry) = self.groups.get(id) else { return };
        if entry.writes == 0 && entry.group.is_vacant() && self.fold.group(id).is_none() {
            self.remove_group(id);
        } else {
            self.index(id);
        }
    }

    fn index(&mut self, id: &Text) {
        let Some(entry) = self.groups.get_mut(id) else { return };
        let deadline = entry.group.next_deadline();
        if deadline != entry.deadline {
            if let Some(at_ms) = entry.deadline {
                self.deadlines.remove(&(at_ms, id.clone()));
            }
            if let Some(at_ms) = deadline {
                self.deadlines.insert((at_ms, id.clone()));
            }
            entry.deadline = deadline;
        }
        self.group_bytes = self.group_bytes - entry.bytes + entry.group.bytes();
        entry.bytes = entry.group.bytes();
        self.account.set(self.bytes());
    }

    #[cfg(test)]
    pub(super) fn assert_invariants(&self) {
        let mut bytes = 0;
        for (id, entry) in &self.groups {
            entry.group.assert_invariants();
            bytes += entry.group.bytes();
            assert_eq!(entry.deadline, entry.group.next_deadline());
            assert!(entry.deadline.is_none_or(|at| self.deadlines.contains(&(at, id.clone()))));
            let queued = self.queue.iter().filter(|write| write.group == *id).count();
            assert!(queued <= entry.writes);
        }
        assert_eq!(bytes, self.group_bytes);
        assert!(self.account.memory().used_bytes() >= self.bytes());
        assert_eq!(self.deadlines.len(), self.groups.values().filter_map(|e| e.deadline).count());
        assert_eq!(self.queued_bytes, self.queue.iter().map(Write::bytes).sum::<usize>());
        assert!(self.fold.groups().all(|(id, _)| self.groups.contains_key(id)));
    }
}

impl Entry {
    fn hold(&mut self, records: &[Record]) {
        for record in records {
            if let Record::Offset { topic, partition, .. } = record {
                *self.commits.entry((topic.clone(), *partition)).or_default() += 1;
            }
        }
    }

    fn release(&mut self, records: &[Record]) {
        for record in records {
            let Record::Offset { topic, partition, .. } = record else { continue };
            let key = (topic.clone(), *partition);
            let Some(count) = self.commits.get_mut(&key) else { continue };
            *count -= 1;
            if *count == 0 {
                self.commits.remove(&key);
            }
        }
    }
}

impl Write {
    fn bytes(&self) -> usize {
        let bytes = self.records.iter().map(|record| match record {
            Record::Offset { topic, value, .. } => {
                offset_bytes(topic, value.as_ref().map_or("", |value| &value.metadata))
            }
            Record::Group { value, .. } => value.as_ref().map_or(64, |value| {
                let members = value.members.iter();
                64 + members.map(|m| 128 + m.subscription.len() + m.assignment.len()).sum::<usize>()
            }),
            Record::Unknown { .. } => 0,
        });
        bytes.sum()
    }
}

impl Batch {
    /// False, and nothing added, when a record cannot be encoded.
    fn push(&mut self, records: &[Record]) -> bool {
        let encoded: Option<Vec<_>> = records.iter().map(Record::encode).collect();
        let Some(encoded) = encoded else { return false };
        for (key, value) in &encoded {
            self.bytes += (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
        }
        self.records.extend(encoded);
        true
    }
}
