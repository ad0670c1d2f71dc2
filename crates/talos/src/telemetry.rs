//! Logs of the process: `tracing` events on standard error, as text or as JSON objects.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::TelemetryConfig;

/// Parses a filter such as `info,talos_log=debug`. The error is the reason, in words.
pub fn parse_filter(text: &str) -> Result<EnvFilter, String> {
    EnvFilter::builder().parse(text).map_err(|error| error.to_string())
}

/// Starts logging for the whole process. Fails when that was done already, or when the filter is
/// none.
pub fn start(config: &TelemetryConfig) -> anyhow::Result<()> {
    let filter = parse_filter(&config.filter).map_err(anyhow::Error::msg)?;
    let writer = BoxMakeWriter::new(std::io::stderr);
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer);
    let started = match config.format.as_str() {
        "json" => builder.json().flatten_event(true).try_init(),
        _ => builder.with_ansi(std::io::stderr().is_terminal()).try_init(),
    };
    started.map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))
}
