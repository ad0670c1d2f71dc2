//! Rules about what was written: kept, once, in order, and nothing else.

use std::collections::BTreeMap;

use crate::history::{Id, Offset, Partition, expected_sum};

use super::Violation;
use super::facts::{Facts, Outcome};

/// Errors after which the record may be there all the same: REQUEST_TIMED_OUT,
/// NOT_ENOUGH_REPLICAS_AFTER_APPEND, and UNKNOWN_SERVER_ERROR, which says nothing.
const UNKNOWN_OUTCOMES: [i64; 3] = [7, 20, -1];

/// Every place that was ever seen, with the record there.
type Content = BTreeMap<(Partition, Offset), Id>;

/// Runs all rules; gives the number of duplicates that have an excuse.
pub(super) fn check(facts: &Facts, found: &mut Vec<Violation>) -> usize {
    complete(facts, found);
    acknowledged_are_there(facts, found);
    let content = one_value(facts, found);
    reads_are_what_was_sent(facts, found);
    vanished(facts, found);
    idempotent_order(facts, &content, found);
    gaps(facts, found);
    duplicates(facts, &content, found)
}

fn complete(facts: &Facts, found: &mut Vec<Violation>) {
    let mut partitions = 0;
    for partition in facts.partitions() {
        partitions += 1;
        let Some(last) = facts.last.get(&partition).filter(|last| last.end.is_some()) else {
            let reason = format!("partition {partition} was not read to its end at the end");
            found.push(Violation::Incomplete { reason });
            continue;
        };
        let asked = facts.trims.get(&partition).copied().unwrap_or(0);
        if last.first() > asked {
            found.push(Violation::TrimmedTooMuch { low: (partition, last.first()), asked });
        }
    }
    if partitions == 0 {
        found.push(Violation::Incomplete { reason: "nothing was acknowledged".to_owned() });
    }
}

fn acknowledged_are_there(facts: &Facts, found: &mut Vec<Violation>) {
    for (id, sent) in &facts.sent {
        let Outcome::Acked(partition, offset) = sent.outcome else { continue };
        let Some(last) = facts.last.get(&partition) else { continue };
        // What lies below the log start was deleted; whether rightly is another rule's matter.
        if offset >= last.first() && !last.records.contains_key(&offset) {
            found.push(Violation::Lost { id: id.clone(), at: (partition, offset) });
        }
    }
}

/// Compares all that was ever said about a place: by acknowledgements and by reads.
fn one_value(facts: &Facts, found: &mut Vec<Violation>) -> Content {
    let mut content = Content::new();
    let acks = facts.sent.iter().filter_map(|(id, sent)| match sent.outcome {
        Outcome::Acked(partition, offset) => Some(((partition, offset), id)),
        _ => None,
    });
    let reads = facts.reads.iter().map(|read| (read.at, &read.id));
    for (at, id) in acks.chain(reads) {
        let first = content.entry(at).or_insert_with(|| id.clone());
        if first != id {
            let (first, second) = (first.clone(), id.clone());
            found.push(Violation::TwoValues { at, first, second });
        }
    }
    content
}

fn reads_are_what_was_sent(facts: &Facts, found: &mut Vec<Violation>) {
    let mut sums: BTreeMap<&Id, u32> = BTreeMap::new();
    for read in &facts.reads {
        let (at, id) = (read.at, read.id.clone());
        let Some(sent) = facts.sent.get(&read.id) else {
            found.push(Violation::NeverSent { at, id });
            continue;
        };
        if sent.began > read.index || sent.partition != at.0 {
            found.push(Violation::NeverSent { at, id: id.clone() });
        }
        if *sums.entry(&read.id).or_insert_with(|| expected_sum(&read.id)) != read.sum {
            found.push(Violation::BadBytes { at, id: id.clone() });
        }
        if let Outcome::Nacked(code) = sent.outcome {
            // A negative number is the client's own: it gave up, and knows nothing.
            let certain = code > 0 && !UNKNOWN_OUTCOMES.contains(&code);
            if certain && !facts.was_cut(sent) {
                found.push(Violation::Phantom { at, id, code });
            }
        }
    }
}

fn vanished(facts: &Facts, found: &mut Vec<Violation>) {
    for read in &facts.reads {
        let (partition, offset) = read.at;
        let Some(last) = facts.last.get(&partition) else { continue };
        if offset >= last.first() && !last.records.contains_key(&offset) {
            found.push(Violation::Vanished { id: read.id.clone(), at: read.at });
        }
    }
}

fn idempotent_order(facts: &Facts, content: &Content, found: &mut Vec<Violation>) {
    let mut before: BTreeMap<(Partition, &str), i64> = BTreeMap::new();
    for (at, id) in content {
        if !facts.idempotent.contains(&id.0) {
            continue;
        }
        if let Some(after) = before.insert((at.0, &id.0), id.1) {
            // Twice the same is a duplicate, which has its own rule.
            if after > id.1 {
                found.push(Violation::Order { at: *at, id: id.clone(), after });
            }
        }
    }
}

/// Below the newest record of an idempotent writer in a partition, all its records are there,
/// except those it was told have failed, and those that were deleted.
fn gaps(facts: &Facts, found: &mut Vec<Violation>) {
    let mut there: BTreeMap<(Partition, &str), Vec<i64>> = BTreeMap::new();
    for (partition, last) in &facts.last {
        for id in last.records.values() {
            there.entry((*partition, &id.0)).or_default().push(id.1);
        }
    }
    for numbers in there.values_mut() {
        numbers.sort_unstable();
    }
    for (id, sent) in &facts.sent {
        if !facts.idempotent.contains(&id.0) || matches!(sent.outcome, Outcome::Nacked(_)) {
            continue;
        }
        let Some(numbers) = there.get(&(sent.partition, id.0.as_str())) else { continue };
        let (Some(oldest), Some(newest)) = (numbers.first(), numbers.last()) else { continue };
        let deleted = facts.trims.contains_key(&sent.partition) && id.1 < *oldest;
        if id.1 < *newest && !deleted && numbers.binary_search(&id.1).is_err() {
            found.push(Violation::Gap { id: id.clone(), partition: sent.partition });
        }
    }
}

fn duplicates(facts: &Facts, content: &Content, found: &mut Vec<Violation>) -> usize {
    let mut places: BTreeMap<&Id, (Partition, Offset)> = BTreeMap::new();
    let mut excused = 0;
    for (at, id) in content {
        let Some(first) = places.insert(id, *at) else { continue };
        let cut = facts.sent.get(id).is_some_and(|sent| facts.was_cut(sent));
        if cut && !facts.idempotent.contains(&id.0) {
            excused += 1;
        } else {
            found.push(Violation::Duplicate { id: id.clone(), first, second: *at });
        }
    }
    excused
}
