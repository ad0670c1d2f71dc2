//! Cluster metadata: a small versioned tree ([`store::MetaStore`]) and, on it, who the brokers are,
//! which topics exist, who leads each partition and what each partition's root is.
//!
//! The tree is the data model of ZooKeeper, so that its memory and SQLite twins are exact and small.
//! All changes are compare-and-set (P4: an unknown outcome is re-read, never guessed).
//!
//! [`Meta`] is what a broker uses. Its methods are in the files of what they are about:
//! [`cluster`], [`brokers`], [`topics`], [`ownership`], [`roots`]; [`topics_cache`] keeps an image of all
//! topics for the hot path.

use std::sync::Arc;

use talos_common::Env;

pub mod brokers;
pub mod cluster;
mod codec;
#[cfg(feature = "conformance")]
#[doc(hidden)]
pub mod conformance;
pub mod faults;
pub mod memory;
pub mod ownership;
mod paths;
pub mod roots;
mod settle;
#[cfg(feature = "sqlite")]
pub mod sqlite;
pub mod store;
pub mod topics;
pub mod topics_cache;
mod tree;
mod watchers;

pub use brokers::{Broker, BrokerError, Registered};
pub use cluster::{Cluster, ClusterId};
pub use faults::{FaultCounts, LostAnswer, MetaFaults};
pub use memory::{MemoryMeta, MetaSnapshot};
pub use ownership::{Claim, ClaimError, Inherited, Lead, LeadError, Leader, Ownership};
pub use roots::{RootChange, SwapError, Swapped};
#[cfg(feature = "sqlite")]
pub use sqlite::SqliteMeta;
pub use store::{Error, MetaStore, Node, Version};
pub use topics::{Deletion, NewTopic, Tombstone, Topic, TopicError, TopicState};
pub use topics_cache::{TopicsCache, TopicsImage};

/// How often a compare-and-set that another one overtook is judged and tried anew.
pub(crate) const CONTENTION_ROUNDS: usize = 16;

/// The metadata of a cluster, as one broker sees it. Cheap to clone; clones share the store's session.
#[derive(Clone, Debug)]
pub struct Meta {
    pub(crate) store: Arc<dyn MetaStore>,
    pub(crate) env: Env,
}

impl Meta {
    /// The records on `store`.
    pub fn new(store: Arc<dyn MetaStore>, env: Env) -> Self {
        Self { store, env }
    }

    /// The tree below.
    pub fn store(&self) -> &Arc<dyn MetaStore> {
        &self.store
    }
}

/// Others changed the same node again and again; nothing of this call is applied.
pub(crate) fn contended(what: &str) -> Error {
    Error::Unavailable(format!("{what} keeps changing under this call"))
}
