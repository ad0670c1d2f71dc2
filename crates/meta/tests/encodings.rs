//! Record encodings: every record comes back as it was, hostile bytes give `Corrupt` and nothing else.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LeaderEpoch, TopicId};
use talos_meta::{
    Broker, Cluster, ClusterId, Error, Inherited, Leader, Ownership, Tombstone, Topic, TopicState,
};

fn dir() -> impl Strategy<Value = BrokerDir> {
    (0..=i32::MAX, any::<u64>())
        .prop_map(|(id, epoch)| BrokerDir { broker: BrokerId(id), epoch: BrokerEpoch(epoch) })
}

fn ownership() -> impl Strategy<Value = Ownership> {
    let epoch = || (0..=i32::MAX).prop_map(LeaderEpoch);
    let leader =
        prop_oneof![Just(Leader::Released), Just(Leader::Closed), dir().prop_map(Leader::Broker)];
    let inherited =
        (dir(), epoch()).prop_map(|(dir, leader_epoch)| Inherited { dir, leader_epoch });
    (leader, proptest::option::of(epoch()), proptest::collection::vec(inherited, 0..20)).prop_map(
        |(leader, leader_epoch, inherits)| {
            let led = matches!(leader, Leader::Broker(_));
            let leader_epoch = leader_epoch.or(led.then_some(LeaderEpoch(0)));
            Ownership { leader, leader_epoch, inherits }
        },
    )
}

fn topic() -> impl Strategy<Value = Topic> {
    let configs = proptest::collection::btree_map(".{0,12}", ".{0,12}", 0..8);
    (any::<[u8; 16]>(), ".{0,40}", 1..=1_000_000, configs, any::<bool>()).prop_map(
        |(id, name, partitions, configs, live)| {
            let state = if live { TopicState::Live } else { TopicState::Deleting };
            Topic { id: TopicId(id), name, partitions, configs, state }
        },
    )
}

fn broker() -> impl Strategy<Value = Broker> {
    let stop = proptest::collection::vec(any::<u8>(), 0..40);
    let stop = (any::<u64>(), stop).prop_map(|(e, stop)| (BrokerEpoch(e), Bytes::from(stop)));
    (any::<u64>(), any::<bool>(), any::<u64>(), proptest::collection::vec(stop, 0..5)).prop_map(
        |(epoch, alive, incarnation, clean_stops)| {
            let epoch = BrokerEpoch(epoch);
            Broker { epoch, alive, incarnation, clean_stops }
        },
    )
}

fn tombstone() -> impl Strategy<Value = Tombstone> {
    (any::<[u8; 16]>(), ".{0,40}", any::<i32>(), any::<i64>()).prop_map(
        |(id, name, partitions, deleted_ms)| Tombstone {
            id: TopicId(id),
            name,
            partitions,
            deleted_ms,
        },
    )
}

/// All decoders on the same bytes: none panics; what decodes encodes to the same bytes again.
fn decode_all(bytes: &[u8]) -> [Result<Bytes, Error>; 5] {
    [
        Ownership::decode("/p", bytes).map(|record| record.encode()),
        Topic::decode("/p", bytes).map(|record| record.encode()),
        Broker::decode("/p", bytes).map(|record| record.encode()),
        Tombstone::decode("/p", bytes).map(|record| record.encode()),
        Cluster::decode("/p", bytes).map(|record| record.encode()),
    ]
}

fn check_hostile(bytes: &[u8]) {
    for result in decode_all(bytes) {
        match result {
            // A topic's configuration may come in another order or twice: then it is another record.
            Ok(encoded) => assert!(encoded.len() <= bytes.len()),
            Err(Error::Corrupt(text)) => assert!(text.contains("/p"), "{text}"),
            Err(error) => panic!("{error}"),
        }
    }
}

proptest! {
    #[test]
    fn records_round_trip(
        ownership in ownership(), topic in topic(), broker in broker(), tombstone in tombstone(),
        id in any::<[u8; 16]>(), format_level in any::<u16>(),
    ) {
        prop_assert_eq!(Ownership::decode("/p", &ownership.encode()), Ok(ownership));
        prop_assert_eq!(Topic::decode("/p", &topic.encode()), Ok(topic));
        prop_assert_eq!(Broker::decode("/p", &broker.encode()), Ok(broker));
        prop_assert_eq!(Tombstone::decode("/p", &tombstone.encode()), Ok(tombstone));
        let cluster = Cluster { id: ClusterId(id), format_level };
        prop_assert_eq!(Cluster::decode("/p", &cluster.encode()), Ok(cluster));
        prop_assert_eq!(cluster.id.to_string().parse(), Ok(cluster.id));
    }

    #[test]
    fn hostile_bytes_are_corrupt(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), known: bool) {
        if known && let Some(version) = bytes.first_mut() {
            *version = 1;
        }
        check_hostile(&bytes);
    }

    #[test]
    fn damaged_records_never_panic(record in ownership(), topic in topic(), at in any::<usize>(), with: u8, cut: bool) {
        for bytes in [record.encode(), topic.encode()] {
            let mut bytes = bytes.to_vec();
            let at = at % bytes.len();
            if cut { bytes.truncate(at) } else { bytes[at] = with }
            check_hostile(&bytes);
        }
    }
}

#[test]
fn a_record_that_is_cut_or_longer_is_corrupt_and_a_newer_version_is_named() {
    let configs = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let id = TopicId([7; 16]);
    let topic = Topic { id, name: "t".into(), partitions: 3, configs, state: TopicState::Live };
    let bytes = topic.encode();
    for cut in 0..bytes.len() {
        assert!(matches!(Topic::decode("/p", &bytes[..cut]), Err(Error::Corrupt(_))), "{cut}");
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(Topic::decode("/p", &longer), Err(Error::Corrupt(_))));
    let mut newer = bytes.to_vec();
    newer[0] = 2;
    let error = Topic::decode("/topics/x", &newer).unwrap_err().to_string();
    assert!(error.contains("version is 2") && error.contains("/topics/x"), "{error}");
}

/// The formats are on disk: these bytes must decode for ever.
#[test]
fn format_1_stays_readable() {
    let record = [
        1u8, 1, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 7, 0, 0, 0, 0,
        0, 0, 0, 8, 0, 0, 0, 4,
    ];
    let dir = |epoch| BrokerDir { broker: BrokerId(7), epoch: BrokerEpoch(epoch) };
    let inherits = vec![Inherited { dir: dir(8), leader_epoch: LeaderEpoch(4) }];
    let leader_epoch = Some(LeaderEpoch(5));
    let expected = Ownership { leader: Leader::Broker(dir(9)), leader_epoch, inherits };
    assert_eq!(Ownership::decode("/p", &record), Ok(expected.clone()));
    assert_eq!(&expected.encode()[..], record);
}
