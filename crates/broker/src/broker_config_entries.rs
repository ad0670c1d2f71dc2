//! This broker's configuration as DescribeConfigs shows it: the names that have a meaning here.

use crate::config::BrokerConfig;
use crate::handlers::describe_configs::{Entry, SOURCE_BROKER, SOURCE_DEFAULT};
use crate::topic_config::timestamp_name;

const BOOL: i8 = 1;
const STRING: i8 = 2;
const INT: i8 = 3;
const LONG: i8 = 5;

type Row = (&'static str, i8, fn(&BrokerConfig) -> String, &'static str);

/// Name, type, value and documentation, by name.
const ROWS: &[Row] = &[
    (
        "auto.create.topics.enable",
        BOOL,
        |c| c.auto_create_topics_enable.to_string(),
        "Whether asking for the metadata of a missing topic may create it.",
    ),
    ("broker.id", INT, |c| c.node_id.to_string(), "The broker's id."),
    ("broker.rack", STRING, |c| c.rack.clone().unwrap_or_default(), "Told to clients as it is."),
    (
        "compression.type",
        STRING,
        |_| "producer".into(),
        "Batches are stored as the producer compressed them.",
    ),
    (
        "connections.max.idle.ms",
        LONG,
        |c| {
            c.connections_max_idle
                .map_or(-1, |idle| i64::try_from(idle.as_millis()).unwrap_or(i64::MAX))
                .to_string()
        },
        "A connection without a request for this long is closed.",
    ),
    (
        "default.replication.factor",
        INT,
        |c| c.default_replication_factor.to_string(),
        "Reported only: the store replicates.",
    ),
    (
        "delete.topic.enable",
        BOOL,
        |c| c.delete_topic_enable.to_string(),
        "Whether topics can be deleted.",
    ),
    (
        "fetch.max.bytes",
        INT,
        |c| c.fetch_max_bytes.to_string(),
        "Most bytes of records in the answer to one fetch.",
    ),
    (
        "group.initial.rebalance.delay.ms",
        INT,
        |c| c.group_initial_rebalance_delay_ms.to_string(),
        "How long an empty group waits for more members.",
    ),
    (
        "group.max.session.timeout.ms",
        INT,
        |c| c.group_max_session_timeout_ms.to_string(),
        "Longest session timeout that a member may ask for.",
    ),
    ("group.max.size", INT, |c| c.group_max_size.to_string(), "Most members of a group."),
    (
        "group.min.session.timeout.ms",
        INT,
        |c| c.group_min_session_timeout_ms.to_string(),
        "Shortest session timeout that a member may ask for.",
    ),
    ("log.cleanup.policy", STRING, |_| "delete".into(), "Compaction does not exist yet."),
    (
        "log.message.timestamp.after.max.ms",
        LONG,
        |c| c.log_message_timestamp_after_max_ms.to_string(),
        "How far a record's time may lie in the future.",
    ),
    (
        "log.message.timestamp.before.max.ms",
        LONG,
        |c| c.log_message_timestamp_before_max_ms.to_string(),
        "How far a record's time may lie in the past.",
    ),
    (
        "log.message.timestamp.type",
        STRING,
        |c| timestamp_name(c.log_message_timestamp_type).into(),
        "Whose clock stamps records.",
    ),
    (
        "log.retention.bytes",
        LONG,
        |c| c.log_retention_bytes.to_string(),
        "How many bytes of each partition are kept.",
    ),
    (
        "log.retention.check.interval.ms",
        LONG,
        |c| c.log_retention_check_interval.as_millis().to_string(),
        "How often retention looks for something to delete.",
    ),
    ("log.retention.ms", LONG, |c| c.log_retention_ms.to_string(), "How long records are kept."),
    ("max.connections", INT, |c| c.max_connections.to_string(), "Most open connections."),
    (
        "max.connections.per.ip",
        INT,
        |c| c.max_connections_per_ip.to_string(),
        "Most open connections of one address.",
    ),
    ("message.max.bytes", INT, |c| c.message_max_bytes.to_string(), "Largest record batch."),
    (
        "min.insync.replicas",
        INT,
        |_| "1".into(),
        "No effect: a record is acknowledged when the store holds it.",
    ),
    ("node.id", INT, |c| c.node_id.to_string(), "The broker's id."),
    (
        "num.partitions",
        INT,
        |c| c.num_partitions.to_string(),
        "Partitions of a topic that is created without a number.",
    ),
    (
        "offset.metadata.max.bytes",
        INT,
        |c| c.offset_metadata_max_bytes.to_string(),
        "Longest text with a committed offset.",
    ),
    (
        "offsets.commit.timeout.ms",
        INT,
        |c| c.offsets_commit_timeout.as_millis().to_string(),
        "How long a write of a group is waited for.",
    ),
    (
        "offsets.retention.check.interval.ms",
        LONG,
        |c| c.offsets_retention_check_interval_ms.to_string(),
        "How often expired offsets are looked for.",
    ),
    (
        "offsets.retention.minutes",
        INT,
        |c| (c.offsets_retention_ms / 60_000).to_string(),
        "How long a group's offsets are kept after its last member left.",
    ),
    (
        "offsets.topic.num.partitions",
        INT,
        |c| c.offsets_topic_num_partitions.to_string(),
        "Partitions of __consumer_offsets.",
    ),
    (
        "producer.id.expiration.ms",
        INT,
        |c| c.producer_id_expiration_ms.to_string(),
        "How long the sequence numbers of an idle producer are remembered.",
    ),
    (
        "socket.request.max.bytes",
        INT,
        |c| c.socket_request_max_bytes.to_string(),
        "Largest request.",
    ),
];

/// All entries of this broker.
pub(crate) fn broker_entries(config: &BrokerConfig) -> Vec<Entry> {
    let defaults = BrokerConfig::default();
    let entry = |(name, kind, value, doc): &Row| {
        let (name, kind, doc) = (*name, *kind, *doc);
        let (value, default) = (value(config), value(&defaults));
        let mut synonyms = Vec::new();
        if value != default {
            synonyms.push((name, value.clone(), SOURCE_BROKER));
        }
        synonyms.push((name, default, SOURCE_DEFAULT));
        let source = synonyms.first().map_or(SOURCE_DEFAULT, |(.., source)| *source);
        Entry { name, value, source, read_only: true, kind, doc, synonyms }
    };
    ROWS.iter().map(entry).collect()
}
