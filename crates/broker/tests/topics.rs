//! Topics and configuration: created, looked up, changed, deleted.

mod common;

use common::*;
use talos_broker::Error;
use talos_protocol::messages::create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig,
};
use talos_protocol::messages::delete_topics::DeleteTopicState;
use talos_protocol::messages::describe_configs::DescribeConfigsResource;
use talos_protocol::messages::incremental_alter_configs::{AlterConfigsResource, AlterableConfig};
use talos_protocol::messages::metadata::MetadataRequestTopic;
use talos_protocol::messages::*;
use talos_protocol::{ErrorCode, Uuid};

const TOPIC: i8 = 2;
const BROKER: i8 = 4;

fn metadata(name: &str, create: bool) -> MetadataRequest {
    let topic = MetadataRequestTopic { name: Some(text(name)), ..Default::default() };
    MetadataRequest {
        topics: Some(vec![topic]),
        allow_auto_topic_creation: create,
        ..Default::default()
    }
}

#[tokio::test(start_paused = true)]
async fn c5_metadata_creates_missing_topics_where_that_is_allowed() {
    let mut world = World::new();
    world.config.num_partitions = 4;
    let started = world.start().await;
    let mut client = started.connect();
    let answer = client.call(12, &metadata("auto", false)).await;
    assert_eq!(answer.topics[0].error_code, ErrorCode::UnknownTopicOrPartition.code());
    let answer = client.call(12, &metadata("auto", true)).await;
    let topic = &answer.topics[0];
    assert_eq!((topic.error_code, topic.partitions.len()), (0, 4));
    assert!(!topic.topic_id.is_zero());
    assert!(topic.partitions.iter().all(|part| part.error_code == 0 && part.leader_id == 0));
    assert_eq!(client.produce("auto", 3, batch(&["x"])).await.error_code, 0);
    let answer = client.call(12, &metadata("not/legal", true)).await;
    assert_eq!(answer.topics[0].error_code, ErrorCode::InvalidTopicException.code());
    // Version 0: an empty list means all; later it means none.
    let none = MetadataRequest { topics: Some(Vec::new()), ..Default::default() };
    assert_eq!(client.call(0, &none).await.topics.len(), 1);
    assert_eq!(client.call(4, &none).await.topics.len(), 0);
    let all = MetadataRequest { topics: None, ..Default::default() };
    let answer = client.call(13, &all).await;
    assert_eq!((answer.topics.len(), answer.brokers.len()), (1, 1));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn create_topics_checks_everything_and_each_topic_alone() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    let plain = |name: &str| CreatableTopic {
        name: text(name),
        num_partitions: 1,
        replication_factor: -1,
        ..Default::default()
    };
    let config = |name: &str, value: &str| CreatableTopicConfig {
        name: text(name),
        value: Some(text(value)),
    };
    let manual = |partition_index: i32, broker: i32| CreatableReplicaAssignment {
        partition_index,
        broker_ids: vec![broker],
    };
    let by_hand =
        |name: &str, assignments| CreatableTopic { num_partitions: -1, assignments, ..plain(name) };
    let cases = [
        (plain("good"), ErrorCode::None),
        (plain("a b"), ErrorCode::InvalidTopicException),
        (plain("__consumer_offsets"), ErrorCode::InvalidTopicException),
        (CreatableTopic { num_partitions: 0, ..plain("p0") }, ErrorCode::InvalidPartitions),
        (
            CreatableTopic { replication_factor: 3, ..plain("r3") },
            ErrorCode::InvalidReplicationFactor,
        ),
        (CreatableTopic { replication_factor: 1, ..plain("r1") }, ErrorCode::None),
        (
            CreatableTopic { configs: vec![config("retention.mss", "1")], ..plain("c") },
            ErrorCode::InvalidConfig,
        ),
        (
            CreatableTopic { configs: vec![config("cleanup.policy", "compact")], ..plain("c") },
            ErrorCode::InvalidConfig,
        ),
        (
            CreatableTopic { assignments: vec![manual(0, 0)], ..plain("m") },
            ErrorCode::InvalidRequest,
        ),
        (by_hand("m1", vec![manual(0, 9)]), ErrorCode::InvalidReplicaAssignment),
        (by_hand("m2", vec![manual(1, 0)]), ErrorCode::InvalidReplicaAssignment),
        (by_hand("m3", vec![manual(1, 0), manual(0, 0)]), ErrorCode::None),
    ];
    let asked =
        |topics, validate_only| CreateTopicsRequest { topics, validate_only, ..Default::default() };
    for (topic, expected) in cases {
        let name = topic.name.clone();
        for validate_only in [true, false] {
            let answer = client.call(7, &asked(vec![topic.clone()], validate_only)).await;
            assert_eq!(answer.topics[0].error_code, expected.code(), "{name}");
            assert_eq!(answer.topics[0].error_message.is_some(), expected != ErrorCode::None);
        }
    }
    let topics = vec![plain("twice"), plain("twice"), plain("good"), plain("once")];
    let answer = client.call(7, &asked(topics, false)).await;
    let codes: Vec<_> = answer.topics.iter().map(|topic| topic.error_code).collect();
    let expected = [ErrorCode::InvalidRequest, ErrorCode::TopicAlreadyExists, ErrorCode::None];
    assert_eq!(codes, expected.map(ErrorCode::code));
    let created = &answer.topics[2];
    assert_eq!((created.num_partitions, created.replication_factor), (1, 1));
    let configs = created.configs.as_ref().unwrap();
    assert!(configs.iter().any(|config| config.name == "retention.ms"));
    // Names that only differ in '.' and '_' can not be told apart in metrics.
    assert_eq!(client.create_topic("x.y", 1).await, 0);
    assert_eq!(client.create_topic("x_y", 1).await, ErrorCode::InvalidTopicException.code());
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn f14_a_topic_that_was_deleted_and_created_again_is_another_topic() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 2).await, 0);
    client.produce("t", 0, batch(&["old"])).await;
    let old = client.call(12, &metadata("t", false)).await.topics[0].topic_id;
    let delete = |name: Option<&str>, topic_id| DeleteTopicsRequest {
        topics: vec![DeleteTopicState { name: name.map(text), topic_id }],
        timeout_ms: 30_000,
        ..Default::default()
    };
    // A long poll on a topic that goes away hears of it.
    let mut poller = started.connect();
    let poll = poller.send(12, &fetch_request("t", 0, 1, 60_000)).await;
    sleep_ms(&world.env, 100).await;
    let answer = client.call(6, &delete(Some("t"), Uuid::ZERO)).await;
    assert_eq!((answer.responses[0].error_code, answer.responses[0].topic_id), (0, old));
    let ended: FetchResponse = poller.receive(12, poll).await;
    assert_ne!(ended.responses[0].partitions[0].error_code, 0);
    assert_eq!(client.create_topic("t", 2).await, 0);
    let new = client.call(12, &metadata("t", false)).await.topics[0].topic_id;
    assert_ne!(old, new);
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 0);
    let mut by_id = fetch_request("t", 0, 0, 0);
    by_id.topics[0].topic_id = old;
    let answer = client.call(13, &by_id).await;
    let part = &answer.responses[0].partitions[0];
    assert_eq!(part.error_code, ErrorCode::UnknownTopicId.code());
    let answer = client.call(6, &delete(None, old)).await;
    assert_eq!(answer.responses[0].error_code, ErrorCode::UnknownTopicId.code());
    let answer = client.call(6, &delete(None, Uuid::ZERO)).await;
    assert_eq!(answer.responses[0].error_code, ErrorCode::InvalidRequest.code());
    started.kill();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 0);
    let answer = client.call(6, &delete(None, new)).await;
    assert_eq!(answer.responses[0].error_code, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn c9_create_partitions_answers_each_topic_and_they_serve() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 2).await, 0);
    let asked =
        |name: &str, count| CreatePartitionsTopic { name: text(name), count, assignments: None };
    let topics = vec![asked("t", 5), asked("missing", 2)];
    let request = CreatePartitionsRequest { topics, timeout_ms: 30_000, ..Default::default() };
    let answer = client.call(3, &request).await;
    let codes: Vec<_> = answer.results.iter().map(|result| result.error_code).collect();
    assert_eq!(codes, [0, ErrorCode::UnknownTopicOrPartition.code()]);
    assert_eq!(client.produce("t", 4, batch(&["x"])).await.error_code, 0);
    for count in [5, 1] {
        let topics = vec![asked("t", count)];
        let request = CreatePartitionsRequest { topics, timeout_ms: 30_000, ..Default::default() };
        let answer = client.call(3, &request).await;
        assert_eq!(answer.results[0].error_code, ErrorCode::InvalidPartitions.code());
    }
    started.stop().await;
}

