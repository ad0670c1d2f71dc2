//! Topic configuration: every name that is taken, with its type, default, bounds and meaning here.
//!
//! Three kinds of names: those that take effect; those that Kafka's tools and clients set as a
//! routine and that have no effect here (each says so in its documentation, which DescribeConfigs
//! gives); and those that would promise something that does not exist, which are refused with a
//! reason. Everything else is INVALID_CONFIG with the nearest known name.

use std::collections::BTreeMap;

use talos_log::validate::BatchRules;
use talos_protocol::ErrorCode;
use talos_protocol::batch::TimestampType;

use crate::config::BrokerConfig;
use crate::errors::Failure;

/// A value's type, with Kafka's number for DescribeConfigs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind {
    Bool,
    /// One of these, as a string.
    Choice(&'static [&'static str]),
    /// A comma-separated list of these.
    List(&'static [&'static str]),
    /// A comma-separated list of anything.
    FreeList,
    /// Inclusive bounds; 32 bits.
    Int(i64, i64),
    /// Inclusive bounds; 64 bits.
    Long(i64, i64),
    /// Inclusive bounds.
    Double(f64, f64),
}

impl Kind {
    /// Kafka's `ConfigType`.
    pub(crate) fn code(self) -> i8 {
        match self {
            Self::Bool => 1,
            Self::Choice(_) => 2,
            Self::Int(..) => 3,
            Self::Long(..) => 5,
            Self::Double(..) => 6,
            Self::List(_) | Self::FreeList => 7,
        }
    }

    pub(crate) fn is_list(self) -> bool {
        matches!(self, Self::List(_) | Self::FreeList)
    }
}

/// One topic configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TopicKey {
    pub(crate) name: &'static str,
    pub(crate) kind: Kind,
    /// The broker configuration that is its default, if Kafka has one.
    pub(crate) broker_name: Option<&'static str>,
    /// Kafka's default; where the broker's configuration is the default, see [`default_of`].
    pub(crate) default: &'static str,
    pub(crate) doc: &'static str,
}

const fn key(
    name: &'static str,
    kind: Kind,
    broker_name: Option<&'static str>,
    default: &'static str,
    doc: &'static str,
) -> TopicKey {
    TopicKey { name, kind, broker_name, default, doc }
}

const MAX: i64 = i64::MAX;
const INT_MAX: i64 = i32::MAX as i64;
const LONG_MAX: &str = "9223372036854775807";

