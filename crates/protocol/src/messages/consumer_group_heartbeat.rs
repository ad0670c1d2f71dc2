//! ConsumerGroupHeartbeat: membership and assignment in the new consumer protocol (KIP-848).

use crate::primitives::{Str, Uuid};

message! {
    ConsumerGroupHeartbeatRequest: versions [0-1], flexible [0+],
        key ConsumerGroupHeartbeat, response ConsumerGroupHeartbeatResponse;
    /// Request: membership and assignment in the new consumer protocol (KIP-848).
    struct ConsumerGroupHeartbeatRequest {
        group_id: Str [0+],
        member_id: Str [0+],
        member_epoch: i32 [0+],
        instance_id: Option<Str> [0+, null 0+] = None,
        rack_id: Option<Str> [0+, null 0+] = None,
        rebalance_timeout_ms: i32 [0+] = -1,
        subscribed_topic_names: Option<Vec<Str>> [0+, null 0+] = None,
        subscribed_topic_regex: Option<Str> [1+, null 1+] = None,
        server_assignor: Option<Str> [0+, null 0+] = None,
        topic_partitions:
            Option<Vec<ConsumerGroupHeartbeatRequestTopicPartitions>>
            [0+, null 0+] = None,
    }
    struct ConsumerGroupHeartbeatRequestTopicPartitions {
        topic_id: Uuid [0+],
        partitions: Vec<i32> [0+],
    }
}

message! {
    ConsumerGroupHeartbeatResponse: versions [0-1], flexible [0+];
    /// Answers [`ConsumerGroupHeartbeatRequest`].
    struct ConsumerGroupHeartbeatResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        member_id: Option<Str> [0+, null 0+] = None,
        member_epoch: i32 [0+],
        heartbeat_interval_ms: i32 [0+],
        assignment: Option<Assignment> [0+, null 0+] = None,
    }
    struct Assignment {
        topic_partitions: Vec<ConsumerGroupHeartbeatResponseTopicPartitions> [0+],
    }
    struct ConsumerGroupHeartbeatResponseTopicPartitions {
        topic_id: Uuid [0+],
        partitions: Vec<i32> [0+],
    }
}
