//! `talos topic`: create, list, describe, alter and delete topics.

use std::collections::BTreeMap;

use clap::{Args, Subcommand};
use serde::{Serialize, Serializer};
use serde_json::json;
use talos_protocol::ErrorCode;
use talos_protocol::messages::metadata::MetadataResponseTopic;

use super::{name_value, run_client};
use crate::cli::{ClientArgs, OutputArgs};
use crate::client::admin::{self, ConfigChange, ConfigEntry, NewTopic};
use crate::client::offsets::{self, Spec};
use crate::client::{ClientError, Cluster, Topic};
use crate::output;

/// `talos topic …`.
#[derive(Debug, Subcommand)]
pub enum TopicCommand {
    /// Create a topic.
    Create(CreateArgs),
    /// List topics.
    List(ListArgs),
    /// Show partitions, offsets and configuration of topics.
    Describe(DescribeArgs),
    /// Add partitions to a topic or change its configuration.
    Alter(AlterArgs),
    /// Delete topics with all their records.
    Delete(DeleteArgs),
}

/// Flags of `topic create`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos topic create orders --partitions 12
  talos topic create audit --config retention.ms=604800000 --config max.message.bytes=4194304
  talos topic create orders --if-not-exists

--json prints one object: topic, id, partitions (their number), created
(false: it was there); with --dry-run: topic, created, possible.")]
pub struct CreateArgs {
    /// Name: 1 to 249 letters, digits, dots, underscores and hyphens.
    name: String,
    /// Number of partitions [default: the broker's num.partitions].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Number of replicas [default: the broker's].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i16).range(1..))]
    replication_factor: Option<i16>,
    /// Configuration of the topic, under Kafka's names; may be repeated.
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = name_value)]
    configs: Vec<(String, String)>,
    /// A topic that exists already is no error.
    #[arg(long)]
    if_not_exists: bool,
    /// Only check whether it could be created.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `topic list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos topic list
  talos topic list --internal --json

