//! The rows of the table: what work is given, and how much of it.

/// Records a second that a fast broker takes here, to turn seconds into counts.
const EXPECTED_100: u64 = 300_000;
/// The same for records of 1 KiB.
const EXPECTED_1K: u64 = 60_000;
/// One-at-a-time round trips that a second surely holds.
const EXPECTED_ROUND_TRIPS: u64 = 400;

/// One kind of work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    /// As fast as it goes, by so many producer processes.
    Produce {
        /// Bytes of a record.
        size: u64,
        /// Processes.
        producers: u64,
    },
    /// Reads back, as fast as it goes, what one producer wrote.
    Consume {
        /// Bytes of a record.
        size: u64,
    },
    /// A fixed rate of 1 KiB records, each sent at once.
    Rate {
        /// Records a second.
        rate: u64,
    },
    /// One record at a time, from produce to consume.
    EndToEnd,
    /// 100-byte records round robin over a thousand partitions, each sent at once.
    ManyPartitions {
        /// Records a second that are asked for.
        rate: u64,
    },
}

/// One row of the table.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Row {
    /// Name on the command line.
    pub(crate) id: &'static str,
    /// Name in the table.
    pub(crate) title: &'static str,
    /// What is done.
    pub(crate) work: Work,
}

/// All rows, in the order of the table.
pub(crate) const ROWS: &[Row] = &[
    row("produce-100-1", "produce 100 B, 1 producer", Work::Produce { size: 100, producers: 1 }),
    row("consume-100", "consume 100 B", Work::Consume { size: 100 }),
    row("produce-100-4", "produce 100 B, 4 producers", Work::Produce { size: 100, producers: 4 }),
    row("produce-1k-1", "produce 1 KiB, 1 producer", Work::Produce { size: 1024, producers: 1 }),
    row("consume-1k", "consume 1 KiB", Work::Consume { size: 1024 }),
    row("produce-1k-4", "produce 1 KiB, 4 producers", Work::Produce { size: 1024, producers: 4 }),
    row("rate-2k", "fixed 2,000/s of 1 KiB", Work::Rate { rate: 2_000 }),
    row("rate-20k", "fixed 20,000/s of 1 KiB", Work::Rate { rate: 20_000 }),
    row("end-to-end", "end to end, one at a time", Work::EndToEnd),
    row(
        "partitions-1000",
        "1,000 partitions round robin, 100 B, 10,000/s asked",
        Work::ManyPartitions { rate: 10_000 },
    ),
];

const fn row(id: &'static str, title: &'static str, work: Work) -> Row {
    Row { id, title, work }
}

/// The row of this name.
pub(crate) fn named(id: &str) -> Option<Row> {
    ROWS.iter().find(|row| row.id == id).copied()
}

impl Work {
    /// Bytes of a record's value.
    pub(crate) fn size(self) -> u64 {
        match self {
            Self::Produce { size, .. } | Self::Consume { size } => size,
            Self::Rate { .. } => 1024,
            Self::EndToEnd | Self::ManyPartitions { .. } => 100,
        }
    }

    /// Records for a measurement of about `seconds`.
    pub(crate) fn records(self, seconds: u64) -> u64 {
        let a_second = match self {
            Self::Produce { .. } | Self::Consume { .. } if self.size() == 100 => EXPECTED_100,
            Self::Produce { .. } | Self::Consume { .. } => EXPECTED_1K,
            Self::Rate { rate } | Self::ManyPartitions { rate } => rate,
            Self::EndToEnd => EXPECTED_ROUND_TRIPS,
        };
        a_second * seconds
    }

    /// Partitions of the topic.
    pub(crate) fn partitions(self) -> u64 {
        match self {
            Self::ManyPartitions { .. } => 1000,
            Self::EndToEnd => 1,
            _ => 8,
        }
    }

    /// How the work is done, for the reader of the table.
    pub(crate) fn how(self) -> &'static str {
        match self {
            Self::Produce { .. } => {
                "8 partitions, `linger.ms=5 batch.size=65536 acks=all`, one process per producer"
            }
            Self::Consume { .. } => "8 partitions, one consumer in a group, from the start",
            Self::Rate { .. } => {
                "8 partitions, `linger.ms=0 acks=all`, after two seconds of the same rate"
            }
            Self::EndToEnd => "1 partition, 100 B, `acks=all`, the next after the last was read",
            Self::ManyPartitions { .. } => "`linger.ms=0 acks=all`, RoundRobinPartitioner",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_found() {
        for row in ROWS {
            assert_eq!(ROWS.iter().filter(|other| other.id == row.id).count(), 1);
            assert_eq!(named(row.id).unwrap().work, row.work);
        }
        assert!(named("x").is_none());
    }
}
