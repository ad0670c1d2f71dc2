//! OffsetFetch (key 9), versions 1 to 10.
//!
//! Reads offsets of one group (to 7) or several (from 8): of the asked partitions, or from version 2
//! of all (null). No offset is -1 without an error. 5 adds leader epochs, 7 `require_stable` (no
//! transactions exist, so every offset is stable), 10 topic ids (UNKNOWN_TOPIC_ID). An offset that was
//! stored for an earlier topic of the same name is not returned.

use std::sync::Arc;

use talos_common::TopicId;
use talos_protocol::messages::offset_fetch::{
    OffsetFetchRequestTopics, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
use talos_protocol::messages::{OffsetFetchRequest, OffsetFetchResponse};
use talos_protocol::{ErrorCode, Str, Uuid};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::Code;
use crate::groups::api::{FetchRequest, FetchTopic, FetchedOffset};
use crate::handlers::{distinct, group_text, text};
use crate::topics::TopicRef;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: OffsetFetchRequest,
) -> OffsetFetchResponse {
    let version = context.version;
    if version >= 8 {
        let group = |group: talos_protocol::messages::OffsetFetchRequestGroup| {
            one_group(shared, version, group.group_id, group.topics, request.require_stable)
        };
        let groups = distinct(request.groups, |group| group.group_id.clone());
        let groups = groups.into_iter().map(group).collect();
        return OffsetFetchResponse { groups, ..Default::default() };
    }
    let topics = request.topics.map(|topics| {
        let topic =
            |topic: talos_protocol::messages::OffsetFetchRequestTopic| OffsetFetchRequestTopics {
                name: topic.name,
                topic_id: Uuid::ZERO,
                partition_indexes: topic.partition_indexes,
            };
        topics.into_iter().map(topic).collect::<Vec<_>>()
    });
    let asked = topics.clone();
    let group = one_group(shared, version, request.group_id, topics, request.require_stable);
    let mut topics = group.topics;
    if group.error_code != 0 && version < 2 {
        // Version 1 has no error of the whole.
        topics = failed(asked.unwrap_or_default(), group.error_code);
    }
    OffsetFetchResponse {
        topics: topics.into_iter().map(old_form).collect(),
        error_code: group.error_code,
        ..Default::default()
    }
}

fn one_group(
    shared: &Shared,
    version: i16,
    group_id: Str,
    topics: Option<Vec<OffsetFetchRequestTopics>>,
    require_stable: bool,
) -> OffsetFetchResponseGroup {
    let mut unknown = Vec::new();
    let topics = topics.map(|topics| known_topics(shared, version, topics, &mut unknown));
    let result = match shared.coordinator(&group_id) {
        Some(coordinator) => {
            let group_id = group_text(&group_id);
            coordinator.fetch(&FetchRequest { group_id, topics, require_stable })
        }
        None => Err(Code::NotCoordinator),
    };
    match result {
        Ok(offsets) => {
            let mut topics = by_topic(offsets);
            topics.extend(failed(unknown, ErrorCode::UnknownTopicId.code()));
            OffsetFetchResponseGroup { group_id, topics, error_code: 0 }
        }
        Err(code) => {
            OffsetFetchResponseGroup { group_id, topics: Vec::new(), error_code: code.code() }
        }
    }
}

/// The topics for the group; ids that do not exist go to `unknown`.
fn known_topics(
    shared: &Shared,
    version: i16,
    topics: Vec<OffsetFetchRequestTopics>,
    unknown: &mut Vec<OffsetFetchRequestTopics>,
) -> Vec<FetchTopic> {
    let mut known = Vec::with_capacity(topics.len());
    for topic in topics {
        let (name, topic_id) = if version >= 10 {
            match shared.topic(TopicRef::Id(TopicId(topic.topic_id.0))) {
                Ok(cached) => (group_text(&cached.topic.name), cached.topic.id),
                Err(_) => {
                    unknown.push(topic);
                    continue;
                }
            }
        } else {
            let id = shared.topic(TopicRef::Name(&topic.name)).map(|cached| cached.topic.id);
            (group_text(&topic.name), id.unwrap_or_default())
        };
        known.push(FetchTopic { topic: name, topic_id, partitions: topic.partition_indexes });
    }
    known
}

/// Neighbours of one topic together.
fn by_topic(offsets: Vec<FetchedOffset>) -> Vec<OffsetFetchResponseTopics> {
    let mut topics: Vec<OffsetFetchResponseTopics> = Vec::new();
    for found in offsets {
        let partition = OffsetFetchResponsePartitions {
            partition_index: found.partition,
            committed_offset: found.offset,
            committed_leader_epoch: found.leader_epoch,
            metadata: Some(text(&found.metadata)),
            error_code: 0,
        };
        match topics.last_mut() {
            Some(last) if *last.name == *found.topic && last.topic_id.0 == found.topic_id.0 => {
                last.partitions.push(partition);
            }
            Some(_) | None => topics.push(OffsetFetchResponseTopics {
                name: text(&found.topic),
                topic_id: Uuid(found.topic_id.0),
                partitions: vec![partition],
            }),
        }
    }
    topics
}

fn failed(
    topics: Vec<OffsetFetchRequestTopics>,
    error_code: i16,
) -> Vec<OffsetFetchResponseTopics> {
    let topic = |topic: OffsetFetchRequestTopics| {
        let partition = |partition_index: i32| OffsetFetchResponsePartitions {
            partition_index,
            committed_offset: -1,
            metadata: Some(Str::default()),
            error_code,
            ..Default::default()
        };
        OffsetFetchResponseTopics {
            name: topic.name,
            topic_id: topic.topic_id,
            partitions: topic.partition_indexes.into_iter().map(partition).collect(),
        }
    };
    topics.into_iter().map(topic).collect()
}

fn old_form(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    let partition = |partition: OffsetFetchResponsePartitions| OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    };
    OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(partition).collect(),
    }
}
