//! Producer state of one partition: what makes a retried batch harmless (idempotence, KIP-98).
//!
//! For each producer id the epoch and the last five batches are kept. A batch that matches one of
//! them is a retry and gets its old offset; one that goes on from the newest is new; everything else
//! is refused. The state is a fold over the log in offset order, so that it can be rebuilt.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Buf, BufMut, Bytes, BytesMut};

/// How many batches of a producer are remembered: what a client may have in flight (KIP-98).
pub const REMEMBERED_BATCHES: usize = 5;

/// What a batch header says about its producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Never negative here; a batch without a producer id has no stamp.
    pub producer_id: i64,
    /// Of the producer.
    pub producer_epoch: i16,
    /// Sequence number of the first record.
    pub first_sequence: i32,
    /// Sequence number of the last record; wraps from `i32::MAX` to 0.
    pub last_sequence: i32,
}

impl ProducerStamp {
    /// The stamp of a batch whose sequence numbers begin at `first_sequence` and that holds
    /// `last_offset_delta + 1` records.
    pub fn new(
        producer_id: i64,
        producer_epoch: i16,
        first_sequence: i32,
        last_offset_delta: i32,
    ) -> Self {
        // Sequence numbers have 31 bits; the wrap skips the sign.
        let last = (i64::from(first_sequence) + i64::from(last_offset_delta)) & 0x7fff_ffff;
        Self { producer_id, producer_epoch, first_sequence, last_sequence: last as i32 }
    }
}

/// One remembered batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RememberedBatch {
    /// Of the first record.
    pub first_sequence: i32,
    /// Of the last record.
    pub last_sequence: i32,
    /// Offset of the first record.
    pub base_offset: i64,
    /// Offset of the last record (inclusive).
    pub last_offset: i64,
    /// Largest timestamp in it, in milliseconds.
    pub max_timestamp: i64,
}

/// What is known of one producer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerEntry {
    /// The newest epoch seen.
    pub epoch: i16,
    /// Of that epoch, oldest first, at most [`REMEMBERED_BATCHES`].
    pub batches: VecDeque<RememberedBatch>,
    /// The leader's wall clock at the last append: what expiry counts from (E-T2).
    pub append_time_ms: i64,
    /// First offset of the transaction that is open, for later.
    pub transaction_start: Option<i64>,
    /// Epoch of the coordinator that last decided about this producer, for later; -1: none.
    pub coordinator_epoch: i32,
}

/// What a stamp means for the partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// To be appended.
    New,
    /// Written already: here.
    Duplicate(RememberedBatch),
    /// The producer epoch is older than one seen.
    StaleEpoch {
        /// The newest epoch seen.
        newest: i16,
    },
    /// The first sequence number is not the one expected.
    OutOfOrder {
        /// What would have been accepted.
        expected: i32,
    },
}

/// All producers of one partition. Bounded: the one that appended longest ago is forgotten first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Producers {
    entries: BTreeMap<i64, ProducerEntry>,
    by_append_time: BTreeSet<(i64, i64)>,
}

/// How many producers one partition remembers at most.
pub const MAX_PRODUCERS: usize = 50_000;

/// What one producer takes in memory, about: its entry, its batches and its places in two trees.
pub(crate) const PRODUCER_BYTES: usize = 384;

const STATE_VERSION: u8 = 1;

fn next_sequence(last: i32) -> i32 {
    last.checked_add(1).unwrap_or(0)
}

impl Producers {
    /// Nobody.
    pub const fn new() -> Self {
        Self { entries: BTreeMap::new(), by_append_time: BTreeSet::new() }
    }

    /// Takes over what `newer`, a state further up the same log, knows better.
    pub fn merge(&mut self, newer: &Self) {
        for (id, entry) in &newer.entries {
            let end = |entry: &ProducerEntry| entry.batches.back().map(|batch| batch.last_offset);
            let known = self.entries.get(id);
            if known.is_some_and(|known| end(known) > end(entry)) {
                continue;
            }
            if let Some(known) = known {
                self.by_append_time.remove(&(known.append_time_ms, *id));
            }
            self.by_append_time.insert((entry.append_time_ms, *id));
            self.entries.insert(*id, entry.clone());
        }
    }

