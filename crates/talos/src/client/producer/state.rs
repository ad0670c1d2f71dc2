//! The producer's state: batches by partition, from open to settled.
//!
//! A batch is *open* (being filled), *ready* (closed, waiting for its turn), *in flight*, or *back*
//! (to be sent again). The sequence is given when a batch first leaves, so it follows the order of
//! sending.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use talos_common::{ByteBudget, ByteLease};
use talos_protocol::{ApiKey, ErrorCode, Str, Uuid};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Delivery, ProducerOptions, Senders, Wake};
use crate::client::batch::{BatchWriter, ProducerId, Record};
use crate::client::cluster::Topic;
use crate::client::error::ClientError;

/// The buffer is leased in steps of this many bytes.
const LEASE_BYTES: usize = 16 << 10;
/// A request carries at most this many bytes of batches (one larger batch goes alone).
const REQUEST_BYTES: usize = 4 << 20;

/// The bytes of a batch: still a writer, or as they went out the first time.
#[derive(Debug)]
pub(super) enum Body {
    Writer(BatchWriter),
    Sent(Bytes),
}

/// A closed batch on its way.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) partition: usize,
    pub(super) body: Body,
    pub(super) sequence: i32,
    records: i32,
    bytes: usize,
    tags: Vec<u64>,
    opened: Instant,
    _leases: Vec<ByteLease>,
}

#[derive(Debug)]
struct Open {
    writer: BatchWriter,
    tags: Vec<u64>,
    opened: Instant,
    leases: Vec<ByteLease>,
    leased: usize,
}

#[derive(Debug)]
struct PartitionState {
    topic: Str,
    topic_id: Uuid,
    index: i32,
    leader: i32,
    open: Option<Open>,
    ready: VecDeque<Batch>,
    /// Whether it stands in its leader's line of ready partitions.
    in_line: bool,
    in_flight: usize,
    back: Vec<Batch>,
    /// While batches come back, nothing is sent.
    paused: bool,
    next_sequence: i32,
    /// Size of the last batch: room that the next one starts with.
    last_bytes: usize,
}

#[derive(Debug, Default)]
struct Line {
    ready: VecDeque<usize>,
    /// Partitions with an open batch, oldest first; entries of batches that are closed since are
    /// passed over.
    open: VecDeque<(usize, Instant)>,
}

/// What [`State::append`] did.
pub(super) enum Appended {
    /// The record is in. `opened`: new batches.
    Done { opened: u64, wake: Option<Wake> },
    /// The buffer is full: take a lease for this many bytes and try again.
    NeedsRoom { bytes: usize, wake: Vec<Wake> },
}

/// What a sender finds when it looks for work.
pub(super) enum Work {
    /// Batches for one request, one per partition.
    Send(Vec<Batch>),
    /// Nothing before this time (`None`: nothing until woken).
    Wait(Option<Instant>),
}

/// What to do after a request has been judged.
#[derive(Default)]
pub(super) struct Settled {
    pub(super) deliveries: Vec<Delivery>,
    /// Partitions whose batches are all back and that must find their leader again.
    pub(super) resume: Vec<usize>,
    /// Leaders that may send more now.
    pub(super) wake: Vec<Wake>,
}

/// Everything under the producer's lock.
pub(super) struct State {
    partitions: Vec<PartitionState>,
    by_name: BTreeMap<(String, i32), usize>,
    lines: BTreeMap<i32, Line>,
    senders: Senders,
    /// Whether open batches leave at once.
    pressed: bool,
    failed: Option<ClientError>,
    batch_bytes: usize,
    linger: Duration,
    delivery_timeout: Duration,
    in_flight: usize,
    idempotent: bool,
}

impl State {
    pub(super) fn new(options: &ProducerOptions, id: ProducerId) -> Self {
        Self {
            partitions: Vec::new(),
            by_name: BTreeMap::new(),
            lines: BTreeMap::new(),
            senders: BTreeMap::new(),
            pressed: false,
            failed: None,
            batch_bytes: options.batch_bytes,
            linger: options.linger,
            delivery_timeout: options.delivery_timeout,
            in_flight: options.in_flight.max(1),
            idempotent: id != ProducerId::NONE,
        }
    }

