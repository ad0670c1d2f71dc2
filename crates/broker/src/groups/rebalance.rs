//! The transitions of one group but for JoinGroup (`join`): syncs, heartbeats, departures, deadlines
//! and the outcome of writes. The rules are Apache Kafka's; where an order of steps matters it is its order.
//!
//! Two differences, both only in what a client could never see there: a request that its own member
//! replaces or leaves behind is answered (Kafka forgets it), and sizes are bounded in bytes.

use std::collections::BTreeMap;

use super::api::{
    Blob, Code, HeartbeatRequest, LeaveMember, LeaveResponse, SyncRequest, SyncResponse, Text,
};
use super::records::Record;
use super::shard::Config;
use super::state::{Effects, Group, Member, Now, Reply, State, Then, Token};
use super::timers::Timer;

/// Shortest time between two looks for a static member that comes back.
const AWAY_PAUSE_MS: u64 = 1_000;

impl Group {
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
    pub(super) fn evict(&mut self, id: &Text, fx: &mut Effects) {
        let Some(member) = self.take(id) else { return };
        if let Some(token) = member.join {
            fx.join_error(token, Code::UnknownMemberId, "".into());
        }
        if let Some(token) = member.sync {
            fx.sync(token, SyncResponse::error(Code::UnknownMemberId));
        }
    }

    pub(super) fn rebalance_or_complete(&mut self, config: &Config, now: Now, fx: &mut Effects) {
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
    pub(super) fn prepare(&mut self, config: &Config, now: Now, fx: &mut Effects) {
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

    pub(super) fn maybe_complete(&mut self, now: Now, fx: &mut Effects) {
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
            // Not at once, whatever their timeout says: that would be a busy loop.
            let at_ms = now.mono_ms.saturating_add(self.rebalance_timeout_ms().max(AWAY_PAUSE_MS));
            return self.timers.schedule(Timer::Join, at_ms);
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
}
