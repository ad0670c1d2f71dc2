//! What clients may ask of a broker, and what an operator is told (P6, P7).

mod common;

use std::collections::BTreeMap;
use std::time::Duration;

use common::*;
use talos_broker::BrokerConfig;
use talos_common::BrokerId;
use talos_protocol::ErrorCode;
use talos_protocol::messages::create_partitions::CreatePartitionsTopic;
use talos_protocol::messages::create_topics::CreatableTopic;
use talos_protocol::messages::metadata::MetadataRequestTopic;
use talos_protocol::messages::*;
use tokio::io::AsyncReadExt;

fn create(topics: &[(&str, i32)], timeout_ms: i32) -> CreateTopicsRequest {
    let topic = |(name, num_partitions): &(&str, i32)| CreatableTopic {
        name: text(name),
        num_partitions: *num_partitions,
        replication_factor: -1,
        ..Default::default()
    };
    let topics = topics.iter().map(topic).collect();
    CreateTopicsRequest { topics, timeout_ms, ..Default::default() }
}

/// Code and message of each topic.
async fn created(client: &mut Client, topics: &[(&str, i32)]) -> Vec<(i16, String)> {
    let answer = client.call(7, &create(topics, 30_000)).await;
    let result = |topic: &create_topics::CreatableTopicResult| {
        (
            topic.error_code,
            topic.error_message.as_ref().map(ToString::to_string).unwrap_or_default(),
        )
    };
    answer.topics.iter().map(result).collect()
}

#[tokio::test(start_paused = true)]
async fn p7_changes_that_nobody_waits_for_are_bounded_in_number() {
    let mut world = World::new();
    (world.config.changes, world.config.waiting_changes) = (1, 3);
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("first", 1).await, 0);
    world.tree.faults().set_slow(1_000_000, 60_000..=60_000);
    let mut codes = BTreeMap::<i16, usize>::new();
    for n in 0..10 {
        // They do not wait, and each leaves a change behind.
        let request = create(&[(&format!("t{n}"), 1)], 0);
        let answer = client.call(7, &request).await;
        *codes.entry(answer.topics[0].error_code).or_default() += 1;
    }
    let unknown = ErrorCode::RequestTimedOut.code();
    let refused = ErrorCode::ThrottlingQuotaExceeded.code();
    assert_eq!(codes, BTreeMap::from([(unknown, 3), (refused, 7)]));
    // Another API, and a topic that would be created on the way.
    let delete = DeleteTopicsRequest { topic_names: vec!["first".into()], ..Default::default() };
    assert_eq!(client.call(5, &delete).await.responses[0].error_code, refused);
    assert_eq!(auto_created(&mut client, "on-the-way").await, ErrorCode::LeaderNotAvailable.code());
    world.tree.faults().heal();
    sleep_ms(&world.env, 600_000).await;
    assert_eq!(client.create_topic("later", 1).await, 0);
    // Those whose outcome was unknown were done, those that were refused were not.
    let all = client.call(9, &MetadataRequest { topics: None, ..Default::default() }).await;
    assert_eq!(all.topics.len(), 1 + 3 + 1);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p4_a_change_that_waits_for_its_turn_when_the_broker_stops_is_refused_and_never_made() {
    let mut world = World::new();
    (world.config.changes, world.config.waiting_changes) = (1, 3);
    let started = world.start().await;
    world.tree.faults().set_slow(1_000_000, 5_000..=5_000);
    let (mut first, mut second) = (started.connect(), started.connect());
    let runs = first.send(7, &create(&[("first", 1)], 600_000)).await;
    sleep_ms(&world.env, 10).await;
    let waits = second.send(7, &create(&[("second", 1)], 600_000)).await;
    sleep_ms(&world.env, 10).await;
    let before = world.env.clock.now();
    let refusal = async {
        let answer: CreateTopicsResponse = second.receive(7, waits).await;
        assert!(world.env.clock.now() - before < Duration::from_secs(1));
        world.tree.faults().heal();
        answer
    };
    let made = first.receive::<CreateTopicsResponse>(7, runs);
    let (stopped, refusal, made) = tokio::join!(started.broker.stop(), refusal, made);
    stopped.expect("a clean stop");
    assert_eq!(refusal.topics[0].error_code, ErrorCode::ThrottlingQuotaExceeded.code());
    let why = refusal.topics[0].error_message.as_ref().expect("a reason").to_string();
    assert_eq!(why, "the broker is stopping; nothing was changed");
    // The one that had begun ran to its end.
    assert_eq!(made.topics[0].error_code, 0);
    started.env.tasks.stop();
    started.env.tasks.join().await;

    let started = world.start().await;
    let mut client = started.connect();
    let all = client.call(9, &MetadataRequest { topics: None, ..Default::default() }).await;
    let names: Vec<_> = all.topics.iter().map(|topic| topic.name.clone()).collect();
    assert_eq!(names, [Some(text("first"))]);
    started.stop().await;
}

