//! Joining, syncing, leaving and falling silent, with dynamic members.

use super::*;

#[test]
fn a_first_member_gets_an_id_then_waits_for_others_then_leads() {
    let mut sim = Sim::new();
    let (id, join) = sim.start();
    assert!(sim.waits(join));
    assert_eq!(sim.state(), Some(State::PreparingRebalance));
    sim.advance(2_999);
    assert!(sim.waits(join));
    sim.advance(1);
    let joined = sim.joined(join).clone();
    assert_eq!((joined.code, joined.generation_id), (Code::None, 1));
    assert_eq!((&joined.leader, joined.members.len()), (&id, 1));
    assert_eq!(joined.members[0].metadata, subscription(&["t"]));
    assert_eq!(sim.state(), Some(State::CompletingRebalance));
    let sync = sim.ask_sync(&id, 1, &[(&id, b"all")]);
    assert!(sim.waits(sync), "an assignment is not handed out before it is durable");
    sim.flush();
    assert_eq!(sim.synced(sync), (Code::None, &b"all"[..]));
    assert_eq!(sim.heartbeat(&id, 1), Code::None);
    assert_eq!(sim.state(), Some(State::Stable));
}

#[test]
fn two_and_five_members_form_one_generation() {
    for count in [2, 5] {
        let mut sim = Sim::new();
        let ids = sim.stable(count);
        assert_eq!(sim.shard.group("g").unwrap().generation(), 1);
        assert_eq!(ids.len(), count);
    }
}

#[test]
fn the_initial_delay_is_prolonged_by_new_members_up_to_the_rebalance_timeout() {
    let mut sim = Sim::new();
    let (_, first) = sim.start();
    for _ in 0..30 {
        sim.advance(1_000);
        if sim.waits(first) {
            sim.start();
        }
    }
    assert!(sim.waits(first));
    sim.advance(30_000);
    assert_eq!(sim.joined(first).code, Code::None);
}

#[test]
fn a_new_member_makes_the_others_join_again() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    let (third, join3) = sim.start();
    assert!(sim.waits(join3));
    assert_eq!(sim.heartbeat(&ids[0], 1), Code::RebalanceInProgress);
    assert_eq!(sim.commit(&ids[0], 1, 5), Code::None, "the last chance to commit before joining");
    let join1 = sim.ask_join(&join_request(&ids[0]));
    assert!(sim.waits(join1));
    let join2 = sim.ask_join(&join_request(&ids[1]));
    let members = [(ids[0].clone(), join1), (ids[1].clone(), join2), (third, join3)];
    assert_eq!(sim.joined(join3).generation_id, 2);
    sim.finish(&members);
}

#[test]
fn who_does_not_come_back_in_time_is_out() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    let (third, join3) = sim.start();
    // The second goes on with heartbeats but does not join.
    for _ in 0..12 {
        sim.advance(5_000);
        sim.heartbeat(&ids[1], 1);
        if sim.waits(join3) {
            sim.ask_join(&join_request(&ids[0]));
        }
    }
    let joined = sim.joined(join3);
    assert_eq!((joined.code, joined.generation_id), (Code::None, 2));
    assert_eq!(sim.heartbeat(&ids[1], 1), Code::UnknownMemberId);
    assert_eq!(sim.heartbeat(&third, 2), Code::None);
}

#[test]
fn a_silent_member_is_removed_and_the_rest_rebalances() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    for _ in 0..3 {
        sim.advance(4_000);
        sim.heartbeat(&ids[0], 1);
    }
    assert_eq!(sim.heartbeat(&ids[0], 1), Code::RebalanceInProgress);
    assert_eq!(sim.heartbeat(&ids[1], 1), Code::UnknownMemberId);
    let join = sim.ask_join(&join_request(&ids[0]));
    sim.finish(&[(ids[0].clone(), join)]);
    // The last falls silent: the group is empty, and that is in the log.
    sim.advance(10_000);
    assert_eq!(sim.state(), Some(State::Empty));
    assert_eq!(sim.shard.group("g").unwrap().generation(), 3);
    sim.reload();
    assert_eq!(sim.state(), Some(State::Empty));
    assert_eq!(sim.shard.group("g").unwrap().generation(), 3);
}

#[test]
fn pending_members_expire_and_hold_a_rebalance_up_until_then() {
    let mut sim = Sim::new();
    let ids = sim.stable(1);
    let pending = sim.ask_join(&join_request(""));
    assert_eq!(sim.joined(pending).code, Code::MemberIdRequired);
    assert_eq!(sim.heartbeat(&ids[0], 1), Code::None);
    let join = sim.ask_join(&join_request(&ids[0]));
    assert!(sim.waits(join), "the pending member is expected");
    sim.advance(10_000);
    assert_eq!(sim.joined(join).generation_id, 2);
    assert_eq!(sim.joined(join).members.len(), 1);
    // R19: retries of lost joins leave nothing behind.
    let mut other = Sim::new();
    for _ in 0..1000 {
        other.ask_join(&join_request(""));
    }
    assert!(other.shard.bytes() > 100_000);
    other.advance(10_000);
    assert_eq!((other.state(), other.shard.bytes()), (None, 0));
}

