//! DescribeAcls: list the access rules that match a filter.

use crate::primitives::Str;

message! {
    DescribeAclsRequest: versions [1-3], flexible [2+],
        key DescribeAcls, response DescribeAclsResponse;
    /// Request: list the access rules that match a filter.
    struct DescribeAclsRequest {
        resource_type_filter: i8 [0+],
        resource_name_filter: Option<Str> [0+, null 0+],
        pattern_type_filter: i8 [1+] = 3,
        principal_filter: Option<Str> [0+, null 0+],
        host_filter: Option<Str> [0+, null 0+],
        operation: i8 [0+],
        permission_type: i8 [0+],
    }
}

message! {
    DescribeAclsResponse: versions [1-3], flexible [2+];
    /// Answers [`DescribeAclsRequest`].
    struct DescribeAclsResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        resources: Vec<DescribeAclsResource> [0+],
    }
    struct DescribeAclsResource {
        resource_type: i8 [0+],
        resource_name: Str [0+],
        pattern_type: i8 [1+] = 3,
        acls: Vec<AclDescription> [0+],
    }
    struct AclDescription {
        principal: Str [0+],
        host: Str [0+],
        operation: i8 [0+],
        permission_type: i8 [0+],
    }
}
