//! DeleteRecords (key 21), versions 0 to 2.
//!
//! Moves the log start of partitions up to an offset (-1: the high watermark), durably, and tells the
//! new log start. Beyond the high watermark: OFFSET_OUT_OF_RANGE; internal topics:
//! INVALID_TOPIC_EXCEPTION.

use std::sync::Arc;
use std::time::Duration;

use talos_protocol::ErrorCode;
use talos_protocol::messages::delete_records::{
    DeleteRecordsPartitionResult, DeleteRecordsTopicResult,
};
use talos_protocol::messages::{DeleteRecordsRequest, DeleteRecordsResponse};
use tokio::time::Instant;

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::topics::{TopicRef, is_internal};

/// «Everything that there is.»
const HIGH_WATERMARK: i64 = -1;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: DeleteRecordsRequest,
) -> DeleteRecordsResponse {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = shared.env.clock.now() + timeout;
    let mut topics = Vec::with_capacity(request.topics.len());
    for topic in request.topics {
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for asked in topic.partitions {
            let index = asked.partition_index;
            let result = delete(shared, &topic.name, index, asked.offset, deadline).await;
            partitions.push(match result {
                Ok(low_watermark) => DeleteRecordsPartitionResult {
                    partition_index: index,
                    low_watermark,
                    ..Default::default()
                },
                Err(failure) => DeleteRecordsPartitionResult {
                    partition_index: index,
                    low_watermark: -1,
                    error_code: failure.code.code(),
                },
            });
        }
        topics.push(DeleteRecordsTopicResult { name: topic.name, partitions });
    }
    DeleteRecordsResponse { topics, ..Default::default() }
}

async fn delete(
    shared: &Arc<Shared>,
    name: &str,
    partition: i32,
    offset: i64,
    deadline: Instant,
) -> Result<i64, Failure> {
    if is_internal(name) {
        return Err(Failure::of(ErrorCode::InvalidTopicException));
    }
    let cached = shared.topic(TopicRef::Name(name))?;
    let log = shared.partition(&cached, partition)?;
    let offset = match offset {
        HIGH_WATERMARK => log.offsets().high_watermark,
        ..HIGH_WATERMARK => return Err(Failure::of(ErrorCode::OffsetOutOfRange)),
        offset => offset,
    };
    let left = deadline.saturating_duration_since(shared.env.clock.now());
    let work =
        shared.to_end("delete records", async move { Ok(log.advance_log_start(offset).await?) });
    let timed_out = || Err(Failure::of(ErrorCode::RequestTimedOut));
    shared.env.clock.timeout(left, work).await.unwrap_or_else(timed_out)
}
