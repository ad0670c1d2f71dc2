//! The event orders about ownership and roots that concern metadata, by their ids.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use bytes::Bytes;
use common::{broker_dir, claim, client, cluster, new_topic};
use talos_common::{BrokerDir, LeaderEpoch, TopicPartitionId};
use talos_meta::{
    BrokerError, ClaimError, Error, Inherited, LeadError, Leader, LostAnswer, MemoryMeta, Meta,
    RootChange, Version,
};

fn pair(dir: BrokerDir, leader_epoch: i32) -> Inherited {
    Inherited { dir, leader_epoch: LeaderEpoch(leader_epoch) }
}

fn change(expected: Option<i32>, value: &'static str) -> RootChange {
    RootChange { expected: expected.map(Version), value: Bytes::from_static(value.as_bytes()) }
}

/// A cluster with brokers 1, 2 and 3 registered at epoch 1, and a topic.
async fn scene(seed: u64, partitions: i32) -> (MemoryMeta, Meta, Vec<TopicPartitionId>) {
    let (tree, meta) = cluster(seed).await;
    for broker in 1..=3 {
        meta.register(broker_dir(broker, 1)).await.unwrap();
    }
    let (topic, _) = meta.create_topic(new_topic("t", partitions)).await.unwrap();
    (tree, meta, topic.partition_ids().collect())
}

const A: fn() -> BrokerDir = || broker_dir(1, 1);
const B: fn() -> BrokerDir = || broker_dir(2, 1);
const C: fn() -> BrokerDir = || broker_dir(3, 1);

#[tokio::test(start_paused = true)]
async fn e_w1_a_directory_is_needed_while_any_record_names_it_as_leader_or_inherited() {
    let (_, meta, tps) = scene(1, 2).await;
    let (p, q) = (tps[0], tps[1]);
    meta.claim_many(A(), &tps).await;
    meta.mark_dead(A(), None).await.unwrap();
    let of_p = claim(&meta, B(), p).await;
    assert_eq!(of_p.inherits, [pair(A(), 0)]);
    meta.drop_inherited(&of_p.lead(B()), &of_p.inherits).await.unwrap();
    assert!(meta.names_epoch(A()).await.unwrap(), "Q's record still names A as leader");
    let of_q = claim(&meta, C(), q).await;
    assert_eq!(of_q.inherits, [pair(A(), 0)], "nothing of the tail is forgotten");
    assert!(meta.names_epoch(A()).await.unwrap(), "Q inherits A");
    meta.drop_inherited(&of_q.lead(C()), &of_q.inherits).await.unwrap();
    assert!(!meta.names_epoch(A()).await.unwrap());
    assert_eq!(meta.named_epochs().await.unwrap().into_iter().collect::<Vec<_>>(), [B(), C()]);
}

#[tokio::test(start_paused = true)]
async fn e_w1_the_dead_name_nothing_new_even_with_a_claim_that_arrives_late() {
    let (tree, meta, tps) = scene(2, 1).await;
    let handle = std::sync::Arc::new(tree.handle());
    let of_a = Meta::new(handle.clone(), talos_common::Env::simulated(3, 0));
    tree.faults().lose_next(LostAnswer::Late(60));
    let cut_off = async {
        // After the claim was sent, before its answer is asked for again.
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        handle.set_connected(false);
    };
    let (claims, ()) = tokio::join!(of_a.claim_many(A(), &tps), cut_off);
    assert!(matches!(claims[0], Err(ClaimError::Store(Error::Uncertain(_)))), "{claims:?}");
    meta.mark_dead(A(), None).await.unwrap();
    for _ in 0..100 {
        meta.cluster().await.unwrap();
    }
    assert_eq!(tree.faults().counts().lost_late, 1);
    assert!(!meta.names_epoch(A()).await.unwrap());
    handle.set_connected(true);
    assert_eq!(of_a.claim_many(A(), &tps).await, [Err(ClaimError::NotAlive)]);
}

#[tokio::test(start_paused = true)]
async fn e_w2_a_directory_that_led_twice_is_inherited_per_leader_epoch_each_pair_once() {
    let (_, meta, tps) = scene(4, 1).await;
    let first = claim(&meta, A(), tps[0]).await;
    let second = claim(&meta, A(), tps[0]).await;
    assert_eq!((first.leader_epoch.0, second.leader_epoch.0), (0, 1));
    assert_eq!(second.inherits, [pair(A(), 0)]);
    meta.mark_dead(A(), None).await.unwrap();
    let third = claim(&meta, B(), tps[0]).await;
    assert_eq!(third.inherits, [pair(A(), 0), pair(A(), 1)]);
    assert_eq!(third.leader_epoch.0, 2);
    let old = meta.drop_inherited(&second.lead(A()), &[]).await;
    assert!(matches!(old, Err(LeadError::Fenced { current: Some(_) })), "{old:?}");
}

