//! OffsetForLeaderEpoch: where a leader epoch ended.

use crate::primitives::Str;

message! {
    OffsetForLeaderEpochRequest: versions [2-4], flexible [4+],
        key OffsetForLeaderEpoch, response OffsetForLeaderEpochResponse;
    /// Request: where a leader epoch ended.
    struct OffsetForLeaderEpochRequest {
        replica_id: i32 [3+, ignorable] = -2,
        topics: Vec<OffsetForLeaderTopic> [0+],
    }
    struct OffsetForLeaderTopic {
        topic: Str [0+],
        partitions: Vec<OffsetForLeaderPartition> [0+],
    }
    struct OffsetForLeaderPartition {
        partition: i32 [0+],
        current_leader_epoch: i32 [2+, ignorable] = -1,
        leader_epoch: i32 [0+],
    }
}

message! {
    OffsetForLeaderEpochResponse: versions [2-4], flexible [4+];
    /// Answers [`OffsetForLeaderEpochRequest`].
    struct OffsetForLeaderEpochResponse {
        throttle_time_ms: i32 [2+, ignorable],
        topics: Vec<OffsetForLeaderTopicResult> [0+],
    }
    struct OffsetForLeaderTopicResult {
        topic: Str [0+],
        partitions: Vec<EpochEndOffset> [0+],
    }
    struct EpochEndOffset {
        error_code: i16 [0+],
        partition: i32 [0+],
        leader_epoch: i32 [1+, ignorable] = -1,
        end_offset: i64 [0+] = -1,
    }
}