#[test]
fn a_new_member_that_waits_too_long_is_dropped() {
    let mut sim = Sim::new();
    let mut request = join_request("");
    request.rebalance_timeout_ms = 900_000;
    request.version = 3;
    let first = sim.ask_join(&request);
    sim.advance(3_000);
    let id = sim.joined(first).member_id.clone();
    sim.ask_sync(&id, 1, &[]);
    sim.flush();
    let second = sim.ask_join(&request);
    for _ in 0..59 {
        sim.advance(5_000);
        sim.heartbeat(&id, 1);
    }
    assert!(sim.waits(second));
    sim.advance(5_000);
    assert_eq!(sim.joined(second).code, Code::UnknownMemberId);
}

#[test]
fn joining_again_with_the_same_metadata_while_stable() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    // A follower is told the present generation.
    let follower = sim.ask_join(&join_request(&ids[1]));
    let joined = sim.joined(follower).clone();
    assert_eq!((joined.code, joined.generation_id), (Code::None, 1));
    assert!(joined.members.is_empty());
    assert_eq!(joined.leader, ids[0]);
    assert_eq!(sim.state(), Some(State::Stable));
    let sync = sim.ask_sync(&ids[1], 1, &[]);
    assert_eq!(sim.synced(sync).0, Code::None);
    // With other metadata it starts a rebalance, and so does the leader in any case.
    let mut changed = join_request(&ids[1]);
    changed.protocols[0].1 = subscription(&["t", "u"]);
    let follower = sim.ask_join(&changed);
    assert!(sim.waits(follower));
    let leader = sim.ask_join(&join_request(&ids[0]));
    sim.finish(&[(ids[0].clone(), leader), (ids[1].clone(), follower)]);
    let leader = sim.ask_join(&join_request(&ids[0]));
    assert!(sim.waits(leader));
    assert_eq!(sim.heartbeat(&ids[1], 2), Code::RebalanceInProgress);
}

#[test]
fn joining_again_while_assignments_are_awaited() {
    let mut sim = Sim::new();
    let members = [sim.start(), sim.start()];
    sim.advance(6_000);
    let leader = sim.joined(members[0].1).leader.clone();
    let other = members.iter().find(|(id, _)| *id != leader).unwrap().0.clone();
    // Lost answers are told again, without a new generation.
    let again = sim.ask_join(&join_request(&leader));
    assert_eq!((sim.joined(again).generation_id, sim.joined(again).members.len()), (1, 2));
    let sync = sim.ask_sync(&other, 1, &[]);
    assert!(sim.waits(sync), "the leader has not synced");
    // Changed metadata: everybody joins again, and who waits for an assignment is told so.
    let mut changed = join_request(&leader);
    changed.protocols[0].1 = subscription(&["u"]);
    let join = sim.ask_join(&changed);
    assert_eq!(sim.synced(sync), (Code::RebalanceInProgress, &b""[..]));
    let second = sim.ask_join(&join_request(&other));
    assert_eq!(sim.joined(join).generation_id, 2);
    assert_eq!(sim.joined(second).generation_id, 2);
}

#[test]
fn a_join_repeated_on_another_connection_supersedes_the_first() {
    let mut sim = Sim::new();
    let (id, first) = sim.start();
    let second = sim.ask_join(&join_request(&id));
    assert_eq!(sim.joined(first).code, Code::RebalanceInProgress);
    assert!(sim.waits(second));
    sim.advance(6_000);
    assert_eq!(sim.joined(second).code, Code::None);
}

#[test]
fn sync_is_refused_before_the_join_phase_is_over_and_with_wrong_ids() {
    let mut sim = Sim::new();
    let (id, _) = sim.start();
    let early = sim.ask_sync(&id, 0, &[]);
    assert_eq!(sim.synced(early).0, Code::RebalanceInProgress);
    let wrong = sim.ask_sync(&id, 1, &[]);
    assert_eq!(sim.synced(wrong).0, Code::IllegalGeneration);
    let unknown = sim.ask_sync("nobody", 0, &[]);
    assert_eq!(sim.synced(unknown).0, Code::UnknownMemberId);
    let mut sim = Sim::new();
    let none = sim.ask_sync("nobody", 0, &[]);
    assert_eq!(sim.synced(none).0, Code::UnknownMemberId);
    let ids = sim.stable(1);
    let token = sim.token();
    let request = SyncRequest {
        group_id: "g".into(),
        generation_id: 1,
        member_id: ids[0].clone(),
        group_instance_id: None,
        protocol_type: Some("consumer".into()),
        protocol_name: Some("roundrobin".into()),
        assignments: Vec::new(),
    };
    sim.shard.sync(&request, token, sim.now);
    sim.collect();
    assert_eq!(sim.synced(token.0).0, Code::InconsistentGroupProtocol);
}

