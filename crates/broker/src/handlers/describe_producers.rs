//! DescribeProducers (key 61), version 0: the idempotent producers that partitions remember, with
//! their epoch and last sequence number.

use std::sync::Arc;

use talos_protocol::ErrorCode;
use talos_protocol::messages::describe_producers::{
    PartitionResponse, ProducerState, TopicResponse,
};
use talos_protocol::messages::{DescribeProducersRequest, DescribeProducersResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::distinct;
use crate::topics::TopicRef;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: DescribeProducersRequest,
) -> DescribeProducersResponse {
    let mut response = DescribeProducersResponse::default();
    for topic in distinct(request.topics, |topic| topic.name.clone()) {
        let describe = |partition_index: i32| {
            let (failure, active_producers) = match look_up(shared, &topic.name, partition_index) {
                Ok(producers) => (None, producers),
                Err(failure) => (Some(failure), Vec::new()),
            };
            PartitionResponse {
                partition_index,
                error_code: failure.as_ref().map_or(ErrorCode::None, |failure| failure.code).code(),
                error_message: failure.and_then(|failure| failure.text()),
                active_producers,
            }
        };
        let indexes = distinct(topic.partition_indexes, |index| *index);
        let partitions = indexes.into_iter().map(describe).collect();
        response.topics.push(TopicResponse { name: topic.name.clone(), partitions });
    }
    response
}

fn look_up(shared: &Shared, topic: &str, partition: i32) -> Result<Vec<ProducerState>, Failure> {
    let cached = shared.topic(TopicRef::Name(topic))?;
    let log = shared.partition(&cached, partition)?;
    let producers = log.producers();
    let state = |(producer_id, entry): (i64, &talos_log::producers::ProducerEntry)| {
        let last = entry.batches.back();
        ProducerState {
            producer_id,
            producer_epoch: i32::from(entry.epoch),
            last_sequence: last.map_or(-1, |batch| batch.last_sequence),
            last_timestamp: last.map_or(-1, |batch| batch.max_timestamp),
            coordinator_epoch: entry.coordinator_epoch,
            current_txn_start_offset: entry.transaction_start.unwrap_or(-1),
        }
    };
    Ok(producers.iter().map(state).collect())
}
