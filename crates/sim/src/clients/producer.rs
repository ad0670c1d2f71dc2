//! A producer, with or without idempotence, that keeps several batches per partition in flight and
//! sends again what it does not know: the same bytes with the same sequence numbers, in order.
//!
//! A batch that failed for good, or whose fate an idempotent producer gives up on, ends its session:
//! the next one has a new producer id and begins at sequence 0, as in Kafka's clients.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use talos_common::TopicPartitionId;
use talos_protocol::batch::Compression;
use talos_protocol::messages::produce::{PartitionProduceData, TopicProduceData};
use talos_protocol::messages::{InitProducerIdRequest, ProduceRequest, ProduceResponse};
use talos_protocol::records::{BatchBuilder, NewRecord};
use talos_protocol::{ErrorCode, Records, Str, Uuid};

use super::{CHURN, Client, ORDERS, SHORT, Topic, means_refresh};
use crate::history::{BatchId, Outcome, Stamp, What};
use crate::plan::{Plan, pick};

const CODECS: [Compression; 6] = [
    Compression::None,
    Compression::None,
    Compression::Zstd,
    Compression::Lz4,
    Compression::Snappy,
    Compression::Gzip,
];

/// A batch that is not acknowledged yet.
#[derive(Clone, Debug)]
struct Batch {
    id: BatchId,
    values: Arc<[Arc<str>]>,
    stamp: Option<Stamp>,
    time_ms: i64,
    bytes: bytes::Bytes,
    /// Whether some attempt has an unknown outcome.
    is_unknown: bool,
}

/// One partition's batches.
#[derive(Debug, Default)]
struct Lane {
    waiting: VecDeque<Batch>,
    sequence: i32,
    acknowledged: u64,
}

/// What one request asked.
struct Sent {
    correlation_id: i32,
    topic: Topic,
    batches: Vec<(TopicPartitionId, BatchId)>,
}

struct Producer {
    client: Client,
    topics: BTreeMap<&'static str, Topic>,
    lanes: BTreeMap<TopicPartitionId, Lane>,
    is_idempotent: bool,
    session: Option<(i64, i16)>,
    /// Of the requests under way.
    version: i16,
    depth: usize,
    value_bytes: usize,
    next_batch: u64,
    /// Whether some batch of this round was.
    was_refused: bool,
}

/// Produces until the faults have healed and each partition took one more batch.
pub(crate) async fn run(client: Client, plan: Plan) {
    let names: &[&'static str] = match client.id % 3 {
        0 => &[ORDERS, SHORT],
        1 => &[ORDERS, CHURN],
        _ => &[SHORT, ORDERS],
    };
    let mut producer = Producer {
        is_idempotent: client.id.is_multiple_of(2),
        depth: plan.depth,
        value_bytes: plan.value_bytes,
        client,
        topics: BTreeMap::new(),
        lanes: BTreeMap::new(),
        session: None,
        version: 9,
        next_batch: 0,
        was_refused: false,
    };
    while !producer.client.is_healed() {
        let name = pick(&producer.client.rng, names);
        producer.round(name, true).await;
        producer.client.idle(30).await;
    }
    for name in names.iter().filter(|name| **name != CHURN) {
        producer.finish(name).await;
    }
    let id = producer.client.id;
    producer.client.recorder.push(What::Done(format!("producer {id}")));
}

impl Producer {
    /// All batches are acknowledged, and then one more for each partition.
    async fn finish(&mut self, name: &'static str) {
        loop {
            self.round(name, false).await;
            if let Some(topic) = self.topics.get(name)
                && topic.tps().all(|tp| self.lanes.get(&tp).is_none_or(|l| l.waiting.is_empty()))
            {
                break;
            }
        }
        let topic = self.client.wait_for(name).await;
        let before: Vec<u64> = topic.tps().map(|tp| self.acknowledged(tp)).collect();
        while topic.tps().zip(&before).any(|(tp, before)| self.acknowledged(tp) == *before) {
            self.round(name, true).await;
        }
    }

    fn acknowledged(&self, tp: TopicPartitionId) -> u64 {
        self.lanes.get(&tp).map_or(0, |lane| lane.acknowledged)
    }

