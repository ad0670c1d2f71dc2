//! ExpireDelegationToken: let a delegation token expire.

use bytes::Bytes;

message! {
    ExpireDelegationTokenRequest: versions [1-2], flexible [2+],
        key ExpireDelegationToken, response ExpireDelegationTokenResponse;
    /// Request: let a delegation token expire.
    struct ExpireDelegationTokenRequest {
        hmac: Bytes [0+],
        expiry_time_period_ms: i64 [0+],
    }
}

message! {
    ExpireDelegationTokenResponse: versions [1-2], flexible [2+];
    /// Answers [`ExpireDelegationTokenRequest`].
    struct ExpireDelegationTokenResponse {
        error_code: i16 [0+],
        expiry_timestamp_ms: i64 [0+],
        throttle_time_ms: i32 [0+],
    }
}
