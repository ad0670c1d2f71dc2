//! The coordinators' view of `__consumer_offsets`: its partitions' logs, written like any other.

use std::sync::Arc;

use bytes::Bytes;
use talos_common::{Clock, TopicPartitionId};
use talos_log::root::RootError;
use talos_log::validate::{self, BatchRules};
use talos_log::{AppendError as LogError, PartitionLog, ReadError};
use talos_protocol::batch::{Batches, TimestampType};
use talos_protocol::records::{BatchBuilder, Limits, NewRecord, decode_records};

use crate::broker::Shared;
use crate::config::BrokerConfig;
use crate::groups::{
    AppendError, Config, Coordinator, GroupMemory, GroupRecord, LogChunk, LogRecord, OffsetLog,
    coordinator_partition,
};
use crate::partitions::Slot;
use crate::topics::{OFFSETS_TOPIC, TopicRef};

/// What one read brings, in bytes.
const READ_BYTES: usize = 1 << 20;
/// Requests that wait for an append, of all groups together; more wait outside.
const GROUP_WAITING_BYTES: usize = 16 << 20;
/// Our own batches are small; this only guards against files that are not what was written.
const DECOMPRESSED_BYTES: usize = 64 << 20;

/// One partition of `__consumer_offsets` under one leadership.
struct OffsetsPartition {
    log: Arc<PartitionLog>,
    clock: Clock,
}

/// The configuration of groups.
pub(crate) fn group_config(config: &BrokerConfig) -> Config {
    Config {
        min_session_timeout_ms: config.group_min_session_timeout_ms,
        max_session_timeout_ms: config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms: config.group_initial_rebalance_delay_ms,
        group_max_size: config.group_max_size,
        offsets_retention_ms: config.offsets_retention_ms,
        offset_metadata_max_bytes: config.offset_metadata_max_bytes,
        retention_check_interval_ms: config.offsets_retention_check_interval_ms,
        max_bytes: config.group_bytes,
        memory: Arc::new(GroupMemory::new(config.group_bytes, GROUP_WAITING_BYTES)),
        commit_timeout: config.offsets_commit_timeout,
        snapshot_every_bytes: config.group_snapshot_bytes,
        ..Config::default()
    }
}

impl Shared {
    /// Opens the coordinator of a partition of `__consumer_offsets` that was opened.
    pub(crate) fn open_coordinator(&self, log: &Arc<PartitionLog>) -> Coordinator {
        let (partition, epoch) = (log.id().partition, log.leader_epoch());
        let clock = self.env.clock.clone();
        self.groups.open(partition, epoch, OffsetsPartition { log: Arc::clone(log), clock })
    }

    /// Whether these are partitions of `__consumer_offsets`.
    pub(crate) fn is_offsets_partition(&self, id: TopicPartitionId) -> bool {
        let image = self.topics.image();
        image.by_id(id.topic).is_some_and(|cached| cached.topic.name == OFFSETS_TOPIC)
    }

    /// The coordinator of a group, opened anew if it gave up; `None` when it is not here.
    pub(crate) fn coordinator(&self, group_id: &str) -> Option<Coordinator> {
        let present = self.groups.of_group(group_id)?;
        if !present.is_ended() {
            return Some(present);
        }
        let log = self.offsets_log(group_id)?;
        Some(self.open_coordinator(&log))
    }

    /// The open log that holds a group.
    pub(crate) fn offsets_log(&self, group_id: &str) -> Option<Arc<PartitionLog>> {
        let cached = self.topic(TopicRef::Name(OFFSETS_TOPIC)).ok()?;
        let partition = coordinator_partition(group_id, cached.topic.partitions);
        match self.partitions.get(TopicPartitionId { topic: cached.topic.id, partition })? {
            Slot::Open(log) => log.ended().is_none().then_some(log),
            Slot::Offline(_) => None,
        }
    }

    /// Once all coordinators have loaded: tells them of topics that were deleted before.
    pub(crate) async fn tell_deleted_topics(&self) {
        let coordinators = self.groups.all();
        for coordinator in &coordinators {
            coordinator.loaded().await;
        }
        match self.meta.tombstones().await {
            Ok(tombstones) => {
                for tombstone in tombstones {
                    let name = tombstone.name.as_str().into();
                    for coordinator in &coordinators {
                        coordinator.topic_deleted(&name, tombstone.id);
                    }
                }
            }
            Err(error) => tracing::debug!(%error, "tombstones could not be read"),
        }
    }
}

