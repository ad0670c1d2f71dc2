//! The checker against a healthy history, and against that history with one planted fault of each
//! kind: every fault must be found, by the rule that is there for it.

use crate::history::{Event, Id, Offset, expected_sum};

use super::{Violation, check};

fn id(writer: &str, number: i64) -> Id {
    (writer.to_owned(), number)
}

fn send(writer: &str, number: i64) -> Event {
    Event::Send { id: id(writer, number), partition: 0 }
}

fn ack(writer: &str, number: i64, offset: Offset) -> Event {
    Event::Ack { id: id(writer, number), partition: 0, offset }
}

fn nack(writer: &str, number: i64, code: i64) -> Event {
    Event::Nack { id: id(writer, number), code }
}

fn start(reader: &str, from: Offset) -> Event {
    Event::ReadStart { pass: (reader.to_owned(), 0), partition: 0, from }
}

fn read(reader: &str, offset: Offset, writer: &str, number: i64) -> Event {
    let id = id(writer, number);
    let sum = expected_sum(&id);
    Event::Read { pass: (reader.to_owned(), 0), partition: 0, offset, id, sum }
}

fn end(reader: &str, end: Offset) -> Event {
    Event::ReadEnd { pass: (reader.to_owned(), 0), partition: 0, end: Some(end) }
}

fn marks(low: Offset, high: Offset, since: usize) -> Event {
    Event::Marks { client: "watch".to_owned(), partition: 0, low, high, since }
}

fn commit(offset: Offset) -> Event {
    Event::Commit { group: "g".to_owned(), offset }
}

fn commit_ack(offset: Offset) -> Event {
    Event::CommitAck { group: "g".to_owned(), offset }
}

fn committed(offset: Offset) -> Event {
    Event::Committed { group: "g".to_owned(), offset }
}

/// Two writers, a kill while `p 1` and `i 1` are on their way (`p 1` is there twice afterwards),
/// a reader before and the last reader after it.
fn healthy() -> Vec<Event> {
    vec![
        Event::Producer { writer: "i".to_owned(), idempotent: true },
        Event::Producer { writer: "p".to_owned(), idempotent: false },
        send("i", 0),
        send("p", 0),
        ack("i", 0, 0),
        ack("p", 0, 1),
        marks(0, 2, 6),
        start("r", 0),
        read("r", 0, "i", 0),
        read("r", 1, "p", 0),
        end("r", 2),
        commit(1),
        commit_ack(1),
        send("p", 1),
        send("i", 1),
        Event::Kill,
        Event::Up,
        ack("p", 1, 3),
        ack("i", 1, 4),
        committed(1),
        send("i", 2),
        ack("i", 2, 5),
        marks(0, 6, 22),
        start("final", -1),
        read("final", 0, "i", 0),
        read("final", 1, "p", 0),
        read("final", 2, "p", 1),
        read("final", 3, "p", 1),
        read("final", 4, "i", 1),
        read("final", 5, "i", 2),
        end("final", 6),
    ]
}

/// Position of an event that must be there.
fn find(events: &[Event], wanted: &Event) -> usize {
    events.iter().position(|event| event == wanted).expect("the event is in the history")
}

fn replace(old: &Event, new: &[Event]) -> Vec<Event> {
    let mut events = healthy();
    let at = find(&events, old);
    events.splice(at..=at, new.iter().cloned());
    events
}

fn violations(events: &[Event]) -> Vec<Violation> {
    check(events).1
}

/// At least one violation is of the wanted kind.
#[track_caller]
fn caught(events: &[Event], kind: fn(&Violation) -> bool) {
    let found = violations(events);
    assert!(found.iter().any(kind), "not caught; found {found:?}");
}

#[test]
fn a_healthy_history_has_no_violations() {
    let (summary, found) = check(&healthy());
    assert_eq!(found, []);
    assert_eq!(summary.sent, 5);
    assert_eq!(summary.acknowledged, 5);
    assert_eq!(summary.excused_duplicates, 1);
    assert_eq!(summary.kills, 1);
    assert_eq!(summary.passes, 2);
}

#[test]
fn an_acknowledged_record_that_is_lost_at_the_end() {
    let mut events = healthy();
    events.retain(|e| *e != read("final", 5, "i", 2));
    let at = find(&events, &end("final", 6));
    events[at] = end("final", 5);
    caught(&events, |v| matches!(v, Violation::Lost { at: (0, 5), .. }));
}

#[test]
fn an_acknowledged_record_that_is_lost_in_the_middle() {
    let mut events = healthy();
    events.retain(|e| *e != read("final", 1, "p", 0));
    caught(&events, |v| matches!(v, Violation::Lost { at: (0, 1), .. }));
    caught(&events, |v| matches!(v, Violation::Vanished { at: (0, 1), .. }));
    caught(&events, |v| matches!(v, Violation::Hole { at: (0, 1), .. }));
}

