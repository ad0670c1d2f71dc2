//! `talos consume`: reads records of a topic, alone or as a member of a group.
//!
//! Offsets of a group are committed only for records whose output was flushed, so a broken pipe or
//! a kill repeats records and never skips any.

mod away;
mod print;
mod reading;

use std::process::ExitCode;

use clap::{Args, ValueEnum};

use super::{run_client_until, time};
use crate::cli::ClientArgs;
use crate::client::Cluster;
use crate::client::consumer::Fetched;
use crate::output;
use crate::stop::Stop;
use reading::Reading;

/// How records are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// The value, one record per line.
    Text,
    /// One JSON object per line, with offset, time, key and headers.
    Json,
    /// The bytes of the values with nothing between them.
    Raw,
}

const EXAMPLES: &str = "\
Examples:
  talos consume greetings                                 wait for new records
  talos consume greetings --from-beginning --exit         everything there is, then end
  talos consume orders --since 1h --format json --exit
  talos consume orders --partition 3 --offset 1200 --max 10
  talos consume orders --partition 3 --offset=-10 --exit  the last ten
  talos consume orders --group billing                    share the work, go on where it stopped

It waits for new records until it is stopped (Ctrl-C or SIGTERM: a group is
left cleanly, exit code 130 or 143). While the broker is away it says so on
standard error and tries again: for ever, or for as long as --timeout says if
that is given, and with --exit for 30 s at most; then it fails. A partition
that is offline is named and waited for while the others are read; with --exit
it makes the exit code 1.

--format json prints one object per line: topic, partition, offset, timestamp
(ms since 1970), timestamp_type (create or append), key, value, headers
(array: name, value). A key or value that is no text is key_base64 or
value_base64 instead; null is a record without one.";

/// Flags of `talos consume`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ConsumeArgs {
    /// Topic to read.
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// Begin with the first record [default: new records only].
    #[arg(long, conflicts_with_all = ["offset", "since"])]
    from_beginning: bool,
    /// End at what is the end of each partition at the start.
    #[arg(long)]
    exit: bool,
    /// Read as a member of this group and commit offsets; a committed offset goes before
    /// --from-beginning. With --partition: only commit.
    #[arg(long, value_name = "NAME")]
    group: Option<String>,
    /// Read only this partition; may be repeated.
    #[arg(long = "partition", value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partitions: Vec<i32>,
    /// Begin at this offset; negative: this many before the end.
    #[arg(long, value_name = "N", allow_negative_numbers = true, conflicts_with = "since")]
    offset: Option<i64>,
    /// Begin with the first record at or after this time: a duration ago (2h), a date (UTC), or
    /// milliseconds since 1970.
    #[arg(long, value_name = "TIME", allow_hyphen_values = true)]
    since: Option<String>,
    /// End after this many records [default: no limit].
    #[arg(long, value_name = "N")]
    max: Option<u64>,
    /// How records are printed.
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// With text: partition, offset, time and key in front of the value.
    #[arg(long, short)]
    verbose: bool,
    /// Read records of transactions that are not committed, too.
    #[arg(long)]
    read_uncommitted: bool,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
///
/// # Errors
/// Records cannot be read, or not be printed.
pub fn run(args: ConsumeArgs) -> anyhow::Result<ExitCode> {
    run_client_until(&args.client.clone(), |cluster, stop| consume(cluster, stop, args))
}

async fn consume(cluster: Cluster, stop: Stop, args: ConsumeArgs) -> anyhow::Result<()> {
    let since = match &args.since {
        None => None,
        Some(text) => Some(
            time::parse(text, cluster.env().clock.wall_ms())
                .map_err(|why| output::usage(format!("--since {text:?} {why}")))?,
        ),
    };
    let known = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        known = cluster.topic(&args.topic, false) => known?,
    };
    let group = args.group.clone().filter(|_| args.partitions.is_empty());
    let partitions = match args.partitions.is_empty() {
        true => known.partitions.keys().copied().collect(),
        false => args.partitions.clone(),
    };
    let mut reading = Reading::new(cluster, args, since, stop);
    match group {
        Some(group) => reading.run_member(&group).await,
        None => reading.run_alone(&partitions).await,
    }
}
