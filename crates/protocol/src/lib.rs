//! The Talos `protocol` crate.
