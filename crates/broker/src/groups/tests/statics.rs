//! Static members (KIP-345).

use super::*;

fn static_request(member_id: &str, instance: &str) -> JoinRequest {
    JoinRequest { group_instance_id: Some(instance.into()), ..join_request(member_id) }
}

/// A stable group of the static members `a` and `b`; the leader's id first.
fn stable(sim: &mut Sim) -> Vec<(Text, &'static str)> {
    let a = sim.ask_join(&static_request("", "a"));
    let b = sim.ask_join(&static_request("", "b"));
    sim.advance(6_000);
    let members = [(sim.joined(a).member_id.clone(), a), (sim.joined(b).member_id.clone(), b)];
    let leader = sim.finish(&members)[0].clone();
    let mut named = vec![(members[0].0.clone(), "a"), (members[1].0.clone(), "b")];
    named.sort_by_key(|(id, _)| *id != leader);
    named
}

fn heartbeat(sim: &mut Sim, id: &str, instance: &str) -> Code {
    let request = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: 1,
        member_id: id.into(),
        group_instance_id: Some(instance.into()),
    };
    sim.shard.heartbeat(&request, sim.now)
}

#[test]
fn a_follower_that_bounces_keeps_its_place_and_fences_its_former_self() {
    let mut sim = Sim::new();
    let members = stable(&mut sim);
    let (old, name) = members[1].clone();
    let join = sim.ask_join(&static_request("", name));
    assert!(sim.waits(join), "the new id is not told before it is durable");
    sim.flush();
    let joined = sim.joined(join).clone();
    assert_eq!((joined.code, joined.generation_id), (Code::None, 1));
    assert_ne!(joined.member_id, old);
    assert!(!joined.skip_assignment && joined.members.is_empty());
    assert_eq!(sim.state(), Some(State::Stable));
    assert_eq!(heartbeat(&mut sim, &old, name), Code::FencedInstanceId);
    assert_eq!(sim.heartbeat(&old, 1), Code::UnknownMemberId);
    assert_eq!(heartbeat(&mut sim, &joined.member_id, name), Code::None);
    let stale =
        CommitRequest { group_instance_id: Some(name.into()), ..commit_request(&old, 1, 9) };
    let stale = sim.ask_commit(&stale);
    assert_eq!(sim.codes(stale), [Code::FencedInstanceId]);
    let stale = sim.ask_join(&static_request(&old, name));
    assert_eq!(sim.joined(stale).code, Code::FencedInstanceId);
    let sync = sim.ask_sync(&joined.member_id, 1, &[]);
    assert_eq!(sim.synced(sync).0, Code::None);
    assert!(!sim.synced(sync).1.is_empty(), "it keeps its assignment");
    // The new id is what a later coordinator knows.
    sim.reload();
    assert_eq!(heartbeat(&mut sim, &joined.member_id, name), Code::None);
    assert_eq!(heartbeat(&mut sim, &old, name), Code::FencedInstanceId);
}

#[test]
fn a_leader_that_bounces_is_told_to_skip_the_assignment() {
    for version in [8, 9] {
        let mut sim = Sim::new();
        let members = stable(&mut sim);
        let (old, name) = members[0].clone();
        let join = sim.ask_join(&JoinRequest { version, ..static_request("", name) });
        sim.flush();
        let joined = sim.joined(join).clone();
        assert_eq!((joined.code, joined.generation_id), (Code::None, 1));
        if version == 9 {
            assert!(joined.skip_assignment);
            assert_eq!((joined.members.len(), &joined.leader), (2, &joined.member_id));
        } else {
            // Below 9 it must not believe that it leads.
            assert_eq!((joined.members.len(), &joined.leader), (0, &old));
        }
    }
}

#[test]
fn a_return_that_cannot_be_stored_is_undone() {
    let mut sim = Sim::new();
    let members = stable(&mut sim);
    let (old, name) = members[1].clone();
    let join = sim.ask_join(&static_request("", name));
    sim.refuse();
    assert_eq!(sim.joined(join).code, Code::CoordinatorNotAvailable);
    assert_eq!(heartbeat(&mut sim, &old, name), Code::None);
    assert_eq!(sim.state(), Some(State::Stable));
}

#[test]
fn a_return_that_is_overtaken_by_a_rebalance_is_answered_by_it() {
    let mut sim = Sim::new();
    let members = stable(&mut sim);
    let (_, name) = members[1].clone();
    let join = sim.ask_join(&static_request("", name));
    let batch = sim.shard.take_batch(sim.now).unwrap();
    let leader = sim.ask_join(&static_request(&members[0].0, members[0].1));
    sim.shard.batch_done(batch, Ok(()), sim.now);
    sim.collect();
    assert_eq!(sim.joined(join).generation_id, 2);
    assert_eq!(sim.joined(leader).generation_id, 2);
}

#[test]
fn two_returns_at_once_leave_one() {
    let mut sim = Sim::new();
    let members = stable(&mut sim);
    let name = members[1].1;
    let first = sim.ask_join(&static_request("", name));
    let second = sim.ask_join(&static_request("", name));
    assert_eq!(sim.joined(first).code, Code::FencedInstanceId);
    sim.flush();
    assert_eq!(sim.joined(second).code, Code::None);
    assert_eq!(sim.shard.describe(&"g".into()).members.len(), 2);
}

