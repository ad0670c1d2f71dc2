//! Logical file names. A backend decides where they lie; their text form is one path everywhere, so
//! that a person finds the same names on every store.

use std::fmt;
use std::str::FromStr;

use talos_common::{BrokerDir, LaneId, LeaderEpoch, TopicId, TopicPartitionId};

/// The name of one file. Ordered by its text form's meaning: directory, kind, number.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
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
    /// Whether `path` lies below.
    pub fn holds(&self, path: &FilePath) -> bool {
        match (self, path) {
            (Self::Dir(dir), FilePath::Journal { dir: of, .. } | FilePath::Sorted { dir: of, .. }) => {
                dir == of
            }
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
                partition.topic, partition.partition
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
            let partition =
                TopicPartitionId { topic: topic.parse().ok()?, partition: partition.parse().ok()? };
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
    use talos_common::{BrokerEpoch, BrokerId};

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
        for bad in ["", "brokers/3-9/journal-2-77", "brokers/../cluster", "topics/x/1/2-3-4", "spare/1"] {
            assert!(bad.parse::<FilePath>().is_err(), "{bad:?}");
        }
    }
}
