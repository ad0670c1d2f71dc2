//! The transitions of one group: joins, syncs, heartbeats, departures, deadlines and the outcome of
//! writes. The rules are Apache Kafka's; where an order of steps matters it is its order.
//!
//! Two differences, both only in what a client could never see there: a request that its own member
//! replaces or leaves behind is answered (Kafka forgets it), and sizes are bounded in bytes.

use std::collections::BTreeMap;

use super::api::{
    Blob, Code, HeartbeatRequest, JoinRequest, JoinResponse, LeaveMember, LeaveResponse,
    SyncRequest, SyncResponse, Text,
};
use super::records::Record;
use super::shard::Config;
use super::state::{
    Effects, Group, MEMBER_BYTES, Member, Now, Reply, State, StaticReturn, Terms, Then, Token,
};
use super::timers::Timer;

/// Kafka removes a new member that has not seen the answer to its first join for so long.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1000;

/// A JoinGroup on its way through the group.
pub(super) struct Join<'a> {
    pub(super) request: &'a JoinRequest,
    /// Fresh; used when the request has none.
    pub(super) new_id: Text,
    pub(super) token: Token,
    pub(super) now: Now,
}

impl Join<'_> {
    fn terms(&self) -> Terms {
        let request = self.request;
        Terms {
            protocols: request.protocols.clone(),
            rebalance_timeout_ms: match request.version {
                0 => request.session_timeout_ms,
                _ => request.rebalance_timeout_ms,
            },
            session_timeout_ms: request.session_timeout_ms,
        }
    }

    fn bytes(&self) -> usize {
        let request = self.request;
        let protocols = request.protocols.iter().map(|(name, data)| 64 + name.len() + data.len());
        let ids = request.member_id.len().max(self.new_id.len())
            + request.group_instance_id.as_ref().map_or(0, |id| id.len());
        MEMBER_BYTES
            + 2 * ids
            + request.client_id.len()
            + request.client_host.len()
            + protocols.sum::<usize>()
    }
}

impl Group {
    /// JoinGroup: answered now or when the join phase ends.
    pub(super) fn join(&mut self, config: &Config, join: &Join<'_>, fx: &mut Effects) {
        let request = join.request;
        let id = &request.member_id;
        if self.state == State::Dead {
            return fx.join_error(join.token, Code::CoordinatorNotAvailable, id.clone());
        }
        if !self.accepts(config, join) {
            if self.state == State::PreparingRebalance {
                self.evict(id, fx);
            }
            return fx.join_error(join.token, Code::GroupMaxSizeReached, "".into());
        }
        if !self.supports(&request.protocol_type, &request.protocols) {
            return fx.join_error(join.token, Code::InconsistentGroupProtocol, id.clone());
        }
        if id.is_empty() {
            self.join_new(config, join, fx);
        } else {
            self.join_known(config, join, fx);
        }
    }

    /// Room for the member, in number and in bytes. While members join, those that wait count: who
    /// is slow to come back may lose its place when the limit was lowered.
    fn accepts(&self, config: &Config, join: &Join<'_>) -> bool {
        let member = self.members.get(&join.request.member_id);
        let max = config.group_max_size;
        let counted = match self.state {
            State::Empty | State::Dead => true,
            State::PreparingRebalance => {
                member.is_some_and(|member| member.join.is_some()) || self.awaiting_join < max
            }
            State::CompletingRebalance | State::Stable => {
                member.is_some() || self.members.len() < max
            }
        };
        // Who is in already is not counted twice.
        let instance_id = join.request.group_instance_id.as_ref();
        let known =
            instance_id.and_then(|id| self.statics.get(id)).unwrap_or(&join.request.member_id);
        let present = self.members.get(known).map_or(0, |member| member.bytes(known));
        counted && self.bytes - present + join.bytes() <= config.max_group_bytes
    }

    fn join_new(&mut self, config: &Config, join: &Join<'_>, fx: &mut Effects) {
        let request = join.request;
        let old = request.group_instance_id.as_ref().and_then(|id| self.statics.get(id)).cloned();
        match (&request.group_instance_id, old) {
            (Some(instance_id), Some(old_id)) => {
                self.static_returns(config, join, instance_id, &old_id, fx);
            }
            (None, _) if request.version >= 4 => {
                // A member whose answer is lost would join again and again: it shows first that the
                // answer reaches it, and until then costs little and expires (KIP-394).
                let id = &join.new_id;
                self.add_pending(id.clone());
                self.schedule_session(id, request.session_timeout_ms, join.now);
                fx.join_error(join.token, Code::MemberIdRequired, id.clone());
            }
            _ => self.add_member(config, join, join.new_id.clone(), fx),
        }
    }