    pub(super) fn find(&self, topic: &str, partition: i32) -> Option<usize> {
        self.by_name.get(&(topic.to_owned(), partition)).copied()
    }

    pub(super) fn add(&mut self, topic: &Topic, partition: i32, leader: i32) -> usize {
        let name = (topic.name.to_string(), partition);
        if let Some(known) = self.by_name.get(&name) {
            return *known;
        }
        let index = self.partitions.len();
        self.by_name.insert(name, index);
        self.partitions.push(PartitionState {
            topic: topic.name.clone(),
            topic_id: topic.id,
            index: partition,
            leader,
            open: None,
            ready: VecDeque::new(),
            in_line: false,
            in_flight: 0,
            back: Vec::new(),
            paused: false,
            next_sequence: 0,
            last_bytes: 0,
        });
        index
    }

    /// Name, id and index of a partition.
    pub(super) fn identity(&self, partition: usize) -> (Str, Uuid, i32) {
        let p = &self.partitions[partition];
        (p.topic.clone(), p.topic_id, p.index)
    }

    /// When the oldest batch that waits in the partition counts as failed.
    pub(super) fn deadline(&self, partition: usize, now: Instant) -> Instant {
        let opened = self.partitions[partition].ready.iter().map(|batch| batch.opened).min();
        opened.unwrap_or(now) + self.delivery_timeout
    }

    pub(super) fn failure(&self) -> Option<ClientError> {
        self.failed.clone()
    }

    /// Whether the caller has to start the sender of this leader.
    pub(super) fn claim_sender(&mut self, leader: i32) -> bool {
        let sender = self.senders.entry(leader).or_insert_with(|| (Arc::new(Notify::new()), false));
        !std::mem::replace(&mut sender.1, true)
    }

    pub(super) fn sender(&mut self, leader: i32) -> Wake {
        Arc::clone(&self.senders.entry(leader).or_default().0)
    }

    /// Whether open batches leave without lingering; gives all senders to be woken.
    pub(super) fn press(&mut self, pressed: bool) -> Vec<Wake> {
        self.pressed = pressed;
        self.senders.values().map(|(wake, _)| Arc::clone(wake)).collect()
    }

    pub(super) fn append(
        &mut self,
        partition: usize,
        record: &Record<'_>,
        tag: u64,
        now: Instant,
        budget: &ByteBudget,
        lease: &mut Option<(ByteLease, usize)>,
    ) -> Result<Appended, ClientError> {
        if let Some(failed) = &self.failed {
            return Err(failed.clone());
        }
        let size = BatchWriter::size_of(record);
        let batch_bytes = self.batch_bytes;
        let p = &mut self.partitions[partition];
        let leader = p.leader;
        let full = p.open.as_ref().is_some_and(|open| open.writer.len() + size > batch_bytes);
        if full {
            self.close(partition);
        }
        let p = &mut self.partitions[partition];
        let needed = p
            .open
            .as_ref()
            .map_or(size + 64, |open| (open.writer.len() + size).saturating_sub(open.leased));
        let mut more = None;
        if needed > 0 {
            let step = needed.max(LEASE_BYTES.min(batch_bytes));
            more = lease.take().filter(|(_, bytes)| *bytes >= needed);
            if more.is_none() {
                more = budget.try_take(step).map(|lease| (lease, step));
            }
            if more.is_none() {
                // Nothing else gives room back but sending what is open.
                let wake = self.press(true);
                return Ok(Appended::NeedsRoom { bytes: step, wake });
            }
        }
        let opened = p.open.is_none();
        let room = p.last_bytes.max(size + 64);
        let open = p.open.get_or_insert_with(|| Open {
            writer: BatchWriter::with_capacity(room),
            tags: Vec::new(),
            opened: now,
            leases: Vec::new(),
            leased: 0,
        });
        if let Some((lease, bytes)) = more {
            open.leases.push(lease);
            open.leased += bytes;
        }
        if !open.writer.push(record) {
            if opened {
                p.open = None;
            }
            return Err(ClientError::Invalid("a record of more than 2 GiB cannot be sent".into()));
        }
        open.tags.push(tag);
        let is_full = open.writer.len() >= batch_bytes;
        if opened {
            self.lines.entry(leader).or_default().open.push_back((partition, now));
        }
        if is_full {
            self.close(partition);
        }
        let wake = (full || is_full || opened).then(|| self.sender(leader));
        Ok(Appended::Done { opened: u64::from(opened), wake })
    }

