//! Logical file names. A backend decides where they lie; their text form is one path everywhere, so
//! that a person finds the same names on every store.

use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

use talos_common::{
    BrokerDir, BrokerEpoch, BrokerId, LaneId, LeaderEpoch, TopicId, TopicPartitionId,
};

/// The name of one file. Ordered by the meaning of its text form: root folder, then directory or
/// partition, then kind, then numbers; so what lies below one [`Prefix`] stands together.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum FilePath {
    /// Which cluster this store belongs to (E-W3): `cluster`.
    Cluster,
    /// A write-ahead file: `brokers/<dir>/journal-<lane>-<number>`.
    Journal {
        /// Whose.
        dir: BrokerDir,
        /// Which lane.
        lane: LaneId,
        /// From 0, rising by one within the lane.
        number: u64,
    },
    /// Closed journals rewritten by partition and offset: `brokers/<dir>/sorted-<number>`.
    Sorted {
        /// Whose.
        dir: BrokerDir,
        /// Rises with every attempt.
        number: u64,
    },
    /// What the sealer leaves beside a sealed directory: `sealed/<dir>-<attempt>`.
    SealIndex {
        /// Of which directory.
        dir: BrokerDir,
        /// Which attempt.
        attempt: u64,
    },
    /// `topics/<topic id>/<partition>/<base offset>-<leader epoch>-<attempt>`.
    Segment {
        /// Of which partition.
        partition: TopicPartitionId,
        /// First offset in it, or the one that the next record gets when it is empty.
        base_offset: i64,
        /// Of the leader that wrote it.
        leader_epoch: LeaderEpoch,
        /// Makes each attempt's name new.
        attempt: u64,
    },
}

/// Where to list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// All files of one broker directory.
    Dir(BrokerDir),
    /// All files of all broker directories.
    Brokers,
    /// All segments of one topic.
    Topic(TopicId),
    /// All segments of one partition.
    Partition(TopicPartitionId),
    /// All segments.
    Topics,
}

impl Prefix {
    /// The lowest name that can lie below: where a listing in name order begins.
    pub fn first(&self) -> FilePath {
        let dir = |dir| FilePath::Journal { dir, lane: LaneId(0), number: 0 };
        let partition = |partition| FilePath::Segment {
            partition,
            base_offset: i64::MIN,
            leader_epoch: LeaderEpoch(i32::MIN),
            attempt: 0,
        };
        let topic = |topic| partition(TopicPartitionId { topic, partition: i32::MIN });
        match self {
            Self::Dir(of) => dir(*of),
            Self::Brokers => dir(BrokerDir { broker: BrokerId(i32::MIN), epoch: BrokerEpoch(0) }),
            Self::Partition(of) => partition(*of),
            Self::Topic(of) => topic(*of),
            Self::Topics => topic(TopicId([0; 16])),
        }
    }

    /// Whether `path` lies below.
    pub fn holds(&self, path: &FilePath) -> bool {
        match (self, path) {
            (
                Self::Dir(dir),
                FilePath::Journal { dir: of, .. } | FilePath::Sorted { dir: of, .. },
            ) => dir == of,
            (Self::Brokers, FilePath::Journal { .. } | FilePath::Sorted { .. })
            | (Self::Topics, FilePath::Segment { .. }) => true,
            (Self::Topic(topic), FilePath::Segment { partition, .. }) => *topic == partition.topic,
            (Self::Partition(wanted), FilePath::Segment { partition, .. }) => wanted == partition,
            (
                Self::Dir(_) | Self::Brokers | Self::Topic(_) | Self::Partition(_) | Self::Topics,
                FilePath::Cluster
                | FilePath::Journal { .. }
                | FilePath::Sorted { .. }
                | FilePath::SealIndex { .. }
                | FilePath::Segment { .. },
            ) => false,
        }
    }
}

