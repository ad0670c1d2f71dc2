//! Tests over every message and every version: round trips, hostile bytes, and the known ways in
//! which a Kafka codec was killed. `oracle.rs` compares with `kafka-protocol`, `golden.rs` with
//! bytes from the Java client.

mod golden;
mod hostile;
mod oracle;

use super::arbitrary::{Arbitrary, Generator};
use super::*;
use crate::codec::{Chain, DecodeErrorKind};
use crate::primitives::{Records, Str};

/// Values per message and version.
const SEEDS: u64 = 12;

fn encode<M: Message>(message: &M, version: i16) -> Chain {
    let mut e = Encoder::new();
    message
        .encode(&mut e, version)
        .unwrap_or_else(|error| panic!("{} v{version}: {error}: {message:?}", M::NAME));
    e.finish()
}

fn round_trips<M: Message + Arbitrary>() {
    for version in M::VERSIONS {
        for seed in 0..SEEDS {
            let message = M::arbitrary(&mut Generator::new(seed), version, false);
            let bytes = encode(&message, version).to_bytes();
            let mut d = Decoder::new(bytes.clone());
            let back = M::decode(&mut d, version)
                .unwrap_or_else(|e| panic!("{} v{version} seed {seed}: {e}", M::NAME));
            assert_eq!(back, message, "{} v{version} seed {seed}", M::NAME);
            assert_eq!(d.remaining(), 0, "{} v{version} seed {seed}", M::NAME);
            // Whatever is cut off is missed.
            for end in 0..bytes.len() {
                let cut = M::decode(&mut Decoder::new(bytes.slice(..end)), version);
                assert!(cut.is_err(), "{} v{version} seed {seed} cut at {end}", M::NAME);
            }
        }
        // The default of a response or request can be written in its newest version, unless a
        // structure in it must not be null.
        let _ = M::default().encode(&mut Encoder::new(), version);
    }
    for version in [*M::VERSIONS.start() - 1, *M::VERSIONS.end() + 1] {
        assert_eq!(
            M::decode(&mut Decoder::new(bytes::Bytes::new()), version).unwrap_err().kind,
            DecodeErrorKind::UnsupportedVersion(version)
        );
        assert_eq!(
            M::default().encode(&mut Encoder::new(), version),
            Err(EncodeError::UnsupportedVersion { message: M::NAME, version })
        );
    }
}

macro_rules! round_trips_of_all {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => { $(
        round_trips::<$module::$request>();
        round_trips::<$module::$response>();
        assert_eq!(<$module::$request as Request>::KEY, ApiKey::$key);
        assert_eq!(<$module::$response as Response>::KEY, ApiKey::$key);
        assert_eq!($module::$request::FLEXIBLE_FROM, ApiKey::$key.flexible_from());
        assert_eq!($module::$response::VERSIONS, $module::$request::VERSIONS);
    )* };
}

#[test]
fn every_message_comes_back_in_every_version() {
    for_each_api!(round_trips_of_all);
    round_trips::<embedded::ConsumerProtocolSubscription>();
    round_trips::<embedded::ConsumerProtocolAssignment>();
    round_trips::<embedded::EndTxnMarker>();
}

#[test]
fn the_unstable_version_is_not_among_the_stable_ones() {
    assert_eq!(init_producer_id::InitProducerIdRequest::STABLE_VERSIONS, 0..=5);
    assert_eq!(init_producer_id::InitProducerIdRequest::VERSIONS, 0..=6);
    assert_eq!(produce::ProduceRequest::STABLE_VERSIONS, 3..=13);
}

#[test]
fn a_field_that_the_version_lacks_is_an_error_unless_ignorable() {
    let partition = fetch::FetchPartition {
        current_leader_epoch: 3,
        last_fetched_epoch: 4,
        ..Default::default()
    };
    let topic = fetch::FetchTopic { partitions: vec![partition], ..Default::default() };
    let mut request = fetch::FetchRequest { topics: vec![topic], ..Default::default() };
    assert!(request.encode(&mut Encoder::new(), 12).is_ok());
    assert_eq!(
        request.encode(&mut Encoder::new(), 11),
        Err(EncodeError::FieldNotInVersion { field: "last_fetched_epoch", version: 11 })
    );
    request.topics[0].partitions[0].last_fetched_epoch = -1;
    let bytes = encode(&request, 4).to_bytes();
    let back = fetch::FetchRequest::decode(&mut Decoder::new(bytes), 4).unwrap();
    assert_eq!(back.topics[0].partitions[0].current_leader_epoch, -1, "ignorable: dropped");
}

#[test]
fn records_are_linked_not_copied() {
    let records = bytes::Bytes::from(vec![7_u8; 100_000]);
    let request = produce::ProduceRequest {
        acks: -1,
        topic_data: vec![produce::TopicProduceData {
            name: Str::from("t"),
            partition_data: vec![produce::PartitionProduceData {
                index: 0,
                records: Some(Records::from(records.clone())),
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let chain = encode(&request, 9);
    assert!(chain.0.iter().any(|part| part.as_ptr() == records.as_ptr()), "linked on encoding");
    let frame = chain.to_bytes();
    let inside = frame.as_ptr() as usize..frame.as_ptr() as usize + frame.len();
    let back = produce::ProduceRequest::decode(&mut Decoder::new(frame), 9).unwrap();
    let slice = back.topic_data[0].partition_data[0].records.as_ref().unwrap().to_bytes();
    assert!(inside.contains(&(slice.as_ptr() as usize)), "a slice of the frame on decoding");
}

#[test]
fn tagged_fields_of_other_versions_and_unknown_ones_are_dropped() {
    // C15: FetchRequest v12 knows tag 0; tag 1 belongs to 15 and later; tag 99 to nobody.
    let mut e = Encoder::new();
    fetch::FetchRequest::default().encode(&mut e, 12).unwrap();
    let mut bytes = e.finish().to_bytes().to_vec();
    assert_eq!(bytes.pop(), Some(0), "no tagged fields");
    bytes.extend([3, 0, 2, 2, b'c', 1, 3, 1, 2, 3, 99, 1, 7]);
    let mut d = Decoder::new(bytes.into());
    let request = fetch::FetchRequest::decode(&mut d, 12).unwrap();
    assert_eq!(d.remaining(), 0);
    assert_eq!(request.cluster_id, Some(Str::from("c")));
    assert_eq!(request.replica_state, fetch::ReplicaState::default());
}
