//! Administrative requests: topics, their configuration, the cluster.

use talos_protocol::messages::create_partitions::{CreatePartitionsRequest, CreatePartitionsTopic};
use talos_protocol::messages::create_topics::{
    CreatableTopic, CreatableTopicConfig, CreateTopicsRequest,
};
use talos_protocol::messages::delete_records::{
    DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic,
};
use talos_protocol::messages::delete_topics::{DeleteTopicState, DeleteTopicsRequest};
use talos_protocol::messages::describe_configs::{DescribeConfigsRequest, DescribeConfigsResource};
use talos_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterableConfig, IncrementalAlterConfigsRequest,
};
use talos_protocol::{ApiKey, Str};

use super::cluster::Cluster;
use super::error::ClientError;

/// Kafka's number for topics in configuration requests.
const TOPIC: i8 = 2;
/// Kafka's number for "this topic's own" as the source of a value.
const SOURCE_TOPIC: i8 = 1;

/// A topic to be made.
#[derive(Clone, Debug)]
pub struct NewTopic {
    /// Its name.
    pub name: String,
    /// Number of partitions; -1: the broker's default.
    pub partitions: i32,
    /// Number of replicas; -1: the broker's default.
    pub replication_factor: i16,
    /// Its own configuration.
    pub configs: Vec<(String, String)>,
}

/// One configuration entry of a topic.
#[derive(Clone, Debug)]
pub struct ConfigEntry {
    /// Kafka's name.
    pub name: String,
    /// `None` where the broker does not tell.
    pub value: Option<String>,
    /// Whether it was set for this topic.
    pub own: bool,
}

/// A change of one configuration entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigChange {
    /// Name and new value.
    Set(String, String),
    /// Back to the default.
    Unset(String),
}

fn text(value: &str) -> Str {
    Str::from(value.to_owned())
}

fn timeout_ms(cluster: &Cluster) -> i32 {
    i32::try_from(cluster.options().timeout.as_millis()).unwrap_or(i32::MAX)
}

/// Creates a topic, or only checks whether it could be with `dry_run`. Not repeated on doubt: a
/// lost answer is an error with unknown outcome.
///
/// # Errors
/// Kafka's, or the connection's.
pub async fn create_topic(
    cluster: &Cluster,
    topic: &NewTopic,
    dry_run: bool,
) -> Result<(), ClientError> {
    let configs = topic
        .configs
        .iter()
        .map(|(name, value)| CreatableTopicConfig { name: text(name), value: Some(text(value)) });
    let request = CreateTopicsRequest {
        topics: vec![CreatableTopic {
            name: text(&topic.name),
            num_partitions: topic.partitions,
            replication_factor: topic.replication_factor,
            configs: configs.collect(),
            ..Default::default()
        }],
        timeout_ms: timeout_ms(cluster),
        validate_only: dry_run,
    };
    let (connection, answer) = cluster.ask(&request).await?;
    let (server, api) = (connection.server(), ApiKey::CreateTopics);
    let result = answer.topics.first();
    let result = result.ok_or_else(|| ClientError::missing(server, api, "topic"))?;
    let message = result.error_message.as_deref();
    ClientError::check(server, api, format!("topic {}", topic.name), result.error_code, message)
}

/// Deletes topics by name.
///
/// # Errors
/// The first topic's; others may have been deleted.
pub async fn delete_topics(cluster: &Cluster, names: &[String]) -> Result<(), ClientError> {
    let connection = cluster.any().await?;
    let version = connection.version::<DeleteTopicsRequest>(i16::MAX)?;
    let mut request = DeleteTopicsRequest { timeout_ms: timeout_ms(cluster), ..Default::default() };
    for name in names {
        if version >= 6 {
            let topic = DeleteTopicState { name: Some(text(name)), ..Default::default() };
            request.topics.push(topic);
        } else {
            request.topic_names.push(text(name));
        }
    }
    let answer = connection.call_version(&request, version).await?;
    for result in answer.responses {
        let name = result.name.as_deref().unwrap_or_default();
        let (server, api) = (connection.server(), ApiKey::DeleteTopics);
        let message = result.error_message.as_deref();
        ClientError::check(server, api, format!("topic {name}"), result.error_code, message)?;
        cluster.forget(name);
    }
    Ok(())
}

