//! What clients asked and learned while the broker was being killed: one event a line.
//!
//! Invariant: the order of events is the order in which one process learned them. A request is
//! noted before it is sent and an answer after it came, so "A before B" in the history means that
//! A's answer was there before B was asked.

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::Value;

/// Number of a partition.
pub type Partition = i64;
/// Index of a record in its partition.
pub type Offset = i64;
/// Which record: its writer, and its number among that writer's records.
pub type Id = (String, i64);

/// One pass of one reader over one partition.
pub type Pass = (String, i64);

/// One line of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A producer begins.
    Producer {
        /// Its name.
        writer: String,
        /// Whether it is idempotent.
        idempotent: bool,
    },
    /// A record is given to the producer.
    Send {
        /// Which record.
        id: Id,
        /// Where it shall go.
        partition: Partition,
    },
    /// The record is acknowledged.
    Ack {
        /// Which record.
        id: Id,
        /// Where it went.
        partition: Partition,
        /// The offset that was answered.
        offset: Offset,
    },
    /// The record has failed, or its outcome is unknown.
    Nack {
        /// Which record.
        id: Id,
        /// Kafka's error number; negative when the client gave up by itself.
        code: i64,
    },
    /// A reader begins to read.
    ReadStart {
        /// Which pass.
        pass: Pass,
        /// What it reads.
        partition: Partition,
        /// From where; negative: from the log start.
        from: Offset,
    },
    /// A record was read.
    Read {
        /// Which pass.
        pass: Pass,
        /// Where.
        partition: Partition,
        /// Where in the partition.
        offset: Offset,
        /// Which record it says it is.
        id: Id,
        /// CRC-32 of all its bytes.
        sum: u32,
    },
    /// A read position was refused as out of range.
    OutOfRange {
        /// Where.
        partition: Partition,
        /// The position.
        offset: Offset,
    },
    /// A reader ends a pass.
    ReadEnd {
        /// Which pass.
        pass: Pass,
        /// What it read.
        partition: Partition,
        /// The end of the partition, exclusive, if it came there.
        end: Option<Offset>,
    },
    /// Log start and high watermark were answered.
    Marks {
        /// Who asked.
        client: String,
        /// Of what.
        partition: Partition,
        /// Log start.
        low: Offset,
        /// High watermark.
        high: Offset,
        /// How many events there were when it was asked.
        since: usize,
    },
    /// Records below an offset are asked to be deleted.
    Trim {
        /// Where.
        partition: Partition,
        /// The first offset to keep.
        before: Offset,
    },
    /// A deletion was answered.
    Trimmed {
        /// Who asked.
        client: String,
        /// Where.
        partition: Partition,
        /// The new log start.
        low: Offset,
    },
    /// A group offset is being committed.
    Commit {
        /// The group.
        group: String,
        /// The offset.
        offset: Offset,
    },
    /// The commit was acknowledged.
    CommitAck {
        /// The group.
        group: String,
        /// The offset.
        offset: Offset,
    },
    /// The group's committed offset was answered; negative: none.
    Committed {
        /// The group.
        group: String,
        /// The offset.
        offset: Offset,
    },
    /// The broker is about to be killed.
    Kill,
    /// The broker says that it is ready again.
    Up,
}

/// Reads a history file.
///
/// # Errors
/// When it cannot be read, or a line is not an event.
pub fn read(path: &Path) -> Result<Vec<Event>> {
    let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
    let mut events = Vec::new();
    for (at, line) in BufReader::new(file).lines().enumerate() {
        let line = line?;
        let event = parse(&line).with_context(|| format!("line {} is no event: {line}", at + 1))?;
        events.push(event);
    }
    Ok(events)
}

