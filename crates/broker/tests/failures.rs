//! What breaks below the broker: corrupt files, a journal that fails, a directory that is taken over.

mod common;

use common::*;
use talos_broker::Ended;
use talos_common::Rng;
use talos_protocol::ErrorCode;
use talos_protocol::messages::metadata::MetadataRequestTopic;
use talos_protocol::messages::*;
use talos_storage::{FilePath, Storage};

#[tokio::test(start_paused = true)]
async fn j11_p5_a_corrupt_journal_takes_its_partitions_offline_and_no_others() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("hurt", 1).await, 0);
    for _ in 0..10 {
        client.produce("hurt", 0, batch(&["some acknowledged record"])).await;
    }
    let dir = started.broker.dir();
    started.kill();
    let journal = |file: &FilePath| matches!(file, FilePath::Journal { dir: of, .. } if *of == dir);
    let file = world.storage.files().into_iter().find(journal).unwrap();
    // In the middle of what later flushes state as durable.
    let flipped = world.storage.flip_bit(&file, 700..900, &Rng::from_seed(1));
    assert!(flipped.is_some());
    // Twice: never a crash loop, and never «repaired» by the start in between.
    for round in 0..2 {
        let started = world.start().await;
        assert_eq!(started.broker.partition_counts(), (round, 1));
        let mut client = started.connect();
        let data = client.fetch("hurt", 0, 0).await;
        assert_eq!(data.error_code, ErrorCode::KafkaStorageError.code());
        let refused = client.produce("hurt", 0, batch(&["x"])).await;
        assert_eq!(refused.error_code, ErrorCode::KafkaStorageError.code());
        let topic = MetadataRequestTopic { name: Some("hurt".into()), ..Default::default() };
        let request = MetadataRequest { topics: Some(vec![topic]), ..Default::default() };
        let answer = client.call(9, &request).await;
        let part = &answer.topics[0].partitions[0];
        assert_eq!(part.error_code, ErrorCode::LeaderNotAvailable.code());
        assert_eq!((part.leader_id, &part.offline_replicas[..]), (-1, &[0][..]));
        if round == 0 {
            assert_eq!(client.create_topic("other", 1).await, 0);
        }
        assert_eq!(client.produce("other", 0, batch(&["y"])).await.base_offset, round as i64);
        // Garbage collection leaves what an offline partition needs.
        sleep_ms(&world.env, 120_000).await;
        assert!(world.storage.files().contains(&file));
        started.stop().await;
    }
}

#[tokio::test(start_paused = true)]
async fn f2_a_broker_whose_directory_is_sealed_stops_at_once() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    client.produce("t", 0, batch(&["x"])).await;
    let other = world.storage.handle_for_new_process();
    other.seal(started.broker.dir()).await.unwrap();
    client.send(9, &produce_request("t", -1, vec![(0, batch(&["y"]))])).await;
    let ended = started.broker.ended().await;
    assert!(matches!(ended, Ended::Fenced(_)), "{ended:?}");
    // No answer could be true: the connection ends, or says that it does not know.
    if let Some(body) = client.frame().await {
        let mut decoder = talos_protocol::Decoder::new(body);
        talos_protocol::frame::decode_response_header(&mut decoder, ProduceResponse::KEY, 9)
            .unwrap();
        let answer: ProduceResponse = talos_protocol::frame::decode_rest(decoder, 9).unwrap();
        let code = answer.responses[0].partition_responses[0].error_code;
        assert_eq!(code, ErrorCode::RequestTimedOut.code());
    }
    assert!(started.broker.stop().await.is_err());
    // The next start has what was acknowledged.
    let again = world.start().await;
    assert_eq!(values(&again.connect().fetch("t", 0, 0).await)[0], (0, "x".to_owned()));
    again.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_store_refuses_with_a_retriable_error_and_service_returns() {
    let world = World::new();
    let started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 1).await, 0);
    client.produce("t", 0, batch(&["x"])).await;
    world.storage.faults().set_full(true);
    let large = "x".repeat(900_000);
    let mut refused = 0;
    for _ in 0..60 {
        let mut request = produce_request("t", -1, vec![(0, batch(&[&large]))]);
        request.timeout_ms = 1_000;
        let answer = client.call(9, &request).await;
        match answer.responses[0].partition_responses[0].error_code {
            0 => {}
            code => {
                // Definite before it was accepted, unknown after.
                let allowed = [ErrorCode::KafkaStorageError, ErrorCode::RequestTimedOut];
                assert!(allowed.map(ErrorCode::code).contains(&code), "{code}");
                refused += 1;
            }
        }
        if refused > 5 {
            break;
        }
    }
    assert!(refused > 5, "the store was never full");
    assert_eq!(values(&client.fetch("t", 0, 0).await)[0], (0, "x".to_owned()));
    world.storage.faults().set_full(false);
    sleep_ms(&world.env, 10_000).await;
    let answer = client.produce("t", 0, batch(&["again"])).await;
    assert_eq!(answer.error_code, 0);
    started.stop().await;
}

#[tokio::test(start_paused = true)]
async fn e_w1_old_directories_go_once_their_records_lie_in_the_new_one() {
    let world = World::new();
    let mut started = world.start().await;
    let mut client = started.connect();
    assert_eq!(client.create_topic("t", 3).await, 0);
    for round in 0..9 {
        let mut client = started.connect();
        for partition in 0..3 {
            let answer = client.produce("t", partition, batch(&["v"])).await;
            assert_eq!((answer.error_code, answer.base_offset), (0, round));
        }
        sleep_ms(&world.env, 180_000).await;
        if round % 2 == 0 {
            started.kill();
        } else {
            started.stop().await;
        }
        started = world.start().await;
    }
    sleep_ms(&world.env, 180_000).await;
    for partition in 0..3 {
        // A fetch may end where one file ends.
        let (mut client, mut found) = (started.connect(), Vec::new());
        while found.len() < 9 {
            let data = client.fetch("t", partition, found.len() as i64).await;
            assert_eq!((data.error_code, data.high_watermark), (0, 9));
            let offsets: Vec<_> = values(&data).into_iter().map(|(offset, _)| offset).collect();
            assert!(!offsets.is_empty(), "partition {partition} ends at {found:?}");
            found.extend(offsets);
        }
        assert_eq!(found, (0..9).collect::<Vec<i64>>());
    }
    let files = world.storage.files();
    let dirs: std::collections::BTreeSet<_> = files.iter().filter_map(|file| file.dir()).collect();
    // Ten epochs wrote; what more than four of them left was merged.
    assert!(dirs.len() <= 5 && dirs.contains(&started.broker.dir()), "{dirs:?}");
    started.stop().await;
}
