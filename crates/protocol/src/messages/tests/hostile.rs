//! Broken and hostile bytes: every message and version, mutated and random; no panic, and memory
//! within the budget of the frame.

use bytes::Bytes;

use super::*;
use crate::codec::{BUDGET_CEILING, BUDGET_FACTOR, BUDGET_FLOOR};

fn budget_of(length: usize) -> usize {
    (length * BUDGET_FACTOR).clamp(BUDGET_FLOOR, BUDGET_CEILING)
}

/// Decodes anything; if it decodes, it must encode and decode to the same again.
fn survives<M: Message>(bytes: Bytes, version: i16) {
    let mut d = Decoder::new(bytes.clone());
    let Ok(message) = M::decode(&mut d, version) else { return };
    let mut e = Encoder::new();
    message.encode(&mut e, version).expect("what was decoded can be encoded");
    let again = e.finish().to_bytes();
    // Unknown tagged fields fall away, so the second form may be shorter; the value is the same.
    // It may be over the budget of that shorter frame, so it is given more room.
    let mut padded = again.to_vec();
    padded.resize(again.len() + bytes.len(), 0);
    let back = M::decode(&mut Decoder::new(padded.into()), version).expect("decodes again");
    // NaN is not equal to itself; the text form is good enough for such messages.
    assert!(back == message || format!("{back:?}") == format!("{message:?}"), "{}", M::NAME);
}

fn mutations<M: Message + Arbitrary>() {
    for version in M::VERSIONS {
        let mut g = Generator::new(u64::from(version.unsigned_abs()) + 1);
        for _ in 0..6 {
            let message = M::arbitrary(&mut g, version, false);
            let bytes = encode(&message, version).to_bytes();
            for _ in 0..10 {
                let mut mutant = bytes.to_vec();
                for _ in 0..g.rng.usize(1..4) {
                    if mutant.is_empty() {
                        break;
                    }
                    let at = g.rng.usize(..mutant.len());
                    match g.rng.u8(..5) {
                        0 => mutant[at] = g.rng.u8(..),
                        1 => mutant[at] ^= 1 << g.rng.u8(..8),
                        2 => mutant[at..].iter_mut().take(4).for_each(|b| *b = 0xff),
                        3 => mutant.truncate(at),
                        _ => mutant.insert(at, g.rng.u8(..)),
                    }
                }
                survives::<M>(mutant.into(), version);
            }
            let length = g.rng.usize(..64);
            let noise: Vec<u8> = (0..length).map(|_| g.rng.u8(..)).collect();
            survives::<M>(noise.into(), version);
        }
    }
}

macro_rules! mutations_of_all {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => { $(
        mutations::<$module::$request>();
        mutations::<$module::$response>();
    )* };
}

#[test]
fn mutated_and_random_bytes_are_survived_by_every_message() {
    for_each_api!(mutations_of_all);
    mutations::<embedded::ConsumerProtocolSubscription>();
    mutations::<embedded::ConsumerProtocolAssignment>();
}

#[test]
fn four_bytes_of_metadata_cannot_ask_for_gigabytes() {
    for count in [54_265_856_i32, i32::MAX] {
        let mut d = Decoder::new(Bytes::copy_from_slice(&count.to_be_bytes()));
        let error = metadata::MetadataRequest::decode(&mut d, 4).unwrap_err();
        assert!(matches!(error.kind, DecodeErrorKind::Truncated { .. }), "{error}");
        assert_eq!(error.field, Some("topics"));
        assert_eq!(d.budget(), BUDGET_FLOOR, "nothing was reserved");
    }
    let mut d = Decoder::new(Bytes::copy_from_slice(&i32::MIN.to_be_bytes()));
    let error = metadata::MetadataRequest::decode(&mut d, 4).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::InvalidLength(i64::from(i32::MIN)));
}

#[test]
fn twelve_bytes_of_produce_cannot_ask_for_gigabytes() {
    // Null transactional id, acks, timeout, and a count in five bytes.
    let bytes = [0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0x0f];
    let mut d = Decoder::new(Bytes::copy_from_slice(&bytes));
    let error = produce::ProduceRequest::decode(&mut d, 9).unwrap_err();
    assert!(matches!(error.kind, DecodeErrorKind::Truncated { .. }), "{error}");
    assert_eq!(d.budget(), BUDGET_FLOOR);
    // A sixth byte, or bits that do not fit in 32.
    for last in [0x1f, 0xff] {
        let bytes = [0, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, last];
        let error =
            produce::ProduceRequest::decode(&mut Decoder::new(Bytes::copy_from_slice(&bytes)), 9)
                .unwrap_err();
        assert_eq!(error.kind, DecodeErrorKind::InvalidVarint);
    }
}

#[test]
fn empty_topic_names_cannot_amplify_a_frame_beyond_its_budget() {
    // One MiB of empty names (two bytes each) would become 24 MiB of structures.
    let count = 512 * 1024_i32;
    let mut bytes = count.to_be_bytes().to_vec();
    bytes.resize(4 + 2 * count as usize, 0);
    let length = bytes.len();
    let mut d = Decoder::new(bytes.into());
    assert_eq!(d.budget(), budget_of(length));
    let error = metadata::MetadataRequest::decode(&mut d, 4).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::OverBudget);
}

#[test]
fn a_tagged_field_given_many_times_stays_within_the_budget() {
    // ProduceResponse v10: tag 0 is an array; each time it is given again it is charged again.
    let endpoints = [3_u8, 0, 0, 0, 1, 1, 0, 0, 0, 2, 1, 0, 0, 0, 0, 1, 1, 0, 0, 0, 2, 1, 0];
    let mut bytes = vec![1_u8, 0, 0, 0, 0];
    bytes.extend([0xff, 0xff, 0x03]);
    for _ in 0..0xffff {
        bytes.extend([0, endpoints.len() as u8]);
        bytes.extend(endpoints);
    }
    let result = produce::ProduceResponse::decode(&mut Decoder::new(bytes.into()), 10);
    assert!(result.is_ok_and(|r| r.node_endpoints.len() == 2));
}

#[test]
fn a_tagged_field_must_be_as_long_as_it_says() {
    let mut e = Encoder::new();
    fetch::FetchRequest::default().encode(&mut e, 12).unwrap();
    let mut bytes = e.finish().to_bytes().to_vec();
    bytes.pop();
    bytes.extend([1, 0, 3, 2, b'c', 0]);
    let error = fetch::FetchRequest::decode(&mut Decoder::new(bytes.into()), 12).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::TaggedFieldLength(0));
}

#[test]
fn strings_must_be_utf8_and_nulls_allowed() {
    let bad = Bytes::from_static(&[0, 0, 0, 1, 0, 2, 0xc3, 0x28]);
    let error = metadata::MetadataRequest::decode(&mut Decoder::new(bad), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::InvalidUtf8);
    let null = Bytes::from_static(&[0xff, 0xff, 0xff, 0xff]);
    let error = metadata::MetadataRequest::decode(&mut Decoder::new(null.clone()), 0).unwrap_err();
    assert_eq!(error.kind, DecodeErrorKind::UnexpectedNull);
    let request = metadata::MetadataRequest::decode(&mut Decoder::new(null), 1).unwrap();
    assert_eq!(request.topics, None);
    assert_eq!(request.encode(&mut Encoder::new(), 0), Err(EncodeError::UnexpectedNull));
}
