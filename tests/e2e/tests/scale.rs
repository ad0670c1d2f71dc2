//! Many partitions on one broker: what each costs in memory and files, and that all are served after a
//! kill and after a clean stop. `TALOS_E2E_PARTITIONS` of them (20,000).
#![allow(clippy::print_stdout, reason = "says what it measured")]
#![allow(clippy::disallowed_methods, reason = "real processes in real time; nothing is simulated")]

use std::collections::BTreeSet;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use talos_e2e::process;
use talos_e2e::suite::{Suite, World};

/// What an idle partition may cost in memory.
const PARTITION_BYTES: u64 = 4 << 10;
/// Files of a broker with little data, however many partitions it has.
const MOST_FILES: usize = 64;
/// One call of the command line gets this long.
const LIMIT: Duration = Duration::from_secs(120);
const TOPIC: &str = "many";

fn main() -> ExitCode {
    let mut suite = Suite::new("scale");
    suite.add("idle_partitions_cost_little_memory_and_no_files", |world| {
        let partitions = match std::env::var("TALOS_E2E_PARTITIONS") {
            Ok(text) => text.parse().context("TALOS_E2E_PARTITIONS is not a number")?,
            Err(_) => 20_000,
        };
        many_partitions(world, partitions)
    });
    suite.run()
}

fn many_partitions(world: &mut World, partitions: u64) -> Result<()> {
    let before = world.broker.resident_bytes()?;
    let began = Instant::now();
    talos(world, &["topic", "create", TOPIC, "--partitions", &partitions.to_string()], "")?;
    println!("{partitions} partitions are created after {:?}", began.elapsed());
    memory(world, partitions, before, "after creation")?;
    files(world)?;

    world.broker.kill()?;
    println!("ready {:?} after a kill", world.broker.launch()?);
    memory(world, partitions, before, "after a start")?;

    // Two records for each partition, in turn; every one has its own bytes.
    let lines: Vec<String> = (0..2 * partitions).map(|n| format!("record {n}")).collect();
    let began = Instant::now();
    talos(world, &["produce", TOPIC], &(lines.join("\n") + "\n"))?;
    println!("{} records into all of them after {:?}", lines.len(), began.elapsed());
    files(world)?;
    all_there(world, &lines)?;

    world.broker.kill()?;
    println!("ready {:?} after a kill with data", world.broker.launch()?);
    all_there(world, &lines)?;
    world.broker.stop()?;
    println!("ready {:?} after a clean stop", world.broker.launch()?);
    all_there(world, &lines)?;
    files(world)
}

fn memory(world: &World, partitions: u64, before: u64, when: &str) -> Result<()> {
    let each = world.broker.resident_bytes()?.saturating_sub(before) / partitions;
    println!("{each} bytes of memory for each partition {when}");
    ensure!(each < PARTITION_BYTES, "a partition costs {each} bytes, {when}");
    Ok(())
}

fn files(world: &World) -> Result<()> {
    let count = count_files(&world.broker.data_dir())?;
    println!("{count} files");
    ensure!(count <= MOST_FILES, "{count} files: they follow the partitions");
    Ok(())
}

fn count_files(dir: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        count += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(count)
}

fn all_there(world: &World, lines: &[String]) -> Result<()> {
    let read = talos(world, &["consume", TOPIC, "--from-beginning", "--exit"], "")?;
    let read_set: BTreeSet<&str> = read.iter().map(String::as_str).collect();
    let wanted: BTreeSet<&str> = lines.iter().map(String::as_str).collect();
    ensure!(read_set == wanted, "{} of {} records are there", read_set.len(), wanted.len());
    ensure!(read.len() == lines.len(), "records are there more than once");
    Ok(())
}

/// Runs the command line against the broker, with `input` on its standard input; gives its lines.
fn talos(world: &World, args: &[&str], input: &str) -> Result<Vec<String>> {
    let mut command = process::command(world.broker.program());
    command.args(args).args(["--bootstrap", &world.broker.bootstrap()]);
    process::check(command, &format!("talos {}", args.join(" ")), input.as_bytes(), LIMIT)
}
