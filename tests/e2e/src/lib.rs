//! End-to-end tests: real Kafka clients, as real processes, against a running broker process.
//!
//! The broker under test is the release binary of Talos, or Apache Kafka itself, which is the
//! oracle: every scenario here must pass against Kafka first ([`broker::Target`]). Scenarios are
//! written once ([`scenarios`]) over small client programs that all speak the same few verbs
//! ([`client`]); [`services`] brings what these programs need; [`suite`] is the small test runner,
//! which ends every process that it started. [`history`] and [`checker`] judge what clients saw
//! while the broker was being killed. [`disk`] breaks the disk under a broker and looks at it with a
//! small client of its own ([`wire`]).
//!
//! Invariants: nothing listens or connects beyond 127.0.0.1; every wait has a limit; a process is
//! only ever ended by the id that we got when we started it.
#![allow(
    clippy::disallowed_methods,
    reason = "the harness waits for real processes in real time; nothing here is simulated"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a test runner reports by printing")]

pub mod broker;
pub mod checker;
pub mod client;
pub mod crash;
pub mod disk;
pub mod history;
pub mod process;
pub mod scenarios;
pub mod services;
pub mod suite;
pub mod wire;
