//! A consumer without a group: reads several partitions from changing positions, with and without
//! waiting, and asks for their ends now and then.

use std::collections::BTreeMap;

use talos_common::TopicPartitionId;
use talos_protocol::ErrorCode;

use super::reading::Ask;
use super::{CHURN, Client, ORDERS, SHORT, Topic, means_refresh};
use crate::history::{End, Part, What};

/// Reads until the faults have healed, then to the ends that it finds.
pub(crate) async fn run(mut client: Client) {
    let names: &[&'static str] = match client.id % 3 {
        0 => &[ORDERS, CHURN],
        1 => &[ORDERS, SHORT],
        _ => &[SHORT, CHURN, ORDERS],
    };
    let mut topics = BTreeMap::new();
    let mut positions: BTreeMap<TopicPartitionId, i64> = BTreeMap::new();
    while !client.is_healed() {
        let name = crate::plan::pick(&client.rng, names);
        round(&mut client, name, &mut topics, &mut positions).await;
        client.idle(20).await;
    }
    for name in names {
        if *name != CHURN {
            read_to_the_end(&mut client, name, &mut positions).await;
        }
    }
    client.recorder.push(What::Done(format!("consumer {}", client.id)));
}

async fn round(
    client: &mut Client,
    name: &'static str,
    topics: &mut BTreeMap<&'static str, Topic>,
    positions: &mut BTreeMap<TopicPartitionId, i64>,
) {
    let Some(topic) = topics.get(name).cloned() else {
        match client.find(name).await {
            Ok(Some(topic)) => {
                topics.insert(name, topic);
            }
            Ok(None) | Err(_) => client.back_off().await,
        }
        return;
    };
    if client.rng.chance(80_000) {
        for tp in topic.tps() {
            let end = if client.rng.chance(500_000) { End::First } else { End::Last };
            if client.list(&topic, tp, end).await.is_err() {
                return client.back_off().await;
            }
        }
    }
    if client.rng.chance(60_000) && name != CHURN {
        let ago_ms = i64::try_from(client.rng.u64(0..3_000)).unwrap_or(0);
        let time_ms = client.recorder.now_ms() - ago_ms;
        let epoch = i32::try_from(client.rng.u64(0..6)).unwrap_or(0);
        for tp in topic.tps() {
            if client.find_by_time(&topic, tp, time_ms).await.is_err()
                || client.end_of_epoch(&topic, tp, epoch).await.is_err()
            {
                return client.back_off().await;
            }
        }
    }
    if name == CHURN && client.rng.chance(100_000) {
        // It may have more partitions by now.
        topics.remove(name);
    }
    let ask = Ask {
        max_wait_ms: crate::plan::pick(&client.rng, &[0, 20, 400]),
        min_bytes: crate::plan::pick(&client.rng, &[0, 1, 600]),
        max_bytes: crate::plan::pick(&client.rng, &[1, 700, 1 << 20]),
    };
    let asked: Vec<_> = topic
        .tps()
        .map(|tp| (tp, seek(client, positions.get(&tp).copied().unwrap_or(0))))
        .collect();
    let by_id = name == CHURN || client.rng.chance(500_000);
    let Ok(parts) = client.fetch(&topic, &asked, ask, by_id).await else {
        return client.back_off().await;
    };
    for part in parts {
        if part.data.as_ref().is_err_and(|code| means_refresh(*code)) {
            topics.remove(name);
        }
        follow(client, &topic, part, positions).await;
    }
}

/// Mostly where it was, at times somewhere before.
fn seek(client: &Client, position: i64) -> i64 {
    match client.rng.u64(0..12) {
        0 => 0,
        1 => i64::try_from(client.rng.u64(0..=u64::try_from(position).unwrap_or(0))).unwrap_or(0),
        _ => position,
    }
}

/// Moves the position behind what was read, or back into the log.
async fn follow(
    client: &mut Client,
    topic: &Topic,
    part: Part,
    positions: &mut BTreeMap<TopicPartitionId, i64>,
) {
    match part.data {
        Ok(data) => {
            if let Some((last, _)) = data.records.last() {
                positions.insert(part.tp, last + 1);
            } else {
                positions.insert(part.tp, part.from);
            }
        }
        Err(code) if code == ErrorCode::OffsetOutOfRange.code() => {
            if let Ok(Ok(first)) = client.list(topic, part.tp, End::First).await {
                positions.insert(part.tp, first);
            }
        }
        Err(_) => client.back_off().await,
    }
}

async fn read_to_the_end(
    client: &mut Client,
    name: &'static str,
    positions: &mut BTreeMap<TopicPartitionId, i64>,
) {
    let topic = client.wait_for(name).await;
    for tp in topic.tps() {
        let end = loop {
            match client.list(&topic, tp, End::Last).await {
                Ok(Ok(end)) => break end,
                Ok(Err(_)) | Err(_) => client.back_off().await,
            }
        };
        positions.insert(tp, 0);
        let ask = Ask { max_wait_ms: 500, min_bytes: 1, max_bytes: 64 << 10 };
        while positions.get(&tp).copied().unwrap_or(0) < end {
            let asked = [(tp, positions.get(&tp).copied().unwrap_or(0))];
            match client.fetch(&topic, &asked, ask, false).await {
                Ok(parts) => {
                    for part in parts {
                        follow(client, &topic, part, positions).await;
                    }
                }
                Err(_) => client.back_off().await,
            }
        }
    }
}
