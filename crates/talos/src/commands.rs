//! The commands, one file each, and what they share: runtime, connection, signals, times.

pub mod bench;
pub mod broker;
pub mod consume;
pub mod dump;
pub mod group;
pub mod produce;
pub mod serve;
pub mod time;
pub mod topic;

use std::process::ExitCode;

use anyhow::Context as _;
use talos_common::Env;

use crate::cli::{ClientArgs, Command};
use crate::client::{Cluster, ClusterOptions, deadline};
use crate::config::split_address;
use crate::output;
use crate::stop::{Signals, Stop};

/// Runs a command to its end.
///
/// # Errors
/// Whatever made it fail, for a person to read.
pub fn run(command: Command) -> anyhow::Result<ExitCode> {
    let done = |()| ExitCode::SUCCESS;
    match command {
        Command::Serve(args) => serve::run(&args),
        Command::Topic(command) => topic::run(command).map(done),
        Command::Group(command) => group::run(command).map(done),
        Command::Produce(args) => produce::run(args),
        Command::Consume(args) => consume::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Dump(args) => dump::run(&args).map(done),
    }
}

/// A cluster as the flags name it.
fn cluster(args: &ClientArgs) -> anyhow::Result<Cluster> {
    for address in &args.bootstrap {
        if split_address(address.trim()).is_none_or(|(_, port)| port == 0) {
            let text = format!(
                "--bootstrap {address:?} must be HOST:PORT, as in 127.0.0.1:9092 (several: with commas)"
            );
            return Err(output::usage(text));
        }
    }
    let options = ClusterOptions {
        bootstrap: args.bootstrap.clone(),
        timeout: args.timeout(),
        ..Default::default()
    };
    Ok(Cluster::new(Env::system(), options))
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .context("cannot start the runtime")
}

/// Runs a short client command, all of it within `--timeout`. A signal ends the process as it would
/// anyway.
fn run_client<T, F>(args: &ClientArgs, work: impl FnOnce(Cluster) -> F) -> anyhow::Result<T>
where
    F: Future<Output = anyhow::Result<T>>,
{
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let cluster = cluster(args)?;
        let (clock, limit) = (cluster.env().clock.clone(), args.timeout());
        deadline::within(&clock, limit, work(cluster)).await
    });
    runtime.shutdown_background();
    result
}

/// Runs a client command that ends cleanly when asked: the first signal asks, the second ends it
/// at once. After a signal the exit code tells of it.
fn run_client_until<F>(
    args: &ClientArgs,
    work: impl FnOnce(Cluster, Stop) -> F,
) -> anyhow::Result<ExitCode>
where
    F: Future<Output = anyhow::Result<()>>,
{
    let runtime = runtime()?;
    let result = runtime.block_on(async {
        let mut signals = Signals::new().context("cannot listen for signals")?;
        let stop = Stop::new();
        let work = work(cluster(args)?, stop.clone());
        tokio::pin!(work);
        let mut code = None;
        loop {
            tokio::select! {
                biased;
                ended = &mut work => {
                    return ended.map(|()| code.map_or(ExitCode::SUCCESS, ExitCode::from));
                }
                (_, next) = signals.next() => {
                    if code.is_some() {
                        return Ok(ExitCode::from(next));
                    }
                    code = Some(next);
                    stop.ask();
                }
            }
        }
    });
    runtime.shutdown_background();
    result
}

/// Splits `NAME=VALUE`.
fn name_value(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, value)) if !name.is_empty() => Ok((name.into(), value.into())),
        _ => Err("must be NAME=VALUE, as in retention.ms=86400000".into()),
    }
}

/// The names of compressions, for `--codec`.
fn codec(text: &str) -> Result<talos_protocol::batch::Compression, String> {
    use talos_protocol::batch::Compression;
    Compression::ALL
        .into_iter()
        .find(|codec| codec.name() == text)
        .ok_or_else(|| "must be none, gzip, snappy, lz4 or zstd".into())
}
