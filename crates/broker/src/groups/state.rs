//! One group of the classic protocol: its members and what they wait for. Pure: time comes in as
//! [`Now`], what must happen outside goes out as [`Effects`]. The transitions are in `rebalance`.
//!
//! ```text
//! Empty ──join──> PreparingRebalance ──all joined, or time is up──> CompletingRebalance
//!   ^                │   ^                                             │ leader's SyncGroup durable
//!   └─all left───────┘   └──── join, leave, silence ──── Stable <──────┘
//! any ──deletion──> Dead
//! ```
//!
//! Invariants: a token is answered once; `awaiting_join` counts the members with a join token;
//! `supporters` counts, per protocol, the members that list it; the leader is a member; an instance
//! id maps to a member that carries it; members and pending members have a session deadline.

use std::collections::{BTreeMap, BTreeSet};

use super::api::{
    Blob, Code, DescribedMember, JoinMember, JoinResponse, LeaveResponse, SyncResponse, Text,
};
use super::records::{StoredGroup, StoredMember, subscribed_topics};
use super::timers::{Timer, Timers};

/// The present, as an event brings it.
#[derive(Clone, Copy, Debug)]
pub struct Now {
    /// Monotonic milliseconds, for deadlines.
    pub mono_ms: u64,
    /// Wall time, milliseconds since the Unix epoch, for timestamps.
    pub wall_ms: i64,
}

/// A waiting request, opaque to the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub u64);

/// What a waiting request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// To JoinGroup.
    Join(JoinResponse),
    /// To SyncGroup.
    Sync(SyncResponse),
    /// To LeaveGroup.
    Leave(LeaveResponse),
    /// To OffsetCommit and OffsetDelete: one code per partition, in order.
    Codes(Vec<Code>),
    /// To the deletion of one group.
    Code(Code),
}

/// What goes on when a generation is durable, or was refused.
#[derive(Clone, Debug)]
pub enum Then {
    /// Nothing.
    Nothing,
    /// Hand out the assignments, if the group is still at this generation.
    Assign {
        /// When the leader sent them.
        generation: i32,
        /// By member id.
        assignments: BTreeMap<Text, Blob>,
    },
    /// Answer the static member that came back under a new id.
    StaticReturned(Box<StaticReturn>),
    /// Answer LeaveGroup.
    Leave {
        /// Who waits.
        token: Token,
        /// The answer.
        response: LeaveResponse,
    },
}

/// A static member that came back while the group was stable: enough to undo it.
#[derive(Clone, Debug)]
pub struct StaticReturn {
    pub(super) generation: i32,
    pub(super) version: i16,
    pub(super) token: Token,
    pub(super) instance_id: Text,
    pub(super) old_id: Text,
    pub(super) new_id: Text,
    pub(super) old_leader: Text,
    pub(super) old: Terms,
}

/// What an event leads to, in order.
#[derive(Debug, Default)]
pub struct Effects {
    /// Answers.
    pub replies: Vec<(Token, Reply)>,
    /// Generations to append, each with what follows.
    pub writes: Vec<(StoredGroup, Then)>,
}

impl Effects {
    pub(super) fn join(&mut self, token: Token, response: JoinResponse) {
        self.replies.push((token, Reply::Join(response)));
    }

    pub(super) fn join_error(&mut self, token: Token, code: Code, member_id: Text) {
        self.join(token, JoinResponse::error(code, member_id));
    }

    pub(super) fn sync(&mut self, token: Token, response: SyncResponse) {
        self.replies.push((token, Reply::Sync(response)));
    }
}

/// The states, with Kafka's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "drawn above")]
pub enum State {
    Empty,
    PreparingRebalance,
    CompletingRebalance,
    Stable,
    Dead,
}

impl State {
    /// Kafka's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Empty => "Empty",
            Self::PreparingRebalance => "PreparingRebalance",
            Self::CompletingRebalance => "CompletingRebalance",
            Self::Stable => "Stable",
            Self::Dead => "Dead",
        }
    }
}

/// What a member asks for with each JoinGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Terms {
    pub(super) protocols: Vec<(Text, Blob)>,
    pub(super) rebalance_timeout_ms: i32,
    pub(super) session_timeout_ms: i32,
}

