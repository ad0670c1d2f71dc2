//! Fetch (key 1), versions 4 to 18.
//!
//! Reads whole batches from the asked offsets, partitions in the order of the request, until the
//! bytes of the request or of the answer budget are used up; the first batch of an answer comes whole
//! however large it is (KIP-74). But for that batch, which may be more than is counted for it, an
//! answer is no larger than the whole budget (P7).
//!
//! With less than `min_bytes` it waits up to `max_wait_ms` on the watermarks of its partitions: one
//! wake-up per flush, and only changed partitions are looked at again. An error of any partition
//! answers at once. Memory for an answer is waited for as long, at least five seconds; then it is
//! KAFKA_STORAGE_ERROR, after which clients ask again, because an empty answer would say that there is
//! nothing (P3). A fetch at the tail takes whichever memory comes first, its own or that of all.
//!
//! 5 adds the log start, 9 leader epochs (FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH), 11 racks
//! (ignored), 12 `last_fetched_epoch`, 13 topic ids.
//!
//! Sessions (7): answered as by a broker whose session cache is full: a new session gets id 0 and
//! every answer is complete; an id that somebody invented is FETCH_SESSION_ID_NOT_FOUND.
//! Different from Kafka: there are no followers, so a follower's fetch is INVALID_REQUEST, and no
//! diverging epoch is told; empty records have length 0, never null.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use talos_common::{ByteBudget, ByteLease, TopicId};
use talos_log::waiters::FetchWaiter;
use talos_log::{Offsets, PartitionLog};
use talos_protocol::messages::fetch::{FetchPartition, PartitionData};
use talos_protocol::messages::{FetchRequest, FetchResponse, FetchableTopicResponse};
use talos_protocol::{ErrorCode, Records, Str, Uuid};
use tokio::time::Instant;

use crate::broker::Shared;
use crate::connection::Context;
use crate::dispatch::Handled;
use crate::errors::Failure;
use crate::handlers::check_leader_epoch;
use crate::topics::TopicRef;

/// Records found before there is enough are kept while waiting if they are no more than this.
const KEEP_BYTES: usize = 64 << 10;
/// Memory for an answer is waited for at least this long, whatever the request's `max_wait_ms`.
const LEAST_WAIT: Duration = Duration::from_secs(5);
const READ_COMMITTED: i8 = 1;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: FetchRequest,
) -> Handled<FetchResponse> {
    if let Some(code) = refusal(&request) {
        return FetchResponse { error_code: code.code(), ..Default::default() }.into();
    }
    let max_wait = Duration::from_millis(u64::try_from(request.max_wait_ms).unwrap_or(0));
    let deadline = shared.env.clock.now() + max_wait;
    let limit = request.max_bytes.clamp(0, shared.config.fetch_max_bytes);
    // A budget gives no lease above its limit: more would be read than is counted.
    let limit = usize::try_from(limit).unwrap_or(0).min(shared.answers.limit_bytes());
    let min_bytes = usize::try_from(request.min_bytes).unwrap_or(0).min(limit);
    let isolation_level = request.isolation_level;
    let mut fetch = Fetch::new(shared, context.version, &request, limit);
    fetch.room_until = deadline.max(fetch.room_until);
    // From here on nothing of the frame is needed.
    drop(request);
    context.release();
    fetch.pass(shared).await;
    if !fetch.is_enough(min_bytes) && !max_wait.is_zero() {
        let waiter = FetchWaiter::new();
        for (key, slot) in fetch.slots.iter().enumerate() {
            if let Ok(log) = &slot.log {
                log.register(&waiter, key);
            }
        }
        // What moved between the first pass and the registration.
        fetch.look_again_at_moved(shared).await;
        while !fetch.is_enough(min_bytes) {
            fetch.let_go_of_much();
            let changed = tokio::select! {
                biased;
                () = shared.stopping() => break,
                changed = waiter.changed() => changed,
                () = shared.env.clock.sleep_until(deadline) => break,
            };
            for key in changed {
                fetch.read(shared, key).await;
            }
        }
        fetch.complete(shared).await;
    }
    fetch.answer(shared, isolation_level)
}

/// An error of the whole request.
fn refusal(request: &FetchRequest) -> Option<ErrorCode> {
    if request.replica_id >= 0 || request.replica_state.replica_id >= 0 {
        return Some(ErrorCode::InvalidRequest);
    }
    // Epoch 0 asks for a new session, -1 for none; more continues one, and there are none.
    (request.session_epoch > 0).then_some(ErrorCode::FetchSessionIdNotFound)
}

/// One partition of the request.
struct Slot {
    topic: usize,
    index: i32,
    offset: i64,
    max_bytes: usize,
    log: Result<Arc<PartitionLog>, Failure>,
    found: Found,
}

