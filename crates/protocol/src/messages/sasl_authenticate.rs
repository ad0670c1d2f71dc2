//! SaslAuthenticate: one step of a SASL exchange.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    SaslAuthenticateRequest: versions [0-2], flexible [2+],
        key SaslAuthenticate, response SaslAuthenticateResponse;
    /// Request: one step of a SASL exchange.
    struct SaslAuthenticateRequest {
        auth_bytes: Bytes [0+],
    }
}

message! {
    SaslAuthenticateResponse: versions [0-2], flexible [2+];
    /// Answers [`SaslAuthenticateRequest`].
    struct SaslAuthenticateResponse {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        auth_bytes: Bytes [0+],
        session_lifetime_ms: i64 [1+, ignorable],
    }
}
