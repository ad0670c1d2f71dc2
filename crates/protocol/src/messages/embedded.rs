//! Data that travels inside other messages: what consumers of the classic protocol put into JoinGroup
//! and SyncGroup, and the value of an end-of-transaction marker. Each starts with its version (i16),
//! which the caller reads and writes.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    ConsumerProtocolSubscription: versions [0-3], flexible [none];
    /// What a consumer of the classic protocol wants, as JoinGroup metadata.
    struct ConsumerProtocolSubscription {
        topics: Vec<Str> [0+],
        user_data: Option<Bytes> [0+, null 0+] = None,
        owned_partitions: Vec<ConsumerProtocolSubscriptionTopicPartition> [1+, ignorable],
        generation_id: i32 [2+, ignorable] = -1,
        rack_id: Option<Str> [3+, null 3+, ignorable] = None,
    }
    struct ConsumerProtocolSubscriptionTopicPartition {
        topic: Str [1+],
        partitions: Vec<i32> [1+],
    }
}

message! {
    ConsumerProtocolAssignment: versions [0-3], flexible [none];
    /// What a consumer of the classic protocol got, as SyncGroup assignment.
    struct ConsumerProtocolAssignment {
        assigned_partitions: Vec<ConsumerProtocolAssignmentTopicPartition> [0+],
        user_data: Option<Bytes> [0+, null 0+] = None,
    }
    struct ConsumerProtocolAssignmentTopicPartition {
        topic: Str [0+],
        partitions: Vec<i32> [0+],
    }
}

message! {
    EndTxnMarker: versions [0], flexible [none];
    /// Value of a control record that ends a transaction.
    struct EndTxnMarker {
        coordinator_epoch: i32 [0+],
    }
}