impl Ord for FilePath {
    fn cmp(&self, other: &Self) -> Ordering {
        let root = |path: &Self| match path {
            Self::Cluster => 0,
            Self::Journal { .. } | Self::Sorted { .. } => 1,
            Self::SealIndex { .. } => 2,
            Self::Segment { .. } => 3,
        };
        // Within a broker directory journals (0, lane, number) stand before sorted ones (1, 0, number).
        let in_dir = |path: &Self| match path {
            Self::Journal { dir, lane, number } => (Some(*dir), 0, lane.0, *number),
            Self::Sorted { dir, number } => (Some(*dir), 1, 0, *number),
            Self::SealIndex { dir, attempt } => (Some(*dir), 0, 0, *attempt),
            Self::Cluster | Self::Segment { .. } => (None, 0, 0, 0),
        };
        let in_topics = |path: &Self| match path {
            Self::Segment { partition, base_offset, leader_epoch, attempt } => {
                Some((*partition, *base_offset, *leader_epoch, *attempt))
            }
            Self::Cluster | Self::Journal { .. } | Self::Sorted { .. } | Self::SealIndex { .. } => {
                None
            }
        };
        (root(self).cmp(&root(other)))
            .then_with(|| in_dir(self).cmp(&in_dir(other)))
            .then_with(|| in_topics(self).cmp(&in_topics(other)))
    }
}

impl PartialOrd for FilePath {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl FilePath {
    /// The broker directory that the file lies in, if it lies in one.
    pub fn dir(&self) -> Option<BrokerDir> {
        match self {
            Self::Journal { dir, .. } | Self::Sorted { dir, .. } => Some(*dir),
            Self::Cluster | Self::SealIndex { .. } | Self::Segment { .. } => None,
        }
    }
}

impl fmt::Display for FilePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cluster => write!(f, "cluster"),
            Self::Journal { dir, lane, number } => {
                write!(f, "brokers/{dir}/journal-{:04}-{number:012}", lane.0)
            }
            Self::Sorted { dir, number } => write!(f, "brokers/{dir}/sorted-{number:012}"),
            Self::SealIndex { dir, attempt } => write!(f, "sealed/{dir}-{attempt:016x}"),
            Self::Segment { partition, base_offset, leader_epoch, attempt } => write!(
                f,
                "topics/{}/{}/{base_offset:020}-{leader_epoch}-{attempt:016x}",
                partition.topic.hex(),
                partition.partition
            ),
        }
    }
}

/// A text that names no file of ours.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a Talos file")]
pub struct ParsePathError(String);

impl FromStr for FilePath {
    type Err = ParsePathError;

    fn from_str(text: &str) -> Result<Self, ParsePathError> {
        match parse(text) {
            // One name per file: other spellings of the same numbers are refused.
            Some(path) if path.to_string() == text => Ok(path),
            Some(_) | None => Err(ParsePathError(text.into())),
        }
    }
}

