//! A middleman that reads whole requests, and changes some: one request at a time.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{BufMut, Bytes, BytesMut};
use talos_common::{Env, Rng};
use talos_protocol::batch::{BatchHeader, crc32c};
use talos_protocol::frame::{self, RequestHeader};
use talos_protocol::messages::produce::{PartitionProduceResponse, TopicProduceResponse};
use talos_protocol::messages::{FetchRequest, FetchResponse, ProduceRequest, ProduceResponse};
use talos_protocol::{ApiKey, Decoder, Records, Uuid};
use tokio::io::{AsyncWriteExt, DuplexStream};

use crate::network::Accept;
use crate::wire::read_frame;

/// What it does.
#[derive(Clone, Copy, Debug)]
pub(super) enum Bug {
    /// Keeps one produce request in a thousand for itself, and answers it.
    DropABatch,
    /// States a watermark below what an answer has, one answer in ten.
    PastTheWatermark,
    /// Replaces producer ids by ones that no earlier start of the broker has seen.
    OtherProducerIds(u64),
}

/// Where each partition's next record goes, as far as answers tell.
type Ends = Arc<Mutex<BTreeMap<(String, Uuid, i32), i64>>>;

#[derive(Clone)]
struct Proxy {
    bug: Bug,
    rng: Rng,
    ends: Ends,
}

pub(super) fn accept(inner: Accept, env: &Env, bug: Bug) -> Accept {
    let proxy = Proxy { bug, rng: env.rng.fork(), ends: Ends::default() };
    let tasks = env.tasks.clone();
    Arc::new(move |client: DuplexStream| {
        let (near, far) = tokio::io::duplex(64 << 10);
        inner(far);
        tasks.spawn("proxy", proxy.clone().run(client, near));
    })
}

fn framed(body: &Bytes) -> Bytes {
    let mut frame = BytesMut::with_capacity(body.len() + 4);
    frame.put_i32(i32::try_from(body.len()).unwrap_or(0));
    frame.extend_from_slice(body);
    frame.freeze()
}

impl Proxy {
    async fn run(self, mut client: DuplexStream, mut broker: DuplexStream) {
        while let Some(body) = read_frame(&mut client).await {
            let answer = match frame::peek_request_start(&body) {
                Ok(start) if start.key == ApiKey::Produce.code() => {
                    self.produce(body, &mut broker).await
                }
                Ok(start) if start.key == ApiKey::Fetch.code() => {
                    self.fetch(body, &mut broker).await
                }
                Ok(_) | Err(_) => pass(&body, &mut broker).await,
            };
            let Some(answer) = answer else { return };
            if client.write_all(&answer).await.is_err() {
                return;
            }
        }
    }

    async fn fetch(&self, body: Bytes, broker: &mut DuplexStream) -> Option<Bytes> {
        let (header, _) = frame::decode_request::<FetchRequest>(body.clone()).ok()?;
        broker.write_all(&framed(&body)).await.ok()?;
        let answer = read_frame(broker).await?;
        if !matches!(self.bug, Bug::PastTheWatermark) || !self.rng.chance(100_000) {
            return Some(framed(&answer));
        }
        let mut decoder = Decoder::new(answer);
        let version = header.version;
        let id = frame::decode_response_header(&mut decoder, ApiKey::Fetch, version).ok()?;
        let mut response: FetchResponse = frame::decode_rest(decoder, version).ok()?;
        for part in response.responses.iter_mut().flat_map(|topic| &mut topic.partitions) {
            let records = part.records.as_ref().map(Records::to_bytes).unwrap_or_default();
            if let Ok(first) = BatchHeader::parse(&records) {
                part.high_watermark = first.base_offset;
                part.last_stable_offset = first.base_offset;
            }
        }
        Some(frame::encode_response(id, version, &response).ok()?.to_bytes())
    }

