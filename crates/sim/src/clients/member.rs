//! A member of a consumer group: joins, syncs, sends heartbeats, reads and moves the committed offset
//! of the partition that it is given. The group's leader gives the partition to one member per
//! generation, so a commit that is accepted always moves forward.

use bytes::Bytes;
use talos_common::TopicPartitionId;
use talos_protocol::messages::join_group::JoinGroupRequestProtocol;
use talos_protocol::messages::leave_group::MemberIdentity;
use talos_protocol::messages::offset_commit::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use talos_protocol::messages::offset_fetch::OffsetFetchRequestTopic;
use talos_protocol::messages::sync_group::SyncGroupRequestAssignment;
use talos_protocol::messages::{
    FindCoordinatorRequest, HeartbeatRequest, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, OffsetCommitRequest, OffsetFetchRequest, SyncGroupRequest,
};
use talos_protocol::{ErrorCode, Str};

use super::{Client, ORDERS};
use crate::history::What;
use crate::wire::Lost;

const YOURS: &[u8] = b"yours";

/// A membership.
struct Joined {
    generation: i32,
    is_mine: bool,
}

struct Member {
    client: Client,
    group: u32,
    member_id: Str,
    /// A static member comes back as itself.
    instance_id: Option<Str>,
    tp: TopicPartitionId,
}

/// Lives in `group` until the faults have healed, and a commit after that is acknowledged to it or
/// seen by it.
pub(crate) async fn run(mut client: Client, group: u32) {
    let topic = client.wait_for(ORDERS).await;
    let tp = TopicPartitionId { topic: topic.id, partition: 0 };
    // A new member has no id yet.
    let is_static = client.rng.chance(400_000);
    let instance_id = is_static.then(|| Str::from(format!("instance-{}", client.id)));
    let mut member = Member { client, group, member_id: Str::from(""), instance_id, tp };
    let mut healed_at = None;
    loop {
        if member.client.is_healed() && healed_at.is_none() {
            healed_at = Some(member.read_when_possible().await);
        }
        if let Some(start) = healed_at
            && member.read_when_possible().await > start
        {
            break;
        }
        match member.join().await {
            Ok(Some(joined)) => {
                member.live(&joined).await;
                member.leave_at_times().await;
            }
            Ok(None) | Err(Lost) => member.client.back_off().await,
        }
    }
    let id = member.client.id;
    member.client.recorder.push(What::Done(format!("member {id}")));
}

impl Member {
    fn group_id(&self) -> Str {
        Str::from(format!("group-{}", self.group))
    }

    async fn join(&mut self) -> Result<Option<Joined>, Lost> {
        let request = FindCoordinatorRequest {
            coordinator_keys: vec![self.group_id()],
            ..Default::default()
        };
        let found = self.client.wire.call(4, &request).await?;
        if found.coordinators.first().is_none_or(|found| found.error_code != 0) {
            return Ok(None);
        }
        let protocol =
            JoinGroupRequestProtocol { name: Str::from("one"), metadata: Bytes::from_static(b"m") };
        let request = JoinGroupRequest {
            group_id: self.group_id(),
            session_timeout_ms: 1_500,
            rebalance_timeout_ms: 1_500,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            protocol_type: Str::from("consumer"),
            protocols: vec![protocol],
            ..Default::default()
        };
        let answer = self.client.wire.call(5, &request).await?;
        match ErrorCode::from_code(answer.error_code) {
            Some(ErrorCode::None) => {}
            Some(ErrorCode::MemberIdRequired) => {
                self.member_id = answer.member_id.detached();
                return Ok(None);
            }
            Some(ErrorCode::UnknownMemberId | ErrorCode::FencedInstanceId) => {
                self.member_id = Str::from("");
                return Ok(None);
            }
            Some(_) | None => return Ok(None),
        }
        self.member_id = answer.member_id.detached();
        self.sync(answer).await
    }

    async fn sync(&mut self, joined: JoinGroupResponse) -> Result<Option<Joined>, Lost> {
        let is_leader = joined.leader == joined.member_id;
        let members = joined.members.len().max(1);
        let turn = usize::try_from(joined.generation_id).unwrap_or(0) % members;
        let give = |(at, id): (usize, &Str)| SyncGroupRequestAssignment {
            member_id: id.clone(),
            assignment: Bytes::from_static(if at == turn { YOURS } else { b"nothing" }),
        };
        let ids = joined.members.iter().map(|member| &member.member_id);
        let assignments = match is_leader {
            true => ids.enumerate().map(give).collect(),
            false => Vec::new(),
        };
        let request = SyncGroupRequest {
            group_id: self.group_id(),
            generation_id: joined.generation_id,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            assignments,
            ..Default::default()
        };
        let answer = self.client.wire.call(3, &request).await?;
        if answer.error_code != 0 {
            return Ok(None);
        }
        let is_mine = answer.assignment == YOURS;
        Ok(Some(Joined { generation: joined.generation_id, is_mine }))
    }