#[test]
fn a_return_with_other_protocols_rebalances() {
    let mut sim = Sim::new();
    let request = |id: &str, instance: &str, names: &[&str]| {
        let protocols = names.iter().map(|n| ((*n).into(), subscription(&["t"]))).collect();
        JoinRequest { protocols, ..static_request(id, instance) }
    };
    let first = sim.ask_join(&request("", "a", &["range", "rr"]));
    sim.advance(3_000);
    let id = sim.joined(first).member_id.clone();
    sim.finish(&[(id, first)]);
    let again = sim.ask_join(&request("", "a", &["rr", "range"]));
    assert_eq!(sim.joined(again).generation_id, 2);
    assert_eq!(sim.joined(again).protocol_name.as_deref(), Some("rr"));
}

#[test]
fn a_return_during_a_rebalance_takes_part_in_it() {
    let mut sim = Sim::new();
    let members = stable(&mut sim);
    // The leader starts a rebalance; the other comes back under a new id.
    let leader = sim.ask_join(&static_request(&members[0].0, members[0].1));
    assert!(sim.waits(leader));
    let again = sim.ask_join(&static_request("", members[1].1));
    assert_eq!((sim.joined(leader).generation_id, sim.joined(again).generation_id), (2, 2));
    // While assignments are awaited, another return starts over: the plan may name the old id.
    let sync = sim.token();
    let request = SyncRequest {
        group_id: "g".into(),
        generation_id: 2,
        member_id: sim.joined(again).member_id.clone(),
        group_instance_id: Some(members[1].1.into()),
        protocol_type: None,
        protocol_name: None,
        assignments: Vec::new(),
    };
    sim.shard.sync(&request, sync, sim.now);
    sim.collect();
    let third = sim.ask_join(&static_request("", members[1].1));
    assert_eq!(sim.synced(sync.0).0, Code::FencedInstanceId);
    assert!(sim.waits(third));
    assert_eq!(sim.state(), Some(State::PreparingRebalance));
}

#[test]
fn a_static_member_that_stays_away_keeps_its_place_until_its_session_ends() {
    let mut sim = Sim::new();
    let members = stable(&mut sim);
    let away = JoinRequest {
        rebalance_timeout_ms: 5_000,
        session_timeout_ms: 30_000,
        ..static_request("", members[1].1)
    };
    let back = sim.ask_join(&away);
    sim.flush();
    let away_id = sim.joined(back).member_id.clone();
    let leader = JoinRequest {
        rebalance_timeout_ms: 5_000,
        session_timeout_ms: 30_000,
        ..static_request(&members[0].0, members[0].1)
    };
    let join = sim.ask_join(&leader);
    sim.advance(5_000);
    // The rebalance went on without it, but it is a member of the new generation.
    assert_eq!(sim.joined(join).generation_id, 2);
    assert_eq!(sim.joined(join).members.len(), 2);
    assert!(sim.joined(join).members.iter().any(|member| member.member_id == away_id));
}

#[test]
fn a_rebalance_that_nobody_joins_waits_for_sessions_without_a_busy_loop() {
    let mut sim = Sim::new();
    let request = JoinRequest { rebalance_timeout_ms: 1, ..static_request("", "a") };
    let join = sim.ask_join(&request);
    sim.advance(3_000);
    let id = sim.joined(join).member_id.clone();
    sim.finish(&[(id.clone(), join)]);
    // Another member comes and goes: a rebalance, and the static member does not join it.
    let other = sim.ask_join(&join_request(""));
    let other = sim.joined(other).member_id.clone();
    let joining = sim.ask_join(&join_request(&other));
    sim.ask_leave(&[(&other, None)]);
    assert_eq!(sim.joined(joining).code, Code::UnknownMemberId);
    let mut ticks = 0;
    while sim.state() == Some(State::PreparingRebalance) {
        let next = sim.shard.next_deadline();
        sim.advance(next.saturating_sub(sim.now.mono_ms));
        ticks += 1;
        assert!(ticks < 20, "busy at {}", sim.now.mono_ms);
    }
    assert_eq!(heartbeat(&mut sim, &id, "a"), Code::UnknownMemberId);
    assert_eq!(sim.state(), Some(State::Empty));
}

#[test]
fn an_administrator_removes_a_static_member_by_its_instance_id() {
    let mut sim = Sim::new();
    let members = stable(&mut sim);
    let leave = sim.ask_leave(&[("", Some(members[1].1)), ("", Some("nobody")), ("", None)]);
    assert_eq!(sim.left(leave).members, [Code::None, Code::UnknownMemberId, Code::UnknownMemberId]);
    assert_eq!(heartbeat(&mut sim, &members[1].0, members[1].1), Code::UnknownMemberId);
    let wrong = sim.ask_leave(&[("stranger", Some(members[0].1))]);
    assert_eq!(sim.left(wrong).members, [Code::FencedInstanceId]);
}
