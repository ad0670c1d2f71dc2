//! The command line: every flag and its help. What a command does is in [`crate::commands`].

use clap::{Args, Parser, Subcommand};
use talos_common::Period;

use crate::commands::{bench, consume, dump, group, produce, serve, topic};

/// Exit codes, for `talos --help`.
const EXIT_CODES: &str = "\
First steps:
  talos serve                                         start a broker on 127.0.0.1:9092
  talos topic create greetings --partitions 3
  echo hello | talos produce greetings
  talos consume greetings --from-beginning --exit

Exit codes: 0 done, 1 failed, 2 wrong usage or configuration, 130 interrupted.
Every command has --help with examples.";

/// A message broker that speaks Kafka's protocol, and tools for any Kafka-speaking broker.
#[derive(Debug, Parser)]
#[command(name = "talos", version, after_help = EXIT_CODES, disable_help_subcommand = true)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
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
    /// How long to wait for an answer before giving up.
    #[arg(long, value_name = "DURATION", default_value = "30s")]
    pub timeout: Period,
}

/// Tables for people, or JSON for programs.
#[derive(Clone, Copy, Debug, Args)]
pub struct OutputArgs {
    /// Print JSON instead of a table.
    #[arg(long)]
    pub json: bool,
}
