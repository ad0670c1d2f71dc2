//! OffsetForLeaderEpoch (key 23), versions 2 to 4.
//!
//! For a client whose last record has a leader epoch: the largest epoch not above it that has records
//! here, and the offset behind its last one (KIP-101, KIP-320), so that the client can tell whether
//! its position still exists. An epoch above the leader's is answered with -1, -1, as in Kafka.

use std::sync::Arc;

use talos_common::LeaderEpoch;
use talos_protocol::messages::offset_for_leader_epoch::{
    EpochEndOffset, OffsetForLeaderPartition, OffsetForLeaderTopicResult,
};
use talos_protocol::messages::{OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::check_leader_epoch;
use crate::topics::TopicRef;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: OffsetForLeaderEpochRequest,
) -> OffsetForLeaderEpochResponse {
    let mut response = OffsetForLeaderEpochResponse::default();
    for topic in request.topics {
        let answer = |asked: OffsetForLeaderPartition| {
            let nothing = EpochEndOffset { partition: asked.partition, ..Default::default() };
            match look_up(shared, &topic.topic, &asked) {
                Ok(Some((LeaderEpoch(leader_epoch), end_offset))) => {
                    EpochEndOffset { leader_epoch, end_offset, ..nothing }
                }
                Ok(None) => nothing,
                Err(failure) => EpochEndOffset { error_code: failure.code.code(), ..nothing },
            }
        };
        let partitions = topic.partitions.into_iter().map(answer).collect();
        response.topics.push(OffsetForLeaderTopicResult { topic: topic.topic.clone(), partitions });
    }
    response
}

fn look_up(
    shared: &Shared,
    topic: &str,
    asked: &OffsetForLeaderPartition,
) -> Result<Option<(LeaderEpoch, i64)>, Failure> {
    let cached = shared.topic(TopicRef::Name(topic))?;
    let log = shared.partition(&cached, asked.partition)?;
    check_leader_epoch(&log, asked.current_leader_epoch)?;
    Ok(log.end_of_epoch(LeaderEpoch(asked.leader_epoch)))
}
