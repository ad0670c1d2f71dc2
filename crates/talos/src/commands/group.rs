//! `talos group`: list, describe, reset and delete consumer groups.

use std::collections::BTreeMap;

use clap::{ArgGroup, Args, Subcommand};
use serde_json::json;

use super::{run_client, time};
use crate::cli::{ClientArgs, OutputArgs};
use crate::client::group::{self, CommitAs, Offsets};
use crate::client::offsets::{self, Spec};
use crate::client::{ClientError, Cluster};
use crate::output;

/// `talos group …`.
#[derive(Debug, Subcommand)]
pub enum GroupCommand {
    /// List groups.
    List(ListArgs),
    /// Show members, offsets and lag of groups.
    Describe(DescribeArgs),
    /// Move the committed offsets of a group without members.
    Reset(ResetArgs),
    /// Delete groups without members.
    Delete(DeleteArgs),
}

/// Flags of `group list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos group list
  talos group list --json

--json prints an array of objects: group, state, type.")]
pub struct ListArgs {
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `group describe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos group describe billing
  talos group describe billing --json

Lag is how many offsets lie between what is committed and the end. It is '-'
where the end is not known: the partition is offline, or its topic was
deleted.

--json prints an array with one object per group: group, state, assignor,
members (array: member_id, client_id, host, assigned: partitions by topic),
offsets (array: topic, partition, committed, end_offset, lag, member; null:
none, or not known), lag (null if one of them is not known), known_lag.")]
pub struct DescribeArgs {
    /// Names of the groups.
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `group reset`.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("target").required(true).multiple(false),
    after_help = "\
Examples:
  talos group reset billing --topic orders --to-earliest              show what would change
  talos group reset billing --topic orders --to-earliest --execute    change it
  talos group reset billing --topic orders:0,3 --to-offset 1200 --execute
  talos group reset billing --all-topics --to-datetime 2026-11-30T08:00:00Z --execute
  talos group reset billing --all-topics --shift-by=-100 --execute

The group must have no members: stop its consumers first.

--json prints one object: group, executed, offsets (array: topic, partition,
committed, new)."
)]
pub struct ResetArgs {
    /// Name of the group.
    name: String,
    /// Topics whose offsets move: NAME, or NAME:PARTITION,…; may be repeated.
    #[arg(long = "topic", value_name = "NAME[:P,…]", required_unless_present = "all_topics")]
    topics: Vec<String>,
    /// All topics that the group has offsets for.
    #[arg(long, conflicts_with = "topics")]
    all_topics: bool,
    /// To the first record.
    #[arg(long, group = "target")]
    to_earliest: bool,
    /// Behind the last record.
    #[arg(long, group = "target")]
    to_latest: bool,
    /// To this offset, or the nearest that exists.
    #[arg(long, value_name = "N", group = "target")]
    to_offset: Option<i64>,
    /// To the first record at or after this time: a date (UTC), a duration ago (2h), or
    /// milliseconds since 1970.
    #[arg(long, value_name = "TIME", group = "target", allow_hyphen_values = true)]
    to_datetime: Option<String>,
    /// Forwards, or backwards with a minus.
    #[arg(long, value_name = "N", group = "target", allow_negative_numbers = true)]
    shift_by: Option<i64>,
    /// Change the offsets. Without it they are only shown.
    #[arg(long)]
    execute: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `group delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos group delete billing
  talos group delete billing reports --json

The groups must have no members: stop their consumers first.

--json prints one object: deleted (array of names).")]
pub struct DeleteArgs {
    /// Names of the groups.
    #[arg(required = true)]
    names: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs one of the commands.
///
/// # Errors
/// Whatever the cluster refused.
pub fn run(command: GroupCommand) -> anyhow::Result<()> {
    match command {
        GroupCommand::List(args) => run_client(&args.client.clone(), |cluster| list(cluster, args)),
        GroupCommand::Describe(args) => {
            run_client(&args.client.clone(), |cluster| describe(cluster, args))
        }
        GroupCommand::Reset(args) => {
            run_client(&args.client.clone(), |cluster| reset(cluster, args))
        }
        GroupCommand::Delete(args) => {
            run_client(&args.client.clone(), |cluster| delete(cluster, args))
        }
    }
}

async fn list(cluster: Cluster, args: ListArgs) -> anyhow::Result<()> {
    let groups = group::list(&cluster).await?;
    if args.output.json {
        let all: Vec<_> = groups
            .iter()
            .map(|group| json!({ "group": group.group, "state": group.state, "type": group.kind }))
            .collect();
        return output::json(&all);
    }
    if groups.is_empty() {
        output::note("no groups");
        return Ok(());
    }
    let rows = groups.into_iter().map(|group| vec![group.group, group.state, group.kind]);
    output::table(&["group", "state", "type"], rows)
}

/// One partition of a group as it is shown.
struct Line {
    topic: String,
    partition: i32,
    committed: Option<i64>,
    end: Option<i64>,
    member: Option<String>,
}

impl Line {
    fn lag(&self) -> Option<i64> {
        Some((self.end? - self.committed?).max(0))
    }
}

async fn lines(
    cluster: &Cluster,
    committed: &Offsets,
    described: &group::Described,
) -> Result<Vec<Line>, ClientError> {
    let mut places: BTreeMap<(String, i32), Option<String>> =
        committed.keys().map(|place| (place.clone(), None)).collect();
    for member in &described.members {
        for (topic, partitions) in &member.assigned {
            for partition in partitions {
                let who = member.member_id.clone();
                places.insert((topic.clone(), *partition), Some(who));
            }
        }
    }
    let mut by_topic: BTreeMap<&str, Vec<i32>> = BTreeMap::new();
    for (topic, partition) in places.keys() {
        by_topic.entry(topic).or_default().push(*partition);
    }
    let mut ends = BTreeMap::new();
    for (topic, partitions) in by_topic {
        // A deleted topic has no end, nor has a partition that is offline; the rest is still worth
        // showing.
        if let Ok(listed) = offsets::list(cluster, topic, &partitions, Spec::Latest).await {
            ends.extend(listed.found.into_iter().map(|(p, end)| ((topic.to_owned(), p), end)));
        }
    }
    let lines = places.into_iter().map(|(place, member)| Line {
        committed: committed.get(&place).copied(),
        end: ends.get(&place).copied().flatten(),
        topic: place.0,
        partition: place.1,
        member,
    });
    Ok(lines.collect())
}

async fn describe(cluster: Cluster, args: DescribeArgs) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for name in &args.names {
        let described = group::describe(&cluster, name).await?;
        let committed = group::offsets(&cluster, name).await?;
        if described.state == "Dead" && committed.is_empty() {
            anyhow::bail!("there is no group {name}; `talos group list` shows the groups");
        }
        let lines = lines(&cluster, &committed, &described).await?;
        if args.output.json {
            all.push(describe_json(name, &described, &lines));
        } else {
            describe_text(name, &described, &lines)?;
        }
    }
    if args.output.json { output::json(&all) } else { Ok(()) }
}

/// The lag of a whole group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Lag {
    known: i64,
    /// Partitions whose lag is not known: nothing is committed, or the end is not known.
    unknown: usize,
}

