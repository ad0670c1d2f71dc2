//! SaslHandshake: choose a SASL mechanism.

use crate::primitives::Str;

message! {
    SaslHandshakeRequest: versions [0-1], flexible [none],
        key SaslHandshake, response SaslHandshakeResponse;
    /// Request: choose a SASL mechanism.
    struct SaslHandshakeRequest {
        mechanism: Str [0+],
    }
}

message! {
    SaslHandshakeResponse: versions [0-1], flexible [none];
    /// Answers [`SaslHandshakeRequest`].
    struct SaslHandshakeResponse {
        error_code: i16 [0+],
        mechanisms: Vec<Str> [0+],
    }
}