impl Terms {
    pub(super) fn metadata(&self, protocol: Option<&str>) -> Blob {
        let found = self.protocols.iter().find(|(name, _)| Some(&**name) == protocol);
        found.map_or_else(|| Blob::from([]), |(_, metadata)| metadata.clone())
    }

    /// The protocol names, each once.
    fn names(&self) -> BTreeSet<&Text> {
        self.protocols.iter().map(|(name, _)| name).collect()
    }
}

#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) instance_id: Option<Text>,
    pub(super) client_id: Text,
    pub(super) client_host: Text,
    pub(super) terms: Terms,
    pub(super) assignment: Blob,
    pub(super) join: Option<Token>,
    pub(super) sync: Option<Token>,
    /// Has not seen an answer to its first join yet: it cannot send heartbeats, so the deadline
    /// counts even while it waits.
    pub(super) is_new: bool,
}

impl Member {
    pub(super) fn bytes(&self, id: &str) -> usize {
        let texts = self.client_id.len() + self.client_host.len();
        MEMBER_BYTES
            + 2 * id.len()
            + self.instance_id.as_ref().map_or(0, |id| 2 * id.len())
            + texts
            + self.assignment.len()
            + protocols_bytes(&self.terms.protocols)
    }
}

pub(super) fn protocols_bytes(protocols: &[(Text, Blob)]) -> usize {
    protocols.iter().map(|(name, data)| 64 + name.len() + data.len()).sum()
}

/// Fixed cost of a member in the byte count: map nodes, timers, counters.
pub(super) const MEMBER_BYTES: usize = 512;

/// One group. See the module.
#[derive(Clone, Debug)]
pub struct Group {
    pub(super) id: Text,
    pub(super) state: State,
    pub(super) previous: State,
    pub(super) state_since_ms: Option<i64>,
    pub(super) protocol_type: Option<Text>,
    pub(super) protocol: Option<Text>,
    pub(super) generation: i32,
    pub(super) leader: Option<Text>,
    pub(super) members: BTreeMap<Text, Member>,
    pub(super) statics: BTreeMap<Text, Text>,
    pub(super) pending: BTreeSet<Text>,
    pub(super) pending_sync: BTreeSet<Text>,
    pub(super) supporters: BTreeMap<Text, usize>,
    pub(super) awaiting_join: usize,
    /// A member came during the initial delay: wait on.
    pub(super) new_member_added: bool,
    /// During the initial delay: its length and how much longer it may be prolonged, in ms.
    pub(super) initial_delay: Option<(u64, u64)>,
    pub(super) subscribed: Option<BTreeSet<Text>>,
    pub(super) timers: Timers,
    pub(super) bytes: usize,
}

impl Group {
    /// An empty group that nothing is stored of.
    pub fn new(id: Text) -> Self {
        let bytes = MEMBER_BYTES + 2 * id.len();
        Self {
            id,
            state: State::Empty,
            previous: State::Dead,
            state_since_ms: None,
            protocol_type: None,
            protocol: None,
            generation: 0,
            leader: None,
            members: BTreeMap::new(),
            statics: BTreeMap::new(),
            pending: BTreeSet::new(),
            pending_sync: BTreeSet::new(),
            supporters: BTreeMap::new(),
            awaiting_join: 0,
            new_member_added: false,
            initial_delay: None,
            subscribed: None,
            timers: Timers::default(),
            bytes,
        }
    }

    /// The group as it was stored; session deadlines start anew (E-G2).
    pub fn from_stored(id: Text, stored: &StoredGroup, now: Now) -> Self {
        let mut group = Self::new(id);
        group.generation = stored.generation;
        group.protocol_type = Some(stored.protocol_type.clone()).filter(|kind| !kind.is_empty());
        group.protocol = stored.protocol.clone();
        group.state_since_ms = Some(stored.state_since_ms).filter(|ms| *ms != -1);
        let protocol = stored.protocol.clone().unwrap_or_else(|| "".into());
        for stored in &stored.members {
            let member = Member {
                instance_id: stored.group_instance_id.clone(),
                client_id: stored.client_id.clone(),
                client_host: stored.client_host.clone(),
                terms: Terms {
                    protocols: vec![(protocol.clone(), stored.subscription.clone())],
                    rebalance_timeout_ms: stored.rebalance_timeout_ms,
                    session_timeout_ms: stored.session_timeout_ms,
                },
                assignment: stored.assignment.clone(),
                join: None,
                sync: None,
                is_new: false,
            };
            group.schedule_session(&stored.member_id, stored.session_timeout_ms, now);
            group.insert(stored.member_id.clone(), member);
        }
        let leader = stored.leader.as_ref().filter(|id| group.members.contains_key(*id)).cloned();
        group.leader = leader.or_else(|| group.members.keys().next().cloned());
        if !group.members.is_empty() {
            group.state = State::Stable;
        }
        group.subscribed = group.compute_subscribed();
        group
    }