/// What was found in a partition.
#[derive(Default)]
struct Found {
    records: Records,
    /// Bytes that there were; also when the records were let go of.
    bytes: usize,
    offsets: Option<Offsets>,
    lease: Option<ByteLease>,
}

struct Fetch {
    topics: Vec<(Str, Uuid)>,
    slots: Vec<Slot>,
    /// Most bytes of records in the answer.
    limit: usize,
    /// What the slots found, together.
    bytes: usize,
    /// Until when memory for the first records is waited for.
    room_until: Instant,
    /// A partition found none in time.
    starved: bool,
}

impl Fetch {
    fn new(shared: &Shared, version: i16, request: &FetchRequest, limit: usize) -> Self {
        let room_until = shared.env.clock.now() + LEAST_WAIT;
        let (topics, slots) = (Vec::new(), Vec::new());
        let mut fetch = Self { topics, slots, limit, bytes: 0, room_until, starved: false };
        // A partition that is asked for twice is answered once, as in Kafka.
        let mut seen = BTreeSet::new();
        for topic in &request.topics {
            let by = match version {
                ..13 => TopicRef::Name(&topic.topic),
                _ => TopicRef::Id(TopicId(topic.topic_id.0)),
            };
            let found = shared.topic(by);
            let at = fetch.topics.len();
            fetch.topics.push((topic.topic.detached(), topic.topic_id));
            for asked in &topic.partitions {
                if !seen.insert((&topic.topic, topic.topic_id, asked.partition)) {
                    continue;
                }
                let log = found.as_ref().map_err(Clone::clone).and_then(|cached| {
                    let log = shared.partition(cached, asked.partition)?;
                    check_leader_epoch(&log, asked.current_leader_epoch)?;
                    Ok(log)
                });
                fetch.slots.push(Slot::new(at, asked, log));
            }
        }
        fetch
    }

    /// Whether to answer now.
    fn is_enough(&self, min_bytes: usize) -> bool {
        self.slots.is_empty()
            || self.bytes >= min_bytes
            || self.slots.iter().any(|slot| slot.log.is_err())
    }

    /// Reads all partitions, in order.
    async fn pass(&mut self, shared: &Shared) {
        for key in 0..self.slots.len() {
            self.read(shared, key).await;
        }
    }

    /// Reads a partition with what the others leave of the limit.
    async fn read(&mut self, shared: &Shared, key: usize) {
        let Some(slot) = self.slots.get_mut(key) else { return };
        // What it had counts as read again: it lies in front of what is new.
        let others = self.bytes - slot.found.bytes;
        // A whole first batch only while nothing else is in the answer.
        let whole = others == 0 && !self.starved;
        let room = self.limit.saturating_sub(others);
        self.starved |= !slot.read(shared, room, whole, self.room_until).await;
        self.bytes = others + slot.found.bytes;
    }

    async fn look_again_at_moved(&mut self, shared: &Shared) {
        for key in 0..self.slots.len() {
            if self.slots.get(key).is_some_and(Slot::has_moved) {
                self.read(shared, key).await;
            }
        }
    }

    /// Before waiting: keeps little, and remembers only the size of more.
    fn let_go_of_much(&mut self) {
        if self.bytes <= KEEP_BYTES {
            return;
        }
        for slot in &mut self.slots {
            slot.found.records = Records::new();
            slot.found.lease = None;
        }
    }

    /// Reads again what was let go of.
    async fn complete(&mut self, shared: &Shared) {
        self.room_until = shared.env.clock.now() + LEAST_WAIT;
        for key in 0..self.slots.len() {
            let is_gone = |slot: &Slot| slot.found.bytes > 0 && slot.found.records.is_empty();
            if self.slots.get(key).is_some_and(is_gone) {
                self.read(shared, key).await;
            }
        }
    }

    fn answer(self, shared: &Shared, isolation_level: i8) -> Handled<FetchResponse> {
        let mut leases = Vec::new();
        let mut responses: Vec<_> = self
            .topics
            .into_iter()
            .map(|(topic, topic_id)| FetchableTopicResponse {
                topic,
                topic_id,
                partitions: Vec::new(),
            })
            .collect();
        for slot in self.slots {
            shared.metrics.fetched_bytes.inc_by(slot.found.records.len() as u64);
            let Some(response) = responses.get_mut(slot.topic) else { continue };
            response.partitions.push(slot.answer(isolation_level, &mut leases));
        }
        let response = FetchResponse { responses, ..Default::default() };
        Handled { response, leases }
    }
}

