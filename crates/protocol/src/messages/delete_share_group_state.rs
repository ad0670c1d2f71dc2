//! DeleteShareGroupState: delete persisted state of share partitions.

use crate::primitives::{Str, Uuid};

message! {
    DeleteShareGroupStateRequest: versions [0], flexible [0+],
        key DeleteShareGroupState, response DeleteShareGroupStateResponse;
    /// Request: delete persisted state of share partitions.
    struct DeleteShareGroupStateRequest {
        group_id: Str [0+],
        topics: Vec<DeleteStateData> [0+],
    }
    struct DeleteStateData {
        topic_id: Uuid [0+],
        partitions: Vec<PartitionData> [0+],
    }
    struct PartitionData {
        partition: i32 [0+],
    }
}

message! {
    DeleteShareGroupStateResponse: versions [0], flexible [0+];
    /// Answers [`DeleteShareGroupStateRequest`].
    struct DeleteShareGroupStateResponse {
        results: Vec<DeleteStateResult> [0+],
    }
    struct DeleteStateResult {
        topic_id: Uuid [0+],
        partitions: Vec<PartitionResult> [0+],
    }
    struct PartitionResult {
        partition: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
    }
}
