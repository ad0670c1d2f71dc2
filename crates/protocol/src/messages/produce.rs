//! Produce: append record batches.

use crate::primitives::{Records, Str, Uuid};

message! {
    ProduceRequest: versions [3-13], flexible [9+],
        key Produce, response ProduceResponse;
    /// Request: append record batches.
    struct ProduceRequest {
        transactional_id: Option<Str> [3+, null 3+] = None,
        acks: i16 [0+],
        timeout_ms: i32 [0+],
        topic_data: Vec<TopicProduceData> [0+],
    }
    struct TopicProduceData {
        name: Str [0-12, ignorable],
        topic_id: Uuid [13+, ignorable],
        partition_data: Vec<PartitionProduceData> [0+],
    }
    struct PartitionProduceData {
        index: i32 [0+],
        records: Option<Records> [0+, null 0+] = None,
    }
}

message! {
    ProduceResponse: versions [3-13], flexible [9+];
    /// Answers [`ProduceRequest`].
    struct ProduceResponse {
        responses: Vec<TopicProduceResponse> [0+],
        throttle_time_ms: i32 [1+, ignorable],
        node_endpoints: Vec<NodeEndpoint> [10+, tag 0],
    }
    struct TopicProduceResponse {
        name: Str [0-12, ignorable],
        topic_id: Uuid [13+, ignorable],
        partition_responses: Vec<PartitionProduceResponse> [0+],
    }
    struct PartitionProduceResponse {
        index: i32 [0+],
        error_code: i16 [0+],
        base_offset: i64 [0+],
        log_append_time_ms: i64 [2+, ignorable] = -1,
        log_start_offset: i64 [5+, ignorable] = -1,
        record_errors: Vec<BatchIndexAndErrorMessage> [8+, ignorable],
        error_message: Option<Str> [8+, null 8+, ignorable] = None,
        current_leader: LeaderIdAndEpoch [10+, tag 0],
    }
    struct BatchIndexAndErrorMessage {
        batch_index: i32 [8+],
        batch_index_error_message: Option<Str> [8+, null 8+] = None,
    }
    struct LeaderIdAndEpoch {
        leader_id: i32 [10+] = -1,
        leader_epoch: i32 [10+] = -1,
    }
    struct NodeEndpoint {
        node_id: i32 [10+],
        host: Str [10+],
        port: i32 [10+],
        rack: Option<Str> [10+, null 10+] = None,
    }
}
