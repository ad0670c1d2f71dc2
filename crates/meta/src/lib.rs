//! The Talos `meta` crate.