    /// Closes the open batch of a partition, if there is one.
    fn close(&mut self, partition: usize) {
        let p = &mut self.partitions[partition];
        let Some(open) = p.open.take() else { return };
        let (records, bytes) = (open.writer.count(), open.writer.len());
        p.last_bytes = bytes;
        p.ready.push_back(Batch {
            partition,
            body: Body::Writer(open.writer),
            sequence: -1,
            records,
            bytes,
            tags: open.tags,
            opened: open.opened,
            _leases: open.leases,
        });
        self.line_up(partition);
    }

    fn line_up(&mut self, partition: usize) {
        let p = &mut self.partitions[partition];
        let can = !p.paused && !p.ready.is_empty() && p.in_flight < self.in_flight;
        if can && !p.in_line {
            p.in_line = true;
            self.lines.entry(p.leader).or_default().ready.push_back(partition);
        }
    }

    /// Work for the sender of one leader: at most one batch per partition.
    pub(super) fn work(&mut self, leader: i32, now: Instant) -> Work {
        let next = self.close_due(leader, now);
        let mut batches = Vec::new();
        let mut bytes = 0;
        let mut again = Vec::new();
        while let Some(partition) = self.lines.entry(leader).or_default().ready.front().copied() {
            let p = &mut self.partitions[partition];
            let size = p.ready.front().map_or(0, |batch| batch.bytes);
            if !batches.is_empty() && bytes + size > REQUEST_BYTES {
                break;
            }
            self.lines.entry(leader).or_default().ready.pop_front();
            let p = &mut self.partitions[partition];
            p.in_line = false;
            if p.leader != leader || p.paused {
                self.line_up(partition);
                continue;
            }
            let Some(mut batch) = p.ready.pop_front() else { continue };
            if self.idempotent && batch.sequence < 0 {
                batch.sequence = p.next_sequence;
                // Sequences wrap to 0 behind 2^31 - 1.
                p.next_sequence = batch.sequence.wrapping_add(batch.records) & i32::MAX;
            }
            p.in_flight += 1;
            bytes += size;
            batches.push(batch);
            again.push(partition);
        }
        again.into_iter().for_each(|partition| self.line_up(partition));
        if batches.is_empty() { Work::Wait(next) } else { Work::Send(batches) }
    }

    /// Closes batches that have lingered; gives the time of the next one.
    fn close_due(&mut self, leader: i32, now: Instant) -> Option<Instant> {
        loop {
            let line = self.lines.entry(leader).or_default();
            let (partition, opened) = *line.open.front()?;
            let p = &self.partitions[partition];
            let same = p.open.as_ref().is_some_and(|open| open.opened == opened);
            // Behind others in flight it rather fills up.
            let due = opened + self.linger;
            if same && due > now && !self.pressed {
                return Some(due);
            }
            line.open.pop_front();
            if same {
                self.close(partition);
            }
        }
    }

    /// Takes back the batches of a request that was answered with one result each.
    pub(super) fn settle(
        &mut self,
        server: &str,
        results: Vec<(Batch, Result<i64, ClientError>)>,
        now: Instant,
    ) -> Settled {
        let mut settled = Settled::default();
        let mut touched = Vec::new();
        for (batch, result) in results {
            let partition = batch.partition;
            let p = &mut self.partitions[partition];
            p.in_flight = p.in_flight.saturating_sub(1);
            touched.push(partition);
            match self.judge(&batch, result, now) {
                Verdict::Done(result) => {
                    if let Err(error) = &result
                        && self.idempotent
                    {
                        self.failed.get_or_insert_with(|| error.clone());
                    }
                    settled.deliveries.push(self.delivery(batch, result));
                }
                Verdict::Again(error) => {
                    tracing::debug!(%error, server, partition, "batch is sent again");
                    let p = &mut self.partitions[partition];
                    p.paused = true;
                    p.back.push(batch);
                }
            }
        }
        for partition in touched.iter().copied() {
            let p = &mut self.partitions[partition];
            if p.paused && p.in_flight == 0 && !p.back.is_empty() {
                let mut back = std::mem::take(&mut p.back);
                back.sort_by_key(|batch| (batch.opened, batch.sequence));
                back.into_iter().rev().for_each(|batch| p.ready.push_front(batch));
                settled.resume.push(partition);
            } else {
                self.line_up(partition);
            }
        }
        let leaders: BTreeSet<i32> = touched.iter().map(|p| self.partitions[*p].leader).collect();
        settled.wake = leaders.into_iter().map(|leader| self.sender(leader)).collect();
        if self.failed.is_some() {
            self.drop_all(&mut settled);
        }
        settled
    }

