//! The Talos `common` crate.
