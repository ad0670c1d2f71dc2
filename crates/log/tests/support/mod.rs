//! A tiny cluster of one broker for tests of the log: a store, the metadata that a claim would give,
//! and a model of what clients were told.
#![allow(
    dead_code,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "each test file uses its part"
)]

pub mod journal;

use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use talos_common::{BrokerDir, BrokerEpoch, BrokerId, Env, LeaderEpoch, TopicId, TopicPartitionId};
use talos_log::format::LanePosition;
use talos_log::root::{RootError, RootHandle};
use talos_log::validate::{BatchRules, ValidBatch, validate};
use talos_log::{BrokerLog, LaneEnd, LogMetrics, LogOptions, OpenError, OpenRequest, PartitionLog};
use talos_protocol::batch::{Batches, TimestampType};
use talos_protocol::records::{BatchBuilder, Limits, NewRecord, decode_records};
use talos_storage::Storage;

pub const CLUSTER: [u8; 16] = *b"a test's cluster";

pub fn partition(n: u8) -> TopicPartitionId {
    TopicPartitionId { topic: TopicId([n; 16]), partition: i32::from(n) }
}

/// A root in memory, and how many of its next swaps fail unapplied.
#[derive(Debug, Default)]
pub struct TestRoot(pub Mutex<Option<Bytes>>, pub Mutex<u32>);

impl TestRoot {
    /// The next swap fails, unapplied.
    pub fn fail_next(&self) {
        *self.1.lock().unwrap() += 1;
    }

    /// No swap fails any more.
    pub fn heal(&self) {
        *self.1.lock().unwrap() = 0;
    }
}

impl RootHandle for TestRoot {
    fn swap(
        &self,
        value: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<(), RootError>> + Send + '_>> {
        let mut failing = self.1.lock().unwrap();
        if *failing > 0 {
            *failing -= 1;
            let error = RootError::Unavailable("planned".into());
            return Box::pin(std::future::ready(Err(error)));
        }
        *self.0.lock().unwrap() = Some(value);
        Box::pin(std::future::ready(Ok(())))
    }

    fn read(&self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, RootError>> + Send + '_>> {
        Box::pin(std::future::ready(Ok(self.0.lock().unwrap().clone())))
    }
}

/// What the metadata would hold of one partition.
#[derive(Debug, Default)]
pub struct Record {
    pub leader: Option<(BrokerDir, LeaderEpoch)>,
    pub inherits: Vec<(BrokerDir, LeaderEpoch)>,
    pub root: Arc<TestRoot>,
}

/// The metadata of one broker.
#[derive(Debug, Default)]
pub struct World {
    pub epoch: u64,
    pub records: BTreeMap<TopicPartitionId, Record>,
    pub clean_ends: BTreeMap<BrokerDir, LanePosition>,
}

/// A started broker epoch.
pub struct Running {
    pub log: BrokerLog,
    pub partitions: BTreeMap<TopicPartitionId, Arc<PartitionLog>>,
    pub failed: BTreeMap<TopicPartitionId, OpenError>,
    pub metrics: LogMetrics,
}

impl World {
    pub fn with_partitions(count: u8) -> Self {
        let records = (0..count).map(|n| (partition(n), Record::default())).collect();
        Self { records, ..Self::default() }
    }

