//! JoinGroup: who may join a group, under which id, and what that starts.

use super::api::{Blob, Code, JoinRequest, JoinResponse, SyncResponse, Text};
use super::shard::Config;
use super::state::{
    Effects, Group, MEMBER_BYTES, Member, Now, State, StaticReturn, Terms, Then, Token,
    protocols_bytes,
};

/// Kafka removes a new member that has not seen the answer to its first join for so long.
const NEW_MEMBER_JOIN_TIMEOUT_MS: i32 = 5 * 60 * 1000;

/// A member that was given its id comes back with it at once; one that does not, costs its place for no
/// longer than this, whatever its session timeout.
const PENDING_TIMEOUT_MS: i32 = 60 * 1000;

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
        let ids = request.member_id.len().max(self.new_id.len())
            + request.group_instance_id.as_ref().map_or(0, |id| id.len());
        MEMBER_BYTES
            + 2 * ids
            + request.client_id.len()
            + request.client_host.len()
            + protocols_bytes(&request.protocols)
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
                let timeout_ms = request.session_timeout_ms.min(PENDING_TIMEOUT_MS);
                self.schedule_session(id, timeout_ms, join.now);
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

    pub(super) fn static_returned(
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
