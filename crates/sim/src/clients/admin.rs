//! Creates the topics, deletes and creates one of them again, and deletes records.

use std::sync::PoisonError;

use talos_common::{TopicId, TopicPartitionId};
use talos_protocol::messages::create_partitions::CreatePartitionsTopic;
use talos_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use talos_protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use talos_protocol::messages::delete_topics::DeleteTopicState;
use talos_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest,
};
use talos_protocol::{ErrorCode, Str, Uuid};

use super::{CHURN, Client, ORDERS, SHORT, Topic};
use crate::cluster::Ghosts;
use crate::history::{End, What};
use crate::wire::Lost;

/// How long records are kept where time alone decides, in milliseconds.
const SHORT_MS: i64 = 1_500;
/// Of the topic that comes and goes.
const MOST_PARTITIONS: i32 = 3;

/// Works until the faults have healed, then once more on each kind of work.
pub(crate) async fn run(mut client: Client, ghosts: Option<Ghosts>) {
    let keep_ms = client.rng.chance(500_000).then_some(SHORT_MS);
    for (name, partitions) in [(ORDERS, 2), (SHORT, 1), (CHURN, 1)] {
        let topic = ensure(&mut client, name, partitions, keep_ms).await;
        if name == SHORT {
            for tp in topic.tps() {
                client.recorder.push(What::Retained { tp, keep_ms });
            }
        }
    }
    while !client.is_healed() {
        if let Some(ghosts) = &ghosts
            && trim_at_ghosts(&mut client, ghosts).await
        {
            continue;
        }
        match client.rng.u64(0..8) {
            0 => delete(&mut client).await,
            1 => {
                ensure(&mut client, CHURN, 1, None).await;
            }
            4 => grow(&mut client).await,
            5 => {
                // The name is used again as soon as it is free (F14).
                delete(&mut client).await;
                ensure(&mut client, CHURN, 1, None).await;
            }
            // What is deleted beyond a ghost would hide it.
            2 | 3 if ghosts.is_none() => trim(&mut client).await,
            _ => {}
        }
        client.idle(150).await;
    }
    ensure(&mut client, CHURN, 1, None).await;
    delete(&mut client).await;
    ensure(&mut client, CHURN, 1, None).await;
    client.recorder.push(What::Done(format!("admin {}", client.id)));
}

/// Creates a topic unless it is there; tries until it is.
async fn ensure(
    client: &mut Client,
    name: &'static str,
    partitions: i32,
    keep_ms: Option<i64>,
) -> Topic {
    let config = |name, value: String| CreatableTopicConfig {
        name: Str::from(name),
        value: Some(Str::from(value)),
    };
    let configs = match (name, keep_ms) {
        (SHORT, Some(ms)) => vec![config("retention.ms", ms.to_string())],
        (SHORT, None) => vec![config("retention.bytes", "3000".into())],
        _ => Vec::new(),
    };
    loop {
        if let Ok(Some(topic)) = client.find(name).await {
            return topic;
        }
        let topic = CreatableTopic {
            name: Str::from(name),
            num_partitions: partitions,
            replication_factor: -1,
            configs: configs.clone(),
            ..Default::default()
        };
        let request = CreateTopicsRequest { topics: vec![topic], ..Default::default() };
        if let Ok(answer) = client.wire.call(7, &request).await {
            let code = answer.topics.first().map(|topic| topic.error_code);
            client.recorder.note(format!("create {name}: {code:?}"));
        }
        client.back_off().await;
    }
}

/// Gives the topic that comes and goes one more partition.
async fn grow(client: &mut Client) {
    let Ok(Some(topic)) = client.find(CHURN).await else { return };
    if topic.partitions >= MOST_PARTITIONS {
        return;
    }
    let topic = CreatePartitionsTopic {
        name: Str::from(CHURN),
        count: topic.partitions + 1,
        assignments: None,
    };
    let request =
        CreatePartitionsRequest { topics: vec![topic], timeout_ms: 1_000, validate_only: false };
    if let Ok(answer) = client.wire.call(3, &request).await {
        let code = answer.results.first().map(|result| result.error_code);
        client.recorder.note(format!("create partitions: {code:?}"));
    }
}

