//! DeleteAcls: delete the access rules that match filters.

use crate::primitives::Str;

message! {
    DeleteAclsRequest: versions [1-3], flexible [2+],
        key DeleteAcls, response DeleteAclsResponse;
    /// Request: delete the access rules that match filters.
    struct DeleteAclsRequest {
        filters: Vec<DeleteAclsFilter> [0+],
    }
    struct DeleteAclsFilter {
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
    DeleteAclsResponse: versions [1-3], flexible [2+];
    /// Answers [`DeleteAclsRequest`].
    struct DeleteAclsResponse {
        throttle_time_ms: i32 [0+],
        filter_results: Vec<DeleteAclsFilterResult> [0+],
    }
    struct DeleteAclsFilterResult {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        matching_acls: Vec<DeleteAclsMatchingAcl> [0+],
    }
    struct DeleteAclsMatchingAcl {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        resource_type: i8 [0+],
        resource_name: Str [0+],
        pattern_type: i8 [1+] = 3,
        principal: Str [0+],
        host: Str [0+],
        operation: i8 [0+],
        permission_type: i8 [0+],
    }
}
