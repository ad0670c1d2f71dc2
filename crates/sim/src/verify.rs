//! Reads everything for the last time, without faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_common::TopicPartitionId;

use crate::clients::reading::Ask;
use crate::clients::{CHURN, Client, ORDERS, SHORT, Topic};
use crate::history::{Data, End, What};

/// Where groups keep what they know.
const GROUPS: &str = "__consumer_offsets";
/// Tries of one partition.
const TRIES: u32 = 20;
/// The same where some may be refused for good.
const SERVED_TRIES: u32 = 4;

pub(crate) async fn read_everything(mut client: Client) {
    for name in [ORDERS, SHORT, CHURN] {
        let Some(topic) = find(&mut client, name).await else {
            client.recorder.push(What::Broken(format!("topic {name} is gone at the end")));
            continue;
        };
        for tp in topic.tps() {
            let data = read(&mut client, &topic, tp, TRIES).await.map_err(|why| why.to_string());
            client.recorder.push(What::Final { tp, data });
        }
    }
    look_at_groups(&mut client).await;
}

/// Whether groups were written anew and the records before that deleted (E-G2).
async fn look_at_groups(client: &mut Client) {
    let Ok(Some(topic)) = client.look_up(GROUPS, false).await else { return };
    for tp in topic.tps() {
        if let Ok(Ok(first)) = client.list(&topic, tp, End::First).await
            && first > 0
        {
            client.recorder.note("group snapshot");
        }
    }
}

/// What is served of each partition now, and why not.
pub(crate) async fn read_what_is_served(
    client: &mut Client,
) -> Vec<(&'static str, TopicPartitionId, Result<Data, Unread>)> {
    let mut all = Vec::new();
    for name in [ORDERS, SHORT, CHURN] {
        let Some(topic) = find(client, name).await else { continue };
        for tp in topic.tps() {
            let data = read(client, &topic, tp, SERVED_TRIES).await;
            all.push((name, tp, data));
        }
    }
    all
}

/// Why a partition could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unread {
    /// The broker said so, where and with which code.
    Code(i64, i16),
    /// For another reason.
    Other(String),
}

impl std::fmt::Display for Unread {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Code(at, code) => write!(f, "at {at}: error {code}"),
            Self::Other(why) => f.write_str(why),
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
async fn read(
    client: &mut Client,
    topic: &Topic,
    tp: TopicPartitionId,
    tries: u32,
) -> Result<Data, Unread> {
    let mut why = Unread::Other("no answer".into());
    'again: for _ in 0..tries {
        let mut next = match client.list(topic, tp, End::First).await {
            Ok(Ok(first)) => first,
            Ok(Err(code)) => {
                why = Unread::Code(0, code);
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
                        let text = format!("nothing at {next}, below the watermark {end}");
                        why = Unread::Other(text);
                        client.back_off().await;
                        continue 'again;
                    }
                }
                Some(Err(code)) => {
                    why = Unread::Code(next, code);
                    client.back_off().await;
                    continue 'again;
                }
                None => continue 'again,
            }
        }
    }
    Err(why)
}
