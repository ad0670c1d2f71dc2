//! What a broker can be told. A plain structure: the binary fills it from its own typed and checked
//! configuration, tests from [`Default`]. Fields that bear a Kafka name have Kafka's meaning and
//! default; sizes are bytes, times are durations or milliseconds as the name says.

use std::time::Duration;

use talos_common::BrokerId;
use talos_log::LogOptions;
use talos_protocol::batch::TimestampType;

/// Configuration of one broker.
#[derive(Clone, Debug)]
pub struct BrokerConfig {
    /// The broker's id in the cluster (`node.id`). Not negative.
    pub node_id: BrokerId,
    /// Host that clients are told to connect to.
    pub advertised_host: String,
    /// Port that clients are told to connect to.
    pub advertised_port: u16,
    /// `broker.rack`, told to clients as it is.
    pub rack: Option<String>,

    /// `num.partitions`: of a topic that is created without a number. At least 1.
    pub num_partitions: i32,
    /// `default.replication.factor`: reported for topics created without one; no other effect.
    pub default_replication_factor: i16,
    /// `auto.create.topics.enable`.
    pub auto_create_topics_enable: bool,
    /// `delete.topic.enable`.
    pub delete_topic_enable: bool,
    /// `message.max.bytes`: largest record batch, as sent.
    pub message_max_bytes: i32,
    /// `log.message.timestamp.type`.
    pub log_message_timestamp_type: TimestampType,
    /// `log.message.timestamp.before.max.ms`.
    pub log_message_timestamp_before_max_ms: i64,
    /// `log.message.timestamp.after.max.ms`.
    pub log_message_timestamp_after_max_ms: i64,
    /// `log.retention.ms` (with minutes and hours folded in); -1: for ever.
    pub log_retention_ms: i64,
    /// `log.retention.bytes`; -1: all.
    pub log_retention_bytes: i64,
    /// `log.retention.check.interval.ms`.
    pub log_retention_check_interval: Duration,
    /// `fetch.max.bytes`: most bytes of records in one answer (a first batch is always whole).
    pub fetch_max_bytes: i32,
    /// `socket.request.max.bytes`: largest request frame.
    pub socket_request_max_bytes: usize,
    /// `connections.max.idle.ms`; `None`: never.
    pub connections_max_idle: Option<Duration>,
    /// `max.connections`. The binary lowers it to what the limit of open files allows.
    pub max_connections: usize,
    /// `max.connections.per.ip`.
    pub max_connections_per_ip: usize,
    /// `producer.id.expiration.ms`: how long an idle producer's sequence numbers are remembered.
    pub producer_id_expiration_ms: i64,
    /// `offsets.topic.num.partitions`.
    pub offsets_topic_num_partitions: i32,
    /// `offsets.retention.minutes`, in milliseconds.
    pub offsets_retention_ms: i64,
    /// `offsets.retention.check.interval.ms`.
    pub offsets_retention_check_interval_ms: u64,
    /// `offset.metadata.max.bytes`.
    pub offset_metadata_max_bytes: usize,
    /// `group.min.session.timeout.ms`.
    pub group_min_session_timeout_ms: i32,
    /// `group.max.session.timeout.ms`.
    pub group_max_session_timeout_ms: i32,
    /// `group.initial.rebalance.delay.ms`.
    pub group_initial_rebalance_delay_ms: u64,
    /// `group.max.size`.
    pub group_max_size: usize,
    /// `offsets.commit.timeout.ms`: how long a write of a group is waited for.
    pub offsets_commit_timeout: Duration,
    /// Memory of all groups: members, committed offsets. Beyond it new ones are refused.
    pub group_bytes: usize,
    /// Bytes that a partition of `__consumer_offsets` takes before a snapshot lets them go (E-G2).
    pub group_snapshot_bytes: u64,
    /// Most partitions that one request may ask for.
    pub max_request_partitions: i32,
    /// Most partitions of this broker, those of internal topics aside.
    pub max_partitions: usize,
    /// Changes that clients asked for (topics, configurations, log starts) that run at a time.
    pub changes: usize,
    /// Changes that run or wait; more are refused.
    pub waiting_changes: usize,

    /// Bytes of requests that were received, in part or whole, and are not yet accepted, over all
    /// connections. At the limit sockets are not read any further, but for one request at a time.
    pub receive_bytes: usize,
    /// Bytes of records read for answers that are not yet sent, over all connections.
    pub answer_bytes: usize,
    /// Largest decompressed size of one batch whose records must be looked at.
    pub max_decompressed_bytes: usize,
    /// A frame that is not complete after this long costs its sender the connection.
    pub frame_timeout: Duration,
    /// A peer that takes no byte of an answer for this long loses its connection; so does one that has
    /// not taken all of it after this long and its size by `transfer_bytes_per_second`.
    pub send_stall_timeout: Duration,
    /// The least rate at which answers have to be taken and, while others wait for room, large requests
    /// to come.
    pub transfer_bytes_per_second: usize,
    /// Most requests of one connection that were accepted and not yet answered.
    pub requests_in_flight: usize,
    /// Most time that each step of a clean stop may take.
    pub stop_step_timeout: Duration,
    /// The log's options.
    pub log: LogOptions,
}

impl Default for BrokerConfig {
    fn default() -> Self {
        Self {
            node_id: BrokerId(0),
            advertised_host: "127.0.0.1".into(),
            advertised_port: 9092,
            rack: None,
            num_partitions: 1,
            default_replication_factor: 1,
            auto_create_topics_enable: true,
            delete_topic_enable: true,
            message_max_bytes: 1_048_588,
            log_message_timestamp_type: TimestampType::CreateTime,
            log_message_timestamp_before_max_ms: i64::MAX,
            log_message_timestamp_after_max_ms: 3_600_000,
            log_retention_ms: 604_800_000,
            log_retention_bytes: -1,
            log_retention_check_interval: Duration::from_secs(300),
            fetch_max_bytes: 57_671_680,
            socket_request_max_bytes: 104_857_600,
            connections_max_idle: Some(Duration::from_secs(600)),
            max_connections: i32::MAX as usize,
            max_connections_per_ip: i32::MAX as usize,
            producer_id_expiration_ms: 86_400_000,
            offsets_topic_num_partitions: 50,
            offsets_retention_ms: 10_080 * 60_000,
            offsets_retention_check_interval_ms: 600_000,
            offset_metadata_max_bytes: 4_096,
            group_min_session_timeout_ms: 6_000,
            group_max_session_timeout_ms: 1_800_000,
            group_initial_rebalance_delay_ms: 3_000,
            group_max_size: i32::MAX as usize,
            offsets_commit_timeout: Duration::from_secs(5),
            group_bytes: 256 << 20,
            group_snapshot_bytes: 64 << 20,
            max_request_partitions: 50_000,
            max_partitions: 200_000,
            changes: 16,
            waiting_changes: 1_024,
            receive_bytes: 128 << 20,
            answer_bytes: 128 << 20,
            max_decompressed_bytes: 128 << 20,
            frame_timeout: Duration::from_secs(30),
            send_stall_timeout: Duration::from_secs(60),
            transfer_bytes_per_second: 128 << 10,
            requests_in_flight: 128,
            stop_step_timeout: Duration::from_secs(10),
            log: LogOptions::default(),
        }
    }
}
