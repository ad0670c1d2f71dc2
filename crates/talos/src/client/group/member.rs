//! Membership in a group under the classic protocol: join, sync, heartbeat, leave.
//!
//! The leader of a generation assigns ranges of each topic's partitions (Kafka's `range`), so that a
//! mixed group with other clients works.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use talos_protocol::messages::embedded::{
    ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
};
use talos_protocol::messages::heartbeat::HeartbeatRequest;
use talos_protocol::messages::join_group::{
    JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse,
};
use talos_protocol::messages::leave_group::{LeaveGroupRequest, MemberIdentity};
use talos_protocol::messages::sync_group::{SyncGroupRequest, SyncGroupRequestAssignment};
use talos_protocol::{ApiKey, Decoder, ErrorCode, Message as _, Str};

use super::{CommitAs, Offsets, read_assignment, text};
use crate::client::cluster::Cluster;
use crate::client::connection::nested;
use crate::client::error::ClientError;

/// Silence for this long costs a member its place.
const SESSION: Duration = Duration::from_secs(10);
/// How long others may take to join again.
const REBALANCE: Duration = Duration::from_secs(60);
/// Rounds of joining before giving up: each needs the group to change under our hands.
const ROUNDS: usize = 20;
/// Version of the nested subscription and assignment that we write.
const NESTED_VERSION: i16 = 0;
/// The assignor that we offer.
const RANGE: &str = "range";

/// A member of a group that consumes one topic.
#[derive(Clone, Debug)]
pub struct Member {
    cluster: Cluster,
    group: String,
    topic: String,
    member_id: String,
    generation: i32,
    assigned: Vec<i32>,
}

impl Member {
    /// A member that has not joined yet: [`Member::rejoin`] does.
    pub fn new(cluster: Cluster, group: &str, topic: &str) -> Self {
        Self {
            cluster,
            group: group.into(),
            topic: topic.into(),
            member_id: String::new(),
            generation: -1,
            assigned: Vec::new(),
        }
    }

    /// Whether the coordinator may know of it, so that there is something to leave.
    pub fn is_known(&self) -> bool {
        !self.member_id.is_empty()
    }

    /// The partitions of the topic that are ours in this generation.
    pub fn assigned(&self) -> &[i32] {
        &self.assigned
    }

