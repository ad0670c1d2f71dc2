//! Commits, fetches, expiry and deletion of offsets.

use std::sync::Arc;

use super::*;
use crate::groups::GroupMemory;

#[test]
fn an_offset_is_visible_and_answered_only_when_durable() {
    let mut sim = Sim::new();
    let token = sim.ask_commit(&commit_request("", -1, 5));
    assert!(sim.waits(token));
    assert_eq!(sim.fetched(), -1);
    sim.flush();
    assert_eq!((sim.codes(token), sim.fetched()), (&[Code::None][..], 5));
    let second = sim.ask_commit(&commit_request("", -1, 6));
    assert_eq!(sim.fetched(), 5);
    sim.refuse();
    assert_eq!((sim.codes(second), sim.fetched()), (&[Code::CoordinatorNotAvailable][..], 5));
}

#[test]
fn metadata_and_epoch_come_back_and_all_topics_can_be_asked_for() {
    let mut sim = Sim::new();
    assert_eq!(sim.commit("", -1, 5), Code::None);
    sim.reload();
    let all = FetchRequest { group_id: "g".into(), topics: None, require_stable: false };
    let expected = FetchedOffset {
        topic: "t".into(),
        topic_id: TopicId([7; 16]),
        partition: 0,
        offset: 5,
        leader_epoch: 3,
        metadata: "note".into(),
    };
    assert_eq!(sim.shard.fetch(&all), [expected]);
    // No metadata is the empty text; an unknown partition or group has -1.
    let mut request = commit_request("", -1, 6);
    request.offsets[0].metadata = None;
    sim.ask_commit(&request);
    sim.flush();
    let topic = |topic_id| FetchTopic { topic: "t".into(), topic_id, partitions: vec![0, 1] };
    let known = topic(TopicId([7; 16]));
    let request =
        FetchRequest { group_id: "g".into(), topics: Some(vec![known]), require_stable: true };
    let found = sim.shard.fetch(&request);
    assert_eq!((found[0].offset, &*found[0].metadata), (6, ""));
    assert_eq!((found[1].offset, found[1].leader_epoch, &*found[1].metadata), (-1, -1, ""));
    let other = FetchRequest { group_id: "other".into(), ..request.clone() };
    assert_eq!(sim.shard.fetch(&other)[0].offset, -1);
    // Another topic of the same name has no offsets yet (P8).
    let anew = topic(TopicId([8; 16]));
    let request = FetchRequest { topics: Some(vec![anew]), ..request };
    assert_eq!(sim.shard.fetch(&request)[0].offset, -1);
}

#[test]
fn commits_are_checked_against_the_group_as_in_kafka() {
    let mut sim = Sim::new();
    assert_eq!(sim.commit("m", 1, 5), Code::GroupIdNotFound);
    let old = CommitRequest { version: 8, ..commit_request("m", 1, 5) };
    let old = sim.ask_commit(&old);
    assert_eq!(sim.codes(old), [Code::IllegalGeneration]);
    assert_eq!(sim.commit("", -1, 5), Code::None, "a simple group");
    assert_eq!(sim.commit("m", 1, 6), Code::UnknownMemberId);
    let members = [sim.start(), sim.start()];
    let id = members[0].0.clone();
    assert_eq!(sim.commit("", -1, 6), Code::UnknownMemberId, "the group has members now");
    assert_eq!(sim.commit(&id, 0, 6), Code::None, "preparing a rebalance");
    sim.advance(6_000);
    assert_eq!(sim.commit(&id, 1, 7), Code::RebalanceInProgress);
    assert_eq!(sim.commit(&id, 0, 7), Code::IllegalGeneration);
    sim.finish(&members);
    assert_eq!(sim.commit(&id, 1, 8), Code::None);
    assert_eq!(sim.commit(&id, 2, 9), Code::IllegalGeneration);
    assert_eq!(sim.commit("nobody", 1, 9), Code::UnknownMemberId);
    assert_eq!(sim.commit("", -1, 9), Code::UnknownMemberId);
    assert_eq!(sim.fetched(), 8);
}

#[test]
fn a_commit_keeps_its_member_alive() {
    let mut sim = Sim::new();
    let ids = sim.stable(1);
    for _ in 0..3 {
        sim.advance(8_000);
        assert_eq!(sim.commit(&ids[0], 1, 5), Code::None);
    }
}

