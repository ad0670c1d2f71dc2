//! What the tests share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_common::{BrokerDir, BrokerEpoch, BrokerId, Env, TopicPartitionId};
use talos_meta::{Claim, MemoryMeta, Meta, NewTopic};

pub fn broker_dir(broker: i32, epoch: u64) -> BrokerDir {
    BrokerDir { broker: BrokerId(broker), epoch: BrokerEpoch(epoch) }
}

/// A tree with a cluster in it, and one client.
pub async fn cluster(seed: u64) -> (MemoryMeta, Meta) {
    let env = Env::simulated(seed, 1_000_000);
    let tree = MemoryMeta::new(&env);
    let meta = Meta::new(Arc::new(tree.handle()), env);
    meta.create_cluster().await.unwrap();
    (tree, meta)
}

/// Another client of the same tree.
pub fn client(tree: &MemoryMeta, seed: u64) -> Meta {
    Meta::new(Arc::new(tree.handle()), Env::simulated(seed, 1_000_000))
}

pub fn new_topic(name: &str, partitions: i32) -> NewTopic {
    NewTopic { name: name.into(), partitions, configs: BTreeMap::new() }
}

/// Claims one partition that can be claimed.
pub async fn claim(meta: &Meta, dir: BrokerDir, tp: TopicPartitionId) -> Claim {
    meta.claim_many(dir, &[tp]).await.remove(0).unwrap()
}