    fn join_known(&mut self, config: &Config, join: &Join<'_>, fx: &mut Effects) {
        let id = &join.request.member_id;
        let instance_id = join.request.group_instance_id.as_ref();
        if self.pending.contains(id) {
            if instance_id.is_some() {
                return fx.join_error(join.token, Code::UnknownServerError, id.clone());
            }
            return self.add_member(config, join, id.clone(), fx);
        }
        if let Err(code) = self.check_member(id, instance_id) {
            return fx.join_error(join.token, code, id.clone());
        }
        let same = self
            .members
            .get(id)
            .is_some_and(|member| member.terms.protocols == join.request.protocols);
        match self.state {
            // It may not have seen the answer to its first join: tell it again.
            State::CompletingRebalance if same => fx.join(join.token, self.joined(id)),
            // A follower learns the present generation; the leader may know of new partitions, so it
            // always starts a rebalance.
            State::Stable if same && !self.is_leader(id) => fx.join(join.token, self.joined(id)),
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {
                self.set_terms(id, join, fx);
                self.rebalance_or_complete(config, join.now, fx);
            }
            State::Empty | State::Dead => {
                fx.join_error(join.token, Code::UnknownMemberId, id.clone());
            }
        }
    }

    /// The member waits with new terms; a request it left waiting is superseded.
    fn set_terms(&mut self, id: &Text, join: &Join<'_>, fx: &mut Effects) {
        let mut superseded = None;
        self.update(id, |member| {
            member.terms = join.terms();
            superseded = member.join.replace(join.token);
        });
        if let Some(token) = superseded {
            fx.join_error(token, Code::RebalanceInProgress, id.clone());
        }
    }

    fn add_member(&mut self, config: &Config, join: &Join<'_>, id: Text, fx: &mut Effects) {
        let request = join.request;
        if self.state == State::PreparingRebalance && self.previous == State::Empty {
            self.new_member_added = true;
        }
        if self.members.is_empty() {
            self.protocol_type = Some(request.protocol_type.clone());
        }
        let member = Member {
            instance_id: request.group_instance_id.clone(),
            client_id: request.client_id.clone(),
            client_host: request.client_host.clone(),
            terms: join.terms(),
            assignment: Blob::from([]),
            join: Some(join.token),
            sync: None,
            is_new: true,
        };
        self.insert(id.clone(), member);
        // It cannot send heartbeats yet, and its connection may be gone while it waits (R19).
        self.schedule_session(&id, NEW_MEMBER_JOIN_TIMEOUT_MS, join.now);
        self.rebalance_or_complete(config, join.now, fx);
    }

    /// A static member came back without its member id: it takes over its own place.
    fn static_returns(
        &mut self,
        config: &Config,
        join: &Join<'_>,
        instance_id: &Text,
        old_id: &Text,
        fx: &mut Effects,
    ) {
        let new_id = join.new_id.clone();
        let old_leader = self.leader.clone().unwrap_or_else(|| "".into());
        let Some(old) = self.rename(old_id, &new_id, fx) else { return };
        self.update(&new_id, |member| {
            member.terms = join.terms();
            member.join = Some(join.token);
        });
        self.schedule_session(&new_id, old.session_timeout_ms, join.now);
        match self.state {
            State::Stable if self.select_protocol() == self.protocol => {
                let then = StaticReturn {
                    generation: self.generation,
                    version: join.request.version,
                    token: join.token,
                    instance_id: instance_id.clone(),
                    old_id: old_id.clone(),
                    new_id,
                    old_leader,
                    old,
                };
                fx.writes.push((self.to_stored(None), Then::StaticReturned(Box::new(then))));
            }
            State::Stable => self.rebalance_or_complete(config, join.now, fx),
            // The leader may already be assigning to the old id.
            State::CompletingRebalance => self.prepare(config, join.now, fx),
            State::PreparingRebalance => self.maybe_complete(join.now, fx),
            State::Empty | State::Dead => {}
        }
    }