    /// Sends what waits (and new batches), and hears what became of it.
    async fn round(&mut self, name: &'static str, fill: bool) {
        let Some(topic) = self.topics.get(name).cloned() else {
            match self.client.find(name).await {
                Ok(Some(topic)) => {
                    self.topics.insert(name, topic);
                }
                Ok(None) | Err(_) => self.client.back_off().await,
            }
            return;
        };
        if self.is_idempotent && self.session.is_none() && !self.begin_session().await {
            return self.client.back_off().await;
        }
        if fill {
            for tp in topic.tps() {
                self.fill(tp);
            }
        }
        if !self.client.wire.connect() {
            return self.client.back_off().await;
        }
        let (sent, all) = self.send_all(&topic).await;
        let mut heard_all = all;
        for request in sent {
            heard_all &= self.hear(name, request, heard_all).await;
        }
        if !heard_all {
            self.client.wire.disconnect();
        }
        if !heard_all || self.was_refused {
            self.client.back_off().await;
        }
        self.was_refused = false;
        self.give_up_some(&topic);
        if name == CHURN && self.client.rng.chance(100_000) {
            // It may have more partitions by now.
            self.topics.remove(name);
        }
    }

    async fn begin_session(&mut self) -> bool {
        let request = InitProducerIdRequest {
            transactional_id: None,
            transaction_timeout_ms: 1_000,
            ..Default::default()
        };
        match self.client.wire.call(4, &request).await {
            Ok(answer) if answer.error_code == 0 => {
                self.session = Some((answer.producer_id, answer.producer_epoch));
                true
            }
            Ok(_) | Err(_) => false,
        }
    }

    /// Makes new batches for a partition.
    fn fill(&mut self, tp: TopicPartitionId) {
        let rng = &self.client.rng;
        let time_ms = self.client.recorder.now_ms();
        let (session, producer) = (self.session, self.client.id);
        let lane = self.lanes.entry(tp).or_default();
        let wanted = rng.usize(1..=self.depth);
        while lane.waiting.len() < wanted {
            let id = BatchId { producer, number: self.next_batch };
            self.next_batch += 1;
            let count = rng.usize(1..4);
            let filler = "x".repeat(rng.usize(0..self.value_bytes));
            let value = |n| Arc::from(format!("{producer}/{}/{n}/{filler}", id.number));
            let values: Arc<[Arc<str>]> = (0..count).map(value).collect();
            let mut builder = BatchBuilder::new().compression(pick(rng, &CODECS));
            let stamp = session.map(|(id, epoch)| Stamp { id, epoch, sequence: lane.sequence });
            if let Some(stamp) = stamp {
                builder = builder.producer(stamp.id, stamp.epoch, stamp.sequence);
                lane.sequence += i32::try_from(count).unwrap_or(0);
            }
            for value in values.iter() {
                builder.push(&NewRecord::value(time_ms, value.to_string()));
            }
            let bytes = builder.build().unwrap_or_default();
            lane.waiting.push_back(Batch { id, values, stamp, time_ms, bytes, is_unknown: false });
        }
    }

    /// One request per depth, each with one batch of every partition that has as many. Gives them, and
    /// whether all were sent.
    async fn send_all(&mut self, topic: &Topic) -> (Vec<Sent>, bool) {
        // A name says which topic is meant only if it is never another one.
        let version = match topic.name {
            CHURN => 13,
            _ => pick(&self.client.rng, &[7, 9, 13]),
        };
        self.version = version;
        let mut sent = Vec::new();
        for depth in 0..self.depth {
            let (mut batches, mut partition_data) = (Vec::new(), Vec::new());
            for tp in topic.tps() {
                let batch = self.lanes.get(&tp).and_then(|lane| lane.waiting.get(depth));
                let Some(batch) = batch.cloned() else { continue };
                batches.push((tp, batch.id));
                let records = Some(Records::from(batch.bytes));
                partition_data.push(PartitionProduceData { index: tp.partition, records });
                let Batch { id: batch, values, stamp, time_ms, .. } = batch;
                self.client.recorder.push(What::Attempt { batch, tp, values, stamp, time_ms });
            }
            if batches.is_empty() {
                break;
            }
            let topic_data = vec![TopicProduceData {
                name: Str::from(topic.name),
                topic_id: Uuid(topic.id.0),
                partition_data,
            }];
            // Who wants no answer does not send again.
            let is_silent = !self.is_idempotent && self.client.rng.chance(40_000);
            let acks = if is_silent { 0 } else { pick(&self.client.rng, &[-1, 1]) };
            let timeout_ms = pick(&self.client.rng, &[30, 500, 3_000]);
            let request = ProduceRequest { transactional_id: None, acks, timeout_ms, topic_data };
            match self.client.wire.send(version, &request).await {
                Ok(_) if is_silent => {
                    self.all_unknown(&batches);
                    for (tp, batch) in batches {
                        self.client.recorder.push(What::Silent { batch });
                        if let Some(lane) = self.lanes.get_mut(&tp) {
                            lane.waiting.retain(|waiting| waiting.id != batch);
                        }
                    }
                    // What moved up comes with the next round.
                    return (sent, true);
                }
                Ok(correlation_id) => {
                    sent.push(Sent { correlation_id, topic: topic.clone(), batches });
                }
                Err(_) => {
                    self.all_unknown(&batches);
                    return (sent, false);
                }
            }
        }
        (sent, true)
    }

