//! ListPartitionReassignments: moves of partitions that are under way.

use crate::primitives::Str;

message! {
    ListPartitionReassignmentsRequest: versions [0], flexible [0+],
        key ListPartitionReassignments, response ListPartitionReassignmentsResponse;
    /// Request: moves of partitions that are under way.
    struct ListPartitionReassignmentsRequest {
        timeout_ms: i32 [0+] = 60_000,
        topics: Option<Vec<ListPartitionReassignmentsTopics>> [0+, null 0+] = None,
    }
    struct ListPartitionReassignmentsTopics {
        name: Str [0+],
        partition_indexes: Vec<i32> [0+],
    }
}

message! {
    ListPartitionReassignmentsResponse: versions [0], flexible [0+];
    /// Answers [`ListPartitionReassignmentsRequest`].
    struct ListPartitionReassignmentsResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        topics: Vec<OngoingTopicReassignment> [0+],
    }
    struct OngoingTopicReassignment {
        name: Str [0+],
        partitions: Vec<OngoingPartitionReassignment> [0+],
    }
    struct OngoingPartitionReassignment {
        partition_index: i32 [0+],
        replicas: Vec<i32> [0+],
        adding_replicas: Vec<i32> [0+],
        removing_replicas: Vec<i32> [0+],
    }
}
