//! A broker on memory storage and memory metadata, and a small client over an in-memory pipe.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, shared by files that each use a part"
)]

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use prometheus_client::registry::Registry;
use talos_broker::{Broker, BrokerConfig, Error};
use talos_common::Env;
use talos_meta::{MemoryMeta, Meta};
use talos_protocol::frame::{self, RequestHeader};
use talos_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use talos_protocol::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use talos_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use talos_protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, TopicProduceData,
};
use talos_protocol::messages::*;
use talos_protocol::records::{BatchBuilder, Limits, NewRecord, decode_records};
use talos_protocol::{Decoder, Records, Str};
use talos_storage::{MemoryOptions, MemoryStorage, Storage};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

/// Wall time at which each test starts, in milliseconds.
pub const START_MS: i64 = 1_700_000_000_000;

/// What outlives a broker.
pub struct World {
    pub env: Env,
    pub storage: MemoryStorage,
    pub tree: MemoryMeta,
    pub config: BrokerConfig,
}

impl World {
    pub fn new() -> Self {
        Self::with(BrokerConfig::default())
    }

    pub fn with(config: BrokerConfig) -> Self {
        let env = Env::simulated(7, START_MS);
        let options = MemoryOptions { file_bytes: 16 << 20, ..MemoryOptions::default() };
        let storage = MemoryStorage::new(&env, options);
        let tree = MemoryMeta::new(&env);
        Self { env, storage, tree, config }
    }

    /// The surroundings of one process: same time and chance, tasks of its own.
    fn process(&self) -> Env {
        Env { tasks: talos_common::Tasks::new(), ..self.env.clone() }
    }

    pub async fn try_start(&self) -> Result<Started, Error> {
        let env = self.process();
        let storage: Arc<dyn Storage> = Arc::new(self.storage.handle_for_new_process());
        let meta = Meta::new(Arc::new(self.tree.handle()), env.clone());
        let mut registry = Registry::default();
        let config = self.config.clone();
        let broker = Broker::start(config, env.clone(), storage, meta, &mut registry).await?;
        Ok(Started { broker, env })
    }

    pub async fn start(&self) -> Started {
        self.try_start().await.unwrap()
    }
}

/// One running broker process.
pub struct Started {
    pub broker: Broker,
    pub env: Env,
}

impl Started {
    pub fn connect(&self) -> Client {
        Client { io: self.pipe(), next: 0, client_id: Some("test".into()) }
    }

    pub fn pipe(&self) -> DuplexStream {
        let (ours, theirs) = tokio::io::duplex(64 << 10);
        self.broker.serve_connection(theirs, "127.0.0.1:5555".into());
        ours
    }

    pub async fn stop(self) {
        self.broker.stop().await.unwrap();
        self.env.tasks.stop();
        self.env.tasks.join().await;
    }

    /// What `kill -9` does.
    pub fn kill(self) {
        self.env.tasks.abort();
    }
}

/// A client that speaks any version.
pub struct Client {
    pub io: DuplexStream,
    next: i32,
    pub client_id: Option<Str>,
}

