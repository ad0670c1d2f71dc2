//! StreamsGroupTopologyDescriptionUpdate: store the description of a streams topology.

use crate::primitives::Str;

message! {
    StreamsGroupTopologyDescriptionUpdateRequest: versions [0], flexible [0+],
        key StreamsGroupTopologyDescriptionUpdate,
        response StreamsGroupTopologyDescriptionUpdateResponse;
    /// Request: store the description of a streams topology.
    struct StreamsGroupTopologyDescriptionUpdateRequest {
        group_id: Str [0+],
        member_id: Str [0+],
        topology_epoch: i32 [0+],
        topology_description: TopologyDescription [0+],
    }
    struct TopologyDescription {
        subtopologies: Vec<TopologyDescriptionSubtopology> [0+],
        global_stores: Vec<TopologyDescriptionGlobalStore> [0+],
    }
    struct TopologyDescriptionSubtopology {
        subtopology_id: Str [0+],
        nodes: Vec<TopologyDescriptionNode> [0+],
    }
    struct TopologyDescriptionNode {
        name: Str [0+],
        node_type: i8 [0+],
        source_topics: Vec<Str> [0+],
        sink_topic: Option<Str> [0+, null 0+] = None,
        stores: Vec<Str> [0+],
        successors: Vec<Str> [0+],
    }
    struct TopologyDescriptionGlobalStore {
        source: TopologyDescriptionNode [0+],
        processor: TopologyDescriptionNode [0+],
    }
}

message! {
    StreamsGroupTopologyDescriptionUpdateResponse: versions [0], flexible [0+];
    /// Answers [`StreamsGroupTopologyDescriptionUpdateRequest`].
    struct StreamsGroupTopologyDescriptionUpdateResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
    }
}
