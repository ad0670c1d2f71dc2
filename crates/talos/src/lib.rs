//! The `talos` binary as a library: configuration, command line, client tooling, admin HTTP.
//!
//! Everything is here, and not in `main.rs`, so that tests reach it.

pub mod client;
pub mod config;
pub mod telemetry;
