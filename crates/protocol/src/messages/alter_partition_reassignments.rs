//! AlterPartitionReassignments: start or cancel moves of partitions between brokers.

use crate::primitives::Str;

message! {
    AlterPartitionReassignmentsRequest: versions [0-1], flexible [0+],
        key AlterPartitionReassignments, response AlterPartitionReassignmentsResponse;
    /// Request: start or cancel moves of partitions between brokers.
    struct AlterPartitionReassignmentsRequest {
        timeout_ms: i32 [0+] = 60_000,
        allow_replication_factor_change: bool [1+] = true,
        topics: Vec<ReassignableTopic> [0+],
    }
    struct ReassignableTopic {
        name: Str [0+],
        partitions: Vec<ReassignablePartition> [0+],
    }
    struct ReassignablePartition {
        partition_index: i32 [0+],
        replicas: Option<Vec<i32>> [0+, null 0+] = None,
    }
}

message! {
    AlterPartitionReassignmentsResponse: versions [0-1], flexible [0+];
    /// Answers [`AlterPartitionReassignmentsRequest`].
    struct AlterPartitionReassignmentsResponse {
        throttle_time_ms: i32 [0+],
        allow_replication_factor_change: bool [1+, ignorable] = true,
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        responses: Vec<ReassignableTopicResponse> [0+],
    }
    struct ReassignableTopicResponse {
        name: Str [0+],
        partitions: Vec<ReassignablePartitionResponse> [0+],
    }
    struct ReassignablePartitionResponse {
        partition_index: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
    }
}