    /// As long as the generation lasts, and not much longer than a moment once all is well.
    async fn live(&mut self, joined: &Joined) {
        for _ in 0..self.client.rng.u64(2..20) {
            let lives_on = match joined.is_mine {
                true => self.move_on(joined).await,
                false => self.beat(joined).await,
            };
            if lives_on != Ok(true) {
                return self.client.back_off().await;
            }
            self.client.idle(300).await;
        }
    }

    async fn beat(&mut self, joined: &Joined) -> Result<bool, Lost> {
        let request = HeartbeatRequest {
            group_id: self.group_id(),
            generation_id: joined.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
        };
        Ok(self.client.wire.call(3, &request).await?.error_code == 0)
    }

    /// Says goodbye, or forgets who it was: then a static member comes back as itself, and another is
    /// missed only when its session is over.
    async fn leave_at_times(&mut self) {
        match self.client.rng.u64(0..8) {
            0 => {
                let member = MemberIdentity {
                    member_id: self.member_id.clone(),
                    group_instance_id: self.instance_id.clone(),
                    reason: None,
                };
                let request = LeaveGroupRequest {
                    group_id: self.group_id(),
                    members: vec![member],
                    ..Default::default()
                };
                if let Ok(answer) = self.client.wire.call(4, &request).await {
                    self.client.recorder.note(format!("left the group: {}", answer.error_code));
                }
                self.member_id = Str::from("");
            }
            1 => {
                self.client.wire.disconnect();
                self.member_id = Str::from("");
            }
            _ => {}
        }
    }

    /// Commits an offset above the committed one.
    async fn move_on(&mut self, joined: &Joined) -> Result<bool, Lost> {
        let Some(committed) = self.read().await? else { return Ok(false) };
        let offset = committed.max(0) + i64::try_from(self.client.rng.u64(1..5)).unwrap_or(1);
        let (group, tp) = (self.group, self.tp);
        let part = OffsetCommitRequestPartition {
            partition_index: tp.partition,
            committed_offset: offset,
            committed_metadata: Some(Str::from("")),
            ..Default::default()
        };
        let topics = vec![OffsetCommitRequestTopic {
            name: Str::from(ORDERS),
            partitions: vec![part],
            ..Default::default()
        }];
        let request = OffsetCommitRequest {
            group_id: self.group_id(),
            generation_id_or_member_epoch: joined.generation,
            member_id: self.member_id.clone(),
            group_instance_id: self.instance_id.clone(),
            topics,
            ..Default::default()
        };
        self.client.recorder.push(What::Committing { group, tp, offset });
        let answer = self.client.wire.call(7, &request).await?;
        let part = answer.topics.first().and_then(|topic| topic.partitions.first());
        let is_good = part.is_some_and(|part| part.error_code == 0);
        if is_good {
            self.client.recorder.push(What::Committed { group, tp, offset });
        }
        Ok(is_good)
    }

    /// The committed offset, -1 for none; `None` when the coordinator can not say now.
    async fn read(&mut self) -> Result<Option<i64>, Lost> {
        let begun = self.client.recorder.moment();
        let topics = vec![OffsetFetchRequestTopic {
            name: Str::from(ORDERS),
            partition_indexes: vec![self.tp.partition],
        }];
        let request = OffsetFetchRequest {
            group_id: self.group_id(),
            topics: Some(topics),
            ..Default::default()
        };
        let answer = self.client.wire.call(6, &request).await?;
        let part = answer.topics.first().and_then(|topic| topic.partitions.first());
        let Some(part) = part.filter(|part| answer.error_code == 0 && part.error_code == 0) else {
            return Ok(None);
        };
        let (group, tp, offset) = (self.group, self.tp, part.committed_offset);
        self.client.recorder.push(What::CommitRead { group, begun, tp, offset });
        Ok(Some(offset))
    }

    async fn read_when_possible(&mut self) -> i64 {
        loop {
            if let Ok(Some(offset)) = self.read().await {
                return offset;
            }
            // Whoever asks for a coordinator makes the group's topic.
            let request = FindCoordinatorRequest {
                coordinator_keys: vec![self.group_id()],
                ..Default::default()
            };
            let _ = self.client.wire.call(4, &request).await;
            self.client.back_off().await;
        }
    }
}