impl OffsetLog for OffsetsPartition {
    fn start_offset(&self) -> i64 {
        self.log.offsets().log_start
    }

    fn end_offset(&self) -> i64 {
        self.log.offsets().high_watermark
    }

    async fn read(&self, from: i64) -> Result<LogChunk, AppendError> {
        let read = self.log.read(from, READ_BYTES, true).await.map_err(|error| match error {
            ReadError::Ended(_) => AppendError::NotLeader,
            ReadError::Unavailable(_) => AppendError::Unavailable,
            ReadError::OutOfRange { .. } | ReadError::Corrupt { .. } => {
                AppendError::Corrupt(error.to_string())
            }
        })?;
        let mut chunk = LogChunk { records: Vec::new(), next_offset: from };
        for part in read.records {
            decode(part, from, &mut chunk).map_err(AppendError::Corrupt)?;
        }
        Ok(chunk)
    }

    async fn append(&self, records: Vec<GroupRecord>) -> Result<i64, AppendError> {
        let now_ms = self.clock.wall_ms();
        let mut builder = BatchBuilder::new();
        for GroupRecord { key, value } in records {
            let (key, value) = (Some(Bytes::from(key)), value.map(Bytes::from));
            builder.push(&NewRecord { timestamp: now_ms, key, value, headers: Vec::new() });
        }
        let rules = BatchRules {
            max_message_bytes: usize::MAX,
            timestamp_type: TimestampType::CreateTime,
            before_max_ms: i64::MAX,
            after_max_ms: i64::MAX,
            compacted: false,
            max_decompressed_bytes: DECOMPRESSED_BYTES,
        };
        let bytes = builder.build().map_err(|error| AppendError::Corrupt(error.to_string()))?;
        let batch = validate::validate(&bytes, &rules, now_ms)
            .map_err(|error| AppendError::Corrupt(error.to_string()))?;
        let refused = |error: LogError| match error {
            LogError::Ended(_) => AppendError::NotLeader,
            LogError::Stalled(_) | LogError::TooLarge { .. } => AppendError::Unavailable,
            LogError::StaleProducerEpoch { .. } | LogError::OutOfOrderSequence { .. } => {
                AppendError::Corrupt(error.to_string())
            }
        };
        let lease = self.log.admit(batch.bytes.len()).await.map_err(refused)?;
        let appended = self.log.append(&batch, Some(lease)).map_err(refused)?;
        let base_offset = appended.base_offset;
        appended.durable.await.map(|()| base_offset).map_err(|_| AppendError::Uncertain)
    }

    async fn trim(&self, offset: i64) -> Result<(), AppendError> {
        let moved = self.log.advance_log_start(offset).await;
        moved.map(drop).map_err(|error| match error {
            RootError::Fenced => AppendError::NotLeader,
            RootError::Unavailable(_) => AppendError::Unavailable,
            RootError::Uncertain(_) => AppendError::Uncertain,
            RootError::Corrupt(_) | RootError::OutOfRange { .. } => {
                AppendError::Corrupt(error.to_string())
            }
        })
    }
}

/// Adds the records of these batches that are not below `from`.
fn decode(bytes: Bytes, from: i64, chunk: &mut LogChunk) -> Result<(), String> {
    let limits = Limits { max_decompressed_bytes: DECOMPRESSED_BYTES };
    for batch in Batches::new(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        for record in decode_records(&batch, &limits).map_err(|error| error.to_string())? {
            let record = record.map_err(|error| error.to_string())?;
            let offset = batch.header.base_offset + i64::from(record.offset_delta);
            if offset >= from {
                let key = record.key.map(|key| key.to_vec());
                let value = record.value.map(|value| value.to_vec());
                chunk.records.push(LogRecord { offset, key, value });
            }
        }
        chunk.next_offset = batch.header.end_offset();
    }
    Ok(())
}

/// How many partitions groups are spread over: fixed once the topic exists.
pub(crate) fn offsets_partitions(image: &talos_meta::TopicsImage, config: &BrokerConfig) -> i32 {
    let cached = image.live(OFFSETS_TOPIC);
    cached.map_or(config.offsets_topic_num_partitions, |cached| cached.topic.partitions)
}
