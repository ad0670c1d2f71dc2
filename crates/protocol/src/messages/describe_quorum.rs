//! DescribeQuorum: state of the metadata quorum.

use crate::primitives::{Str, Uuid};

message! {
    DescribeQuorumRequest: versions [0-2], flexible [0+],
        key DescribeQuorum, response DescribeQuorumResponse;
    /// Request: state of the metadata quorum.
    struct DescribeQuorumRequest {
        topics: Vec<DescribeQuorumRequestTopicData> [0+],
    }
    struct DescribeQuorumRequestTopicData {
        topic_name: Str [0+],
        partitions: Vec<DescribeQuorumRequestPartitionData> [0+],
    }
    struct DescribeQuorumRequestPartitionData {
        partition_index: i32 [0+],
    }
}

message! {
    DescribeQuorumResponse: versions [0-2], flexible [0+];
    /// Answers [`DescribeQuorumRequest`].
    struct DescribeQuorumResponse {
        error_code: i16 [0+],
        error_message: Option<Str> [2+, null 2+, ignorable],
        topics: Vec<DescribeQuorumResponseTopicData> [0+],
        nodes: Vec<Node> [2+],
    }
    struct DescribeQuorumResponseTopicData {
        topic_name: Str [0+],
        partitions: Vec<DescribeQuorumResponsePartitionData> [0+],
    }
    struct DescribeQuorumResponsePartitionData {
        partition_index: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [2+, null 2+, ignorable],
        leader_id: i32 [0+],
        leader_epoch: i32 [0+],
        high_watermark: i64 [0+],
        current_voters: Vec<ReplicaState> [0+],
        observers: Vec<ReplicaState> [0+],
    }
    struct Node {
        node_id: i32 [2+],
        listeners: Vec<Listener> [2+],
    }
    struct Listener {
        name: Str [2+],
        host: Str [2+],
        port: u16 [2+],
    }
    struct ReplicaState {
        replica_id: i32 [0+],
        replica_directory_id: Uuid [2+],
        log_end_offset: i64 [0+],
        last_fetch_timestamp: i64 [1+, ignorable] = -1,
        last_caught_up_timestamp: i64 [1+, ignorable] = -1,
    }
}
