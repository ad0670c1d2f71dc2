//! DescribeDelegationToken: list delegation tokens.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    DescribeDelegationTokenRequest: versions [1-3], flexible [2+],
        key DescribeDelegationToken, response DescribeDelegationTokenResponse;
    /// Request: list delegation tokens.
    struct DescribeDelegationTokenRequest {
        owners: Option<Vec<DescribeDelegationTokenOwner>> [0+, null 0+],
    }
    struct DescribeDelegationTokenOwner {
        principal_type: Str [0+],
        principal_name: Str [0+],
    }
}

message! {
    DescribeDelegationTokenResponse: versions [1-3], flexible [2+];
    /// Answers [`DescribeDelegationTokenRequest`].
    struct DescribeDelegationTokenResponse {
        error_code: i16 [0+],
        tokens: Vec<DescribedDelegationToken> [0+],
        throttle_time_ms: i32 [0+],
    }
    struct DescribedDelegationToken {
        principal_type: Str [0+],
        principal_name: Str [0+],
        token_requester_principal_type: Str [3+],
        token_requester_principal_name: Str [3+],
        issue_timestamp: i64 [0+],
        expiry_timestamp: i64 [0+],
        max_timestamp: i64 [0+],
        token_id: Str [0+],
        hmac: Bytes [0+],
        renewers: Vec<DescribedDelegationTokenRenewer> [0+],
    }
    struct DescribedDelegationTokenRenewer {
        principal_type: Str [0+],
        principal_name: Str [0+],
    }
}
