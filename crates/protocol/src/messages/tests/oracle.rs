//! Every message and version that `kafka-protocol` has is encoded by one side, decoded by the
//! other, and back: the bytes and the values must be the same.

use std::collections::BTreeSet;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as theirs;
use kafka_protocol::protocol::{Decodable, Encodable, Message as TheirMessage};

use super::*;

/// Messages and versions.
type Versions = BTreeSet<(&'static str, i16)>;

fn versions_of<M: Message>() -> Versions {
    M::VERSIONS.map(|version| (M::NAME, version)).collect()
}

/// Compares both sides and gives the versions compared.
fn compare<Ours: Message + Arbitrary, Theirs: Encodable + Decodable + TheirMessage>() -> Versions {
    let known = Theirs::VERSIONS.min..=Theirs::VERSIONS.max;
    let mut compared = Versions::new();
    for version in Ours::VERSIONS.filter(|v| known.contains(v)) {
        compared.insert((Ours::NAME, version));
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
        Versions::new()
    };
    (StreamsGroupDescribe $($rest:ident)*) => {
        Versions::new()
    };
    (StreamsGroupTopologyDescriptionUpdate $($rest:ident)*) => {
        Versions::new()
    };
    (UnregisterController $($rest:ident)*) => {
        Versions::new()
    };
    ($key:ident $module:ident $request:ident $response:ident) => {
        compare::<$module::$request, theirs::$request>()
            .into_iter()
            .chain(compare::<$module::$response, theirs::$response>())
            .collect::<Versions>()
    };
}

macro_rules! compare_all {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => {
        [$(compare_api!($key $module $request $response)),*]
    };
}

macro_rules! all_versions {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => {
        [$(versions_of::<$module::$request>(), versions_of::<$module::$response>()),*]
    };
}

#[test]
fn every_message_is_the_same_as_the_oracles_or_has_golden_bytes() {
    let compared: Versions = for_each_api!(compare_all).into_iter().flatten().collect();
    compare::<embedded::ConsumerProtocolSubscription, theirs::ConsumerProtocolSubscription>();
    compare::<embedded::ConsumerProtocolAssignment, theirs::ConsumerProtocolAssignment>();
    compare::<embedded::EndTxnMarker, theirs::EndTxnMarker>();

    let golden: BTreeSet<_> = golden::lines().map(|line| (line.name, line.version)).collect();
    let all = for_each_api!(all_versions).into_iter().flatten();
    let missing: Vec<_> = all.filter(|v| !compared.contains(v) && !golden.contains(v)).collect();
    assert_eq!(missing, [], "compared with nobody");
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