    fn all_unknown(&mut self, batches: &[(TopicPartitionId, BatchId)]) {
        for (tp, batch) in batches {
            self.learn(*tp, *batch, Outcome::Unknown);
        }
    }

    /// Waits for one answer; false when it did not come. `connected`: whether it still can.
    async fn hear(&mut self, name: &'static str, sent: Sent, connected: bool) -> bool {
        let response = match connected {
            true => {
                let id = sent.correlation_id;
                self.client.wire.receive::<ProduceRequest>(self.version, id).await.ok()
            }
            false => None,
        };
        let Some(response) = response else {
            self.all_unknown(&sent.batches);
            return false;
        };
        for (tp, batch) in sent.batches {
            let outcome = outcome_of(&response, tp);
            match outcome {
                Some(outcome) => self.learn(tp, batch, outcome),
                None => {
                    let text = format!("produce: no answer for {tp} of {}", sent.topic.name);
                    self.client.recorder.push(What::Broken(text));
                }
            }
            if let Some(Outcome::Refused(code)) = outcome
                && means_refresh(code)
            {
                self.topics.remove(name);
            }
        }
        true
    }

    /// Takes in what became of an attempt.
    fn learn(&mut self, tp: TopicPartitionId, batch: BatchId, outcome: Outcome) {
        self.client.recorder.push(What::Answer { batch, outcome });
        let Some(lane) = self.lanes.get_mut(&tp) else { return };
        match outcome {
            Outcome::Acknowledged(_) => {
                lane.waiting.retain(|waiting| waiting.id != batch);
                lane.acknowledged += 1;
            }
            Outcome::Unknown => {
                let found = lane.waiting.iter_mut().find(|waiting| waiting.id == batch);
                if let Some(found) = found {
                    found.is_unknown = true;
                }
            }
            Outcome::Refused(code) => self.refused(tp, batch, code),
        }
    }

    fn refused(&mut self, tp: TopicPartitionId, batch: BatchId, code: i16) {
        self.was_refused = true;
        let retriable = ErrorCode::from_code(code).is_some_and(ErrorCode::is_retriable);
        let Some(lane) = self.lanes.get_mut(&tp) else { return };
        let is_first = lane.waiting.front().is_some_and(|first| first.id == batch);
        if code == ErrorCode::OutOfOrderSequenceNumber.code() && !is_first {
            // One before it failed: it is sent again behind that one.
            return;
        }
        if code == ErrorCode::UnknownTopicId.code() {
            // That topic is gone for ever.
            self.lanes.remove(&tp);
        } else if !retriable {
            lane.waiting.retain(|waiting| waiting.id != batch);
            self.end_session();
        }
    }

    /// At times a producer runs out of patience.
    fn give_up_some(&mut self, topic: &Topic) {
        if self.client.is_healed() || !self.client.rng.chance(20_000) {
            return;
        }
        let mut gave_up = false;
        for tp in topic.tps() {
            if let Some(lane) = self.lanes.get_mut(&tp) {
                gave_up |= lane.waiting.pop_front().is_some();
            }
        }
        if gave_up {
            self.end_session();
        }
    }

    /// Sequences begin anew; what may be in the log already is not sent under other numbers.
    fn end_session(&mut self) {
        if !self.is_idempotent {
            return;
        }
        self.session = None;
        for lane in self.lanes.values_mut() {
            lane.waiting.clear();
            lane.sequence = 0;
        }
    }
}

fn outcome_of(response: &ProduceResponse, tp: TopicPartitionId) -> Option<Outcome> {
    let parts = response.responses.iter().flat_map(|topic| &topic.partition_responses);
    let part = parts.into_iter().find(|part| part.index == tp.partition)?;
    Some(match ErrorCode::from_code(part.error_code) {
        Some(ErrorCode::None) => Outcome::Acknowledged(part.base_offset),
        Some(ErrorCode::DuplicateSequenceNumber) => Outcome::Acknowledged(-1),
        Some(ErrorCode::RequestTimedOut) => Outcome::Unknown,
        Some(_) | None => Outcome::Refused(part.error_code),
    })
}
