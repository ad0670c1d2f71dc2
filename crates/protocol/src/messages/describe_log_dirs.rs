//! DescribeLogDirs: sizes of replicas per log directory.

use crate::primitives::Str;

message! {
    DescribeLogDirsRequest: versions [1-5], flexible [2+],
        key DescribeLogDirs, response DescribeLogDirsResponse;
    /// Request: sizes of replicas per log directory.
    struct DescribeLogDirsRequest {
        topics: Option<Vec<DescribableLogDirTopic>> [0+, null 0+],
    }
    struct DescribableLogDirTopic {
        topic: Str [0+],
        partitions: Vec<i32> [0+],
    }
}

message! {
    DescribeLogDirsResponse: versions [1-5], flexible [2+];
    /// Answers [`DescribeLogDirsRequest`].
    struct DescribeLogDirsResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [3+, ignorable],
        results: Vec<DescribeLogDirsResult> [0+],
    }
    struct DescribeLogDirsResult {
        error_code: i16 [0+],
        log_dir: Str [0+],
        topics: Vec<DescribeLogDirsTopic> [0+],
        total_bytes: i64 [4+, ignorable] = -1,
        usable_bytes: i64 [4+, ignorable] = -1,
        is_cordoned: bool [5+, ignorable],
    }
    struct DescribeLogDirsTopic {
        name: Str [0+],
        partitions: Vec<DescribeLogDirsPartition> [0+],
    }
    struct DescribeLogDirsPartition {
        partition_index: i32 [0+],
        partition_size: i64 [0+],
        offset_lag: i64 [0+],
        is_future_key: bool [0+],
    }
}