/// All names that are taken, by name.
pub(crate) const TOPIC_KEYS: &[TopicKey] = &[
    key(
        "cleanup.policy",
        Kind::List(&["delete", "compact"]),
        Some("log.cleanup.policy"),
        "delete",
        "What happens to old records. Only `delete` exists so far; `compact` is refused.",
    ),
    key(
        "compression.gzip.level",
        Kind::Int(-1, 9),
        Some("compression.gzip.level"),
        "-1",
        "No effect: batches are stored as the producer compressed them.",
    ),
    key(
        "compression.lz4.level",
        Kind::Int(1, 17),
        Some("compression.lz4.level"),
        "9",
        "No effect: batches are stored as the producer compressed them.",
    ),
    key(
        "compression.type",
        Kind::Choice(&["producer"]),
        Some("compression.type"),
        "producer",
        "Batches are stored as the producer compressed them; other values are refused.",
    ),
    key(
        "compression.zstd.level",
        Kind::Int(-131_072, 22),
        Some("compression.zstd.level"),
        "3",
        "No effect: batches are stored as the producer compressed them.",
    ),
    key(
        "delete.retention.ms",
        Kind::Long(0, MAX),
        Some("log.cleaner.delete.retention.ms"),
        "86400000",
        "No effect until compaction exists.",
    ),
    key(
        "file.delete.delay.ms",
        Kind::Long(0, MAX),
        Some("log.segment.delete.delay.ms"),
        "60000",
        "No effect: files belong to no single topic.",
    ),
    key(
        "flush.messages",
        Kind::Long(1, MAX),
        Some("log.flush.interval.messages"),
        LONG_MAX,
        "No effect: every record is durable before it is acknowledged.",
    ),
    key(
        "flush.ms",
        Kind::Long(0, MAX),
        Some("log.flush.interval.ms"),
        LONG_MAX,
        "No effect: every record is durable before it is acknowledged.",
    ),
    key(
        "follower.replication.throttled.replicas",
        Kind::FreeList,
        None,
        "",
        "No effect: the store replicates.",
    ),
    key(
        "index.interval.bytes",
        Kind::Int(0, INT_MAX),
        Some("log.index.interval.bytes"),
        "4096",
        "No effect: every batch is indexed.",
    ),
    key(
        "leader.replication.throttled.replicas",
        Kind::FreeList,
        None,
        "",
        "No effect: the store replicates.",
    ),
    key(
        "local.retention.bytes",
        Kind::Long(-2, MAX),
        Some("log.local.retention.bytes"),
        "-2",
        "No effect: there is one tier.",
    ),
    key(
        "local.retention.ms",
        Kind::Long(-2, MAX),
        Some("log.local.retention.ms"),
        "-2",
        "No effect: there is one tier.",
    ),
    key(
        "max.compaction.lag.ms",
        Kind::Long(1, MAX),
        Some("log.cleaner.max.compaction.lag.ms"),
        LONG_MAX,
        "No effect until compaction exists.",
    ),
    key(
        "max.message.bytes",
        Kind::Int(0, INT_MAX),
        Some("message.max.bytes"),
        "1048588",
        "Largest record batch, in bytes as the producer sends it.",
    ),
    key(
        "message.timestamp.after.max.ms",
        Kind::Long(0, MAX),
        Some("log.message.timestamp.after.max.ms"),
        "3600000",
        "How far a record's time may lie in the future, with CreateTime.",
    ),
    key(
        "message.timestamp.before.max.ms",
        Kind::Long(0, MAX),
        Some("log.message.timestamp.before.max.ms"),
        LONG_MAX,
        "How far a record's time may lie in the past, with CreateTime.",
    ),
    key(
        "message.timestamp.type",
        Kind::Choice(&["CreateTime", "LogAppendTime"]),
        Some("log.message.timestamp.type"),
        "CreateTime",
        "Whose clock stamps records.",
    ),
    key(
        "min.cleanable.dirty.ratio",
        Kind::Double(0.0, 1.0),
        Some("log.cleaner.min.cleanable.ratio"),
        "0.5",
        "No effect until compaction exists.",
    ),
    key(
        "min.compaction.lag.ms",
        Kind::Long(0, MAX),
        Some("log.cleaner.min.compaction.lag.ms"),
        "0",
        "No effect until compaction exists.",
    ),
    key(
        "min.insync.replicas",
        Kind::Int(1, INT_MAX),
        Some("min.insync.replicas"),
        "1",
        "No effect: a record is acknowledged when the store holds it, for acks 1 and all alike.",
    ),
    key(
        "preallocate",
        Kind::Bool,
        Some("log.preallocate"),
        "false",
        "No effect: files belong to no single topic.",
    ),
    key("remote.log.copy.disable", Kind::Bool, None, "false", "No effect: there is one tier."),
    key("remote.log.delete.on.disable", Kind::Bool, None, "false", "No effect: there is one tier."),
    key(
        "remote.storage.enable",
        Kind::Bool,
        None,
        "false",
        "There is one tier; `true` is refused.",
    ),
    key(
        "retention.bytes",
        Kind::Long(-1, MAX),
        Some("log.retention.bytes"),
        "-1",
        "How many bytes of each partition are kept; -1: all.",
    ),
    key(
        "retention.ms",
        Kind::Long(-1, MAX),
        Some("log.retention.ms"),
        "604800000",
        "How long records are kept; -1: for ever.",
    ),
    key(
        "segment.bytes",
        Kind::Int(14, INT_MAX),
        Some("log.segment.bytes"),
        "1073741824",
        "No effect: segments follow the broker's own settings.",
    ),
    key(
        "segment.index.bytes",
        Kind::Int(4, INT_MAX),
        Some("log.index.size.max.bytes"),
        "10485760",
        "No effect: indexes are part of segments.",
    ),
    key(
        "segment.jitter.ms",
        Kind::Long(0, MAX),
        Some("log.roll.jitter.ms"),
        "0",
        "No effect: age makes no segment.",
    ),
    key(
        "segment.ms",
        Kind::Long(1, MAX),
        Some("log.roll.ms"),
        "604800000",
        "No effect: age makes no segment.",
    ),
    key(
        "unclean.leader.election.enable",
        Kind::Bool,
        Some("unclean.leader.election.enable"),
        "false",
        "No effect: a leader always has every acknowledged record.",
    ),
];