#[test]
fn another_record_at_an_acknowledged_offset() {
    let events = replace(&read("final", 5, "i", 2), &[read("final", 5, "p", 0)]);
    caught(&events, |v| matches!(v, Violation::TwoValues { at: (0, 5), .. }));
}

#[test]
fn two_reads_that_differ() {
    let events = replace(&read("final", 2, "p", 1), &[read("final", 2, "p", 0)]);
    let events: Vec<_> = [&[start("s", 2), read("s", 2, "p", 1)], &events[..]].concat();
    caught(&events, |v| matches!(v, Violation::TwoValues { at: (0, 2), .. }));
}

#[test]
fn two_records_acknowledged_at_one_offset() {
    let events = replace(&ack("i", 2, 5), &[ack("i", 2, 4)]);
    caught(&events, |v| matches!(v, Violation::TwoValues { at: (0, 4), .. }));
}

#[test]
fn changed_bytes() {
    let good = read("final", 4, "i", 1);
    let Event::Read { pass, partition, offset, id, sum } = good.clone() else { unreachable!() };
    let bad = Event::Read { pass, partition, offset, id, sum: sum ^ 1 };
    caught(&replace(&good, &[bad]), |v| matches!(v, Violation::BadBytes { at: (0, 4), .. }));
}

#[test]
fn a_record_that_was_never_sent() {
    let events = replace(&read("final", 2, "p", 1), &[read("final", 2, "x", 9)]);
    caught(&events, |v| matches!(v, Violation::NeverSent { at: (0, 2), .. }));
}

#[test]
fn a_record_that_was_read_before_it_was_sent() {
    let events = replace(&end("r", 2), &[read("r", 2, "p", 1), end("r", 3)]);
    caught(&events, |v| matches!(v, Violation::NeverSent { at: (0, 2), .. }));
}

#[test]
fn a_record_in_another_partition() {
    let mut events = healthy();
    let at = find(&events, &send("i", 2));
    events[at] = Event::Send { id: id("i", 2), partition: 1 };
    caught(&events, |v| matches!(v, Violation::NeverSent { at: (0, 5), .. }));
}

#[test]
fn a_record_that_was_refused_for_certain() {
    let refused = replace(&ack("i", 2, 5), &[nack("i", 2, 10)]);
    caught(&refused, |v| matches!(v, Violation::Phantom { code: 10, .. }));
    // A timeout says nothing, and neither does a client that gave up.
    for unknown in [7, -192] {
        let events = replace(&ack("i", 2, 5), &[nack("i", 2, unknown)]);
        assert_eq!(violations(&events), []);
    }
}

#[test]
fn a_duplicate_of_an_idempotent_writer() {
    let twice = [read("final", 5, "i", 2), read("final", 6, "i", 2)];
    let mut events = replace(&read("final", 5, "i", 2), &twice);
    let at = find(&events, &end("final", 6));
    events[at] = end("final", 7);
    caught(&events, |v| matches!(v, Violation::Duplicate { second: (0, 6), .. }));
}

#[test]
fn a_duplicate_of_an_idempotent_writer_over_a_kill() {
    let events = replace(&read("final", 2, "p", 1), &[read("final", 2, "i", 1)]);
    caught(&events, |v| matches!(v, Violation::Duplicate { second: (0, 4), .. }));
}

#[test]
fn a_duplicate_of_a_record_that_was_not_on_its_way() {
    let events = replace(&read("final", 2, "p", 1), &[read("final", 2, "p", 0)]);
    caught(&events, |v| matches!(v, Violation::Duplicate { second: (0, 2), .. }));
}

#[test]
fn an_idempotent_writer_out_of_order() {
    let mut events = healthy();
    let swap = |events: &mut Vec<Event>, old: Event, new: Event| {
        let at = find(events, &old);
        events[at] = new;
    };
    swap(&mut events, ack("i", 1, 4), ack("i", 1, 5));
    swap(&mut events, ack("i", 2, 5), ack("i", 2, 4));
    swap(&mut events, read("final", 4, "i", 1), read("final", 4, "i", 2));
    swap(&mut events, read("final", 5, "i", 2), read("final", 5, "i", 1));
    caught(&events, |v| matches!(v, Violation::Order { at: (0, 5), after: 2, .. }));
}

#[test]
fn a_gap_of_an_idempotent_writer() {
    let mut events = replace(&read("final", 4, "i", 1), &[read("final", 4, "p", 2)]);
    let at = find(&events, &ack("i", 1, 4));
    events[at] = send("p", 2);
    let gap = |v: &Violation| matches!(v, Violation::Gap { id, .. } if id.1 == 1);
    caught(&events, gap);
    // What the writer was told has failed may be missing.
    events.insert(at, nack("i", 1, -192));
    assert!(!violations(&events).iter().any(gap));
}

