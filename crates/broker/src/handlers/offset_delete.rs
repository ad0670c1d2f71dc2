//! OffsetDelete (key 47), version 0. Forgets offsets of a group, unless a member still consumes the
//! topic (GROUP_SUBSCRIBED_TO_TOPIC). Topics that do not exist: UNKNOWN_TOPIC_OR_PARTITION.

use std::sync::Arc;

use talos_protocol::ErrorCode;
use talos_protocol::messages::offset_delete::{
    OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
use talos_protocol::messages::{OffsetDeleteRequest, OffsetDeleteResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::Code;
use crate::handlers::group_text;
use crate::topics::TopicRef;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: OffsetDeleteRequest,
) -> OffsetDeleteResponse {
    let mut known = Vec::new();
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let exists = shared.topic(TopicRef::Name(&topic.name)).is_ok();
        let partition = |partition_index: i32| {
            let error = match exists {
                true => {
                    known.push((group_text(&topic.name), partition_index));
                    ErrorCode::None
                }
                false => ErrorCode::UnknownTopicOrPartition,
            };
            OffsetDeleteResponsePartition { partition_index, error_code: error.code() }
        };
        let asked = topic.partitions.iter().map(|partition| partition.partition_index);
        let partitions = asked.map(partition).collect();
        topics.push(OffsetDeleteResponseTopic { name: topic.name.clone(), partitions });
    }
    let whole = |code: Code| OffsetDeleteResponse { error_code: code.code(), ..Default::default() };
    let Some(coordinator) = shared.coordinator(&request.group_id) else {
        return whole(Code::NotCoordinator);
    };
    let response = coordinator.delete_offsets(group_text(&request.group_id), known).await;
    if response.code != Code::None {
        return whole(response.code);
    }
    let mut codes = response.partitions.into_iter();
    for partition in topics.iter_mut().flat_map(|topic| &mut topic.partitions) {
        if partition.error_code == 0 {
            partition.error_code = codes.next().unwrap_or(Code::None).code();
        }
    }
    OffsetDeleteResponse { topics, ..Default::default() }
}
