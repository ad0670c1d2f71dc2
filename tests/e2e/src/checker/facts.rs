//! The history, indexed by what the rules ask for. Positions in the history are event indexes.

use std::collections::{BTreeMap, BTreeSet};

use crate::history::{Event, Id, Offset, Partition};

use super::{FINAL, Summary};

/// How the sending of a record ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It has not, in this history.
    Open,
    /// Acknowledged at a place.
    Acked(Partition, Offset),
    /// Failed with an error number.
    Nacked(i64),
}

/// One record that was sent.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    pub(super) partition: Partition,
    pub(super) began: usize,
    /// Index of the outcome; the end of the history while it is open.
    pub(super) ended: usize,
    pub(super) outcome: Outcome,
}

/// One record that was read.
#[derive(Clone, Debug)]
pub(super) struct Read {
    pub(super) index: usize,
    pub(super) at: (Partition, Offset),
    pub(super) id: Id,
    pub(super) sum: u32,
}

/// What the last reader found in a partition.
#[derive(Clone, Debug, Default)]
pub(super) struct Last {
    pub(super) records: BTreeMap<Offset, Id>,
    /// End of the partition, exclusive; `None` when the reader did not come there.
    pub(super) end: Option<Offset>,
}

impl Last {
    /// The first offset that is there.
    pub(super) fn first(&self) -> Offset {
        self.records.keys().next().copied().or(self.end).unwrap_or(0)
    }
}

/// The index.
pub(super) struct Facts {
    pub(super) sent: BTreeMap<Id, Sent>,
    pub(super) idempotent: BTreeSet<String>,
    pub(super) reads: Vec<Read>,
    pub(super) last: BTreeMap<Partition, Last>,
    /// Per partition: index of an acknowledgement, and the highest offset acknowledged by then.
    acked: BTreeMap<Partition, Vec<(usize, Offset)>>,
    /// Per partition: the most that was ever asked to be deleted.
    pub(super) trims: BTreeMap<Partition, Offset>,
    /// From the kill to the broker being ready again; a later one may begin in the same place.
    outages: Vec<(usize, usize)>,
}

impl Facts {
    pub(super) fn gather(events: &[Event]) -> Self {
        let mut facts = Self {
            sent: BTreeMap::new(),
            idempotent: BTreeSet::new(),
            reads: Vec::new(),
            last: BTreeMap::new(),
            acked: BTreeMap::new(),
            trims: BTreeMap::new(),
            outages: Vec::new(),
        };
        for (index, event) in events.iter().enumerate() {
            facts.add(index, events.len(), event);
        }
        facts
    }

    fn add(&mut self, index: usize, end: usize, event: &Event) {
        match event {
            Event::Producer { writer, idempotent: true } => {
                self.idempotent.insert(writer.clone());
            }
            Event::Send { id, partition } => {
                let sent = Sent {
                    partition: *partition,
                    began: index,
                    ended: end,
                    outcome: Outcome::Open,
                };
                self.sent.insert(id.clone(), sent);
            }
            Event::Ack { id, partition, offset } => {
                self.outcome(id, index, Outcome::Acked(*partition, *offset));
                let acked = self.acked.entry(*partition).or_default();
                let highest = acked.last().map_or(*offset, |(_, before)| *offset.max(before));
                acked.push((index, highest));
            }
            Event::Nack { id, code } => self.outcome(id, index, Outcome::Nacked(*code)),
            Event::Read { pass, partition, offset, id, sum } => {
                let at = (*partition, *offset);
                if pass.0 == FINAL {
                    let last = self.last.entry(*partition).or_default();
                    last.records.insert(*offset, id.clone());
                }
                self.reads.push(Read { index, at, id: id.clone(), sum: *sum });
            }
            Event::ReadEnd { pass, partition, end } if pass.0 == FINAL => {
                self.last.entry(*partition).or_default().end = *end;
            }
            Event::Trim { partition, before } => {
                let asked = self.trims.entry(*partition).or_default();
                *asked = (*asked).max(*before);
            }
            Event::Kill => self.outages.push((index, end)),
            Event::Up => {
                if let Some(outage) = self.outages.last_mut() {
                    outage.1 = index;
                }
            }
            _ => {}
        }
    }

    fn outcome(&mut self, id: &Id, index: usize, outcome: Outcome) {
        // An outcome of a record that was never sent shows as a read or ack without a send.
        if let Some(sent) = self.sent.get_mut(id) {
            sent.ended = index;
            sent.outcome = outcome;
        }
    }

    /// Whether a record was on its way at some moment in which the broker was not there.
    pub(super) fn was_cut(&self, sent: &Sent) -> bool {
        self.outages.iter().any(|(down, up)| sent.began <= *up && *down <= sent.ended)
    }

    /// The highest offset of a partition that was acknowledged before event `index`.
    pub(super) fn acked_before(&self, partition: Partition, index: usize) -> Option<Offset> {
        let acked = self.acked.get(&partition)?;
        let count = acked.partition_point(|(at, _)| *at < index);
        acked.get(count.checked_sub(1)?).map(|(_, highest)| *highest)
    }

    /// The partitions in which something was acknowledged.
    pub(super) fn partitions(&self) -> impl Iterator<Item = Partition> {
        self.acked.keys().copied()
    }

    pub(super) fn summary(&self, events: &[Event]) -> Summary {
        let count = |wanted: fn(&Event) -> bool| events.iter().filter(|e| wanted(e)).count();
        Summary {
            sent: self.sent.len(),
            acknowledged: count(|e| matches!(e, Event::Ack { .. })),
            failed: count(|e| matches!(e, Event::Nack { .. })),
            read: self.reads.len(),
            excused_duplicates: 0,
            passes: count(|e| matches!(e, Event::ReadEnd { end: Some(_), .. })),
            marks: count(|e| matches!(e, Event::Marks { .. })),
            kills: self.outages.len(),
        }
    }
}
