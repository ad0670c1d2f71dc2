//! AlterShareGroupOffsets: set the start offsets of a share group.

use crate::primitives::{Str, Uuid};

message! {
    AlterShareGroupOffsetsRequest: versions [0], flexible [0+],
        key AlterShareGroupOffsets, response AlterShareGroupOffsetsResponse;
    /// Request: set the start offsets of a share group.
    struct AlterShareGroupOffsetsRequest {
        group_id: Str [0+],
        topics: Vec<AlterShareGroupOffsetsRequestTopic> [0+],
    }
    struct AlterShareGroupOffsetsRequestTopic {
        topic_name: Str [0+],
        partitions: Vec<AlterShareGroupOffsetsRequestPartition> [0+],
    }
    struct AlterShareGroupOffsetsRequestPartition {
        partition_index: i32 [0+],
        start_offset: i64 [0+],
    }
}

message! {
    AlterShareGroupOffsetsResponse: versions [0], flexible [0+];
    /// Answers [`AlterShareGroupOffsetsRequest`].
    struct AlterShareGroupOffsetsResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        responses: Vec<AlterShareGroupOffsetsResponseTopic> [0+],
    }
    struct AlterShareGroupOffsetsResponseTopic {
        topic_name: Str [0+],
        topic_id: Uuid [0+],
        partitions: Vec<AlterShareGroupOffsetsResponsePartition> [0+],
    }
    struct AlterShareGroupOffsetsResponsePartition {
        partition_index: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
    }
}