    /// Moves a static member to another id, fencing whoever waits under the old one. Returns its
    /// terms.
    fn rename(&mut self, old_id: &Text, new_id: &Text, fx: &mut Effects) -> Option<Terms> {
        let was_leader = self.is_leader(old_id);
        let mut member = self.take(old_id)?;
        if let Some(token) = member.join.take() {
            fx.join_error(token, Code::FencedInstanceId, old_id.clone());
        }
        if let Some(token) = member.sync.take() {
            fx.sync(token, SyncResponse::error(Code::FencedInstanceId));
        }
        member.is_new = false;
        let terms = member.terms.clone();
        self.insert(new_id.clone(), member);
        if was_leader {
            self.leader = Some(new_id.clone());
        }
        Some(terms)
    }

    /// SyncGroup: answered now or when the assignment is durable.
    pub(super) fn sync(
        &mut self,
        config: &Config,
        request: &SyncRequest,
        token: Token,
        now: Now,
        fx: &mut Effects,
    ) {
        let id = &request.member_id;
        let refused = self.check_sync(request).err();
        if let Some(code) = refused {
            return fx.sync(token, SyncResponse::error(code));
        }
        self.pending_sync.remove(id);
        if self.pending_sync.is_empty() {
            self.timers.cancel(&Timer::Sync);
        }
        if self.state == State::Stable {
            return fx.sync(token, self.synced(id));
        }
        let mut superseded = None;
        self.update(id, |member| superseded = member.sync.replace(token));
        if let Some(token) = superseded {
            fx.sync(token, SyncResponse::error(Code::RebalanceInProgress));
        }
        if self.is_leader(id) {
            self.assign(config, request, now, fx);
        }
    }

    fn check_sync(&self, request: &SyncRequest) -> Result<(), Code> {
        let differs = |asked: &Option<Text>, ours: &Option<Text>| matches!((asked, ours), (Some(asked), Some(ours)) if asked != ours);
        match self.state {
            State::Dead => return Err(Code::CoordinatorNotAvailable),
            State::Empty => return Err(Code::UnknownMemberId),
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {}
        }
        self.check_member(&request.member_id, request.group_instance_id.as_ref())?;
        if request.generation_id != self.generation {
            Err(Code::IllegalGeneration)
        } else if differs(&request.protocol_type, &self.protocol_type)
            || differs(&request.protocol_name, &self.protocol)
        {
            Err(Code::InconsistentGroupProtocol)
        } else if self.state == State::PreparingRebalance {
            Err(Code::RebalanceInProgress)
        } else {
            Ok(())
        }
    }

    /// The leader's assignments go to the log first, then to the members.
    fn assign(&mut self, config: &Config, request: &SyncRequest, now: Now, fx: &mut Effects) {
        let mut assignments = BTreeMap::<Text, Blob>::new();
        for (id, assignment) in &request.assignments {
            // Only members count; whatever else the leader names is dropped.
            if self.members.contains_key(id) {
                assignments.insert(id.clone(), assignment.clone());
            }
        }
        let sent = assignments.values().map(|assignment| assignment.len()).sum::<usize>();
        let stored = self.to_stored(Some(&assignments));
        let record = Record::Group { group: self.id.clone(), value: Some(stored.clone()) };
        let size = record.encode().map_or(usize::MAX, |(_, value)| value.map_or(0, |v| v.len()));
        if size > config.max_record_bytes || self.bytes + sent > config.max_group_bytes {
            tracing::warn!(group = %self.id, bytes = size, "group too large for one record");
            self.fail_assignment(Code::UnknownServerError, now, fx);
            return self.rebalance_or_complete(config, now, fx);
        }
        fx.writes.push((stored, Then::Assign { generation: self.generation, assignments }));
    }

    fn synced(&self, id: &Text) -> SyncResponse {
        let assignment = self.members.get(id).map(|member| member.assignment.clone());
        SyncResponse {
            code: Code::None,
            protocol_type: self.protocol_type.clone(),
            protocol_name: self.protocol.clone(),
            assignment: assignment.unwrap_or_else(|| Blob::from([])),
        }
    }

    /// Takes all assignments back and tells those that wait for one.
    fn fail_assignment(&mut self, code: Code, now: Now, fx: &mut Effects) {
        self.set_assignments(&BTreeMap::new());
        self.answer_syncs(now, fx, |_, _| SyncResponse::error(code));
    }

