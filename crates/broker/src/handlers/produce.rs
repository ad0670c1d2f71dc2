//! Produce (key 0), versions 3 to 13 (advertised from 0, see [`crate::dispatch`]).
//!
//! Each partition's records are one batch of format 2: validated, given its offsets, and answered
//! when it is durable and visible, for acks 1 and all alike (P1). acks 0 has no answer; if one of its
//! partitions fails, the connection is closed, as Kafka does, so that the client looks again. 5 adds
//! the log start, 7 zstd (refused below with UNSUPPORTED_COMPRESSION_TYPE), 8 error messages, 13 topic ids.
//!
//! Batches are checked before the next request is read, so order is that of the requests; compressed ones,
//! which must be decompressed, on threads of their own, and a large request lets others run in between.
//!
//! One bad partition does not fail the others. What was refused has a definite code; after it was
//! accepted only REQUEST_TIMED_OUT, while the append goes on (P4). No path gives
//! UNKNOWN_SERVER_ERROR (T2).
//! Different from Kafka: transactions do not exist yet; a transactional id or batch is refused with
//! UNSUPPORTED_VERSION, which the Java client takes as fatal instead of trying to abort. With acks 1
//! the timeout applies as well, because the answer waits for the store. The current leader (10) is
//! never told: clients ask for the metadata.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use talos_common::TopicId;
use talos_log::validate::{self, ValidBatch};
use talos_log::{Appended, PartitionLog};
use talos_meta::topics_cache::CachedTopic;
use talos_protocol::batch::{BatchHeader, Compression};
use talos_protocol::messages::produce::{
    PartitionProduceData, PartitionProduceResponse, TopicProduceData, TopicProduceResponse,
};
use talos_protocol::messages::{ProduceRequest, ProduceResponse};
use talos_protocol::{ErrorCode, Str, Uuid, frame};
use tokio::time::Instant;

use crate::broker::Shared;
use crate::connection::{Context, Outcome, Work};
use crate::errors::Failure;
use crate::topics::{TopicRef, is_internal};

/// The client that may write to internal topics, as in Kafka.
const ADMIN_CLIENT: &str = "__admin_client";

/// One partition on its way.
struct Part {
    index: i32,
    outcome: Result<Appended, Failure>,
}

struct TopicParts {
    name: Str,
    topic_id: Uuid,
    parts: Vec<Part>,
}

/// A compressed batch above this many bytes is checked on another thread: it may become a thousand times as
/// large. Below, the way there costs more.
const OFFLOAD_BYTES: usize = 512;
/// After checking this many bytes in place, others may run.
const TURN_BYTES: usize = 256 << 10;

/// How much one request has had checked in place since others could run.
#[derive(Default)]
struct Turn {
    bytes: usize,
}

impl Turn {
    async fn took(&mut self, bytes: usize) {
        self.bytes += bytes;
        if self.bytes >= TURN_BYTES {
            self.bytes = 0;
            tokio::task::yield_now().await;
        }
    }
}

/// Accepts a request: when this returns, the order of its batches is fixed. The work waits until
/// they are durable and gives the answer.
pub(crate) async fn accept(
    shared: &Arc<Shared>,
    context: &Context,
    request: ProduceRequest,
) -> Work {
    let timeout = Duration::from_millis(u64::try_from(request.timeout_ms).unwrap_or(0));
    let deadline = shared.env.clock.now() + timeout;
    let refusal = refusal_of_all(&request);
    let mut topics = Vec::with_capacity(request.topic_data.len());
    let mut turn = Turn::default();
    for topic in request.topic_data {
        let (name, topic_id) = (topic.name.detached(), topic.topic_id);
        let refusal = refusal.as_ref();
        let parts = accept_topic(shared, context, topic, refusal, deadline, &mut turn).await;
        topics.push(TopicParts { name, topic_id, parts });
    }
    let (version, correlation_id) = (context.version, context.correlation_id);
    let shared = Arc::clone(shared);
    if request.acks == 0 {
        return Box::pin(async move { without_answer(&topics) });
    }
    Box::pin(async move {
        let mut response = ProduceResponse::default();
        for topic in topics {
            response.responses.push(answer_topic(&shared, topic, deadline).await);
        }
        Outcome::encoded(frame::encode_response(correlation_id, version, &response), Vec::new())
    })
}

