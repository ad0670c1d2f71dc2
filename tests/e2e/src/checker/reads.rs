//! Rules about what was answered: fresh, without holes, and never going back.

use std::collections::BTreeMap;

use crate::history::{Event, Offset, Partition, Pass};

use super::Violation;
use super::facts::Facts;

/// A pass that is under way.
struct Running {
    began: usize,
    next: Option<Offset>,
}

/// Runs all rules, in one walk through the history.
pub(super) fn check(facts: &Facts, events: &[Event], found: &mut Vec<Violation>) {
    let mut walk = Walk::new(facts, found);
    for (index, event) in events.iter().enumerate() {
        walk.step(index, event);
    }
}

struct Walk<'a> {
    facts: &'a Facts,
    found: &'a mut Vec<Violation>,
    passes: BTreeMap<Pass, Running>,
    /// Log start and high watermark that each client saw last.
    marks: BTreeMap<(String, Partition), (Offset, Offset)>,
    /// Per partition: the most that was asked to be deleted so far.
    asked: BTreeMap<Partition, Offset>,
    /// Per group: the highest offset asked for, and the last one acknowledged.
    commits: BTreeMap<String, (Offset, Offset)>,
}

impl<'a> Walk<'a> {
    fn new(facts: &'a Facts, found: &'a mut Vec<Violation>) -> Self {
        Self {
            facts,
            found,
            passes: BTreeMap::new(),
            marks: BTreeMap::new(),
            asked: BTreeMap::new(),
            commits: BTreeMap::new(),
        }
    }

    fn step(&mut self, index: usize, event: &Event) {
        match event {
            Event::ReadStart { pass, from, .. } => {
                let next = Some(*from).filter(|from| *from >= 0);
                self.passes.insert(pass.clone(), Running { began: index, next });
            }
            Event::Read { pass, partition, offset, .. } => self.read(pass, *partition, *offset),
            Event::ReadEnd { pass, partition, end } => self.read_end(pass, *partition, *end),
            Event::OutOfRange { partition, offset } => {
                let deleted = self.asked.get(partition).copied().unwrap_or(0);
                let acked = self.facts.acked_before(*partition, index).unwrap_or(0);
                if *offset >= deleted && *offset <= acked {
                    self.found.push(Violation::Refused { at: (*partition, *offset) });
                }
            }
            Event::Marks { client, partition, low, high, since } => {
                self.low(client, *partition, *low);
                self.high(client, *partition, *high, *since);
            }
            Event::Trim { partition, before } => {
                let asked = self.asked.entry(*partition).or_default();
                *asked = (*asked).max(*before);
            }
            Event::Trimmed { client, partition, low } => self.low(client, *partition, *low),
            Event::Commit { group, offset } => {
                let (asked, _) = self.commits.entry(group.clone()).or_insert((-1, -1));
                *asked = (*asked).max(*offset);
            }
            Event::CommitAck { group, offset } => {
                self.commits.entry(group.clone()).or_insert((-1, -1)).1 = *offset;
            }
            Event::Committed { group, offset } => self.committed(group, *offset),
            _ => {}
        }
    }

    fn read(&mut self, pass: &Pass, partition: Partition, offset: Offset) {
        let Some(running) = self.passes.get_mut(pass) else { return };
        if running.next.is_some_and(|next| next != offset) {
            let at = (partition, running.next.unwrap_or(offset));
            self.found.push(Violation::Hole { pass: pass.clone(), at });
        }
        running.next = Some(offset + 1);
    }

    fn read_end(&mut self, pass: &Pass, partition: Partition, end: Option<Offset>) {
        let Some(running) = self.passes.remove(pass) else { return };
        let Some(end) = end else { return };
        if running.next.is_some_and(|next| next < end) {
            let at = (partition, running.next.unwrap_or(end));
            self.found.push(Violation::Hole { pass: pass.clone(), at });
        }
        if let Some(acknowledged) = self.facts.acked_before(partition, running.began)
            && acknowledged >= end
        {
            let end = (partition, end);
            self.found.push(Violation::StaleRead { pass: pass.clone(), end, acknowledged });
        }
    }

    fn low(&mut self, client: &str, partition: Partition, low: Offset) {
        let asked = self.asked.get(&partition).copied().unwrap_or(0);
        if low > asked {
            self.found.push(Violation::TrimmedTooMuch { low: (partition, low), asked });
        }
        let seen = self.marks.entry((client.to_owned(), partition)).or_insert((0, 0));
        if low < seen.0 {
            let (at, before) = ((partition, low), seen.0);
            let client = client.to_owned();
            self.found.push(Violation::WentBack { client, what: "log start", at, before });
        }
        seen.0 = low;
    }

    fn high(&mut self, client: &str, partition: Partition, high: Offset, since: usize) {
        if let Some(acknowledged) = self.facts.acked_before(partition, since)
            && acknowledged >= high
        {
            let (client, high) = (client.to_owned(), (partition, high));
            self.found.push(Violation::StaleMark { client, high, acknowledged });
        }
        let seen = self.marks.entry((client.to_owned(), partition)).or_insert((0, 0));
        if high < seen.1 {
            let (at, before) = ((partition, high), seen.1);
            let client = client.to_owned();
            self.found.push(Violation::WentBack { client, what: "high watermark", at, before });
        }
        seen.1 = high;
    }

    fn committed(&mut self, group: &str, found: Offset) {
        let (asked, acknowledged) = self.commits.get(group).copied().unwrap_or((-1, -1));
        let group = group.to_owned();
        if found < acknowledged {
            self.found.push(Violation::CommitLost { group, acknowledged, found });
        } else if found > asked {
            self.found.push(Violation::CommitInvented { group, found, asked });
        }
    }
}
