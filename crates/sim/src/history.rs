//! What happened in a run, as clients saw it: the only thing that checkers look at.
//!
//! Events stand in the order in which they happened (one thread, one list); the number of an event is
//! therefore a moment, and «before» means a smaller number. Two runs of one seed have equal lists.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use talos_common::{Clock, TopicPartitionId};
use talos_protocol::ErrorCode;
use tokio::time::Instant;

/// One batch of one producer: unique in a run, whatever became of it and however often it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BatchId {
    /// Which producer.
    pub producer: u32,
    /// Its batches are numbered in the order in which they were made.
    pub number: u64,
}

/// Sequence numbers of an idempotent producer's batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stamp {
    /// Producer id.
    pub id: i64,
    /// Producer epoch.
    pub epoch: i16,
    /// Of the first record.
    pub sequence: i32,
}

/// What a producer heard of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Acknowledged, at this offset; -1 where the broker only says that it has the batch already.
    Acknowledged(i64),
    /// A definite error with this code.
    Refused(i16),
    /// The connection ended, the answer did not come, or it was REQUEST_TIMED_OUT.
    Unknown,
}

/// One partition's part of a fetch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Part {
    /// Which.
    pub tp: TopicPartitionId,
    /// The offset asked for.
    pub from: i64,
    /// What came, or the error code.
    pub data: Result<Data, i16>,
}

/// What a fetch gave.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// First readable offset.
    pub log_start: i64,
    /// End of what is visible (exclusive).
    pub high_watermark: i64,
    /// Offset and value of every record in the answer, also of those before the asked offset.
    pub records: Vec<(i64, Arc<str>)>,
}

/// Which end of a partition was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The log start.
    First,
    /// The high watermark.
    Last,
}

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// A batch is about to be sent.
    Attempt {
        /// Which batch.
        batch: BatchId,
        /// Where to.
        tp: TopicPartitionId,
        /// Its records.
        values: Arc<[Arc<str>]>,
        /// Its sequence numbers.
        stamp: Option<Stamp>,
        /// The timestamp of its records: the right time when it was made, in milliseconds.
        time_ms: i64,
    },
    /// What became of the latest attempt of a batch.
    Answer {
        /// Which batch.
        batch: BatchId,
        /// What the producer heard.
        outcome: Outcome,
    },
    /// A fetch was answered.
    Fetched {
        /// Who.
        client: u32,
        /// The moment before the request was sent.
        begun: usize,
        /// Its partitions.
        parts: Vec<Part>,
    },
    /// ListOffsets was answered.
    Listed {
        /// Who.
        client: u32,
        /// The moment before the request was sent.
        begun: usize,
        /// Which partition.
        tp: TopicPartitionId,
        /// Which end.
        end: End,
        /// Where it is.
        offset: i64,
    },
    /// Records below an offset are about to be deleted.
    Trimming {
        /// Where.
        tp: TopicPartitionId,
        /// The offset; -1: the high watermark.
        below: i64,
    },
    /// DeleteRecords was answered without an error.
    Trimmed {
        /// Who.
        client: u32,
        /// The moment before the request was sent.
        begun: usize,
        /// Where.
        tp: TopicPartitionId,
        /// The new log start.
        low: i64,
    },
    /// From here on the broker may delete old records of this topic by itself.
    Retained {
        /// Which partition.
        tp: TopicPartitionId,
        /// Only records that are older than this, in milliseconds; `None`: also others.
        keep_ms: Option<i64>,
    },
    /// A partition's topic is about to be deleted.
    Deleting {
        /// Which partition.
        tp: TopicPartitionId,
    },
    /// A group is about to commit an offset.
    Committing {
        /// Which group.
        group: u32,
        /// Where.
        tp: TopicPartitionId,
        /// What.
        offset: i64,
    },
    /// A commit was acknowledged.
    Committed {
        /// Which group.
        group: u32,
        /// Where.
        tp: TopicPartitionId,
        /// What.
        offset: i64,
    },
    /// A group's committed offset was read; -1: there is none.
    CommitRead {
        /// Which group.
        group: u32,
        /// The moment before the request was sent.
        begun: usize,
        /// Where.
        tp: TopicPartitionId,
        /// What.
        offset: i64,
    },
    /// In this run the broker has little memory for answers: a fetch may come back without records.
    Tight,
    /// A batch was sent for which the producer wants no answer.
    Silent {
        /// Which batch.
        batch: BatchId,
    },
    /// A fetch that had to wait was answered with records.
    Waited,
    /// An offset was asked for by time.
    Timed {
        /// The moment before the request was sent.
        begun: usize,
        /// Where.
        tp: TopicPartitionId,
        /// The time asked for, in milliseconds since the Unix epoch.
        time_ms: i64,
        /// The first record at or after it and its time; `None`: there is none.
        found: Option<(i64, i64)>,
    },
    /// Where a leader epoch ends was asked for, and answered.
    EpochEnd {
        /// The moment before the request was sent.
        begun: usize,
        /// Where.
        tp: TopicPartitionId,
        /// The epoch asked for.
        asked: i32,
        /// The newest epoch up to it that has records; -1: none.
        epoch: i32,
        /// Where that ends (exclusive); -1: none.
        end: i64,
    },
    /// Files of the stopped broker were damaged. Of these partitions (and, where one is no topic of the
    /// clients, of groups) acknowledged records may be lost without anything that could show it (E-J15).
    Damaged {
        /// What was done.
        what: String,
        /// Which partitions.
        excused: Vec<TopicPartitionId>,
    },
    /// All that a partition holds at the very end, read after a last restart without faults.
    Final {
        /// Which partition.
        tp: TopicPartitionId,
        /// What it holds, or the error.
        data: Result<Data, String>,
    },
    /// A client reached its aim after the faults healed.
    Done(String),
    /// A client did not, in the time it had.
    Stuck(String),
    /// Something that must never happen whatever the faults: a panic, an answer that is not one.
    Broken(String),
    /// For people only.
    Note(String),
}

