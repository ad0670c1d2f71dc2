//! JoinGroup: join a group of the classic protocol.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    JoinGroupRequest: versions [0-9], flexible [6+],
        key JoinGroup, response JoinGroupResponse;
    /// Request: join a group of the classic protocol.
    struct JoinGroupRequest {
        group_id: Str [0+],
        session_timeout_ms: i32 [0+],
        rebalance_timeout_ms: i32 [1+, ignorable] = -1,
        member_id: Str [0+],
        group_instance_id: Option<Str> [5+, null 5+] = None,
        protocol_type: Str [0+],
        protocols: Vec<JoinGroupRequestProtocol> [0+],
        reason: Option<Str> [8+, null 8+, ignorable] = None,
    }
    struct JoinGroupRequestProtocol {
        name: Str [0+],
        metadata: Bytes [0+],
    }
}

message! {
    JoinGroupResponse: versions [0-9], flexible [6+];
    /// Answers [`JoinGroupRequest`].
    struct JoinGroupResponse {
        throttle_time_ms: i32 [2+, ignorable],
        error_code: i16 [0+],
        generation_id: i32 [0+] = -1,
        protocol_type: Option<Str> [7+, null 7+, ignorable] = None,
        protocol_name: Option<Str> [0+, null 7+],
        leader: Str [0+],
        skip_assignment: bool [9+],
        member_id: Str [0+],
        members: Vec<JoinGroupResponseMember> [0+],
    }
    struct JoinGroupResponseMember {
        member_id: Str [0+],
        group_instance_id: Option<Str> [5+, null 5+, ignorable] = None,
        metadata: Bytes [0+],
    }
}