async fn auto_created(client: &mut Client, name: &str) -> i16 {
    let topic = MetadataRequestTopic { name: Some(text(name)), ..Default::default() };
    let topics = Some(vec![topic]);
    let request = MetadataRequest { topics, allow_auto_topic_creation: true, ..Default::default() };
    client.call(9, &request).await.topics[0].error_code
}

#[tokio::test(start_paused = true)]
async fn p7_partitions_are_limited_by_request_and_by_broker() {
    let mut world = World::new();
    (world.config.max_request_partitions, world.config.max_partitions) = (10, 15);
    world.config.num_partitions = 6;
    let started = world.start().await;
    let mut client = started.connect();
    let invalid = ErrorCode::InvalidPartitions.code();
    let policy = ErrorCode::PolicyViolation.code();
    let refused = created(&mut client, &[("large", 11)]).await;
    assert_eq!(refused[0].0, invalid);
    assert!(refused[0].1.contains("11") && refused[0].1.contains("request_partitions allows 10"));
    let both = created(&mut client, &[("a", 6), ("b", 6)]).await;
    assert_eq!([both[0].0, both[1].0], [0, invalid], "12 in one request");
    assert_eq!(created(&mut client, &[("c", 9)]).await[0].0, 0);
    let full = created(&mut client, &[("d", 1)]).await;
    assert_eq!(full[0].0, policy);
    assert!(full[0].1.contains("has 15 partitions") && full[0].1.contains("which is 15"));
    let validate = CreateTopicsRequest { validate_only: true, ..create(&[("d", 1)], 1_000) };
    assert_eq!(client.call(7, &validate).await.topics[0].error_code, policy);
    let more = |count| CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic { name: "a".into(), count, assignments: None }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    assert_eq!(client.call(3, &more(7)).await.results[0].error_code, policy);
    assert_eq!(client.call(3, &more(17)).await.results[0].error_code, invalid);
    assert_eq!(auto_created(&mut client, "e").await, policy);
    // Groups work on a full broker too.
    let find = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    assert_eq!(client.call(3, &find).await.error_code, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p7_one_metadata_request_creates_no_more_partitions_than_a_request_may() {
    let mut world = World::new();
    (world.config.max_request_partitions, world.config.num_partitions) = (10, 4);
    let started = world.start().await;
    let topic =
        |n: i32| MetadataRequestTopic { name: Some(text(&format!("t{n}"))), ..Default::default() };
    let topics = Some((0..5).map(topic).collect());
    let request = MetadataRequest { topics, allow_auto_topic_creation: true, ..Default::default() };
    let answer = started.connect().call(9, &request).await;
    let codes: Vec<_> = answer.topics.iter().map(|topic| topic.error_code).collect();
    let refused = ErrorCode::InvalidPartitions.code();
    assert_eq!(codes, [0, 0, refused, refused, refused]);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_start_with_the_wrong_id_after_a_kill_says_which_id_owns_the_partitions() {
    let mut world = World::new();
    let started = world.start().await;
    assert_eq!(started.connect().create_topic("t", 3).await, 0);
    assert!(started.broker.health().report().is_empty());
    started.kill();
    world.config.node_id = BrokerId(7);
    let wrong = world.start().await;
    let health = wrong.broker.health();
    assert_eq!((health.open, health.of_others.clone()), (0, BTreeMap::from([(BrokerId(0), 3)])));
    assert!(!health.is_serving());
    assert!(health.report().contains("--node-id 0"), "{}", health.report());
    // Still so after it has tried again.
    sleep_ms(&world.env, 60_000).await;
    assert_eq!(wrong.broker.health(), health);
    wrong.stop().await;
    world.config.node_id = BrokerId(0);
    let right = world.start().await;
    assert_eq!(right.broker.health().open, 3);
    assert!(right.broker.health().is_serving() && right.broker.health().report().is_empty());
    right.stop().await;
}

#[tokio::test(start_paused = true)]
async fn one_address_has_no_more_connections_than_its_limit() {
    let world = World::with(BrokerConfig { max_connections_per_ip: 2, ..BrokerConfig::default() });
    let started = world.start().await;
    let (mut one, _two) = (started.connect(), started.connect());
    let mut rest = Vec::new();
    started.pipe().read_to_end(&mut rest).await.unwrap();
    assert!(rest.is_empty());
    let (ours, theirs) = tokio::io::duplex(1 << 10);
    started.broker.serve_connection(theirs, "127.0.0.2:5555".into());
    assert_eq!(started.broker.metrics().connections_refused.get(), 1);
    sleep_ms(&world.env, 1).await;
    assert_eq!(started.broker.metrics().connections.get(), 3, "another address is served");
    assert_eq!(one.create_topic("t", 1).await, 0);
    drop((one, ours));
    sleep_ms(&world.env, 1).await;
    assert_eq!(started.connect().create_topic("u", 1).await, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_transactional_producer_is_refused_in_a_way_that_its_client_takes_as_final() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    // librdkafka asks in version 2, Java from 4 on.
    let old = FindCoordinatorRequest { key: "x".into(), key_type: 1, ..Default::default() };
    let answer = client.call(2, &old).await;
    assert_eq!(answer.error_code, ErrorCode::TransactionalIdAuthorizationFailed.code());
    assert!(answer.error_message.unwrap().contains("transactions are not supported"));
    let keys = vec!["x".into()];
    let new = FindCoordinatorRequest { coordinator_keys: keys, key_type: 1, ..Default::default() };
    let answer = client.call(4, &new).await;
    assert_eq!(answer.coordinators[0].error_code, ErrorCode::UnsupportedVersion.code());
    started.stop().await;
}

/// Commits an offset of `t-0` for the group `g`; gives the code.
async fn commit(client: &mut Client, offset: i64) -> i16 {
    let partition = OffsetCommitRequestPartition { committed_offset: offset, ..Default::default() };
    let topic = OffsetCommitRequestTopic {
        name: "t".into(),
        partitions: vec![partition],
        ..Default::default()
    };
    let request = OffsetCommitRequest {
        group_id: "g".into(),
        generation_id_or_member_epoch: -1,
        topics: vec![topic],
        ..Default::default()
    };
    client.call(8, &request).await.topics[0].partitions[0].error_code
}

/// The committed offset of `t-0`, or the code.
async fn committed(client: &mut Client) -> Result<i64, i16> {
    let topic = OffsetFetchRequestTopics {
        name: "t".into(),
        partition_indexes: vec![0],
        ..Default::default()
    };
    let group = OffsetFetchRequestGroup {
        group_id: "g".into(),
        topics: Some(vec![topic]),
        ..Default::default()
    };
    let request = OffsetFetchRequest { groups: vec![group], ..Default::default() };
    let group = client.call(8, &request).await.groups.remove(0);
    match group.error_code {
        0 => Ok(group.topics[0].partitions[0].committed_offset),
        code => Err(code),
    }
}

/// A broker with one partition of group offsets, and a topic `t`.
async fn with_groups(world: &mut World) -> Started {
    world.config.offsets_topic_num_partitions = 1;
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let find = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
    assert_eq!(client.call(3, &find).await.error_code, 0);
    sleep_ms(&world.env, 1_000).await;
    started
}

#[tokio::test(start_paused = true)]
async fn p4_a_commit_on_a_stalled_disk_is_answered_in_time_as_unknown_and_may_still_land() {
    let mut world = World::new();
    let started = with_groups(&mut world).await;
    let mut client = started.connect();
    assert_eq!(commit(&mut client, 5).await, 0);
    world.storage.faults().set_stalled(true);
    let before = world.env.clock.now();
    assert_eq!(commit(&mut client, 6).await, ErrorCode::RequestTimedOut.code());
    let took = world.env.clock.now() - before;
    assert!((Duration::from_secs(5)..Duration::from_secs(6)).contains(&took), "{took:?}");
    assert_eq!(committed(&mut client).await, Ok(5));
    world.storage.faults().set_stalled(false);
    sleep_ms(&world.env, 1_000).await;
    assert_eq!(committed(&mut client).await, Ok(6));
    assert_eq!(commit(&mut client, 7).await, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn groups_whose_log_cannot_be_read_are_not_available_and_others_are_served() {
    let mut world = World::new();
    let started = with_groups(&mut world).await;
    let mut client = started.connect();
    assert_eq!(commit(&mut client, 5).await, 0);
    // Kafka lets the admin client write there, whatever it is.
    client.client_id = Some("__admin_client".into());
    assert_eq!(client.produce("__consumer_offsets", 0, batch(&["no key"])).await.error_code, 0);
    started.kill();
    let started = world.start().await;
    let mut client = started.connect();
    sleep_ms(&world.env, 1_000).await;
    let unavailable = ErrorCode::CoordinatorNotAvailable.code();
    for _ in 0..3 {
        let find = FindCoordinatorRequest { key: "g".into(), ..Default::default() };
        assert_eq!(client.call(3, &find).await.error_code, unavailable);
        assert_eq!(commit(&mut client, 6).await, unavailable);
        // Java's consumer takes any other code here for fatal.
        assert_eq!(committed(&mut client).await, Err(ErrorCode::NotCoordinator.code()));
    }
    assert_eq!(client.produce("t", 0, batch(&["x"])).await.error_code, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn e_g2_loading_a_group_partition_reads_one_snapshot_and_what_came_since() {
    let mut world = World::new();
    world.config.group_snapshot_bytes = 32 << 10;
    let started = with_groups(&mut world).await;
    let mut client = started.connect();
    let mut last_start = 0;
    let mut moves = 0;
    for offset in 1..=2_000 {
        assert_eq!(commit(&mut client, offset).await, 0);
        let (start, _) = client.list_offset("__consumer_offsets", 0, -2).await;
        assert!(start >= last_start);
        moves += usize::from(start > last_start);
        last_start = start;
    }
    // About 90 bytes each, so one snapshot every 350 commits or so.
    assert!((3..20).contains(&moves), "the log start moved {moves} times");
    let (end, _) = client.list_offset("__consumer_offsets", 0, -1).await;
    assert!(end - last_start < 700, "{last_start} to {end}");
    started.kill();
    let started = world.start().await;
    let mut client = started.connect();
    sleep_ms(&world.env, 1_000).await;
    assert_eq!(client.list_offset("__consumer_offsets", 0, -2).await.0, last_start);
    assert_eq!(committed(&mut client).await, Ok(2_000));
    // All that is read at a start: the records from the log start on.
    let (mut next, mut bytes) = (last_start, 0);
    while next < end {
        let data = client.fetch("__consumer_offsets", 0, next).await;
        let records = data.records.unwrap().to_bytes();
        bytes += records.len();
        for batch in talos_protocol::batch::Batches::new(records) {
            next = batch.unwrap().header.end_offset();
        }
    }
    // With the headers of batches that hold one record each.
    assert!(bytes < 4 * (32 << 10), "{bytes} bytes");
    assert_eq!(commit(&mut client, 2_001).await, 0);
    started.stop().await;
}
