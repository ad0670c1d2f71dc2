//! The versioned tree: get, children, transactions, watches, sync.

use std::future::Future;
use std::pin::Pin;

use bytes::Bytes;

/// A boxed future, so that [`MetaStore`] can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Shorthand for this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// How often a node was set since it was created; 0 right after creation, as in ZooKeeper.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version(pub i32);

/// One node as read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// Its value.
    pub value: Bytes,
    /// Its version.
    pub version: Version,
}

/// A store of metadata. Paths look like `/a/b`, without empty parts; the root `/` always exists.
/// Calls may run side by side. Each may be cancelled; the outcome of a cancelled change is unknown.
pub trait MetaStore: Send + Sync + std::fmt::Debug {
    /// The node at `path`, or `None`. Reads see this client's own finished changes; other clients'
    /// ones no later than after [`MetaStore::sync`].
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>>;

    /// The names (not paths) of the children of `path` in byte order; empty when `path` is missing.
    fn children(&self, path: &str) -> BoxFuture<'_, Result<Vec<String>>>;

    /// All children of `path` with their nodes, in byte order of their names. Not a snapshot on
    /// every store.
    fn read_children(&self, path: &str) -> BoxFuture<'_, Result<Vec<(String, Node)>>>;

    /// Applies all of `ops` in order or nothing; durable when this resolves. Gives one version per
    /// operation (a deletion gives the version it deleted). A precondition that does not hold gives
    /// [`Error::Refused`] with the index of the first such operation. At most
    /// [`TRANSACTION_BYTES`] of paths and values, and [`TRANSACTION_OPS`] operations; more is
    /// [`Error::Invalid`].
    fn transact(&self, ops: Vec<Op>) -> BoxFuture<'_, Result<Vec<Version>>>;

    /// Watches the subtree at `prefix`, itself included, from now on.
    fn watch(&self, prefix: &str) -> BoxFuture<'_, Result<Box<dyn Watch>>>;

    /// Afterwards reads by this client see everything that any client had changed before the call.
    fn sync(&self) -> BoxFuture<'_, Result<()>>;

    /// What kind of store it is and where, for people and logs.
    fn describe(&self) -> String;
}

/// A stream of changes in a subtree. Events for one node come in order but may be merged: an event
/// says «read again», not what was written.
pub trait Watch: Send + std::fmt::Debug {
    /// The next event. Bounded: when events come faster than they are taken, they are replaced by
    /// [`WatchEvent::Lost`]. Cancel safe. [`Error::Closed`] when the store is closed.
    fn next(&mut self) -> BoxFuture<'_, Result<WatchEvent>>;
}

/// What a watch tells.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WatchEvent {
    /// The node at this path was created, set or deleted.
    Changed(String),
    /// Events may be missing (reconnect, overflow): read the whole subtree again.
    Lost,
}

/// One step of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// Creates a node. Refused: `Exists`; `NotFound` when its parent is missing.
    Create {
        /// Where.
        path: String,
        /// What.
        value: Bytes,
        /// Whether the node ends with this client's session.
        ephemeral: bool,
    },
    /// Sets a node that has exactly this version. Refused: `NotFound`, `BadVersion`.
    Set {
        /// Where.
        path: String,
        /// What.
        value: Bytes,
        /// The version it must have.
        version: Version,
    },
    /// Deletes a node without children that has exactly this version. Refused: `NotFound`,
    /// `BadVersion`, `NotEmpty`.
    Delete {
        /// Where.
        path: String,
        /// The version it must have.
        version: Version,
    },
    /// Holds when the node exists with exactly this version. Refused: `NotFound`, `BadVersion`.
    Check {
        /// Where.
        path: String,
        /// The version it must have.
        version: Version,
    },
}

/// The most bytes of paths and values in one transaction: below ZooKeeper's 1 MiB with its framing.
pub const TRANSACTION_BYTES: usize = 900 * 1024;

/// The most operations in one transaction.
pub const TRANSACTION_OPS: usize = 1_000;

/// Why a precondition did not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The node is not there.
    NotFound,
    /// The node is there already.
    Exists,
    /// The node has another version.
    BadVersion,
    /// The node has children.
    NotEmpty,
}

/// What a call can fail with.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A precondition did not hold; nothing was applied.
    #[error("metadata transaction refused at operation {index} on {path}: {refusal:?}")]
    Refused {
        /// Which operation, from 0.
        index: usize,
        /// On which node.
        path: String,
        /// Why.
        refusal: Refusal,
    },
    /// Not applied; the same call may succeed later.
    #[error("metadata unavailable: {0}")]
    Unavailable(String),
    /// No room; not applied.
    #[error("no room for metadata: {0}")]
    Full(String),
    /// May be applied: read before deciding anything (P4).
    #[error("outcome of metadata change unknown: {0}")]
    Uncertain(String),
    /// The call itself is wrong; not applied.
    #[error("invalid metadata call: {0}")]
    Invalid(String),
    /// Stored bytes are not what was written (P5).
    #[error("metadata corrupt: {0}")]
    Corrupt(String),
    /// The store was closed.
    #[error("metadata store is closed")]
    Closed,
}
