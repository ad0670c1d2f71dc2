//! ElectLeaders: elect preferred or unclean leaders.

use crate::primitives::Str;

message! {
    ElectLeadersRequest: versions [0-2], flexible [2+],
        key ElectLeaders, response ElectLeadersResponse;
    /// Request: elect preferred or unclean leaders.
    struct ElectLeadersRequest {
        election_type: i8 [1+],
        topic_partitions: Option<Vec<TopicPartitions>> [0+, null 0+],
        timeout_ms: i32 [0+] = 60_000,
    }
    struct TopicPartitions {
        topic: Str [0+],
        partitions: Vec<i32> [0+],
    }
}

message! {
    ElectLeadersResponse: versions [0-2], flexible [2+];
    /// Answers [`ElectLeadersRequest`].
    struct ElectLeadersResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [1+],
        replica_election_results: Vec<ReplicaElectionResult> [0+],
    }
    struct ReplicaElectionResult {
        topic: Str [0+],
        partition_result: Vec<PartitionResult> [0+],
    }
    struct PartitionResult {
        partition_id: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
    }
}
