//! One partition's log, and the journals that all partitions of a broker share.
//!
//! In the order in which a record meets them: [`validate`] a batch, [`partition`] gives it its
//! offsets, `lane` its place in the journal and durability, [`tail_cache`] keeps it for readers.
//! After a restart [`logs`] seals and `scan`s the directories of former epochs, and `recover`
//! decides what the log holds. [`mod@format`] is the disk format.
//!
//! This crate never talks to the metadata: it is *given* a leader epoch and a handle to the root.

pub mod dump;
pub mod epochs;
mod extent;
pub mod format;
mod lane;
mod limits;
pub mod logs;
pub mod metrics;
pub mod partition;
pub mod producers;
mod ranges;
mod recover;
mod registry;
pub mod root;
mod run;
mod runs;
mod scan;
mod sorter;
pub mod tail_cache;
pub mod validate;
pub mod waiters;

pub use lane::LaneEnd;
pub use logs::{BrokerLog, LogOptions, OpenError, OpenRequest, Opened};
pub use metrics::{LogCounts, LogMetrics};
pub use partition::{AppendError, Appended, Offsets, PartitionLog, ReadError, ReadOut};
pub use registry::Unneeded;
