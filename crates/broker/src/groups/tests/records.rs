//! The schemas, against bytes that Kafka 4.4's own classes wrote.

use super::*;
use crate::groups::coordinator_partition;
use crate::groups::records::{DecodeError, StoredGroup, StoredMember, StoredOffset};

fn hex(text: &str) -> Vec<u8> {
    let digit = |at: usize| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(digit).collect()
}

const OFFSET_KEY: &str = "0001000167000374c3b600000007";
const OFFSET_VALUES: [&str; 5] = [
    "0000000000000000002a00016d00000000000003e8",
    "0001000000000000002a00016d00000000000003e800000000000007d0",
    "0002000000000000002a00016d00000000000003e8",
    "0003000000000000002a0000000500016d00000000000003e8",
    "0004000000000000002a00000005026d00000000000003e80100100102030405060708090a0b0c0d0e0f10",
];
const GROUP_KEY: &str = "0002000167";
const GROUP_VALUES: [&str; 5] = [
    "00000008636f6e73756d657200000003000572616e67650003632d31000000010003632d3100016300022f6800002710\
     0000000201020000000103",
    "00010008636f6e73756d657200000003000572616e67650003632d31000000010003632d3100016300022f6800007530\
     000027100000000201020000000103",
    "00020008636f6e73756d657200000003000572616e67650003632d310000000000000063000000010003632d31000163\
     00022f6800007530000027100000000201020000000103",
    "00030008636f6e73756d657200000003000572616e67650003632d310000000000000063000000010003632d31000169\
     00016300022f6800007530000027100000000201020000000103",
    "000409636f6e73756d6572000000030672616e676504632d3100000000000000630204632d3102690263032f68000075\
     300000271003010202030000",
];
const EMPTY_GROUP: &str = "00030008636f6e73756d657200000004ffffffff000000000000000500000000";

fn offset(version: usize) -> StoredOffset {
    StoredOffset {
        offset: 42,
        leader_epoch: if version >= 3 { 5 } else { -1 },
        metadata: "m".into(),
        commit_ms: 1000,
        expire_ms: (version == 1).then_some(2000),
        topic_id: match version {
            4 => TopicId([1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
            _ => TopicId::default(),
        },
    }
}

fn group(version: usize) -> StoredGroup {
    StoredGroup {
        protocol_type: "consumer".into(),
        generation: 3,
        protocol: Some("range".into()),
        leader: Some("c-1".into()),
        state_since_ms: if version >= 2 { 99 } else { -1 },
        members: vec![StoredMember {
            member_id: "c-1".into(),
            group_instance_id: (version >= 3).then(|| "i".into()),
            client_id: "c".into(),
            client_host: "/h".into(),
            rebalance_timeout_ms: if version >= 1 { 30_000 } else { 10_000 },
            session_timeout_ms: 10_000,
            subscription: blob(&[1, 2]),
            assignment: blob(&[3]),
        }],
    }
}

#[test]
fn kafkas_offset_commits_are_read_and_written() {
    let key = hex(OFFSET_KEY);
    for (version, bytes) in OFFSET_VALUES.iter().enumerate() {
        let value = Some(offset(version));
        let record = Record::Offset { group: "g".into(), topic: "tö".into(), partition: 7, value };
        assert_eq!(Record::decode(&key, Some(&hex(bytes))), Ok(record.clone()), "{version}");
        if [1, 4].contains(&version) {
            assert_eq!(record.encode(), Some((key.clone(), Some(hex(bytes)))), "{version}");
        }
    }
    let gone = Record::Offset { group: "g".into(), topic: "tö".into(), partition: 7, value: None };
    assert_eq!(Record::decode(&key, None), Ok(gone.clone()));
    assert_eq!(gone.encode(), Some((key, None)));
}

#[test]
fn kafkas_group_metadata_is_read_and_written() {
    let key = hex(GROUP_KEY);
    for (version, bytes) in GROUP_VALUES.iter().enumerate() {
        let record = Record::Group { group: "g".into(), value: Some(group(version)) };
        assert_eq!(Record::decode(&key, Some(&hex(bytes))), Ok(record.clone()), "{version}");
        if version == 3 {
            assert_eq!(record.encode(), Some((key.clone(), Some(hex(bytes)))));
        }
    }
    let empty = StoredGroup {
        generation: 4,
        protocol: None,
        leader: None,
        state_since_ms: 5,
        members: Vec::new(),
        ..group(3)
    };
    let record = Record::Group { group: "g".into(), value: Some(empty) };
    assert_eq!(record.encode(), Some((key.clone(), Some(hex(EMPTY_GROUP)))));
    assert_eq!(Record::decode(&key, Some(&hex(EMPTY_GROUP))), Ok(record));
}

#[test]
fn every_cut_and_every_flipped_bit_is_an_error_or_another_record_and_never_a_panic() {
    let values = OFFSET_VALUES.map(|v| (OFFSET_KEY, v));
    for (key, value) in values.into_iter().chain(GROUP_VALUES.map(|v| (GROUP_KEY, v))) {
        let (key, value) = (hex(key), hex(value));
        for len in 0..value.len() {
            assert!(Record::decode(&key, Some(&value[..len])).is_err());
        }
        for len in 0..key.len() {
            assert!(Record::decode(&key[..len], Some(&value)).is_err());
        }
        let longer = [&value[..], &[0]].concat();
        assert!(Record::decode(&key, Some(&longer)).is_err());
        for bit in 0..value.len() * 8 {
            let mut bad = value.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            let _ = Record::decode(&key, Some(&bad));
        }
    }
}

#[test]
fn unknown_kinds_are_kept_apart_from_corruption() {
    assert_eq!(Record::decode(&[0, 3, 9, 9], Some(&[1])), Ok(Record::Unknown { kind: 3 }));
    let bad = Record::decode(&[0xff, 0xff], None);
    assert_eq!(bad, Err(DecodeError { part: "key", problem: "negative kind" }));
    let version = Record::decode(&hex(GROUP_KEY), Some(&[0, 5, 0]));
    assert!(version.is_err());
    // A count that the bytes cannot hold allocates nothing.
    let huge = hex("00000008636f6e73756d657200000003ffffffff7fffffff");
    assert!(Record::decode(&hex(GROUP_KEY), Some(&huge)).is_err());
}

#[test]
fn groups_map_to_partitions_as_in_kafka() {
    for (group, partition) in [("g", 3), ("my-group", 36), ("группа", 8), ("😀x", 39), ("", 0)]
    {
        assert_eq!(coordinator_partition(group, 50), partition, "{group}");
    }
    assert_eq!(coordinator_partition("g", 0), 0);
}