    async fn produce(&self, body: Bytes, broker: &mut DuplexStream) -> Option<Bytes> {
        let (header, mut request) = frame::decode_request::<ProduceRequest>(body).ok()?;
        match self.bug {
            Bug::DropABatch => {
                if self.rng.chance(1_000)
                    && let Some(answer) = self.forged(&header, &request)
                {
                    return Some(answer);
                }
            }
            Bug::PastTheWatermark => {}
            Bug::OtherProducerIds(start) => {
                for topic in &mut request.topic_data {
                    for part in &mut topic.partition_data {
                        part.records = part.records.take().map(|records| other_id(&records, start));
                    }
                }
            }
        }
        let bytes = frame::encode_request(&header, &request).ok()?.to_bytes();
        broker.write_all(&bytes).await.ok()?;
        let body = read_frame(broker).await?;
        self.remember(&header, &request, body.clone());
        Some(framed(&body))
    }

    /// What the broker would have answered.
    fn forged(&self, header: &RequestHeader, request: &ProduceRequest) -> Option<Bytes> {
        let ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        let mut responses = Vec::new();
        for topic in &request.topic_data {
            let mut partition_responses = Vec::new();
            for part in &topic.partition_data {
                let key = (topic.name.as_str().to_owned(), topic.topic_id, part.index);
                let base_offset = *ends.get(&key)?;
                let index = part.index;
                let part = PartitionProduceResponse { index, base_offset, ..Default::default() };
                partition_responses.push(part);
            }
            let (name, topic_id) = (topic.name.clone(), topic.topic_id);
            responses.push(TopicProduceResponse { name, topic_id, partition_responses });
        }
        let response = ProduceResponse { responses, ..Default::default() };
        let chain = frame::encode_response(header.correlation_id, header.version, &response);
        Some(chain.ok()?.to_bytes())
    }

    fn remember(&self, header: &RequestHeader, request: &ProduceRequest, body: Bytes) {
        let mut decoder = Decoder::new(body);
        let version = header.version;
        if frame::decode_response_header(&mut decoder, ApiKey::Produce, version).is_err() {
            return;
        }
        let Ok(response) = frame::decode_rest::<ProduceResponse>(decoder, version) else { return };
        let mut ends = self.ends.lock().unwrap_or_else(PoisonError::into_inner);
        for (asked, topic) in request.topic_data.iter().zip(&response.responses) {
            for (asked_part, part) in asked.partition_data.iter().zip(&topic.partition_responses) {
                let records = asked_part.records.as_ref().map(Records::to_bytes);
                let header = records.and_then(|bytes| BatchHeader::parse(&bytes).ok());
                if let Some(header) = header.filter(|_| part.error_code == 0) {
                    let key = (asked.name.as_str().to_owned(), asked.topic_id, part.index);
                    let count = i64::from(header.last_offset_delta) + 1;
                    ends.insert(key, part.base_offset + count);
                }
            }
        }
    }
}

async fn pass(body: &Bytes, broker: &mut DuplexStream) -> Option<Bytes> {
    broker.write_all(&framed(body)).await.ok()?;
    read_frame(broker).await.map(|answer| framed(&answer))
}

/// The same batch from another producer. Byte positions are those of the batch format: CRC at 17 over
/// all from 21 on, producer id at 43.
fn other_id(records: &Records, start: u64) -> Records {
    let mut bytes = records.to_bytes().to_vec();
    let id = bytes.get(43..51).and_then(|id| id.try_into().ok()).map_or(-1, i64::from_be_bytes);
    if id >= 0 {
        let other = id + 1_000_000 * i64::try_from(start).unwrap_or(1);
        if let Some(slot) = bytes.get_mut(43..51) {
            slot.copy_from_slice(&other.to_be_bytes());
        }
        let crc = crc32c(bytes.get(21..).unwrap_or_default());
        if let Some(slot) = bytes.get_mut(17..21) {
            slot.copy_from_slice(&crc.to_be_bytes());
        }
    }
    Records::from(Bytes::from(bytes))
}
