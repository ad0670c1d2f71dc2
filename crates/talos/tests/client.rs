//! The client against a broker made of a few lines, which fails where the test wants it to.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod fake;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use fake::{Act, Fake};
use talos::client::batch::Record;
use talos::client::producer::{Delivery, Producer, ProducerOptions};
use talos::client::{ClientError, Cluster, ClusterOptions};
use talos_common::{ByteSize, Env};
use talos_protocol::ErrorCode;

fn cluster(address: &str) -> Cluster {
    let bootstrap = vec![address.to_owned()];
    let timeout = Duration::from_secs(20);
    Cluster::new(Env::system(), ClusterOptions { bootstrap, timeout, ..Default::default() })
}

type Deliveries = Arc<Mutex<Vec<Delivery>>>;

async fn producer(fake: &Fake, options: ProducerOptions) -> (Producer, Deliveries) {
    let deliveries = Deliveries::default();
    let seen = Arc::clone(&deliveries);
    let on_delivery = Arc::new(move |delivery| seen.lock().unwrap().push(delivery));
    let producer = Producer::open(cluster(&fake.address), options, on_delivery).await.unwrap();
    (producer, deliveries)
}

/// One record per batch, so that many requests are in flight.
fn single() -> ProducerOptions {
    ProducerOptions { batch_bytes: 1, linger: Duration::ZERO, ..Default::default() }
}

async fn send(producer: &Producer, values: std::ops::Range<u64>) -> Result<(), ClientError> {
    let to = producer.partition("t", 0).await?;
    for value in values {
        let text = value.to_string();
        let record = Record { value: Some(text.as_bytes()), timestamp: 1, ..Default::default() };
        producer.send(to, &record, value).await?;
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lost_answers_and_moved_leaders_lose_and_repeat_nothing() {
    let fake = Fake::start(vec![
        Act::Store,
        Act::StoreAndCut,
        Act::Refuse(ErrorCode::NotLeaderOrFollower),
        Act::Store,
        Act::Cut,
        Act::Store,
        Act::Refuse(ErrorCode::RequestTimedOut),
        Act::StoreAndCut,
        Act::StoreAndCut,
    ]);
    let (producer, deliveries) = producer(&fake, single()).await;
    send(&producer, 0..200).await.unwrap();
    producer.flush().await.unwrap();
    let wanted: Vec<String> = (0..200).map(|n| n.to_string()).collect();
    assert_eq!(fake.stored(), wanted);
    let deliveries = deliveries.lock().unwrap();
    assert!(deliveries.iter().all(|delivery| delivery.result.is_ok()));
    let mut tags: Vec<u64> = deliveries.iter().flat_map(|d| d.tags.clone()).collect();
    tags.sort_unstable();
    assert_eq!(tags, (0..200).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_definite_error_stops_an_idempotent_producer_and_is_not_unknown() {
    let fake = Fake::start(vec![Act::Store, Act::Refuse(ErrorCode::MessageTooLarge)]);
    let (producer, deliveries) =
        producer(&fake, ProducerOptions { in_flight: 1, ..single() }).await;
    send(&producer, 0..2).await.unwrap();
    let flushed = producer.flush().await.unwrap_err();
    assert_eq!(flushed.code(), Some(ErrorCode::MessageTooLarge));
    assert!(!flushed.is_unknown_outcome());
    assert!(flushed.hint().unwrap().contains("max.message.bytes"));
    // What comes later would leave a gap in the sequence.
    assert!(send(&producer, 2..3).await.is_err());
    assert_eq!(fake.stored(), ["0"]);
    assert_eq!(deliveries.lock().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_answer_is_unknown_when_there_is_no_time_to_try_again() {
    let fake = Fake::start(vec![Act::StoreAndCut]);
    let options = ProducerOptions { delivery_timeout: Duration::ZERO, ..single() };
    let (producer, deliveries) = producer(&fake, options).await;
    send(&producer, 0..1).await.unwrap();
    assert!(producer.flush().await.unwrap_err().is_unknown_outcome());
    assert!(deliveries.lock().unwrap()[0].result.as_ref().unwrap_err().is_unknown_outcome());
    assert_eq!(fake.stored(), ["0"], "it was stored all the same");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_buffer_waits_and_a_record_above_it_passes_alone() {
    let fake = Fake::start(vec![]);
    let linger = Duration::from_secs(3600);
    let options = ProducerOptions { buffer: ByteSize::kib(32), linger, ..Default::default() };
    let (producer, _) = producer(&fake, options).await;
    let to = producer.partition("t", 0).await.unwrap();
    let value = vec![b'x'; 40_000];
    for tag in 0..10 {
        let record = Record { value: Some(&value), timestamp: 1, ..Default::default() };
        producer.send(to, &record, tag).await.unwrap();
    }
    producer.flush().await.unwrap();
    assert_eq!(fake.stored().len(), 10);
}

#[tokio::test]
async fn a_peer_that_is_no_broker_is_told_apart() {
    let frames: [(&str, &[u8]); 4] = [
        ("closes", b""),
        ("talks HTTP", b"HTTP/1.1 400 Bad Request\r\n\r\n"),
        ("announces a huge answer", b"\x7f\xff\xff\xff"),
        ("answers what was not asked", b"\x00\x00\x00\x04\x00\x00\x00\x63"),
    ];
    for (what, bytes) in frames {
        let address = fake::speak_once(bytes);
        let error = cluster(&address).metadata(None, false).await.unwrap_err();
        assert!(matches!(error, ClientError::Connect { .. }), "{what}: {error}");
        assert!(error.to_string().contains(&address), "{what}: {error}");
    }
}

/// A server that takes connections and requests, and is silent.
fn silent() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let held: Vec<_> = listener.incoming().collect();
        drop(held);
    });
    address
}

#[tokio::test(start_paused = true)]
async fn one_deadline_holds_for_a_request_with_its_connection_and_retries() {
    let env = Env::system();
    let limit = Duration::from_secs(20);
    let options = ClusterOptions {
        // The first one takes its share of the time, not all of it.
        bootstrap: vec![silent(), silent()],
        timeout: limit,
        ..Default::default()
    };
    let cluster = Cluster::new(env.clone(), options);
    let begin = env.clock.now();
    let error = cluster.topic("t", true).await.unwrap_err();
    assert!(error.is_away(), "{error}");
    let took = env.clock.now() - begin;
    assert!(took < limit + Duration::from_secs(1), "{took:?}");
    // Several operations under one deadline.
    let begin = env.clock.now();
    let both = async {
        let _ = cluster.coordinator("g").await;
        cluster.metadata(None, false).await.unwrap_err()
    };
    let error = talos::client::deadline::within(&env.clock, Duration::from_secs(5), both).await;
    assert!(error.is_away(), "{error}");
    assert!(env.clock.now() - begin < Duration::from_secs(6));
}
