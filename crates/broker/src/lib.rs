//! The Talos `broker` crate.
