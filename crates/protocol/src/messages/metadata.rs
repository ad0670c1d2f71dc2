//! Metadata: topics, partitions, leaders and brokers.

use crate::primitives::{Str, Uuid};

message! {
    MetadataRequest: versions [0-13], flexible [9+],
        key Metadata, response MetadataResponse;
    /// Request: topics, partitions, leaders and brokers.
    struct MetadataRequest {
        topics: Option<Vec<MetadataRequestTopic>> [0+, null 1+],
        allow_auto_topic_creation: bool [4+] = true,
        include_cluster_authorized_operations: bool [8-10],
        include_topic_authorized_operations: bool [8+],
    }
    struct MetadataRequestTopic {
        topic_id: Uuid [10+, ignorable],
        name: Option<Str> [0+, null 10+],
    }
}

message! {
    MetadataResponse: versions [0-13], flexible [9+];
    /// Answers [`MetadataRequest`].
    struct MetadataResponse {
        throttle_time_ms: i32 [3+, ignorable],
        brokers: Vec<MetadataResponseBroker> [0+],
        cluster_id: Option<Str> [2+, null 2+, ignorable] = None,
        controller_id: i32 [1+, ignorable] = -1,
        topics: Vec<MetadataResponseTopic> [0+],
        cluster_authorized_operations: i32 [8-10] = i32::MIN,
        error_code: i16 [13+, ignorable],
    }
    struct MetadataResponseBroker {
        node_id: i32 [0+],
        host: Str [0+],
        port: i32 [0+],
        rack: Option<Str> [1+, null 1+, ignorable] = None,
    }
    struct MetadataResponseTopic {
        error_code: i16 [0+],
        name: Option<Str> [0+, null 12+],
        topic_id: Uuid [10+, ignorable],
        is_internal: bool [1+, ignorable],
        partitions: Vec<MetadataResponsePartition> [0+],
        topic_authorized_operations: i32 [8+] = i32::MIN,
    }
    struct MetadataResponsePartition {
        error_code: i16 [0+],
        partition_index: i32 [0+],
        leader_id: i32 [0+],
        leader_epoch: i32 [7+, ignorable] = -1,
        replica_nodes: Vec<i32> [0+],
        isr_nodes: Vec<i32> [0+],
        offline_replicas: Vec<i32> [5+, ignorable],
    }
}
