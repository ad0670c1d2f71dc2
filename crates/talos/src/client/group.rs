//! Consumer groups: what their coordinator answers, and membership in one (classic protocol).

mod member;

use std::collections::BTreeMap;

use bytes::Bytes;
use talos_protocol::messages::delete_groups::DeleteGroupsRequest;
use talos_protocol::messages::describe_groups::{DescribeGroupsRequest, DescribedGroup};
use talos_protocol::messages::embedded::ConsumerProtocolAssignment;
use talos_protocol::messages::list_groups::ListGroupsRequest;
use talos_protocol::messages::offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use talos_protocol::messages::offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse,
};
use talos_protocol::{ApiKey, Decoder, Message as _, Str};

use super::cluster::Cluster;
use super::error::ClientError;

pub use member::Member;

/// From this version on offsets are named by topic id instead of name.
const LAST_OFFSET_VERSION_WITH_NAMES: i16 = 9;

/// One line of the list of groups.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Listed {
    /// Its id.
    pub group: String,
    /// Its state in Kafka's words; empty if the broker does not tell.
    pub state: String,
    /// `classic`, `consumer`, …; empty if the broker does not tell.
    pub kind: String,
    /// What its members do with the protocol, as in `consumer`; empty: offsets only.
    pub protocol: String,
}

/// A member of a group.
#[derive(Clone, Debug)]
pub struct MemberInfo {
    /// Given by the coordinator.
    pub member_id: String,
    /// The name that the client gave itself.
    pub client_id: String,
    /// Where it connected from.
    pub host: String,
    /// Its partitions, by topic.
    pub assigned: BTreeMap<String, Vec<i32>>,
}

/// A group and its members.
#[derive(Clone, Debug)]
pub struct Described {
    /// Its state in Kafka's words; `Dead` when there is none.
    pub state: String,
    /// The assignor in use.
    pub assignor: String,
    /// Who is in it.
    pub members: Vec<MemberInfo>,
}

/// Committed offsets by topic and partition.
pub type Offsets = BTreeMap<(String, i32), i64>;

/// Who commits: member id and generation; none for tools.
#[derive(Clone, Copy, Debug, Default)]
pub struct CommitAs<'a> {
    /// Member id and generation.
    pub member: Option<(&'a str, i32)>,
}

fn text(value: &str) -> Str {
    Str::from(value.to_owned())
}

/// All groups of all brokers.
///
/// # Errors
/// The first broker's.
pub async fn list(cluster: &Cluster) -> Result<Vec<Listed>, ClientError> {
    let brokers = cluster.metadata(Some(&[]), false).await?.brokers;
    let mut all = Vec::new();
    for broker in brokers {
        let id = broker.node_id;
        let groups = cluster.retry(|| list_of(cluster, id), true).await?;
        all.extend(groups);
    }
    all.sort();
    all.dedup();
    Ok(all)
}

async fn list_of(cluster: &Cluster, broker: i32) -> Result<Vec<Listed>, ClientError> {
    let connection = cluster.broker(broker).await?;
    let answer = connection.call(&ListGroupsRequest::default()).await?;
    let server = connection.server();
    ClientError::check(server, ApiKey::ListGroups, "all groups", answer.error_code, None)?;
    let listed = answer.groups.iter().map(|group| Listed {
        group: group.group_id.to_string(),
        state: group.group_state.to_string(),
        kind: group.group_type.to_string(),
        protocol: group.protocol_type.to_string(),
    });
    Ok(listed.collect())
}

/// One group and its members. A group that does not exist is `Dead` without members.
///
/// # Errors
/// Kafka's, or the connection's.
pub async fn describe(cluster: &Cluster, group: &str) -> Result<Described, ClientError> {
    cluster
        .retry(
            || async {
                let connection = cluster.coordinator(group).await?;
                let groups = vec![text(group)];
                let request = DescribeGroupsRequest { groups, ..Default::default() };
                let answer = connection.call(&request).await?;
                let (server, api) = (connection.server(), ApiKey::DescribeGroups);
                let found = answer.groups.into_iter().next();
                let found = found.ok_or_else(|| ClientError::missing(server, api, "group"))?;
                let message = found.error_message.as_deref();
                let subject = format!("group {group}");
                ClientError::check(server, api, subject, found.error_code, message)?;
                Ok(read_described(&found))
            },
            true,
        )
        .await
}

fn read_described(found: &DescribedGroup) -> Described {
    let members = found.members.iter().map(|member| MemberInfo {
        member_id: member.member_id.to_string(),
        client_id: member.client_id.to_string(),
        host: member.client_host.trim_start_matches('/').to_owned(),
        assigned: read_assignment(&member.member_assignment),
    });
    Described {
        state: found.group_state.to_string(),
        assignor: found.protocol_data.to_string(),
        members: members.collect(),
    }
}

/// Partitions by topic out of an assignment; empty where it is none of the consumer protocol.
fn read_assignment(bytes: &Bytes) -> BTreeMap<String, Vec<i32>> {
    let mut d = Decoder::new(bytes.clone());
    // Later versions only add fields at the end.
    let newest = *ConsumerProtocolAssignment::VERSIONS.end();
    let read =
        d.i16().ok().filter(|version| *version >= 0).and_then(|version| {
            ConsumerProtocolAssignment::decode(&mut d, version.min(newest)).ok()
        });
    let topics = read.map(|read| read.assigned_partitions).unwrap_or_default();
    topics.into_iter().map(|topic| (topic.topic.to_string(), topic.partitions)).collect()
}

