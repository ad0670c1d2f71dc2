//! The Talos `sim` crate.