    /// The group as it is now, for the log: with `assignments`, or those the members have.
    pub(super) fn to_stored(&self, assignments: Option<&BTreeMap<Text, Blob>>) -> StoredGroup {
        let protocol = self.protocol.as_deref();
        let members = self.members.iter().map(|(id, member)| StoredMember {
            member_id: id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            rebalance_timeout_ms: member.terms.rebalance_timeout_ms,
            session_timeout_ms: member.terms.session_timeout_ms,
            subscription: member.terms.metadata(protocol),
            assignment: match assignments {
                None => member.assignment.clone(),
                Some(all) => all.get(id).cloned().unwrap_or_else(|| Blob::from([])),
            },
        });
        StoredGroup {
            protocol_type: self.protocol_type.clone().unwrap_or_else(|| "".into()),
            generation: self.generation,
            protocol: self.protocol.clone(),
            leader: self.leader.clone(),
            state_since_ms: self.state_since_ms.unwrap_or(-1),
            members: members.collect(),
        }
    }

    /// The present state.
    pub fn state(&self) -> State {
        self.state
    }

    /// The generation.
    pub fn generation(&self) -> i32 {
        self.generation
    }

    /// The protocol type; none in a group that never had a member.
    pub fn protocol_type(&self) -> Option<&Text> {
        self.protocol_type.as_ref()
    }

    /// When something falls due next, in monotonic milliseconds.
    pub fn next_deadline(&self) -> Option<u64> {
        self.timers.next()
    }

    /// About how much memory the group takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// About how much a member takes.
    pub(super) fn member_bytes(&self, id: &str) -> usize {
        self.members.get(id).map_or(0, |member| member.bytes(id))
    }

    /// Bytes of all assignments.
    pub(super) fn assignment_bytes(&self) -> usize {
        self.members.values().map(|member| member.assignment.len()).sum()
    }

    /// Nobody is in it or about to be.
    pub fn is_vacant(&self) -> bool {
        self.state == State::Empty && self.members.is_empty() && self.pending.is_empty()
    }

    /// The members, for DescribeGroups: subscriptions and assignments of a stable group only.
    pub fn describe(&self) -> (Text, Vec<DescribedMember>) {
        let stable = self.state == State::Stable;
        let protocol = self.protocol.as_deref();
        let members = self.members.iter().map(|(id, member)| DescribedMember {
            member_id: id.clone(),
            group_instance_id: member.instance_id.clone(),
            client_id: member.client_id.clone(),
            client_host: member.client_host.clone(),
            metadata: member.terms.metadata(protocol.filter(|_| stable)),
            assignment: if stable { member.assignment.clone() } else { Blob::from([]) },
        });
        let data = self.protocol.clone().filter(|_| stable).unwrap_or_else(|| "".into());
        (data, members.collect())
    }

    /// Whether a member reads `topic`, as far as is known. A consumer group whose subscriptions
    /// cannot be read counts as subscribed to everything.
    pub fn is_subscribed_to(&self, topic: &str) -> bool {
        match &self.subscribed {
            Some(topics) => topics.contains(topic),
            None => self.is_consumer(),
        }
    }

    /// Whether the members speak the consumers' protocol.
    pub fn is_consumer(&self) -> bool {
        self.protocol_type.as_deref() == Some("consumer")
    }

    /// The wall time from which retention counts, for an offset committed at `commit_ms`; `None`
    /// while offsets do not expire (KIP-211).
    pub fn expiry_base_ms(&self, commit_ms: i64) -> Option<i64> {
        match (self.protocol_type.is_some(), self.state) {
            (true, State::Empty) => Some(self.state_since_ms.unwrap_or(commit_ms)),
            (true, State::Stable) if self.is_consumer() && self.subscribed.is_some() => {
                Some(commit_ms)
            }
            (true, _) => None,
            (false, _) => Some(commit_ms),
        }
    }

