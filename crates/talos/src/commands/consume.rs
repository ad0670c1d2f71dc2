//! `talos consume`: reads records of a topic, alone or as a member of a group.
//!
//! Offsets of a group are committed only for records whose output was flushed, so a broken pipe or
//! a kill repeats records and never skips any.

mod print;

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueEnum};
use talos_protocol::records::{Limits, decode_records};
use talos_protocol::{ErrorCode, Str};
use tokio::sync::watch;

use super::{run_client_until, time};
use crate::cli::ClientArgs;
use crate::client::consumer::{Consumer, ConsumerOptions, Fetched};
use crate::client::group::{self, CommitAs, Member, Offsets};
use crate::client::offsets::{self, Spec};
use crate::client::{ClientError, Cluster};
use crate::output;
use crate::stop::Stop;
use print::Printer;

/// How often a group's offsets are committed.
const COMMIT_EVERY: Duration = Duration::from_secs(5);

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
  talos consume orders --group billing                    share the work, go on where it stopped";

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
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// End after this many records.
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

/// Why reading paused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pause {
    Done,
    Rebalance,
}

async fn consume(cluster: Cluster, stop: Stop, args: ConsumeArgs) -> anyhow::Result<()> {
    let since = match &args.since {
        None => None,
        Some(text) => Some(
            time::parse(text, cluster.env().clock.wall_ms())
                .map_err(|why| output::usage(format!("--since {text:?} {why}")))?,
        ),
    };
    let known = cluster.topic(&args.topic, false).await?;
    let printer = Printer::new(args.format, args.verbose);
    let mut reading = Reading {
        left: args.max.unwrap_or(u64::MAX),
        done: Offsets::new(),
        committed: Offsets::new(),
        cluster: cluster.clone(),
        args,
        since,
        printer,
        stop,
    };
    match (reading.args.group.clone(), reading.args.partitions.is_empty()) {
        (Some(group), true) => reading.run_member(&group).await,
        (_, all) => {
            let partitions = match all {
                true => known.partitions.keys().copied().collect(),
                false => reading.args.partitions.clone(),
            };
            let ended = reading.run(&partitions, None, None).await;
            let committed = reading.commit(None).await;
            ended?;
            Ok(committed?)
        }
    }
}

/// Whether the group has moved on without this member.
fn is_stale(code: ErrorCode) -> bool {
    matches!(
        code,
        ErrorCode::RebalanceInProgress | ErrorCode::UnknownMemberId | ErrorCode::IllegalGeneration
    )
}

struct Reading {
    cluster: Cluster,
    args: ConsumeArgs,
    since: Option<i64>,
    printer: Printer,
    stop: Stop,
    /// Records still to be printed.
    left: u64,
    /// Next offset by partition, as far as output was flushed.
    done: Offsets,
    committed: Offsets,
}

impl Reading {
    /// Reads as a member of the group, through as many generations as it takes.
    async fn run_member(&mut self, group: &str) -> anyhow::Result<()> {
        let topic = self.args.topic.clone();
        let mut member = Member::join(self.cluster.clone(), group, &topic).await?;
        loop {
            let (rebalance, needed) = watch::channel(false);
            self.start_heartbeats(member.clone(), rebalance);
            let partitions = member.assigned().to_vec();
            let ended = self.run(&partitions, Some(&member), Some(needed)).await;
            // What was printed is committed whatever ended the reading.
            let committed = self.commit(Some(&member)).await;
            match ended {
                Ok(Pause::Rebalance) => {
                    self.done.clear();
                    self.committed.clear();
                    member.rejoin().await?;
                }
                Ok(Pause::Done) => {
                    committed?;
                    return Ok(member.leave().await?);
                }
                Err(error) => {
                    let _ = member.leave().await;
                    return Err(error);
                }
            }
        }
    }

    /// Keeps the member alive until the receiver is dropped or the group rebalances.
    fn start_heartbeats(&self, member: Member, rebalance: watch::Sender<bool>) {
        let clock = self.cluster.env().clock.clone();
        self.cluster.env().tasks.spawn("group heartbeat", async move {
            loop {
                tokio::select! {
                    biased;
                    () = rebalance.closed() => return,
                    () = clock.sleep(member.heartbeat_every()) => {}
                }
                match member.heartbeat().await {
                    Ok(true) => {}
                    Ok(false) => {
                        rebalance.send_replace(true);
                        return;
                    }
                    Err(error) => tracing::warn!(%error, "heartbeat failed"),
                }
            }
        });
    }

