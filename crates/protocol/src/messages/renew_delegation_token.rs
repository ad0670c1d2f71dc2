//! RenewDelegationToken: let a delegation token live longer.

use bytes::Bytes;

message! {
    RenewDelegationTokenRequest: versions [1-2], flexible [2+],
        key RenewDelegationToken, response RenewDelegationTokenResponse;
    /// Request: let a delegation token live longer.
    struct RenewDelegationTokenRequest {
        hmac: Bytes [0+],
        renew_period_ms: i64 [0+],
    }
}

message! {
    RenewDelegationTokenResponse: versions [1-2], flexible [2+];
    /// Answers [`RenewDelegationTokenRequest`].
    struct RenewDelegationTokenResponse {
        error_code: i16 [0+],
        expiry_timestamp_ms: i64 [0+],
        throttle_time_ms: i32 [0+],
    }
}