    pub(super) fn compute_subscribed(&self) -> Option<BTreeSet<Text>> {
        if !self.is_consumer() {
            return None;
        }
        if self.members.is_empty() {
            return Some(BTreeSet::new());
        }
        let protocol = self.protocol.as_deref()?;
        let mut topics = BTreeSet::new();
        for member in self.members.values() {
            topics.extend(subscribed_topics(&member.terms.metadata(Some(protocol)))?);
        }
        Some(topics)
    }

    pub(super) fn transition(&mut self, state: State, now: Now) {
        self.previous = self.state;
        self.state = state;
        self.state_since_ms = Some(now.wall_ms);
    }

    pub(super) fn schedule_session(&mut self, id: &Text, timeout_ms: i32, now: Now) {
        let at_ms = now.mono_ms.saturating_add(u64::try_from(timeout_ms).unwrap_or(0));
        self.timers.schedule(Timer::Session(id.clone()), at_ms);
    }

    /// Starts the member's session anew.
    pub(super) fn touch(&mut self, id: &Text, now: Now) {
        if let Some(member) = self.members.get(id) {
            let timeout_ms = member.terms.session_timeout_ms;
            self.schedule_session(id, timeout_ms, now);
        }
    }

    pub(super) fn is_leader(&self, id: &str) -> bool {
        self.leader.as_deref() == Some(id)
    }

    /// The longest rebalance timeout of the members.
    pub(super) fn rebalance_timeout_ms(&self) -> u64 {
        let longest = self.members.values().map(|member| member.terms.rebalance_timeout_ms).max();
        u64::try_from(longest.unwrap_or(0)).unwrap_or(0)
    }

    pub(super) fn all_joined(&self) -> bool {
        self.members.len() == self.awaiting_join && self.pending.is_empty()
    }

    pub(super) fn supports(&self, protocol_type: &str, protocols: &[(Text, Blob)]) -> bool {
        if self.state == State::Empty {
            return !protocol_type.is_empty() && !protocols.is_empty();
        }
        let everyone = self.members.len();
        self.protocol_type.as_deref() == Some(protocol_type)
            && protocols
                .iter()
                .any(|(name, _)| self.supporters.get(name).copied().unwrap_or(0) == everyone)
    }

    /// UNKNOWN_MEMBER_ID or FENCED_INSTANCE_ID, if the ids are not those of a member.
    pub(super) fn check_member(&self, id: &str, instance_id: Option<&Text>) -> Result<(), Code> {
        if let Some(instance_id) = instance_id {
            let current = self.statics.get(instance_id).ok_or(Code::UnknownMemberId)?;
            if **current != *id {
                return Err(Code::FencedInstanceId);
            }
        }
        if self.members.contains_key(id) { Ok(()) } else { Err(Code::UnknownMemberId) }
    }

    pub(super) fn insert(&mut self, id: Text, member: Member) {
        for name in member.terms.names() {
            *self.supporters.entry(name.clone()).or_default() += 1;
        }
        if self.leader.is_none() {
            self.leader = Some(id.clone());
        }
        if let Some(instance_id) = &member.instance_id {
            self.statics.insert(instance_id.clone(), id.clone());
        }
        if self.pending.remove(&id) {
            self.bytes -= pending_bytes(&id);
        }
        self.awaiting_join += usize::from(member.join.is_some());
        self.bytes += member.bytes(&id);
        // Ids of new members are fresh, and a stored generation names each once; if not, the last wins.
        if let Some(old) = self.members.insert(id.clone(), member) {
            self.uncount(&id, &old);
        }
    }

    /// Takes back what [`Group::insert`] counted, the instance id aside.
    fn uncount(&mut self, id: &Text, member: &Member) {
        for name in member.terms.names() {
            if let Some(count) = self.supporters.get_mut(name) {
                *count = count.saturating_sub(1);
                if *count == 0 {
                    self.supporters.remove(name);
                }
            }
        }
        self.awaiting_join -= usize::from(member.join.is_some());
        self.bytes = self.bytes.saturating_sub(member.bytes(id));
    }

