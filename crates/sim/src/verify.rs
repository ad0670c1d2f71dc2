//! Reads everything for the last time, without faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_common::TopicPartitionId;

use crate::clients::reading::Ask;
use crate::clients::{CHURN, Client, ORDERS, SHORT, Topic};
use crate::history::{Data, End, What};

/// Tries of one partition.
const TRIES: u32 = 20;

pub(crate) async fn read_everything(mut client: Client) {
    for name in [ORDERS, SHORT, CHURN] {
        let Some(topic) = find(&mut client, name).await else {
            client.recorder.push(What::Broken(format!("topic {name} is gone at the end")));
            continue;
        };
        for tp in topic.tps() {
            let data = read(&mut client, &topic, tp).await;
            client.recorder.push(What::Final { tp, data });
        }
    }
}

async fn find(client: &mut Client, name: &'static str) -> Option<Topic> {
    for _ in 0..TRIES {
        if let Ok(Some(topic)) = client.look_up(name, false).await {
            return Some(topic);
        }
        client.back_off().await;
    }
    None
}

/// All of a partition, from its log start to its watermark.
async fn read(client: &mut Client, topic: &Topic, tp: TopicPartitionId) -> Result<Data, String> {
    let mut why = String::from("no answer");
    'again: for _ in 0..TRIES {
        let mut next = match client.list(topic, tp, End::First).await {
            Ok(Ok(first)) => first,
            Ok(Err(code)) => {
                why = format!("its start: error {code}");
                client.back_off().await;
                continue;
            }
            Err(_) => {
                client.back_off().await;
                continue;
            }
        };
        let mut records: BTreeMap<i64, Arc<str>> = BTreeMap::new();
        loop {
            let ask = Ask { max_wait_ms: 0, min_bytes: 1, max_bytes: 256 << 10 };
            let Ok(mut parts) = client.fetch(topic, &[(tp, next)], ask, true).await else {
                client.back_off().await;
                continue 'again;
            };
            match parts.pop().map(|part| part.data) {
                Some(Ok(data)) => {
                    let (start, end) = (data.log_start, data.high_watermark);
                    let before = next;
                    for (at, value) in data.records {
                        next = next.max(at + 1);
                        records.insert(at, value);
                    }
                    if next >= end {
                        let records = records.split_off(&start).into_iter().collect();
                        return Ok(Data { log_start: start, high_watermark: end, records });
                    }
                    if next == before {
                        why = format!("nothing at {next}, below the watermark {end}");
                        client.back_off().await;
                        continue 'again;
                    }
                }
                Some(Err(code)) => {
                    why = format!("at {next}: error {code}");
                    client.back_off().await;
                    continue 'again;
                }
                None => continue 'again,
            }
        }
    }
    Err(why)
}