/// Memory for an answer, if there is some. Fetches at the tail have some to themselves, which those that
/// read files can not use up.
fn try_take(shared: &Shared, log: &PartitionLog, offset: i64, bytes: usize) -> Option<ByteLease> {
    let own = tail_memory(shared, log, offset, bytes).and_then(|tail| tail.try_take(bytes));
    own.or_else(|| shared.answers.try_take(bytes))
}

/// [`try_take`], waiting for whichever comes first. Cancel safe.
async fn take(shared: &Shared, log: &PartitionLog, offset: i64, bytes: usize) -> ByteLease {
    let Some(tail) = tail_memory(shared, log, offset, bytes) else {
        return shared.answers.take(bytes).await;
    };
    tokio::select! {
        biased;
        lease = tail.take(bytes) => lease,
        lease = shared.answers.take(bytes) => lease,
    }
}

/// The memory of fetches at the tail, where it is for this one.
fn tail_memory<'a>(
    shared: &'a Shared,
    log: &PartitionLog,
    offset: i64,
    bytes: usize,
) -> Option<&'a ByteBudget> {
    let tail = log.is_at_tail(offset).then_some(&shared.answers_tail);
    // What is larger than all of it would be taken for less than it is.
    tail.filter(|tail| bytes <= tail.limit_bytes())
}

impl Slot {
    fn new(topic: usize, asked: &FetchPartition, log: Result<Arc<PartitionLog>, Failure>) -> Self {
        Self {
            topic,
            index: asked.partition,
            offset: asked.fetch_offset,
            max_bytes: usize::try_from(asked.partition_max_bytes).unwrap_or(0),
            log,
            found: Found::default(),
        }
    }

    /// Whether there is something that the last read did not see.
    fn has_moved(&self) -> bool {
        match (&self.log, &self.found.offsets) {
            (Ok(log), Some(seen)) => {
                log.ended().is_some() || log.offsets().high_watermark != seen.high_watermark
            }
            (Ok(_), None) => true,
            (Err(_), _) => false,
        }
    }

    /// Reads at most `room` bytes; `whole`: the first batch even if it is larger. False: there was no
    /// memory for it until `room_until`.
    async fn read(
        &mut self,
        shared: &Shared,
        room: usize,
        whole: bool,
        room_until: Instant,
    ) -> bool {
        let Ok(log) = &self.log else { return true };
        self.found.records = Records::new();
        self.found.lease = None;
        let offsets = log.offsets();
        if offsets.high_watermark == self.offset && log.ended().is_none() {
            // Nothing to read takes no memory.
            self.found = Found { offsets: Some(offsets), ..Found::default() };
            return true;
        }
        let limit = self.max_bytes.min(room);
        // Memory for a file's bytes is taken before it is read. Only an empty-handed fetch waits for
        // it, so nobody holds memory while waiting for more.
        let reserved = match try_take(shared, log, self.offset, limit) {
            None if whole => {
                let clock = &shared.env.clock;
                let left = room_until.saturating_duration_since(clock.now());
                clock.timeout(left, take(shared, log, self.offset, limit)).await
            }
            reserved => reserved,
        };
        if reserved.is_none() && log.ended().is_none() {
            self.found = Found { offsets: Some(offsets), ..Found::default() };
            if whole {
                let message = "there was no memory for an answer in time";
                self.log = Err(Failure::new(ErrorCode::KafkaStorageError, message));
            }
            return !whole;
        }
        match log.read(self.offset, limit, whole).await {
            Ok(read) => {
                let lease = match read.bytes {
                    0 => None,
                    bytes => try_take(shared, log, self.offset, bytes).or(reserved),
                };
                let records = Records::from(read.records);
                let offsets = Some(read.offsets);
                self.found = Found { records, bytes: read.bytes, offsets, lease };
            }
            Err(error) => {
                self.found = Found::default();
                self.log = Err(error.into());
            }
        }
        true
    }

    fn answer(self, isolation_level: i8, leases: &mut Vec<ByteLease>) -> PartitionData {
        let mut data = PartitionData {
            partition_index: self.index,
            aborted_transactions: (isolation_level == READ_COMMITTED).then(Vec::new),
            records: Some(Records::new()),
            high_watermark: -1,
            ..Default::default()
        };
        match (self.log, self.found.offsets) {
            (Err(failure), _) => data.error_code = failure.code.code(),
            (Ok(_), None) => data.error_code = ErrorCode::NotLeaderOrFollower.code(),
            (Ok(_), Some(offsets)) => {
                data.high_watermark = offsets.high_watermark;
                data.last_stable_offset = offsets.last_stable;
                data.log_start_offset = offsets.log_start;
                data.records = Some(self.found.records);
                leases.extend(self.found.lease);
            }
        }
        data
    }
}
