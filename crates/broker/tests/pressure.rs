//! Who waits for whom: limits of the log as clients see them, slow readers beside others, and batches that
//! are checked on other threads.

mod common;

use std::time::Duration;

use common::*;
use talos_broker::BrokerConfig;
use talos_common::Offload;
use talos_log::LogOptions;
use talos_protocol::ErrorCode;
use talos_protocol::batch::Compression;
use talos_protocol::messages::*;

/// E-J8: the metadata is away, so segments can not be published, while appends go on.
#[tokio::test(start_paused = true)]
async fn e_j8_at_the_raw_limit_clients_hear_a_retriable_error_that_names_it() {
    let log = LogOptions {
        sort_bytes: 1,
        segment_bytes: 1,
        raw_limit_bytes: 40 << 20,
        ..LogOptions::DEFAULT
    };
    let world = World::with(BrokerConfig { log, ..BrokerConfig::default() });
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    client.produce("t", 0, batch(&["first"])).await;
    world.tree.faults().set_down(true);
    let large = "x".repeat(900_000);
    let mut taken = 1;
    let refused = loop {
        let before = world.env.clock.now();
        let answer = client.produce("t", 0, batch(&[&large])).await;
        if answer.error_code != 0 {
            // It was held up first, a bounded time.
            assert!(world.env.clock.now() - before >= Duration::from_secs(5));
            break answer;
        }
        taken += 1;
        assert!(taken < 100, "there is no limit");
    };
    assert_eq!(refused.error_code, ErrorCode::KafkaStorageError.code());
    let why = refused.error_message.unwrap().to_string();
    assert!(why.contains("log.raw_limit is 40MiB"), "{why}");
    assert!(taken > 40, "{taken}");
    // Then at once, and reads go on.
    let before = world.env.clock.now();
    let answer = client.produce("t", 0, batch(&["x"])).await;
    assert_eq!(answer.error_code, ErrorCode::KafkaStorageError.code());
    assert!(world.env.clock.now() - before < Duration::from_secs(1));
    let data = client.fetch("t", 0, 0).await;
    assert_eq!((values(&data)[0].1.as_str(), data.high_watermark), ("first", taken));

    world.tree.faults().set_down(false);
    sleep_ms(&world.env, 30_000).await;
    assert_eq!(client.produce("t", 0, batch(&["again"])).await.base_offset, taken);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn p7_a_backlog_of_slow_readers_of_files_holds_up_no_fetch_at_the_tail() {
    let log = LogOptions { tail_cache_bytes: 1 << 20, ..LogOptions::DEFAULT };
    let world = World::with(BrokerConfig { answer_bytes: 4 << 20, log, ..BrokerConfig::default() });
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    let large = "x".repeat(900_000);
    for _ in 0..8 {
        client.produce("t", 0, batch(&[&large])).await;
    }
    // Old batches, from a file; nobody takes the answers.
    let mut slow = Vec::new();
    for _ in 0..6 {
        let mut reader = started.connect();
        reader.send(12, &fetch_request("t", 0, 0, 0)).await;
        slow.push(reader);
    }
    sleep_ms(&world.env, 1_000).await;
    client.produce("t", 0, batch(&["newest"])).await;
    let before = world.env.clock.now();
    let data = client.fetch("t", 0, 8).await;
    assert_eq!(values(&data), [(8, "newest".to_owned())]);
    assert!(world.env.clock.now() - before < Duration::from_secs(1));
    // Others that read files wait for room, which comes with the first answer that is taken.
    let mut late = started.connect();
    let id = late.send(12, &fetch_request("t", 0, 0, 0)).await;
    for mut reader in slow {
        let _: FetchResponse = reader.receive(12, 0).await;
    }
    let answer: FetchResponse = late.receive(12, id).await;
    assert_eq!(answer.responses[0].partitions[0].error_code, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn batches_that_are_checked_on_other_threads_are_accepted_in_the_order_of_requests() {
    let mut world = World::new();
    world.env.cpu = Offload::threads(2);
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 2).await, 0);
    let mut sent = Vec::new();
    for n in 0..40 {
        // Large compressed ones, small compressed ones, plain ones; two partitions in each request.
        let value = format!("{n} ").repeat([40_000, 20, 300][n as usize % 3]);
        let codec = [Compression::Gzip, Compression::Lz4, Compression::None][n as usize % 3];
        let of = |partition: i64| {
            let builder = builder(&[&value]).producer(7 + partition, 0, n).compression(codec);
            builder.build().unwrap()
        };
        let parts = vec![(0, of(0)), (1, of(1))];
        sent.push(client.send(9, &produce_request("t", -1, parts)).await);
    }
    for (n, id) in sent.into_iter().enumerate() {
        let answer: ProduceResponse = client.receive(9, id).await;
        for part in &answer.responses[0].partition_responses {
            // A sequence number that came before its turn would be refused.
            assert_eq!((part.error_code, part.base_offset), (0, n as i64));
        }
    }
    // A broken one is refused alone.
    let mut broken = builder(&["y".repeat(5_000).as_str()]).build().unwrap().to_vec();
    broken[100] ^= 1;
    let parts = vec![(0, broken.into()), (1, batch(&["fine"]))];
    let answer = client.call(9, &produce_request("t", -1, parts)).await;
    let codes: Vec<i16> =
        answer.responses[0].partition_responses.iter().map(|part| part.error_code).collect();
    assert_eq!(codes, [ErrorCode::CorruptMessage.code(), 0]);
    started.stop().await;
}
