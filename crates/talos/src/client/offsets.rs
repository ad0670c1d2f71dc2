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

/// The offset of each partition asked for. With [`Spec::Time`], `None` where no record is that
/// late.
///
/// # Errors
/// The first partition's that fails for good.
pub async fn list(
    cluster: &Cluster,
    topic: &str,
    partitions: &[i32],
    spec: Spec,
) -> Result<BTreeMap<i32, Option<i64>>, ClientError> {
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

async fn list_once(
    cluster: &Cluster,
    topic: &str,
    partitions: &[i32],
    spec: Spec,
) -> Result<BTreeMap<i32, Option<i64>>, ClientError> {
    let mut by_leader: BTreeMap<i32, Vec<i32>> = BTreeMap::new();
    for partition in partitions {
        let (_, leader, _) = cluster.leader(topic, *partition).await?;
        by_leader.entry(leader).or_default().push(*partition);
    }
    let mut found = BTreeMap::new();
    for (leader, partitions) in by_leader {
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
        for listed in answer.topics.iter().flat_map(|topic| &topic.partitions) {
            let subject = format!("{topic}-{}", listed.partition_index);
            let (server, api) = (connection.server(), ApiKey::ListOffsets);
            ClientError::check(server, api, subject, listed.error_code, None)?;
            found.insert(listed.partition_index, (listed.offset >= 0).then_some(listed.offset));
        }
        for partition in partitions {
            if !found.contains_key(&partition) {
                let (server, api) = (connection.server(), ApiKey::ListOffsets);
                return Err(ClientError::missing(server, api, "such partition"));
            }
        }
    }
    Ok(found)
}
