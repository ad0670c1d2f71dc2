//! What one peer may hold of memory, room and time, and for how long (P6, P7).
#![allow(clippy::unwrap_used, reason = "tests")]

mod common;

use std::time::Duration;

use common::*;
use talos_broker::{BrokerConfig, CloseLabels};
use talos_protocol::ErrorCode;
use talos_protocol::frame::{self, RequestHeader};
use talos_protocol::messages::FetchResponse;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// How many connections ended for this reason.
fn closed(started: &Started, reason: &'static str) -> u64 {
    started.broker.metrics().connections_closed.get_or_create(&CloseLabels { reason }).get()
}

/// A topic `t` whose first partition holds one record of 900 KB.
async fn with_a_large_record(started: &Started) {
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let answer = client.produce("t", 0, batch(&[&"x".repeat(900_000)])).await;
    assert_eq!(answer.error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn p6_a_reader_that_takes_a_byte_now_and_then_loses_its_connection() {
    let world = World::new();
    let started = world.start().await;
    with_a_large_record(&started).await;
    let mut client = started.connect();
    client.send(12, &fetch_request("t", 0, 0, 0)).await;
    let before = world.env.clock.now();
    while closed(&started, "slow_reader") == 0 {
        assert!(world.env.clock.now() - before < Duration::from_secs(90), "it still holds it");
        let mut byte = [0; 1];
        client.io.read_exact(&mut byte).await.unwrap();
        sleep_ms(&world.env, 5_000).await;
    }
    // The whole answer takes seven seconds at the least rate, after the time of a stall.
    assert!(world.env.clock.now() - before >= Duration::from_secs(60));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p6_a_steady_reader_at_the_least_rate_is_served() {
    let world = World::new();
    let started = world.start().await;
    with_a_large_record(&started).await;
    let mut client = started.connect();
    client.send(12, &fetch_request("t", 0, 0, 0)).await;
    let (mut left, mut piece) = (900_000, [0; 16 << 10]);
    while left > 0 {
        left -= client.io.read(&mut piece).await.unwrap().min(left);
        sleep_ms(&world.env, 120).await;
    }
    assert_eq!(closed(&started, "slow_reader"), 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p3_p7_without_memory_for_an_answer_a_fetch_is_told_so_in_time() {
    let world = World::with(BrokerConfig { answer_bytes: 1 << 20, ..BrokerConfig::default() });
    let started = world.start().await;
    with_a_large_record(&started).await;
    // Take nothing of answers that hold all the memory: that of fetches at the tail, and the rest.
    let mut greedy = [started.connect(), started.connect()];
    for client in &mut greedy {
        client.send(12, &fetch_request("t", 0, 0, 0)).await;
        sleep_ms(&world.env, 10).await;
    }
    let mut client = started.connect();
    let before = world.env.clock.now();
    let mut answer = client.call(12, &fetch_request("t", 0, 0, 500)).await;
    assert!(world.env.clock.now() - before < Duration::from_secs(7));
    let data = answer.responses.remove(0).partitions.remove(0);
    assert_eq!(data.error_code, ErrorCode::KafkaStorageError.code());
    // Nothing is no answer where there is something.
    assert_eq!(values(&data), []);
    // Who is at the end needs none.
    let mut tail = client.call(12, &fetch_request("t", 0, 1, 500)).await;
    let tail = tail.responses.remove(0).partitions.remove(0);
    assert_eq!((tail.error_code, tail.high_watermark), (0, 1));
    // Once the memory is free it is served.
    drop(greedy);
    sleep_ms(&world.env, 10).await;
    assert_eq!(values(&client.fetch("t", 0, 0).await).len(), 1);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p7_an_answer_is_no_larger_than_the_memory_for_answers() {
    let world = World::with(BrokerConfig { answer_bytes: 1 << 20, ..BrokerConfig::default() });
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    for _ in 0..10 {
        let answer = client.produce("t", 0, batch(&[&"x".repeat(100_000)])).await;
        assert_eq!(answer.error_code, 0);
    }
    // Three quarters of it, but for what fetches at the tail have to themselves.
    let data = client.fetch("t", 0, 0).await;
    assert_eq!(values(&data).len(), (768 << 10) / 100_000);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p7_a_fetch_at_the_tail_that_waits_takes_the_memory_that_comes_first() {
    let world = World::with(BrokerConfig { answer_bytes: 4 << 20, ..BrokerConfig::default() });
    let started = world.start().await;
    with_a_large_record(&started).await;
    // Take nothing of their answers: three hold what all share, the fourth that of the tail.
    let mut greedy = Vec::new();
    for _ in 0..4 {
        let mut client = started.connect();
        client.send(12, &fetch_request("t", 0, 0, 0)).await;
        sleep_ms(&world.env, 10).await;
        greedy.push(client);
    }
    let mut client = started.connect();
    let id = client.send(12, &fetch_request("t", 0, 0, 0)).await;
    sleep_ms(&world.env, 1_000).await;
    let before = world.env.clock.now();
    drop(greedy.pop());
    let mut answer: FetchResponse = client.receive(12, id).await;
    assert!(world.env.clock.now() - before < Duration::from_secs(1));
    let data = answer.responses.remove(0).partitions.remove(0);
    assert_eq!((data.error_code, values(&data).len()), (0, 1));
    drop(greedy);
    started.stop().await;
}

/// Room of 16 MiB, and batches of 10 MiB.
fn large_requests() -> BrokerConfig {
    BrokerConfig {
        receive_bytes: 16 << 20,
        socket_request_max_bytes: 14 << 20,
        message_max_bytes: 12 << 20,
        ..BrokerConfig::default()
    }
}

/// A peer that announces 14 MB and sends only these.
async fn half_frame(started: &Started, sent: usize) -> tokio::io::DuplexStream {
    let mut half = started.pipe();
    half.write_all(&14_000_000_i32.to_be_bytes()).await.unwrap();
    half.write_all(&vec![0; sent]).await.unwrap();
    half
}

#[tokio::test(start_paused = true)]
async fn p6_many_half_frames_keep_no_room_from_an_honest_large_request() {
    let world = World::with(large_requests());
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let mut halves = Vec::new();
    for _ in 0..200 {
        halves.push(half_frame(&started, 20_000).await);
    }
    sleep_ms(&world.env, 10).await;
    let before = world.env.clock.now();
    let answer = client.produce("t", 0, batch(&[&"x".repeat(10 << 20)])).await;
    assert_eq!(answer.error_code, 0);
    assert!(world.env.clock.now() - before < Duration::from_secs(2));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p6_who_fills_the_room_and_stops_makes_way_for_those_who_wait() {
    let world = World::with(large_requests());
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    // Two fill the room, the third may go beyond it.
    let mut halves = Vec::new();
    for _ in 0..3 {
        halves.push(half_frame(&started, 6 << 20).await);
    }
    sleep_ms(&world.env, 10).await;
    let before = world.env.clock.now();
    let answer = client.produce("t", 0, batch(&[&"x".repeat(10 << 20)])).await;
    assert_eq!(answer.error_code, 0);
    assert!(world.env.clock.now() - before < Duration::from_secs(15));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p7_large_requests_that_do_not_fit_together_are_all_served() {
    let world = World::with(large_requests());
    let started = world.start().await;
    assert_eq!(started.connect().create_topic("t", 4).await, 0);
    let before = world.env.clock.now();
    let produce = async |partition: i32| {
        let mut io = started.pipe();
        let header = RequestHeader { key: 0, version: 9, correlation_id: 1, client_id: None };
        let request = produce_request("t", -1, vec![(partition, batch(&[&"x".repeat(10 << 20)]))]);
        let bytes = frame::encode_request(&header, &request).unwrap().to_bytes();
        // In turns.
        for piece in bytes.chunks(64 << 10) {
            io.write_all(piece).await.unwrap();
            sleep_ms(&world.env, 1).await;
        }
        let mut length = [0; 4];
        io.read_exact(&mut length).await.unwrap();
    };
    tokio::join!(produce(0), produce(1), produce(2), produce(3));
    assert!(world.env.clock.now() - before < Duration::from_secs(20));
    for partition in 0..4 {
        assert_eq!(started.connect().list_offset("t", partition, -1).await.0, 1);
    }
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p6_a_large_frame_behind_a_request_that_waits_takes_no_room() {
    let world = World::with(large_requests());
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let mut waiting = Vec::new();
    for _ in 0..3 {
        let mut poller = started.connect();
        poller.send(12, &fetch_request("t", 0, 0, 3_600_000)).await;
        let sent = async {
            poller.io.write_all(&13_000_000_i32.to_be_bytes()).await.unwrap();
            poller.io.write_all(&vec![0; 13_000_000]).await.unwrap();
        };
        // As much of it as the broker reads.
        world.env.clock.timeout(Duration::from_millis(10), sent).await;
        waiting.push(poller);
    }
    let before = world.env.clock.now();
    // Waits for the polls if they keep the room.
    let batch = batch(&[&"x".repeat(10 << 20)]);
    let produced = world.env.clock.timeout(Duration::from_secs(60), client.produce("t", 0, batch));
    assert_eq!(produced.await.expect("no room").error_code, 0);
    assert!(world.env.clock.now() - before < Duration::from_secs(2));
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_idle_while_a_request_runs_nor_just_after_its_answer() {
    let idle = Some(Duration::from_secs(10));
    let world = World::with(BrokerConfig { connections_max_idle: idle, ..BrokerConfig::default() });
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let answer = client.call(12, &fetch_request("t", 0, 0, 27_000)).await;
    assert_eq!(answer.error_code, 0);
    sleep_ms(&world.env, 9_000).await;
    assert_eq!(client.list_offset("t", 0, -1).await.0, 0);
    sleep_ms(&world.env, 9_000).await;
    assert_eq!(closed(&started, "idle"), 0);
    sleep_ms(&world.env, 1_500).await;
    assert_eq!(closed(&started, "idle"), 1);
    started.stop().await;
}
