//! The small APIs, each once.

mod common;

use common::*;
use talos_protocol::ErrorCode;
use talos_protocol::messages::describe_producers::TopicRequest;
use talos_protocol::messages::*;

#[tokio::test(start_paused = true)]
async fn producers_sizes_and_the_cluster_are_described() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 2).await, 0);
    client.produce("t", 1, idempotent(77, 0, &["a", "b"])).await;
    let topics = vec![TopicRequest { name: "t".into(), partition_indexes: vec![1, 9] }];
    let answer = client.call(0, &DescribeProducersRequest { topics }).await;
    let [first, second] = &answer.topics[0].partitions[..] else { panic!("two partitions") };
    let producer = &first.active_producers[0];
    assert_eq!((producer.producer_id, producer.last_sequence), (77, 1));
    assert_eq!(second.error_code, ErrorCode::UnknownTopicOrPartition.code());
    let all = DescribeLogDirsRequest { topics: None };
    let answer = client.call(4, &all).await;
    let partitions = &answer.results[0].topics[0].partitions;
    assert_eq!(partitions.len(), 2);
    assert!(partitions[0].partition_size == 0 && partitions[1].partition_size > 0);
    let answer = client.call(2, &DescribeClusterRequest::default()).await;
    assert_eq!(*answer.cluster_id, *started.broker.cluster_id().to_string());
    assert_eq!((answer.error_code, answer.controller_id, answer.brokers.len()), (0, 0, 1));
    let controllers = DescribeClusterRequest { endpoint_type: 2, ..Default::default() };
    let answer = client.call(1, &controllers).await;
    assert_eq!(answer.error_code, ErrorCode::UnsupportedEndpointType.code());
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn every_served_api_answers_an_empty_request_in_every_version() {
    let world = World::new();
    let started = world.start().await;
    macro_rules! each {
        ($($request:ident)*) => {$(
            let served = talos_broker::served();
            let key = <$request as Request>::KEY;
            let api = served.iter().find(|api| api.key == key).expect("served");
            for version in api.min..=api.max {
                let mut client = started.connect();
                // What an older version can not say has its default.
                client.call(version, &<$request>::default()).await;
            }
        )*};
    }
    // Produce with its default acks, 0, has no answer; and not all versions that are advertised exist.
    for version in 3..=13 {
        let mut client = started.connect();
        let request = ProduceRequest { acks: -1, ..Default::default() };
        assert!(client.call(version, &request).await.responses.is_empty());
    }
    each! {
        FetchRequest ListOffsetsRequest MetadataRequest OffsetCommitRequest
        OffsetFetchRequest FindCoordinatorRequest JoinGroupRequest HeartbeatRequest LeaveGroupRequest
        SyncGroupRequest DescribeGroupsRequest ListGroupsRequest ApiVersionsRequest
        InitProducerIdRequest CreateTopicsRequest DeleteTopicsRequest DeleteRecordsRequest OffsetForLeaderEpochRequest
        DescribeConfigsRequest AlterConfigsRequest DescribeLogDirsRequest CreatePartitionsRequest
        DeleteGroupsRequest IncrementalAlterConfigsRequest OffsetDeleteRequest
        DescribeClusterRequest DescribeProducersRequest DescribeTopicPartitionsRequest
    }
    started.stop().await;
}
