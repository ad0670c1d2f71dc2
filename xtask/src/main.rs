//! Developer tasks: `cargo xtask ci`, `test`, `e2e`, `tidy`, `bench-kafka`.
//!
//! Depends on nothing of ours, so that it builds when the product does not. Every task prints what
//! it runs; the exit code is 0 only when all of it succeeded.
#![allow(
    clippy::disallowed_methods,
    reason = "a tool of real time and real processes; nothing here is simulated"
)]
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command line tool prints")]

mod bench;
mod cargo;
mod ci;
mod tidy;

use std::process::ExitCode;

use anyhow::{Result, bail};

const USAGE: &str = "\
Usage: cargo xtask TASK

  ci [--fail-fast]     all that CI runs, in its order, with the time of each step
  test [ARGS]          the inner loop: unit and simulation tests (ARGS go to cargo test)
  e2e [FILTER]         end-to-end tests with real clients against the release binary
  tidy                 house rules: arrows between crates, sizes, headers, forbidden words
  bench-kafka [--help] Talos beside Apache Kafka, in one run on this machine
";

fn main() -> ExitCode {
    match run() {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<ExitCode> {
    let mut args = std::env::args().skip(1);
    let task = args.next().unwrap_or_default();
    let rest: Vec<String> = args.collect();
    let passed = match task.as_str() {
        "ci" => ci::run(&rest)?,
        "test" => ci::test(&rest)?,
        "e2e" => ci::e2e(&rest)?,
        "tidy" => tidy::run(&rest)?,
        "bench-kafka" => bench::run(&rest)?,
        "" | "help" | "-h" | "--help" => {
            print!("{USAGE}");
            true
        }
        other => bail!("no task named {other:?}\n\n{USAGE}"),
    };
    Ok(if passed { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
