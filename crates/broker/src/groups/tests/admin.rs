//! Listing, describing and deleting groups, and OffsetDelete.

use super::*;

#[test]
fn list_filters_by_state_and_type_in_any_case() {
    let mut sim = Sim::new();
    sim.stable(1);
    let simple = CommitRequest { group_id: "simple".into(), ..commit_request("", -1, 1) };
    sim.ask_commit(&simple);
    sim.flush();
    let names = |sim: &Sim, states: &[&str], types: &[&str]| {
        let texts = |names: &[&str]| names.iter().map(|n| Text::from(*n)).collect::<Vec<_>>();
        let groups = sim.shard.list(&texts(states), &texts(types));
        groups.into_iter().map(|group| group.group_id.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(names(&sim, &[], &[]), ["g", "simple"]);
    assert_eq!(names(&sim, &["stable"], &["Classic"]), ["g"]);
    assert_eq!(names(&sim, &["Empty", "Dead"], &[]), ["simple"]);
    assert!(names(&sim, &[], &["consumer"]).is_empty());
    let listed = sim.shard.list(&[], &[]);
    assert_eq!((&*listed[0].protocol_type, listed[0].state), ("consumer", "Stable"));
    assert_eq!((&*listed[1].protocol_type, listed[1].state), ("", "Empty"));
}

#[test]
fn describe_shows_assignments_of_a_stable_group_only() {
    let mut sim = Sim::new();
    let ids = sim.stable(2);
    let described = sim.shard.describe(&"g".into());
    assert_eq!((described.state, &*described.protocol_data), ("Stable", "range"));
    assert_eq!(described.members.len(), 2);
    assert!(described.members.iter().all(|member| member.assignment.len() == 1));
    assert_eq!(&*described.members[0].client_host, "/127.0.0.1");
    sim.ask_join(&join_request(&ids[0]));
    let described = sim.shard.describe(&"g".into());
    assert_eq!((described.state, &*described.protocol_data), ("PreparingRebalance", ""));
    assert!(described.members.iter().all(|member| member.metadata.is_empty()));
    let none = sim.shard.describe(&"none".into());
    assert_eq!((none.code, none.state), (Code::GroupIdNotFound, "Dead"));
}

#[test]
fn only_an_empty_group_is_deleted_and_with_all_its_keys() {
    let mut sim = Sim::new();
    assert_eq!(sim.delete(), Code::GroupIdNotFound);
    let ids = sim.stable(1);
    sim.commit(&ids[0], 1, 5);
    assert_eq!(sim.delete(), Code::NonEmptyGroup);
    sim.ask_leave(&[(&ids[0], None)]);
    sim.flush();
    assert_eq!(sim.delete(), Code::None);
    assert_eq!((sim.state(), sim.fetched()), (None, -1));
    assert_eq!(fold_of(&sim.log), Fold::default());
}

#[test]
fn a_commit_under_way_goes_with_the_group_and_none_slips_in_behind() {
    let mut sim = Sim::new();
    let commit = sim.ask_commit(&commit_request("", -1, 5));
    let token = sim.token();
    sim.shard.delete(&"g".into(), token);
    let late = sim.ask_commit(&commit_request("", -1, 6));
    assert_eq!(sim.codes(late), [Code::CoordinatorNotAvailable]);
    let join = sim.ask_join(&join_request(""));
    assert_eq!(sim.joined(join).code, Code::CoordinatorNotAvailable);
    let twice = sim.token();
    sim.shard.delete(&"g".into(), twice);
    sim.collect();
    assert_eq!(sim.replies[&twice.0], Reply::Code(Code::CoordinatorNotAvailable));
    sim.flush();
    assert_eq!(sim.codes(commit), [Code::None]);
    assert_eq!(sim.replies[&token.0], Reply::Code(Code::None));
    assert_eq!(fold_of(&sim.log), Fold::default());
    assert_eq!(sim.shard.bytes(), 0);
}

#[test]
fn a_refused_deletion_leaves_the_group_as_it_was() {
    let mut sim = Sim::new();
    sim.commit("", -1, 5);
    let token = sim.token();
    sim.shard.delete(&"g".into(), token);
    sim.refuse();
    assert_eq!(sim.replies[&token.0], Reply::Code(Code::CoordinatorNotAvailable));
    assert_eq!((sim.fetched(), sim.state()), (5, Some(State::Empty)));
    assert_eq!(sim.commit("", -1, 6), Code::None);
}

#[test]
fn offset_delete_spares_subscribed_topics() {
    let mut sim = Sim::new();
    let delete = |sim: &mut Sim, keys: &[(&str, i32)]| {
        let token = sim.token();
        let keys: Vec<_> = keys.iter().map(|(topic, p)| (Text::from(*topic), *p)).collect();
        sim.shard.delete_offsets(&"g".into(), &keys, token);
        sim.collect();
        sim.flush();
        Shard::offset_delete_response(sim.codes(token.0).to_vec())
    };
    assert_eq!(delete(&mut sim, &[("t", 0)]).code, Code::GroupIdNotFound);
    let ids = sim.stable(1);
    let mut request = commit_request(&ids[0], 1, 5);
    request.offsets.push(CommitOffset { topic: "u".into(), ..request.offsets[0].clone() });
    sim.ask_commit(&request);
    sim.flush();
    let answer = delete(&mut sim, &[("t", 0), ("u", 0), ("u", 9)]);
    let expected = vec![Code::GroupSubscribedToTopic, Code::None, Code::None];
    assert_eq!((answer.code, answer.partitions), (Code::None, expected));
    assert_eq!(sim.fetched(), 5);
    assert_eq!(sim.shard.fold().group("g").unwrap().offsets.len(), 1);
    sim.ask_leave(&[(&ids[0], None)]);
    sim.flush();
    assert_eq!(delete(&mut sim, &[("t", 0)]).partitions, [Code::None]);
    assert_eq!(sim.fetched(), -1);
}