/// Why no partition of the request can be accepted.
fn refusal_of_all(request: &ProduceRequest) -> Option<Failure> {
    if !(-1..=1).contains(&request.acks) {
        return Some(Failure::of(ErrorCode::InvalidRequiredAcks));
    }
    request.transactional_id.as_ref().map(|_| no_transactions())
}

fn no_transactions() -> Failure {
    Failure::new(ErrorCode::UnsupportedVersion, "transactions are not supported by this broker yet")
}

async fn accept_topic(
    shared: &Arc<Shared>,
    context: &Context,
    topic: TopicProduceData,
    refusal: Option<&Failure>,
    deadline: Instant,
    turn: &mut Turn,
) -> Vec<Part> {
    let found = match refusal {
        Some(failure) => Err(failure.clone()),
        None => find(shared, context, &topic),
    };
    let mut parts = Vec::with_capacity(topic.partition_data.len());
    for PartitionProduceData { index, records } in topic.partition_data {
        let bytes = records.map(|records| records.to_bytes()).unwrap_or_default();
        let outcome = match &found {
            Ok(cached) => {
                turn.took(bytes.len()).await;
                accept_partition(shared, context, cached, index, bytes, deadline).await
            }
            Err(failure) => Err(failure.clone()),
        };
        if let Err(failure) = &outcome {
            shared.metrics.produce_errors.inc();
            let (code, why) = (failure.code.name(), &failure.message);
            tracing::debug!(index, code, why, "records refused");
        }
        parts.push(Part { index, outcome });
    }
    parts
}

fn find(
    shared: &Shared,
    context: &Context,
    topic: &TopicProduceData,
) -> Result<Arc<CachedTopic>, Failure> {
    let by = match context.version {
        ..13 => TopicRef::Name(&topic.name),
        _ => TopicRef::Id(TopicId(topic.topic_id.0)),
    };
    let cached = shared.topic(by)?;
    let is_admin = context.client_id.as_ref().is_some_and(|id| *id == ADMIN_CLIENT);
    if is_internal(&cached.topic.name) && !is_admin {
        let message = format!("Cannot append to internal topic {}", cached.topic.name);
        return Err(Failure::new(ErrorCode::InvalidTopicException, message));
    }
    Ok(cached)
}

async fn accept_partition(
    shared: &Shared,
    context: &Context,
    topic: &CachedTopic,
    index: i32,
    bytes: Bytes,
    deadline: Instant,
) -> Result<Appended, Failure> {
    let log = shared.partition(topic, index)?;
    let batch = check(shared, context, topic, &bytes).await?;
    append(shared, &log, &batch, deadline).await
}

async fn check(
    shared: &Shared,
    context: &Context,
    topic: &CachedTopic,
    bytes: &Bytes,
) -> Result<ValidBatch, Failure> {
    if bytes.is_empty() {
        let message = "a produce request must hold exactly one record batch for each partition";
        return Err(Failure::new(ErrorCode::InvalidRecord, message));
    }
    let header = BatchHeader::parse(bytes).ok();
    let codec = header.and_then(|header| header.attributes.compression().ok());
    if context.version < 7 && codec == Some(Compression::Zstd) {
        return Err(Failure::of(ErrorCode::UnsupportedCompressionType));
    }
    let rules = shared.topic_config(topic).rules;
    let now_ms = shared.env.clock.wall_ms();
    let is_compressed = codec.is_some_and(|codec| codec != Compression::None);
    let batch = if is_compressed && bytes.len() > OFFLOAD_BYTES {
        let bytes = bytes.clone();
        shared.env.cpu.run(move || validate::validate(&bytes, &rules, now_ms)).await?
    } else {
        validate::validate(bytes, &rules, now_ms)?
    };
    if batch.transactional { Err(no_transactions()) } else { Ok(batch) }
}

