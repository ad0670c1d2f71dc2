//! Metadata (key 3), versions 0 to 13.
//!
//! Brokers, and the topics asked for: all (null; in version 0 an empty list), by name, or by id (10).
//! Missing topics are created when the broker's `auto.create.topics.enable` and, from version 4, the
//! request allow it, within the limits of [`super::create_topics`]. 1 adds racks, controller and
//! internal flags, 2 the cluster id, 5 offline replicas, 7 leader epochs, 8 authorized operations, 10
//! topic ids, 12 lookups by id alone, 13 an error of the whole.
//! Different from Kafka: a topic that is created on the way is answered complete, not with an error
//! first; authorized operations are never computed (no authorizer exists); a partition that can not be
//! opened has no leader (LEADER_NOT_AVAILABLE) and is an offline replica.

use std::sync::Arc;

use talos_common::{TopicId, TopicPartitionId};
use talos_meta::TopicState;
use talos_meta::topics_cache::CachedTopic;
use talos_protocol::messages::metadata::{
    MetadataRequestTopic, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use talos_protocol::messages::{MetadataRequest, MetadataResponse};
use talos_protocol::{ErrorCode, Str, Uuid};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::{distinct, text};
use crate::partitions::Slot;
use crate::topics::{TopicRef, is_internal};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: MetadataRequest,
) -> MetadataResponse {
    let may_create = shared.config.auto_create_topics_enable
        && (context.version < 4 || request.allow_auto_topic_creation);
    let asked = request.topics.filter(|topics| context.version > 0 || !topics.is_empty());
    let topics = match asked {
        None => all(shared),
        Some(asked) => {
            let asked = distinct(asked, |topic| (topic.topic_id, topic.name.clone()));
            let mut topics = Vec::with_capacity(asked.len());
            // Partitions that were created on the way.
            let mut created = 0;
            for topic in asked {
                let created = may_create.then_some(&mut created);
                topics.push(one(shared, topic, created).await);
            }
            topics
        }
    };
    let config = &shared.config;
    let broker = MetadataResponseBroker {
        node_id: config.node_id.0,
        host: text(&config.advertised_host),
        port: i32::from(config.advertised_port),
        rack: config.rack.as_deref().map(text),
    };
    MetadataResponse {
        brokers: vec![broker],
        cluster_id: Some(text(&shared.cluster_id.to_string())),
        controller_id: config.node_id.0,
        topics,
        ..Default::default()
    }
}

fn all(shared: &Shared) -> Vec<MetadataResponseTopic> {
    let image = shared.topics.image();
    let live = image.iter().filter(|cached| cached.topic.state == TopicState::Live);
    live.map(|cached| describe(shared, cached)).collect()
}

async fn one(
    shared: &Arc<Shared>,
    asked: MetadataRequestTopic,
    created: Option<&mut i64>,
) -> MetadataResponseTopic {
    let MetadataRequestTopic { topic_id, name } = asked;
    let found = match &name {
        Some(name) => by_name(shared, name, created).await,
        None => shared.topic(TopicRef::Id(TopicId(topic_id.0))),
    };
    match found {
        Ok(cached) => describe(shared, &cached),
        Err(failure) => MetadataResponseTopic {
            error_code: failure.code.code(),
            // Below version 12 a name is mandatory; such clients ask by name.
            name: Some(name.map(|name| name.detached()).unwrap_or_default()),
            topic_id,
            ..Default::default()
        },
    }
}

async fn by_name(
    shared: &Arc<Shared>,
    name: &Str,
    created: Option<&mut i64>,
) -> Result<Arc<CachedTopic>, Failure> {
    let found = shared.topic(TopicRef::Name(name));
    if found.is_ok() {
        return found;
    }
    crate::topics::check_name(name)?;
    let Some(created) = created else { return found };
    let together = *created + i64::from(shared.config.num_partitions);
    shared.check_request_partitions(together)?;
    *created = together;
    shared.auto_create(name).await.map_err(Failure::for_metadata)?;
    shared.topic(TopicRef::Name(name))
}

fn describe(shared: &Shared, cached: &CachedTopic) -> MetadataResponseTopic {
    let topic = &cached.topic;
    MetadataResponseTopic {
        name: Some(text(&topic.name)),
        topic_id: Uuid(topic.id.0),
        is_internal: is_internal(&topic.name),
        partitions: topic.partition_ids().map(|id| partition(shared, id)).collect(),
        ..Default::default()
    }
}

pub(crate) fn partition(shared: &Shared, id: TopicPartitionId) -> MetadataResponsePartition {
    let us = shared.config.node_id.0;
    let served = MetadataResponsePartition {
        partition_index: id.partition,
        replica_nodes: vec![us],
        ..Default::default()
    };
    let offline = |leader_epoch: i32| MetadataResponsePartition {
        error_code: ErrorCode::LeaderNotAvailable.code(),
        leader_id: -1,
        leader_epoch,
        offline_replicas: vec![us],
        ..served.clone()
    };
    match shared.partitions.get(id) {
        Some(Slot::Open(log)) => MetadataResponsePartition {
            leader_id: us,
            leader_epoch: log.leader_epoch().0,
            isr_nodes: vec![us],
            ..served
        },
        Some(Slot::Offline(slot)) => offline(slot.leader_epoch.map_or(-1, |epoch| epoch.0)),
        None => offline(-1),
    }
}