impl Lag {
    fn of(lines: &[Line]) -> Self {
        Self {
            known: lines.iter().filter_map(Line::lag).fold(0, i64::saturating_add),
            unknown: lines.iter().filter(|line| line.lag().is_none()).count(),
        }
    }
}

impl std::fmt::Display for Lag {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { known, unknown } = self;
        match unknown {
            0 => write!(f, "{known}"),
            1 => write!(f, "- ({known}, and that of 1 partition that is not known)"),
            _ => write!(f, "- ({known}, and that of {unknown} partitions that is not known)"),
        }
    }
}

fn describe_json(name: &str, described: &group::Described, lines: &[Line]) -> serde_json::Value {
    let lag = Lag::of(lines);
    let offsets: Vec<_> = lines
        .iter()
        .map(|line| {
            json!({
                "topic": line.topic,
                "partition": line.partition,
                "committed": line.committed,
                "end_offset": line.end,
                "lag": line.lag(),
                "member": line.member,
            })
        })
        .collect();
    let members: Vec<_> = described
        .members
        .iter()
        .map(|member| {
            json!({
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "assigned": member.assigned,
            })
        })
        .collect();
    json!({
        "group": name,
        "state": described.state,
        "assignor": described.assignor,
        "members": members,
        "offsets": offsets,
        "lag": (lag.unknown == 0).then_some(lag.known),
        "known_lag": lag.known,
    })
}

fn describe_text(name: &str, described: &group::Described, lines: &[Line]) -> anyhow::Result<()> {
    let lag = Lag::of(lines);
    let members = described.members.len();
    output::line(format!("group {name}  {}  members {members}  lag {lag}", described.state))?;
    let shown = |number: Option<i64>| number.map_or_else(|| "-".into(), |n| n.to_string());
    let rows = lines.iter().map(|line| {
        vec![
            line.topic.clone(),
            line.partition.to_string(),
            shown(line.committed),
            shown(line.end),
            shown(line.lag()),
            line.member.clone().unwrap_or_else(|| "-".into()),
        ]
    });
    output::table(&["topic", "partition", "committed", "end", "lag", "member"], rows)
}

/// `NAME` or `NAME:0,3`; no partitions stands for all.
fn parse_topic(text: &str) -> anyhow::Result<(String, Vec<i32>)> {
    let Some((name, list)) = text.split_once(':') else { return Ok((text.into(), Vec::new())) };
    let partitions: Result<Vec<i32>, _> = list.split(',').map(|p| p.trim().parse()).collect();
    match partitions {
        Ok(partitions) if !name.is_empty() && partitions.iter().all(|p| *p >= 0) => {
            Ok((name.into(), partitions))
        }
        _ => Err(output::usage(format!("--topic {text:?} must be NAME or NAME:PARTITION,…"))),
    }
}

