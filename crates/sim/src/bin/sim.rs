//! Seeds in, verdicts out: `talos-sim --seed N [--trace]`, `talos-sim --seeds A..B`.
#![allow(clippy::print_stdout, reason = "a program for people")]

use std::collections::BTreeMap;
use std::process::ExitCode;

use clap::Parser;
use talos_sim::Plan;
use talos_sim::planted;

/// Runs a whole broker on virtual time from a seed, and says what was wrong.
#[derive(Debug, Parser)]
#[command(name = "talos-sim")]
struct Options {
    /// One seed.
    #[arg(long, conflicts_with = "seeds", required_unless_present = "seeds")]
    seed: Option<u64>,
    /// A range of seeds, end exclusive, such as 0..500.
    #[arg(long, value_parser = parse_range)]
    seeds: Option<std::ops::Range<u64>>,
    /// Print all events, and what the broker logs (on standard error).
    #[arg(long)]
    trace: bool,
    /// Plant a bug, by its number.
    #[arg(long)]
    planted: Option<usize>,
}

fn parse_range(text: &str) -> Result<std::ops::Range<u64>, String> {
    let (from, to) = text.split_once("..").ok_or("a range looks like 0..500")?;
    let number = |text: &str| text.parse::<u64>().map_err(|error| error.to_string());
    Ok(number(from)?..number(to)?)
}

fn main() -> std::io::Result<ExitCode> {
    let options = Options::parse();
    if options.trace {
        let subscriber = tracing_subscriber::fmt()
            .without_time()
            .with_writer(std::io::stderr)
            .with_max_level(tracing::Level::DEBUG);
        subscriber.init();
    }
    let bug = options.planted.and_then(|number| planted::ALL.get(number).copied());
    let seeds = match (options.seed, options.seeds) {
        (Some(seed), _) => seed..seed.saturating_add(1),
        (None, seeds) => seeds.unwrap_or(0..0),
    };
    let (mut failed, mut runs) = (0_u64, 0_u64);
    let mut faults: BTreeMap<String, u64> = BTreeMap::new();
    for seed in seeds {
        let plan = bug.map_or_else(|| Plan::of_seed(seed), |bug| bug.plan(seed));
        let report = talos_sim::run(plan)?;
        if options.trace {
            println!("{:#?}", report.plan);
            for (moment, event) in report.history.iter().enumerate() {
                println!("{moment} {:>10} {:?}", event.at_us, event.what);
            }
        }
        runs += 1;
        for (fault, count) in &report.faults {
            *faults.entry(fault.clone()).or_default() += count;
        }
        if report.violations.is_empty() && runs > 1 {
            continue;
        }
        failed += u64::from(!report.violations.is_empty());
        println!("{}", report.verdict());
    }
    println!("{runs} runs, {failed} with violations; faults that happened:");
    for (fault, count) in faults {
        println!("  {count:>8} {fault}");
    }
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
