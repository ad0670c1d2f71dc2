//! CreateTopics: create topics.

use crate::primitives::{Str, Uuid};

message! {
    CreateTopicsRequest: versions [2-7], flexible [5+],
        key CreateTopics, response CreateTopicsResponse;
    /// Request: create topics.
    struct CreateTopicsRequest {
        topics: Vec<CreatableTopic> [0+],
        timeout_ms: i32 [0+] = 60_000,
        validate_only: bool [1+],
    }
    struct CreatableTopic {
        name: Str [0+],
        num_partitions: i32 [0+],
        replication_factor: i16 [0+],
        assignments: Vec<CreatableReplicaAssignment> [0+],
        configs: Vec<CreatableTopicConfig> [0+],
    }
    struct CreatableReplicaAssignment {
        partition_index: i32 [0+],
        broker_ids: Vec<i32> [0+],
    }
    struct CreatableTopicConfig {
        name: Str [0+],
        value: Option<Str> [0+, null 0+],
    }
}

message! {
    CreateTopicsResponse: versions [2-7], flexible [5+];
    /// Answers [`CreateTopicsRequest`].
    struct CreateTopicsResponse {
        throttle_time_ms: i32 [2+, ignorable],
        topics: Vec<CreatableTopicResult> [0+],
    }
    struct CreatableTopicResult {
        name: Str [0+],
        topic_id: Uuid [7+, ignorable],
        error_code: i16 [0+],
        error_message: Option<Str> [1+, null 0+, ignorable],
        num_partitions: i32 [5+, ignorable] = -1,
        replication_factor: i16 [5+, ignorable] = -1,
        configs: Option<Vec<CreatableTopicConfigs>> [5+, null 5+, ignorable],
        topic_config_error_code: i16 [5+, tag 0, ignorable],
    }
    struct CreatableTopicConfigs {
        name: Str [5+],
        value: Option<Str> [5+, null 5+],
        read_only: bool [5+],
        config_source: i8 [5+, ignorable] = -1,
        is_sensitive: bool [5+],
    }
}
