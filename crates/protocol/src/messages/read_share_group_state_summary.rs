//! ReadShareGroupStateSummary: read a summary of persisted state of share partitions.

use crate::primitives::{Str, Uuid};

message! {
    ReadShareGroupStateSummaryRequest: versions [0-1], flexible [0+],
        key ReadShareGroupStateSummary, response ReadShareGroupStateSummaryResponse;
    /// Request: read a summary of persisted state of share partitions.
    struct ReadShareGroupStateSummaryRequest {
        group_id: Str [0+],
        topics: Vec<ReadStateSummaryData> [0+],
    }
    struct ReadStateSummaryData {
        topic_id: Uuid [0+],
        partitions: Vec<PartitionData> [0+],
    }
    struct PartitionData {
        partition: i32 [0+],
        leader_epoch: i32 [0+],
    }
}

message! {
    ReadShareGroupStateSummaryResponse: versions [0-1], flexible [0+];
    /// Answers [`ReadShareGroupStateSummaryRequest`].
    struct ReadShareGroupStateSummaryResponse {
        results: Vec<ReadStateSummaryResult> [0+],
    }
    struct ReadStateSummaryResult {
        topic_id: Uuid [0+],
        partitions: Vec<PartitionResult> [0+],
    }
    struct PartitionResult {
        partition: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        state_epoch: i32 [0+],
        leader_epoch: i32 [0+],
        start_offset: i64 [0+],
        delivery_complete_count: i32 [1+, ignorable] = -1,
    }
}