async fn places(
    cluster: &Cluster,
    args: &ResetArgs,
    committed: &Offsets,
) -> anyhow::Result<BTreeMap<String, Vec<i32>>> {
    let mut places: BTreeMap<String, Vec<i32>> = BTreeMap::new();
    if args.all_topics {
        for (topic, partition) in committed.keys() {
            places.entry(topic.clone()).or_default().push(*partition);
        }
    }
    for text in &args.topics {
        let (topic, mut partitions) = parse_topic(text)?;
        let known = cluster.topic(&topic, false).await?;
        if partitions.is_empty() {
            partitions = known.partitions.keys().copied().collect();
        }
        places.entry(topic).or_default().extend(partitions);
    }
    for partitions in places.values_mut() {
        partitions.sort_unstable();
        partitions.dedup();
    }
    Ok(places)
}

async fn targets(
    cluster: &Cluster,
    args: &ResetArgs,
    committed: &Offsets,
) -> anyhow::Result<Offsets> {
    let time = match &args.to_datetime {
        Some(text) => {
            let now = cluster.env().clock.wall_ms();
            let parsed = time::parse(text, now);
            Some(parsed.map_err(|why| output::usage(format!("--to-datetime {text:?} {why}")))?)
        }
        None => None,
    };
    let mut targets = Offsets::new();
    for (topic, partitions) in places(cluster, args, committed).await? {
        let first = offsets::list_all(cluster, &topic, &partitions, Spec::Earliest).await?;
        let end = offsets::list_all(cluster, &topic, &partitions, Spec::Latest).await?;
        let by_time = match time {
            Some(ms) => offsets::list_all(cluster, &topic, &partitions, Spec::Time(ms)).await?,
            None => BTreeMap::new(),
        };
        for partition in partitions {
            let at =
                |offsets: &BTreeMap<i32, Option<i64>>| offsets.get(&partition).copied().flatten();
            let (first, end) = (at(&first).unwrap_or(0), at(&end).unwrap_or(0));
            let place = (topic.clone(), partition);
            let target = if args.to_earliest {
                first
            } else if args.to_latest {
                end
            } else if let Some(offset) = args.to_offset {
                offset.clamp(first, end)
            } else if let Some(shift) = args.shift_by {
                match committed.get(&place) {
                    Some(offset) => offset.saturating_add(shift).clamp(first, end),
                    // Without an offset there is nothing to shift.
                    None => continue,
                }
            } else {
                // No record is that late: the end, as Kafka's own tool does.
                at(&by_time).unwrap_or(end)
            };
            targets.insert(place, target);
        }
    }
    Ok(targets)
}

async fn reset(cluster: Cluster, args: ResetArgs) -> anyhow::Result<()> {
    let described = group::describe(&cluster, &args.name).await;
    // A group that is only about to exist has no coordinator state yet.
    let members = described.map_or(0, |described| described.members.len());
    if members > 0 && args.execute {
        anyhow::bail!(
            "group {} has {members} active members, so its offsets cannot be moved; stop its consumers, \
             then repeat",
            args.name
        );
    }
    let committed = group::offsets(&cluster, &args.name).await?;
    let targets = targets(&cluster, &args, &committed).await?;
    if targets.is_empty() {
        anyhow::bail!("group {} has no offsets to move; name topics with --topic", args.name);
    }
    if args.execute {
        group::commit(&cluster, &args.name, CommitAs::default(), &targets).await?;
    }
    if args.output.json {
        let moved: Vec<_> = targets
            .iter()
            .map(|(place, target)| {
                json!({
                    "topic": place.0,
                    "partition": place.1,
                    "committed": committed.get(place),
                    "new": target,
                })
            })
            .collect();
        return output::json(
            &json!({ "group": args.name, "executed": args.execute, "offsets": moved }),
        );
    }
    let rows = targets.iter().map(|(place, target)| {
        let before = committed.get(place).map_or_else(|| "-".into(), i64::to_string);
        vec![place.0.clone(), place.1.to_string(), before, target.to_string()]
    });
    output::table(&["topic", "partition", "committed", "new"], rows)?;
    if !args.execute {
        output::note("nothing was changed; repeat with --execute to move the offsets");
    }
    Ok(())
}

async fn delete(cluster: Cluster, args: DeleteArgs) -> anyhow::Result<()> {
    for name in &args.names {
        group::delete(&cluster, name).await?;
        if !args.output.json {
            output::line(format!("group {name} deleted"))?;
        }
    }
    if args.output.json { output::json(&json!({ "deleted": args.names })) } else { Ok(()) }
}
