//! DeleteGroups: delete empty groups.

use crate::primitives::Str;

message! {
    DeleteGroupsRequest: versions [0-3], flexible [2+],
        key DeleteGroups, response DeleteGroupsResponse;
    /// Request: delete empty groups.
    struct DeleteGroupsRequest {
        groups_names: Vec<Str> [0+],
    }
}

message! {
    DeleteGroupsResponse: versions [0-3], flexible [2+];
    /// Answers [`DeleteGroupsRequest`].
    struct DeleteGroupsResponse {
        throttle_time_ms: i32 [0+],
        results: Vec<DeletableGroupResult> [0+],
    }
    struct DeletableGroupResult {
        group_id: Str [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [3+, null 3+, ignorable] = None,
    }
}
