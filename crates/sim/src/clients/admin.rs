//! Creates the topics, deletes and creates one of them again, and deletes records.

use talos_common::TopicId;
use talos_protocol::messages::create_topics::{CreatableTopic, CreatableTopicConfig};
use talos_protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use talos_protocol::messages::delete_topics::DeleteTopicState;
use talos_protocol::messages::{CreateTopicsRequest, DeleteRecordsRequest, DeleteTopicsRequest};
use talos_protocol::{ErrorCode, Str, Uuid};

use super::{CHURN, Client, ORDERS, SHORT, Topic};
use crate::history::{End, What};
use crate::wire::Lost;

/// Works until the faults have healed, then once more on each kind of work.
pub(crate) async fn run(mut client: Client) {
    for (name, partitions) in [(ORDERS, 2), (SHORT, 1), (CHURN, 1)] {
        let topic = ensure(&mut client, name, partitions).await;
        if name == SHORT {
            for tp in topic.tps() {
                client.recorder.push(What::Retained { tp });
            }
        }
    }
    while !client.is_healed() {
        match client.rng.u64(0..8) {
            0 => delete(&mut client).await,
            1 => {
                ensure(&mut client, CHURN, 1).await;
            }
            2 | 3 => trim(&mut client).await,
            _ => {}
        }
        client.idle(150).await;
    }
    ensure(&mut client, CHURN, 1).await;
    delete(&mut client).await;
    ensure(&mut client, CHURN, 1).await;
    client.recorder.push(What::Done(format!("admin {}", client.id)));
}

/// Creates a topic unless it is there; tries until it is.
async fn ensure(client: &mut Client, name: &'static str, partitions: i32) -> Topic {
    let config =
        |name, value| CreatableTopicConfig { name: Str::from(name), value: Some(Str::from(value)) };
    let configs = match name {
        SHORT => vec![config("retention.bytes", "3000"), config("retention.ms", "20000")],
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