--json prints an array of objects: topic, id, partitions (their number),
offline (how many of them have no leader), internal.")]
pub struct ListArgs {
    /// Show the cluster's own topics too.
    #[arg(long)]
    internal: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `topic describe`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos topic describe orders
  talos topic describe orders --all-configs
  talos topic describe orders audit --json

OFFSETS is end minus start: the number of records, but for what transactions
and compaction leave out.

--json prints an array with one object per topic: topic, id, internal, offline
(array of partition numbers), partitions (array: partition, leader,
leader_epoch, replicas, isr, start_offset, end_offset; null: none, or not
known), configs (values by name; those set for the topic, or all).")]
pub struct DescribeArgs {
    /// Names of the topics.
    #[arg(required = true)]
    names: Vec<String>,
    /// Show every configuration entry, not only what was set for the topic.
    #[arg(long)]
    all_configs: bool,
    /// Show every partition of a topic with more than 200 of them.
    #[arg(long)]
    all_partitions: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `topic alter`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos topic alter orders --partitions 24
  talos topic alter orders --config retention.ms=3600000 --unset max.message.bytes

More partitions change which partition a key goes to. Partitions cannot be
taken away.

--json prints one object: topic, partitions (as asked for, or null), changed
(number of entries).")]
pub struct AlterArgs {
    /// Name of the topic.
    name: String,
    /// The new number of partitions, above the present one.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: Option<i32>,
    /// Set a configuration entry; may be repeated.
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = name_value)]
    configs: Vec<(String, String)>,
    /// Set a configuration entry back to its default; may be repeated.
    #[arg(long, value_name = "NAME")]
    unset: Vec<String>,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Flags of `topic delete`.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  talos topic delete orders
  talos topic delete orders audit --if-exists

There is no way back. --json prints one object: deleted (array of names).")]
pub struct DeleteArgs {
    /// Names of the topics.
    #[arg(required = true)]
    names: Vec<String>,
    /// A topic that does not exist is no error.
    #[arg(long)]
    if_exists: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs one of the commands.
///
/// # Errors
/// Whatever the cluster refused.
pub fn run(command: TopicCommand) -> anyhow::Result<()> {
    match command {
        TopicCommand::Create(args) => {
            run_client(&args.client.clone(), |cluster| create(cluster, args))
        }
        TopicCommand::List(args) => run_client(&args.client.clone(), |cluster| list(cluster, args)),
        TopicCommand::Describe(args) => {
            run_client(&args.client.clone(), |cluster| describe(cluster, args))
        }
        TopicCommand::Alter(args) => {
            run_client(&args.client.clone(), |cluster| alter(cluster, args))
        }
        TopicCommand::Delete(args) => {
            run_client(&args.client.clone(), |cluster| delete(cluster, args))
        }
    }
}

async fn create(cluster: Cluster, args: CreateArgs) -> anyhow::Result<()> {
    let topic = NewTopic {
        name: args.name.clone(),
        partitions: args.partitions.unwrap_or(-1),
        replication_factor: args.replication_factor.unwrap_or(-1),
        configs: args.configs,
    };
    let created = admin::create_topic(&cluster, &topic, args.dry_run).await;
    let existed = match created {
        Ok(()) => false,
        Err(error) if args.if_not_exists && error.code() == Some(ErrorCode::TopicAlreadyExists) => {
            true
        }
        Err(error) => return Err(error.into()),
    };
    if args.dry_run {
        let name = &args.name;
        return if args.output.json {
            output::json(&json!({ "topic": name, "created": false, "possible": true }))
        } else {
            output::line(format!("topic {name} can be created"))
        };
    }
    // Other brokers may learn of it a moment later.
    let known = match existed {
        true => cluster.topic(&args.name, false).await?,
        false => cluster.new_topic(&args.name, false).await?,
    };
    let partitions = known.partitions.len();
    if args.output.json {
        return output::json(&json!({
            "topic": args.name,
            "id": known.id.to_string(),
            "partitions": partitions,
            "created": !existed,
        }));
    }
    let what = if existed { "exists already" } else { "created" };
    output::line(format!("topic {} {what}, with {}", args.name, count(partitions, "partition")))
}

async fn list(cluster: Cluster, args: ListArgs) -> anyhow::Result<()> {
    let answer = cluster.metadata(None, false).await?;
    let mut topics: Vec<_> =
        answer.topics.iter().filter(|topic| args.internal || !topic.is_internal).collect();
    topics.sort_by(|a, b| a.name.cmp(&b.name));
    if args.output.json {
        let all: Vec<_> = topics
            .iter()
            .map(|topic| {
                json!({
                    "topic": topic.name.as_deref().unwrap_or_default(),
                    "id": topic.topic_id.to_string(),
                    "partitions": topic.partitions.len(),
                    "offline": offline(topic),
                    "internal": topic.is_internal,
                })
            })
            .collect();
        return output::json(&all);
    }
    if topics.is_empty() {
        output::note("no topics; `talos topic create NAME` makes one");
        return Ok(());
    }
    let rows = topics.iter().map(|topic| {
        let first = topic.partitions.first();
        vec![
            topic.name.as_deref().unwrap_or_default().to_owned(),
            topic.partitions.len().to_string(),
            offline(topic).to_string(),
            first.map_or(0, |partition| partition.replica_nodes.len()).to_string(),
            topic.topic_id.to_string(),
        ]
    });
    output::table(&["topic", "partitions", "offline", "replicas", "id"], rows)
}

/// Partitions without a leader.
fn offline(topic: &MetadataResponseTopic) -> usize {
    topic.partitions.iter().filter(|partition| partition.leader_id < 0).count()
}

/// Of a topic with more partitions than this, only those that are offline are listed, and of those as
/// many at most.
const MOST_ROWS: usize = 200;

/// What is shown of one topic.
struct Details {
    topic: std::sync::Arc<Topic>,
    first: BTreeMap<i32, Option<i64>>,
    end: BTreeMap<i32, Option<i64>>,
    configs: Vec<ConfigEntry>,
}

async fn details(cluster: &Cluster, name: &str) -> Result<Details, ClientError> {
    let topic = cluster.topic(name, false).await?;
    // A partition that is offline has no offsets to show, the others do.
    let all: Vec<i32> = topic.partitions.keys().copied().collect();
    let first = offsets::list(cluster, name, &all, Spec::Earliest).await?.found;
    let end = offsets::list(cluster, name, &all, Spec::Latest).await?.found;
    let configs = admin::topic_configs(cluster, name).await?;
    Ok(Details { topic, first, end, configs })
}

async fn describe(cluster: Cluster, args: DescribeArgs) -> anyhow::Result<()> {
    let mut all = Vec::new();
    for name in &args.names {
        let details = details(&cluster, name).await?;
        if args.output.json {
            all.push(TopicJson::new(details, args.all_configs));
        } else {
            describe_text(name, &details, &args)?;
        }
    }
    if args.output.json { output::json(&all) } else { Ok(()) }
}

/// A topic as `--json` prints it. The fields' names are for programs: they stay.
#[derive(Serialize)]
struct TopicJson {
    topic: String,
    id: String,
    internal: bool,
    offline: Vec<i32>,
    /// Written one by one: there may be very many.
    #[serde(serialize_with = "partitions_json")]
    partitions: Details,
    configs: BTreeMap<String, Option<String>>,
}

#[derive(Serialize)]
struct PartitionJson<'a> {
    partition: i32,
    leader: Option<i32>,
    leader_epoch: i32,
    replicas: &'a [i32],
    isr: &'a [i32],
    start_offset: Option<i64>,
    end_offset: Option<i64>,
}

impl TopicJson {
    fn new(mut details: Details, all_configs: bool) -> Self {
        let configs = std::mem::take(&mut details.configs).into_iter();
        Self {
            topic: details.topic.name.to_string(),
            id: details.topic.id.to_string(),
            internal: details.topic.internal,
            offline: details.topic.offline(),
            configs: configs
                .filter(|entry| all_configs || entry.own)
                .map(|entry| (entry.name, entry.value))
                .collect(),
            partitions: details,
        }
    }
}

fn partitions_json<S: Serializer>(details: &Details, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(details.topic.partitions.iter().map(|(index, partition)| {
        let offset = |offsets: &BTreeMap<i32, Option<i64>>| offsets.get(index).copied().flatten();
        PartitionJson {
            partition: *index,
            leader: partition.leader,
            leader_epoch: partition.leader_epoch,
            replicas: &partition.replicas,
            isr: &partition.isr,
            start_offset: offset(&details.first),
            end_offset: offset(&details.end),
        }
    }))
}

fn describe_text(name: &str, details: &Details, args: &DescribeArgs) -> anyhow::Result<()> {
    let topic = &details.topic;
    let partitions = count(topic.partitions.len(), "partition");
    let offline = topic.offline();
    let away = match offline.len() {
        0 => String::new(),
        number => format!("  {number} offline (docs/operations.md#a-partition-is-offline)"),
    };
    output::line(format!("topic {name}  id {}  {partitions}{away}", topic.id))?;
    let all_configs = args.all_configs;
    let configs = details.configs.iter().filter(|entry| all_configs || entry.own);
    for entry in configs {
        let value = entry.value.as_deref().unwrap_or("(not told)");
        let own = if all_configs && entry.own { "  (set for this topic)" } else { "" };
        output::line(format!("  {} = {value}{own}", entry.name))?;
    }
    let few = args.all_partitions || topic.partitions.len() <= MOST_ROWS;
    let shown =
        |offset: Option<i64>| offset.map_or_else(|| "-".into(), |offset| offset.to_string());
    // Of very many, those that want a look.
    let listed = topic.partitions.iter().filter(|(_, p)| few || p.leader.is_none());
    let rows = listed.map(|(index, partition)| {
        let at = |offsets: &BTreeMap<i32, Option<i64>>| offsets.get(index).copied().flatten();
        let (first, end) = (at(&details.first), at(&details.end));
        vec![
            index.to_string(),
            partition.leader.map_or_else(|| "none".into(), |leader| leader.to_string()),
            partition.leader_epoch.to_string(),
            format!("{:?}", partition.replicas),
            format!("{:?}", partition.isr),
            shown(first),
            shown(end),
            shown(first.zip(end).map(|(first, end)| end.saturating_sub(first))),
        ]
    });
    if !few {
        summary(details)?;
    }
    if few || !offline.is_empty() {
        let header =
            ["partition", "leader", "epoch", "replicas", "in sync", "start", "end", "offsets"];
        output::table(&header, rows.take(if few { usize::MAX } else { MOST_ROWS }))?;
    }
    Ok(())
}

/// All partitions of a topic in a few lines.
fn summary(details: &Details) -> anyhow::Result<()> {
    let Details { topic, first, end, .. } = details;
    let mut leaders: BTreeMap<i32, usize> = BTreeMap::new();
    let mut offsets: i64 = 0;
    let mut empty = 0_usize;
    for (index, partition) in &topic.partitions {
        if let Some(leader) = partition.leader {
            *leaders.entry(leader).or_default() += 1;
        }
        let at = |offsets: &BTreeMap<i32, Option<i64>>| offsets.get(index).copied().flatten();
        if let Some((first, end)) = at(first).zip(at(end)) {
            offsets = offsets.saturating_add(end.saturating_sub(first));
            empty += usize::from(first == end);
        }
    }
    let led = leaders.iter().map(|(leader, number)| format!("broker {leader}: {number}"));
    output::line(format!("  leaders    {}", led.collect::<Vec<_>>().join(", ")))?;
    output::line(format!("  offsets    {offsets} in all; {}", count(empty, "empty partition")))?;
    let offline = if topic.offline().is_empty() { "" } else { "; these are offline:" };
    output::line(format!("  --all-partitions lists every partition, --json does too{offline}"))
}

async fn alter(cluster: Cluster, args: AlterArgs) -> anyhow::Result<()> {
    if args.partitions.is_none() && args.configs.is_empty() && args.unset.is_empty() {
        return Err(output::usage(
            "nothing to change: give --partitions N, --config NAME=VALUE or --unset NAME",
        ));
    }
    let set = args.configs.iter().cloned().map(|(name, value)| ConfigChange::Set(name, value));
    let unset = args.unset.iter().cloned().map(ConfigChange::Unset);
    let changes: Vec<_> = set.chain(unset).collect();
    if !changes.is_empty() {
        admin::alter_topic_configs(&cluster, &args.name, &changes).await?;
    }
    if let Some(partitions) = args.partitions {
        admin::create_partitions(&cluster, &args.name, partitions).await?;
    }
    if args.output.json {
        return output::json(&json!({
            "topic": args.name,
            "partitions": args.partitions,
            "changed": changes.len(),
        }));
    }
    output::line(format!("topic {} altered", args.name))
}

async fn delete(cluster: Cluster, args: DeleteArgs) -> anyhow::Result<()> {
    let mut deleted = Vec::new();
    for name in &args.names {
        match admin::delete_topics(&cluster, std::slice::from_ref(name)).await {
            Ok(()) => deleted.push(name.clone()),
            Err(error)
                if args.if_exists && error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {}
            Err(error) => return Err(error.into()),
        }
        if !args.output.json {
            let gone = deleted.last() == Some(name);
            let what = if gone { "deleted" } else { "does not exist" };
            output::line(format!("topic {name} {what}"))?;
        }
    }
    if args.output.json { output::json(&json!({ "deleted": deleted })) } else { Ok(()) }
}

fn count(number: usize, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
