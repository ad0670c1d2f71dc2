//! UnregisterController: forget a controller.

use crate::primitives::Str;

message! {
    UnregisterControllerRequest: versions [0], flexible [0+],
        key UnregisterController, response UnregisterControllerResponse;
    /// Request: forget a controller.
    struct UnregisterControllerRequest {
        controller_id: i32 [0+],
    }
}

message! {
    UnregisterControllerResponse: versions [0], flexible [0+];
    /// Answers [`UnregisterControllerRequest`].
    struct UnregisterControllerResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
    }
}