    /// Joins the group and waits for the assignment; again after [`Member::heartbeat`] said so.
    ///
    /// # Errors
    /// Kafka's, or the connection's.
    pub async fn rejoin(&mut self) -> Result<(), ClientError> {
        let mut last = None;
        for _ in 0..ROUNDS {
            let round = match self.join_once().await {
                Ok(joined) => self.sync(joined).await,
                Err(error) => Err(error),
            };
            let error = match round {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            match error.code() {
                // The member id came with the answer.
                Some(ErrorCode::MemberIdRequired | ErrorCode::RebalanceInProgress) => {}
                Some(ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration) => {
                    self.member_id.clear();
                }
                _ if error.is_retriable() => {
                    self.cluster.env().clock.sleep(Duration::from_millis(200)).await;
                }
                _ => return Err(error),
            }
            last = Some(error);
        }
        Err(last.unwrap_or_else(|| ClientError::Invalid("the group does not settle".into())))
    }

    async fn join_once(&mut self) -> Result<JoinGroupResponse, ClientError> {
        let connection = self.cluster.coordinator(&self.group).await?;
        let subscription =
            ConsumerProtocolSubscription { topics: vec![text(&self.topic)], ..Default::default() };
        let metadata = nested(&subscription, NESTED_VERSION).unwrap_or_default();
        let request = JoinGroupRequest {
            group_id: text(&self.group),
            session_timeout_ms: millis(SESSION),
            rebalance_timeout_ms: millis(REBALANCE),
            member_id: text(&self.member_id),
            protocol_type: "consumer".into(),
            protocols: vec![JoinGroupRequestProtocol { name: RANGE.into(), metadata }],
            ..Default::default()
        };
        let version = connection.version::<JoinGroupRequest>(i16::MAX)?;
        // The coordinator answers when all members have joined.
        let limit = REBALANCE + self.cluster.options().timeout;
        let answer = connection.call_within(&request, version, limit).await?;
        if !answer.member_id.is_empty() {
            self.member_id = answer.member_id.to_string();
        }
        let (server, api) = (connection.server(), ApiKey::JoinGroup);
        ClientError::check(server, api, format!("group {}", self.group), answer.error_code, None)?;
        self.generation = answer.generation_id;
        Ok(answer)
    }

    async fn sync(&mut self, joined: JoinGroupResponse) -> Result<(), ClientError> {
        let leads = joined.leader.as_str() == self.member_id && !joined.skip_assignment;
        let assignments = if leads { self.assign(&joined).await? } else { Vec::new() };
        let connection = self.cluster.coordinator(&self.group).await?;
        let request = SyncGroupRequest {
            group_id: text(&self.group),
            generation_id: self.generation,
            member_id: text(&self.member_id),
            protocol_type: Some("consumer".into()),
            protocol_name: Some(RANGE.into()),
            assignments,
            ..Default::default()
        };
        let version = connection.version::<SyncGroupRequest>(i16::MAX)?;
        let limit = REBALANCE + self.cluster.options().timeout;
        let answer = connection.call_within(&request, version, limit).await?;
        let (server, api) = (connection.server(), ApiKey::SyncGroup);
        ClientError::check(server, api, format!("group {}", self.group), answer.error_code, None)?;
        self.assigned = read_assignment(&answer.assignment).remove(&self.topic).unwrap_or_default();
        self.assigned.sort_unstable();
        Ok(())
    }

    /// Ranges for every member of the generation.
    async fn assign(
        &self,
        joined: &JoinGroupResponse,
    ) -> Result<Vec<SyncGroupRequestAssignment>, ClientError> {
        let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for member in &joined.members {
            members.insert(member.member_id.to_string(), subscribed(&member.metadata));
        }
        let mut topics: Vec<&str> = members.values().flatten().map(String::as_str).collect();
        topics.sort_unstable();
        topics.dedup();
        let mut partitions: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
        for topic in topics {
            // A topic that is not there yet has nothing to be assigned.
            if let Ok(known) = self.cluster.topic(topic, false).await {
                partitions.insert(topic, known.partitions.keys().copied().collect());
            }
        }
        let assigned = ranges(&members, &partitions);
        let assignments = members.keys().map(|member| {
            let topics = assigned.get(member).cloned().unwrap_or_default();
            let topics = topics.into_iter().map(|(topic, partitions)| {
                ConsumerProtocolAssignmentTopicPartition { topic: Str::from(topic), partitions }
            });
            let assignment = ConsumerProtocolAssignment {
                assigned_partitions: topics.collect(),
                ..Default::default()
            };
            SyncGroupRequestAssignment {
                member_id: text(member),
                assignment: nested(&assignment, NESTED_VERSION).unwrap_or_default(),
            }
        });
        Ok(assignments.collect())
    }

    /// Says that we live. `false`: the group rebalances, [`Member::rejoin`].
    ///
    /// # Errors
    /// Kafka's, or the connection's; retriable ones too, because the next heartbeat tries again.
    pub async fn heartbeat(&self) -> Result<bool, ClientError> {
        let connection = self.cluster.coordinator(&self.group).await?;
        let request = HeartbeatRequest {
            group_id: text(&self.group),
            generation_id: self.generation,
            member_id: text(&self.member_id),
            ..Default::default()
        };
        let answer = connection.call(&request).await?;
        match ErrorCode::from_code(answer.error_code) {
            Some(
                ErrorCode::RebalanceInProgress
                | ErrorCode::UnknownMemberId
                | ErrorCode::IllegalGeneration,
            ) => Ok(false),
            _ => {
                let (server, api) = (connection.server(), ApiKey::Heartbeat);
                let subject = format!("group {}", self.group);
                ClientError::check(server, api, subject, answer.error_code, None).map(|()| true)
            }
        }
    }

    /// How often to call [`Member::heartbeat`].
    pub fn heartbeat_every(&self) -> Duration {
        SESSION / 3
    }

    /// Commits offsets as this member.
    ///
    /// # Errors
    /// As [`super::commit`].
    pub async fn commit(&self, offsets: &Offsets) -> Result<(), ClientError> {
        let who = CommitAs { member: Some((&self.member_id, self.generation)) };
        super::commit(&self.cluster, &self.group, who, offsets).await
    }

    /// Leaves the group, so that the others need not wait for the session to end.
    ///
    /// # Errors
    /// Kafka's, or the connection's.
    pub async fn leave(self) -> Result<(), ClientError> {
        let connection = self.cluster.coordinator(&self.group).await?;
        let version = connection.version::<LeaveGroupRequest>(i16::MAX)?;
        let mut request = LeaveGroupRequest { group_id: text(&self.group), ..Default::default() };
        if version >= 3 {
            let member_id = text(&self.member_id);
            request.members.push(MemberIdentity { member_id, ..Default::default() });
        } else {
            request.member_id = text(&self.member_id);
        }
        let answer = connection.call_version(&request, version).await?;
        let (server, api) = (connection.server(), ApiKey::LeaveGroup);
        ClientError::check(server, api, format!("group {}", self.group), answer.error_code, None)
    }
}

fn millis(period: Duration) -> i32 {
    i32::try_from(period.as_millis()).unwrap_or(i32::MAX)
}

/// The topics of a nested subscription; none where it cannot be read.
fn subscribed(metadata: &Bytes) -> Vec<String> {
    let mut d = Decoder::new(metadata.clone());
    let newest = *ConsumerProtocolSubscription::VERSIONS.end();
    let read =
        d.i16().ok().filter(|version| *version >= 0).and_then(|version| {
            ConsumerProtocolSubscription::decode(&mut d, version.min(newest)).ok()
        });
    read.map(|read| read.topics.iter().map(ToString::to_string).collect()).unwrap_or_default()
}

type Assignments = BTreeMap<String, BTreeMap<String, Vec<i32>>>;

/// Kafka's `range`: per topic, its subscribers in order get contiguous ranges, the first ones one
/// partition more where it does not divide.
fn ranges(
    members: &BTreeMap<String, Vec<String>>,
    partitions: &BTreeMap<&str, Vec<i32>>,
) -> Assignments {
    let mut all = Assignments::new();
    for (topic, partitions) in partitions {
        let subscribers: Vec<&String> = members
            .iter()
            .filter(|(_, topics)| topics.iter().any(|subscribed| subscribed == topic))
            .map(|(member, _)| member)
            .collect();
        let Some(each) = partitions.len().checked_div(subscribers.len()) else { continue };
        let more = partitions.len() % subscribers.len();
        let mut rest = partitions.as_slice();
        for (position, member) in subscribers.into_iter().enumerate() {
            let count = each + usize::from(position < more);
            let (mine, after) = rest.split_at(count.min(rest.len()));
            rest = after;
            if !mine.is_empty() {
                all.entry(member.clone()).or_default().insert((*topic).into(), mine.to_vec());
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_cover_every_partition_once_and_differ_by_one_at_most() {
        let subscriptions = |list: &[(&str, &[&str])]| -> BTreeMap<String, Vec<String>> {
            list.iter()
                .map(|(m, t)| ((*m).to_owned(), t.iter().map(|t| (*t).to_owned()).collect()))
                .collect()
        };
        let members = subscriptions(&[("a", &["x", "y"]), ("b", &["x"]), ("c", &["x"])]);
        let partitions = BTreeMap::from([("x", (0..8).collect()), ("y", vec![0])]);
        let assigned = ranges(&members, &partitions);
        assert_eq!(assigned["a"]["x"], [0, 1, 2]);
        assert_eq!(assigned["b"]["x"], [3, 4, 5]);
        assert_eq!(assigned["c"]["x"], [6, 7]);
        assert_eq!(assigned["a"]["y"], [0]);
        assert!(!assigned["b"].contains_key("y"));
        assert!(ranges(&BTreeMap::new(), &partitions).is_empty());
    }

    #[test]
    fn nested_messages_read_back_and_newer_ones_too() {
        let subscription =
            ConsumerProtocolSubscription { topics: vec!["t".into()], ..Default::default() };
        for version in ConsumerProtocolSubscription::VERSIONS {
            assert_eq!(subscribed(&nested(&subscription, version).unwrap()), ["t"]);
        }
        assert!(subscribed(&Bytes::from_static(b"\xff\xffrubbish")).is_empty());
        assert!(read_assignment(&Bytes::new()).is_empty());
    }
}
