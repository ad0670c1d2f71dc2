//! Heartbeat: keep a member of a classic group alive.

use crate::primitives::Str;

message! {
    HeartbeatRequest: versions [0-4], flexible [4+],
        key Heartbeat, response HeartbeatResponse;
    /// Request: keep a member of a classic group alive.
    struct HeartbeatRequest {
        group_id: Str [0+],
        generation_id: i32 [0+],
        member_id: Str [0+],
        group_instance_id: Option<Str> [3+, null 3+] = None,
    }
}

message! {
    HeartbeatResponse: versions [0-4], flexible [4+];
    /// Answers [`HeartbeatRequest`].
    struct HeartbeatResponse {
        throttle_time_ms: i32 [1+, ignorable],
        error_code: i16 [0+],
    }
}
