//! UnregisterBroker: forget a broker.

use crate::primitives::Str;

message! {
    UnregisterBrokerRequest: versions [0], flexible [0+],
        key UnregisterBroker, response UnregisterBrokerResponse;
    /// Request: forget a broker.
    struct UnregisterBrokerRequest {
        broker_id: i32 [0+],
    }
}

message! {
    UnregisterBrokerResponse: versions [0], flexible [0+];
    /// Answers [`UnregisterBrokerRequest`].
    struct UnregisterBrokerResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
    }
}