#[test]
fn a_gap_at_the_very_start() {
    let mut events = replace(&read("final", 0, "i", 0), &[read("final", 0, "p", 2)]);
    events.retain(|e| ![ack("i", 0, 0), read("r", 0, "i", 0), start("r", 0)].contains(e));
    events.insert(2, send("p", 2));
    caught(&events, |v| matches!(v, Violation::Gap { id, .. } if id.1 == 0));
}

#[test]
fn a_read_record_that_vanished() {
    let mut events = replace(&end("r", 2), &[read("r", 2, "p", 1), read("r", 3, "p", 1)]);
    events.retain(|e| !matches!(e, Event::Ack { id, .. } if *id == ("p".to_owned(), 1)));
    events.retain(|e| *e != read("final", 3, "p", 1));
    caught(&events, |v| matches!(v, Violation::Vanished { at: (0, 3), .. }));
}

#[test]
fn a_hole_in_a_read() {
    let mut events = healthy();
    events.retain(|e| *e != read("r", 0, "i", 0));
    caught(&events, |v| matches!(v, Violation::Hole { at: (0, 0), .. }));
    let events = replace(&end("r", 2), &[end("r", 3)]);
    caught(&events, |v| matches!(v, Violation::Hole { at: (0, 2), .. }));
}

#[test]
fn a_stale_read() {
    let mut events = replace(&end("r", 2), &[end("r", 1)]);
    events.retain(|e| *e != read("r", 1, "p", 0));
    caught(&events, |v| matches!(v, Violation::StaleRead { acknowledged: 1, .. }));
}

#[test]
fn a_refused_position() {
    let refused = Event::OutOfRange { partition: 0, offset: 1 };
    caught(&replace(&end("r", 2), std::slice::from_ref(&refused)), |v| {
        matches!(v, Violation::Refused { at: (0, 1) })
    });
    let deleted = Event::Trim { partition: 0, before: 2 };
    assert_eq!(violations(&replace(&end("r", 2), &[deleted, refused])), []);
}

#[test]
fn a_stale_watermark() {
    let events = replace(&marks(0, 6, 22), &[marks(0, 5, 22)]);
    caught(&events, |v| matches!(v, Violation::StaleMark { acknowledged: 5, .. }));
    // Acknowledged after the question is no fault.
    assert_eq!(violations(&replace(&marks(0, 6, 22), &[marks(0, 5, 21)])), []);
}

#[test]
fn watermarks_that_go_back() {
    let back = replace(&marks(0, 6, 22), &[marks(0, 6, 22), marks(0, 5, 0)]);
    caught(&back, |v| matches!(v, Violation::WentBack { what: "high watermark", .. }));
    let trim = Event::Trim { partition: 0, before: 1 };
    let back = replace(&marks(0, 6, 22), &[trim, marks(1, 6, 0), marks(0, 6, 0)]);
    caught(&back, |v| matches!(v, Violation::WentBack { what: "log start", .. }));
}

#[test]
fn a_deletion_that_is_forgotten() {
    let trim = Event::Trim { partition: 0, before: 1 };
    let trimmed = Event::Trimmed { client: "watch".to_owned(), partition: 0, low: 1 };
    let events = replace(&marks(0, 6, 22), &[trim, trimmed, marks(0, 6, 0)]);
    caught(&events, |v| matches!(v, Violation::WentBack { what: "log start", .. }));
}

#[test]
fn more_deleted_than_asked() {
    caught(&replace(&marks(0, 6, 22), &[marks(1, 6, 0)]), |v| {
        matches!(v, Violation::TrimmedTooMuch { low: (0, 1), asked: 0 })
    });
}

#[test]
fn more_deleted_than_asked_seen_only_by_the_last_reader() {
    let mut events = healthy();
    events.retain(|e| *e != read("final", 0, "i", 0));
    caught(&events, |v| matches!(v, Violation::TrimmedTooMuch { low: (0, 1), asked: 0 }));
}

#[test]
fn a_committed_offset_that_is_lost() {
    for found in [0, -1] {
        let events = replace(&committed(1), &[committed(found)]);
        caught(&events, |v| matches!(v, Violation::CommitLost { acknowledged: 1, .. }));
    }
}

#[test]
fn a_committed_offset_that_was_never_asked_for() {
    let events = replace(&committed(1), &[committed(2)]);
    caught(&events, |v| matches!(v, Violation::CommitInvented { found: 2, asked: 1, .. }));
    // Asked for, outcome unknown: either is right.
    for found in [1, 2] {
        assert_eq!(violations(&replace(&committed(1), &[commit(2), committed(found)])), []);
    }
}

#[test]
fn a_history_that_proves_nothing() {
    caught(&[], |v| matches!(v, Violation::Incomplete { .. }));
    let mut events = healthy();
    events.pop();
    caught(&events, |v| matches!(v, Violation::Incomplete { .. }));
}
