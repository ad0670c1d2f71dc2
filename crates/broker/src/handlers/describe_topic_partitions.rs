//! DescribeTopicPartitions (key 75), version 0: Metadata in pages (KIP-966).
//!
//! Topics in the order of their names, from the cursor on, at most `response_partition_limit`
//! partitions (and never more than 2,000) in one answer. No topics asked for means all. Nothing is
//! created. The eligible leader replicas are always empty: the store replicates.

use std::sync::Arc;

use talos_meta::TopicState;
use talos_meta::topics_cache::CachedTopic;
use talos_protocol::messages::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseCursor, DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
};
use talos_protocol::{ErrorCode, Str, Uuid};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::{metadata, text};
use crate::topics::{TopicRef, check_name, is_internal};

const MOST_PARTITIONS: usize = 2_000;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: DescribeTopicPartitionsRequest,
) -> DescribeTopicPartitionsResponse {
    let limit = usize::try_from(request.response_partition_limit).unwrap_or(0);
    let mut room = limit.clamp(1, MOST_PARTITIONS);
    let (from_topic, from_partition) = match &request.cursor {
        Some(cursor) => (cursor.topic_name.clone(), cursor.partition_index.max(0)),
        None => (Str::default(), 0),
    };
    let mut names: Vec<Str> = request.topics.into_iter().map(|topic| topic.name).collect();
    if names.is_empty() {
        let image = shared.topics.image();
        let live = image.iter().filter(|cached| cached.topic.state == TopicState::Live);
        names = live.map(|cached| text(&cached.topic.name)).collect();
    }
    names.sort();
    names.dedup();
    names.retain(|name| *name >= from_topic);
    let mut response = DescribeTopicPartitionsResponse::default();
    for name in names {
        let first = if name == from_topic { from_partition } else { 0 };
        if room == 0 {
            response.next_cursor = Some(cursor(name, first));
            break;
        }
        match find(shared, &name) {
            Ok(cached) => {
                let (topic, next) = describe(shared, &cached, first, room);
                room -= topic.partitions.len();
                response.topics.push(topic);
                if let Some(next) = next {
                    response.next_cursor = Some(cursor(name, next));
                    break;
                }
            }
            Err(failure) => response.topics.push(DescribeTopicPartitionsResponseTopic {
                error_code: failure.code.code(),
                name: Some(name),
                ..Default::default()
            }),
        }
    }
    response
}

fn cursor(topic_name: Str, partition_index: i32) -> DescribeTopicPartitionsResponseCursor {
    DescribeTopicPartitionsResponseCursor { topic_name, partition_index }
}

fn find(shared: &Shared, name: &str) -> Result<Arc<CachedTopic>, Failure> {
    check_name(name)?;
    shared.topic(TopicRef::Name(name))
}

/// At most `room` partitions from `first` on, and the one that is next.
fn describe(
    shared: &Shared,
    cached: &CachedTopic,
    first: i32,
    room: usize,
) -> (DescribeTopicPartitionsResponseTopic, Option<i32>) {
    let topic = &cached.topic;
    let mut ids = topic.partition_ids().skip(usize::try_from(first).unwrap_or(0));
    let partitions = ids
        .by_ref()
        .take(room)
        .map(|id| {
            let partition = metadata::partition(shared, id);
            DescribeTopicPartitionsResponsePartition {
                error_code: partition.error_code,
                partition_index: partition.partition_index,
                leader_id: partition.leader_id,
                leader_epoch: partition.leader_epoch,
                replica_nodes: partition.replica_nodes,
                isr_nodes: partition.isr_nodes,
                eligible_leader_replicas: Some(Vec::new()),
                last_known_elr: Some(Vec::new()),
                offline_replicas: partition.offline_replicas,
            }
        })
        .collect();
    let described = DescribeTopicPartitionsResponseTopic {
        error_code: ErrorCode::None.code(),
        name: Some(text(&topic.name)),
        topic_id: Uuid(topic.id.0),
        is_internal: is_internal(&topic.name),
        partitions,
        ..Default::default()
    };
    (described, ids.next().map(|id| id.partition))
}
