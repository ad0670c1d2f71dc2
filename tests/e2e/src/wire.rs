//! A small blocking Kafka client: one connection, one request at a time or several in flight, and
//! every error code as it came. For suites that want to see exactly what a broker answers, where a
//! client library would try again.
//!
//! Invariants: every wait has a limit; an answer that is not the next one expected is an error.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bytes::Bytes;
use talos_protocol::batch::Batches;
use talos_protocol::frame::{self, RequestHeader};
use talos_protocol::messages::{
    create_topics, delete_topics, fetch, find_coordinator, metadata, offset_commit, produce,
};
use talos_protocol::records::{BatchBuilder, Limits, NewRecord, decode_records};
use talos_protocol::{Decoder, Records, Request, Str};

/// The largest answer that is read.
const ANSWER_LIMIT: usize = 64 << 20;
/// `KAFKA_STORAGE_ERROR`.
pub const STORAGE_ERROR: i16 = 56;
/// `REQUEST_TIMED_OUT`.
pub const TIMED_OUT: i16 = 7;

/// One connection.
#[derive(Debug)]
pub struct Wire {
    stream: TcpStream,
    sent: i32,
    answered: i32,
    /// How long the broker may keep a batch before its outcome is unknown.
    pub timeout_ms: i32,
}

/// What a partition answered to a produce request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Produced {
    /// Kafka's error number; 0: acknowledged.
    pub code: i16,
    /// The first offset.
    pub base_offset: i64,
    /// What the broker says about the error.
    pub message: String,
}

/// What a partition answered to a fetch request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Kafka's error number.
    pub code: i16,
    /// The high watermark.
    pub high: i64,
    /// Values by offset.
    pub records: Vec<(i64, Bytes)>,
}

