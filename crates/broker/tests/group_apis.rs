//! Groups through the wire: found, joined, committed, read again after a restart.

mod common;

use bytes::Bytes;
use common::*;
use talos_protocol::ErrorCode;
use talos_protocol::messages::*;

fn commit(generation: i32, member: &str, partition: i32, offset: i64) -> OffsetCommitRequest {
    let partitions = vec![OffsetCommitRequestPartition {
        partition_index: partition,
        committed_offset: offset,
        committed_metadata: Some("note".into()),
        ..Default::default()
    }];
    OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: generation,
        member_id: text(member),
        topics: vec![OffsetCommitRequestTopic {
            name: "t".into(),
            partitions,
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn read(partitions: Vec<i32>) -> OffsetFetchRequest {
    let topics = vec![OffsetFetchRequestTopics {
        name: "t".into(),
        partition_indexes: partitions,
        ..Default::default()
    }];
    let group = OffsetFetchRequestGroup {
        group_id: "g".into(),
        topics: Some(topics),
        ..Default::default()
    };
    OffsetFetchRequest { groups: vec![group], ..Default::default() }
}

#[tokio::test(start_paused = true)]
async fn c13_c10_offsets_are_committed_and_read_again_after_a_kill() {
    let mut world = World::new();
    world.config.offsets_topic_num_partitions = 3;
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 2).await, 0);
    let one = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    let answer = client.call(3, &one).await;
    assert_eq!((answer.error_code, answer.node_id), (0, 0));
    let keys = vec!["g".into(), "h".into()];
    let many = FindCoordinatorRequest { coordinator_keys: keys, ..Default::default() };
    let answer = client.call(4, &many).await;
    assert!(answer.coordinators.iter().all(|found| found.error_code == 0));
    assert_eq!(answer.coordinators.len(), 2);
    let txn = FindCoordinatorRequest { key_type: 1, ..many.clone() };
    let answer = client.call(4, &txn).await;
    let refused = ErrorCode::UnsupportedVersion.code();
    assert!(answer.coordinators.iter().all(|found| found.error_code == refused));
    // Loading may still be under way.
    sleep_ms(&world.env, 1_000).await;
    let answer = client.call(8, &commit(-1, "", 1, 42)).await;
    assert_eq!(answer.topics[0].partitions[0].error_code, 0);
    let answer = client.call(8, &commit(-1, "", 9, 42)).await;
    let missing = ErrorCode::UnknownTopicOrPartition.code();
    assert_eq!(answer.topics[0].partitions[0].error_code, missing);
    started.kill();
    let started = world.start().await;
    let mut client = started.connect();
    sleep_ms(&world.env, 1_000).await;
    let answer = client.call(8, &read(vec![0, 1])).await;
    let group = &answer.groups[0];
    assert_eq!(group.error_code, 0);
    let found: Vec<_> = group
        .topics
        .iter()
        .flat_map(|topic| &topic.partitions)
        .map(|part| (part.partition_index, part.committed_offset, part.metadata.clone()))
        .collect();
    assert_eq!(found, [(0, -1, Some("".into())), (1, 42, Some("note".into()))]);
    // The old form, for all partitions.
    let all = OffsetFetchRequest { group_id: "g".into(), topics: None, ..Default::default() };
    let answer = client.call(5, &all).await;
    assert_eq!(answer.topics[0].partitions[0].committed_offset, 42);
    // Clients may not write there.
    let refused = client.produce("__consumer_offsets", 0, batch(&["x"])).await;
    assert_eq!(refused.error_code, ErrorCode::InvalidTopicException.code());
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_member_joins_syncs_beats_commits_is_described_and_leaves() {
    let mut world = World::new();
    world.config.offsets_topic_num_partitions = 1;
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let find = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    assert_eq!(client.call(3, &find).await.error_code, 0);
    sleep_ms(&world.env, 1_000).await;
    let mut join = JoinGroupRequest {
        group_id: "g".into(),
        session_timeout_ms: 30_000,
        rebalance_timeout_ms: 30_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            metadata: Bytes::from_static(b"meta"),
        }],
        ..Default::default()
    };
    let answer = client.call(9, &join).await;
    assert_eq!(answer.error_code, ErrorCode::MemberIdRequired.code());
    join.member_id = answer.member_id;
    let joined = client.call(9, &join).await;
    assert_eq!((joined.error_code, &joined.leader), (0, &join.member_id));
    assert_eq!(joined.members[0].metadata, Bytes::from_static(b"meta"));
    let sync = SyncGroupRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: join.member_id.clone(),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: vec![SyncGroupRequestAssignment {
            member_id: join.member_id.clone(),
            assignment: Bytes::from_static(b"mine"),
        }],
        ..Default::default()
    };
    let synced = client.call(5, &sync).await;
    assert_eq!((synced.error_code, synced.assignment), (0, Bytes::from_static(b"mine")));
    let beat = HeartbeatRequest {
        group_id: "g".into(),
        generation_id: joined.generation_id,
        member_id: join.member_id.clone(),
        ..Default::default()
    };
    assert_eq!(client.call(4, &beat).await.error_code, 0);
    let request = commit(joined.generation_id, &join.member_id, 0, 7);
    assert_eq!(client.call(8, &request).await.topics[0].partitions[0].error_code, 0);
    let answer = client.call(5, &ListGroupsRequest::default()).await;
    assert_eq!((answer.error_code, answer.groups.len()), (0, 1));
    assert_eq!(answer.groups[0].group_state, "Stable");
    let request =
        DescribeGroupsRequest { groups: vec!["g".into(), "none".into()], ..Default::default() };
    let answer = client.call(5, &request).await;
    assert_eq!(answer.groups[0].members[0].client_host, "/127.0.0.1");
    assert_eq!((answer.groups[1].error_code, &*answer.groups[1].group_state), (0, "Dead"));
    let delete = DeleteGroupsRequest { groups_names: vec!["g".into()] };
    let answer = client.call(2, &delete).await;
    assert_eq!(answer.results[0].error_code, ErrorCode::NonEmptyGroup.code());
    let leave = LeaveGroupRequest {
        group_id: "g".into(),
        members: vec![MemberIdentity { member_id: join.member_id.clone(), ..Default::default() }],
        ..Default::default()
    };
    let answer = client.call(4, &leave).await;
    assert_eq!((answer.error_code, answer.members[0].error_code), (0, 0));
    assert_eq!(client.call(2, &delete).await.results[0].error_code, 0);
    started.stop().await;
}