fn parse(text: &str) -> Option<FilePath> {
    if text == "cluster" {
        return Some(FilePath::Cluster);
    }
    let (root, rest) = text.split_once('/')?;
    match root {
        "brokers" => {
            let (dir, file) = rest.split_once('/')?;
            let dir = dir.parse().ok()?;
            if let Some(name) = file.strip_prefix("journal-") {
                let (lane, number) = name.split_once('-')?;
                let lane = LaneId(lane.parse().ok()?);
                return Some(FilePath::Journal { dir, lane, number: number.parse().ok()? });
            }
            let number = file.strip_prefix("sorted-")?.parse().ok()?;
            Some(FilePath::Sorted { dir, number })
        }
        "sealed" => {
            let (dir, attempt) = rest.rsplit_once('-')?;
            let attempt = u64::from_str_radix(attempt, 16).ok()?;
            Some(FilePath::SealIndex { dir: dir.parse().ok()?, attempt })
        }
        "topics" => {
            let mut parts = rest.split('/');
            let (topic, partition, file) = (parts.next()?, parts.next()?, parts.next()?);
            let partition = TopicPartitionId {
                topic: TopicId::from_hex(topic).ok()?,
                partition: partition.parse().ok()?,
            };
            let mut numbers = file.split('-');
            let (base, epoch, attempt) = (numbers.next()?, numbers.next()?, numbers.next()?);
            Some(FilePath::Segment {
                partition,
                base_offset: base.parse().ok()?,
                leader_epoch: LeaderEpoch(epoch.parse().ok()?),
                attempt: u64::from_str_radix(attempt, 16).ok()?,
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lies_below_a_prefix_stands_together_from_its_first_name_on() {
        let dir = |broker, epoch| BrokerDir { broker: BrokerId(broker), epoch: BrokerEpoch(epoch) };
        let journal = |dir, lane| FilePath::Journal { dir, lane: LaneId(lane), number: 3 };
        let segment = |topic: u8, partition, base_offset| FilePath::Segment {
            partition: TopicPartitionId { topic: TopicId([topic; 16]), partition },
            base_offset,
            leader_epoch: LeaderEpoch(0),
            attempt: 9,
        };
        let sorted = [
            FilePath::Cluster,
            journal(dir(1, 2), 0),
            journal(dir(1, 2), 11),
            FilePath::Sorted { dir: dir(1, 2), number: 1 },
            journal(dir(1, 10), 0),
            FilePath::Sorted { dir: dir(2, 1), number: 0 },
            FilePath::SealIndex { dir: dir(1, 1), attempt: 1 },
            segment(1, 2, 5),
            segment(1, 10, 0),
            segment(1, 10, 7),
            segment(2, 0, 0),
        ];
        assert!(sorted.is_sorted_by(|a, b| a < b));
        for path in &sorted {
            assert_eq!(path.cmp(path), Ordering::Equal);
            let (prefixes, first) = match path {
                FilePath::Journal { dir, .. } | FilePath::Sorted { dir, .. } => {
                    (vec![Prefix::Dir(*dir), Prefix::Brokers], true)
                }
                FilePath::Segment { partition, .. } => (
                    vec![
                        Prefix::Partition(*partition),
                        Prefix::Topic(partition.topic),
                        Prefix::Topics,
                    ],
                    true,
                ),
                FilePath::Cluster | FilePath::SealIndex { .. } => (vec![], false),
            };
            assert_eq!(first, prefixes.iter().any(|prefix| prefix.holds(path)));
            for prefix in prefixes {
                assert!(prefix.first() <= *path, "{prefix:?} {path}");
                let below: Vec<_> = sorted.iter().map(|path| prefix.holds(path)).collect();
                let stretches = below.chunk_by(|a, b| a == b).filter(|run| run[0]).count();
                assert_eq!(stretches, 1, "{prefix:?}");
            }
        }
    }

    #[test]
    fn every_kind_of_name_round_trips_and_foreign_names_are_refused() {
        let dir = BrokerDir { broker: BrokerId(3), epoch: BrokerEpoch(9) };
        let partition = TopicPartitionId { topic: TopicId([0xab; 16]), partition: 12 };
        for path in [
            FilePath::Cluster,
            FilePath::Journal { dir, lane: LaneId(2), number: 77 },
            FilePath::Sorted { dir, number: 5 },
            FilePath::SealIndex { dir, attempt: 0xfeed },
            FilePath::Segment {
                partition,
                base_offset: 1_000,
                leader_epoch: LeaderEpoch(4),
                attempt: 1,
            },
        ] {
            assert_eq!(path.to_string().parse(), Ok(path));
        }
        for bad in
            ["", "brokers/3-9/journal-2-77", "brokers/../cluster", "topics/x/1/2-3-4", "spare/1"]
        {
            assert!(bad.parse::<FilePath>().is_err(), "{bad:?}");
        }
    }
}