async fn append(
    shared: &Shared,
    log: &Arc<PartitionLog>,
    batch: &ValidBatch,
    deadline: Instant,
) -> Result<Appended, Failure> {
    let bytes = batch.bytes.len();
    // While the journal has no room the connection is not read any further; after the request's
    // timeout it is refused: nothing of it was accepted, so that is definite.
    let left = deadline.saturating_duration_since(shared.env.clock.now()).max(LEAST_WAIT);
    let lease = shared.env.clock.timeout(left, log.admit(bytes)).await.ok_or_else(|| {
        Failure::new(ErrorCode::KafkaStorageError, "the journal had no room for the batch in time")
    })??;
    let appended = log.append(batch, Some(lease))?;
    shared.metrics.produced_batches.inc();
    shared.metrics.produced_bytes.inc_by(bytes as u64);
    Ok(appended)
}

/// Room is waited for at least this long, whatever the request's timeout.
const LEAST_WAIT: Duration = Duration::from_millis(100);

/// acks 0: nothing is sent; a failure closes the connection.
fn without_answer(topics: &[TopicParts]) -> Outcome {
    let failed = topics
        .iter()
        .flat_map(|topic| &topic.parts)
        .find_map(|part| part.outcome.as_ref().err().map(|failure| (part.index, failure)));
    match failed {
        None => Outcome::Nothing,
        Some((index, failure)) => Outcome::Close(format!(
            "produce with acks=0 failed for partition {index}: {}: {}",
            failure.code.name(),
            failure.message
        )),
    }
}

async fn answer_topic(
    shared: &Shared,
    topic: TopicParts,
    deadline: Instant,
) -> TopicProduceResponse {
    let TopicParts { name, topic_id, parts } = topic;
    let mut partition_responses = Vec::with_capacity(parts.len());
    for part in parts {
        partition_responses.push(answer(shared, part, deadline).await);
    }
    TopicProduceResponse { name, topic_id, partition_responses }
}

async fn answer(shared: &Shared, part: Part, deadline: Instant) -> PartitionProduceResponse {
    let Part { index, outcome } = part;
    let outcome = match outcome {
        Ok(appended) => durable(shared, appended, deadline).await,
        Err(failure) => Err(failure),
    };
    match outcome {
        Ok(appended) => PartitionProduceResponse {
            index,
            base_offset: appended.base_offset,
            log_append_time_ms: appended.log_append_time.unwrap_or(-1),
            log_start_offset: appended.log_start,
            ..Default::default()
        },
        Err(failure) => PartitionProduceResponse {
            index,
            error_code: failure.code.code(),
            base_offset: -1,
            error_message: failure.text(),
            ..Default::default()
        },
    }
}

/// What of an accepted batch the answer needs.
struct Durable {
    base_offset: i64,
    log_append_time: Option<i64>,
    log_start: i64,
}

/// Waits until the batch is durable and visible, at most until the deadline.
fn durable(
    shared: &Shared,
    appended: Appended,
    deadline: Instant,
) -> impl Future<Output = Result<Durable, Failure>> + use<'_> {
    let Appended { base_offset, log_append_time, log_start, durable, .. } = appended;
    async move {
        tokio::select! {
            biased;
            outcome = durable => {
                outcome?;
                Ok(Durable { base_offset, log_append_time, log_start })
            }
            () = shared.env.clock.sleep_until(deadline) => {
                let message = "the batch was not known to be durable in time; it may become so later";
                Err(Failure::new(ErrorCode::RequestTimedOut, message))
            }
        }
    }
}
