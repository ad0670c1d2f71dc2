//! The Talos `storage` crate.
