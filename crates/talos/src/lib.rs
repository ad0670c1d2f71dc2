//! The `talos` binary as a library: configuration, command line, client tooling, admin HTTP.
//!
//! `main.rs` only calls [`run`]; everything is here so that tests reach it.

pub mod admin;
pub mod cli;
pub mod client;
pub mod commands;
pub mod config;
pub mod output;
pub mod stop;
pub mod telemetry;

use std::io::Write as _;
use std::process::ExitCode;

/// Runs the command line of this process and gives the exit code: 0 done, 1 failed, 2 wrong usage
/// or configuration, 130 and 143 ended by a signal.
pub fn run() -> ExitCode {
    let cli = cli::Cli::read();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(error) if output::is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let mut stderr = std::io::stderr().lock();
            // Nobody is left to tell when standard error is closed.
            let _ = writeln!(stderr, "error: {error:#}");
            if let Some(hint) = output::hint(&error) {
                let _ = writeln!(stderr, "  next: {hint}");
            }
            let usage = error.is::<config::ConfigError>() || error.is::<output::Usage>();
            ExitCode::from(if usage { 2 } else { 1 })
        }
    }
}
