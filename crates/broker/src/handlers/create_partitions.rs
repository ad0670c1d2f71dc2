//! CreatePartitions (key 37), versions 0 to 3.
//!
//! Raises partition counts, all or with `validate_only` none; every topic of the request is answered.
//! The limits are those of [`super::create_topics`].
//! Different from Kafka: an assignment may only name this broker; new partitions can be used when the
//! answer comes.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use talos_protocol::ErrorCode;
use talos_protocol::messages::create_partitions::{
    CreatePartitionsTopic, CreatePartitionsTopicResult,
};
use talos_protocol::messages::{CreatePartitionsRequest, CreatePartitionsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::create_topics::check_replicas;
use crate::topics::{TopicRef, is_internal};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: CreatePartitionsRequest,
) -> CreatePartitionsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = shared.env.clock.now() + timeout;
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for topic in &request.topics {
        if !seen.insert(topic.name.clone()) {
            twice.insert(topic.name.clone());
        }
    }
    // Partitions that the request asks for, so far.
    let mut asked = 0;
    let mut results = Vec::new();
    for topic in request.topics {
        // A name that is given twice is answered once.
        if !seen.remove(&topic.name) {
            continue;
        }
        let result = if twice.contains(&topic.name) {
            Err(Failure::new(ErrorCode::InvalidRequest, "Duplicate topic in request."))
        } else {
            let left = deadline.saturating_duration_since(shared.env.clock.now());
            let work = create(shared, &topic, request.validate_only, &mut asked);
            let timed_out = || Err(Failure::of(ErrorCode::RequestTimedOut));
            shared.env.clock.timeout(left, work).await.unwrap_or_else(timed_out)
        };
        let failure = result.err();
        results.push(CreatePartitionsTopicResult {
            name: topic.name,
            error_code: failure.as_ref().map_or(ErrorCode::None, |failure| failure.code).code(),
            error_message: failure.and_then(|failure| failure.text()),
        });
    }
    CreatePartitionsResponse { results, ..Default::default() }
}

async fn create(
    shared: &Arc<Shared>,
    topic: &CreatePartitionsTopic,
    validate_only: bool,
    asked: &mut i64,
) -> Result<(), Failure> {
    let cached = shared.topic(TopicRef::Name(&topic.name))?;
    if is_internal(&topic.name) {
        // Groups are found by their hash over the partitions.
        let message = format!("{} keeps the partitions that it has", topic.name);
        return Err(Failure::new(ErrorCode::InvalidTopicException, message));
    }
    let (has, wants) = (cached.topic.partitions, topic.count);
    let invalid = |message: String| Err(Failure::new(ErrorCode::InvalidPartitions, message));
    if wants == has {
        return invalid(format!("Topic already has {has} partition(s)."));
    }
    if wants < has {
        return invalid(format!(
            "The topic {} currently has {has} partition(s); {wants} would not be an increase.",
            topic.name
        ));
    }
    if let Some(assignments) = &topic.assignments {
        if i32::try_from(assignments.len()).ok() != Some(wants - has) {
            let message = format!(
                "Attempted to add {} additional partition(s), but {} assignment(s) were specified.",
                wants - has,
                assignments.len()
            );
            return Err(Failure::new(ErrorCode::InvalidReplicaAssignment, message));
        }
        for assignment in assignments {
            check_replicas(shared.config.node_id.0, &assignment.broker_ids)?;
        }
    }
    let together = *asked + i64::from(wants) - i64::from(has);
    shared.check_request_partitions(together)?;
    *asked = together;
    if validate_only {
        return shared.plan_partitions(wants - has).map(drop);
    }
    let (task, id) = (Arc::clone(shared), cached.topic.id);
    shared
        .to_end("create partitions", async move {
            let _planned = task.plan_partitions(wants - has)?;
            task.meta.add_partitions(id, wants).await?;
            task.opened(id).await;
            Ok(())
        })
        .await
}
