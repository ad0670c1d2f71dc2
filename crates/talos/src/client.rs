//! A small asynchronous Kafka client for the command line and the load generator.
//!
//! [`Cluster`] holds connections and metadata; [`producer`], [`consumer`], [`admin`] and [`group`] stand on
//! it. Everything that waits is bounded: requests in flight per connection, bytes in the producer,
//! answers not yet taken by the consumer. All errors are [`ClientError`]s, which name the server,
//! the API and Kafka's error, and know what to do next.

pub mod admin;
pub mod batch;
pub mod cluster;
pub mod connection;
pub mod consumer;
pub mod deadline;
pub mod error;
pub mod group;
pub mod offsets;
pub mod producer;

pub use cluster::{Cluster, ClusterOptions, Topic};
pub use connection::Connection;
pub use error::ClientError;