    fn set_assignments(&mut self, assignments: &BTreeMap<Text, Blob>) {
        let ids = self.members.keys().cloned().collect::<Vec<_>>();
        for id in ids {
            let assignment = assignments.get(&id).cloned().unwrap_or_else(|| Blob::from([]));
            self.update(&id, |member| member.assignment = assignment);
        }
    }

    fn answer_syncs(
        &mut self,
        now: Now,
        fx: &mut Effects,
        answer: impl Fn(&Self, &Text) -> SyncResponse,
    ) {
        let waiting = self.members.iter_mut().filter_map(|(id, member)| {
            let token = member.sync.take()?;
            Some((id.clone(), token))
        });
        for (id, token) in waiting.collect::<Vec<_>>() {
            fx.sync(token, answer(self, &id));
            // Its deadline did not count while it waited.
            self.touch(&id, now);
        }
    }

    /// Heartbeat: answered now.
    pub(super) fn heartbeat(&mut self, request: &HeartbeatRequest, now: Now) -> Code {
        if self.state == State::Dead {
            return Code::CoordinatorNotAvailable;
        }
        let id = &request.member_id;
        if let Err(code) = self.check_member(id, request.group_instance_id.as_ref()) {
            return code;
        }
        if request.generation_id != self.generation {
            return Code::IllegalGeneration;
        }
        match self.state {
            State::Empty | State::Dead => return Code::UnknownMemberId,
            State::PreparingRebalance | State::CompletingRebalance | State::Stable => {}
        }
        self.touch(id, now);
        match self.state {
            State::PreparingRebalance => Code::RebalanceInProgress,
            _ => Code::None,
        }
    }

    /// LeaveGroup: answered now, or when the emptied group is durable.
    pub(super) fn leave(
        &mut self,
        config: &Config,
        leaving: &[LeaveMember],
        token: Token,
        now: Now,
        fx: &mut Effects,
    ) {
        if self.state == State::Dead {
            let response = LeaveResponse::error(Code::CoordinatorNotAvailable);
            return fx.replies.push((token, Reply::Leave(response)));
        }
        let members: Vec<_> = leaving.iter().map(|member| self.leave_one(member, fx)).collect();
        let writes = fx.writes.len();
        if members.contains(&Code::None) {
            match self.state {
                State::Stable | State::CompletingRebalance => {
                    self.rebalance_or_complete(config, now, fx);
                }
                State::PreparingRebalance => self.maybe_complete(now, fx),
                State::Empty | State::Dead => {}
            }
        }
        let response = LeaveResponse { code: Code::None, members };
        match fx.writes.get_mut(writes) {
            Some((_, then)) => *then = Then::Leave { token, response },
            None => fx.replies.push((token, Reply::Leave(response))),
        }
    }

    fn leave_one(&mut self, leaving: &LeaveMember, fx: &mut Effects) -> Code {
        let id = &leaving.member_id;
        let instance_id = leaving.group_instance_id.as_ref();
        if id.is_empty() {
            // An administrator removes a static member by its instance id alone.
            let current = instance_id.and_then(|instance_id| self.statics.get(instance_id));
            let Some(current) = current.cloned() else { return Code::UnknownMemberId };
            self.evict(&current, fx);
            return Code::None;
        }
        if !self.pending.contains(id)
            && let Err(code) = self.check_member(id, instance_id)
        {
            return code;
        }
        self.evict(id, fx);
        Code::None
    }

    /// Removes a member or pending member, answering what it waits for.
    fn evict(&mut self, id: &Text, fx: &mut Effects) {
        let Some(member) = self.take(id) else { return };
        if let Some(token) = member.join {
            fx.join_error(token, Code::UnknownMemberId, "".into());
        }
        if let Some(token) = member.sync {
            fx.sync(token, SyncResponse::error(Code::UnknownMemberId));
        }
    }

    fn rebalance_or_complete(&mut self, config: &Config, now: Now, fx: &mut Effects) {
        match self.state {
            State::Empty | State::CompletingRebalance | State::Stable => {
                self.prepare(config, now, fx);
            }
            State::PreparingRebalance => self.maybe_complete(now, fx),
            State::Dead => {}
        }
    }

    /// A group that was stored with more members than are allowed now starts a rebalance.
    pub(super) fn loaded(&mut self, config: &Config, now: Now, fx: &mut Effects) {
        if self.members.len() > config.group_max_size {
            self.prepare(config, now, fx);
        }
    }

