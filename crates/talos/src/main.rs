//! The `talos` binary: command line, configuration, wiring of the broker, admin HTTP.

fn main() {}