impl Client {
    /// Sends a request and gives its correlation id.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> i32 {
        let correlation_id = self.next;
        self.next += 1;
        let client_id = self.client_id.clone();
        let header = RequestHeader { key: R::KEY.code(), version, correlation_id, client_id };
        let chain = frame::encode_request(&header, request).unwrap();
        self.io.write_all(&chain.to_bytes()).await.unwrap();
        correlation_id
    }

    /// The next frame, whatever it answers; `None` at the end of the connection.
    pub async fn frame(&mut self) -> Option<Bytes> {
        let mut length = [0; 4];
        self.io.read_exact(&mut length).await.ok()?;
        let length = usize::try_from(i32::from_be_bytes(length)).unwrap();
        let mut body = BytesMut::zeroed(length);
        self.io.read_exact(&mut body).await.ok()?;
        Some(body.freeze())
    }

    /// The next answer, which must be that of `correlation_id`.
    pub async fn receive<M: Response>(&mut self, version: i16, correlation_id: i32) -> M {
        let body = self.frame().await.expect("the connection was closed");
        let mut decoder = Decoder::new(body);
        let id = frame::decode_response_header(&mut decoder, M::KEY, version).unwrap();
        assert_eq!(id, correlation_id, "answers leave in request order");
        frame::decode_rest(decoder, version).unwrap()
    }

    pub async fn call<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        let id = self.send(version, request).await;
        self.receive(version, id).await
    }

    pub async fn create_topic(&mut self, name: &str, partitions: i32) -> i16 {
        self.create_topic_with(name, partitions, &[]).await
    }

    pub async fn create_topic_with(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> i16 {
        let config = |(name, value): &(&str, &str)| CreatableTopicConfig {
            name: text(name),
            value: Some(text(value)),
        };
        let topic = CreatableTopic {
            name: text(name),
            num_partitions: partitions,
            replication_factor: -1,
            configs: configs.iter().map(config).collect(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        self.call(7, &request).await.topics[0].error_code
    }

    pub async fn produce(
        &mut self,
        topic: &str,
        partition: i32,
        batch: Bytes,
    ) -> PartitionProduceResponse {
        let request = produce_request(topic, -1, vec![(partition, batch)]);
        let mut response = self.call(9, &request).await;
        response.responses.remove(0).partition_responses.remove(0)
    }

    /// One partition from `offset`, without waiting.
    pub async fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> PartitionData {
        let request = fetch_request(topic, partition, offset, 0);
        let mut response = self.call(12, &request).await;
        assert_eq!(response.error_code, 0);
        response.responses.remove(0).partitions.remove(0)
    }

    /// Offset and timestamp.
    pub async fn list_offset(&mut self, topic: &str, partition: i32, timestamp: i64) -> (i64, i64) {
        let asked =
            ListOffsetsPartition { partition_index: partition, timestamp, ..Default::default() };
        let topics = vec![ListOffsetsTopic { name: text(topic), partitions: vec![asked] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        let response = self.call(10, &request).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!(found.error_code, 0);
        (found.offset, found.timestamp)
    }
}

pub fn text(text: &str) -> Str {
    Str::from(text.to_owned())
}

pub fn produce_request(topic: &str, acks: i16, parts: Vec<(i32, Bytes)>) -> ProduceRequest {
    let part = |(index, batch)| PartitionProduceData { index, records: Some(Records::from(batch)) };
    let partition_data = parts.into_iter().map(part).collect();
    let topic = TopicProduceData { name: text(topic), partition_data, ..Default::default() };
    ProduceRequest { acks, timeout_ms: 30_000, topic_data: vec![topic], ..Default::default() }
}

pub fn fetch_request(topic: &str, partition: i32, offset: i64, max_wait_ms: i32) -> FetchRequest {
    let asked = FetchPartition {
        partition,
        fetch_offset: offset,
        partition_max_bytes: 1 << 20,
        ..Default::default()
    };
    let topics =
        vec![FetchTopic { topic: text(topic), partitions: vec![asked], ..Default::default() }];
    let max_bytes = 50 << 20;
    FetchRequest { max_wait_ms, min_bytes: 1, max_bytes, topics, ..Default::default() }
}

/// A batch of these values, stamped with the start time.
pub fn batch(values: &[&str]) -> Bytes {
    builder(values).build().unwrap()
}

pub fn builder(values: &[&str]) -> BatchBuilder {
    let mut builder = BatchBuilder::new();
    for value in values {
        builder.push(&NewRecord::value(START_MS, value.to_string()));
    }
    builder
}

/// A batch of producer `id` from `sequence` on.
pub fn idempotent(id: i64, sequence: i32, values: &[&str]) -> Bytes {
    builder(values).producer(id, 0, sequence).build().unwrap()
}

/// Offset and value of every record.
pub fn values(data: &PartitionData) -> Vec<(i64, String)> {
    let bytes = data.records.as_ref().expect("records are never null").to_bytes();
    let mut out = Vec::new();
    for parsed in talos_protocol::batch::Batches::new(bytes) {
        let parsed = parsed.unwrap();
        parsed.verify_crc().unwrap();
        let records = decode_records(&parsed, &Limits::default()).unwrap();
        for record in records {
            let record = record.unwrap();
            let offset = parsed.header.base_offset + i64::from(record.offset_delta);
            out.push((offset, String::from_utf8(record.value.unwrap().to_vec()).unwrap()));
        }
    }
    out
}

pub async fn sleep_ms(env: &Env, ms: u64) {
    env.clock.sleep(Duration::from_millis(ms)).await;
}
