//! ShareAcknowledge: acknowledge records of a share group (KIP-932).

use crate::primitives::{Str, Uuid};

message! {
    ShareAcknowledgeRequest: versions [1-2], flexible [0+],
        key ShareAcknowledge, response ShareAcknowledgeResponse;
    /// Request: acknowledge records of a share group (KIP-932).
    struct ShareAcknowledgeRequest {
        group_id: Option<Str> [0+, null 0+] = None,
        member_id: Option<Str> [0+, null 0+],
        share_session_epoch: i32 [0+],
        is_renew_ack: bool [2+],
        topics: Vec<AcknowledgeTopic> [0+],
    }
    struct AcknowledgeTopic {
        topic_id: Uuid [0+],
        partitions: Vec<AcknowledgePartition> [0+],
    }
    struct AcknowledgePartition {
        partition_index: i32 [0+],
        acknowledgement_batches: Vec<AcknowledgementBatch> [0+],
    }
    struct AcknowledgementBatch {
        first_offset: i64 [0+],
        last_offset: i64 [0+],
        acknowledge_types: Vec<i8> [0+],
    }
}

message! {
    ShareAcknowledgeResponse: versions [1-2], flexible [0+];
    /// Answers [`ShareAcknowledgeRequest`].
    struct ShareAcknowledgeResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        acquisition_lock_timeout_ms: i32 [2+, ignorable],
        responses: Vec<ShareAcknowledgeTopicResponse> [0+],
        node_endpoints: Vec<NodeEndpoint> [0+],
    }
    struct ShareAcknowledgeTopicResponse {
        topic_id: Uuid [0+],
        partitions: Vec<PartitionData> [0+],
    }
    struct PartitionData {
        partition_index: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        current_leader: LeaderIdAndEpoch [0+],
    }
    struct LeaderIdAndEpoch {
        leader_id: i32 [0+],
        leader_epoch: i32 [0+],
    }
    struct NodeEndpoint {
        node_id: i32 [0+],
        host: Str [0+],
        port: i32 [0+],
        rack: Option<Str> [0+, null 0+] = None,
    }
}