#[test]
fn one_bad_partition_does_not_fail_the_others() {
    let mut sim = Sim::new();
    let mut request = commit_request("", -1, 5);
    let long = CommitOffset {
        partition: 1,
        metadata: Some("ä".repeat(4_097).into()),
        ..request.offsets[0].clone()
    };
    let fits =
        CommitOffset { partition: 2, metadata: Some("ä".repeat(4_096).into()), ..long.clone() };
    request.offsets.extend([long, fits]);
    let token = sim.ask_commit(&request);
    sim.flush();
    assert_eq!(sim.codes(token), [Code::None, Code::OffsetMetadataTooLarge, Code::None]);
    assert_eq!(sim.fetched(), 5);
}

#[test]
fn offsets_of_a_simple_group_expire_one_by_one_and_the_group_with_the_last() {
    let day = 24 * 3_600_000;
    let mut sim = Sim::new();
    sim.commit("", -1, 5);
    sim.advance(6 * day);
    let mut later = commit_request("", -1, 6);
    later.offsets[0].partition = 1;
    sim.ask_commit(&later);
    sim.advance(day + 600_000);
    assert_eq!(sim.fetched(), -1);
    assert_eq!(sim.shard.fold().group("g").unwrap().offsets.len(), 1);
    sim.advance(6 * day);
    assert_eq!((sim.state(), sim.shard.bytes()), (None, 0));
    assert_eq!(fold_of(&sim.log), Fold::default());
}

#[test]
fn a_retention_in_the_request_counts_and_a_negative_one_does_not() {
    let mut sim = Sim::new();
    let mut request = commit_request("", -1, 5);
    request.retention_ms = 1_000_000;
    sim.ask_commit(&request);
    request.offsets[0].partition = 1;
    request.retention_ms = -5;
    sim.ask_commit(&request);
    sim.advance(2_000_000);
    assert_eq!(sim.fetched(), -1);
    assert_eq!(sim.shard.fold().group("g").unwrap().offsets.len(), 1);
}

#[test]
fn offsets_of_subscribed_topics_stay_and_of_an_empty_group_go_after_the_retention() {
    let day = 24 * 3_600_000;
    let mut sim = Sim::with(Config { max_session_timeout_ms: i32::MAX, ..Config::default() });
    let mut request = join_request("");
    request.version = 3;
    request.session_timeout_ms = 20 * day as i32;
    let join = sim.ask_join(&request);
    sim.advance(3_000);
    let id = sim.joined(join).member_id.clone();
    sim.finish(&[(id.clone(), join)]);
    let mut commit = commit_request(&id, 1, 5);
    let mut other = commit.offsets[0].clone();
    other.topic = "unread".into();
    commit.offsets.push(other);
    sim.ask_commit(&commit);
    sim.advance(8 * day);
    let keys = |sim: &Sim| sim.shard.fold().group("g").map(|keys| keys.offsets.len());
    assert_eq!((sim.fetched(), keys(&sim)), (5, Some(1)), "the topic nobody reads is gone");
    sim.ask_leave(&[(&id, None)]);
    sim.advance(6 * day);
    assert_eq!((sim.state(), sim.fetched()), (Some(State::Empty), 5));
    sim.advance(day + 600_000);
    assert_eq!((sim.state(), keys(&sim)), (None, None));
}

#[test]
fn offsets_of_a_deleted_topic_go_but_not_those_of_its_successor() {
    let mut sim = Sim::new();
    sim.commit("", -1, 5);
    let mut anew = commit_request("", -1, 1);
    anew.offsets[0].partition = 1;
    anew.offsets[0].topic_id = TopicId([8; 16]);
    sim.ask_commit(&anew);
    sim.flush();
    sim.shard.topic_deleted(&"t".into(), TopicId([7; 16]));
    sim.flush();
    assert_eq!(sim.fetched(), -1);
    let keys = &sim.shard.fold().group("g").unwrap().offsets;
    assert_eq!(keys.keys().map(|(_, partition)| *partition).collect::<Vec<_>>(), [1]);
}

#[test]
fn the_limits_of_groups_and_bytes_refuse_what_is_new_only() {
    let mut sim = Sim::with(Config { max_groups: 1, ..Config::default() });
    assert_eq!(sim.commit("", -1, 5), Code::None);
    let other = CommitRequest { group_id: "h".into(), ..commit_request("", -1, 5) };
    let token = sim.ask_commit(&other);
    assert_eq!(sim.codes(token), [Code::PolicyViolation]);
    let join = sim.ask_join(&JoinRequest { group_id: "h".into(), ..join_request("") });
    assert_eq!(sim.joined(join).code, Code::PolicyViolation);
    let mut sim = Sim::with(Config { max_bytes: 10_000, ..Config::default() });
    for partition in 0..100 {
        let mut request = commit_request("", -1, 5);
        request.offsets[0].partition = partition;
        sim.ask_commit(&request);
        sim.flush();
    }
    assert!(sim.shard.bytes() < 11_000);
    assert_eq!(sim.commit("", -1, 6), Code::None);
}

