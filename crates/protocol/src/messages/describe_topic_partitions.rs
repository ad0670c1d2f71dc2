//! DescribeTopicPartitions: topics and partitions, page by page (KIP-966).

use crate::primitives::{Str, Uuid};

message! {
    DescribeTopicPartitionsRequest: versions [0], flexible [0+],
        key DescribeTopicPartitions, response DescribeTopicPartitionsResponse;
    /// Request: topics and partitions, page by page (KIP-966).
    struct DescribeTopicPartitionsRequest {
        topics: Vec<TopicRequest> [0+],
        response_partition_limit: i32 [0+] = 2000,
        cursor: Option<DescribeTopicPartitionsRequestCursor> [0+, null 0+] = None,
    }
    struct TopicRequest {
        name: Str [0+],
    }
    struct DescribeTopicPartitionsRequestCursor {
        topic_name: Str [0+],
        partition_index: i32 [0+],
    }
}

message! {
    DescribeTopicPartitionsResponse: versions [0], flexible [0+];
    /// Answers [`DescribeTopicPartitionsRequest`].
    struct DescribeTopicPartitionsResponse {
        throttle_time_ms: i32 [0+, ignorable],
        topics: Vec<DescribeTopicPartitionsResponseTopic> [0+],
        next_cursor: Option<DescribeTopicPartitionsResponseCursor> [0+, null 0+] = None,
    }
    struct DescribeTopicPartitionsResponseTopic {
        error_code: i16 [0+],
        name: Option<Str> [0+, null 0+],
        topic_id: Uuid [0+, ignorable],
        is_internal: bool [0+, ignorable],
        partitions: Vec<DescribeTopicPartitionsResponsePartition> [0+],
        topic_authorized_operations: i32 [0+] = i32::MIN,
    }
    struct DescribeTopicPartitionsResponsePartition {
        error_code: i16 [0+],
        partition_index: i32 [0+],
        leader_id: i32 [0+],
        leader_epoch: i32 [0+, ignorable] = -1,
        replica_nodes: Vec<i32> [0+],
        isr_nodes: Vec<i32> [0+],
        eligible_leader_replicas: Option<Vec<i32>> [0+, null 0+] = None,
        last_known_elr: Option<Vec<i32>> [0+, null 0+] = None,
        offline_replicas: Vec<i32> [0+, ignorable],
    }
    struct DescribeTopicPartitionsResponseCursor {
        topic_name: Str [0+],
        partition_index: i32 [0+],
    }
}
