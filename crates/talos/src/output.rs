//! What commands print: tables for people, JSON for programs, progress, and errors.
//!
//! Results go to standard output, everything else to standard error. A closed standard output
//! ends a command quietly.

use std::fmt;
use std::io::{self, BufWriter, Write as _};
use std::time::Duration;

use comfy_table::{ContentArrangement, Table, presets};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::client::ClientError;

/// A mistake in how a command was called that only shows when it runs. Exit code 2.
#[derive(Debug)]
pub struct Usage(pub String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// A [`Usage`] error.
pub fn usage(text: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Usage(text.into()))
}

/// An error with what to do about it.
#[derive(Debug)]
struct Advised {
    text: String,
    next: String,
}

impl fmt::Display for Advised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Advised {}

/// An error that says `next` as what to do about it.
pub fn advised(text: impl Into<String>, next: impl Into<String>) -> anyhow::Error {
    anyhow::Error::new(Advised { text: text.into(), next: next.into() })
}

/// Whether an error only says that whoever read our output has gone. A broken connection to a
/// broker is a [`ClientError`], which holds no error of the system.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let broken = |error: &io::Error| error.kind() == io::ErrorKind::BrokenPipe;
    error.chain().any(|cause| cause.downcast_ref::<io::Error>().is_some_and(broken))
}

/// What the user can do about an error, where we know.
pub fn hint(error: &anyhow::Error) -> Option<String> {
    error.chain().find_map(|cause| match cause.downcast_ref::<Advised>() {
        Some(advised) => Some(advised.next.clone()),
        None => cause.downcast_ref::<ClientError>().and_then(ClientError::hint),
    })
}

/// Prints one line of result.
pub fn line(text: impl fmt::Display) -> anyhow::Result<()> {
    writeln!(io::stdout().lock(), "{text}")?;
    Ok(())
}

/// Says something to the person, outside the result.
pub fn note(text: impl fmt::Display) {
    // A closed standard error is no reason to fail.
    let _ = writeln!(io::stderr().lock(), "{text}");
}

/// Prints a value as JSON, piece by piece: a value that serializes lazily is never held as a whole.
pub fn json(value: &impl Serialize) -> anyhow::Result<()> {
    let mut stdout = BufWriter::new(io::stdout().lock());
    serde_json::to_writer_pretty(&mut stdout, value).map_err(io::Error::from)?;
    writeln!(stdout)?;
    Ok(stdout.flush()?)
}

/// Prints rows under a header; numbers stand as they are.
pub fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> anyhow::Result<()> {
    let mut table = Table::new();
    table
        .load_style(presets::NOTHING)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(header.iter().map(|name| name.to_uppercase()));
    for row in rows {
        table.add_row(row);
    }
    let text = table.to_string();
    let mut stdout = BufWriter::new(io::stdout().lock());
    for row in text.lines() {
        writeln!(stdout, "{}", row.strip_prefix(' ').unwrap_or(row).trim_end())?;
    }
    Ok(stdout.flush()?)
}

/// Progress on standard error, if that is a terminal; else nothing is drawn.
pub fn progress(total: Option<u64>, template: &str) -> ProgressBar {
    let bar = match total {
        Some(total) => ProgressBar::new(total),
        None => ProgressBar::new_spinner(),
    };
    bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(5));
    if let Ok(style) = ProgressStyle::with_template(template) {
        bar.set_style(style);
    }
    bar
}

/// A size in bytes for people.
pub fn bytes(value: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut scaled = value as f64;
    let mut unit = 0;
    while scaled >= 1024.0 && unit + 1 < UNITS.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    if unit == 0 { format!("{value} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}

/// A duration for people.
pub fn duration(value: Duration) -> String {
    match value.as_micros() {
        us if us < 1_000 => format!("{us} µs"),
        us if us < 1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        us => format!("{:.2} s", us as f64 / 1e6),
    }
}