    /// Begins a rebalance.
    fn prepare(&mut self, config: &Config, now: Now, fx: &mut Effects) {
        if self.state == State::CompletingRebalance {
            self.fail_assignment(Code::RebalanceInProgress, now, fx);
        }
        self.pending_sync.clear();
        self.timers.cancel(&Timer::Sync);
        let initial = self.state == State::Empty;
        self.transition(State::PreparingRebalance, now);
        if initial {
            // The first members of a group usually start together: wait for more of them.
            let delay_ms = config.initial_rebalance_delay_ms;
            let remaining_ms = self.rebalance_timeout_ms().saturating_sub(delay_ms);
            self.new_member_added = false;
            self.initial_delay = Some((delay_ms, remaining_ms));
            self.timers.schedule(Timer::Join, now.mono_ms.saturating_add(delay_ms));
        } else if self.all_joined() {
            self.complete_join(now, fx);
        } else {
            self.schedule_join(now);
        }
    }

    fn schedule_join(&mut self, now: Now) {
        let at_ms = now.mono_ms.saturating_add(self.rebalance_timeout_ms());
        self.timers.schedule(Timer::Join, at_ms);
    }

    fn maybe_complete(&mut self, now: Now, fx: &mut Effects) {
        let joining = self.state == State::PreparingRebalance && self.previous != State::Empty;
        if joining && self.all_joined() {
            self.complete_join(now, fx);
        }
    }

    /// Ends the join phase: who did not come back is out (static members keep their place until
    /// their session ends), the rest is the next generation.
    fn complete_join(&mut self, now: Now, fx: &mut Effects) {
        self.timers.cancel(&Timer::Join);
        self.initial_delay = None;
        let missing = |member: &Member| member.join.is_none() && member.instance_id.is_none();
        let late = self.members.iter().filter(|(_, member)| missing(member));
        for id in late.map(|(id, _)| id.clone()).collect::<Vec<_>>() {
            self.evict(&id, fx);
        }
        if !self.elect_joined_leader() && !self.members.is_empty() {
            // Only static members, none of them back: wait on until their sessions end.
            return self.schedule_join(now);
        }
        self.generation = self.generation.checked_add(1).unwrap_or(0);
        self.pending_sync.clear();
        if self.members.is_empty() {
            self.protocol = None;
            self.transition(State::Empty, now);
            self.subscribed = self.compute_subscribed();
            return fx.writes.push((self.to_stored(None), Then::Nothing));
        }
        self.protocol = self.select_protocol();
        self.transition(State::CompletingRebalance, now);
        self.subscribed = self.compute_subscribed();
        for id in self.members.keys().cloned().collect::<Vec<_>>() {
            let mut waiting = None;
            self.update(&id, |member| {
                waiting = member.join.take();
                member.is_new = false;
            });
            if let Some(token) = waiting {
                fx.join(token, self.joined(&id));
            }
            self.touch(&id, now);
            self.pending_sync.insert(id);
        }
        let at_ms = now.mono_ms.saturating_add(self.rebalance_timeout_ms());
        self.timers.schedule(Timer::Sync, at_ms);
    }

    /// Keeps the leader if it is back, else takes the first that is. False: nobody is.
    fn elect_joined_leader(&mut self) -> bool {
        let back = |member: &Member| member.join.is_some();
        if self.leader.as_ref().and_then(|id| self.members.get(id)).is_some_and(back) {
            return true;
        }
        let first = self.members.iter().find(|(_, member)| back(member));
        let Some(id) = first.map(|(id, _)| id.clone()) else { return false };
        self.leader = Some(id);
        true
    }

    /// Handles everything that is due.
    pub(super) fn tick(&mut self, config: &Config, now: Now, fx: &mut Effects) {
        // Timers that a step sets anew lie in the future, or are bounded by what is left to remove.
        let mut rounds = 2 * (self.members.len() + self.pending.len()) + 4;
        while rounds > 0
            && let Some(timer) = self.timers.pop_due(now.mono_ms)
        {
            rounds -= 1;
            match timer {
                Timer::Join => self.join_time_is_up(config, now, fx),
                Timer::Sync => self.sync_time_is_up(config, now, fx),
                Timer::Session(id) => self.session_ended(config, &id, now, fx),
            }
        }
    }

