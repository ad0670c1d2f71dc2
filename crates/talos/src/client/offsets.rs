//! Offsets of partitions by time: first, last, or the first record at or after a time.

use std::collections::BTreeMap;

use talos_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic,
};
use talos_protocol::{ApiKey, Str};

use super::cluster::Cluster;
use super::error::ClientError;

/// Which offset is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spec {
    /// The first that can be read.
    Earliest,
    /// The one after the last that can be read.
    Latest,
    /// That of the first record with this time or a later one, in milliseconds since the Unix
    /// epoch.
    Time(i64),
}

impl Spec {
    fn timestamp(self) -> i64 {
        match self {
            Self::Earliest => -2,
            Self::Latest => -1,
            Self::Time(ms) => ms,
        }
    }
}

/// What was found: each partition asked for is in one of the two.
#[derive(Clone, Debug, Default)]
pub struct Listed {
    /// The offset by partition. With [`Spec::Time`], `None` where no record is that late.
    pub found: BTreeMap<i32, Option<i64>>,
    /// Partitions that nobody serves now ([`ClientError::is_offline`]), and why.
    pub offline: BTreeMap<i32, ClientError>,
}

/// The offset of each partition asked for, as far as they are served.
///
/// # Errors
/// The first partition's that fails for another reason than being offline.
pub async fn list(
    cluster: &Cluster,
    topic: &str,
    partitions: &[i32],
    spec: Spec,
) -> Result<Listed, ClientError> {
    cluster
        .retry(
            || async {
                let listed = list_once(cluster, topic, partitions, spec).await;
                if listed.is_err() {
                    cluster.forget(topic);
                }
                listed
            },
            false,
        )
        .await
}

/// [`list`] where every partition must be served.
///
/// # Errors
/// As [`list`], and the first partition's that is offline.
pub async fn list_all(
    cluster: &Cluster,
    topic: &str,
    partitions: &[i32],
    spec: Spec,
) -> Result<BTreeMap<i32, Option<i64>>, ClientError> {
    let Listed { found, offline } = list(cluster, topic, partitions, spec).await?;
    offline.into_values().next().map_or(Ok(found), Err)
}

async fn list_once(
    cluster: &Cluster,
    topic: &str,
    partitions: &[i32],
    spec: Spec,
) -> Result<Listed, ClientError> {
    let mut listed = Listed::default();
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    let known = cluster.topic(topic, false).await?;
    for partition in partitions {
        match known.partitions.get(partition).map(|known| known.leader) {
            Some(Some(leader)) => by_leader.entry(leader).or_default().push(*partition),
            Some(None) => {
                let error = ClientError::NoLeader { topic: topic.into(), partition: *partition };
                listed.offline.insert(*partition, error);
            }
            None => return Err(cluster.no_partition(&known, *partition).await),
        }
    }
    for (leader, partitions) in by_leader {
        list_of_leader(cluster, topic, leader, &partitions, spec, &mut listed).await?;
    }
    if !listed.offline.is_empty() {
        // What is offline now need not be so the next time.
        cluster.forget(topic);
    }
    Ok(listed)
}

async fn list_of_leader(
    cluster: &Cluster,
    topic: &str,
    leader: i32,
    partitions: &[i32],
    spec: Spec,
    listed: &mut Listed,
) -> Result<(), ClientError> {
    let connection = cluster.broker(leader).await?;
    let asked = partitions.iter().map(|partition| ListOffsetsPartition {
        partition_index: *partition,
        timestamp: spec.timestamp(),
        ..Default::default()
    });
    let request = ListOffsetsRequest {
        replica_id: -1,
        topics: vec![ListOffsetsTopic {
            name: Str::from(topic.to_owned()),
            partitions: asked.collect(),
        }],
        ..Default::default()
    };
    let answer = connection.call(&request).await?;
    let (server, api) = (connection.server(), ApiKey::ListOffsets);
    for one in answer.topics.iter().flat_map(|topic| &topic.partitions) {
        let subject = format!("{topic}-{}", one.partition_index);
        match ClientError::check(server, api, subject, one.error_code, None) {
            Ok(()) => {
                listed.found.insert(one.partition_index, (one.offset >= 0).then_some(one.offset));
            }
            Err(error) if error.is_offline() => {
                listed.offline.insert(one.partition_index, error);
            }
            Err(error) => return Err(error),
        }
    }
    let told = |partition: &i32| {
        listed.found.contains_key(partition) || listed.offline.contains_key(partition)
    };
    if !partitions.iter().all(told) {
        return Err(ClientError::missing(server, api, "such partition"));
    }
    Ok(())
}
