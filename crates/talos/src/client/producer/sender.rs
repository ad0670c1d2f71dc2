//! One task per leader: takes batches out of the state, sends a request, and lets another task
//! wait for its answer, so that several are in flight.

use std::collections::BTreeMap;
use std::sync::{Arc, Weak};

use talos_protocol::messages::produce::{
    PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData,
};
use talos_protocol::{ApiKey, Records, Str, Uuid};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::state::{Batch, Body, Settled, Work};
use super::{Inner, Producer, Wake};
use crate::client::connection::Connection;
use crate::client::deadline;
use crate::client::error::ClientError;
use std::time::Duration;

/// The pause before a partition looks for its leader again.
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// Without topic ids, from this version on Produce cannot be asked.
const LAST_VERSION_WITH_NAMES: i16 = 12;

/// Sends to one leader until the producer is dropped.
pub(super) async fn run(producer: Weak<Inner>, leader: i32, wake: Wake) {
    let Some(limit) = producer.upgrade().map(|inner| inner.options.in_flight.max(1)) else {
        return;
    };
    let slots = Arc::new(Semaphore::new(limit));
    loop {
        // A free slot first: while there is none, batches fill up.
        let Ok(slot) = Arc::clone(&slots).acquire_owned().await else { return };
        let Some(inner) = producer.upgrade() else { return };
        let clock = inner.cluster.env().clock.clone();
        let work = inner.state().work(leader, clock.now());
        match work {
            Work::Send(batches) => send(inner, leader, batches, slot).await,
            Work::Wait(until) => {
                drop((inner, slot));
                let due = async {
                    match until {
                        Some(until) => clock.sleep_until(until).await,
                        // Looks now and then whether the producer is still there.
                        None => clock.sleep(Duration::from_secs(5)).await,
                    }
                };
                tokio::select! {
                    biased;
                    () = wake.notified() => {}
                    () = due => {}
                }
            }
        }
    }
}

/// A batch and the place of its answer.
type Asked = Vec<(Batch, (Str, Uuid, i32))>;

async fn send(inner: Arc<Inner>, leader: i32, batches: Vec<Batch>, slot: OwnedSemaphorePermit) {
    let mut asked: Asked = Vec::with_capacity(batches.len());
    let mut broken = Vec::new();
    for mut batch in batches {
        let identity = inner.state().identity(batch.partition);
        match finish(&inner, &mut batch) {
            Ok(()) => asked.push((batch, identity)),
            Err(error) => broken.push((batch, Err(error))),
        }
    }
    let connected = inner.cluster.broker(leader).await;
    if !broken.is_empty() {
        settle(&inner, "this client", broken);
    }
    let connection = match connected {
        Ok(connection) => connection,
        Err(error) => return fail(&inner, asked, &error),
    };
    let request = request(&inner, &asked);
    let named = asked.iter().any(|(_, (_, id, _))| id.is_zero());
    let cap = if named { LAST_VERSION_WITH_NAMES } else { i16::MAX };
    let version = match connection.version::<ProduceRequest>(cap) {
        Ok(version) => version,
        Err(error) => return fail(&inner, asked, &error),
    };
    if inner.options.acks == 0 {
        let sent = connection.send_unanswered(&request, version).await;
        return match sent {
            Ok(()) => {
                let done = asked.into_iter().map(|(batch, _)| (batch, Ok(-1))).collect();
                settle(&inner, connection.server(), done);
            }
            Err(error) => fail(&inner, asked, &error),
        };
    }
    match connection.send(&request, version).await {
        Err(error) => fail(&inner, asked, &error),
        Ok(pending) => {
            let tasks = inner.cluster.env().tasks.clone();
            tasks.spawn("producer answer", async move {
                let limit = inner.cluster.options().timeout;
                let clock = inner.cluster.env().clock.clone();
                let answer = clock.timeout(limit, pending.answer()).await;
                match answer {
                    Some(Ok(answer)) => answered(&inner, &connection, asked, &answer),
                    Some(Err(error)) => fail(&inner, asked, &error),
                    None => {
                        // What is behind it on this connection would wait as well.
                        connection.abort("an answer did not come in time");
                        let server = connection.server().to_owned();
                        let api = ApiKey::Produce;
                        fail(&inner, asked, &ClientError::Timeout { server, api, after: limit });
                    }
                }
                drop(slot);
            });
        }
    }
}

