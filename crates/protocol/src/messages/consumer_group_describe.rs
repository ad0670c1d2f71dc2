//! ConsumerGroupDescribe: state of groups of the new consumer protocol (KIP-848).

use crate::primitives::{Str, Uuid};

message! {
    ConsumerGroupDescribeRequest: versions [0-1], flexible [0+],
        key ConsumerGroupDescribe, response ConsumerGroupDescribeResponse;
    /// Request: state of groups of the new consumer protocol (KIP-848).
    struct ConsumerGroupDescribeRequest {
        group_ids: Vec<Str> [0+],
        include_authorized_operations: bool [0+],
    }
}

message! {
    ConsumerGroupDescribeResponse: versions [0-1], flexible [0+];
    /// Answers [`ConsumerGroupDescribeRequest`].
    struct ConsumerGroupDescribeResponse {
        throttle_time_ms: i32 [0+],
        groups: Vec<DescribedGroup> [0+],
    }
    struct DescribedGroup {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        group_id: Str [0+],
        group_state: Str [0+],
        group_epoch: i32 [0+],
        assignment_epoch: i32 [0+],
        assignor_name: Str [0+],
        members: Vec<Member> [0+],
        authorized_operations: i32 [0+] = i32::MIN,
    }
    struct Member {
        member_id: Str [0+],
        instance_id: Option<Str> [0+, null 0+] = None,
        rack_id: Option<Str> [0+, null 0+] = None,
        member_epoch: i32 [0+],
        client_id: Str [0+],
        client_host: Str [0+],
        subscribed_topic_names: Vec<Str> [0+],
        subscribed_topic_regex: Option<Str> [0+, null 0+] = None,
        assignment: Assignment [0+],
        target_assignment: Assignment [0+],
        member_type: i8 [1+, ignorable] = -1,
    }
    struct TopicPartitions {
        topic_id: Uuid [0+],
        topic_name: Str [0+],
        partitions: Vec<i32> [0+],
    }
    struct Assignment {
        topic_partitions: Vec<TopicPartitions> [0+],
    }
}
