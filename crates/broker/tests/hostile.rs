//! Broken and hostile peers cost themselves a connection and nothing else (P6).

mod common;

use std::time::Duration;

use common::*;
use talos_broker::BrokerConfig;
use talos_common::Rng;
use talos_protocol::frame::{self, RequestHeader};
use talos_protocol::messages::*;
use talos_protocol::{ApiKey, Decoder, ErrorCode};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// Whether the broker closes this connection without an answer.
async fn closes(io: &mut (impl AsyncReadExt + Unpin)) -> bool {
    let mut rest = Vec::new();
    io.read_to_end(&mut rest).await.is_ok() && rest.is_empty()
}

#[tokio::test(start_paused = true)]
async fn impossible_frame_lengths_close_the_connection_before_anything_is_allocated() {
    let world = World::new();
    let started = world.start().await;
    for length in [-1, i32::MIN, i32::MAX, 104_857_601] {
        let mut io = started.pipe();
        io.write_all(&length.to_be_bytes()).await.unwrap();
        assert!(closes(&mut io).await, "{length}");
    }
    // Somebody speaks HTTP to the wrong port.
    let mut io = started.pipe();
    io.write_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    assert!(closes(&mut io).await);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn random_frames_never_stop_the_broker() {
    let world = World::new();
    let started = world.start().await;
    let rng = Rng::from_seed(3);
    for round in 0..400u64 {
        let mut io = started.pipe();
        let length = rng.usize(0..200);
        let mut body: Vec<u8> = (0..length).map(|_| rng.u64(..256) as u8).collect();
        // Most rounds: a header that is served, and nonsense behind it.
        if round % 4 > 0 && length >= 8 {
            let served = talos_broker::served();
            let api = served[rng.usize(..served.len())];
            let version = rng.u64(api.min as u64..=api.max as u64) as i16;
            body[..2].copy_from_slice(&api.key.code().to_be_bytes());
            body[2..4].copy_from_slice(&version.to_be_bytes());
        }
        io.write_all(&(length as i32).to_be_bytes()).await.unwrap();
        io.write_all(&body).await.unwrap();
        io.shutdown().await.unwrap();
        let mut rest = Vec::new();
        io.read_to_end(&mut rest).await.unwrap();
    }
    let mut client = started.connect();
    assert_eq!(client.create_topic("still-here", 1).await, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn cut_requests_of_every_api_close_only_their_connection() {
    let world = World::new();
    let started = world.start().await;
    let header = RequestHeader { key: 3, version: 9, correlation_id: 1, client_id: None };
    let whole = frame::encode_request(&header, &MetadataRequest::default()).unwrap().to_bytes();
    for cut in 4..whole.len() {
        let mut io = started.pipe();
        let body = &whole[4..cut];
        io.write_all(&(body.len() as i32).to_be_bytes()).await.unwrap();
        io.write_all(body).await.unwrap();
        assert!(closes(&mut io).await, "cut at {cut}");
    }
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unknown_apis_close_and_an_unknown_api_versions_is_answered_in_version_0() {
    let world = World::new();
    let started = world.start().await;
    for (key, version) in
        [(9_999i16, 0i16), (ApiKey::Produce.code(), 2), (ApiKey::EndTxn.code(), 0)]
    {
        let mut io = started.pipe();
        let mut body = Vec::new();
        body.extend_from_slice(&key.to_be_bytes());
        body.extend_from_slice(&version.to_be_bytes());
        body.extend_from_slice(&[0; 6]);
        io.write_all(&(body.len() as i32).to_be_bytes()).await.unwrap();
        io.write_all(&body).await.unwrap();
        assert!(closes(&mut io).await, "{key}");
    }
    let mut client = started.connect();
    let mut body = Vec::new();
    body.extend_from_slice(&ApiKey::ApiVersions.code().to_be_bytes());
    body.extend_from_slice(&99i16.to_be_bytes());
    body.extend_from_slice(&7i32.to_be_bytes());
    client.io.write_all(&(body.len() as i32).to_be_bytes()).await.unwrap();
    client.io.write_all(&body).await.unwrap();
    let mut decoder = Decoder::new(client.frame().await.unwrap());
    let id = frame::decode_response_header(&mut decoder, ApiKey::ApiVersions, 0).unwrap();
    let answer: ApiVersionsResponse = frame::decode_rest(decoder, 0).unwrap();
    assert_eq!((id, answer.error_code), (7, ErrorCode::UnsupportedVersion.code()));
    assert_eq!(answer.api_keys.len(), 1);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn slow_frames_idle_connections_and_stalled_readers_lose_their_connection() {
    let world = World::new();
    let started = world.start().await;
    let before = world.env.clock.now();
    let mut io = started.pipe();
    io.write_all(&100i32.to_be_bytes()).await.unwrap();
    io.write_all(&[0; 10]).await.unwrap();
    assert!(closes(&mut io).await);
    assert!(world.env.clock.now() - before < Duration::from_secs(120));
    let mut io = started.pipe();
    assert!(closes(&mut io).await);
    assert!(world.env.clock.now() - before >= Duration::from_secs(600));
    // A peer that never reads its answers.
    let mut client = started.connect();
    let everything = MetadataRequest { topics: None, ..Default::default() };
    let (mut reader, mut writer) = tokio::io::split(started.pipe());
    let header = RequestHeader { key: 3, version: 9, correlation_id: 1, client_id: None };
    let whole = frame::encode_request(&header, &everything).unwrap().to_bytes();
    let flood = async { while writer.write_all(&whole).await.is_ok() {} };
    assert!(world.env.clock.timeout(Duration::from_secs(600), flood).await.is_some());
    drop(reader.read(&mut [0; 1]).await);
    assert_eq!(client.create_topic("t", 1).await, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn connections_beyond_the_limit_are_closed_at_once() {
    let mut world = World::new();
    world.config.max_connections = 2;
    let started = world.start().await;
    let (mut one, mut two) = (started.connect(), started.connect());
    assert!(closes(&mut started.pipe()).await);
    assert_eq!(one.create_topic("a", 1).await, 0);
    assert_eq!(two.create_topic("b", 1).await, 0);
    drop(one);
    sleep_ms(&world.env, 10).await;
    assert_eq!(started.connect().create_topic("c", 1).await, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_stop_answers_what_was_accepted_and_ends_long_polls() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let mut poller = started.connect();
    let poll = poller.send(12, &fetch_request("t", 0, 0, 600_000)).await;
    let produce = client.send(9, &produce_request("t", -1, vec![(0, batch(&["x"]))])).await;
    sleep_ms(&world.env, 1).await;
    let before = world.env.clock.now();
    let (_, answer, polled) = tokio::join!(
        started.stop(),
        client.receive::<ProduceResponse>(9, produce),
        poller.receive::<FetchResponse>(12, poll),
    );
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
    assert_eq!(polled.error_code, 0);
    assert!(world.env.clock.now() - before < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn p6_requests_that_wait_do_not_keep_the_requests_of_others_out() {
    let world = World::with(BrokerConfig { receive_bytes: 64 << 10, ..BrokerConfig::default() });
    let started = world.start().await;
    assert_eq!(started.connect().create_topic("t", 1).await, 0);
    // Together far more than all that may be received and not accepted.
    let mut pollers = Vec::new();
    for _ in 0..8 {
        let mut poller = started.connect();
        let mut poll = fetch_request("t", 0, 0, 3_600_000);
        poll.rack_id = text(&"x".repeat(30_000));
        poller.send(12, &poll).await;
        sleep_ms(&world.env, 1).await;
        pollers.push(poller);
    }
    let before = world.env.clock.now();
    assert_eq!(started.connect().create_topic("u", 1).await, 0);
    assert!(world.env.clock.now() - before < Duration::from_secs(60));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p6_a_partition_that_is_asked_for_twice_is_answered_once() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    client.produce("t", 0, batch(&["x"])).await;
    let mut request = fetch_request("t", 0, 0, 0);
    let asked = request.topics[0].partitions[0].clone();
    request.topics[0].partitions.extend(std::iter::repeat_n(asked, 1_000));
    let answer = client.call(12, &request).await;
    assert_eq!(answer.responses[0].partitions.len(), 1);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p6_a_topic_that_is_named_a_thousand_times_is_described_once() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 3).await, 0);
    let named = MetadataRequestTopic { name: Some(text("t")), ..Default::default() };
    let topics = Some(vec![named; 1_000]);
    let answer = client.call(9, &MetadataRequest { topics, ..Default::default() }).await;
    assert_eq!(answer.topics.len(), 1);
    assert_eq!(answer.topics[0].partitions.len(), 3);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p6_half_frames_of_any_announced_length_keep_nobody_out() {
    let world = World::with(BrokerConfig { receive_bytes: 1 << 20, ..BrokerConfig::default() });
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let mut halves = Vec::new();
    for (length, sent) in [(100_000_000_i32, 10), (100_000_000, 40_000), (900_000, 40_000)] {
        let mut half = started.pipe();
        half.write_all(&length.to_be_bytes()).await.unwrap();
        half.write_all(&vec![0; sent]).await.unwrap();
        halves.push(half);
    }
    sleep_ms(&world.env, 10).await;
    let before = world.env.clock.now();
    client.produce("t", 0, batch(&["x"])).await;
    assert_eq!(started.connect().create_topic("u", 1).await, 0);
    assert!(world.env.clock.now() - before < Duration::from_secs(5));
    started.stop().await;
}
