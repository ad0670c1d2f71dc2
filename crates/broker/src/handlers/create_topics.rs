//! CreateTopics (key 19), versions 2 to 7.
//!
//! Checks names, partition counts, replication factors, manual assignments and configuration, then
//! creates, all or with `validate_only` none. 5 tells the created topic's counts and configuration, 7
//! its id. One topic's failure is its own; a name given twice is INVALID_REQUEST. More partitions than
//! one request may ask for are INVALID_PARTITIONS, more than the broker may have POLICY_VIOLATION; when
//! too many changes wait already, THROTTLING_QUOTA_EXCEEDED.
//! Different from Kafka: the store replicates, so the factor may only be -1 or 1 and an assignment may
//! only name this broker; a created topic can be used when the answer comes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use talos_meta::NewTopic;
use talos_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfigs, CreatableTopicResult,
};
use talos_protocol::messages::{CreateTopicsRequest, CreateTopicsResponse};
use talos_protocol::{ErrorCode, Str, Uuid};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::{describe_configs, text};
use crate::topic_config;
use crate::topics::{self, TopicRef};

/// As many as the metadata takes for one topic.
const MOST_PARTITIONS: i32 = 1_000_000;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: CreateTopicsRequest,
) -> CreateTopicsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = shared.env.clock.now() + timeout;
    let mut seen = BTreeSet::new();
    let twice: BTreeSet<Str> = request
        .topics
        .iter()
        .filter(|topic| !seen.insert(topic.name.clone()))
        .map(|topic| topic.name.clone())
        .collect();
    let mut answered = BTreeSet::new();
    // Partitions that the request asks for, so far.
    let mut asked = 0;
    let mut response = CreateTopicsResponse::default();
    for topic in request.topics {
        if !answered.insert(topic.name.clone()) {
            continue;
        }
        let result = if twice.contains(&topic.name) {
            Err(Failure::new(ErrorCode::InvalidRequest, "Duplicate topic name."))
        } else {
            let left = deadline.saturating_duration_since(shared.env.clock.now());
            let work = create(shared, &topic, request.validate_only, &mut asked);
            let timed_out = || Err(Failure::of(ErrorCode::RequestTimedOut));
            shared.env.clock.timeout(left, work).await.unwrap_or_else(timed_out)
        };
        response.topics.push(answer(shared, topic.name, result));
    }
    response
}

/// What was created, or would be.
struct Created {
    id: Uuid,
    new: NewTopic,
    replication_factor: i16,
}

async fn create(
    shared: &Arc<Shared>,
    topic: &CreatableTopic,
    validate_only: bool,
    asked: &mut i64,
) -> Result<Created, Failure> {
    let (new, replication_factor) = check(shared, topic)?;
    let together = *asked + i64::from(new.partitions);
    shared.check_request_partitions(together)?;
    *asked = together;
    if validate_only {
        shared.plan_partitions(new.partitions)?;
        return Ok(Created { id: Uuid::ZERO, new, replication_factor });
    }
    let created = shared.create_topic(new.clone()).await?;
    Ok(Created { id: Uuid(created.id.0), new, replication_factor })
}

