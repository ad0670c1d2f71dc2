//! The Talos `log` crate.
