//! ListGroups: all groups of a broker.

use crate::primitives::Str;

message! {
    ListGroupsRequest: versions [0-5], flexible [3+],
        key ListGroups, response ListGroupsResponse;
    /// Request: all groups of a broker.
    struct ListGroupsRequest {
        states_filter: Vec<Str> [4+],
        types_filter: Vec<Str> [5+],
    }
}

message! {
    ListGroupsResponse: versions [0-5], flexible [3+];
    /// Answers [`ListGroupsRequest`].
    struct ListGroupsResponse {
        throttle_time_ms: i32 [1+, ignorable],
        error_code: i16 [0+],
        groups: Vec<ListedGroup> [0+],
    }
    struct ListedGroup {
        group_id: Str [0+],
        protocol_type: Str [0+],
        group_state: Str [4+, ignorable],
        group_type: Str [5+, ignorable],
    }
}
