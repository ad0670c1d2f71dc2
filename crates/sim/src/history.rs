//! What happened in a run, as clients saw it: the only thing that checkers look at.
//!
//! Events stand in the order in which they happened (one thread, one list); the number of an event is
//! therefore a moment, and «before» means a smaller number. Two runs of one seed have equal lists.

use std::fmt::Write;
use std::sync::{Arc, Mutex, PoisonError};

use talos_common::{Clock, TopicPartitionId};
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
}

impl Recorder {
    /// An empty list; time begins now.
    pub fn new(clock: Clock) -> Self {
        Self { origin: clock.now(), clock, events: Arc::default() }
    }

    /// The present moment: the number of the next event.
    pub fn moment(&self) -> usize {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).len()
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
