//! Topics as handlers see them: names, lookups, creation.

use std::sync::Arc;

use talos_common::{TopicId, TopicPartitionId};
use talos_log::PartitionLog;
use talos_meta::topics_cache::CachedTopic;
use talos_meta::{NewTopic, Topic, TopicError, TopicState, TopicsImage};
use talos_protocol::ErrorCode;
use tokio::sync::oneshot;

use crate::broker::Shared;
use crate::errors::Failure;
use crate::partitions::{Command, Slot};

/// The topic of group offsets and group state.
pub(crate) const OFFSETS_TOPIC: &str = "__consumer_offsets";
/// Kafka's topic of transaction state; reserved.
const TRANSACTIONS_TOPIC: &str = "__transaction_state";
const NAME_BYTES: usize = 249;

/// Whether clients may not write to it.
pub(crate) fn is_internal(name: &str) -> bool {
    name == OFFSETS_TOPIC || name == TRANSACTIONS_TOPIC
}

/// Kafka's rules for topic names.
pub(crate) fn check_name(name: &str) -> Result<(), Failure> {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let why = if name.is_empty() {
        "the empty string is not allowed".to_owned()
    } else if name == "." || name == ".." {
        "'.' and '..' are not allowed".to_owned()
    } else if name.len() > NAME_BYTES {
        format!("the length of {} is above the limit of {NAME_BYTES}", name.len())
    } else if !name.bytes().all(legal) {
        "only ASCII letters, digits, '.', '_' and '-' are allowed".to_owned()
    } else {
        return Ok(());
    };
    let message = format!("Topic name is invalid: {why}");
    Err(Failure::new(ErrorCode::InvalidTopicException, message))
}

/// A topic whose name differs only in `.` and `_`: Kafka's metrics could not tell them apart.
pub(crate) fn collision<'a>(name: &str, image: &'a TopicsImage) -> Option<&'a str> {
    if !name.contains(['.', '_']) {
        return None;
    }
    let fold = |byte: u8| if byte == b'.' { b'_' } else { byte };
    let same = |other: &str| name.bytes().map(fold).eq(other.bytes().map(fold));
    let live = image.iter().filter(|cached| cached.topic.state == TopicState::Live);
    live.map(|cached| cached.topic.name.as_str())
        .find(|other| other.len() == name.len() && *other != name && same(other))
}

/// How a request names a topic.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TopicRef<'a> {
    Name(&'a str),
    Id(TopicId),
}

impl Shared {
    /// The live topic that is meant.
    pub(crate) fn topic(&self, topic: TopicRef<'_>) -> Result<Arc<CachedTopic>, Failure> {
        let image = self.topics.image();
        match topic {
            TopicRef::Name(name) => image
                .live(name)
                .cloned()
                .ok_or_else(|| Failure::of(ErrorCode::UnknownTopicOrPartition)),
            TopicRef::Id(id) => image
                .by_id(id)
                .filter(|cached| cached.topic.state == TopicState::Live)
                .cloned()
                .ok_or_else(|| Failure::of(ErrorCode::UnknownTopicId)),
        }
    }

    /// The log of a partition of a live topic.
    pub(crate) fn partition(
        &self,
        topic: &CachedTopic,
        partition: i32,
    ) -> Result<Arc<PartitionLog>, Failure> {
        if !(0..topic.topic.partitions).contains(&partition) {
            return Err(Failure::of(ErrorCode::UnknownTopicOrPartition));
        }
        match self.partitions.get(TopicPartitionId { topic: topic.topic.id, partition }) {
            Some(Slot::Open(log)) => Ok(log),
            Some(Slot::Offline(offline)) => {
                Err(Failure::new(ErrorCode::KafkaStorageError, offline.why))
            }
            None => Err(Failure::of(ErrorCode::NotLeaderOrFollower)),
        }
    }

    /// Creates a topic and opens its partitions.
    pub(crate) async fn create_topic(self: &Arc<Self>, new: NewTopic) -> Result<Topic, Failure> {
        let shared = Arc::clone(self);
        self.to_end("create topic", async move { shared.create_topic_here(new).await }).await
    }

    async fn create_topic_here(&self, new: NewTopic) -> Result<Topic, Failure> {
        // Groups have to work on a full broker too.
        let _planned = match is_internal(&new.name) {
            true => None,
            false => Some(self.plan_partitions(new.partitions)?),
        };
        let mut created = self.meta.create_topic(new.clone()).await;
        if let Err(TopicError::Exists { id, deleting: true }) = &created
            && self.finish_deletion(*id).await.is_ok_and(|free| free)
        {
            created = self.meta.create_topic(new.clone()).await;
        }
        let (topic, _) = created.map_err(|error| already(error, &new.name))?;
        self.opened(topic.id).await;
        Ok(topic)
    }

    /// Makes a change of a topic visible here and opens what is new.
    pub(crate) async fn opened(&self, id: TopicId) {
        if let Err(error) = self.topics.refresh(id).await {
            // The cache follows by itself.
            tracing::debug!(topic = %id, %error, "a changed topic could not be read at once");
        }
        let image = self.topics.image();
        if let Some(cached) = image.by_id(id) {
            self.open_and_wait(cached.topic.partition_ids().collect()).await;
        }
    }

    /// Lets go of a topic that is marked as being deleted; whether its name is free afterwards.
    pub(crate) async fn finish_deletion(&self, id: TopicId) -> Result<bool, Failure> {
        let (done, outcome) = oneshot::channel();
        let lost = |_| Failure::of(ErrorCode::RequestTimedOut);
        self.commands
            .send(Command::Delete(id, done))
            .await
            .map_err(|_| Failure::of(ErrorCode::RequestTimedOut))?;
        Ok(outcome.await.map_err(lost)??)
    }

    /// Creates a topic with the broker's defaults, because a client asked for it.
    pub(crate) async fn auto_create(self: &Arc<Self>, name: &str) -> Result<(), Failure> {
        check_name(name)?;
        if is_internal(name) && name != OFFSETS_TOPIC {
            return Err(Failure::of(ErrorCode::UnknownTopicOrPartition));
        }
        if let Some(other) = collision(name, &self.topics.image()) {
            let message = format!("Topic '{name}' collides with existing topic: {other}");
            return Err(Failure::new(ErrorCode::InvalidTopicException, message));
        }
        let partitions = match name == OFFSETS_TOPIC {
            true => self.config.offsets_topic_num_partitions,
            false => self.config.num_partitions,
        };
        let new = NewTopic { name: name.into(), partitions, configs: Default::default() };
        match self.create_topic(new).await {
            Ok(_) => Ok(()),
            // Another client was faster.
            Err(failure) if failure.code == ErrorCode::TopicAlreadyExists => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}

fn already(error: TopicError, name: &str) -> Failure {
    match error {
        TopicError::Exists { deleting, .. } => {
            let marked = if deleting { " and is marked for deletion" } else { "" };
            let message = format!("Topic '{name}' already exists{marked}.");
            Failure::new(ErrorCode::TopicAlreadyExists, message)
        }
        other => other.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_kafkas_rules() {
        for good in ["a", "A.b_c-9", &"x".repeat(249)] {
            assert_eq!(check_name(good), Ok(()));
        }
        for bad in ["", ".", "..", "a b", "ä", "a/b", &"x".repeat(250)] {
            assert_eq!(check_name(bad).unwrap_err().code, ErrorCode::InvalidTopicException);
        }
    }
}
