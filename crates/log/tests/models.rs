//! Producer state and leader epochs against naive models that keep the whole history.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use proptest::collection::vec;
use proptest::prelude::*;
use talos_common::LeaderEpoch;
use talos_log::epochs::Epochs;
use talos_log::producers::{ProducerStamp, Producers, REMEMBERED_BATCHES, Verdict};

/// One batch as it was appended.
#[derive(Clone, Copy, Debug)]
struct Appended {
    stamp: ProducerStamp,
    base: i64,
    last: i64,
}

/// All batches of each producer.
#[derive(Debug, Default)]
struct Model {
    batches: BTreeMap<i64, Vec<Appended>>,
}

impl Model {
    fn check(&self, stamp: &ProducerStamp) -> Verdict {
        let Some(newest) = self.batches.get(&stamp.producer_id).and_then(|all| all.last()) else {
            return Verdict::New;
        };
        let epoch = newest.stamp.producer_epoch;
        if stamp.producer_epoch < epoch {
            return Verdict::StaleEpoch { newest: epoch };
        }
        if stamp.producer_epoch > epoch {
            return match stamp.first_sequence {
                0 => Verdict::New,
                _ => Verdict::OutOfOrder { expected: 0 },
            };
        }
        let of_epoch = self.batches[&stamp.producer_id].iter().rev();
        let of_epoch = of_epoch.take_while(|batch| batch.stamp.producer_epoch == epoch);
        for old in of_epoch.take(REMEMBERED_BATCHES) {
            if old.stamp == *stamp {
                return Verdict::Duplicate(talos_log::producers::RememberedBatch {
                    first_sequence: stamp.first_sequence,
                    last_sequence: stamp.last_sequence,
                    base_offset: old.base,
                    last_offset: old.last,
                    max_timestamp: 7,
                });
            }
        }
        let last = newest.stamp.last_sequence;
        let expected = if last == i32::MAX { 0 } else { last + 1 };
        if stamp.first_sequence == expected {
            Verdict::New
        } else {
            Verdict::OutOfOrder { expected }
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Send {
    producer: i64,
    epoch_up: bool,
    stale: bool,
    /// How many batches back of the newest; 0 sends the next one.
    back: usize,
    skip: i32,
    records: i32,
}

fn send() -> impl Strategy<Value = Send> {
    (0..3_i64, prop::bool::weighted(0.1), prop::bool::weighted(0.05), 0..9_usize, 0..20_i32, 1..5)
        .prop_map(|(producer, epoch_up, stale, back, skip, records)| Send {
            producer,
            epoch_up,
            stale,
            // Mostly in order.
            back: back.saturating_sub(2),
            skip: (skip - 18).max(0),
            records,
        })
}

fn stamp_of(model: &Model, send: &Send, first: i32) -> ProducerStamp {
    let delta = send.records - 1;
    let Some(all) = model.batches.get(&send.producer) else {
        return ProducerStamp::new(send.producer, 3, first, delta);
    };
    let newest = all.last().unwrap().stamp;
    if send.epoch_up {
        return ProducerStamp::new(send.producer, newest.producer_epoch + 1, send.skip, delta);
    }
    if send.stale {
        return ProducerStamp::new(send.producer, newest.producer_epoch - 1, 0, delta);
    }
    if send.back > 0 {
        return all[all.len().saturating_sub(send.back)].stamp;
    }
    let next = (i64::from(newest.last_sequence) + 1 + i64::from(send.skip)) & 0x7fff_ffff;
    ProducerStamp::new(send.producer, newest.producer_epoch, next as i32, delta)
}

fn encoded(producers: &Producers) -> Bytes {
    let mut out = BytesMut::new();
    producers.encode(&mut out);
    out.freeze()
}

proptest! {
    #[test]
    fn producers_answer_as_one_who_remembers_everything(
        sends in vec(send(), 1..80), first in prop_oneof![Just(0), Just(i32::MAX - 6), 0..i32::MAX]
    ) {
        let (mut producers, mut model) = (Producers::default(), Model::default());
        let (mut offset, mut log) = (0, Vec::new());
        for send in &sends {
            let stamp = stamp_of(&model, send, first);
            let verdict = producers.check(&stamp);
            prop_assert_eq!(verdict, model.check(&stamp), "{:?}", stamp);
            if verdict != Verdict::New {
                continue;
            }
            let last = offset + i64::from(send.records) - 1;
            producers.apply(&stamp, offset, last, 7, offset);
            let appended = Appended { stamp, base: offset, last };
            model.batches.entry(send.producer).or_default().push(appended);
            log.push(appended);
            offset = last + 1;
        }
        // F24: a replay of the log, from any snapshot and overlapping it, gives the same state.
        for from in [0, log.len() / 2, log.len()] {
            let mut replayed = Producers::default();
            for batch in &log[..from] {
                replayed.apply(&batch.stamp, batch.base, batch.last, 7, batch.base);
            }
            let mut replayed = Producers::decode(&mut encoded(&replayed)).unwrap();
            for batch in &log[from.saturating_sub(3)..] {
                replayed.apply(&batch.stamp, batch.base, batch.last, 7, batch.base);
            }
            prop_assert_eq!(&replayed, &producers);
        }
    }

    #[test]
    fn producer_state_is_read_as_it_was_written_and_other_bytes_never_panic(
        applied in vec((0..40_i64, 0..3_i16, 0..100_i32, 0..1_000_i64), 0..60),
        noise in vec(any::<u8>(), 0..200), at: prop::sample::Index, bit in 0_u8..8
    ) {
        let mut producers = Producers::default();
        for (n, (id, epoch, first, time)) in applied.iter().enumerate() {
            let stamp = ProducerStamp::new(*id, *epoch, *first, 0);
            producers.apply(&stamp, n as i64, n as i64, 5, *time);
        }
        let bytes = encoded(&producers);
        let decoded = Producers::decode(&mut bytes.clone()).unwrap();
        prop_assert_eq!(&decoded, &producers);
        // Expiry goes on the same way behind it.
        let (mut left, mut right) = (producers, decoded);
        prop_assert_eq!(left.expire(500), right.expire(500));
        prop_assert_eq!(left, right);
        let _ = Producers::decode(&mut Bytes::from(noise));
        let mut changed = BytesMut::from(&bytes[..]);
        let at = at.index(changed.len());
        changed[at] ^= 1_u8 << bit;
        let _ = Producers::decode(&mut changed.freeze());
    }

    #[test]
    fn epochs_answer_as_a_list_of_every_record(
        runs in vec((0..4_i32, 1..6_i64), 1..12), trim in 0..40_i64, asked in -1..50_i32
    ) {
        let (mut epochs, mut records) = (Epochs::default(), Vec::new());
        let mut epoch = 0;
        for (step, count) in runs {
            epoch += step;
            for _ in 0..count {
                epochs.note(LeaderEpoch(epoch), records.len() as i64);
                records.push(epoch);
            }
        }
        let end = records.len() as i64;
        let trim = trim.min(end - 1);
        epochs.trim(trim);
        let live = || records.iter().enumerate().skip(trim as usize);
        prop_assert_eq!(epochs.newest(), Some(LeaderEpoch(epoch)));
        for (offset, of) in live() {
            prop_assert_eq!(epochs.of(offset as i64), Some(LeaderEpoch(*of)));
        }
        prop_assert_eq!(epochs.of(trim - 1), None);
        // KIP-101: the largest epoch not above the asked one, and where the next one begins.
        let current = epoch + 2;
        let answer = epochs.end_of(LeaderEpoch(asked), LeaderEpoch(current), end);
        let behind = live().find(|(_, of)| **of > asked).map_or(end, |(offset, _)| offset as i64);
        let known = live().map(|(_, of)| *of).filter(|of| *of <= asked).max();
        let expected = match asked {
            _ if asked > current => None,
            _ if asked == current => Some((current, end)),
            _ => Some((known.unwrap_or(asked), behind)),
        };
        prop_assert_eq!(answer.map(|(of, end)| (of.0, end)), expected);
    }
}