/// Deletes groups that have no members.
///
/// # Errors
/// The first group's; earlier ones are deleted.
pub async fn delete(cluster: &Cluster, group: &str) -> Result<(), ClientError> {
    cluster
        .retry(
            || async {
                let connection = cluster.coordinator(group).await?;
                let request = DeleteGroupsRequest { groups_names: vec![text(group)] };
                let answer = connection.call(&request).await?;
                let (server, api) = (connection.server(), ApiKey::DeleteGroups);
                let result = answer.results.first();
                let result = result.ok_or_else(|| ClientError::missing(server, api, "group"))?;
                let (message, code) = (result.error_message.as_deref(), result.error_code);
                ClientError::check(server, api, format!("group {group}"), code, message)
            },
            true,
        )
        .await
}

/// All committed offsets of a group.
///
/// # Errors
/// Kafka's, or the connection's.
pub async fn offsets(cluster: &Cluster, group: &str) -> Result<Offsets, ClientError> {
    cluster.retry(|| offsets_once(cluster, group), true).await
}

async fn offsets_once(cluster: &Cluster, group: &str) -> Result<Offsets, ClientError> {
    let connection = cluster.coordinator(group).await?;
    let version = connection.version::<OffsetFetchRequest>(LAST_OFFSET_VERSION_WITH_NAMES)?;
    let request = if version >= 8 {
        let group_id = text(group);
        let asked = OffsetFetchRequestGroup { group_id, topics: None, ..Default::default() };
        OffsetFetchRequest { groups: vec![asked], ..Default::default() }
    } else {
        OffsetFetchRequest { group_id: text(group), topics: None, ..Default::default() }
    };
    let answer = connection.call_version(&request, version).await?;
    read_offsets(connection.server(), group, version, &answer)
}

fn read_offsets(
    server: &str,
    group: &str,
    version: i16,
    answer: &OffsetFetchResponse,
) -> Result<Offsets, ClientError> {
    let (api, subject) = (ApiKey::OffsetFetch, format!("group {group}"));
    let mut offsets = Offsets::new();
    let mut add = |topic: &Str, partition: i32, offset: i64, code: i16| {
        ClientError::check(server, api, format!("{subject}, {topic}-{partition}"), code, None)?;
        if offset >= 0 {
            offsets.insert((topic.to_string(), partition), offset);
        }
        Ok(())
    };
    if version >= 8 {
        let found = answer.groups.first();
        let found = found.ok_or_else(|| ClientError::missing(server, api, "group"))?;
        ClientError::check(server, api, subject.clone(), found.error_code, None)?;
        for topic in &found.topics {
            for p in &topic.partitions {
                add(&topic.name, p.partition_index, p.committed_offset, p.error_code)?;
            }
        }
    } else {
        ClientError::check(server, api, subject.clone(), answer.error_code, None)?;
        for topic in &answer.topics {
            for p in &topic.partitions {
                add(&topic.name, p.partition_index, p.committed_offset, p.error_code)?;
            }
        }
    }
    Ok(offsets)
}

/// Commits offsets. Repeating it does no harm, so it is repeated on retriable errors.
///
/// # Errors
/// The first partition's; others may be committed.
pub async fn commit(
    cluster: &Cluster,
    group: &str,
    who: CommitAs<'_>,
    offsets: &Offsets,
) -> Result<(), ClientError> {
    if offsets.is_empty() {
        return Ok(());
    }
    cluster.retry(|| commit_once(cluster, group, who, offsets), true).await
}

async fn commit_once(
    cluster: &Cluster,
    group: &str,
    who: CommitAs<'_>,
    offsets: &Offsets,
) -> Result<(), ClientError> {
    let connection = cluster.coordinator(group).await?;
    let version = connection.version::<OffsetCommitRequest>(LAST_OFFSET_VERSION_WITH_NAMES)?;
    let mut topics: BTreeMap<&str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
    for ((topic, partition), offset) in offsets {
        topics.entry(topic).or_default().push(OffsetCommitRequestPartition {
            partition_index: *partition,
            committed_offset: *offset,
            committed_metadata: Some(Str::default()),
            ..Default::default()
        });
    }
    let (member_id, generation) = who.member.unwrap_or(("", -1));
    let topics = topics.into_iter().map(|(name, partitions)| OffsetCommitRequestTopic {
        name: text(name),
        partitions,
        ..Default::default()
    });
    let request = OffsetCommitRequest {
        group_id: text(group),
        generation_id_or_member_epoch: generation,
        member_id: text(member_id),
        topics: topics.collect(),
        ..Default::default()
    };
    let answer = connection.call_version(&request, version).await?;
    for topic in &answer.topics {
        for p in &topic.partitions {
            let subject = format!("group {group}, {}-{}", topic.name, p.partition_index);
            let (server, api) = (connection.server(), ApiKey::OffsetCommit);
            ClientError::check(server, api, subject, p.error_code, None)?;
        }
    }
    Ok(())
}
