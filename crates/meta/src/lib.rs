//! Cluster metadata: a small versioned tree ([`store::MetaStore`]) and, on it, who the brokers are,
//! which topics exist, who leads each partition and what each partition's root is.
//!
//! The tree is the data model of ZooKeeper, so that its memory and SQLite twins are exact and small.
//! All changes are compare-and-set (P4: an unknown outcome is re-read, never guessed).

pub mod store;
