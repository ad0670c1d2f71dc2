//! The Kafka server of one Talos broker.
//!
//! ```text
//! listener → connection → dispatch → handlers/* ─┬→ partitions → log      (produce, fetch, offsets)
//!                                                └→ meta                   (topics, configuration)
//! ```
//!
//! [`Broker::start`] brings a broker up on any store and any metadata; [`Broker::serve_tcp`] and
//! [`Broker::serve_connection`] serve clients; [`Broker::stop`] ends it. Nothing here names a backend,
//! reads a clock or draws a random number by itself, so the simulation runs this very code.

mod broker;
mod broker_config_entries;
mod changes;
mod cluster;
mod config;
mod connection;
mod dispatch;
mod errors;
mod group_log;
pub mod groups;
mod handlers;
mod health;
mod listener;
mod metrics;
mod partitions;
mod producer_ids;
mod retention;
mod root_handle;
mod topic_config;
mod topics;

pub use broker::{Broker, Ended, Error};
pub use config::BrokerConfig;
pub use dispatch::{Served, served};
pub use health::Health;
pub use metrics::{ApiLabels, CloseLabels, METRICS, MetricRow, Metrics, log_metric_rows};
pub use topic_config::{TopicConfigRow, topic_config_rows};