/// Deletes the topic that is there to be deleted.
async fn delete(client: &mut Client) {
    let Ok(Some(topic)) = client.find(CHURN).await else { return };
    for tp in topic.tps() {
        client.recorder.push(What::Deleting { tp });
    }
    loop {
        match try_delete(client, topic.id).await {
            Ok(code) => {
                client.recorder.note(format!("delete {}: {code}", topic.id));
                let gone = [ErrorCode::None, ErrorCode::UnknownTopicId];
                if gone.iter().any(|gone| gone.code() == code) || !client.is_healed() {
                    return;
                }
            }
            Err(Lost) if !client.is_healed() => return,
            Err(Lost) => {}
        }
        client.back_off().await;
    }
}

async fn try_delete(client: &mut Client, id: TopicId) -> Result<i16, Lost> {
    let topics = vec![DeleteTopicState { name: None, topic_id: Uuid(id.0) }];
    let request = DeleteTopicsRequest { topics, timeout_ms: 2_000, ..Default::default() };
    let answer = client.wire.call(6, &request).await?;
    answer.responses.first().map(|topic| topic.error_code).ok_or(Lost)
}

/// Deletes records up to where a lost process left a ghost, as soon as others stand there. False when
/// there is none.
async fn trim_at_ghosts(client: &mut Client, ghosts: &Ghosts) -> bool {
    let known = ghosts.lock().unwrap_or_else(PoisonError::into_inner).clone();
    let Some((tp, offset)) = known.into_iter().next() else { return false };
    client.idle(10).await;
    let Ok(Some(topic)) = client.find(ORDERS).await else { return true };
    let is_past = match topic.tps().any(|known| known == tp) {
        true => match client.list(&topic, tp, End::Last).await {
            Ok(Ok(end)) => end > offset + 4,
            Ok(Err(_)) | Err(Lost) => return true,
        },
        false => true,
    };
    if is_past {
        ghosts.lock().unwrap_or_else(PoisonError::into_inner).remove(&tp);
        if topic.tps().any(|known| known == tp) {
            delete_records(client, &topic, tp, offset).await;
        }
    }
    true
}

/// Deletes some of the oldest records of a partition, at times all of them.
async fn trim(client: &mut Client) {
    let Ok(Some(topic)) = client.find(ORDERS).await else { return };
    let partition = i32::try_from(client.rng.u64(0..2)).unwrap_or(0);
    let Some(tp) = topic.tps().find(|tp| tp.partition == partition) else { return };
    let (Ok(Ok(first)), Ok(Ok(last))) =
        (client.list(&topic, tp, End::First).await, client.list(&topic, tp, End::Last).await)
    else {
        return;
    };
    let span = u64::try_from(last - first).unwrap_or(0);
    let below = match client.rng.u64(0..10) {
        0 => -1,
        _ => first + i64::try_from(client.rng.u64(0..=span / 3)).unwrap_or(0),
    };
    delete_records(client, &topic, tp, below).await;
}

async fn delete_records(client: &mut Client, topic: &Topic, tp: TopicPartitionId, below: i64) {
    let partition = tp.partition;
    client.recorder.push(What::Trimming { tp, below });
    let begun = client.recorder.moment();
    let asked = DeleteRecordsPartition { partition_index: partition, offset: below };
    let topics = vec![DeleteRecordsTopic { name: Str::from(topic.name), partitions: vec![asked] }];
    let request = DeleteRecordsRequest { topics, timeout_ms: 1_000 };
    let Ok(answer) = client.wire.call(2, &request).await else { return };
    let part = answer.topics.first().and_then(|topic| topic.partitions.first());
    if let Some(part) = part
        && part.error_code == 0
    {
        let (client_id, low) = (client.id, part.low_watermark);
        client.recorder.push(What::Trimmed { client: client_id, begun, tp, low });
    }
}
