//! Where everything lies in the tree.
//!
//! ```text
//! /cluster                                the cluster record; written last, so the folders exist with it
//! /brokers/<id>                           broker record
//! /topics/<shard>/<uuid>                  topic record: the commit point of a creation
//! /names/<shard>/<name>                   UUID of the topic of that name
//! /creations/<uuid>                       a creation under way
//! /tombstones/<shard>/<uuid>              a deleted UUID
//! /ownership/<shard>/<uuid>.<chunk>/<p>   ownership record of partition p; chunk = p / 1000
//! /roots/<shard>/<uuid>.<chunk>/<p>       root of partition p
//! ```
//!
//! A shard is two hexadecimal digits: the first of the UUID, or a hash of the name. So no folder has more
//! than 1,000 records of one topic, or a 256th of all topics (ZooKeeper's answers are limited to
//! 1 MB) [E-W12]. Roots are apart from ownership, because only ownership is watched.

use talos_common::{TopicId, TopicPartitionId};

pub(crate) const CLUSTER: &str = "/cluster";
pub(crate) const BROKERS: &str = "/brokers";
pub(crate) const TOPICS: &str = "/topics";
pub(crate) const NAMES: &str = "/names";
pub(crate) const CREATIONS: &str = "/creations";
pub(crate) const TOMBSTONES: &str = "/tombstones";
pub(crate) const OWNERSHIP: &str = "/ownership";
pub(crate) const ROOTS: &str = "/roots";

/// Folders that hold shards.
pub(crate) const SHARDED: [&str; 5] = [TOPICS, NAMES, TOMBSTONES, OWNERSHIP, ROOTS];
/// Folders that hold records.
pub(crate) const FLAT: [&str; 2] = [BROKERS, CREATIONS];

/// The most partitions in one folder.
pub(crate) const CHUNK_PARTITIONS: i32 = 1_000;

/// All shard names, in order.
pub(crate) fn shards() -> impl Iterator<Item = String> {
    (0..=u8::MAX).map(|shard| format!("{shard:02x}"))
}

fn shard_of(id: TopicId) -> u8 {
    let [first, ..] = id.0;
    first
}

/// The shard of a name: FNV-1a folded to a byte. On disk, so it never changes.
pub(crate) fn name_shard(name: &str) -> u8 {
    let fold = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = name.bytes().fold(0x811c_9dc5, fold);
    let [a, b, c, d] = hash.to_be_bytes();
    a ^ b ^ c ^ d
}

pub(crate) fn topic(id: TopicId) -> String {
    format!("{TOPICS}/{:02x}/{}", shard_of(id), id.hex())
}

pub(crate) fn topic_name(name: &str) -> String {
    format!("{NAMES}/{:02x}/{name}", name_shard(name))
}

pub(crate) fn creation(id: TopicId) -> String {
    format!("{CREATIONS}/{}", id.hex())
}

pub(crate) fn tombstone(id: TopicId) -> String {
    format!("{TOMBSTONES}/{:02x}/{}", shard_of(id), id.hex())
}

/// The folder above all chunks of a topic in `tree` (`OWNERSHIP` or `ROOTS`).
pub(crate) fn chunks_folder(tree: &str, id: TopicId) -> String {
    format!("{tree}/{:02x}", shard_of(id))
}

/// The folder of one chunk.
pub(crate) fn chunk(tree: &str, id: TopicId, partition: i32) -> String {
    format!("{tree}/{:02x}/{}.{}", shard_of(id), id.hex(), partition / CHUNK_PARTITIONS)
}

/// The record of one partition.
pub(crate) fn partition(tree: &str, tp: TopicPartitionId) -> String {
    format!("{}/{}", chunk(tree, tp.topic, tp.partition), tp.partition)
}

/// The topic and chunk number of a chunk folder's name.
pub(crate) fn parse_chunk(name: &str) -> Option<(TopicId, i32)> {
    let (id, chunk) = name.split_once('.')?;
    Some((TopicId::from_hex(id).ok()?, chunk.parse().ok()?))
}
