//! PushTelemetry: take metrics that a client pushes (KIP-714).

use bytes::Bytes;

use crate::primitives::Uuid;

message! {
    PushTelemetryRequest: versions [0], flexible [0+],
        key PushTelemetry, response PushTelemetryResponse;
    /// Request: take metrics that a client pushes (KIP-714).
    struct PushTelemetryRequest {
        client_instance_id: Uuid [0+],
        subscription_id: i32 [0+],
        terminating: bool [0+],
        compression_type: i8 [0+],
        metrics: Bytes [0+],
    }
}

message! {
    PushTelemetryResponse: versions [0], flexible [0+];
    /// Answers [`PushTelemetryRequest`].
    struct PushTelemetryResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
    }
}
