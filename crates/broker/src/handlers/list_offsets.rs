//! ListOffsets (key 2), versions 1 to 11.
//!
//! Offsets by time: the first record at or after the timestamp, exact inside compressed batches; -1
//! the end (high watermark; last stable offset for read_committed), -2 the start, -3 (7) the record
//! with the largest timestamp, -4 (8) the local start, which is the start, -5 (9) the end of tiered
//! data and -6 (11) what waits for upload: unknown, because there is one tier. 4 adds leader epochs.
//! Nothing found is offset -1 without an error. A partition asked for twice is INVALID_REQUEST, a
//! negative timestamp that the version does not know UNSUPPORTED_VERSION, as in Kafka.

use std::collections::BTreeSet;
use std::sync::Arc;

use talos_log::PartitionLog;
use talos_log::partition::TimestampOffset;
use talos_protocol::ErrorCode;
use talos_protocol::messages::list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsTopicResponse,
};
use talos_protocol::messages::{ListOffsetsRequest, ListOffsetsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::check_leader_epoch;
use crate::topics::TopicRef;

const LATEST: i64 = -1;
const EARLIEST: i64 = -2;
const MAX_TIMESTAMP: i64 = -3;
const EARLIEST_LOCAL: i64 = -4;
const LATEST_TIERED: i64 = -5;
const EARLIEST_PENDING_UPLOAD: i64 = -6;
const READ_COMMITTED: i8 = 1;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: ListOffsetsRequest,
) -> ListOffsetsResponse {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for topic in &request.topics {
        for asked in &topic.partitions {
            let id = (topic.name.clone(), asked.partition_index);
            if !seen.insert(id.clone()) {
                twice.insert(id);
            }
        }
    }
    let mut response = ListOffsetsResponse::default();
    for topic in request.topics {
        let found = shared.topic(TopicRef::Name(&topic.name));
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let index = asked.partition_index;
            let result = if twice.contains(&(topic.name.clone(), index)) {
                Err(Failure::of(ErrorCode::InvalidRequest))
            } else {
                match &found {
                    Ok(cached) => match shared.partition(cached, index) {
                        Ok(log) => {
                            look_up(&log, &asked, request.isolation_level, context.version).await
                        }
                        Err(failure) => Err(failure),
                    },
                    Err(failure) => Err(failure.clone()),
                }
            };
            partitions.push(answer(index, context.version, result));
        }
        response.topics.push(ListOffsetsTopicResponse { name: topic.name, partitions });
    }
    response
}

fn is_known(timestamp: i64, version: i16) -> bool {
    match timestamp {
        LATEST | EARLIEST => true,
        MAX_TIMESTAMP => version >= 7,
        EARLIEST_LOCAL => version >= 8,
        LATEST_TIERED => version >= 9,
        EARLIEST_PENDING_UPLOAD => version >= 11,
        other => other >= 0,
    }
}

/// Offset, timestamp (-1 where it has no meaning) and leader epoch; `None`: there is no such record.
async fn look_up(
    log: &PartitionLog,
    asked: &ListOffsetsPartition,
    isolation_level: i8,
    version: i16,
) -> Result<Option<(i64, i64, i32)>, Failure> {
    check_leader_epoch(log, asked.current_leader_epoch)?;
    if !is_known(asked.timestamp, version) {
        return Err(Failure::of(ErrorCode::UnsupportedVersion));
    }
    if let Some(why) = log.ended() {
        return Err(Failure::new(ErrorCode::NotLeaderOrFollower, why));
    }
    let (offsets, epoch) = (log.offsets(), log.leader_epoch().0);
    let at = |found: TimestampOffset| (found.offset, found.timestamp, found.epoch.0);
    Ok(match asked.timestamp {
        LATEST if isolation_level == READ_COMMITTED => Some((offsets.last_stable, -1, epoch)),
        LATEST => Some((offsets.high_watermark, -1, epoch)),
        EARLIEST | EARLIEST_LOCAL => Some((offsets.log_start, -1, epoch)),
        MAX_TIMESTAMP => log.max_timestamp().await?.map(at),
        LATEST_TIERED | EARLIEST_PENDING_UPLOAD => None,
        timestamp => log.offset_for_timestamp(timestamp).await?.map(at),
    })
}

fn answer(
    partition_index: i32,
    version: i16,
    result: Result<Option<(i64, i64, i32)>, Failure>,
) -> ListOffsetsPartitionResponse {
    let nothing = ListOffsetsPartitionResponse { partition_index, ..Default::default() };
    match result {
        Ok(Some((offset, timestamp, epoch))) => {
            let leader_epoch = if version >= 4 { epoch } else { -1 };
            ListOffsetsPartitionResponse { offset, timestamp, leader_epoch, ..nothing }
        }
        Ok(None) => nothing,
        Err(failure) => ListOffsetsPartitionResponse { error_code: failure.code.code(), ..nothing },
    }
}
