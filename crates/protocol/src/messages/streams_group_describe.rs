//! StreamsGroupDescribe: state of streams groups (KIP-1071).

use crate::primitives::Str;

message! {
    StreamsGroupDescribeRequest: versions [0-1], flexible [0+],
        key StreamsGroupDescribe, response StreamsGroupDescribeResponse;
    /// Request: state of streams groups (KIP-1071).
    struct StreamsGroupDescribeRequest {
        group_ids: Vec<Str> [0+],
        include_authorized_operations: bool [0+],
        include_topology_description: bool [1+],
    }
}

message! {
    StreamsGroupDescribeResponse: versions [0-1], flexible [0+];
    /// Answers [`StreamsGroupDescribeRequest`].
    struct StreamsGroupDescribeResponse {
        throttle_time_ms: i32 [0+],
        groups: Vec<DescribedGroup> [0+],
    }
    struct DescribedGroup {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        group_id: Str [0+],
        group_state: Str [0+],
        group_epoch: i32 [0+],
        assignment_epoch: i32 [0+],
        topology: Option<Topology> [0+, null 0+] = None,
        members: Vec<Member> [0+],
        authorized_operations: i32 [0+] = i32::MIN,
        topology_description: Option<TopologyDescription> [1+, null 1+] = None,
        topology_description_status: i8 [1+],
        assignor_name: Option<Str> [1+, null 1+, ignorable] = None,
    }
    struct Topology {
        epoch: i32 [0+],
        subtopologies: Option<Vec<Subtopology>> [0+, null 0+] = None,
    }
    struct Subtopology {
        subtopology_id: Str [0+],
        source_topics: Vec<Str> [0+],
        repartition_sink_topics: Vec<Str> [0+],
        state_changelog_topics: Vec<TopicInfo> [0+],
        repartition_source_topics: Vec<TopicInfo> [0+],
    }
    struct Member {
        member_id: Str [0+],
        member_epoch: i32 [0+],
        instance_id: Option<Str> [0+, null 0+] = None,
        rack_id: Option<Str> [0+, null 0+] = None,
        client_id: Str [0+],
        client_host: Str [0+],
        topology_epoch: i32 [0+],
        process_id: Str [0+],
        user_endpoint: Option<Endpoint> [0+, null 0+] = None,
        client_tags: Vec<KeyValue> [0+],
        task_offsets: Vec<TaskOffset> [0+],
        task_end_offsets: Vec<TaskOffset> [0+],
        assignment: Assignment [0+],
        target_assignment: Assignment [0+],
        is_classic: bool [0+],
    }
    struct Endpoint {
        host: Str [0+],
        port: u16 [0+],
    }
    struct TaskOffset {
        subtopology_id: Str [0+],
        partition: i32 [0+],
        offset: i64 [0+],
    }
    struct Assignment {
        active_tasks: Vec<TaskIds> [0+],
        standby_tasks: Vec<TaskIds> [0+],
        warmup_tasks: Vec<TaskIds> [0+],
    }
    struct TaskIds {
        subtopology_id: Str [0+],
        partitions: Vec<i32> [0+],
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
    struct TopologyDescription {
        subtopologies: Vec<TopologyDescriptionSubtopology> [1+],
        global_stores: Vec<TopologyDescriptionGlobalStore> [1+],
    }
    struct TopologyDescriptionSubtopology {
        subtopology_id: Str [1+],
        nodes: Vec<TopologyDescriptionNode> [1+],
    }
    struct TopologyDescriptionNode {
        name: Str [1+],
        node_type: i8 [1+],
        source_topics: Vec<Str> [1+],
        sink_topic: Option<Str> [1+, null 1+] = None,
        stores: Vec<Str> [1+],
        successors: Vec<Str> [1+],
    }
    struct TopologyDescriptionGlobalStore {
        source: TopologyDescriptionNode [1+],
        processor: TopologyDescriptionNode [1+],
    }
}
