//! AlterReplicaLogDirs: move replicas between the log directories of a broker.

use crate::primitives::Str;

message! {
    AlterReplicaLogDirsRequest: versions [1-2], flexible [2+],
        key AlterReplicaLogDirs, response AlterReplicaLogDirsResponse;
    /// Request: move replicas between the log directories of a broker.
    struct AlterReplicaLogDirsRequest {
        dirs: Vec<AlterReplicaLogDir> [0+],
    }
    struct AlterReplicaLogDir {
        path: Str [0+],
        topics: Vec<AlterReplicaLogDirTopic> [0+],
    }
    struct AlterReplicaLogDirTopic {
        name: Str [0+],
        partitions: Vec<i32> [0+],
    }
}

message! {
    AlterReplicaLogDirsResponse: versions [1-2], flexible [2+];
    /// Answers [`AlterReplicaLogDirsRequest`].
    struct AlterReplicaLogDirsResponse {
        throttle_time_ms: i32 [0+],
        results: Vec<AlterReplicaLogDirTopicResult> [0+],
    }
    struct AlterReplicaLogDirTopicResult {
        topic_name: Str [0+],
        partitions: Vec<AlterReplicaLogDirPartitionResult> [0+],
    }
    struct AlterReplicaLogDirPartitionResult {
        partition_index: i32 [0+],
        error_code: i16 [0+],
    }
}
