//! CreateAcls: create access rules.

use crate::primitives::Str;

message! {
    CreateAclsRequest: versions [1-3], flexible [2+],
        key CreateAcls, response CreateAclsResponse;
    /// Request: create access rules.
    struct CreateAclsRequest {
        creations: Vec<AclCreation> [0+],
    }
    struct AclCreation {
        resource_type: i8 [0+],
        resource_name: Str [0+],
        resource_pattern_type: i8 [1+] = 3,
        principal: Str [0+],
        host: Str [0+],
        operation: i8 [0+],
        permission_type: i8 [0+],
    }
}

message! {
    CreateAclsResponse: versions [1-3], flexible [2+];
    /// Answers [`CreateAclsRequest`].
    struct CreateAclsResponse {
        throttle_time_ms: i32 [0+],
        results: Vec<AclCreationResult> [0+],
    }
    struct AclCreationResult {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
    }
}
