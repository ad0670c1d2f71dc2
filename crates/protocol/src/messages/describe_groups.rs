//! DescribeGroups: state of groups of the classic protocol.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    DescribeGroupsRequest: versions [0-6], flexible [5+],
        key DescribeGroups, response DescribeGroupsResponse;
    /// Request: state of groups of the classic protocol.
    struct DescribeGroupsRequest {
        groups: Vec<Str> [0+],
        include_authorized_operations: bool [3+],
    }
}

message! {
    DescribeGroupsResponse: versions [0-6], flexible [5+];
    /// Answers [`DescribeGroupsRequest`].
    struct DescribeGroupsResponse {
        throttle_time_ms: i32 [1+, ignorable],
        groups: Vec<DescribedGroup> [0+],
    }
    struct DescribedGroup {
        error_code: i16 [0+],
        error_message: Option<Str> [6+, null 6+] = None,
        group_id: Str [0+],
        group_state: Str [0+],
        protocol_type: Str [0+],
        protocol_data: Str [0+],
        members: Vec<DescribedGroupMember> [0+],
        authorized_operations: i32 [3+] = i32::MIN,
    }
    struct DescribedGroupMember {
        member_id: Str [0+],
        group_instance_id: Option<Str> [4+, null 4+, ignorable] = None,
        client_id: Str [0+],
        client_host: Str [0+],
        member_metadata: Bytes [0+],
        member_assignment: Bytes [0+],
    }
}