#[test]
fn who_does_not_sync_in_time_is_removed() {
    let mut sim = Sim::new();
    let members = [sim.start(), sim.start()];
    sim.advance(6_000);
    let leader = sim.joined(members[0].1).leader.clone();
    let other = members.iter().find(|(id, _)| *id != leader).unwrap().0.clone();
    let sync = sim.ask_sync(&leader, 1, &[(&leader, b"x")]);
    sim.flush();
    assert_eq!(sim.synced(sync).0, Code::None);
    for _ in 0..12 {
        sim.advance(5_000);
        sim.heartbeat(&leader, 1);
        sim.heartbeat(&other, 1);
    }
    assert_eq!(sim.heartbeat(&other, 1), Code::UnknownMemberId);
    assert_eq!(sim.heartbeat(&leader, 1), Code::RebalanceInProgress);
}

#[test]
fn a_leader_that_never_syncs_loses_its_place_and_nobody_gets_an_empty_assignment() {
    let mut sim = Sim::new();
    let members = [sim.start(), sim.start()];
    sim.advance(6_000);
    let leader = sim.joined(members[0].1).leader.clone();
    let other = members.iter().find(|(id, _)| *id != leader).unwrap().0.clone();
    let sync = sim.ask_sync(&other, 1, &[]);
    // The leader's session ends; the other is told to join again.
    sim.advance(10_000);
    assert_eq!(sim.synced(sync).0, Code::RebalanceInProgress);
    let join = sim.ask_join(&join_request(&other));
    assert_eq!((sim.joined(join).generation_id, &sim.joined(join).leader), (2, &other));
}

#[test]
fn leaving_rebalances_and_the_last_to_leave_is_answered_when_that_is_durable() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    let leave = sim.ask_leave(&[(&ids[0], None), ("nobody", None)]);
    assert_eq!(sim.left(leave).members, [Code::None, Code::UnknownMemberId]);
    assert_eq!(sim.heartbeat(&ids[1], 1), Code::RebalanceInProgress);
    let join = sim.ask_join(&join_request(&ids[1]));
    sim.finish(&[(ids[1].clone(), join)]);
    let last = sim.ask_leave(&[(&ids[1], None)]);
    assert!(sim.waits(last));
    sim.flush();
    assert_eq!(sim.left(last).members, [Code::None]);
    assert_eq!(sim.state(), Some(State::Empty));
    let none = sim.ask_leave(&[(&ids[1], None)]);
    assert_eq!(sim.left(none).members, [Code::UnknownMemberId]);
}

#[test]
fn a_pending_member_can_leave() {
    let mut sim = Sim::new();
    let ids = sim.stable(1);
    let pending = sim.ask_join(&join_request(""));
    let id = sim.joined(pending).member_id.clone();
    let leave = sim.ask_leave(&[(&id, None)]);
    assert_eq!(sim.left(leave).members, [Code::None]);
    let join = sim.ask_join(&join_request(&ids[0]));
    assert_eq!(sim.joined(join).code, Code::None);
}

#[test]
fn a_refused_assignment_is_taken_back_and_tried_again() {
    let mut sim = Sim::new();
    let (id, join) = sim.start();
    sim.advance(6_000);
    assert_eq!(sim.joined(join).code, Code::None);
    let sync = sim.ask_sync(&id, 1, &[(&id, b"x")]);
    sim.refuse();
    assert_eq!(sim.synced(sync), (Code::CoordinatorNotAvailable, &b""[..]));
    assert_eq!(sim.state(), Some(State::PreparingRebalance));
    let join = sim.ask_join(&join_request(&id));
    sim.finish(&[(id, join)]);
}

#[test]
fn an_assignment_that_becomes_durable_after_the_group_went_on_is_not_handed_out() {
    let mut sim = Sim::new();
    let (id, _) = sim.start();
    sim.advance(6_000);
    let sync = sim.ask_sync(&id, 1, &[(&id, b"x")]);
    let batch = sim.shard.take_batch(sim.now).unwrap();
    let (_, join2) = sim.start();
    assert_eq!(sim.synced(sync).0, Code::RebalanceInProgress);
    sim.shard.batch_done(batch, Ok(()), sim.now);
    sim.collect();
    assert_eq!(sim.state(), Some(State::PreparingRebalance));
    assert!(sim.waits(join2));
}