    /// Reads these partitions until everything asked for is printed.
    async fn run(
        &mut self,
        partitions: &[i32],
        member: Option<&Member>,
        mut needed: Option<watch::Receiver<bool>>,
    ) -> anyhow::Result<Pause> {
        let topic = self.args.topic.clone();
        let ends = match self.args.exit {
            true => offsets::list(&self.cluster, &topic, partitions, Spec::Latest).await?,
            false => BTreeMap::new(),
        };
        let starts = self.starts(partitions).await?;
        let mut open: BTreeMap<i32, i64> = BTreeMap::new();
        for (partition, start) in &starts {
            let end = ends.get(partition).copied().flatten().unwrap_or(i64::MAX);
            if *start < end {
                open.insert(*partition, end);
            }
        }
        let nothing = open.is_empty() && (self.args.exit || member.is_none());
        if nothing || self.left == 0 {
            return Ok(Pause::Done);
        }
        let from: Vec<_> = starts
            .iter()
            .filter(|(partition, _)| open.contains_key(partition))
            .map(|(partition, start)| (Str::from(topic.clone()), *partition, *start))
            .collect();
        let options =
            ConsumerOptions { read_committed: !self.args.read_uncommitted, ..Default::default() };
        let mut consumer = Consumer::start(self.cluster.clone(), options, &from).await?;
        let mut last_commit = self.cluster.env().clock.now();
        loop {
            let stop = self.stop.clone();
            let rebalance = async {
                match &mut needed {
                    Some(needed) => drop(needed.wait_for(|needed| *needed).await),
                    None => std::future::pending().await,
                }
            };
            let clock = self.cluster.env().clock.clone();
            let fetched = tokio::select! {
                biased;
                () = stop.asked() => return Ok(Pause::Done),
                () = rebalance => return Ok(Pause::Rebalance),
                fetched = consumer.next() => fetched,
                () = clock.sleep_until(last_commit + COMMIT_EVERY) => {
                    if let Err(error) = self.commit(member).await {
                        match error.code() {
                            Some(code) if member.is_some() && is_stale(code) => {
                                return Ok(Pause::Rebalance);
                            }
                            // The next commit has these offsets as well.
                            _ if error.is_retriable() => output::note(format!("warning: {error}")),
                            _ => return Err(error.into()),
                        }
                    }
                    last_commit = clock.now();
                    continue;
                }
            };
            let Some(fetched) = fetched else { return Ok(Pause::Done) };
            self.print(fetched?, &mut open)?;
            if self.left == 0 || (self.args.exit && open.is_empty()) {
                return Ok(Pause::Done);
            }
        }
    }

    /// Where each partition begins.
    async fn starts(&self, partitions: &[i32]) -> anyhow::Result<BTreeMap<i32, i64>> {
        let (cluster, topic) = (&self.cluster, &self.args.topic);
        let spec = match self.since {
            Some(ms) => Spec::Time(ms),
            None if self.args.from_beginning => Spec::Earliest,
            None => Spec::Latest,
        };
        let latest = offsets::list(cluster, topic, partitions, Spec::Latest).await?;
        let first = offsets::list(cluster, topic, partitions, Spec::Earliest).await?;
        let default = offsets::list(cluster, topic, partitions, spec).await?;
        let explicit = self.args.offset.is_some() || self.since.is_some();
        let committed = match &self.args.group {
            Some(group) if !explicit => group::offsets(cluster, group).await?,
            _ => Offsets::new(),
        };
        let mut starts = BTreeMap::new();
        for partition in partitions {
            let at =
                |offsets: &BTreeMap<i32, Option<i64>>| offsets.get(partition).copied().flatten();
            let end = at(&latest).unwrap_or(0);
            let start = match (self.args.offset, committed.get(&(topic.clone(), *partition))) {
                (Some(offset), _) if offset < 0 => {
                    end.saturating_add(offset).max(at(&first).unwrap_or(0))
                }
                (Some(offset), _) => offset,
                // What was committed may be gone by now.
                (None, Some(committed)) => (*committed).max(at(&first).unwrap_or(0)),
                (None, None) => at(&default).unwrap_or(end),
            };
            starts.insert(*partition, start);
        }
        Ok(starts)
    }

    fn print(&mut self, fetched: Fetched, open: &mut BTreeMap<i32, i64>) -> anyhow::Result<()> {
        let Some(end) = open.get(&fetched.partition).copied() else { return Ok(()) };
        let mut next = fetched.from;
        'batches: for batch in &fetched.batches {
            let corrupt = |source| ClientError::Corrupt {
                topic: fetched.topic.to_string(),
                partition: fetched.partition,
                offset: batch.header.base_offset,
                source,
            };
            let limits = Limits { max_decompressed_bytes: 1 << 30 };
            for record in decode_records(batch, &limits).map_err(corrupt)? {
                let record = record.map_err(corrupt)?;
                let offset = batch.offset_of(&record);
                if offset < fetched.from {
                    continue;
                }
                if offset >= end || self.left == 0 {
                    break 'batches;
                }
                self.printer.record(&fetched, offset, batch, &record)?;
                self.left -= 1;
                next = offset + 1;
            }
        }
        if self.left > 0 {
            next = fetched.next.min(end).max(next);
        }
        self.printer.flush()?;
        self.done.insert((fetched.topic.to_string(), fetched.partition), next);
        if fetched.next >= end {
            open.remove(&fetched.partition);
        }
        Ok(())
    }

    /// Commits what was printed since the last time.
    async fn commit(&mut self, member: Option<&Member>) -> Result<(), ClientError> {
        let Some(group) = self.args.group.clone() else { return Ok(()) };
        let news: Offsets = self
            .done
            .iter()
            .filter(|(place, offset)| self.committed.get(*place) != Some(offset))
            .map(|(place, offset)| (place.clone(), *offset))
            .collect();
        match member {
            Some(member) => member.commit(&news).await?,
            None => group::commit(&self.cluster, &group, CommitAs::default(), &news).await?,
        }
        self.committed.extend(news);
        Ok(())
    }
}
