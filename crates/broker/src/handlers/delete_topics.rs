//! DeleteTopics (key 20), versions 1 to 6.
//!
//! By name, or from version 6 by id. The topic is marked as deleted durably, its logs end, its records
//! are closed, and then its name is free (E-D1); its files go because of its tombstone (E-D2). 5 adds
//! error messages. Both name and id, neither, or one twice: INVALID_REQUEST. With
//! `delete.topic.enable=false`: TOPIC_DELETION_DISABLED.
//! Different from Kafka: answers come in the order of the request, when the name is free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use talos_common::TopicId;
use talos_meta::Topic;
use talos_protocol::messages::delete_topics::{DeletableTopicResult, DeleteTopicState};
use talos_protocol::messages::{DeleteTopicsRequest, DeleteTopicsResponse};
use talos_protocol::{ErrorCode, Uuid};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::topics::{OFFSETS_TOPIC, TopicRef};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: DeleteTopicsRequest,
) -> DeleteTopicsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = shared.env.clock.now() + timeout;
    let asked: Vec<DeleteTopicState> = match context.version {
        ..6 => {
            let by_name = |name| DeleteTopicState { name: Some(name), topic_id: Uuid::ZERO };
            request.topic_names.into_iter().map(by_name).collect()
        }
        _ => request.topics,
    };
    let found: Vec<_> = asked.iter().map(|topic| find(shared, topic)).collect();
    let mut times: BTreeMap<TopicId, u32> = BTreeMap::new();
    for topic in found.iter().flatten() {
        *times.entry(topic.id).or_default() += 1;
    }
    let mut response = DeleteTopicsResponse::default();
    for (asked, found) in asked.into_iter().zip(found) {
        let result = match found {
            Ok(topic) if times.get(&topic.id).is_some_and(|times| *times > 1) => {
                Err(Failure::new(ErrorCode::InvalidRequest, "The topic is named twice."))
            }
            Ok(topic) => {
                let left = deadline.saturating_duration_since(shared.env.clock.now());
                let work = delete(shared, topic);
                let timed_out = || Err(Failure::of(ErrorCode::RequestTimedOut));
                shared.env.clock.timeout(left, work).await.unwrap_or_else(timed_out)
            }
            Err(failure) => Err(failure),
        };
        response.responses.push(answer(asked, result));
    }
    response
}

fn find(shared: &Shared, asked: &DeleteTopicState) -> Result<Topic, Failure> {
    if !shared.config.delete_topic_enable {
        return Err(Failure::of(ErrorCode::TopicDeletionDisabled));
    }
    let invalid = |message: &str| Err(Failure::new(ErrorCode::InvalidRequest, message));
    let by = match (&asked.name, asked.topic_id.is_zero()) {
        (Some(_), false) => return invalid("You may not specify both topic name and topic id."),
        (None, true) => return invalid("Neither topic name nor id was specified."),
        (Some(name), true) => TopicRef::Name(name),
        (None, false) => TopicRef::Id(TopicId(asked.topic_id.0)),
    };
    let cached = shared.topic(by)?;
    if cached.topic.name == OFFSETS_TOPIC {
        let message = format!("{OFFSETS_TOPIC} holds the offsets of all groups; it stays");
        return Err(Failure::new(ErrorCode::InvalidTopicException, message));
    }
    Ok(cached.topic.clone())
}

async fn delete(shared: &Arc<Shared>, topic: Topic) -> Result<Topic, Failure> {
    let task = Arc::clone(shared);
    shared
        .to_end("delete topic", async move {
            task.meta.begin_deletion(topic.id).await?;
            // Marked for ever; what follows is finished later if it fails now.
            if let Err(error) = task.topics.refresh(topic.id).await {
                tracing::debug!(topic = %topic.id, %error, "a deleted topic could not be read at once");
            }
            if let Err(failure) = task.finish_deletion(topic.id).await {
                tracing::info!(topic = %topic.id, why = failure.message, "a deletion goes on later");
            }
            Ok(topic)
        })
        .await
}

fn answer(asked: DeleteTopicState, result: Result<Topic, Failure>) -> DeletableTopicResult {
    match result {
        Ok(topic) => DeletableTopicResult {
            name: Some(crate::handlers::text(&topic.name)),
            topic_id: Uuid(topic.id.0),
            ..Default::default()
        },
        Err(failure) => DeletableTopicResult {
            name: asked.name,
            topic_id: asked.topic_id,
            error_code: failure.code.code(),
            error_message: failure.text(),
        },
    }
}
