//! CreatePartitions: give topics more partitions.

use crate::primitives::Str;

message! {
    CreatePartitionsRequest: versions [0-3], flexible [2+],
        key CreatePartitions, response CreatePartitionsResponse;
    /// Request: give topics more partitions.
    struct CreatePartitionsRequest {
        topics: Vec<CreatePartitionsTopic> [0+],
        timeout_ms: i32 [0+],
        validate_only: bool [0+],
    }
    struct CreatePartitionsTopic {
        name: Str [0+],
        count: i32 [0+],
        assignments: Option<Vec<CreatePartitionsAssignment>> [0+, null 0+],
    }
    struct CreatePartitionsAssignment {
        broker_ids: Vec<i32> [0+],
    }
}

message! {
    CreatePartitionsResponse: versions [0-3], flexible [2+];
    /// Answers [`CreatePartitionsRequest`].
    struct CreatePartitionsResponse {
        throttle_time_ms: i32 [0+],
        results: Vec<CreatePartitionsTopicResult> [0+],
    }
    struct CreatePartitionsTopicResult {
        name: Str [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
    }
}
