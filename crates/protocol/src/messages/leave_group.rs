//! LeaveGroup: leave a group of the classic protocol.

use crate::primitives::Str;

message! {
    LeaveGroupRequest: versions [0-5], flexible [4+],
        key LeaveGroup, response LeaveGroupResponse;
    /// Request: leave a group of the classic protocol.
    struct LeaveGroupRequest {
        group_id: Str [0+],
        member_id: Str [0-2],
        members: Vec<MemberIdentity> [3+],
    }
    struct MemberIdentity {
        member_id: Str [3+],
        group_instance_id: Option<Str> [3+, null 3+] = None,
        reason: Option<Str> [5+, null 5+, ignorable] = None,
    }
}

message! {
    LeaveGroupResponse: versions [0-5], flexible [4+];
    /// Answers [`LeaveGroupRequest`].
    struct LeaveGroupResponse {
        throttle_time_ms: i32 [1+, ignorable],
        error_code: i16 [0+],
        members: Vec<MemberResponse> [3+],
    }
    struct MemberResponse {
        member_id: Str [3+],
        group_instance_id: Option<Str> [3+, null 3+],
        error_code: i16 [3+],
    }
}