/// One topic configuration, for the page that lists them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicConfigRow {
    /// Kafka's name.
    pub name: &'static str,
    /// Kafka's default; the broker's configuration may set another.
    pub default: &'static str,
    /// What it does here; begins with «No effect» where it does nothing.
    pub doc: &'static str,
}

/// All topic configurations that are taken, by name.
pub fn topic_config_rows() -> impl Iterator<Item = TopicConfigRow> {
    TOPIC_KEYS.iter().map(|key| TopicConfigRow {
        name: key.name,
        default: key.default,
        doc: key.doc,
    })
}

/// The key with this name.
pub(crate) fn find(name: &str) -> Option<&'static TopicKey> {
    TOPIC_KEYS.iter().find(|key| key.name == name)
}

/// The value of `key` for a topic that does not set it.
pub(crate) fn default_of(key: &TopicKey, config: &BrokerConfig) -> String {
    match key.name {
        "max.message.bytes" => config.message_max_bytes.to_string(),
        "message.timestamp.after.max.ms" => config.log_message_timestamp_after_max_ms.to_string(),
        "message.timestamp.before.max.ms" => config.log_message_timestamp_before_max_ms.to_string(),
        "message.timestamp.type" => timestamp_name(config.log_message_timestamp_type).into(),
        "retention.bytes" => config.log_retention_bytes.to_string(),
        "retention.ms" => config.log_retention_ms.to_string(),
        _ => key.default.into(),
    }
}

pub(crate) fn timestamp_name(kind: TimestampType) -> &'static str {
    match kind {
        TimestampType::CreateTime => "CreateTime",
        TimestampType::LogAppendTime => "LogAppendTime",
    }
}

/// Checks one entry as a client wants to set it, and gives the value to store.
pub(crate) fn check(name: &str, value: Option<&str>) -> Result<String, Failure> {
    let key = find(name).ok_or_else(|| unknown(name, TOPIC_KEYS.iter().map(|key| key.name)))?;
    let value = value.ok_or_else(|| {
        Failure::new(ErrorCode::InvalidConfig, format!("{name} needs a value; null is none"))
    })?;
    let value = value.trim();
    check_kind(key, value)?;
    match (name, value) {
        ("remote.storage.enable", value) if value.eq_ignore_ascii_case("true") => {
            Err(invalid(name, value, "tiered storage is not supported: all data lies in one store"))
        }
        ("cleanup.policy", value) if value.split(',').any(|part| part.trim() == "compact") => {
            Err(invalid(name, value, "compaction is not supported yet; use delete"))
        }
        _ => Ok(value.to_owned()),
    }
}

fn invalid(name: &str, value: &str, why: &str) -> Failure {
    let message = format!("Invalid value {value} for configuration {name}: {why}");
    Failure::new(ErrorCode::InvalidConfig, message)
}

fn check_kind(key: &TopicKey, value: &str) -> Result<(), Failure> {
    let fail = |why: String| Err(invalid(key.name, value, &why));
    match key.kind {
        Kind::Bool => match value.to_ascii_lowercase().as_str() {
            "true" | "false" => Ok(()),
            _ => fail("expected true or false".into()),
        },
        Kind::Choice(choices) if !choices.contains(&value) => {
            fail(format!("expected one of {}", choices.join(", ")))
        }
        Kind::List(choices) => {
            let parts: Vec<_> = value.split(',').map(str::trim).collect();
            match parts.iter().find(|part| !choices.contains(part)) {
                Some(_) => fail(format!("expected a list of {}", choices.join(", "))),
                None => Ok(()),
            }
        }
        Kind::Choice(_) | Kind::FreeList => Ok(()),
        Kind::Int(from, to) | Kind::Long(from, to) => match value.parse::<i64>() {
            Ok(number) if (from..=to).contains(&number) => Ok(()),
            Ok(_) | Err(_) => fail(format!("expected a whole number from {from} to {to}")),
        },
        Kind::Double(from, to) => match value.parse::<f64>() {
            Ok(number) if (from..=to).contains(&number) => Ok(()),
            Ok(_) | Err(_) => fail(format!("expected a number from {from} to {to}")),
        },
    }
}

/// INVALID_CONFIG for a name that is not known, with the nearest one.
pub(crate) fn unknown<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Failure {
    let near = known.map(|known| (distance(name, known), known)).min();
    let message = match near {
        Some((far, nearest)) if far <= 1 + name.len() / 3 => {
            format!("Unknown configuration {name}; did you mean {nearest}?")
        }
        Some(_) | None => format!("Unknown configuration {name}"),
    };
    Failure::new(ErrorCode::InvalidConfig, message)
}