/// Gives a topic more partitions; `count` is the new number of them.
///
/// # Errors
/// Kafka's, or the connection's.
pub async fn create_partitions(
    cluster: &Cluster,
    name: &str,
    count: i32,
) -> Result<(), ClientError> {
    let request = CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: text(name), count, assignments: None }],
        timeout_ms: timeout_ms(cluster),
        validate_only: false,
    };
    let (connection, answer) = cluster.ask(&request).await?;
    let (server, api) = (connection.server(), ApiKey::CreatePartitions);
    let result = answer.results.first();
    let result = result.ok_or_else(|| ClientError::missing(server, api, "topic"))?;
    let message = result.error_message.as_deref();
    ClientError::check(server, api, format!("topic {name}"), result.error_code, message)?;
    cluster.forget(name);
    Ok(())
}

/// The configuration of a topic, by name.
///
/// # Errors
/// Kafka's, or the connection's.
pub async fn topic_configs(cluster: &Cluster, name: &str) -> Result<Vec<ConfigEntry>, ClientError> {
    let request = DescribeConfigsRequest {
        resources: vec![DescribeConfigsResource {
            resource_type: TOPIC,
            resource_name: text(name),
            configuration_keys: None,
        }],
        ..Default::default()
    };
    let (connection, answer) = cluster.ask(&request).await?;
    let (server, api) = (connection.server(), ApiKey::DescribeConfigs);
    let result = answer.results.first();
    let result = result.ok_or_else(|| ClientError::missing(server, api, "topic"))?;
    let message = result.error_message.as_deref();
    ClientError::check(server, api, format!("topic {name}"), result.error_code, message)?;
    let entry =
        |config: &talos_protocol::messages::describe_configs::DescribeConfigsResourceResult| {
            ConfigEntry {
                name: config.name.to_string(),
                value: config.value.as_ref().map(|value| value.to_string()),
                own: config.config_source == SOURCE_TOPIC,
            }
        };
    let mut entries: Vec<_> = result.configs.iter().map(entry).collect();
    entries.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(entries)
}

/// Changes entries of a topic's configuration, all or none.
///
/// # Errors
/// Kafka's, or the connection's.
pub async fn alter_topic_configs(
    cluster: &Cluster,
    name: &str,
    changes: &[ConfigChange],
) -> Result<(), ClientError> {
    let configs = changes.iter().map(|change| match change {
        ConfigChange::Set(name, value) => {
            AlterableConfig { name: text(name), config_operation: 0, value: Some(text(value)) }
        }
        ConfigChange::Unset(name) => {
            AlterableConfig { name: text(name), config_operation: 1, value: None }
        }
    });
    let request = IncrementalAlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: TOPIC,
            resource_name: text(name),
            configs: configs.collect(),
        }],
        validate_only: false,
    };
    let (connection, answer) = cluster.ask(&request).await?;
    let (server, api) = (connection.server(), ApiKey::IncrementalAlterConfigs);
    let result = answer.responses.first();
    let result = result.ok_or_else(|| ClientError::missing(server, api, "topic"))?;
    let message = result.error_message.as_deref();
    ClientError::check(server, api, format!("topic {name}"), result.error_code, message)
}

/// Deletes the records of a partition before `offset` (-1: all there are) and gives its new first
/// offset.
///
/// # Errors
/// Kafka's, or the connection's.
pub async fn delete_records(
    cluster: &Cluster,
    topic: &str,
    partition: i32,
    offset: i64,
) -> Result<i64, ClientError> {
    let (_, _, connection) = cluster.leader(topic, partition).await?;
    let request = DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: text(topic),
            partitions: vec![DeleteRecordsPartition { partition_index: partition, offset }],
        }],
        timeout_ms: timeout_ms(cluster),
    };
    let answer = connection.call(&request).await?;
    let (server, api) = (connection.server(), ApiKey::DeleteRecords);
    let result = answer.topics.first().and_then(|topic| topic.partitions.first());
    let result = result.ok_or_else(|| ClientError::missing(server, api, "such partition"))?;
    let subject = format!("{topic}-{partition}");
    ClientError::check(server, api, subject, result.error_code, None)?;
    Ok(result.low_watermark)
}
