//! OffsetCommit (key 8), versions 2 to 10.
//!
//! Stores offsets of a group, answered when they are durable. 2 to 4 carry a retention (negative: as
//! configured), 6 leader epochs, 7 static members, 10 topic ids. Topics and partitions that do not
//! exist fail alone: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID.

use std::sync::Arc;

use talos_common::TopicId;
use talos_protocol::ErrorCode;
use talos_protocol::messages::offset_commit::{
    OffsetCommitRequestTopic, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
use talos_protocol::messages::{OffsetCommitRequest, OffsetCommitResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::Code;
use crate::groups::api::{CommitOffset, CommitRequest};
use crate::handlers::group_text;
use crate::topics::TopicRef;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: OffsetCommitRequest,
) -> OffsetCommitResponse {
    let mut offsets = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        topics.push(take(shared, context.version, topic, &mut offsets));
    }
    let count = offsets.len();
    let codes = match shared.coordinator(&request.group_id) {
        Some(coordinator) => {
            let commit = CommitRequest {
                version: context.version,
                group_id: group_text(&request.group_id),
                generation_id: request.generation_id_or_member_epoch,
                member_id: group_text(&request.member_id),
                group_instance_id: request.group_instance_id.as_deref().map(group_text),
                retention_ms: request.retention_time_ms,
                offsets,
            };
            coordinator.commit(commit).await
        }
        None => vec![Code::NotCoordinator; count],
    };
    // Those that exist were given on, in order; the others have their code already.
    let mut codes = codes.into_iter();
    for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if partition.error_code == 0 {
            let missing = Code::UnknownServerError;
            partition.error_code = codes.next().unwrap_or(missing).code();
        }
    }
    OffsetCommitResponse { topics, ..Default::default() }
}

/// The answer's frame for a topic; what exists goes to `offsets`.
fn take(
    shared: &Shared,
    version: i16,
    topic: OffsetCommitRequestTopic,
    offsets: &mut Vec<CommitOffset>,
) -> OffsetCommitResponseTopic {
    let by = match version {
        ..10 => TopicRef::Name(&topic.name),
        _ => TopicRef::Id(TopicId(topic.topic_id.0)),
    };
    let found = shared.topic(by);
    let mut partitions = Vec::with_capacity(topic.partitions.len());
    for asked in topic.partitions {
        let index = asked.partition_index;
        let error = match &found {
            Ok(cached) if (0..cached.topic.partitions).contains(&index) => {
                offsets.push(CommitOffset {
                    topic: group_text(&cached.topic.name),
                    topic_id: cached.topic.id,
                    partition: index,
                    offset: asked.committed_offset,
                    leader_epoch: asked.committed_leader_epoch,
                    metadata: asked.committed_metadata.as_deref().map(group_text),
                });
                ErrorCode::None
            }
            Ok(_) => ErrorCode::UnknownTopicOrPartition,
            Err(failure) => failure.code,
        };
        partitions.push(OffsetCommitResponsePartition {
            partition_index: index,
            error_code: error.code(),
        });
    }
    OffsetCommitResponseTopic { name: topic.name, topic_id: topic.topic_id, partitions }
}