#[test]
fn the_protocol_is_what_all_support_and_most_prefer() {
    let mut sim = Sim::new();
    let with = |names: &[&str]| {
        let mut request = join_request("");
        request.version = 3;
        request.protocols = names.iter().map(|n| ((*n).into(), blob(n.as_bytes()))).collect();
        request
    };
    let first = sim.ask_join(&with(&["a", "b", "c"]));
    let second = sim.ask_join(&with(&["c", "b"]));
    let third = sim.ask_join(&with(&["b", "c"]));
    let misfit = sim.ask_join(&with(&["a"]));
    assert_eq!(sim.joined(misfit).code, Code::InconsistentGroupProtocol);
    let mut connect = with(&["b"]);
    connect.protocol_type = "connect".into();
    let misfit = sim.ask_join(&connect);
    assert_eq!(sim.joined(misfit).code, Code::InconsistentGroupProtocol);
    sim.advance(10_000);
    for token in [first, second, third] {
        assert_eq!(sim.joined(token).protocol_name.as_deref(), Some("b"));
    }
}

#[test]
fn bad_joins_are_refused_with_kafkas_codes() {
    let mut sim = Sim::new();
    let mut check = |request: &JoinRequest, code| {
        let token = sim.ask_join(request);
        assert_eq!(sim.joined(token).code, code);
        assert_eq!(sim.shard.bytes(), 0);
    };
    check(&JoinRequest { group_id: "".into(), ..join_request("") }, Code::InvalidGroupId);
    for session_timeout_ms in [5_999, 1_800_001, -1] {
        let request = JoinRequest { session_timeout_ms, ..join_request("") };
        check(&request, Code::InvalidSessionTimeout);
    }
    check(&join_request("stranger"), Code::UnknownMemberId);
    let nothing = JoinRequest { protocols: Vec::new(), ..join_request("") };
    check(&nothing, Code::InconsistentGroupProtocol);
    let untyped = JoinRequest { protocol_type: "".into(), ..join_request("") };
    check(&untyped, Code::InconsistentGroupProtocol);
    let long = JoinRequest { client_id: "x".repeat(40_000).into(), ..join_request("") };
    check(&long, Code::InvalidRequest);
}

#[test]
fn a_full_group_refuses_members_in_number_and_in_bytes() {
    let mut sim = Sim::with(Config { group_max_size: 2, ..Config::default() });
    let ids = sim.stable(2);
    let third = sim.ask_join(&join_request(""));
    assert_eq!(sim.joined(third).code, Code::GroupMaxSizeReached);
    assert_eq!(sim.heartbeat(&ids[0], 1), Code::None);
    let mut sim = Sim::with(Config { max_group_bytes: 100_000, ..Config::default() });
    let ids = sim.stable(1);
    let mut hostile = join_request(&ids[0]);
    hostile.protocols[0].1 = blob(&vec![0; 200_000]);
    let token = sim.ask_join(&hostile);
    assert_eq!(sim.joined(token).code, Code::GroupMaxSizeReached);
    assert_eq!(sim.heartbeat(&ids[0], 1), Code::None, "the present member stays");
    // Joins that nobody follows up fill the group up to its limit and no further.
    for _ in 0..1_000 {
        sim.ask_join(&join_request(""));
    }
    assert!(sim.shard.bytes() <= 100_000 + 2_000);
}

#[test]
fn an_assignment_too_large_for_the_log_fails_the_generation() {
    let mut sim = Sim::with(Config { max_record_bytes: 1_000, ..Config::default() });
    let (id, _) = sim.start();
    sim.advance(6_000);
    let sync = sim.ask_sync(&id, 1, &[(&id, &[1; 2_000])]);
    assert_eq!(sim.synced(sync).0, Code::UnknownServerError);
    assert_eq!(sim.state(), Some(State::PreparingRebalance));
    assert!(sim.log.is_empty());
}

#[test]
fn reload_keeps_members_and_assignments_and_starts_their_sessions_anew() {
    let mut sim = Sim::new();
    let ids = sim.stable(3);
    sim.advance(9_000);
    sim.reload();
    assert_eq!(sim.state(), Some(State::Stable));
    sim.advance(9_000);
    for id in &ids {
        assert_eq!(sim.heartbeat(id, 1), Code::None);
    }
    let before = sim.shard.describe(&"g".into());
    let sync = sim.ask_sync(&ids[0], 1, &[]);
    assert_eq!(sim.synced(sync).0, Code::None);
    assert_eq!(sim.joined_leader(), ids[0]);
    sim.reload();
    assert_eq!(sim.shard.describe(&"g".into()), before);
}

impl Sim {
    fn joined_leader(&self) -> Text {
        let group = self.shard.fold().group("g").unwrap();
        group.generation.as_ref().unwrap().leader.clone().unwrap()
    }
}
