//! DescribeProducers: active producers of partitions.

use crate::primitives::Str;

message! {
    DescribeProducersRequest: versions [0], flexible [0+],
        key DescribeProducers, response DescribeProducersResponse;
    /// Request: active producers of partitions.
    struct DescribeProducersRequest {
        topics: Vec<TopicRequest> [0+],
    }
    struct TopicRequest {
        name: Str [0+],
        partition_indexes: Vec<i32> [0+],
    }
}

message! {
    DescribeProducersResponse: versions [0], flexible [0+];
    /// Answers [`DescribeProducersRequest`].
    struct DescribeProducersResponse {
        throttle_time_ms: i32 [0+],
        topics: Vec<TopicResponse> [0+],
    }
    struct TopicResponse {
        name: Str [0+],
        partitions: Vec<PartitionResponse> [0+],
    }
    struct PartitionResponse {
        partition_index: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        active_producers: Vec<ProducerState> [0+],
    }
    struct ProducerState {
        producer_id: i64 [0+],
        producer_epoch: i32 [0+],
        last_sequence: i32 [0+] = -1,
        last_timestamp: i64 [0+] = -1,
        coordinator_epoch: i32 [0+],
        current_txn_start_offset: i64 [0+] = -1,
    }
}