    /// Whether `other` knows of a newer batch of any producer.
    pub(crate) fn lacks(&self, other: &Self) -> bool {
        other.entries.iter().any(|(id, entry)| {
            let known = self.entries.get(id).and_then(|known| known.batches.back());
            let newest = entry.batches.back().map(|batch| batch.last_offset);
            known.map(|batch| batch.last_offset) < newest
        })
    }

    /// Offset of the newest record that is remembered.
    pub(crate) fn newest_offset(&self) -> Option<i64> {
        self.entries.values().filter_map(|entry| Some(entry.batches.back()?.last_offset)).max()
    }

    /// Bytes of [`Producers::encode`], at most.
    pub(crate) fn encoded_bytes(&self) -> u64 {
        5 + self.entries.len() as u64 * (31 + 32 * REMEMBERED_BATCHES as u64)
    }

    /// How many are known.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether anything is known of this producer.
    pub(crate) fn knows(&self, producer_id: i64) -> bool {
        self.entries.contains_key(&producer_id)
    }

    /// When the one that has been idle for longest last appended, in milliseconds.
    pub(crate) fn longest_idle(&self) -> Option<i64> {
        self.by_append_time.first().map(|(time, _)| *time)
    }

    /// Whether none is known.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The producers in order of their ids.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &ProducerEntry)> {
        self.entries.iter().map(|(id, entry)| (*id, entry))
    }

    /// What to do with a batch. As Kafka: an unknown producer may begin anywhere (its state may have
    /// expired); a new epoch of a known one begins at 0.
    pub fn check(&self, stamp: &ProducerStamp) -> Verdict {
        let Some(entry) = self.entries.get(&stamp.producer_id) else { return Verdict::New };
        if stamp.producer_epoch < entry.epoch {
            return Verdict::StaleEpoch { newest: entry.epoch };
        }
        if stamp.producer_epoch > entry.epoch {
            let in_order = stamp.first_sequence == 0;
            return if in_order { Verdict::New } else { Verdict::OutOfOrder { expected: 0 } };
        }
        let same = |batch: &&RememberedBatch| {
            batch.first_sequence == stamp.first_sequence
                && batch.last_sequence == stamp.last_sequence
        };
        if let Some(batch) = entry.batches.iter().find(same) {
            return Verdict::Duplicate(*batch);
        }
        match entry.batches.back().map(|batch| next_sequence(batch.last_sequence)) {
            Some(expected) if expected != stamp.first_sequence => Verdict::OutOfOrder { expected },
            Some(_) | None => Verdict::New,
        }
    }

    /// Remembers a batch that was appended at `base_offset..=last_offset`. Applying what is
    /// remembered already changes nothing, so a replay may overlap.
    pub fn apply(
        &mut self,
        stamp: &ProducerStamp,
        base_offset: i64,
        last_offset: i64,
        max_timestamp: i64,
        append_time_ms: i64,
    ) {
        let entry = self.entries.entry(stamp.producer_id).or_insert_with(|| ProducerEntry {
            epoch: stamp.producer_epoch,
            batches: VecDeque::new(),
            append_time_ms,
            transaction_start: None,
            coordinator_epoch: -1,
        });
        if entry.batches.back().is_some_and(|newest| newest.last_offset >= last_offset) {
            return;
        }
        if entry.epoch != stamp.producer_epoch {
            entry.epoch = stamp.producer_epoch;
            entry.batches.clear();
        }
        if entry.batches.len() == REMEMBERED_BATCHES {
            entry.batches.pop_front();
        } else {
            // Most producers of a partition come with few batches.
            entry.batches.reserve_exact(1);
        }
        entry.batches.push_back(RememberedBatch {
            first_sequence: stamp.first_sequence,
            last_sequence: stamp.last_sequence,
            base_offset,
            last_offset,
            max_timestamp,
        });
        self.by_append_time.remove(&(entry.append_time_ms, stamp.producer_id));
        entry.append_time_ms = entry.append_time_ms.max(append_time_ms);
        self.by_append_time.insert((entry.append_time_ms, stamp.producer_id));
        while self.entries.len() > MAX_PRODUCERS {
            let Some((_, oldest)) = self.by_append_time.pop_first() else { return };
            self.entries.remove(&oldest);
        }
    }

    /// Forgets who last appended before `deadline_ms` by the leader's clock and has no transaction
    /// open. Never called while a partition opens (E-T2). Gives how many were forgotten.
    pub fn expire(&mut self, deadline_ms: i64) -> usize {
        let mut forgotten = 0;
        let old: Vec<_> = self.by_append_time.range(..(deadline_ms, i64::MIN)).copied().collect();
        for (time, id) in old {
            if self.entries.get(&id).is_some_and(|entry| entry.transaction_start.is_none()) {
                self.entries.remove(&id);
                self.by_append_time.remove(&(time, id));
                forgotten += 1;
            }
        }
        forgotten
    }

    /// What is known of batches that end before `end_offset` (exclusive): the state of a log that ends
    /// there, but for batches that newer ones pushed out, which no client retries any more.
    pub fn below(&self, end_offset: i64) -> Self {
        let mut below = Self::default();
        for (id, entry) in &self.entries {
            let mut entry = entry.clone();
            entry.batches.retain(|batch| batch.last_offset < end_offset);
            if !entry.batches.is_empty() {
                below.by_append_time.insert((entry.append_time_ms, *id));
                below.entries.insert(*id, entry);
            }
        }
        below
    }

    /// The state as bytes, for run ends and footers: version, count, then one entry per producer.
    pub fn encode(&self, out: &mut BytesMut) {
        out.put_u8(STATE_VERSION);
        // At most MAX_PRODUCERS.
        out.put_u32_le(self.entries.len() as u32);
        for (id, entry) in &self.entries {
            out.put_i64_le(*id);
            out.put_i16_le(entry.epoch);
            out.put_i64_le(entry.append_time_ms);
            out.put_i64_le(entry.transaction_start.unwrap_or(-1));
            out.put_i32_le(entry.coordinator_epoch);
            // At most REMEMBERED_BATCHES.
            out.put_u8(entry.batches.len() as u8);
            for batch in &entry.batches {
                out.put_i32_le(batch.first_sequence);
                out.put_i32_le(batch.last_sequence);
                out.put_i64_le(batch.base_offset);
                out.put_i64_le(batch.last_offset);
                out.put_i64_le(batch.max_timestamp);
            }
        }
    }

    /// Reads what [`Producers::encode`] wrote; `None` when the bytes are something else.
    pub fn decode(bytes: &mut Bytes) -> Option<Self> {
        if bytes.try_get_u8().ok()? != STATE_VERSION {
            return None;
        }
        let mut producers = Self::default();
        for _ in 0..bytes.try_get_u32_le().ok()? {
            let id = bytes.try_get_i64_le().ok()?;
            let epoch = bytes.try_get_i16_le().ok()?;
            let append_time_ms = bytes.try_get_i64_le().ok()?;
            let transaction_start = bytes.try_get_i64_le().ok()?;
            let coordinator_epoch = bytes.try_get_i32_le().ok()?;
            let mut batches = VecDeque::new();
            for _ in 0..bytes.try_get_u8().ok()? {
                batches.push_back(RememberedBatch {
                    first_sequence: bytes.try_get_i32_le().ok()?,
                    last_sequence: bytes.try_get_i32_le().ok()?,
                    base_offset: bytes.try_get_i64_le().ok()?,
                    last_offset: bytes.try_get_i64_le().ok()?,
                    max_timestamp: bytes.try_get_i64_le().ok()?,
                });
            }
            if batches.len() > REMEMBERED_BATCHES {
                return None;
            }
            producers.by_append_time.insert((append_time_ms, id));
            let transaction_start = (transaction_start >= 0).then_some(transaction_start);
            let entry = ProducerEntry {
                epoch,
                batches,
                append_time_ms,
                transaction_start,
                coordinator_epoch,
            };
            producers.entries.insert(id, entry);
        }
        Some(producers)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn append(producers: &mut Producers, stamp: ProducerStamp, base: i64, records: i64) {
        assert_eq!(producers.check(&stamp), Verdict::New);
        producers.apply(&stamp, base, base + records - 1, 0, base);
    }

    #[test]
    fn a_retry_of_any_of_the_last_five_batches_gets_its_old_offset() {
        let mut producers = Producers::default();
        let stamp = |n: i32| ProducerStamp::new(7, 0, n * 10, 9);
        for n in 0..7 {
            append(&mut producers, stamp(n), i64::from(n) * 10, 10);
        }
        for n in 2..7 {
            let verdict = producers.check(&stamp(n));
            assert!(
                matches!(verdict, Verdict::Duplicate(b) if b.base_offset == i64::from(n) * 10),
                "{verdict:?}"
            );
        }
        assert_eq!(producers.check(&stamp(1)), Verdict::OutOfOrder { expected: 70 });
        assert_eq!(producers.check(&stamp(8)), Verdict::OutOfOrder { expected: 70 });
    }

    #[test]
    fn sequence_numbers_wrap_from_the_largest_to_zero() {
        let mut producers = Producers::default();
        let wrapping = ProducerStamp::new(7, 0, i32::MAX - 1, 3);
        assert_eq!(wrapping.last_sequence, 1);
        append(&mut producers, wrapping, 0, 4);
        append(&mut producers, ProducerStamp::new(7, 0, 2, 0), 4, 1);

        let mut producers = Producers::default();
        append(&mut producers, ProducerStamp::new(7, 0, i32::MAX, 0), 0, 1);
        append(&mut producers, ProducerStamp::new(7, 0, 0, 0), 1, 1);
    }

    #[test]
    fn a_new_epoch_begins_at_zero_and_ends_the_old_one() {
        let mut producers = Producers::default();
        append(&mut producers, ProducerStamp::new(7, 3, 40, 0), 0, 1);
        let late = ProducerStamp::new(7, 4, 5, 0);
        assert_eq!(producers.check(&late), Verdict::OutOfOrder { expected: 0 });
        append(&mut producers, ProducerStamp::new(7, 4, 0, 0), 1, 1);
        let old = ProducerStamp::new(7, 3, 41, 0);
        assert_eq!(producers.check(&old), Verdict::StaleEpoch { newest: 4 });
    }

    #[test]
    fn e_t2_expiry_counts_from_the_leaders_clock_and_spares_open_transactions() {
        let mut producers = Producers::default();
        producers.apply(&ProducerStamp::new(1, 0, 0, 0), 0, 0, i64::MAX, 100);
        producers.apply(&ProducerStamp::new(2, 0, 0, 0), 1, 1, 0, 200);
        producers.entries.get_mut(&1).unwrap().transaction_start = Some(0);
        assert_eq!(producers.expire(200), 0);
        producers.entries.get_mut(&1).unwrap().transaction_start = None;
        assert_eq!(producers.expire(200), 1);
        assert_eq!(producers.iter().map(|(id, _)| id).collect::<Vec<_>>(), [2]);
    }

    #[test]
    fn f24_replaying_what_is_known_changes_nothing() {
        let mut producers = Producers::default();
        for n in 0..3 {
            producers.apply(&ProducerStamp::new(1, 0, n, 0), n.into(), n.into(), 5, 9);
        }
        let before = producers.clone();
        for n in 0..3 {
            producers.apply(&ProducerStamp::new(1, 0, n, 0), n.into(), n.into(), 5, 9);
        }
        assert_eq!(producers, before);
        let mut bytes = BytesMut::new();
        producers.encode(&mut bytes);
        let bytes = bytes.freeze();
        assert_eq!(Producers::decode(&mut bytes.clone()), Some(producers));
        for cut in 0..bytes.len() {
            assert_eq!(Producers::decode(&mut bytes.slice(..cut)), None);
        }
    }
}
