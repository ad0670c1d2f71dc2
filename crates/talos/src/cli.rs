//! The command line: every flag and its help. What a command does is in [`crate::commands`].

use std::time::Duration;

use clap::{Args, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use talos_common::Period;

use crate::commands::{bench, consume, dump, group, produce, serve, topic};

/// `--timeout` where it is not given.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(30);

/// Exit codes, for `talos --help`.
const EXIT_CODES: &str = "\
First steps:
  talos serve                                         start a broker on 127.0.0.1:9092
  talos topic create greetings --partitions 3
  echo hello | talos produce greetings
  talos consume greetings --from-beginning --exit

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 ended by
SIGINT (Ctrl-C), 143 by SIGTERM (after the first of these a command finishes
cleanly what it began; `serve` then ends with 0). Every command has --help
with examples.";

/// A message broker that speaks Kafka's protocol, and tools for any Kafka-speaking broker.
#[derive(Debug, Parser)]
#[command(name = "talos", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

impl Cli {
    /// The command line of this process; ends the process where it is wrong.
    pub fn read() -> Self {
        match Self::from_arg_matches(&Self::taught().get_matches()) {
            Ok(cli) => cli,
            Err(error) => error.exit(),
        }
    }

    /// The whole command line. Numbers with a minus are values everywhere, so that one that is not
    /// allowed is refused as what it is, and not as an unknown flag.
    pub fn taught() -> clap::Command {
        fn teach(command: clap::Command) -> clap::Command {
            let minus = |arg: clap::Arg| match arg.get_action().takes_values() {
                true => arg.allow_negative_numbers(true),
                false => arg,
            };
            command.mut_args(minus).mut_subcommands(teach)
        }
        teach(Self::command())
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a broker.
    Serve(serve::ServeArgs),
    /// Create, list, describe, alter and delete topics.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// List, describe, reset and delete consumer groups.
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Write lines of standard input or of a file to a topic.
    Produce(produce::ProduceArgs),
    /// Read records of a topic.
    Consume(consume::ConsumeArgs),
    /// Measure a broker: throughput and latency under a load.
    Bench(bench::BenchArgs),
    /// Read the files of a broker that is not running and verify every checksum.
    Dump(dump::DumpArgs),
}

/// How client commands reach a broker.
#[derive(Clone, Debug, Args)]
#[command(next_help_heading = "Connection")]
pub struct ClientArgs {
    /// Brokers to ask first; one that answers is enough.
    #[arg(
        long,
        value_name = "HOST:PORT[,…]",
        env = "TALOS_BOOTSTRAP",
        default_value = "127.0.0.1:9092",
        value_delimiter = ','
    )]
    pub bootstrap: Vec<String>,
    /// How long one operation may take, with its retries, before giving up [default: 30s].
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true)]
    pub timeout: Option<Period>,
}

impl ClientArgs {
    /// `--timeout`, or its default.
    pub fn timeout(&self) -> Duration {
        self.timeout.map_or(DEFAULT_TIMEOUT, |timeout| timeout.0)
    }
}

/// Tables for people, or JSON for programs.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}

#[cfg(test)]
mod tests {
    use clap::error::ErrorKind;

    use super::*;

    /// Every command without commands of its own, with the words that call it.
    fn leaves(command: &clap::Command, path: &[String]) -> Vec<(Vec<String>, clap::Command)> {
        let mut all = Vec::new();
        for inner in command.get_subcommands() {
            let path = [path, &[inner.get_name().to_owned()]].concat();
            match inner.has_subcommands() {
                true => all.extend(leaves(inner, &path)),
                false => all.push((path, inner.clone())),
            }
        }
        all
    }

    fn all() -> Vec<(Vec<String>, clap::Command)> {
        let root = Cli::taught();
        root.clone().debug_assert();
        leaves(&root, &["talos".to_owned()])
    }

    #[test]
    fn a_minus_in_front_of_a_number_makes_no_unknown_flag() {
        for (path, command) in all() {
            for arg in command.get_opts().filter(|arg| arg.get_action().takes_values()) {
                let long = format!("--{}", arg.get_long().unwrap());
                let names = arg.get_value_names().unwrap_or_default();
                let kinds: Vec<&str> = names.iter().map(|name| name.as_str()).collect();
                let value = match kinds.as_slice() {
                    ["DURATION" | "TIME"] => "-5s",
                    ["SIZE"] => "-5KiB",
                    _ => "-5",
                };
                let words = path.iter().map(String::as_str).chain([long.as_str(), value]);
                let taken = Cli::taught().try_get_matches_from(words);
                let kind = taken.err().map(|error| error.kind());
                assert_ne!(kind, Some(ErrorKind::UnknownArgument), "{path:?} {long} {value}");
            }
        }
    }

    #[test]
    fn every_help_has_examples_and_says_what_its_json_is() {
        for (path, mut command) in all() {
            let help = command.render_long_help().to_string();
            assert!(help.contains("Examples:\n  "), "{path:?}");
            let described =
                help.contains("--json prints ") || help.contains("--format json prints ");
            assert!(!help.contains("--json") || described, "{path:?}: {help}");
            for arg in command.get_opts() {
                assert!(arg.get_help().is_some(), "{path:?} {arg}");
            }
            // Longer lines are broken anywhere.
            let after = command.get_after_help().unwrap().to_string();
            assert!(after.lines().all(|line| line.chars().count() <= 100), "{path:?}: {after}");
        }
    }
}