    /// A new broker epoch that claims and opens everything.
    pub async fn start(
        &mut self,
        env: &Env,
        storage: Arc<dyn Storage>,
        options: LogOptions,
    ) -> Running {
        let metrics = LogMetrics::default();
        let log = loop {
            self.epoch += 1;
            let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(self.epoch) };
            let storage = Arc::clone(&storage);
            let created =
                BrokerLog::create(env.clone(), storage, CLUSTER, dir, options, metrics.clone());
            match created.await {
                Ok(log) => break log,
                // Unknown outcome: take another epoch.
                Err(error) => assert!(self.epoch < 10_000, "{error}"),
            }
        };
        let mut requests = Vec::new();
        for (id, record) in &mut self.records {
            let leader_epoch = match record.leader.take() {
                Some((dir, epoch)) => {
                    record.inherits.push((dir, epoch));
                    LeaderEpoch(epoch.0 + 1)
                }
                None => LeaderEpoch(0),
            };
            record.leader = Some((log.dir(), leader_epoch));
            requests.push(OpenRequest {
                id: *id,
                leader_epoch,
                inherits: record.inherits.clone(),
                root: record.root.0.lock().unwrap().clone(),
                root_handle: Arc::clone(&record.root) as Arc<dyn RootHandle>,
            });
        }
        let mut running =
            Running { log, partitions: BTreeMap::new(), failed: BTreeMap::new(), metrics };
        for (id, outcome) in running.log.open(requests, &self.clean_ends).await {
            match outcome {
                Ok(opened) => {
                    if let Some(record) = self.records.get_mut(&id) {
                        record.inherits.retain(|pair| !opened.unneeded.contains(pair));
                    }
                    running.partitions.insert(id, opened.log);
                }
                Err(error) => {
                    running.failed.insert(id, error);
                }
            }
        }
        running
    }

    /// Lets go what partitions say they no longer need, and deletes directories that nothing names.
    pub async fn tidy(&mut self, env: &Env, running: &Running, storage: &dyn Storage) -> usize {
        while let Some(unneeded) =
            env.clock.timeout(std::time::Duration::ZERO, running.log.unneeded()).await
        {
            for (id, pairs) in unneeded {
                if let Some(record) = self.records.get_mut(&id) {
                    record.inherits.retain(|pair| !pairs.contains(pair));
                }
            }
        }
        let mut deleted = 0;
        for epoch in 1..self.epoch {
            let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(epoch) };
            let named = self.records.values().any(|record| {
                record.leader.iter().chain(&record.inherits).any(|(of, _)| *of == dir)
            });
            if !named && storage.delete_dir(dir).await.is_ok() {
                deleted += 1;
            }
        }
        deleted
    }

    /// A clean stop.
    pub async fn stop(&mut self, running: Running) -> LaneEnd {
        let end = running.log.stop().await;
        if let LaneEnd::Stopped(position) = &end {
            self.clean_ends.insert(running.log.dir(), *position);
        }
        end
    }
}

pub const RULES: BatchRules = BatchRules {
    max_message_bytes: 1 << 20,
    timestamp_type: TimestampType::CreateTime,
    before_max_ms: i64::MAX,
    after_max_ms: i64::MAX,
    compacted: false,
    max_decompressed_bytes: 16 << 20,
};

/// A valid batch of records with these values and times.
pub fn batch(values: &[&str], time: i64) -> ValidBatch {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(&NewRecord::value(time, Bytes::copy_from_slice(value.as_bytes())));
    }
    validate(&builder.build().unwrap(), &RULES, 0).unwrap()
}

/// The same from an idempotent producer.
pub fn stamped(values: &[&str], producer: i64, epoch: i16, sequence: i32) -> ValidBatch {
    let mut builder = BatchBuilder::new().producer(producer, epoch, sequence);
    for value in values {
        builder.push(&NewRecord::value(0, Bytes::copy_from_slice(value.as_bytes())));
    }
    validate(&builder.build().unwrap(), &RULES, 0).unwrap()
}

/// Appends and waits for durability; gives the base offset.
pub async fn produce(log: &Arc<PartitionLog>, batch: &ValidBatch) -> i64 {
    let lease = log.admit(batch.bytes.len()).await.unwrap();
    let appended = log.append(batch, Some(lease)).unwrap();
    appended.durable.await.unwrap();
    appended.base_offset
}

/// All visible records from `offset` on, as (offset, value), read in pieces of `max_bytes`.
pub async fn read_all(
    log: &PartitionLog,
    mut offset: i64,
    max_bytes: usize,
) -> Result<Vec<(i64, String)>, talos_log::ReadError> {
    let mut records = Vec::new();
    loop {
        let out = log.read(offset, max_bytes, true).await?;
        if out.records.is_empty() {
            return Ok(records);
        }
        for batch in Batches::new(out.to_bytes()) {
            let batch = batch.unwrap();
            batch.verify_crc().unwrap();
            for record in decode_records(&batch, &Limits::default()).unwrap() {
                let record = record.unwrap();
                let at = batch.offset_of(&record);
                if at >= offset {
                    let value = record.value.unwrap_or_default();
                    records.push((at, String::from_utf8(value.to_vec()).unwrap()));
                }
            }
            offset = batch.header.last_offset() + 1;
        }
    }
}