    /// Takes out a member or pending member. Its tokens, if any, are the caller's to answer.
    pub(super) fn take(&mut self, id: &Text) -> Option<Member> {
        let member = self.members.remove(id);
        if let Some(member) = &member {
            self.uncount(id, member);
            if let Some(instance_id) = &member.instance_id
                && self.statics.get(instance_id) == Some(id)
            {
                self.statics.remove(instance_id);
            }
        }
        if self.is_leader(id) {
            self.leader = self.members.keys().next().cloned();
        }
        if self.pending.remove(id) {
            self.bytes -= pending_bytes(id);
        }
        self.pending_sync.remove(id);
        self.timers.cancel(&Timer::Session(id.clone()));
        member
    }

    pub(super) fn add_pending(&mut self, id: Text) {
        self.bytes += pending_bytes(&id);
        self.pending.insert(id);
    }

    /// Forgets all pending members.
    pub(super) fn drop_pending(&mut self) {
        for id in self.pending.clone() {
            self.take(&id);
        }
    }

    /// Changes a member in place, keeping all counts.
    pub(super) fn update(&mut self, id: &Text, change: impl FnOnce(&mut Member)) {
        if let Some(mut member) = self.members.remove(id) {
            self.uncount(id, &member);
            change(&mut member);
            self.insert(id.clone(), member);
        }
    }

    /// The members as the leader sees them.
    pub(super) fn join_members(&self) -> Vec<JoinMember> {
        let protocol = self.protocol.as_deref();
        let members = self.members.iter().map(|(id, member)| JoinMember {
            member_id: id.clone(),
            group_instance_id: member.instance_id.clone(),
            metadata: member.terms.metadata(protocol),
        });
        members.collect()
    }

    /// The answer that puts a member into the present generation.
    pub(super) fn joined(&self, id: &Text) -> JoinResponse {
        JoinResponse {
            code: Code::None,
            generation_id: self.generation,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            leader: self.leader.clone().unwrap_or_else(|| "".into()),
            skip_assignment: false,
            member_id: id.clone(),
            members: if self.is_leader(id) { self.join_members() } else { Vec::new() },
        }
    }

    /// Each member votes for its first protocol that all support; the most votes win, the first name
    /// among equals.
    pub(super) fn select_protocol(&self) -> Option<Text> {
        let everyone = self.members.len();
        let mut votes = BTreeMap::<&Text, usize>::new();
        for member in self.members.values() {
            let by_all = |name: &&Text| self.supporters.get(*name) == Some(&everyone);
            let vote = member.terms.protocols.iter().map(|(name, _)| name).find(by_all);
            *votes.entry(vote?).or_default() += 1;
        }
        let most = votes.values().copied().max()?;
        votes.into_iter().find(|(_, count)| *count == most).map(|(name, _)| name.clone())
    }

    /// Checks what the module promises.
    #[cfg(test)]
    pub(super) fn assert_invariants(&self) {
        let waiting = self.members.values().filter(|member| member.join.is_some()).count();
        assert_eq!(self.awaiting_join, waiting);
        let mut supporters = BTreeMap::<Text, usize>::new();
        for name in self.members.values().flat_map(|member| member.terms.names()) {
            *supporters.entry(name.clone()).or_default() += 1;
        }
        assert_eq!(self.supporters, supporters);
        let instances = self.members.iter().filter_map(|(id, member)| {
            member.instance_id.clone().map(|instance| (instance, id.clone()))
        });
        assert_eq!(self.statics, instances.collect());
        assert_eq!(self.leader.is_some(), !self.members.is_empty());
        assert!(self.leader.iter().all(|id| self.members.contains_key(id)));
        assert!(self.pending_sync.iter().all(|id| self.members.contains_key(id)));
        let members = self.members.iter().map(|(id, member)| member.bytes(id)).sum::<usize>();
        let pending = self.pending.iter().map(|id| pending_bytes(id)).sum::<usize>();
        assert_eq!(self.bytes, MEMBER_BYTES + 2 * self.id.len() + members + pending);
        assert!(self.timers.len() <= self.members.len() + self.pending.len() + 2);
        assert_eq!(self.members.is_empty(), !self.members.keys().any(|_| true));
        match self.state {
            State::Empty | State::Dead => assert!(self.members.is_empty()),
            State::CompletingRebalance | State::Stable => assert!(!self.members.is_empty()),
            State::PreparingRebalance => {}
        }
    }
}

fn pending_bytes(id: &str) -> usize {
    MEMBER_BYTES + 2 * id.len()
}
