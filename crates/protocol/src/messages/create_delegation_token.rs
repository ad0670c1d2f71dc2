//! CreateDelegationToken: issue a delegation token.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    CreateDelegationTokenRequest: versions [1-3], flexible [2+],
        key CreateDelegationToken, response CreateDelegationTokenResponse;
    /// Request: issue a delegation token.
    struct CreateDelegationTokenRequest {
        owner_principal_type: Option<Str> [3+, null 3+],
        owner_principal_name: Option<Str> [3+, null 3+],
        renewers: Vec<CreatableRenewers> [0+],
        max_lifetime_ms: i64 [0+],
    }
    struct CreatableRenewers {
        principal_type: Str [0+],
        principal_name: Str [0+],
    }
}

message! {
    CreateDelegationTokenResponse: versions [1-3], flexible [2+];
    /// Answers [`CreateDelegationTokenRequest`].
    struct CreateDelegationTokenResponse {
        error_code: i16 [0+],
        principal_type: Str [0+],
        principal_name: Str [0+],
        token_requester_principal_type: Str [3+],
        token_requester_principal_name: Str [3+],
        issue_timestamp_ms: i64 [0+],
        expiry_timestamp_ms: i64 [0+],
        max_timestamp_ms: i64 [0+],
        token_id: Str [0+],
        hmac: Bytes [0+],
        throttle_time_ms: i32 [0+],
    }
}