/// Parses one line; `None` when it is no event.
pub fn parse(line: &str) -> Option<Event> {
    let value: Value = serde_json::from_str(line).ok()?;
    let text = |name: &str| value[name].as_str().map(str::to_owned);
    let number = |name: &str| value[name].as_i64();
    let id = || Some((text("w")?, number("n")?));
    let pass = || Some((text("r")?, number("i")?));
    Some(match value["e"].as_str()? {
        "producer" => {
            Event::Producer { writer: text("w")?, idempotent: value["idempotent"].as_bool()? }
        }
        "send" => Event::Send { id: id()?, partition: number("p")? },
        "ack" => Event::Ack { id: id()?, partition: number("p")?, offset: number("o")? },
        "nack" => Event::Nack { id: id()?, code: number("code")? },
        "read_start" => {
            Event::ReadStart { pass: pass()?, partition: number("p")?, from: number("o")? }
        }
        "rec" => Event::Read {
            pass: pass()?,
            partition: number("p")?,
            offset: number("o")?,
            id: id()?,
            sum: u32::try_from(number("sum")?).ok()?,
        },
        "out_of_range" => Event::OutOfRange { partition: number("p")?, offset: number("o")? },
        "read_end" => Event::ReadEnd {
            pass: pass()?,
            partition: number("p")?,
            end: Some(number("o")?).filter(|end| *end >= 0),
        },
        "marks" => Event::Marks {
            client: text("c")?,
            partition: number("p")?,
            low: number("low")?,
            high: number("high")?,
            since: usize::try_from(number("since")?).ok()?,
        },
        "trim" => Event::Trim { partition: number("p")?, before: number("o")? },
        "trimmed" => {
            Event::Trimmed { client: text("c")?, partition: number("p")?, low: number("o")? }
        }
        "commit" => Event::Commit { group: text("g")?, offset: number("o")? },
        "commit_ack" => Event::CommitAck { group: text("g")?, offset: number("o")? },
        "committed" => Event::Committed { group: text("g")?, offset: number("o")? },
        "kill" => Event::Kill,
        "up" => Event::Up,
        _ => return None,
    })
}

/// The bytes that a record must have: its name, then a pattern whose length depends on its number.
pub fn payload(id: &Id) -> Vec<u8> {
    let (writer, number) = id;
    let size = if number % 97 == 0 { 20_000 } else { number * 37 % 400 };
    let mut bytes = format!("{writer}:{number}:").into_bytes();
    bytes.extend((0..size).map(|j| (number * 131 + (j % 256) * 7).to_le_bytes()[0]));
    bytes
}

/// Which record `bytes` say that they are.
pub fn name_of(bytes: &[u8]) -> Option<Id> {
    let mut parts = bytes.splitn(3, |byte| *byte == b':');
    let mut next = || std::str::from_utf8(parts.next()?).ok();
    Some((next()?.to_owned(), next()?.parse().ok()?))
}

/// CRC-32 (the one of zlib) of the bytes that a record must have.
pub fn expected_sum(id: &Id) -> u32 {
    crc32(&payload(id))
}

/// CRC-32, the one of zlib.
pub fn crc32(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |crc, byte| {
        let [low, ..] = crc.to_le_bytes();
        (crc >> 8) ^ CRC_TABLE[usize::from(low ^ byte)]
    })
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < table.len() {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            crc = if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_events() {
        let id = ("p0".to_owned(), 7);
        assert_eq!(
            parse(r#"{"e":"ack","w":"p0","n":7,"p":1,"o":40}"#),
            Some(Event::Ack { id: id.clone(), partition: 1, offset: 40 })
        );
        let end = parse(r#"{"e":"read_end","r":"r0","i":2,"p":1,"o":-1}"#);
        assert_eq!(
            end,
            Some(Event::ReadEnd { pass: ("r0".to_owned(), 2), partition: 1, end: None })
        );
        assert_eq!(parse(r#"{"e":"ack","w":"p0","n":7}"#), None);
        assert_eq!(parse("{\"e\":\"ack\",\"w\""), None);
    }

    #[test]
    fn sums_are_those_of_zlib() {
        // python3 -c 'import zlib; print(zlib.crc32(payload("p0", 7)))' with crash_load.py's payload
        assert_eq!(expected_sum(&("p0".to_owned(), 7)), SUM_P0_7);
        assert_eq!(expected_sum(&("i1".to_owned(), 97)), SUM_I1_97);
    }

    #[test]
    fn a_payload_names_its_record() {
        let id = ("w-3".to_owned(), 97);
        assert_eq!(name_of(&payload(&id)), Some(id));
        assert_eq!(name_of(b"nothing"), None);
    }

    const SUM_P0_7: u32 = 1_906_535_808;
    const SUM_I1_97: u32 = 1_023_317_571;
}
