//! The Talos `broker` crate.

pub mod groups;