/// An event with its moment in virtual time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Microseconds since the run began.
    pub at_us: u64,
    /// What.
    pub what: What,
}

/// The list of a run. Clones share it.
#[derive(Clone, Debug)]
pub struct Recorder {
    origin: Instant,
    clock: Clock,
    events: Arc<Mutex<Vec<Event>>>,
    decoded: Arc<Mutex<BTreeMap<Bytes, Values>>>,
}

/// The values of a batch's records, with their distances from the batch's base offset.
pub type Values = Arc<[(i64, Arc<str>)]>;

impl Recorder {
    /// An empty list; time begins now.
    pub fn new(clock: Clock) -> Self {
        let (events, decoded) = (Arc::default(), Arc::default());
        Self { origin: clock.now(), clock, events, decoded }
    }

    /// The present moment: the number of the next event.
    pub fn moment(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// The right time, in milliseconds since the Unix epoch, whatever the broker's clock shows.
    pub fn now_ms(&self) -> i64 {
        let since = self.clock.now().saturating_duration_since(self.origin).as_millis();
        crate::START_MS.saturating_add(i64::try_from(since).unwrap_or(i64::MAX))
    }

    /// What the very same bytes of a batch were found to hold before, or now by `decode`: clients read
    /// the same batches again and again.
    ///
    /// # Errors
    /// Those of `decode`, which are not remembered.
    pub fn decoded(
        &self,
        batch: &Bytes,
        decode: impl FnOnce() -> Result<Values, String>,
    ) -> Result<Values, String> {
        let mut known = self.decoded.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(values) = known.get(batch) {
            return Ok(Arc::clone(values));
        }
        let values = decode()?;
        known.insert(Bytes::copy_from_slice(batch), Arc::clone(&values));
        Ok(values)
    }

    /// Adds an event.
    pub fn push(&self, what: What) {
        let at = self.clock.now().saturating_duration_since(self.origin);
        let at_us = u64::try_from(at.as_micros()).unwrap_or(u64::MAX);
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(Event { at_us, what });
    }

    /// Adds a note.
    pub fn note(&self, text: impl Into<String>) {
        self.push(What::Note(text.into()));
    }

    /// All events so far.
    pub fn history(&self) -> Vec<Event> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// What clients met, and how often, as far as the events show it.
pub fn counts(history: &[Event]) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    let mut unknown = BTreeSet::new();
    for event in history {
        if let What::Answer { batch, outcome: Outcome::Unknown } = &event.what {
            unknown.insert(*batch);
        }
        let met = match &event.what {
            What::Trimmed { low, .. } if *low > 0 => "client deleted records",
            What::Answer { batch, outcome: Outcome::Acknowledged(_) }
                if unknown.contains(batch) =>
            {
                "client acknowledged after unknown"
            }
            What::Answer { outcome: Outcome::Refused(code), .. }
                if *code == ErrorCode::KafkaStorageError.code() =>
            {
                "client refused for want of storage"
            }
            What::Answer { outcome: Outcome::Unknown, .. } => "client outcome unknown",
            What::Waited => "client long poll answered",
            What::Committed { .. } => "client commit",
            What::Timed { .. } => "client offset by time",
            What::EpochEnd { .. } => "client end of a leader epoch",
            What::Silent { .. } => "client produce without an answer",
            What::Deleting { .. } => "client deletes a topic",
            What::Note(note) if note == "group snapshot" => "group snapshot",
            What::Note(note) if note == "left the group: 0" => "client left a group",
            What::Note(note) if note == "create partitions: Some(0)" => "client partitions created",
            _ => continue,
        };
        *counts.entry(met.to_owned()).or_default() += 1;
    }
    counts
}

/// A number that differs when any event of any moment differs (FNV-1a over their text).
pub fn fingerprint(history: &[Event]) -> u64 {
    let mut sink = Fnv(0xcbf2_9ce4_8422_2325);
    for event in history {
        // Writing to a number does not fail.
        let _ = write!(sink, "{event:?}");
    }
    sink.0
}

struct Fnv(u64);

impl Write for Fnv {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        for byte in text.bytes() {
            self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        }
        Ok(())
    }
}
