//! InitializeShareGroupState: make persisted state for share partitions.

use crate::primitives::{Str, Uuid};

message! {
    InitializeShareGroupStateRequest: versions [0], flexible [0+],
        key InitializeShareGroupState, response InitializeShareGroupStateResponse;
    /// Request: make persisted state for share partitions.
    struct InitializeShareGroupStateRequest {
        group_id: Str [0+],
        topics: Vec<InitializeStateData> [0+],
    }
    struct InitializeStateData {
        topic_id: Uuid [0+],
        partitions: Vec<PartitionData> [0+],
    }
    struct PartitionData {
        partition: i32 [0+],
        state_epoch: i32 [0+],
        start_offset: i64 [0+],
    }
}

message! {
    InitializeShareGroupStateResponse: versions [0], flexible [0+];
    /// Answers [`InitializeShareGroupStateRequest`].
    struct InitializeShareGroupStateResponse {
        results: Vec<InitializeStateResult> [0+],
    }
    struct InitializeStateResult {
        topic_id: Uuid [0+],
        partitions: Vec<PartitionResult> [0+],
    }
    struct PartitionResult {
        partition: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
    }
}
