//! Every message and version that `kafka-protocol` has is encoded by one side, decoded by the
//! other, and back: the bytes and the values must be the same.

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as TheirMessage};

use super::*;

/// Compares both sides and gives the number of versions compared.
fn compare<Ours: Message + Arbitrary, Theirs: Encodable + Decodable + TheirMessage>() -> usize {
    let known = Theirs::VERSIONS.min..=Theirs::VERSIONS.max;
    let mut compared = 0;
    for version in Ours::VERSIONS.filter(|v| known.contains(v)) {
        compared += 1;
        for seed in 0..SEEDS {
            let at = || format!("{} v{version} seed {seed}", Ours::NAME);
            let ours = Ours::arbitrary(&mut Generator::new(seed), version, false);
            let bytes = encode(&ours, version).to_bytes();
            let mut left = bytes.clone();
            let theirs = Theirs::decode(&mut left, version)
                .unwrap_or_else(|e| panic!("{}: they cannot read ours: {e}", at()));
            assert!(left.is_empty(), "{}: they leave bytes over", at());
            let mut again = BytesMut::new();
            theirs.encode(&mut again, version).unwrap_or_else(|e| panic!("{}: {e}", at()));
            assert_eq!(again, bytes, "{}: bytes differ", at());
            let back = Ours::decode(&mut Decoder::new(Bytes::from(again)), version)
                .unwrap_or_else(|e| panic!("{}: we cannot read theirs: {e}", at()));
            assert_eq!(back, ours, "{}: values differ", at());
        }
    }
    compared
}

/// APIs that are newer than the oracle; `golden.rs` has their bytes.
macro_rules! compare_api {
    (StreamsGroupHeartbeat $($rest:ident)*) => {
        0
    };
    (StreamsGroupDescribe $($rest:ident)*) => {
        0
    };
    (StreamsGroupTopologyDescriptionUpdate $($rest:ident)*) => {
        0
    };
    (UnregisterController $($rest:ident)*) => {
        0
    };
    ($key:ident $module:ident $request:ident $response:ident) => {
        compare::<$module::$request, theirs::$request>()
            + compare::<$module::$response, theirs::$response>()
    };
}

macro_rules! compare_all {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => {
        [$(compare_api!($key $module $request $response)),*]
    };
}

#[test]
fn every_message_is_the_same_as_the_oracles() {
    let compared: usize = for_each_api!(compare_all).iter().sum();
    assert!(compared > 300, "only {compared} versions compared");
    compare::<embedded::ConsumerProtocolSubscription, theirs::ConsumerProtocolSubscription>();
    compare::<embedded::ConsumerProtocolAssignment, theirs::ConsumerProtocolAssignment>();
}

#[test]
fn header_versions_are_the_oracles() {
    for key in ApiKey::ALL {
        let Ok(their_key) = theirs::ApiKey::try_from(key.code()) else { continue };
        for version in their_key.valid_versions().min..=their_key.valid_versions().max {
            assert_eq!(
                key.request_header_version(version),
                their_key.request_header_version(version),
                "{key} v{version}"
            );
            assert_eq!(
                key.response_header_version(version),
                their_key.response_header_version(version),
                "{key} v{version}"
            );
        }
    }
}
