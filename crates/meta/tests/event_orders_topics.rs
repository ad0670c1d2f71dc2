//! The event orders about topics (E-D1 to E-D3) and interrupted two-step changes (F21), by their ids.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use bytes::Bytes;
use common::{Counting, broker_dir, claim, client, cluster, new_topic};
use talos_common::{Env, TopicPartitionId};
use talos_meta::{
    ClaimError, Deletion, Error, LeadError, Leader, LostAnswer, Meta, MetaStore, RootChange,
    TopicError, TopicState,
};

#[tokio::test(start_paused = true)]
async fn e_d1_a_name_is_free_only_when_every_leader_let_go_or_is_dead_and_sealed() {
    let (tree, meta) = cluster(1).await;
    let (a, b) = (broker_dir(1, 1), broker_dir(2, 1));
    meta.register(a).await.unwrap();
    meta.register(b).await.unwrap();
    let (topic, _) = meta.create_topic(new_topic("t", 3)).await.unwrap();
    let tps: Vec<_> = topic.partition_ids().collect();
    let of_a = claim(&meta, a, tps[0]).await.lead(a);
    claim(&meta, b, tps[1]).await;
    meta.swap(&of_a, RootChange { expected: None, value: Bytes::new() }).await.unwrap();

    let marked = meta.begin_deletion(topic.id).await.unwrap();
    assert_eq!(marked.state, TopicState::Deleting);
    assert_eq!(meta.begin_deletion(topic.id).await.unwrap(), marked, "again is fine");
    let taken = client(&tree, 2).create_topic(new_topic("t", 1)).await;
    assert_eq!(taken, Err(TopicError::Exists { id: topic.id, deleting: true }));
    let waiting = meta.finish_deletion(topic.id, |_| false).await.unwrap();
    assert_eq!(waiting, Deletion::Waiting(vec![(tps[0], a), (tps[1], b)]));
    assert_eq!(meta.claim_many(a, &tps[2..]).await, [Err(ClaimError::Closed)], "nobody led it");
    assert!(matches!(meta.alter_configs(topic.id, |_| Ok(())).await, Err(TopicError::NotFound)));

    // B dies: dead is not enough, its directory must be sealed.
    meta.mark_dead(b, None).await.unwrap();
    meta.close(&of_a).await.unwrap();
    meta.close(&of_a).await.unwrap();
    let waiting = meta.finish_deletion(topic.id, |_| false).await.unwrap();
    assert_eq!(waiting, Deletion::Waiting(vec![(tps[1], b)]));
    assert!(client(&tree, 3).create_topic(new_topic("t", 1)).await.is_err());
    assert_eq!(meta.finish_deletion(topic.id, |dir| dir == b).await.unwrap(), Deletion::Done);
    assert_eq!(meta.finish_deletion(topic.id, |_| false).await.unwrap(), Deletion::Done);
    let (reborn, _) = client(&tree, 3).create_topic(new_topic("t", 1)).await.unwrap();
    assert_ne!(reborn.id, topic.id);
    // Whoever still believes in the old one learns it from every call.
    let late = meta.swap(&of_a, RootChange { expected: None, value: Bytes::new() }).await;
    assert!(matches!(late, Err(LeadError::Fenced { current: None })), "{late:?}");
    assert_eq!(meta.claim_many(a, &tps[..1]).await, [Err(ClaimError::NotFound)]);
}

