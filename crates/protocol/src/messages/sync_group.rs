//! SyncGroup: hand out the assignment of a classic group.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    SyncGroupRequest: versions [0-5], flexible [4+],
        key SyncGroup, response SyncGroupResponse;
    /// Request: hand out the assignment of a classic group.
    struct SyncGroupRequest {
        group_id: Str [0+],
        generation_id: i32 [0+],
        member_id: Str [0+],
        group_instance_id: Option<Str> [3+, null 3+] = None,
        protocol_type: Option<Str> [5+, null 5+, ignorable] = None,
        protocol_name: Option<Str> [5+, null 5+, ignorable] = None,
        assignments: Vec<SyncGroupRequestAssignment> [0+],
    }
    struct SyncGroupRequestAssignment {
        member_id: Str [0+],
        assignment: Bytes [0+],
    }
}

message! {
    SyncGroupResponse: versions [0-5], flexible [4+];
    /// Answers [`SyncGroupRequest`].
    struct SyncGroupResponse {
        throttle_time_ms: i32 [1+, ignorable],
        error_code: i16 [0+],
        protocol_type: Option<Str> [5+, null 5+, ignorable] = None,
        protocol_name: Option<Str> [5+, null 5+, ignorable] = None,
        assignment: Bytes [0+],
    }
}
