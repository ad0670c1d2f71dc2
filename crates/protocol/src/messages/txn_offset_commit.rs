//! TxnOffsetCommit: store offsets of a group within a transaction.

use crate::primitives::{Str, Uuid};

message! {
    TxnOffsetCommitRequest: versions [0-6], flexible [3+],
        key TxnOffsetCommit, response TxnOffsetCommitResponse;
    /// Request: store offsets of a group within a transaction.
    struct TxnOffsetCommitRequest {
        transactional_id: Str [0+],
        group_id: Str [0+],
        producer_id: i64 [0+],
        producer_epoch: i16 [0+],
        generation_id_or_member_epoch: i32 [3+] = -1,
        member_id: Str [3+],
        group_instance_id: Option<Str> [3+, null 3+] = None,
        topics: Vec<TxnOffsetCommitRequestTopic> [0+],
    }
    struct TxnOffsetCommitRequestTopic {
        name: Str [0-5, ignorable],
        topic_id: Uuid [6+, ignorable],
        partitions: Vec<TxnOffsetCommitRequestPartition> [0+],
    }
    struct TxnOffsetCommitRequestPartition {
        partition_index: i32 [0+],
        committed_offset: i64 [0+],
        committed_leader_epoch: i32 [2+, ignorable] = -1,
        committed_metadata: Option<Str> [0+, null 0+],
    }
}

message! {
    TxnOffsetCommitResponse: versions [0-6], flexible [3+];
    /// Answers [`TxnOffsetCommitRequest`].
    struct TxnOffsetCommitResponse {
        throttle_time_ms: i32 [0+],
        topics: Vec<TxnOffsetCommitResponseTopic> [0+],
    }
    struct TxnOffsetCommitResponseTopic {
        name: Str [0-5, ignorable],
        topic_id: Uuid [6+, ignorable],
        partitions: Vec<TxnOffsetCommitResponsePartition> [0+],
    }
    struct TxnOffsetCommitResponsePartition {
        partition_index: i32 [0+],
        error_code: i16 [0+],
    }
}