#[tokio::test(start_paused = true)]
async fn e_w3_a_scan_for_deletion_sees_what_others_changed_before_it() {
    let (tree, meta, tps) = scene(5, 1).await;
    let handle = std::sync::Arc::new(tree.handle());
    let cleaner = Meta::new(handle.clone(), talos_common::Env::simulated(6, 0));
    handle.lag();
    claim(&meta, A(), tps[0]).await;
    let stale = cleaner.ownership(tps[0]).await.unwrap().unwrap().0;
    assert_eq!(stale.leader, Leader::Released, "the client lags behind");
    assert!(tree.faults().counts().stale_reads > 0);
    assert!(cleaner.names_epoch(A()).await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn e_w3_metadata_that_comes_back_older_gives_no_reason_to_delete() {
    let (tree, meta, _) = scene(7, 1).await;
    let older = tree.snapshot();
    let d = broker_dir(9, 1);
    meta.register(d).await.unwrap();
    let (topic, _) = meta.create_topic(new_topic("younger", 1)).await.unwrap();
    tree.restore(&older);
    assert!(!meta.is_dead(d).await.unwrap(), "unknown is not dead");
    assert!(!meta.is_tombstoned(topic.id).await.unwrap(), "unknown is not deleted");
    let tp = topic.partition_ids().next().unwrap();
    assert_eq!(meta.claim_many(A(), &[tp]).await, [Err(ClaimError::NotFound)]);
}

#[tokio::test(start_paused = true)]
async fn e_w4_a_release_of_unknown_outcome_is_never_taken_back() {
    let (tree, meta, tps) = scene(8, 1).await;
    let handle = std::sync::Arc::new(tree.handle());
    let of_a = Meta::new(handle.clone(), talos_common::Env::simulated(9, 0));
    let lead = claim(&of_a, A(), tps[0]).await.lead(A());
    tree.faults().lose_next(LostAnswer::Late(60));
    let cut_off = async {
        tokio::time::sleep(std::time::Duration::from_millis(1)).await;
        handle.set_connected(false);
    };
    let (released, ()) = tokio::join!(of_a.release(&lead, Some(change(None, "end"))), cut_off);
    assert!(matches!(released, Err(LeadError::Store(Error::Uncertain(_)))), "{released:?}");
    // A read shows it unchanged; that must not be believed.
    let record = meta.ownership(tps[0]).await.unwrap().unwrap().0;
    assert_eq!(record.leader, Leader::Broker(A()));
    handle.set_connected(true);
    // Leading again takes a claim, which the late release cannot undo.
    let again = claim(&of_a, A(), tps[0]).await;
    assert_eq!((again.leader_epoch.0, &again.inherits[..]), (1, &[pair(A(), 0)][..]));
    for _ in 0..100 {
        meta.cluster().await.unwrap();
    }
    let record = meta.ownership(tps[0]).await.unwrap().unwrap().0;
    assert_eq!(record.leader, Leader::Broker(A()));
    assert_eq!(meta.root(tps[0]).await.unwrap(), None, "nor did it bring its root");
    assert!(matches!(of_a.release(&lead, None).await, Err(LeadError::Fenced { .. })));
}

#[tokio::test(start_paused = true)]
async fn e_w4_every_unknown_outcome_ends_as_one_change_with_the_same_value() {
    let fates =
        [LostAnswer::Applied, LostAnswer::Dropped, LostAnswer::Late(1), LostAnswer::Late(3)];
    for (index, fate) in fates.into_iter().enumerate() {
        let (tree, meta, tps) = scene(10 + index as u64, 1).await;
        let faults = tree.faults();
        faults.lose_next(fate);
        let claimed = claim(&meta, A(), tps[0]).await;
        assert_eq!((claimed.leader_epoch.0, claimed.version), (0, Version(1)), "{fate:?}");
        let lead = claimed.lead(A());
        faults.lose_next(fate);
        let first = meta.swap(&lead, change(None, "one")).await.unwrap();
        faults.lose_next(fate);
        let second = meta.swap(&lead, change(Some(0), "two")).await.unwrap();
        assert_eq!((first.root, second.root), (Version(0), Version(1)), "{fate:?}");
        faults.lose_next(fate);
        meta.release(&lead, Some(change(Some(1), "end"))).await.unwrap();
        meta.release(&lead, Some(change(Some(1), "end"))).await.unwrap();
        for _ in 0..10 {
            meta.cluster().await.unwrap();
        }
        let root = meta.root(tps[0]).await.unwrap().unwrap();
        assert_eq!((&root.value[..], root.version), (&b"end"[..], Version(2)), "{fate:?}");
        let (record, version) = meta.ownership(tps[0]).await.unwrap().unwrap();
        assert_eq!((record.leader, version), (Leader::Released, Version(2)), "{fate:?}");
        let counts = faults.counts();
        assert_eq!(counts.lost_applied + counts.lost_dropped + counts.lost_late, 4);
    }
}

#[tokio::test(start_paused = true)]
async fn e_w4_two_unknown_answers_in_a_row_are_still_one_change() {
    let (tree, meta, tps) = scene(20, 40).await;
    for fates in
        [[LostAnswer::Late(2), LostAnswer::Applied], [LostAnswer::Dropped, LostAnswer::Late(1)]]
    {
        let epoch = meta.ownership(tps[0]).await.unwrap().unwrap().0.leader_epoch;
        fates.into_iter().for_each(|fate| tree.faults().lose_next(fate));
        let claims = meta.claim_many(A(), &tps).await;
        let expected = LeaderEpoch(epoch.map_or(0, |epoch| epoch.0 + 1));
        assert!(claims.iter().all(|claim| claim.as_ref().unwrap().leader_epoch == expected));
    }
}

#[tokio::test(start_paused = true)]
async fn e_w5_dead_is_for_ever_and_a_dead_epoch_cannot_register() {
    let (_, meta, _) = scene(21, 1).await;
    assert!(!meta.is_dead(A()).await.unwrap());
    meta.mark_dead(A(), None).await.unwrap();
    assert!(meta.is_dead(A()).await.unwrap());
    let again = meta.register(A()).await;
    assert!(matches!(again, Err(BrokerError::Superseded { .. })), "{again:?}");
    let next = broker_dir(1, meta.next_epoch(A().broker).await.unwrap().0);
    assert_eq!(next, broker_dir(1, 2));
    meta.register(next).await.unwrap();
    assert!(meta.is_dead(A()).await.unwrap(), "moved on is dead too");
    // The late decider about the old epoch does not touch the new one.
    meta.mark_dead(A(), None).await.unwrap();
    assert!(!meta.is_dead(next).await.unwrap());
    let unknown = meta.mark_dead(broker_dir(1, 7), None).await;
    assert!(matches!(unknown, Err(Error::Invalid(_))), "{unknown:?}");
}

#[tokio::test(start_paused = true)]
async fn e_w5_a_registration_of_unknown_outcome_is_told_from_another_process() {
    for fate in [LostAnswer::Applied, LostAnswer::Dropped, LostAnswer::Late(1)] {
        let (tree, meta, _) = scene(22, 1).await;
        tree.faults().lose_next(fate);
        meta.register(broker_dir(1, 2)).await.unwrap();
        let twin = client(&tree, 99).register(broker_dir(1, 2)).await;
        assert!(matches!(twin, Err(BrokerError::Superseded { .. })), "{fate:?}: {twin:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn e_w6_a_second_process_with_the_same_id_ends_the_first() {
    let (tree, meta, tps) = scene(23, 1).await;
    let lead = claim(&meta, A(), tps[0]).await.lead(A());
    let second = client(&tree, 24);
    let registered = second.register(broker_dir(1, 2)).await.unwrap();
    assert_eq!(registered.previous.unwrap().epoch, A().epoch);
    assert_eq!(meta.claim_many(A(), &tps).await, [Err(ClaimError::NotAlive)]);
    let claimed = claim(&second, broker_dir(1, 2), tps[0]).await;
    assert_eq!(claimed.inherits, [pair(A(), 0)], "its own old directory is inherited like any");
    let fenced = meta.swap(&lead, change(None, "zombie")).await;
    assert!(matches!(fenced, Err(LeadError::Fenced { .. })), "{fenced:?}");
}

#[tokio::test(start_paused = true)]
async fn e_w8_a_claim_moves_the_old_leader_into_inherits_at_once_along_a_chain() {
    let (_, meta, tps) = scene(25, 1).await;
    claim(&meta, A(), tps[0]).await;
    let early = meta.claim_many(B(), &tps).await;
    assert_eq!(early, [Err(ClaimError::Led(A()))], "not dead, not claimed");
    meta.mark_dead(A(), None).await.unwrap();
    claim(&meta, B(), tps[0]).await;
    meta.mark_dead(B(), None).await.unwrap();
    let third = claim(&meta, C(), tps[0]).await;
    assert_eq!(third.inherits, [pair(A(), 0), pair(B(), 1)], "oldest first");
}

#[tokio::test(start_paused = true)]
async fn e_w9_a_released_record_keeps_what_it_inherits() {
    let (_, meta, tps) = scene(26, 1).await;
    claim(&meta, A(), tps[0]).await;
    meta.mark_dead(A(), None).await.unwrap();
    let lead = claim(&meta, B(), tps[0]).await.lead(B());
    meta.release(&lead, None).await.unwrap();
    let third = claim(&meta, C(), tps[0]).await;
    assert_eq!(third.inherits, [pair(A(), 0)], "A's, and not B's, who released");
    assert_eq!(third.leader_epoch.0, 2);
}

#[tokio::test(start_paused = true)]
async fn e_w11_stopping_is_one_change_and_the_clean_stop_survives_registrations() {
    let (_, meta, tps) = scene(27, 5).await;
    meta.claim_many(A(), &tps).await;
    let before = meta.broker(A().broker).await.unwrap().unwrap().1;
    let ends = Bytes::from_static(b"lane 0 ends at 4711");
    meta.mark_dead(A(), Some(ends.clone())).await.unwrap();
    meta.mark_dead(A(), Some(Bytes::from_static(b"another"))).await.unwrap();
    let (record, after) = meta.broker(A().broker).await.unwrap().unwrap();
    assert_eq!(after.0, before.0 + 1);
    assert_eq!(record.clean_stop(A().epoch), Some(&ends));
    // Killed twice before the old directory is read: still there (E-J15).
    for epoch in 2..=3 {
        meta.register(broker_dir(1, epoch)).await.unwrap();
    }
    let record = meta.broker(A().broker).await.unwrap().unwrap().0;
    assert_eq!(record.clean_stop(A().epoch), Some(&ends));
    // Its partitions stayed its own.
    let claims = meta.claim_many(broker_dir(1, 3), &tps).await;
    assert!(claims.iter().all(|claim| claim.as_ref().unwrap().inherits == [pair(A(), 0)]));
    meta.forget_clean_stop(A()).await.unwrap();
    assert!(meta.broker(A().broker).await.unwrap().unwrap().0.clean_stops.is_empty());
    let large = Bytes::from(vec![0; talos_meta::brokers::CLEAN_STOP_BYTES + 1]);
    let refused = meta.mark_dead(broker_dir(1, 3), Some(large)).await;
    assert!(matches!(refused, Err(Error::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn e_w12_ten_thousand_claims_are_few_transactions_folders_are_small_roots_unwatched() {
    let (tree, meta, tps) = scene(28, 10_000).await;
    let watched = meta.store().watch("/ownership").await.unwrap();
    let counted = common::Counting::new(tree.handle());
    let claimer = Meta::new(counted.clone(), talos_common::Env::simulated(29, 0));
    let claims = claimer.claim_many(A(), &tps).await;
    assert!(claims.iter().all(Result::is_ok));
    assert!(counted.transactions() <= 100, "{} transactions", counted.transactions());
    for shard in meta.store().children("/ownership").await.unwrap() {
        let shard = format!("/ownership/{shard}");
        for folder in meta.store().children(&shard).await.unwrap() {
            let children = meta.store().children(&format!("{shard}/{folder}")).await.unwrap();
            assert!(children.len() <= 1_000);
        }
    }
    drop(watched);
    let mut watch = meta.store().watch("/ownership").await.unwrap();
    let lead = claims[0].as_ref().unwrap().lead(A());
    meta.swap(&lead, change(None, "root")).await.unwrap();
    meta.release(&lead, None).await.unwrap();
    let event = watch.next().await.unwrap();
    assert!(matches!(event, talos_meta::store::WatchEvent::Changed(path) if path.ends_with("/0")));
    let more = tokio::time::timeout(std::time::Duration::from_secs(1), watch.next()).await;
    assert!(more.is_err(), "one event for the release, none for the root: {more:?}");
}

#[tokio::test(start_paused = true)]
async fn e_w15_pairs_leave_inherits_one_by_one() {
    let (_, meta, tps) = scene(30, 1).await;
    for _ in 0..4 {
        claim(&meta, A(), tps[0]).await;
    }
    let last = claim(&meta, A(), tps[0]).await;
    let lead = last.lead(A());
    meta.drop_inherited(&lead, &[pair(A(), 1), pair(A(), 3)]).await.unwrap();
    let (record, version) = meta.ownership(tps[0]).await.unwrap().unwrap();
    assert_eq!(record.inherits, [pair(A(), 0), pair(A(), 2)]);
    assert_eq!(meta.drop_inherited(&lead, &[pair(A(), 1)]).await.unwrap(), version, "no change");
    assert_eq!(meta.drop_inherited(&lead, &record.inherits).await.unwrap().0, version.0 + 1);
}

#[tokio::test(start_paused = true)]
async fn e_j4_from_the_instant_of_a_claim_the_old_leader_can_change_nothing() {
    let (_, meta, tps) = scene(31, 3).await;
    let leads: Vec<_> =
        meta.claim_many(A(), &tps).await.into_iter().map(|c| c.unwrap().lead(A())).collect();
    meta.swap(&leads[0], change(None, "of A")).await.unwrap();
    meta.mark_dead(A(), None).await.unwrap();
    let new = claim(&meta, B(), tps[0]).await;
    assert_eq!(&new.root.as_ref().unwrap().value[..], b"of A");
    // One fenced partition does not fail the others of a batch.
    let swaps = leads.iter().map(|lead| {
        let expected = (lead.partition == tps[0]).then_some(0);
        (*lead, change(expected, "late"))
    });
    let results = meta.swap_many(swaps.collect()).await;
    assert!(matches!(results[0], Err(LeadError::Fenced { .. })), "{results:?}");
    assert!(results[1].is_ok() && results[2].is_ok(), "{results:?}");
    for result in [
        meta.drop_inherited(&leads[0], &[pair(A(), 0)]).await.map(|_| ()),
        meta.release(&leads[0], None).await,
        meta.close(&leads[0]).await,
    ] {
        assert!(matches!(result, Err(LeadError::Fenced { current: Some(_) })), "{result:?}");
    }
    assert_eq!(&meta.root(tps[0]).await.unwrap().unwrap().value[..], b"of A");
}

#[tokio::test(start_paused = true)]
async fn e_j14_a_root_that_comes_back_older_shows_it_by_its_version() {
    let (tree, meta, tps) = scene(32, 1).await;
    let lead = claim(&meta, A(), tps[0]).await.lead(A());
    let first = meta.swap(&lead, change(None, "one")).await.unwrap();
    let older = tree.snapshot();
    let published = meta.swap(&lead, change(Some(first.root.0), "two")).await.unwrap();
    tree.restore(&older);
    let again = claim(&meta, A(), tps[0]).await.root.unwrap();
    assert!(again.version < published.root, "the log refuses it by its published frame");
}

#[tokio::test(start_paused = true)]
async fn e_j14_a_swap_goes_on_when_this_leader_itself_changed_the_ownership_record() {
    let (_, meta, tps) = scene(33, 1).await;
    claim(&meta, A(), tps[0]).await;
    let claimed = claim(&meta, A(), tps[0]).await;
    let lead = claimed.lead(A());
    let version = meta.drop_inherited(&lead, &claimed.inherits).await.unwrap();
    assert_ne!(version, lead.version);
    let swapped = meta.swap(&lead, change(None, "root")).await.unwrap();
    assert_eq!(swapped.ownership, version);
    let stale = meta.swap(&lead, change(Some(5), "x")).await;
    assert!(matches!(stale, Err(LeadError::Stale { current: Some(_) })), "{stale:?}");
    // A release with a wrong root is not applied at all.
    let stale = meta.release(&lead, Some(change(Some(5), "x"))).await;
    assert!(matches!(stale, Err(LeadError::Stale { .. })), "{stale:?}");
    assert_eq!(meta.ownership(tps[0]).await.unwrap().unwrap().0.leader, Leader::Broker(A()));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_cannot_be_claimed_does_not_hinder_the_others() {
    let (_, meta, tps) = scene(34, 30).await;
    claim(&meta, B(), tps[7]).await;
    let unknown = TopicPartitionId { topic: tps[0].topic, partition: 99 };
    let asked: Vec<_> = tps.iter().copied().chain([unknown, tps[0]]).collect();
    let claims = meta.claim_many(A(), &asked).await;
    for (index, result) in claims.iter().enumerate() {
        match index {
            7 => assert_eq!(*result, Err(ClaimError::Led(B()))),
            30 => assert_eq!(*result, Err(ClaimError::NotFound)),
            31 => assert!(matches!(result, Err(ClaimError::Store(Error::Invalid(_))))),
            _ => assert_eq!(result.as_ref().unwrap().partition, tps[index]),
        }
    }
    let led = meta.list_led_by(A().broker).await.unwrap();
    assert_eq!(led.len(), 29);
    assert!(led.is_sorted_by_key(|(tp, ..)| *tp));
}
