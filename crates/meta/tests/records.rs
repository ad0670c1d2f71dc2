//! The records on the memory tree: what a broker does with them, end to end.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::collections::BTreeMap;

use bytes::Bytes;
use common::{broker_dir, cluster, new_topic};
use talos_common::BrokerId;
use talos_meta::{
    ClaimError, Deletion, LeadError, Leader, RootChange, TopicError, TopicState, TopicsCache,
};

#[tokio::test(start_paused = true)]
async fn a_topic_is_created_claimed_written_and_deleted() {
    let (_, meta) = cluster(1).await;
    let id = meta.cluster().await.unwrap().unwrap().id;
    assert_eq!(meta.create_cluster().await.unwrap().id, id, "created once");
    let a = broker_dir(1, 1);
    assert_eq!(meta.next_epoch(BrokerId(1)).await.unwrap(), a.epoch);
    assert_eq!(meta.register(a).await.unwrap().previous, None);

    let (topic, _) = meta.create_topic(new_topic("events", 3)).await.unwrap();
    let again = meta.create_topic(new_topic("events", 1)).await;
    assert_eq!(again, Err(TopicError::Exists { id: topic.id, deleting: false }));

    let partitions: Vec<_> = topic.partition_ids().collect();
    let claims = meta.claim_many(a, &partitions).await;
    let claim = claims[0].clone().unwrap();
    assert_eq!((claim.leader_epoch.0, claim.inherits.len(), claim.root.clone()), (0, 0, None));

    let lead = claim.lead(a);
    let first = RootChange { expected: None, value: Bytes::from_static(b"one") };
    let swapped = meta.swap(&lead, first.clone()).await.unwrap();
    let stale = meta.swap(&lead, first).await.unwrap_err();
    assert!(
        matches!(stale, LeadError::Stale { current: Some(node) } if node.version == swapped.root)
    );

    meta.begin_deletion(topic.id).await.unwrap();
    let waiting = meta.finish_deletion(topic.id, |_| false).await.unwrap();
    assert!(matches!(waiting, Deletion::Waiting(led) if led.len() == 3));
    for claim in claims {
        meta.close(&claim.unwrap().lead(a)).await.unwrap();
    }
    assert_eq!(meta.finish_deletion(topic.id, |_| false).await.unwrap(), Deletion::Done);
    assert_eq!(meta.topic_by_name("events").await.unwrap(), None);
    assert!(meta.is_tombstoned(topic.id).await.unwrap());
    assert_eq!(meta.claim_many(a, &partitions[..1]).await, vec![Err(ClaimError::NotFound)]);
    let (second, _) = meta.create_topic(new_topic("events", 1)).await.unwrap();
    assert_ne!(second.id, topic.id);
}

#[tokio::test(start_paused = true)]
async fn configs_change_by_compare_and_set_and_partitions_are_added() {
    let (_, meta) = cluster(2).await;
    let (topic, _) = meta.create_topic(new_topic("t", 2)).await.unwrap();
    let set = |configs: &mut BTreeMap<String, String>| {
        configs.insert("retention.ms".into(), "1000".into());
        Ok(())
    };
    let (changed, version) = meta.alter_configs(topic.id, set).await.unwrap();
    assert_eq!(version.0, 1);
    assert_eq!(meta.topic(topic.id).await.unwrap(), Some((changed.clone(), version)));
    assert!(matches!(meta.add_partitions(topic.id, 2).await, Err(TopicError::Invalid(_))));
    let (grown, _) = meta.add_partitions(topic.id, 2_500).await.unwrap();
    assert_eq!((grown.partitions, &grown.configs), (2_500, &changed.configs));
    for tp in topic.partition_ids().chain(grown.id_range(2_400)) {
        assert_eq!(meta.ownership(tp).await.unwrap().unwrap().0.leader, Leader::Released);
    }
}

trait IdRange {
    fn id_range(&self, from: i32) -> Vec<talos_common::TopicPartitionId>;
}

impl IdRange for talos_meta::Topic {
    fn id_range(&self, from: i32) -> Vec<talos_common::TopicPartitionId> {
        self.partition_ids().filter(|tp| tp.partition >= from).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn the_cache_follows_creation_change_and_deletion() {
    let (tree, meta) = cluster(3).await;
    let (first, _) = meta.create_topic(new_topic("first", 1)).await.unwrap();
    let cache = TopicsCache::start(&meta).await.unwrap();
    assert_eq!(cache.image().live("first").unwrap().topic, first);

    let other = common::client(&tree, 4);
    let (second, _) = other.create_topic(new_topic("second", 1)).await.unwrap();
    let mut changes = cache.subscribe();
    changes.wait_for(|image| image.by_id(second.id).is_some()).await.unwrap();
    assert_eq!(cache.image().len(), 2);

    other.begin_deletion(first.id).await.unwrap();
    cache.refresh(first.id).await.unwrap();
    let image = cache.image();
    assert!(image.live("first").is_none());
    assert_eq!(image.by_name("first").unwrap().topic.state, TopicState::Deleting);
    other.finish_deletion(first.id, |_| false).await.unwrap();
    let (reborn, _) = other.create_topic(new_topic("first", 1)).await.unwrap();
    changes.wait_for(|image| image.by_id(first.id).is_none()).await.unwrap();
    changes
        .wait_for(|image| image.live("first").is_some_and(|c| c.topic.id == reborn.id))
        .await
        .unwrap();

    // Cut off, it misses events; connected again, it reads everything.
    let state = tree.snapshot();
    other.create_topic(new_topic("third", 1)).await.unwrap();
    changes.wait_for(|image| image.len() == 3).await.unwrap();
    tree.restore(&state);
    changes.wait_for(|image| image.len() == 2).await.unwrap();
    meta.store();
}
