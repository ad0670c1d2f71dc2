//! StreamsGroupHeartbeat: membership and tasks in a streams group (KIP-1071).

use crate::primitives::Str;

message! {
    StreamsGroupHeartbeatRequest: versions [0-1], flexible [0+],
        key StreamsGroupHeartbeat, response StreamsGroupHeartbeatResponse;
    /// Request: membership and tasks in a streams group (KIP-1071).
    struct StreamsGroupHeartbeatRequest {
        group_id: Str [0+],
        member_id: Str [0+],
        member_epoch: i32 [0+],
        endpoint_information_epoch: i32 [0+],
        instance_id: Option<Str> [0+, null 0+] = None,
        rack_id: Option<Str> [0+, null 0+] = None,
        rebalance_timeout_ms: i32 [0+] = -1,
        topology: Option<Topology> [0+, null 0+] = None,
        active_tasks: Option<Vec<StreamsGroupHeartbeatRequestTaskIds>> [0+, null 0+] = None,
        standby_tasks: Option<Vec<StreamsGroupHeartbeatRequestTaskIds>> [0+, null 0+] = None,
        warmup_tasks: Option<Vec<StreamsGroupHeartbeatRequestTaskIds>> [0+, null 0+] = None,
        process_id: Option<Str> [0+, null 0+] = None,
        user_endpoint: Option<StreamsGroupHeartbeatRequestEndpoint> [0+, null 0+] = None,
        client_tags: Option<Vec<KeyValue>> [0+, null 0+] = None,
        task_offsets: Option<Vec<TaskOffset>> [0+, null 0+] = None,
        task_end_offsets: Option<Vec<TaskOffset>> [0+, null 0+] = None,
        shutdown_application: bool [0+],
    }
    struct Topology {
        epoch: i32 [0+],
        subtopologies: Vec<Subtopology> [0+],
    }
    struct Subtopology {
        subtopology_id: Str [0+],
        source_topics: Vec<Str> [0+],
        source_topic_regex: Vec<Str> [0+],
        state_changelog_topics: Vec<TopicInfo> [0+],
        repartition_sink_topics: Vec<Str> [0+],
        repartition_source_topics: Vec<TopicInfo> [0+],
        copartition_groups: Vec<CopartitionGroup> [0+],
    }
    struct CopartitionGroup {
        source_topics: Vec<i16> [0+],
        source_topic_regex: Vec<i16> [0+],
        repartition_source_topics: Vec<i16> [0+],
    }
    struct KeyValue {
        key: Str [0+],
        value: Str [0+],
    }
    struct TopicInfo {
        name: Str [0+],
        partitions: i32 [0+],
        replication_factor: i16 [0+],
        topic_configs: Vec<KeyValue> [0+],
    }
    struct StreamsGroupHeartbeatRequestEndpoint {
        host: Str [0+],
        port: u16 [0+],
    }
    struct TaskOffset {
        subtopology_id: Str [0+],
        partition: i32 [0+],
        offset: i64 [0+],
    }
    struct StreamsGroupHeartbeatRequestTaskIds {
        subtopology_id: Str [0+],
        partitions: Vec<i32> [0+],
    }
}

message! {
    StreamsGroupHeartbeatResponse: versions [0-1], flexible [0+];
    /// Answers [`StreamsGroupHeartbeatRequest`].
    struct StreamsGroupHeartbeatResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        member_id: Str [0+],
        member_epoch: i32 [0+],
        heartbeat_interval_ms: i32 [0+],
        acceptable_recovery_lag_legacy: i32 [0],
        task_offset_interval_ms: i32 [0+],
        acceptable_recovery_lag: i64 [1+, ignorable] = -1,
        status: Option<Vec<Status>> [0+, null 0+],
        active_tasks: Option<Vec<StreamsGroupHeartbeatResponseTaskIds>> [0+, null 0+] = None,
        standby_tasks: Option<Vec<StreamsGroupHeartbeatResponseTaskIds>> [0+, null 0+] = None,
        warmup_tasks: Option<Vec<StreamsGroupHeartbeatResponseTaskIds>> [0+, null 0+] = None,
        topology_description_required: bool [1+],
        endpoint_information_epoch: i32 [0+],
        partitions_by_user_endpoint: Option<Vec<EndpointToPartitions>> [0+, null 0+] = None,
    }
    struct EndpointToPartitions {
        user_endpoint: StreamsGroupHeartbeatResponseEndpoint [0+],
        active_partitions: Vec<TopicPartition> [0+],
        standby_partitions: Vec<TopicPartition> [0+],
    }
    struct Status {
        status_code: i8 [0+],
        status_detail: Str [0+],
    }
    struct TopicPartition {
        topic: Str [0+],
        partitions: Vec<i32> [0+],
    }
    struct StreamsGroupHeartbeatResponseTaskIds {
        subtopology_id: Str [0+],
        partitions: Vec<i32> [0+],
    }
    struct StreamsGroupHeartbeatResponseEndpoint {
        host: Str [0+],
        port: u16 [0+],
    }
}