    fn judge(&self, batch: &Batch, result: Result<i64, ClientError>, now: Instant) -> Verdict {
        let error = match result {
            Ok(offset) => return Verdict::Done(Ok(offset)),
            Err(error) => error,
        };
        // An earlier try was stored; its offset is not told.
        if error.code() == Some(ErrorCode::DuplicateSequenceNumber) {
            return Verdict::Done(Ok(-1));
        }
        let paused = self.partitions[batch.partition].paused;
        let after_a_lost_one = paused && error.code() == Some(ErrorCode::OutOfOrderSequenceNumber);
        let timeout = matches!(error, ClientError::Timeout { .. });
        let again = error.is_retriable() || timeout || after_a_lost_one;
        let time_left = now < batch.opened + self.delivery_timeout;
        if again && time_left && self.failed.is_none() {
            Verdict::Again(error)
        } else {
            Verdict::Done(Err(error))
        }
    }

    fn delivery(&self, batch: Batch, result: Result<i64, ClientError>) -> Delivery {
        let p = &self.partitions[batch.partition];
        let (topic, partition) = (p.topic.clone(), p.index);
        Delivery { topic, partition, result, bytes: batch.bytes, tags: batch.tags }
    }

    /// After the producer failed: everything that is not in flight fails as well. What waits to be
    /// sent again may be stored, and its error says so.
    fn drop_all(&mut self, settled: &mut Settled) {
        let Some(failed) = self.failed.clone() else { return };
        for partition in 0..self.partitions.len() {
            self.close(partition);
            let p = &mut self.partitions[partition];
            let mut dropped = std::mem::take(&mut p.back);
            dropped.extend(p.ready.drain(..));
            for batch in dropped {
                let error = match batch.body {
                    Body::Sent(_) => ClientError::Lost {
                        server: "the leader".into(),
                        api: ApiKey::Produce,
                        reason: format!("not sent again, because: {failed}"),
                    },
                    Body::Writer(_) => ClientError::Invalid(format!(
                        "not sent, because an earlier batch failed: {failed}"
                    )),
                };
                settled.deliveries.push(self.delivery(batch, Err(error)));
            }
        }
        settled.resume.clear();
    }

    /// The leader of a partition was found again: its batches go on.
    pub(super) fn resume(&mut self, partition: usize, leader: i32) -> Wake {
        let p = &mut self.partitions[partition];
        p.leader = leader;
        p.paused = false;
        p.in_line = false;
        if let Some(open) = &p.open {
            let opened = open.opened;
            self.lines.entry(leader).or_default().open.push_front((partition, opened));
        }
        self.line_up(partition);
        self.sender(leader)
    }

    /// Gives up on a paused partition.
    pub(super) fn give_up(&mut self, partition: usize, error: &ClientError) -> Settled {
        let mut settled = Settled::default();
        self.close(partition);
        let p = &mut self.partitions[partition];
        p.paused = false;
        let dropped: Vec<_> = p.ready.drain(..).collect();
        for batch in dropped {
            let error = match batch.body {
                Body::Sent(_) => ClientError::Lost {
                    server: "the leader".into(),
                    api: ApiKey::Produce,
                    reason: error.to_string(),
                },
                Body::Writer(_) => error.clone(),
            };
            settled.deliveries.push(self.delivery(batch, Err(error)));
        }
        if self.idempotent {
            self.failed.get_or_insert_with(|| error.clone());
            self.drop_all(&mut settled);
        }
        settled
    }
}

enum Verdict {
    Done(Result<i64, ClientError>),
    Again(ClientError),
}