#[tokio::test(start_paused = true)]
async fn e_d2_files_go_because_of_a_tombstone_never_because_a_topic_is_unknown() {
    let (_, meta) = cluster(4).await;
    let (topic, _) = meta.create_topic(new_topic("t", 2)).await.unwrap();
    assert!(!meta.is_tombstoned(topic.id).await.unwrap());
    meta.begin_deletion(topic.id).await.unwrap();
    assert!(meta.is_tombstoned(topic.id).await.unwrap(), "as durable as the deletion itself");
    let early = meta.remove_tombstone(topic.id).await;
    assert!(matches!(early, Err(TopicError::Invalid(_))), "{early:?}");
    meta.finish_deletion(topic.id, |_| false).await.unwrap();
    let tombstones = meta.tombstones().await.unwrap();
    assert_eq!((tombstones[0].id, tombstones[0].partitions), (topic.id, 2));
    assert_eq!(tombstones[0].name, "t");
    assert_eq!(tombstones[0].deleted_ms, 1_000_000);
    meta.remove_tombstone(topic.id).await.unwrap();
    meta.remove_tombstone(topic.id).await.unwrap();
    assert!(meta.tombstones().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn e_d3_ownership_records_are_there_before_the_count_and_never_by_a_claim() {
    let (tree, meta) = cluster(5).await;
    let a = broker_dir(1, 1);
    meta.register(a).await.unwrap();
    let (topic, _) = meta.create_topic(new_topic("t", 2)).await.unwrap();
    let new = TopicPartitionId { topic: topic.id, partition: 5 };
    assert_eq!(meta.claim_many(a, &[new]).await, [Err(ClaimError::NotFound)]);
    // Ended at every transaction: the count never covers a partition without a record.
    for transactions in 0..20 {
        let store = Counting::new(tree.handle());
        store.end_after(transactions);
        let grower = Meta::new(store, Env::simulated(6, 0));
        let grown = grower.add_partitions(topic.id, 2_500).await;
        let (now, _) = meta.topic(topic.id).await.unwrap().unwrap();
        for tp in now.partition_ids() {
            assert!(meta.ownership(tp).await.unwrap().is_some(), "{tp} of {}", now.partitions);
        }
        if grown.is_ok() {
            assert!(transactions > 1, "one transaction cannot do it");
            assert_eq!(now.partitions, 2_500);
            return;
        }
        assert_eq!(now.partitions, 2);
    }
    panic!("what an interrupted call left is not used");
}

#[tokio::test(start_paused = true)]
async fn e_d3_a_deletion_takes_records_beyond_the_count_along_and_stops_a_growth() {
    let (tree, meta) = cluster(7).await;
    let (topic, _) = meta.create_topic(new_topic("t", 1)).await.unwrap();
    let store = Counting::new(tree.handle());
    store.end_after(1);
    let grower = Meta::new(store, Env::simulated(8, 0));
    assert!(grower.add_partitions(topic.id, 1_500).await.is_err());
    let beyond = TopicPartitionId { topic: topic.id, partition: 700 };
    assert!(meta.ownership(beyond).await.unwrap().is_some(), "left by the interrupted growth");
    meta.begin_deletion(topic.id).await.unwrap();
    assert_eq!(meta.add_partitions(topic.id, 10).await, Err(TopicError::NotFound));
    assert_eq!(meta.finish_deletion(topic.id, |_| false).await.unwrap(), Deletion::Done);
    assert_no_trace(&meta).await;
}

/// No ownership record, root, name or creation is left; only tombstones.
async fn assert_no_trace(meta: &Meta) {
    for tree in ["/ownership", "/roots", "/names", "/topics"] {
        for shard in meta.store().children(tree).await.unwrap() {
            let left = meta.store().children(&format!("{tree}/{shard}")).await.unwrap();
            assert!(left.is_empty(), "{tree}/{shard}: {left:?}");
        }
    }
    assert!(meta.store().children("/creations").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn f21_an_interrupted_creation_is_invisible_undone_and_can_be_repeated() {
    let mut finished = false;
    for transactions in 0..20 {
        let (tree, meta) = cluster(9).await;
        let store = Counting::new(tree.handle());
        store.end_after(transactions);
        let creator = Meta::new(store, Env::simulated(10, 0));
        let created = creator.create_topic(new_topic("t", 2_500)).await;
        let visible = meta.topic_by_name("t").await.unwrap();
        assert_eq!(created.is_ok(), visible.is_some(), "after {transactions} transactions");
        assert_eq!(meta.topics().await.unwrap().len(), usize::from(created.is_ok()));
        if let Ok((topic, _)) = created {
            assert_eq!(meta.repair_creations().await.unwrap(), 0);
            for tp in topic.partition_ids() {
                assert!(meta.ownership(tp).await.unwrap().is_some());
            }
            finished = true;
            break;
        }
        // The retry does not need the repair.
        meta.create_topic(new_topic("t", 1)).await.unwrap();
        let id = meta.topic_by_name("t").await.unwrap().unwrap().0.id;
        assert_eq!(meta.repair_creations().await.unwrap(), usize::from(transactions > 0));
        assert_eq!(meta.repair_creations().await.unwrap(), 0);
        meta.begin_deletion(id).await.unwrap();
        meta.finish_deletion(id, |_| false).await.unwrap();
        assert_no_trace(&meta).await;
    }
    assert!(finished, "a creation of 2,500 partitions takes more than 20 transactions");
}

#[tokio::test(start_paused = true)]
async fn f21_an_interrupted_deletion_is_finished_by_the_next() {
    for transactions in 0..40 {
        let (tree, meta) = cluster(11).await;
        let (topic, _) = meta.create_topic(new_topic("t", 1_200)).await.unwrap();
        let store = Counting::new(tree.handle());
        store.end_after(transactions);
        let deleter = Meta::new(store, Env::simulated(12, 0));
        let begun = deleter.begin_deletion(topic.id).await;
        let done = match begun {
            Ok(_) => deleter.finish_deletion(topic.id, |_| false).await.is_ok(),
            Err(_) => false,
        };
        let name_is_free = meta.topic_by_name("t").await.unwrap().is_none();
        assert_eq!(done, name_is_free, "after {transactions} transactions");
        if done {
            return;
        }
        meta.begin_deletion(topic.id).await.unwrap();
        assert_eq!(meta.finish_deletion(topic.id, |_| false).await.unwrap(), Deletion::Done);
        assert_no_trace(&meta).await;
        assert!(meta.is_tombstoned(topic.id).await.unwrap());
    }
    panic!("a deletion of 1,200 partitions takes more than 40 transactions");
}

#[tokio::test(start_paused = true)]
async fn f21_an_interrupted_repair_is_finished_by_the_next() {
    for transactions in 0..20 {
        let (tree, meta) = cluster(13).await;
        let store = Counting::new(tree.handle());
        store.end_after(3);
        let creator = Meta::new(store, Env::simulated(14, 0));
        creator.create_topic(new_topic("t", 2_500)).await.unwrap_err();
        let store = Counting::new(tree.handle());
        store.end_after(transactions);
        let repairer = Meta::new(store, Env::simulated(15, 0));
        let repaired = repairer.repair_creations().await.is_ok();
        meta.repair_creations().await.unwrap();
        assert_no_trace(&meta).await;
        if repaired {
            return;
        }
    }
    panic!("a repair takes more than 20 transactions");
}

#[tokio::test(start_paused = true)]
async fn two_creators_of_one_name_give_one_topic() {
    let (tree, meta) = cluster(16).await;
    tree.faults().set_slow(1_000_000, 1..=20);
    let (one, two) = (client(&tree, 17), client(&tree, 18));
    let (one, two) =
        tokio::join!(one.create_topic(new_topic("t", 10)), two.create_topic(new_topic("t", 20)));
    assert!(tree.faults().counts().slow > 0);
    tree.faults().heal();
    let (winner, loser) = if one.is_ok() { (one, two) } else { (two, one) };
    let (topic, _) = winner.unwrap();
    assert_eq!(loser, Err(TopicError::Exists { id: topic.id, deleting: false }));
    assert_eq!(meta.topic_by_name("t").await.unwrap().unwrap().0, topic);
    assert_eq!(meta.repair_creations().await.unwrap(), 0, "the loser cleaned up");
    meta.begin_deletion(topic.id).await.unwrap();
    meta.finish_deletion(topic.id, |_| false).await.unwrap();
    assert_no_trace(&meta).await;
}

#[tokio::test(start_paused = true)]
async fn lost_answers_in_creation_change_and_deletion_end_as_one_topic() {
    for fate in [LostAnswer::Applied, LostAnswer::Dropped, LostAnswer::Late(1), LostAnswer::Late(4)]
    {
        let (tree, meta) = cluster(19).await;
        let faults = tree.faults();
        // Each step in turn.
        for step in 0..4 {
            let store = Counting::new(tree.handle());
            let unlucky = Unlucky::new(store.clone(), &tree, step, fate);
            let meta = Meta::new(unlucky, Env::simulated(20 + step as u64, 0));
            let (topic, _) = meta.create_topic(new_topic("t", 3)).await.unwrap();
            faults.lose_next(fate);
            let retention = |configs: &mut std::collections::BTreeMap<String, String>| {
                configs.insert("retention.ms".into(), "5".into());
                Ok(())
            };
            let (_, version) = meta.alter_configs(topic.id, retention).await.unwrap();
            assert_eq!(version.0, 1, "{fate:?} at {step}");
            faults.lose_next(fate);
            meta.begin_deletion(topic.id).await.unwrap();
            faults.lose_next(fate);
            assert_eq!(meta.finish_deletion(topic.id, |_| false).await.unwrap(), Deletion::Done);
        }
        let counts = faults.counts();
        assert!(counts.lost_applied + counts.lost_dropped + counts.lost_late >= 15, "{counts:?}");
        for _ in 0..10 {
            meta.cluster().await.unwrap();
        }
        meta.repair_creations().await.unwrap();
        assert_no_trace(&meta).await;
        assert_eq!(meta.tombstones().await.unwrap().len(), 4);
    }
}

#[tokio::test(start_paused = true)]
async fn e_w4_a_first_note_of_a_creation_that_arrives_last_does_not_undo_the_topic() {
    let (tree, meta) = cluster(24).await;
    tree.faults().lose_next(LostAnswer::Late(8));
    let (topic, _) = meta.create_topic(new_topic("t", 3)).await.unwrap();
    for _ in 0..10 {
        meta.cluster().await.unwrap();
    }
    assert_eq!(meta.store().children("/creations").await.unwrap(), [topic.id.hex().to_string()]);
    assert_eq!(meta.repair_creations().await.unwrap(), 1);
    for tp in topic.partition_ids() {
        assert!(meta.ownership(tp).await.unwrap().is_some());
    }
    assert!(meta.store().children("/creations").await.unwrap().is_empty());
}

/// Loses the answer of the transaction with this index.
#[derive(Debug)]
struct Unlucky {
    inner: std::sync::Arc<Counting>,
    faults: talos_meta::MetaFaults,
    index: usize,
    fate: LostAnswer,
}

impl Unlucky {
    fn new(
        inner: std::sync::Arc<Counting>,
        tree: &talos_meta::MemoryMeta,
        index: usize,
        fate: LostAnswer,
    ) -> std::sync::Arc<Self> {
        std::sync::Arc::new(Self { inner, faults: tree.faults(), index, fate })
    }
}

use talos_meta::store::{BoxFuture, Node, Op, Result, Version, Watch};

impl MetaStore for Unlucky {
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>> {
        self.inner.get(path)
    }

    fn children(&self, path: &str) -> BoxFuture<'_, Result<Vec<String>>> {
        self.inner.children(path)
    }

    fn read_children(&self, path: &str) -> BoxFuture<'_, Result<Vec<(String, Node)>>> {
        self.inner.read_children(path)
    }

    fn transact(&self, ops: Vec<Op>) -> BoxFuture<'_, Result<Vec<Version>>> {
        if self.inner.transactions() == self.index {
            self.faults.lose_next(self.fate);
        }
        self.inner.transact(ops)
    }

    fn watch(&self, prefix: &str) -> BoxFuture<'_, Result<Box<dyn Watch>>> {
        self.inner.watch(prefix)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sync()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

#[tokio::test(start_paused = true)]
async fn without_room_nothing_changes_and_it_says_so() {
    let (tree, meta) = cluster(21).await;
    let a = broker_dir(1, 1);
    meta.register(a).await.unwrap();
    let (topic, _) = meta.create_topic(new_topic("t", 1)).await.unwrap();
    let tps: Vec<_> = topic.partition_ids().collect();
    tree.faults().set_full(true);
    let created = meta.create_topic(new_topic("u", 1)).await;
    assert!(matches!(created, Err(TopicError::Store(Error::Full(_)))), "{created:?}");
    let claims = meta.claim_many(a, &tps).await;
    assert!(matches!(claims[0], Err(ClaimError::Store(Error::Full(_)))), "{claims:?}");
    assert!(tree.faults().counts().full >= 2);
    tree.faults().heal();
    assert_eq!(meta.ownership(tps[0]).await.unwrap().unwrap().0.leader, Leader::Released);
    meta.create_topic(new_topic("u", 1)).await.unwrap();
    assert_eq!(meta.topics().await.unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn names_and_counts_that_kafka_refuses_are_refused() {
    let (_, meta) = cluster(22).await;
    for name in ["", ".", "..", "a/b", "a b", "\u{e9}", &"x".repeat(250)] {
        let refused = meta.create_topic(new_topic(name, 1)).await;
        assert!(matches!(refused, Err(TopicError::Invalid(_))), "{name:?}: {refused:?}");
    }
    for partitions in [i32::MIN, -1, 0, talos_meta::topics::PARTITIONS + 1] {
        let refused = meta.create_topic(new_topic("t", partitions)).await;
        assert!(matches!(refused, Err(TopicError::Invalid(_))), "{partitions}: {refused:?}");
    }
    meta.create_topic(new_topic(&"x".repeat(249), 1)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_damaged_record_is_corrupt_and_names_its_path() {
    let (tree, meta) = cluster(23).await;
    meta.register(broker_dir(1, 1)).await.unwrap();
    let (topic, _) = meta.create_topic(new_topic("t", 1)).await.unwrap();
    let tp = topic.partition_ids().next().unwrap();
    let of_topic = format!("/topics/{:02x}/{}", topic.id.0[0], topic.id.hex());
    assert!(tree.corrupt(&of_topic, |bytes| bytes[0] = 9));
    let read = meta.topic(topic.id).await;
    let Err(Error::Corrupt(text)) = read else { panic!("{read:?}") };
    assert!(text.contains(&of_topic) && text.contains("version is 9"), "{text}");
    let record = format!("/ownership/{:02x}/{}.0/0", topic.id.0[0], topic.id.hex());
    assert!(tree.corrupt(&record, |bytes| bytes.truncate(3)));
    let claims = meta.claim_many(broker_dir(1, 1), &[tp]).await;
    assert!(
        matches!(&claims[0], Err(ClaimError::Store(Error::Corrupt(text))) if text.contains(&record))
    );
    assert!(matches!(meta.named_epochs().await, Err(Error::Corrupt(_))), "never taken for absence");
}
