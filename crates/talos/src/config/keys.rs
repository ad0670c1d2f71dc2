//! Every configuration key, declared once: name, type, bounds, default, text.
//!
//! The tables below are the only list. The typed structures, validation, `docs/configuration.md` and
//! the broker's own listing of its configuration are all made from them.

use std::path::PathBuf;

use talos_common::{ByteSize, Period};

use super::Settings;
use super::value::{FromValue, Kind};

/// One key.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// The table of the file that it stands in, without brackets.
    pub section: &'static str,
    /// Its name within the table.
    pub name: &'static str,
    /// Type and bounds.
    pub kind: Kind,
    /// Default, in text form; empty for "not set".
    pub default: &'static str,
    /// What it is for, in Markdown.
    pub doc: &'static str,
}

impl Key {
    /// `section.name`: how the key is written in messages and variables.
    pub fn full_name(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }

    /// The environment variable: `TALOS_`, then the full name in capitals, with `_` for each dot.
    pub fn variable(&self) -> String {
        format!("TALOS_{}", self.full_name().replace('.', "_").to_ascii_uppercase())
    }
}

macro_rules! section {
    (
        $(#[$attribute:meta])*
        $section:literal => $name:ident {
            $( $(#[doc = $doc:literal])+ $field:ident: $ty:ty = $key:literal, $kind:expr, $default:literal; )+
        }
    ) => {
        $(#[$attribute])*
        #[derive(Clone, Debug, PartialEq)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $ty, )+
        }

        impl $name {
            /// The keys of this section, in the order of the documentation.
            pub const KEYS: &'static [Key] = &[
                $( Key {
                    section: $section,
                    name: $key,
                    kind: $kind,
                    default: $default,
                    doc: concat!($($doc),+),
                }, )+
            ];

            /// Takes the values of this section. `None` when a key's kind does not fit its field,
            /// which no input can cause.
            pub(super) fn take(settings: &Settings) -> Option<Self> {
                Some(Self { $( $field: FromValue::from_value(settings.get($section, $key)?)?, )+ })
            }
        }
    };
}

const fn int(min: i64, max: i64) -> Kind {
    Kind::Int { min, max }
}
const fn bytes(min: i64, max: i64) -> Kind {
    Kind::Bytes { min, max }
}
const fn ms(min: i64, max: i64) -> Kind {
    Kind::Time { unit_ms: 1, min, max }
}
const fn minutes(min: i64, max: i64) -> Kind {
    Kind::Time { unit_ms: 60_000, min, max }
}
const fn hours(min: i64, max: i64) -> Kind {
    Kind::Time { unit_ms: 3_600_000, min, max }
}
const fn size(min: ByteSize, max: ByteSize) -> Kind {
    Kind::Size { min: min.0, max: max.0 }
}
const fn period(min_ms: u64, max_ms: u64) -> Kind {
    Kind::Period { min_ms, max_ms }
}

const I32_MAX: i64 = i32::MAX as i64;
const TIB: ByteSize = ByteSize(1 << 40);
const DAY_MS: u64 = 86_400_000;

section! {
    /// Where the broker listens and who it is.
    "server" => ServerConfig {
        /// Address of the Kafka protocol. Port 0 takes any free port and prints it.
        listen: String = "listen", Kind::Address { optional: false }, "127.0.0.1:9092";
        /// Address that clients are told to connect to. Empty: the one that the broker listens on,
        /// which must then be an address that clients can reach.
        advertised: String = "advertised", Kind::Address { optional: true }, "";
        /// Folder of everything that the broker stores. One broker per folder.
        data_dir: PathBuf = "data_dir", Kind::Path, "./talos-data";
        /// The broker's id in the cluster; keep it for the life of the data.
        node_id: i32 = "node_id", int(0, I32_MAX), "0";
        /// Address of the admin HTTP server (`/metrics`, `/healthz`, `/readyz`); empty: off.
        admin: String = "admin", Kind::Address { optional: true }, "127.0.0.1:9644";
        /// How long a clean stop may take before the process ends anyway. Nothing acknowledged is
        /// lost then either: the next start recovers instead of continuing.
        stop_timeout: Period = "stop_timeout", period(100, DAY_MS), "30s";
    }
}

section! {
    /// Byte budgets; `config/docs.rs` says what comes on top of their sum.
    "memory" => MemoryConfig {
        /// Requests that were received, in part or whole, and are not yet accepted. When it is used up,
        /// sockets are not read any further; one request at a time may go beyond it, so that requests that
        /// came in part do not wait for each other.
        receive: ByteSize = "receive", size(ByteSize::mib(4), TIB), "128MiB";
        /// Batches that are accepted and not yet durable.
        lanes: ByteSize = "lanes", size(ByteSize::mib(4), TIB), "64MiB";
        /// Batches in answers that are not yet sent.
        answers: ByteSize = "answers", size(ByteSize::mib(4), TIB), "128MiB";
        /// Parts of the tail cache that unsent answers keep in memory beyond their time there. When it
        /// is used up, answers are copied.
        pinned: ByteSize = "pinned", size(ByteSize::mib(4), TIB), "64MiB";
        /// Positions of batches that are not sorted yet. Sorting starts at half of it; when it is used
        /// up, produce is delayed and then refused.
        positions: ByteSize = "positions", size(ByteSize::mib(4), TIB), "256MiB";
        /// Sequence numbers of idempotent producers. Beyond seven eighths of it, producers that have
        /// been idle for longest are forgotten; when it is used up, new ones are refused.
        producers: ByteSize = "producers", size(ByteSize::mib(4), TIB), "256MiB";
        /// The newest batches of all partitions, so that consumers at the end read no file.
        tail_cache: ByteSize = "tail_cache", size(ByteSize::mib(4), TIB), "256MiB";
        /// Consumer groups: members, assignments and committed offsets. Beyond it new groups and offsets
        /// are refused with `POLICY_VIOLATION`, new members with `GROUP_MAX_SIZE_REACHED`; what is there may
        /// grow by a quarter more.
        groups: ByteSize = "groups", size(ByteSize::mib(1), TIB), "256MiB";
    }
}

section! {
    /// What clients may ask for, and how long they may take.
    "limits" => LimitsConfig {
        /// How long a request may take to arrive, once it has begun. Waiting for room (`memory.receive`)
        /// does not count.
        request_timeout: Period = "request_timeout", period(100, DAY_MS), "30s";
        /// A peer that takes nothing of an answer for this long is disconnected; so is one that has not taken
        /// all of it after this long and the time of its size at `transfer_rate`.
        answer_timeout: Period = "answer_timeout", period(100, DAY_MS), "60s";
        /// Bytes a second: the least rate at which answers have to be taken and, while others wait for
        /// room, requests of more than 16 KiB to come.
        transfer_rate: ByteSize = "transfer_rate", size(ByteSize(1), TIB), "128KiB";
        /// Most partitions that one request may ask for, over all its topics; more are
        /// `INVALID_PARTITIONS`.
        request_partitions: i32 = "request_partitions", int(1, 1_000_000), "50000";
        /// Most partitions of the broker, internal topics aside; more are `POLICY_VIOLATION`. An idle
        /// partition takes about 2.4 KiB of memory.
        partitions: i32 = "partitions", int(1, I32_MAX), "200000";
        /// How many changes that clients ask for (topics, configurations, deletions) run at a time.
        changes: i32 = "changes", int(1, 10_000), "16";
        /// How many of them may run or wait; more are refused with `THROTTLING_QUOTA_EXCEEDED`, which
        /// clients try again.
        waiting_changes: i32 = "waiting_changes", int(1, 1_000_000), "1024";
    }
}

section! {
    /// Journals, sorted journals and segments.
    "log" => LogConfig {
        /// Size of one journal file. It is allocated at once and recycled.
        journal_size: ByteSize = "journal_size", size(ByteSize::mib(4), ByteSize::mib(4096)), "128MiB";
        /// Closed journals are sorted by partition once they take this much.
        sort_after: ByteSize = "sort_after", size(ByteSize::mib(4), TIB), "1GiB";
        /// Batches that are not sorted yet may take this much of journals. Then produce is delayed for
        /// some seconds, and refused until sorting made room.
        raw_limit: ByteSize = "raw_limit", size(ByteSize::mib(8), TIB), "4GiB";
        /// A partition with this much in sorted journals gets a segment file of its own.
        segment_after: ByteSize = "segment_after", size(ByteSize::mib(1), ByteSize::mib(65_536)), "64MiB";
        /// Largest decompressed size of one batch whose records have to be looked at.
        max_decompressed: ByteSize = "max_decompressed", size(ByteSize::mib(1), ByteSize::mib(2047)), "128MiB";
        /// Space on the disk that journals and segments leave free, so that the metadata can still be
        /// written when the disk is full.
        reserve: ByteSize = "reserve", size(ByteSize(0), TIB), "64MiB";
    }
}

section! {
    /// What the process says about itself.
    "telemetry" => TelemetryConfig {
        /// Which events are logged: a level (`error`, `warn`, `info`, `debug`, `trace`) or a list
        /// as in `info,talos_log=debug`.
        filter: String = "filter", Kind::Text, "info";
        /// Lines for people or JSON objects, on standard error.
        format: String = "format", Kind::Choice(&["text", "json"]), "text";
    }
}

section! {
    /// Kafka's broker configuration, under Kafka's names.
    "kafka" => KafkaConfig {
        /// Partitions of a topic that is created without a number of them.
        num_partitions: i32 = "num.partitions", int(1, 1_000_000), "1";
        /// Replication factor that is reported for topics that are created without one. The store
        /// replicates; the number has no other effect.
        default_replication_factor: i16 = "default.replication.factor", int(1, 32_767), "1";
        /// Whether asking for the metadata of a missing topic may create it.
        auto_create_topics_enable: bool = "auto.create.topics.enable", Kind::Bool, "true";
        /// Whether topics can be deleted.
        delete_topic_enable: bool = "delete.topic.enable", Kind::Bool, "true";
        /// Largest record batch, compressed as it is sent. Topics override it with
        /// `max.message.bytes`.
        message_max_bytes: i32 = "message.max.bytes", bytes(0, I32_MAX), "1048588";
        /// Whose clock stamps records. Topics override it.
        log_message_timestamp_type: String = "log.message.timestamp.type", Kind::Choice(&["CreateTime", "LogAppendTime"]), "CreateTime";
        /// How far a record's time may lie in the past, with `CreateTime`.
        log_message_timestamp_before_max_ms: i64 = "log.message.timestamp.before.max.ms", ms(0, i64::MAX), "9223372036854775807";
        /// How far a record's time may lie in the future, with `CreateTime`.
        log_message_timestamp_after_max_ms: i64 = "log.message.timestamp.after.max.ms", ms(0, i64::MAX), "3600000";
        /// How long records are kept; -1: for ever. Goes before the two in minutes and hours.
        /// Topics override it with `retention.ms`.
        log_retention_ms: Option<i64> = "log.retention.ms", ms(-1, i64::MAX), "";
        /// The same in minutes.
        log_retention_minutes: Option<i64> = "log.retention.minutes", minutes(-1, I32_MAX), "";
        /// The same in hours.
        log_retention_hours: i64 = "log.retention.hours", hours(-1, I32_MAX), "168";
        /// How many bytes of each partition are kept; -1: all. Topics override it with
        /// `retention.bytes`.
        log_retention_bytes: i64 = "log.retention.bytes", bytes(-1, i64::MAX), "-1";
        /// How often retention looks for something to delete.
        log_retention_check_interval_ms: i64 = "log.retention.check.interval.ms", ms(1, i64::MAX), "300000";
        /// What happens to old records. Compaction is not there yet.
        log_cleanup_policy: String = "log.cleanup.policy", Kind::Choice(&["delete"]), "delete";
        /// How long a group's offsets are kept after its last member left.
        offsets_retention_minutes: i32 = "offsets.retention.minutes", minutes(1, I32_MAX), "10080";
        /// How often expired offsets are looked for.
        offsets_retention_check_interval_ms: i64 = "offsets.retention.check.interval.ms", ms(1, i64::MAX), "600000";
        /// Partitions of `__consumer_offsets`. Fixed once the topic exists.
        offsets_topic_num_partitions: i32 = "offsets.topic.num.partitions", int(1, 10_000), "50";
        /// Longest text that a client may store with a committed offset.
        offset_metadata_max_bytes: i32 = "offset.metadata.max.bytes", bytes(0, I32_MAX), "4096";
        /// Shortest session timeout that a member may ask for.
        group_min_session_timeout_ms: i32 = "group.min.session.timeout.ms", ms(1, I32_MAX), "6000";
        /// Longest session timeout that a member may ask for.
        group_max_session_timeout_ms: i32 = "group.max.session.timeout.ms", ms(1, I32_MAX), "1800000";
        /// How long an empty group waits for more members before its first rebalance ends.
        group_initial_rebalance_delay_ms: i32 = "group.initial.rebalance.delay.ms", ms(0, I32_MAX), "3000";
        /// Most members of a group.
        group_max_size: i32 = "group.max.size", int(1, I32_MAX), "2147483647";
        /// How long a commit, or another write of a group, is waited for. After it the answer is
        /// `REQUEST_TIMED_OUT`, and the write may still be done.
        offsets_commit_timeout_ms: i32 = "offsets.commit.timeout.ms", ms(1, I32_MAX), "5000";
        /// Most bytes of records in the answer to one fetch (a first batch is always whole).
        fetch_max_bytes: i32 = "fetch.max.bytes", bytes(1024, I32_MAX), "57671680";
        /// A connection without a request for this long is closed; -1: never.
        connections_max_idle_ms: i64 = "connections.max.idle.ms", ms(-1, i64::MAX), "600000";
        /// Most open connections. What the process's limit of open files (`ulimit -n`) leaves beside 384
        /// for files is a limit too; the lower one holds.
        max_connections: i32 = "max.connections", int(0, I32_MAX), "2147483647";
        /// Most open connections of one address.
        max_connections_per_ip: i32 = "max.connections.per.ip", int(0, I32_MAX), "2147483647";
        /// Largest request. A longer one costs its sender the connection.
        socket_request_max_bytes: i32 = "socket.request.max.bytes", bytes(1, I32_MAX), "104857600";
        /// How long the sequence numbers of an idle producer are remembered.
        producer_id_expiration_ms: i32 = "producer.id.expiration.ms", ms(1, I32_MAX), "86400000";
    }
}

impl KafkaConfig {
    /// Retention in milliseconds after Kafka's precedence of the three units; -1: for ever.
    pub fn retention_ms(&self) -> i64 {
        let units = |value: i64, factor: i64| {
            if value < 0 { -1 } else { value.saturating_mul(factor) }
        };
        match (self.log_retention_ms, self.log_retention_minutes) {
            (Some(ms), _) => ms,
            (None, Some(minutes)) => units(minutes, 60_000),
            (None, None) => units(self.log_retention_hours, 3_600_000),
        }
    }
}

/// All keys, section by section.
pub fn all() -> impl Iterator<Item = &'static Key> {
    [
        ServerConfig::KEYS,
        MemoryConfig::KEYS,
        LimitsConfig::KEYS,
        LogConfig::KEYS,
        TelemetryConfig::KEYS,
        KafkaConfig::KEYS,
    ]
    .into_iter()
    .flatten()
}

/// Key names (or whole sections) that are not taken, and why: what a user will try that has another
/// name here, comes later, or can have no effect.
pub const REFUSED: &[(&str, &str)] = &[
    ("storage", LATER_STORE),
    ("server.storage", LATER_STORE),
    ("meta", LATER_META),
    ("server.meta", LATER_META),
    ("tls", LATER_SECURITY),
    ("sasl", LATER_SECURITY),
    ("kafka.broker.id", "is set by node_id in [server]"),
    ("kafka.node.id", "is set by node_id in [server]"),
    ("kafka.listeners", "is set by listen in [server]"),
    ("kafka.advertised.listeners", "is set by advertised in [server]"),
    ("kafka.log.dir", "is set by data_dir in [server]"),
    ("kafka.log.dirs", "is set by data_dir in [server]"),
    ("kafka.queued.max.request.bytes", "is set by receive in [memory]"),
    (
        "kafka.queued.max.requests",
        "has no meaning here: requests are bounded by receive in [memory]",
    ),
    ("kafka.min.insync.replicas", DURABLE),
    ("kafka.log.flush.interval.messages", DURABLE),
    ("kafka.log.flush.interval.ms", DURABLE),
    ("kafka.offsets.topic.replication.factor", REPLICATED),
    ("kafka.transaction.state.log.replication.factor", REPLICATED),
    ("kafka.transaction.state.log.min.isr", REPLICATED),
    ("kafka.zookeeper.connect", LATER_META),
    ("kafka.compression.type", LATER_CODEC),
    ("kafka.log.segment.bytes", "has no meaning here: see log.segment_after in [log]; remove it"),
    ("kafka.process.roles", "has no meaning here: every broker does all work; remove it"),
    ("kafka.num.network.threads", THREADS),
    ("kafka.num.io.threads", THREADS),
];

const LATER_STORE: &str =
    "is reserved: this version stores on the local disk (data_dir in [server]); remove it";
const LATER_META: &str =
    "is reserved: this version keeps its metadata embedded in data_dir; remove it";
const LATER_SECURITY: &str = "is reserved: this version has no TLS or SASL; remove it";
const LATER_CODEC: &str =
    "is reserved: this version stores batches as their producer compressed them; remove it";
const DURABLE: &str =
    "has no meaning here: every acknowledged record is on stable storage; remove it";
const REPLICATED: &str = "has no meaning here: the store replicates; remove it";
const THREADS: &str = "has no meaning here: threads follow the processors; remove it";
