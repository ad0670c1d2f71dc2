//! Consumer groups of the classic protocol, with Apache Kafka's semantics and error codes.
//!
//! ```text
//! handlers → coordinator (async: tokens, appends, timers)      one per partition of __consumer_offsets
//!               └ shard (pure: all groups of the partition, offsets, expiry, admin requests)
//!                    ├ state + join + rebalance (pure: one group's membership)
//!                    └ fold (pure: what the log says; the only source of offsets and of snapshots)
//!                         └ records (Kafka's schemas of keys and values)
//! ```
//!
//! Invariants: nothing that must be durable is answered, or visible to OffsetFetch, before its append
//! was; the fold changes only by records that are in the log, so a snapshot of it replays to the same
//! state; a coordinator belongs to one leader epoch and is dropped whole with it.

pub mod api;
pub mod coordinator;
pub mod fold;
mod join;
mod memory;
pub mod offset_log;
mod rebalance;
pub mod records;
pub mod registry;
pub mod shard;
pub mod state;
#[cfg(test)]
mod tests;
mod timers;

pub use api::{Blob, Code, Text};
pub use coordinator::Coordinator;
pub use memory::GroupMemory;
pub use offset_log::{AppendError, GroupRecord, LogChunk, LogRecord, OffsetLog};
pub use registry::Coordinators;
pub use shard::Config;

/// The partition of `__consumer_offsets` that holds a group: Java's `String.hashCode` of the id,
/// without its sign bit, modulo `partitions` (Kafka's rule, so that its tools find the group).
/// Zero when `partitions` is not positive.
pub fn coordinator_partition(group_id: &str, partitions: i32) -> i32 {
    let hash = group_id
        .encode_utf16()
        .fold(0i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(i32::from(unit)));
    (hash & 0x7fff_ffff).checked_rem(partitions.max(1)).unwrap_or(0)
}