#[test]
fn p7_the_memory_of_all_partitions_is_bounded_together() {
    let memory = Arc::new(GroupMemory::new(20_000, 1));
    let config = Config { memory: Arc::clone(&memory), ..Config::default() };
    let (mut one, mut two) = (Sim::with(config.clone()), Sim::with(config));
    assert_eq!(two.commit("", -1, 1), Code::None);
    for partition in 0..200 {
        let mut request = commit_request("", -1, 5);
        request.offsets[0].partition = partition;
        one.ask_commit(&request);
        one.flush();
    }
    assert_eq!(memory.used_bytes(), one.shard.bytes() + two.shard.bytes());
    assert!((20_000..21_000).contains(&memory.used_bytes()), "{}", memory.used_bytes());
    // What is there goes on; what is new, or grows, does not.
    assert_eq!(two.commit("", -1, 2), Code::None);
    let mut longer = commit_request("", -1, 3);
    longer.offsets[0].metadata = Some("x".repeat(1_000).into());
    let token = two.ask_commit(&longer);
    assert_eq!(two.codes(token), [Code::PolicyViolation]);
    let join = two.ask_join(&JoinRequest { group_id: "h".into(), ..join_request("") });
    assert_eq!(two.joined(join).code, Code::PolicyViolation);
    let join = two.ask_join(&join_request(""));
    assert_eq!(two.joined(join).code, Code::GroupMaxSizeReached);
    // Given back with what took it.
    drop(one);
    assert_eq!(memory.used_bytes(), two.shard.bytes());
    let token = two.ask_commit(&longer);
    two.flush();
    assert_eq!(two.codes(token), [Code::None]);
}

#[test]
fn p7_members_that_are_there_grow_by_a_quarter_beyond_the_limit_at_most() {
    let memory = Arc::new(GroupMemory::new(4_000, 1));
    let mut sim = Sim::with(Config { memory: Arc::clone(&memory), ..Config::default() });
    let ids = sim.stable(1);
    let with = |bytes: usize| JoinRequest {
        protocols: vec![("range".into(), blob(&vec![0; bytes]))],
        ..join_request(&ids[0])
    };
    let refused = sim.ask_join(&with(5_000));
    assert_eq!(sim.joined(refused).code, Code::GroupMaxSizeReached);
    let taken = sim.ask_join(&with(2_000));
    assert_eq!(sim.joined(taken).code, Code::None);
    let generation = sim.joined(taken).generation_id;
    let refused = sim.ask_sync(&ids[0], generation, &[(&ids[0], &[0; 5_000])]);
    assert_eq!(sim.synced(refused).0, Code::CoordinatorNotAvailable);
    let taken = sim.ask_sync(&ids[0], generation, &[(&ids[0], &[0; 100])]);
    sim.flush();
    assert_eq!(sim.synced(taken).0, Code::None);
    assert!(memory.used_bytes() <= 5_000 + 1_000, "{}", memory.used_bytes());
}

#[test]
fn p7_joins_that_are_never_finished_cost_their_place_for_a_minute_at_most() {
    let mut sim = Sim::new();
    for n in 0..500 {
        let group_id = format!("g{}", n % 100).into();
        let session_timeout_ms = 1_800_000;
        sim.ask_join(&JoinRequest { group_id, session_timeout_ms, ..join_request("") });
    }
    assert!(sim.shard.bytes() > 100_000);
    sim.advance(60_000);
    assert_eq!(sim.shard.bytes(), 0);
}

#[test]
fn p7_what_waits_for_a_log_that_stands_still_is_bounded_though_nobody_waits_for_it() {
    let memory = Arc::new(GroupMemory::new(64 << 20, 4 << 20));
    let mut sim = Sim::with(Config { memory, ..Config::default() });
    let (id, join) = sim.start();
    sim.advance(3_000);
    sim.advance(3_000);
    let generation = sim.joined(join).generation_id;
    let assignment = vec![0; 900_000];
    // Its leader gives up waiting and sends it again; nothing is appended.
    let mut sync = || sim.ask_sync(&id, generation, &[(&id, &assignment)]);
    let tokens: Vec<_> = (0..20).map(|_| sync()).collect();
    let refused = |token: &&u64| sim.synced(**token).0 == Code::CoordinatorNotAvailable;
    assert_eq!(tokens[5..].iter().filter(refused).count(), 15);
    sim.flush();
    assert_eq!(sim.state(), Some(State::Stable));
    let again = sim.ask_sync(&id, generation, &[(&id, &assignment)]);
    assert_eq!(sim.synced(again).0, Code::None);
}
