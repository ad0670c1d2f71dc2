//! One file per API. Each opens with its versions, its behaviour, what each version adds, and where
//! it differs from Apache Kafka. Handlers are plain functions: they compute an answer; order,
//! flow control and encoding are the connection's.

pub(crate) mod alter_configs;
pub(crate) mod api_versions;
pub(crate) mod create_partitions;
pub(crate) mod create_topics;
pub(crate) mod delete_groups;
pub(crate) mod delete_records;
pub(crate) mod delete_topics;
pub(crate) mod describe_cluster;
pub(crate) mod describe_configs;
pub(crate) mod describe_groups;
pub(crate) mod describe_log_dirs;
pub(crate) mod describe_producers;
pub(crate) mod describe_topic_partitions;
pub(crate) mod fetch;
pub(crate) mod find_coordinator;
pub(crate) mod heartbeat;
pub(crate) mod incremental_alter_configs;
pub(crate) mod init_producer_id;
pub(crate) mod join_group;
pub(crate) mod leave_group;
pub(crate) mod list_groups;
pub(crate) mod list_offsets;
pub(crate) mod metadata;
pub(crate) mod offset_commit;
pub(crate) mod offset_delete;
pub(crate) mod offset_fetch;
pub(crate) mod offset_for_leader_epoch;
pub(crate) mod produce;
pub(crate) mod sync_group;

use std::collections::BTreeSet;

use talos_common::LeaderEpoch;
use talos_log::PartitionLog;
use talos_protocol::ErrorCode;

use crate::errors::Failure;

/// The items whose key comes for the first time, in order: naming a thing a thousand times must not
/// make the answer a thousand times as large (P6).
pub(crate) fn distinct<T, Key: Ord>(mut items: Vec<T>, key: impl Fn(&T) -> Key) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.retain(|item| seen.insert(key(item)));
    items
}

/// Compares the leader epoch that a client believes in with ours (KIP-320); -1 believes nothing.
pub(crate) fn check_leader_epoch(log: &PartitionLog, believed: i32) -> Result<(), Failure> {
    let LeaderEpoch(ours) = log.leader_epoch();
    match believed {
        -1 => Ok(()),
        older if older < ours => Err(Failure::of(ErrorCode::FencedLeaderEpoch)),
        newer if newer > ours => Err(Failure::of(ErrorCode::UnknownLeaderEpoch)),
        _ => Ok(()),
    }
}

/// A text of the wire for the groups, which keep it.
pub(crate) fn group_text(text: &str) -> crate::groups::Text {
    text.into()
}

/// Bytes of the groups for the wire, without copying.
pub(crate) fn group_bytes(blob: crate::groups::Blob) -> bytes::Bytes {
    bytes::Bytes::from_owner(blob)
}

/// A text of ours for the wire.
pub(crate) fn text(text: &str) -> talos_protocol::Str {
    talos_protocol::Str::from(text.to_owned())
}
