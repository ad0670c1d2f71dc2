//! What the tests share.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use talos_common::{BrokerDir, BrokerEpoch, BrokerId, Env, TopicPartitionId};
use talos_meta::store::{BoxFuture, Error, Op, Result, Watch};
use talos_meta::{Claim, MemoryMeta, Meta, MetaStore, NewTopic, Node, Version};

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

/// Counts the transactions of a client, and lets only so many through: what happens when its process
/// ends after them.
#[derive(Debug)]
pub struct Counting {
    inner: MemoryMeta,
    count: AtomicUsize,
    limit: AtomicUsize,
}

impl Counting {
    pub fn new(inner: MemoryMeta) -> Arc<Self> {
        let (count, limit) = (AtomicUsize::new(0), AtomicUsize::new(usize::MAX));
        Arc::new(Self { inner, count, limit })
    }

    pub fn transactions(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    pub fn end_after(&self, transactions: usize) {
        self.limit.store(transactions, Ordering::SeqCst);
    }
}

impl MetaStore for Counting {
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>> {
        self.inner.get(path)
    }

    fn children(&self, path: &str) -> BoxFuture<'_, Result<Vec<String>>> {
        self.inner.children(path)
    }

    fn read_children(&self, path: &str) -> BoxFuture<'_, Result<Vec<(String, Node)>>> {
        self.inner.read_children(path)
    }

    fn transact(&self, ops: Vec<Op>) -> BoxFuture<'_, Result<Vec<Version>>> {
        Box::pin(async move {
            let before = self.count.fetch_add(1, Ordering::SeqCst);
            if before >= self.limit.load(Ordering::SeqCst) {
                return Err(Error::Closed);
            }
            self.inner.transact(ops).await
        })
    }

    fn watch(&self, prefix: &str) -> BoxFuture<'_, Result<Box<dyn Watch>>> {
        self.inner.watch(prefix)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sync()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}
