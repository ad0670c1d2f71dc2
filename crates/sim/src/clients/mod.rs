//! Small clients that behave as real ones do, and tell the recorder what they hear.

pub(crate) mod admin;
pub(crate) mod consumer;
pub(crate) mod member;
pub(crate) mod producer;
pub(crate) mod reading;

use std::time::Duration;

use talos_common::{Clock, Env, Rng, TopicId, TopicPartitionId};
use talos_protocol::messages::MetadataRequest;
use talos_protocol::messages::metadata::{MetadataRequestTopic, MetadataResponseTopic};
use talos_protocol::{ErrorCode, Str};
use tokio::sync::watch;

use crate::cluster::Phase;
use crate::history::Recorder;
use crate::network::Network;
use crate::wire::{Lost, Wire};

/// Two partitions; never deleted.
pub(crate) const ORDERS: &str = "orders";
/// One partition whose old records the broker deletes by itself.
pub(crate) const SHORT: &str = "short";
/// One partition; deleted and created again and again.
pub(crate) const CHURN: &str = "churn";

/// A topic as a client knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Topic {
    pub(crate) name: &'static str,
    pub(crate) id: TopicId,
    pub(crate) partitions: i32,
}

impl Topic {
    pub(crate) fn tps(&self) -> impl Iterator<Item = TopicPartitionId> + use<> {
        let topic = self.id;
        (0..self.partitions).map(move |partition| TopicPartitionId { topic, partition })
    }
}

/// What every client has.
#[derive(Debug)]
pub(crate) struct Client {
    /// Its number: unique in a run.
    pub(crate) id: u32,
    pub(crate) clock: Clock,
    pub(crate) rng: Rng,
    pub(crate) recorder: Recorder,
    pub(crate) phase: watch::Receiver<Phase>,
    pub(crate) wire: Wire,
}

impl Client {
    pub(crate) fn new(
        id: u32,
        env: &Env,
        network: &Network,
        recorder: &Recorder,
        phase: &watch::Receiver<Phase>,
    ) -> Self {
        let rng = env.rng.fork();
        let timeout = Duration::from_millis(rng.u64(800..4_000));
        let clock = env.clock.clone();
        Self {
            id,
            rng,
            recorder: recorder.clone(),
            phase: phase.clone(),
            wire: Wire::new(network.clone(), clock.clone(), recorder.clone(), timeout),
            clock,
        }
    }

    pub(crate) fn is_healed(&self) -> bool {
        *self.phase.borrow() >= Phase::Healed
    }

    /// Waits as long as a client does before it tries again.
    pub(crate) async fn back_off(&self) {
        self.clock.sleep(Duration::from_millis(self.rng.u64(10..100))).await;
    }

    /// Waits up to `most_ms`.
    pub(crate) async fn idle(&self, most_ms: u64) {
        self.clock.sleep(Duration::from_micros(self.rng.u64(0..=most_ms * 1_000))).await;
    }

    /// The topic of this name, if the broker has one and leads all of it.
    pub(crate) async fn find(&mut self, name: &'static str) -> Result<Option<Topic>, Lost> {
        // As real clients: nothing is sent to a partition that has no leader yet.
        self.look_up(name, true).await
    }

    /// The topic of this name, if the broker has one; `led`: and leads all of it.
    pub(crate) async fn look_up(
        &mut self,
        name: &'static str,
        led: bool,
    ) -> Result<Option<Topic>, Lost> {
        let asked = MetadataRequestTopic { name: Some(Str::from(name)), ..Default::default() };
        let request = MetadataRequest {
            topics: Some(vec![asked]),
            allow_auto_topic_creation: false,
            ..Default::default()
        };
        let response = self.wire.call(12, &request).await?;
        let topic = response.topics.first().filter(|topic| topic.error_code == 0);
        let is_led = |topic: &&MetadataResponseTopic| {
            !led || topic.partitions.iter().all(|partition| partition.error_code == 0)
        };
        Ok(topic.filter(is_led).map(|topic| Topic {
            name,
            id: TopicId(topic.topic_id.0),
            partitions: i32::try_from(topic.partitions.len()).unwrap_or(0),
        }))
    }

    /// The topic of this name, however long it takes.
    pub(crate) async fn wait_for(&mut self, name: &'static str) -> Topic {
        loop {
            if let Ok(Some(topic)) = self.find(name).await {
                return topic;
            }
            self.back_off().await;
        }
    }
}

/// Whether this code says that the client's idea of the topic is wrong.
pub(crate) fn means_refresh(code: i16) -> bool {
    [
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::UnknownTopicId,
        ErrorCode::InconsistentTopicId,
        ErrorCode::NotLeaderOrFollower,
    ]
    .iter()
    .any(|known| known.code() == code)
}