    fn join_time_is_up(&mut self, config: &Config, now: Now, fx: &mut Effects) {
        if self.state != State::PreparingRebalance {
            return;
        }
        match self.initial_delay {
            Some((delay_ms, remaining_ms)) if self.new_member_added && remaining_ms > 0 => {
                self.new_member_added = false;
                let next_ms = config.initial_rebalance_delay_ms.min(remaining_ms);
                self.initial_delay = Some((next_ms, remaining_ms.saturating_sub(delay_ms)));
                self.timers.schedule(Timer::Join, now.mono_ms.saturating_add(next_ms));
            }
            _ => self.complete_join(now, fx),
        }
    }

    fn sync_time_is_up(&mut self, config: &Config, now: Now, fx: &mut Effects) {
        let expected = matches!(self.state, State::CompletingRebalance | State::Stable);
        if !expected || self.pending_sync.is_empty() {
            return;
        }
        for id in std::mem::take(&mut self.pending_sync) {
            self.evict(&id, fx);
        }
        self.prepare(config, now, fx);
    }

    fn session_ended(&mut self, config: &Config, id: &Text, now: Now, fx: &mut Effects) {
        let Some(member) = self.members.get(id) else {
            if self.pending.contains(id) {
                self.evict(id, fx);
                if self.state == State::PreparingRebalance && self.all_joined() {
                    self.complete_join(now, fx);
                }
            }
            return;
        };
        // Who waits for us is not silent; its deadline starts anew with the answer.
        if !member.is_new && (member.join.is_some() || member.sync.is_some()) {
            return;
        }
        tracing::info!(group = %self.id, member = %id, "member removed: its session ended");
        self.evict(id, fx);
        match self.state {
            State::Stable | State::CompletingRebalance => {
                self.rebalance_or_complete(config, now, fx);
            }
            State::PreparingRebalance if self.all_joined() => self.complete_join(now, fx),
            _ => {}
        }
    }

    /// The outcome of a write: durable, or refused with `Err` (definitely not in the log).
    pub(super) fn written(
        &mut self,
        config: &Config,
        then: Then,
        outcome: Result<(), Code>,
        now: Now,
        fx: &mut Effects,
    ) {
        match (then, outcome) {
            (Then::Nothing, _) => {}
            (Then::Leave { token, response }, outcome) => {
                let response = outcome.map_or_else(LeaveResponse::error, |()| response);
                fx.replies.push((token, Reply::Leave(response)));
            }
            (Then::Assign { generation, assignments }, outcome) => {
                // The group may have gone on while the write was under way.
                if self.state != State::CompletingRebalance || generation != self.generation {
                    return;
                }
                match outcome {
                    Ok(()) => {
                        self.set_assignments(&assignments);
                        self.answer_syncs(now, fx, Self::synced);
                        self.transition(State::Stable, now);
                    }
                    Err(code) => {
                        self.fail_assignment(code, now, fx);
                        self.rebalance_or_complete(config, now, fx);
                    }
                }
            }
            (Then::StaticReturned(then), outcome) => self.static_returned(*then, outcome, now, fx),
        }
    }

    fn static_returned(
        &mut self,
        then: StaticReturn,
        outcome: Result<(), Code>,
        now: Now,
        fx: &mut Effects,
    ) {
        let id = &then.new_id;
        let waits = self.members.get(id).is_some_and(|member| member.join == Some(then.token));
        if !waits || self.state != State::Stable || self.generation != then.generation {
            // A rebalance took the member along, or it is gone: its request was or will be answered.
            return;
        }
        self.update(id, |member| member.join = None);
        let Err(code) = outcome else {
            let mut response = self.joined(id);
            if then.version >= 9 {
                response.skip_assignment = self.is_leader(id);
            } else {
                // Told that the old id leads, it does not compute an assignment that nobody awaits.
                response.leader = then.old_leader.clone();
                response.members = Vec::new();
            }
            fx.join(then.token, response);
            return self.touch(id, now);
        };
        self.update(id, |member| member.terms = then.old.clone());
        self.rename(id, &then.old_id, fx);
        debug_assert!(self.statics.get(&then.instance_id) == Some(&then.old_id));
        self.touch(&then.old_id, now);
        fx.join(
            then.token,
            JoinResponse {
                code,
                generation_id: self.generation,
                protocol_type: self.protocol_type.clone(),
                protocol_name: self.protocol.clone(),
                leader: then.old_leader,
                ..JoinResponse::error(code, "".into())
            },
        );
    }
}
