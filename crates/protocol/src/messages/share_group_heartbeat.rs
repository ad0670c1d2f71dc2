//! ShareGroupHeartbeat: membership in a share group (KIP-932).

use crate::primitives::{Str, Uuid};

message! {
    ShareGroupHeartbeatRequest: versions [1], flexible [0+],
        key ShareGroupHeartbeat, response ShareGroupHeartbeatResponse;
    /// Request: membership in a share group (KIP-932).
    struct ShareGroupHeartbeatRequest {
        group_id: Str [0+],
        member_id: Str [0+],
        member_epoch: i32 [0+],
        rack_id: Option<Str> [0+, null 0+] = None,
        subscribed_topic_names: Option<Vec<Str>> [0+, null 0+] = None,
    }
}

message! {
    ShareGroupHeartbeatResponse: versions [1], flexible [0+];
    /// Answers [`ShareGroupHeartbeatRequest`].
    struct ShareGroupHeartbeatResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        member_id: Option<Str> [0+, null 0+] = None,
        member_epoch: i32 [0+],
        heartbeat_interval_ms: i32 [0+],
        assignment: Option<Assignment> [0+, null 0+] = None,
    }
    struct Assignment {
        topic_partitions: Vec<TopicPartitions> [0+],
    }
    struct TopicPartitions {
        topic_id: Uuid [0+],
        partitions: Vec<i32> [0+],
    }
}