/// Levenshtein distance in bytes, of at most 64 bytes each.
fn distance(a: &str, b: &str) -> usize {
    let mut row: Vec<usize> = (0..=b.len().min(64)).collect();
    for (i, x) in a.bytes().take(64).enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        let mut next = Vec::with_capacity(row.len());
        next.push(left);
        for (y, above) in b.bytes().take(64).zip(row.iter().skip(1)) {
            let cost = diagonal + usize::from(x != y);
            left = cost.min(above + 1).min(left + 1);
            diagonal = *above;
            next.push(left);
        }
        row = next;
    }
    row.last().copied().unwrap_or(usize::MAX)
}

/// A topic's configuration as the data path needs it. Values that cannot be read (they were checked
/// when they were set, so only by a newer version's names) count as not set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TopicConfig {
    pub(crate) rules: BatchRules,
    /// `retention.ms`; `None`: for ever.
    pub(crate) retention_ms: Option<i64>,
    /// `retention.bytes`; `None`: all.
    pub(crate) retention_bytes: Option<u64>,
}

impl TopicConfig {
    pub(crate) fn new(set: &BTreeMap<String, String>, config: &BrokerConfig) -> Self {
        let number = |name: &str, default: i64| {
            set.get(name).and_then(|value| value.parse().ok()).unwrap_or(default)
        };
        let max_message_bytes = number("max.message.bytes", i64::from(config.message_max_bytes));
        let timestamp_type = match set.get("message.timestamp.type").map(String::as_str) {
            Some("LogAppendTime") => TimestampType::LogAppendTime,
            Some("CreateTime") => TimestampType::CreateTime,
            Some(_) | None => config.log_message_timestamp_type,
        };
        let rules = BatchRules {
            max_message_bytes: usize::try_from(max_message_bytes).unwrap_or(0),
            timestamp_type,
            before_max_ms: number(
                "message.timestamp.before.max.ms",
                config.log_message_timestamp_before_max_ms,
            ),
            after_max_ms: number(
                "message.timestamp.after.max.ms",
                config.log_message_timestamp_after_max_ms,
            ),
            compacted: false,
            max_decompressed_bytes: config.max_decompressed_bytes,
        };
        let retention_ms = number("retention.ms", config.log_retention_ms);
        let retention_bytes = number("retention.bytes", config.log_retention_bytes);
        Self {
            rules,
            retention_ms: (retention_ms >= 0).then_some(retention_ms),
            retention_bytes: u64::try_from(retention_bytes).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_pass_their_own_checks_and_names_are_sorted() {
        for key in TOPIC_KEYS {
            assert_eq!(check(key.name, Some(key.default)).as_deref(), Ok(key.default));
            let default = default_of(key, &BrokerConfig::default());
            assert_eq!(default, key.default, "{}", key.name);
        }
        assert!(TOPIC_KEYS.windows(2).all(|pair| pair[0].name < pair[1].name));
    }

    #[test]
    fn what_can_not_be_kept_is_refused_with_a_reason() {
        for (name, value, part) in [
            ("cleanup.policy", "compact", "compaction is not supported"),
            ("cleanup.policy", "compact,delete", "compaction is not supported"),
            ("cleanup.policy", "shred", "expected a list"),
            ("remote.storage.enable", "true", "tiered storage"),
            ("retention.ms", "-2", "whole number"),
            ("retention.ms", "soon", "whole number"),
            ("compression.type", "lz4", "expected one of producer"),
            ("retention.mss", "1", "did you mean retention.ms?"),
            ("x", "1", "Unknown configuration x"),
        ] {
            let failure = check(name, Some(value)).unwrap_err();
            assert_eq!(failure.code, ErrorCode::InvalidConfig);
            assert!(failure.message.contains(part), "{name}={value}: {}", failure.message);
        }
        assert!(check("retention.ms", None).is_err());
    }

    #[test]
    fn what_a_topic_sets_goes_before_the_brokers_default() {
        let config = BrokerConfig { log_retention_ms: -1, ..BrokerConfig::default() };
        let mut set = BTreeMap::new();
        assert_eq!(TopicConfig::new(&set, &config).retention_ms, None);
        set.insert("retention.ms".into(), "5".into());
        set.insert("max.message.bytes".into(), "100".into());
        let topic = TopicConfig::new(&set, &config);
        assert_eq!((topic.retention_ms, topic.rules.max_message_bytes), (Some(5), 100));
    }
}