fn check(shared: &Shared, topic: &CreatableTopic) -> Result<(NewTopic, i16), Failure> {
    topics::check_name(&topic.name)?;
    if topics::is_internal(&topic.name) {
        let message = format!("{} is made by the broker when it is needed", topic.name);
        return Err(Failure::new(ErrorCode::InvalidTopicException, message));
    }
    if shared.topic(TopicRef::Name(&topic.name)).is_ok() {
        let message = format!("Topic '{}' already exists.", topic.name);
        return Err(Failure::new(ErrorCode::TopicAlreadyExists, message));
    }
    if let Some(other) = topics::collision(&topic.name, &shared.topics.image()) {
        let message = format!("Topic '{}' collides with existing topic: {other}", topic.name);
        return Err(Failure::new(ErrorCode::InvalidTopicException, message));
    }
    let (partitions, replication_factor) = match topic.assignments.is_empty() {
        true => (
            check_partitions(shared, topic.num_partitions)?,
            check_factor(shared, topic.replication_factor)?,
        ),
        false => {
            if topic.num_partitions != -1 || topic.replication_factor != -1 {
                let message = "A manual partition assignment was specified, but numPartitions or \
                               replicationFactor was not set to -1.";
                return Err(Failure::new(ErrorCode::InvalidRequest, message));
            }
            check_assignments(shared.config.node_id.0, &topic.assignments)?
        }
    };
    let mut configs = BTreeMap::new();
    for config in &topic.configs {
        let value = topic_config::check(&config.name, config.value.as_deref())?;
        configs.insert(config.name.to_string(), value);
    }
    Ok((NewTopic { name: topic.name.to_string(), partitions, configs }, replication_factor))
}

fn check_partitions(shared: &Shared, asked: i32) -> Result<i32, Failure> {
    match asked {
        -1 => Ok(shared.config.num_partitions),
        1..=MOST_PARTITIONS => Ok(asked),
        ..=0 => {
            let message = "Number of partitions was set to an invalid non-positive value.";
            Err(Failure::new(ErrorCode::InvalidPartitions, message))
        }
        _ => {
            let message = format!("A topic can have at most {MOST_PARTITIONS} partitions.");
            Err(Failure::new(ErrorCode::InvalidPartitions, message))
        }
    }
}

fn check_factor(shared: &Shared, asked: i16) -> Result<i16, Failure> {
    match asked {
        -1 => Ok(shared.config.default_replication_factor),
        1 => Ok(1),
        ..=0 => {
            let message = "Replication factor was set to an invalid non-positive value.";
            Err(Failure::new(ErrorCode::InvalidReplicationFactor, message))
        }
        _ => {
            let message = format!(
                "Unable to replicate the partition {asked} time(s): only 1 broker is registered; \
                 the store replicates, use 1 or -1"
            );
            Err(Failure::new(ErrorCode::InvalidReplicationFactor, message))
        }
    }
}

fn check_assignments(
    us: i32,
    assignments: &[CreatableReplicaAssignment],
) -> Result<(i32, i16), Failure> {
    let invalid = |message: String| Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message));
    let mut indexes: Vec<_> = assignments.iter().map(|a| a.partition_index).collect();
    indexes.sort_unstable();
    if !indexes.iter().copied().eq(0..i32::try_from(indexes.len()).unwrap_or(i32::MAX)) {
        return invalid("partitions should be a consecutive 0-based integer sequence".into());
    }
    for assignment in assignments {
        check_replicas(us, &assignment.broker_ids)?;
    }
    Ok((i32::try_from(indexes.len()).unwrap_or(i32::MAX), 1))
}

/// A manual assignment may only name this broker, once.
pub(crate) fn check_replicas(us: i32, broker_ids: &[i32]) -> Result<(), Failure> {
    if broker_ids == [us] {
        return Ok(());
    }
    let message = format!("The manual partition assignment must name broker {us} and no other");
    Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message))
}

fn answer(shared: &Shared, name: Str, result: Result<Created, Failure>) -> CreatableTopicResult {
    match result {
        Ok(Created { id, new, replication_factor }) => {
            let entries = describe_configs::topic_entries(&shared.config, &new.configs);
            let configs = entries.into_iter().map(|entry| CreatableTopicConfigs {
                name: text(entry.name),
                value: Some(text(&entry.value)),
                read_only: false,
                config_source: entry.source,
                is_sensitive: false,
            });
            CreatableTopicResult {
                name,
                topic_id: id,
                error_message: None,
                num_partitions: new.partitions,
                replication_factor,
                configs: Some(configs.collect()),
                ..Default::default()
            }
        }
        Err(failure) => CreatableTopicResult {
            name,
            error_code: failure.code.code(),
            error_message: failure.text(),
            configs: None,
            ..Default::default()
        },
    }
}