/// Turns the writer of a batch into the bytes that are sent, now and at every later try.
fn finish(inner: &Inner, batch: &mut Batch) -> Result<(), ClientError> {
    let empty = Body::Sent(bytes::Bytes::new());
    let bytes = match std::mem::replace(&mut batch.body, empty) {
        Body::Sent(bytes) => bytes,
        Body::Writer(writer) => writer
            .finish(inner.options.codec, inner.id, batch.sequence)
            .map_err(|error| ClientError::Invalid(error.to_string()))?,
    };
    batch.body = Body::Sent(bytes);
    Ok(())
}

fn request(inner: &Inner, asked: &Asked) -> ProduceRequest {
    let mut topics: BTreeMap<(&Str, &Uuid), Vec<PartitionProduceData>> = BTreeMap::new();
    for (batch, (name, id, index)) in asked {
        let Body::Sent(bytes) = &batch.body else { continue };
        let records = Some(Records::from(bytes.clone()));
        let data = PartitionProduceData { index: *index, records };
        topics.entry((name, id)).or_default().push(data);
    }
    let topic_data = topics.into_iter().map(|((name, id), partition_data)| TopicProduceData {
        name: name.clone(),
        topic_id: *id,
        partition_data,
    });
    ProduceRequest {
        transactional_id: None,
        acks: inner.options.acks,
        timeout_ms: i32::try_from(inner.cluster.options().timeout.as_millis()).unwrap_or(i32::MAX),
        topic_data: topic_data.collect(),
    }
}

fn answered(inner: &Arc<Inner>, connection: &Connection, asked: Asked, answer: &ProduceResponse) {
    let mut by_place = BTreeMap::new();
    for topic in &answer.responses {
        for partition in &topic.partition_responses {
            // One of name and id is in the answer, by its version.
            by_place.insert((&topic.name, topic.topic_id, partition.index), partition);
        }
    }
    let (server, api) = (connection.server(), ApiKey::Produce);
    let empty = Str::default();
    let results = asked.into_iter().map(|(batch, (name, id, index))| {
        let by_id = by_place.get(&(&empty, id, index));
        let result = match by_id.or_else(|| by_place.get(&(&name, Uuid::ZERO, index))) {
            Some(found) => {
                let message = found.error_message.as_deref();
                let subject = format!("{name}-{index}");
                ClientError::check(server, api, subject, found.error_code, message)
                    .map(|()| found.base_offset)
            }
            None => Err(ClientError::missing(server, api, "such partition")),
        };
        (batch, result)
    });
    settle(inner, server, results.collect());
}

/// The whole request failed.
fn fail(inner: &Arc<Inner>, asked: Asked, error: &ClientError) {
    let results = asked.into_iter().map(|(batch, _)| (batch, Err(error.clone())));
    settle(inner, "the leader", results.collect());
}

fn settle(inner: &Arc<Inner>, server: &str, results: Vec<(Batch, Result<i64, ClientError>)>) {
    let now = inner.cluster.env().clock.now();
    let Settled { deliveries, resume, wake } = inner.state().settle(server, results, now);
    wake.iter().for_each(|sender| sender.notify_one());
    inner.deliver(deliveries);
    for partition in resume {
        let inner = Arc::clone(inner);
        let tasks = inner.cluster.env().tasks.clone();
        tasks.spawn("producer retry", find_leader_again(inner, partition));
    }
}

async fn find_leader_again(inner: Arc<Inner>, partition: usize) {
    let (topic, _, index) = inner.state().identity(partition);
    let cluster = &inner.cluster;
    let clock = cluster.env().clock.clone();
    let until = inner.state().deadline(partition, clock.now());
    let left = until.saturating_duration_since(clock.now());
    let looking = async {
        loop {
            clock.sleep(RETRY_PAUSE).await;
            cluster.forget(&topic);
            match cluster.leader(&topic, index).await {
                Ok((_, leader, _)) => break Ok(leader),
                Err(error) if clock.now() >= until => break Err(error),
                Err(error) if error.is_retriable() || error.is_away() => {}
                Err(error) => break Err(error),
            }
        }
    };
    let found = deadline::within(&clock, left, looking).await;
    match found {
        Ok(leader) => {
            let wake = inner.state().resume(partition, leader);
            Producer { inner: Arc::clone(&inner) }.ensure_sender(leader);
            wake.notify_one();
        }
        Err(error) => {
            let settled = inner.state().give_up(partition, &error);
            inner.deliver(settled.deliveries);
        }
    }
}
