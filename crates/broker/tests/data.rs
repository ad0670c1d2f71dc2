//! Produce, Fetch and ListOffsets as clients rely on them; rows of the list of known faults by id.

mod common;

use std::time::Duration;

use bytes::Bytes;
use common::*;
use talos_protocol::batch::Compression;
use talos_protocol::messages::delete_records::{DeleteRecordsPartition, DeleteRecordsTopic};
use talos_protocol::messages::fetch::FetchPartition;
use talos_protocol::messages::*;
use talos_protocol::records::NewRecord;
use talos_protocol::{ErrorCode, Str};

async fn with_topic(partitions: i32) -> (World, Started, Client) {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", partitions).await, 0);
    (world, started, client)
}

fn code(code: ErrorCode) -> i16 {
    code.code()
}

#[tokio::test(start_paused = true)]
async fn c1_a_fetch_inside_a_batch_gives_the_whole_batch() {
    let (_world, started, mut client) = with_topic(1).await;
    client.produce("t", 0, batch(&["a", "b", "c"])).await;
    client.produce("t", 0, batch(&["d"])).await;
    let data = client.fetch("t", 0, 2).await;
    let found: Vec<_> = values(&data).into_iter().map(|(offset, _)| offset).collect();
    assert_eq!(found, [0, 1, 2, 3]);
    assert!(values(&client.fetch("t", 0, 4).await).is_empty());
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn c4_a_batch_above_max_message_bytes_is_refused() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic_with("t", 1, &[("max.message.bytes", "200")]).await, 0);
    let large = "x".repeat(300);
    let answer = client.produce("t", 0, batch(&[&large])).await;
    assert_eq!(answer.error_code, code(ErrorCode::MessageTooLarge));
    assert_eq!(client.produce("t", 0, batch(&["x"])).await.error_code, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn c8_list_offsets_finds_the_first_record_at_or_after_a_time() {
    let (_world, started, mut client) = with_topic(1).await;
    let mut builder = talos_protocol::records::BatchBuilder::new().compression(Compression::Gzip);
    for at in [10, 30, 20] {
        builder.push(&NewRecord::value(START_MS + at, "v"));
    }
    client.produce("t", 0, builder.build().unwrap()).await;
    assert_eq!(client.list_offset("t", 0, START_MS + 11).await, (1, START_MS + 30));
    assert_eq!(client.list_offset("t", 0, START_MS).await, (0, START_MS + 10));
    assert_eq!(client.list_offset("t", 0, START_MS + 31).await, (-1, -1));
    assert_eq!(client.list_offset("t", 0, -3).await, (1, START_MS + 30));
    assert_eq!(client.list_offset("t", 0, -1).await, (3, -1));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn c17_answers_of_one_connection_stay_in_order() {
    let (_world, started, mut client) = with_topic(1).await;
    let mut produced = Vec::new();
    for _ in 0..20 {
        let request = produce_request("t", -1, vec![(0, batch(&["x"]))]);
        produced.push(client.send(9, &request).await);
    }
    let fetch = client.send(12, &fetch_request("t", 0, 0, 10_000)).await;
    let metadata = client.send(9, &MetadataRequest::default()).await;
    for (offset, id) in produced.into_iter().enumerate() {
        let answer: ProduceResponse = client.receive(9, id).await;
        assert_eq!(answer.responses[0].partition_responses[0].base_offset, offset as i64);
    }
    // P3: what was acknowledged before the fetch began is in it.
    let answer: FetchResponse = client.receive(12, fetch).await;
    assert_eq!(values(&answer.responses[0].partitions[0]).len(), 20);
    let _: MetadataResponse = client.receive(9, metadata).await;
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn acks_0_has_no_answer_and_a_failure_closes_the_connection() {
    let (_world, started, mut client) = with_topic(1).await;
    client.send(9, &produce_request("t", 0, vec![(0, batch(&["a"]))])).await;
    let answer = client.produce("t", 0, batch(&["b"])).await;
    assert_eq!(answer.base_offset, 1);
    client.send(9, &produce_request("t", 0, vec![(7, batch(&["a"]))])).await;
    assert!(client.frame().await.is_none());
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r6_one_bad_partition_does_not_fail_the_others() {
    let (_world, started, mut client) = with_topic(3).await;
    let mut flipped = batch(&["a"]).to_vec();
    *flipped.last_mut().unwrap() ^= 1;
    let two = [batch(&["a"]), batch(&["b"])].concat();
    let parts = vec![
        (0, Bytes::from(flipped)),
        (1, batch(&["good"])),
        (9, batch(&["a"])),
        (2, Bytes::from(two)),
        (2, Bytes::new()),
    ];
    let response = client.call(9, &produce_request("t", -1, parts)).await;
    let parts = &response.responses[0].partition_responses;
    let codes: Vec<_> = parts.iter().map(|part| part.error_code).collect();
    let expected = [
        ErrorCode::CorruptMessage,
        ErrorCode::None,
        ErrorCode::UnknownTopicOrPartition,
        ErrorCode::InvalidRecord,
        ErrorCode::InvalidRecord,
    ];
    assert_eq!(codes, expected.map(ErrorCode::code));
    assert!(parts[0].error_message.is_some());
    assert_eq!(values(&client.fetch("t", 1, 0).await), [(0, "good".to_owned())]);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn refusals_of_whole_produce_requests_are_definite() {
    let (_world, started, mut client) = with_topic(1).await;
    let good = || vec![(0, batch(&["a"]))];
    let first = |response: ProduceResponse| response.responses[0].partition_responses[0].error_code;
    let odd_acks = produce_request("t", 2, good());
    assert_eq!(first(client.call(9, &odd_acks).await), code(ErrorCode::InvalidRequiredAcks));
    let mut transactional = produce_request("t", -1, good());
    transactional.transactional_id = Some("x".into());
    assert_eq!(first(client.call(9, &transactional).await), code(ErrorCode::UnsupportedVersion));
    let in_transaction = builder(&["a"]).producer(5, 0, 0).transactional(true).build().unwrap();
    let in_transaction = produce_request("t", -1, vec![(0, in_transaction)]);
    assert_eq!(first(client.call(9, &in_transaction).await), code(ErrorCode::UnsupportedVersion));
    let zstd = builder(&["a"]).compression(Compression::Zstd).build().unwrap();
    let zstd = produce_request("t", -1, vec![(0, zstd)]);
    assert_eq!(first(client.call(6, &zstd).await), code(ErrorCode::UnsupportedCompressionType));
    assert_eq!(first(client.call(7, &zstd).await), 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p4_a_slow_store_is_an_unknown_outcome_and_the_append_goes_on() {
    let (world, started, mut client) = with_topic(1).await;
    world.storage.faults().set_stalled(true);
    let mut request = produce_request("t", -1, vec![(0, batch(&["late"]))]);
    request.timeout_ms = 500;
    let before = world.env.clock.now();
    let response = client.call(9, &request).await;
    let part = &response.responses[0].partition_responses[0];
    assert_eq!(part.error_code, code(ErrorCode::RequestTimedOut));
    assert!(world.env.clock.now() - before >= Duration::from_millis(500));
    // F13: nothing is visible before it is durable.
    assert_eq!(client.fetch("t", 0, 0).await.high_watermark, 0);
    world.storage.faults().set_stalled(false);
    assert_eq!(client.produce("t", 0, batch(&["next"])).await.base_offset, 1);
    assert_eq!(values(&client.fetch("t", 0, 0).await)[0], (0, "late".to_owned()));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r1_a_long_poll_wakes_with_the_first_record() {
    let (world, started, mut client) = with_topic(1).await;
    let id = client.send(12, &fetch_request("t", 0, 0, 60_000)).await;
    sleep_ms(&world.env, 1_000).await;
    let before = world.env.clock.now();
    let mut producer = started.connect();
    producer.produce("t", 0, batch(&["x"])).await;
    let answer: FetchResponse = client.receive(12, id).await;
    assert_eq!(values(&answer.responses[0].partitions[0]), [(0, "x".to_owned())]);
    assert!(world.env.clock.now() - before < Duration::from_secs(1));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_poll_ends_at_its_time_with_empty_records() {
    let (world, started, mut client) = with_topic(2).await;
    client.produce("t", 0, batch(&["x"])).await;
    let mut request = fetch_request("t", 0, 0, 3_000);
    request.min_bytes = 10_000;
    let other = FetchPartition { partition: 1, partition_max_bytes: 1 << 20, ..Default::default() };
    request.topics[0].partitions.push(other);
    let before = world.env.clock.now();
    let answer = client.call(12, &request).await;
    let took = world.env.clock.now() - before;
    assert!((Duration::from_secs(3)..Duration::from_secs(4)).contains(&took), "{took:?}");
    let [first, second] = &answer.responses[0].partitions[..] else { panic!("two partitions") };
    assert_eq!(values(first).len(), 1);
    assert_eq!((second.error_code, second.high_watermark), (0, 0));
    assert_eq!(second.records.as_ref().map(|records| records.len()), Some(0));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r5_the_first_batch_is_whole_and_the_rest_stays_within_the_limit() {
    let (_world, started, mut client) = with_topic(2).await;
    let large = "x".repeat(5_000);
    for partition in [0, 1] {
        client.produce("t", partition, batch(&[&large])).await;
    }
    let mut request = fetch_request("t", 1, 0, 0);
    request.max_bytes = 100;
    let other = FetchPartition { partition: 0, partition_max_bytes: 1 << 20, ..Default::default() };
    request.topics[0].partitions.push(other);
    let answer = client.call(12, &request).await;
    let [first, second] = &answer.responses[0].partitions[..] else { panic!("two partitions") };
    // In the order of the request: the client rotates it.
    assert_eq!((first.partition_index, values(first).len()), (1, 1));
    assert_eq!((second.partition_index, values(second).len()), (0, 0));
    assert_eq!(second.high_watermark, 1);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r17_f10_deleted_records_are_out_of_range_and_offsets_never_go_back() {
    let (world, mut started, mut client) = with_topic(1).await;
    client.produce("t", 0, batch(&["a", "b", "c"])).await;
    let delete = |offset| DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: "t".into(),
            partitions: vec![DeleteRecordsPartition { partition_index: 0, offset }],
        }],
        timeout_ms: 30_000,
    };
    let answer = client.call(2, &delete(4)).await;
    let part = &answer.topics[0].partitions[0];
    assert_eq!((part.error_code, part.low_watermark), (code(ErrorCode::OffsetOutOfRange), -1));
    let answer = client.call(2, &delete(-1)).await;
    assert_eq!(answer.topics[0].partitions[0].low_watermark, 3);
    for _ in 0..2 {
        let mut client = started.connect();
        let old = client.fetch("t", 0, 2).await;
        assert_eq!(old.error_code, code(ErrorCode::OffsetOutOfRange));
        assert_eq!(client.list_offset("t", 0, -2).await.0, client.list_offset("t", 0, -1).await.0);
        started.kill();
        started = world.start().await;
    }
    let mut client = started.connect();
    // J2: an emptied log does not begin at 0 again.
    assert_eq!(client.produce("t", 0, batch(&["d"])).await.base_offset, 3);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn leader_epochs_rise_with_each_start_and_are_checked() {
    let (world, started, mut client) = with_topic(1).await;
    client.produce("t", 0, batch(&["a"])).await;
    started.stop().await;
    let started = world.start().await;
    let mut client = started.connect();
    let asked = |epoch| {
        let mut request = fetch_request("t", 0, 0, 0);
        request.topics[0].partitions[0].current_leader_epoch = epoch;
        request
    };
    for (epoch, expected) in [
        (0, ErrorCode::FencedLeaderEpoch),
        (1, ErrorCode::None),
        (2, ErrorCode::UnknownLeaderEpoch),
        (-1, ErrorCode::None),
    ] {
        let answer = client.call(12, &asked(epoch)).await;
        assert_eq!(answer.responses[0].partitions[0].error_code, expected.code(), "{epoch}");
    }
    use talos_protocol::messages::offset_for_leader_epoch::OffsetForLeaderPartition;
    let partitions = vec![OffsetForLeaderPartition { leader_epoch: 0, ..Default::default() }];
    let topics = vec![OffsetForLeaderTopic { topic: "t".into(), partitions }];
    let request = OffsetForLeaderEpochRequest { topics, ..Default::default() };
    let answer = client.call(4, &request).await;
    let part = &answer.topics[0].partitions[0];
    assert_eq!((part.error_code, part.leader_epoch, part.end_offset), (0, 0, 1));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_fetch_session_that_nobody_opened_is_not_found() {
    let (_world, started, mut client) = with_topic(1).await;
    let mut request = fetch_request("t", 0, 0, 0);
    (request.session_id, request.session_epoch) = (0, 0);
    let answer = client.call(12, &request).await;
    assert_eq!((answer.error_code, answer.session_id), (0, 0));
    (request.session_id, request.session_epoch) = (5, 1);
    let answer = client.call(12, &request).await;
    assert_eq!(answer.error_code, code(ErrorCode::FetchSessionIdNotFound));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn j7_t2_retries_get_their_old_offsets_also_after_a_restart() {
    let (world, started, mut client) = with_topic(1).await;
    let request = InitProducerIdRequest { transactional_id: None, ..Default::default() };
    let first = client.call(4, &request).await;
    let second = client.call(4, &request).await;
    assert_eq!((first.error_code, first.producer_epoch), (0, 0));
    assert_ne!(first.producer_id, second.producer_id);
    let id = first.producer_id;
    for sequence in 0..6 {
        let answer = client.produce("t", 0, idempotent(id, sequence, &["v"])).await;
        assert_eq!((answer.error_code, answer.base_offset), (0, i64::from(sequence)));
    }
    let retry = client.produce("t", 0, idempotent(id, 1, &["v"])).await;
    assert_eq!((retry.error_code, retry.base_offset), (0, 1));
    let gap = client.produce("t", 0, idempotent(id, 8, &["v"])).await;
    assert_eq!(gap.error_code, code(ErrorCode::OutOfOrderSequenceNumber));
    started.kill();
    let started = world.start().await;
    let mut client = started.connect();
    let retry = client.produce("t", 0, idempotent(id, 5, &["v"])).await;
    assert_eq!((retry.error_code, retry.base_offset), (0, 5));
    let next = client.produce("t", 0, idempotent(id, 6, &["v"])).await;
    assert_eq!((next.error_code, next.base_offset), (0, 6));
    let other = client.call(4, &request).await;
    assert!(other.producer_id != id && other.producer_id != second.producer_id);
    let transactional =
        InitProducerIdRequest { transactional_id: Some(Str::from("x")), ..Default::default() };
    let refused = client.call(4, &transactional).await;
    assert_eq!(refused.error_code, code(ErrorCode::UnsupportedVersion));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn retention_moves_the_log_start_when_records_are_too_old() {
    let mut world = World::new();
    world.config.log_retention_check_interval = Duration::from_secs(10);
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic_with("t", 1, &[("retention.ms", "60000")]).await, 0);
    client.produce("t", 0, batch(&["old"])).await;
    sleep_ms(&world.env, 30_000).await;
    assert_eq!(client.list_offset("t", 0, -2).await.0, 0);
    sleep_ms(&world.env, 60_000).await;
    assert_eq!(client.list_offset("t", 0, -2).await.0, 1);
    assert_eq!(client.produce("t", 0, batch(&["new"])).await.base_offset, 1);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn r2_a_clock_that_jumps_ahead_deletes_nothing() {
    let mut world = World::new();
    world.config.log_retention_check_interval = Duration::from_secs(10);
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic_with("t", 1, &[("retention.ms", "60000")]).await, 0);
    client.produce("t", 0, batch(&["old"])).await;
    sleep_ms(&world.env, 5_000).await;
    // The store's stamps were seen before the jump, and nothing is written after it.
    world.env.clock.shift_wall(365 * 24 * 3_600_000);
    sleep_ms(&world.env, 30_000).await;
    assert_eq!(client.list_offset("t", 0, -2).await.0, 0);
    started.stop().await;
}
