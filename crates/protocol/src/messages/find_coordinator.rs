//! FindCoordinator: which broker coordinates a group, transaction or share partition.

use crate::primitives::Str;

message! {
    FindCoordinatorRequest: versions [0-6], flexible [3+],
        key FindCoordinator, response FindCoordinatorResponse;
    /// Request: which broker coordinates a group, transaction or share partition.
    struct FindCoordinatorRequest {
        key: Str [0-3],
        key_type: i8 [1+],
        coordinator_keys: Vec<Str> [4+],
    }
}

message! {
    FindCoordinatorResponse: versions [0-6], flexible [3+];
    /// Answers [`FindCoordinatorRequest`].
    struct FindCoordinatorResponse {
        throttle_time_ms: i32 [1+, ignorable],
        error_code: i16 [0-3],
        error_message: Option<Str> [1-3, null 1-3, ignorable],
        node_id: i32 [0-3],
        host: Str [0-3],
        port: i32 [0-3],
        coordinators: Vec<Coordinator> [4+],
    }
    struct Coordinator {
        key: Str [4+],
        node_id: i32 [4+],
        host: Str [4+],
        port: i32 [4+],
        error_code: i16 [4+],
        error_message: Option<Str> [4+, null 4+, ignorable],
    }
}
