//! OffsetDelete: forget offsets of a group.

use crate::primitives::Str;

message! {
    OffsetDeleteRequest: versions [0], flexible [none],
        key OffsetDelete, response OffsetDeleteResponse;
    /// Request: forget offsets of a group.
    struct OffsetDeleteRequest {
        group_id: Str [0+],
        topics: Vec<OffsetDeleteRequestTopic> [0+],
    }
    struct OffsetDeleteRequestTopic {
        name: Str [0+],
        partitions: Vec<OffsetDeleteRequestPartition> [0+],
    }
    struct OffsetDeleteRequestPartition {
        partition_index: i32 [0+],
    }
}

message! {
    OffsetDeleteResponse: versions [0], flexible [none];
    /// Answers [`OffsetDeleteRequest`].
    struct OffsetDeleteResponse {
        error_code: i16 [0+],
        throttle_time_ms: i32 [0+, ignorable],
        topics: Vec<OffsetDeleteResponseTopic> [0+],
    }
    struct OffsetDeleteResponseTopic {
        name: Str [0+],
        partitions: Vec<OffsetDeleteResponsePartition> [0+],
    }
    struct OffsetDeleteResponsePartition {
        partition_index: i32 [0+],
        error_code: i16 [0+],
    }
}
