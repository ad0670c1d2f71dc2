//! The history that clients of one broker write, and small clients that write it.
//!
//! Invariant: as in [`history`](crate::history), a request is noted before it is sent and an answer
//! after it came.

use std::sync::{Mutex, PoisonError};

use anyhow::{Result, bail, ensure};

use crate::checker::{self, FINAL};
use crate::history::{Event, Id, crc32, name_of, payload};
use crate::wire::{Produced, Wire};

/// What clients learned so far. The partition of the history is that of the topic.
#[derive(Debug)]
pub struct Story {
    topic: String,
    partitions: i32,
    events: Mutex<Vec<Event>>,
}

impl Story {
    /// An empty history of a topic.
    pub fn new(topic: &str, partitions: i32) -> Self {
        Self { topic: topic.to_owned(), partitions, events: Mutex::default() }
    }

    /// The topic's name.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    fn add(&self, event: Event) {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).push(event);
    }

    /// Creates the topic.
    ///
    /// # Errors
    /// When that is refused.
    pub fn create(&self, wire: &mut Wire) -> Result<()> {
        let (code, message) = wire.create_topic(&self.topic, self.partitions)?;
        ensure!(code == 0, "the topic could not be created: {code} {message}");
        Ok(())
    }

    /// Notes that the broker is going to end, and that it is back.
    pub fn outage<T>(&self, outage: impl FnOnce() -> Result<T>) -> Result<T> {
        self.add(Event::Kill);
        let ended = outage();
        self.add(Event::Up);
        ended
    }

    /// Sends one batch of `count` records of `writer` from number `first` on, and notes the outcome.
    ///
    /// # Errors
    /// When there was no answer; the outcome is noted as unknown.
    pub fn produce(
        &self,
        wire: &mut Wire,
        partition: i32,
        writer: &str,
        numbers: std::ops::Range<i64>,
    ) -> Result<Produced> {
        self.send(wire, partition, writer, numbers.clone())?;
        self.answered(wire, partition, writer, numbers)
    }

    /// The first half of [`Self::produce`].
    ///
    /// # Errors
    /// As there.
    pub fn send(
        &self,
        wire: &mut Wire,
        partition: i32,
        writer: &str,
        numbers: std::ops::Range<i64>,
    ) -> Result<()> {
        let ids: Vec<Id> = numbers.map(|number| (writer.to_owned(), number)).collect();
        let values: Vec<Vec<u8>> = ids.iter().map(payload).collect();
        for id in &ids {
            self.add(Event::Send { id: id.clone(), partition: partition.into() });
        }
        let sent = wire.send_batch(&self.topic, partition, values.iter().map(Vec::as_slice));
        if sent.is_err() {
            self.unknown(ids);
        }
        sent
    }

    /// The second half of [`Self::produce`].
    ///
    /// # Errors
    /// As there.
    pub fn answered(
        &self,
        wire: &mut Wire,
        partition: i32,
        writer: &str,
        numbers: std::ops::Range<i64>,
    ) -> Result<Produced> {
        let ids: Vec<Id> = numbers.map(|number| (writer.to_owned(), number)).collect();
        let answer = wire.batch_answer();
        match &answer {
            Ok(Produced { code: 0, base_offset, .. }) => {
                for (offset, id) in (*base_offset..).zip(ids) {
                    self.add(Event::Ack { id, partition: partition.into(), offset });
                }
            }
            Ok(Produced { code, .. }) => {
                for id in ids {
                    self.add(Event::Nack { id, code: (*code).into() });
                }
            }
            Err(_) => self.unknown(ids),
        }
        answer
    }

    fn unknown(&self, ids: Vec<Id>) {
        ids.into_iter().for_each(|id| self.add(Event::Nack { id, code: -1 }));
    }

    /// Reads every partition from its start to its end; gives the number of records.
    ///
    /// # Errors
    /// When a fetch is refused.
    pub fn read(&self, wire: &mut Wire, reader: &str, round: i64) -> Result<usize> {
        let mut count = 0;
        for partition in 0..self.partitions {
            let pass = (reader.to_owned(), round);
            let at = i64::from(partition);
            self.add(Event::ReadStart { pass: pass.clone(), partition: at, from: 0 });
            let mut next = 0;
            let end = loop {
                let fetched = wire.fetch(&self.topic, partition, next)?;
                ensure!(fetched.code == 0, "fetch at {next}: error {}", fetched.code);
                if fetched.records.is_empty() {
                    ensure!(next >= fetched.high, "no records at {next} below {}", fetched.high);
                    break fetched.high;
                }
                for (offset, value) in &fetched.records {
                    let id = name_of(value).unwrap_or_default();
                    let (pass, sum) = (pass.clone(), crc32(value));
                    self.add(Event::Read { pass, partition: at, offset: *offset, id, sum });
                    next = offset + 1;
                }
                count += fetched.records.len();
            };
            self.add(Event::ReadEnd { pass, partition: at, end: Some(end) });
        }
        Ok(count)
    }

    /// Reads everything a last time and judges the history.
    ///
    /// # Errors
    /// When something acknowledged is not there, or anything else is not as promised.
    pub fn judge(&self, wire: &mut Wire) -> Result<checker::Summary> {
        self.read(wire, FINAL, 0)?;
        let events = self.events.lock().unwrap_or_else(PoisonError::into_inner);
        let (summary, violations) = checker::check(&events);
        if violations.is_empty() {
            return Ok(summary);
        }
        let shown: Vec<_> = violations.iter().take(20).map(|it| format!("  {it:?}")).collect();
        bail!("{} violations, the first ones:\n{}", violations.len(), shown.join("\n"))
    }
}
