//! Developer tasks: `cargo xtask ci`, `tidy`, `test`, `e2e`, `bench-kafka`.

fn main() {}