fn describe(resource_type: i8, name: &str, keys: Option<&[&str]>) -> DescribeConfigsRequest {
    let resource = DescribeConfigsResource {
        resource_type,
        resource_name: text(name),
        configuration_keys: keys.map(|keys| keys.iter().map(|key| text(key)).collect()),
    };
    DescribeConfigsRequest {
        resources: vec![resource],
        include_synonyms: true,
        include_documentation: true,
    }
}

#[tokio::test(start_paused = true)]
async fn c6_c11_configs_are_altered_step_by_step_and_described_with_their_sources() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let throttled = "leader.replication.throttled.replicas";
    let alter = |changes: &[(&str, i8, Option<&str>)]| {
        let change = |(name, operation, value): &(&str, i8, Option<&str>)| AlterableConfig {
            name: text(name),
            config_operation: *operation,
            value: value.map(text),
        };
        IncrementalAlterConfigsRequest {
            resources: vec![AlterConfigsResource {
                resource_type: TOPIC,
                resource_name: "t".into(),
                configs: changes.iter().map(change).collect(),
            }],
            validate_only: false,
        }
    };
    for (changes, expected) in [
        (&[("retention.ms", 0, Some("1000")), (throttled, 0, Some("a,b"))][..], ErrorCode::None),
        (&[(throttled, 2, Some("b,c"))], ErrorCode::None),
        (&[(throttled, 3, Some("a"))], ErrorCode::None),
        (&[("retention.ms", 2, Some("1"))], ErrorCode::InvalidConfig),
        (&[("cleanup.policy", 2, Some("compact"))], ErrorCode::InvalidConfig),
        (
            &[("retention.bytes", 0, Some("5")), ("nonsense", 0, Some("1"))],
            ErrorCode::InvalidConfig,
        ),
        (&[("retention.ms", 9, Some("1"))], ErrorCode::InvalidRequest),
    ] {
        let answer = client.call(1, &alter(changes)).await;
        assert_eq!(answer.responses[0].error_code, expected.code(), "{changes:?}");
    }
    let answer = client.call(4, &describe(TOPIC, "t", None)).await;
    let entries = &answer.results[0].configs;
    let entry = |name: &str| entries.iter().find(|entry| entry.name == name).unwrap();
    let value = |name: &str| entry(name).value.as_deref().map(str::to_owned).unwrap();
    assert_eq!((value("retention.ms").as_str(), entry("retention.ms").config_source), ("1000", 1));
    assert_eq!(entry("retention.ms").synonyms.len(), 2);
    assert_eq!(value(throttled), "b,c");
    // Nothing of a refused change is applied.
    assert_eq!(
        (value("retention.bytes").as_str(), entry("retention.bytes").config_source),
        ("-1", 5)
    );
    assert!(entries.iter().all(|entry| entry.documentation.is_some() && entry.config_type > 0));
    client.call(1, &alter(&[("retention.ms", 1, None)])).await;
    let answer = client.call(4, &describe(TOPIC, "t", Some(&["retention.ms", "missing"]))).await;
    let entries = &answer.results[0].configs;
    assert_eq!((entries.len(), entries[0].config_source), (1, 5));
    let answer = client.call(4, &describe(BROKER, "0", None)).await;
    assert!(answer.results[0].configs.iter().any(|entry| entry.name == "message.max.bytes"));
    let answer = client.call(4, &describe(BROKER, "7", None)).await;
    assert_eq!(answer.results[0].error_code, ErrorCode::InvalidRequest.code());
    let answer = client.call(4, &describe(TOPIC, "missing", None)).await;
    assert_eq!(answer.results[0].error_code, ErrorCode::UnknownTopicOrPartition.code());
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn describe_topic_partitions_pages_through_all() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    for (name, partitions) in [("b", 3), ("a", 2)] {
        assert_eq!(client.create_topic(name, partitions).await, 0);
    }
    let mut seen = Vec::new();
    let mut request =
        DescribeTopicPartitionsRequest { response_partition_limit: 2, ..Default::default() };
    for _ in 0..10 {
        let answer = client.call(0, &request).await;
        for topic in &answer.topics {
            let name = topic.name.as_deref().unwrap_or_default().to_owned();
            seen.extend(topic.partitions.iter().map(|p| (name.clone(), p.partition_index)));
        }
        let Some(next) = answer.next_cursor else { break };
        request.cursor = Some(DescribeTopicPartitionsRequestCursor {
            topic_name: next.topic_name,
            partition_index: next.partition_index,
        });
    }
    let all = [("a", 0), ("a", 1), ("b", 0), ("b", 1), ("b", 2)];
    assert_eq!(seen, all.map(|(name, index)| (name.to_owned(), index)));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn e_w3_a_store_and_metadata_of_different_clusters_are_refused() {
    let (one, other) = (World::new(), World::new());
    other.env.rng.u64(..);
    one.start().await.stop().await;
    other.start().await.stop().await;
    let mixed = World { tree: other.tree.handle(), ..one };
    assert!(matches!(mixed.try_start().await, Err(Error::Cluster(_))));
    let lost = World { tree: World::new().tree, ..mixed };
    assert!(matches!(lost.try_start().await, Err(Error::Cluster(_))));
    let empty_store = World { storage: World::new().storage, ..other };
    assert!(matches!(empty_store.try_start().await, Err(Error::Cluster(_))));
}

#[tokio::test(start_paused = true)]
async fn every_start_is_a_new_broker_epoch_and_old_directories_go() {
    let world = World::new();
    for round in 1..5u64 {
        let started = world.start().await;
        assert_eq!(started.broker.dir().epoch.0, round);
        assert_eq!(started.broker.partition_counts(), (0, 0));
        // The first repair pass runs at once.
        sleep_ms(&world.env, 3_000).await;
        started.stop().await;
    }
    let files = world.storage.files();
    let dirs: std::collections::BTreeSet<_> = files.iter().filter_map(|file| file.dir()).collect();
    assert_eq!(dirs.into_iter().map(|dir| dir.epoch.0).collect::<Vec<_>>(), [4]);
}