impl Wire {
    /// Connects to a port of 127.0.0.1; no read or write takes longer than `limit`.
    ///
    /// # Errors
    /// When nobody listens there.
    pub fn connect(port: u16, limit: Duration) -> Result<Self> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        let stream = TcpStream::connect_timeout(&address, limit)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, sent: 0, answered: 0, timeout_ms: 60_000 })
    }

    /// Sends a request without waiting for its answer.
    ///
    /// # Errors
    /// When it cannot be written in time, or the connection is gone.
    pub fn send<R: Request>(&mut self, request: &R, version: i16) -> Result<()> {
        let client_id = Some(Str::from_static("talos-e2e"));
        let key = R::KEY.code();
        let header = RequestHeader { key, version, correlation_id: self.sent, client_id };
        let chain = frame::encode_request(&header, request)?;
        for part in chain.0 {
            self.stream.write_all(&part)?;
        }
        self.sent += 1;
        Ok(())
    }

    /// Waits for the next answer, which must be one to an `R` in `version`.
    ///
    /// # Errors
    /// When it does not come in time, or is none.
    pub fn answer<R: Request>(&mut self, version: i16) -> Result<R::Response> {
        let mut head = [0; 4];
        self.stream.read_exact(&mut head)?;
        let length = frame::check_frame_length(i32::from_be_bytes(head), ANSWER_LIMIT)?;
        let mut bytes = vec![0; length];
        self.stream.read_exact(&mut bytes)?;
        let mut decoder = Decoder::new(Bytes::from(bytes));
        let id = frame::decode_response_header(&mut decoder, R::KEY, version)?;
        ensure!(id == self.answered, "answer {id} came in place of {}", self.answered);
        self.answered += 1;
        Ok(frame::decode_rest::<R::Response>(decoder, version)?)
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As its two parts.
    pub fn call<R: Request>(&mut self, request: &R, version: i16) -> Result<R::Response> {
        self.send(request, version)?;
        self.answer::<R>(version)
    }

    /// Creates a topic; gives the error number and message.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn create_topic(&mut self, name: &str, partitions: i32) -> Result<(i16, String)> {
        let topic = create_topics::CreatableTopic {
            name: name.to_owned().into(),
            num_partitions: partitions,
            replication_factor: 1,
            ..Default::default()
        };
        let request = create_topics::CreateTopicsRequest {
            topics: vec![topic],
            timeout_ms: 30_000,
            ..Default::default()
        };
        let answer = self.call(&request, 5)?;
        let topic = answer.topics.first().context("no topic in the answer")?;
        Ok((topic.error_code, text(topic.error_message.as_ref())))
    }

    /// Deletes a topic; gives the error number and message.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn delete_topic(&mut self, name: &str) -> Result<(i16, String)> {
        let request = delete_topics::DeleteTopicsRequest {
            topic_names: vec![name.to_owned().into()],
            timeout_ms: 30_000,
            ..Default::default()
        };
        let answer = self.call(&request, 5)?;
        let topic = answer.responses.first().context("no topic in the answer")?;
        Ok((topic.error_code, text(topic.error_message.as_ref())))
    }

    /// How many brokers Metadata names, as a sign of life.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn metadata(&mut self) -> Result<usize> {
        let request = metadata::MetadataRequest::default();
        Ok(self.call(&request, 9)?.brokers.len())
    }

    /// Commits an offset of a group without members; gives the error number.
    ///
    /// # Errors
    /// When there is no answer.
    pub fn commit(&mut self, group: &str, topic: &str, offset: i64) -> Result<i16> {
        let find = find_coordinator::FindCoordinatorRequest {
            key: group.to_owned().into(),
            ..Default::default()
        };
        let found = self.call(&find, 2)?.error_code;
        if found != 0 {
            return Ok(found);
        }
        let partition = offset_commit::OffsetCommitRequestPartition {
            committed_offset: offset,
            ..Default::default()
        };
        let topic = offset_commit::OffsetCommitRequestTopic {
            name: topic.to_owned().into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = offset_commit::OffsetCommitRequest {
            group_id: group.to_owned().into(),
            topics: vec![topic],
            ..Default::default()
        };
        let answer = self.call(&request, 7)?;
        let topic = answer.topics.first().context("no topic in the answer")?;
        Ok(topic.partitions.first().context("no partition in the answer")?.error_code)
    }

    /// Sends one batch with `acks=all`, without waiting.
    ///
    /// # Errors
    /// When it cannot be written in time, or the connection is gone.
    pub fn send_batch<'a>(
        &mut self,
        topic: &str,
        partition: i32,
        values: impl Iterator<Item = &'a [u8]>,
    ) -> Result<()> {
        let mut batch = BatchBuilder::new();
        values.for_each(|value| batch.push(&NewRecord::value(1_000, value.to_vec())));
        let mut records = Records::new();
        records.push(batch.build()?);
        let records = Some(records);
        let partition = produce::PartitionProduceData { index: partition, records };
        let topic = produce::TopicProduceData {
            name: topic.to_owned().into(),
            partition_data: vec![partition],
            ..Default::default()
        };
        let request = produce::ProduceRequest {
            acks: -1,
            timeout_ms: self.timeout_ms,
            topic_data: vec![topic],
            ..Default::default()
        };
        self.send(&request, 9)
    }

    /// Waits for the answer to the next batch that was sent.
    ///
    /// # Errors
    /// When it does not come in time, or the connection is gone: the outcome is unknown then.
    pub fn batch_answer(&mut self) -> Result<Produced> {
        let answer = self.answer::<produce::ProduceRequest>(9)?;
        let topic = answer.responses.first().context("no topic in the answer")?;
        let it = topic.partition_responses.first().context("no partition in the answer")?;
        let message = text(it.error_message.as_ref());
        Ok(Produced { code: it.error_code, base_offset: it.base_offset, message })
    }

    /// Reads from `offset` on, as much as one answer holds, without waiting for more.
    ///
    /// # Errors
    /// When there is no answer, or its records cannot be read.
    pub fn fetch(&mut self, topic: &str, partition: i32, offset: i64) -> Result<Fetched> {
        let partition = fetch::FetchPartition {
            partition,
            fetch_offset: offset,
            partition_max_bytes: 4 << 20,
            ..Default::default()
        };
        let topic = fetch::FetchTopic {
            topic: topic.to_owned().into(),
            partitions: vec![partition],
            ..Default::default()
        };
        let request = fetch::FetchRequest {
            max_wait_ms: 0,
            min_bytes: 0,
            max_bytes: 8 << 20,
            topics: vec![topic],
            ..Default::default()
        };
        let answer = self.call(&request, 11)?;
        let topic = answer.responses.first().context("no topic in the answer")?;
        let it = topic.partitions.first().context("no partition in the answer")?;
        let mut records = Vec::new();
        let bytes = it.records.as_ref().map(Records::to_bytes).unwrap_or_default();
        for batch in Batches::new(bytes) {
            let batch = batch?;
            batch.verify_crc()?;
            for record in decode_records(&batch, &Limits::default())? {
                let record = record?;
                let at = batch.offset_of(&record);
                if at >= offset {
                    records.push((at, record.value.unwrap_or_default()));
                }
            }
        }
        Ok(Fetched { code: it.error_code, high: it.high_watermark, records })
    }
}

fn text(message: Option<&Str>) -> String {
    message.map(|message| message.as_str().to_owned()).unwrap_or_default()
}
