//! `cargo xtask bench-kafka`: Talos beside Apache Kafka in one run on this machine.
//!
//! Every row is loaded by Kafka's own Java tools, so that only the broker differs. A run has
//! rounds; in a round every system is started anew, warmed up, and given each row in turn, the
//! order of systems rotating. Numbers are medians over the rounds. Invariants: all systems are
//! measured with the same row, sizes and client settings; the disk is synced and topics are deleted
//! between measurements, outside of them; no process and no file outlives the run.

mod machine;
mod measure;
mod options;
mod process;
mod report;
mod rows;
mod stats;
mod systems;
mod tools;

use std::path::Path;

use anyhow::{Context, Result, bail};

use crate::cargo::{Workspace, cargo};
use machine::Machine;
use measure::{Client, Sample};
use options::Options;
use process::{Scratch, Stop};
use rows::Row;
use systems::{Running, Setup, System};

/// What one system gave in one round, row after row.
#[derive(Debug)]
pub(crate) struct RoundResult {
    /// Which system.
    pub(crate) system: System,
    /// From its start until its port accepted, in seconds.
    pub(crate) start_seconds: f64,
    /// Largest resident memory over the round, in bytes.
    pub(crate) peak_bytes: u64,
    /// Processor seconds from start to end of the round, work in the background too.
    pub(crate) cpu_seconds: f64,
    /// One per row, in the order of the rows.
    pub(crate) samples: Vec<Sample>,
}

/// Runs the comparison; true when every row of every system gave a number.
///
/// # Errors
/// On wrong options, missing tools, a system that does not start, or an interrupt.
pub(crate) fn run(args: &[String]) -> Result<bool> {
    let Some(options) = Options::parse(args)? else {
        print!("{}", options::usage());
        return Ok(true);
    };
    let workspace = Workspace::load()?;
    let stop = Stop::on_signals()?;
    let setup = prepare(&workspace, &options)?;
    let scratch = Scratch::new(&workspace.target.join("bench-kafka"))?;
    let machine = Machine::look(&workspace.root, scratch.path())?;
    println!("{}", machine.text());
    let mut rounds = Vec::new();
    for round in 0..options.repeat {
        rounds.extend(run_round(round, &options, &setup, &scratch, &stop)?);
    }
    let command = format!("cargo xtask bench-kafka {}", options.shown(args));
    let report = report::Report::new(&machine, command.trim(), &options, &rounds);
    println!("\n{}", report.markdown());
    if let Some(file) = &options.json {
        let text = serde_json::to_string_pretty(&report.json())?;
        std::fs::write(file, text + "\n").with_context(|| format!("cannot write {file}"))?;
        println!("written: {file}");
    }
    if options.write {
        let page = workspace.root.join("docs/benchmarks.md");
        report::write(&page, &report.markdown())?;
        println!("written: docs/benchmarks.md");
    }
    Ok(rounds.iter().all(|result| result.samples.iter().all(|s| s.failure.is_none())))
}

/// Brings jars and binary.
fn prepare(workspace: &Workspace, options: &Options) -> Result<Setup> {
    let jars = systems::bring_jars(&workspace.root)?;
    let talos = match &options.talos {
        Some(path) => path.into(),
        None => workspace.target.join("release/talos"),
    };
    if options.systems.contains(&System::Talos) && options.talos.is_none() {
        let mut build = cargo();
        build.args(["build", "--release", "-p", "talos"]).current_dir(&workspace.root);
        if !build.status().context("cannot run cargo")?.success() {
            bail!("cannot build talos; --systems kafka,kafka-flush runs without it");
        }
    }
    Ok(Setup { class_path: format!("{}/*", jars.display()), talos })
}

/// One round: all systems up, all rows through, all systems down.
fn run_round(
    round: u32,
    options: &Options,
    setup: &Setup,
    scratch: &Scratch,
    stop: &Stop,
) -> Result<Vec<RoundResult>> {
    let order = rotated(&options.systems, round);
    let dir = scratch.path().join(format!("round-{round}"));
    let mut up: Vec<(Running, Client, Vec<Sample>)> = Vec::new();
    for system in order {
        let running = Running::start(system, setup, &dir.join(system.name()), stop)
            .with_context(|| format!("{} does not start", system.name()))?;
        println!(
            "round {}: {} listens after {:.2} s",
            round + 1,
            system.name(),
            running.start_seconds
        );
        let mut client = Client::new(setup, options, &running, &dir, stop.clone())?;
        client.warm_up().with_context(|| format!("warming up {}", system.name()))?;
        up.push((running, client, Vec::new()));
    }
    for row in &options.rows {
        for (running, client, samples) in &mut up {
            settle(&dir)?;
            let sample = one(row, running, client, options)?;
            println!(
                "round {}: {:<16} {:<12} {}",
                round + 1,
                row.id,
                running.system.name(),
                sample.line()
            );
            samples.push(sample);
        }
    }
    let results = up
        .into_iter()
        .map(|(running, _, samples)| {
            Ok(RoundResult {
                system: running.system,
                start_seconds: running.start_seconds,
                peak_bytes: running.service.peak_bytes()?,
                cpu_seconds: running.service.cpu_seconds()?,
                samples,
            })
        })
        .collect::<Result<Vec<_>>>();
    std::fs::remove_dir_all(&dir).context("cannot remove the data of a round")?;
    results
}

/// One measurement. A client that fails gives a sample that says so; a broker that died or an
/// interrupt ends the run.
fn one(row: &Row, running: &mut Running, client: &mut Client, options: &Options) -> Result<Sample> {
    let sample = client.measure(row, &running.service, options.seconds);
    client.stop_requested()?;
    running.service.check_alive()?;
    Ok(sample.unwrap_or_else(|error| Sample::failed(format!("{error:#}"))))
}

/// Lets nobody pay for what an earlier measurement left to be written.
fn settle(dir: &Path) -> Result<()> {
    let mut sync = std::process::Command::new("sync");
    let status = sync.arg("--file-system").arg(dir).status().context("cannot run sync")?;
    if !status.success() {
        bail!("sync failed");
    }
    Ok(())
}

fn rotated(systems: &[System], round: u32) -> Vec<System> {
    let mut order = systems.to_vec();
    order.rotate_left(round as usize % systems.len().max(1));
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_systems_rotates() {
        use System::{Kafka, KafkaFlush, Talos};
        let all = [Kafka, KafkaFlush, Talos];
        assert_eq!(rotated(&all, 0), [Kafka, KafkaFlush, Talos]);
        assert_eq!(rotated(&all, 1), [KafkaFlush, Talos, Kafka]);
        assert_eq!(rotated(&all, 3), [Kafka, KafkaFlush, Talos]);
    }
}
