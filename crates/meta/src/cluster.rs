//! The cluster record: which cluster this tree is the metadata of, and which formats it may use.
//!
//! Written once, last, when all folders exist. Whoever finds data in a store but no cluster record, or
//! one with another id, must refuse to start: the metadata is not what the data was written under.

use std::fmt;
use std::str::FromStr;

use bytes::Bytes;
use talos_common::Rng;

use crate::Meta;
use crate::codec::{Decoder, Encoder};
use crate::paths;
use crate::settle::{Settled, settle, settle_groups};
use crate::store::{Error, Op, Result, Version};

/// A cluster's identity. Kafka shows it as base64url without padding: 22 characters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

/// What the tree says about its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Which cluster.
    pub id: ClusterId,
    /// The newest formats that may be written; raised by command when all brokers can read them.
    pub format_level: u16,
}

/// The format level of a new cluster.
pub const FORMAT_LEVEL: u16 = 1;

const RECORD_VERSION: u8 = 1;
const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// A text that is no cluster id.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a cluster id (22 characters of base64url)")]
pub struct ParseClusterIdError(String);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 128 bits are 22 digits of 6, the last with 4 zero bits behind.
        let value = u128::from_be_bytes(self.0);
        (0..22u32).try_for_each(|at| {
            let shifted = if at < 21 { value >> (122 - 6 * at) } else { value << 4 };
            let digit = usize::try_from(shifted & 63).unwrap_or(0);
            write!(f, "{}", char::from(DIGITS.get(digit).copied().unwrap_or(b'A')))
        })
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for ClusterId {
    type Err = ParseClusterIdError;

    fn from_str(text: &str) -> Result<Self, ParseClusterIdError> {
        let error = || ParseClusterIdError(text.into());
        let mut value = 0u128;
        for (at, byte) in text.bytes().enumerate() {
            let digit = DIGITS.iter().position(|d| *d == byte).ok_or_else(error)?;
            let digit = u128::try_from(digit).map_err(|_| error())?;
            value = if at < 21 { value << 6 | digit } else { value << 2 | digit >> 4 };
        }
        let id = Self(value.to_be_bytes());
        if text.len() == 22 && id.to_string() == text { Ok(id) } else { Err(error()) }
    }
}

impl Cluster {
    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::new(RECORD_VERSION);
        out.raw(&self.id.0);
        out.u16(self.format_level);
        out.finish()
    }

    /// Reads the stored form, found at `path`. `Corrupt` when it is none.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<Self> {
        let mut input = Decoder::new("cluster record", path, bytes, RECORD_VERSION)?;
        let cluster = Self { id: ClusterId(input.array()?), format_level: input.u16()? };
        input.finish()?;
        Ok(cluster)
    }
}

impl Meta {
    /// The cluster record, or `None` in an empty tree.
    pub async fn cluster(&self) -> Result<Option<Cluster>> {
        Ok(self.cluster_node().await?.map(|(cluster, _)| cluster))
    }

    async fn cluster_node(&self) -> Result<Option<(Cluster, Version)>> {
        let node = self.store.get(paths::CLUSTER).await?;
        let decode = |node: crate::store::Node| {
            Ok((Cluster::decode(paths::CLUSTER, &node.value)?, node.version))
        };
        node.map(decode).transpose()
    }

    /// Makes the folders and the cluster record if they are not there, and gives the record: of
    /// several callers at once all get the same. Call it only where no data of a cluster can exist yet:
    /// metadata that was lost must not be begun anew.
    pub async fn create_cluster(&self) -> Result<Cluster> {
        if let Some(cluster) = self.cluster().await? {
            return Ok(cluster);
        }
        let folder =
            |path: String| vec![Op::Create { path, value: Bytes::new(), ephemeral: false }];
        let mut folders = Vec::new();
        for path in paths::SHARDED.iter().chain(&paths::FLAT) {
            folders.push(folder((*path).to_owned()));
        }
        // Parents in a first step of their own, so that a refused one cannot take its shards along.
        self.settle_all_exist(&folders).await?;
        let shard = |path: &&str| paths::shards().map(|s| folder(format!("{path}/{s}"))).collect();
        let shards: Vec<Vec<Op>> =
            paths::SHARDED.iter().flat_map(|p| -> Vec<_> { shard(p) }).collect();
        self.settle_all_exist(&shards).await?;
        let cluster =
            Cluster { id: ClusterId(kafka_uuid(&self.env.rng)), format_level: FORMAT_LEVEL };
        let create =
            Op::Create { path: paths::CLUSTER.into(), value: cluster.encode(), ephemeral: false };
        settle(&*self.store, &self.env.clock, &[create]).await?;
        let vanished = || Error::Unavailable("the cluster record vanished".into());
        self.cluster().await?.ok_or_else(vanished)
    }

    /// Creates each group's node; that it exists already is fine.
    async fn settle_all_exist(&self, groups: &[Vec<Op>]) -> Result<()> {
        for result in settle_groups(&*self.store, &self.env.clock, groups, &[]).await {
            match result? {
                Settled::Applied(_) | Settled::Refused(_, crate::store::Refusal::Exists) => {}
                Settled::Refused(index, refusal) => {
                    return Err(Error::Refused { index, path: "folders".into(), refusal });
                }
            }
        }
        Ok(())
    }

    /// Raises the format level to `level`, if it is lower. Never lowers it.
    pub async fn raise_format_level(&self, level: u16) -> Result<Cluster> {
        for _ in 0..crate::CONTENTION_ROUNDS {
            let missing = || Error::Invalid("there is no cluster yet".into());
            let (cluster, version) = self.cluster_node().await?.ok_or_else(missing)?;
            if cluster.format_level >= level {
                return Ok(cluster);
            }
            let raised = Cluster { format_level: level, ..cluster };
            let set = Op::Set { path: paths::CLUSTER.into(), value: raised.encode(), version };
            if let Settled::Applied(_) = settle(&*self.store, &self.env.clock, &[set]).await? {
                return Ok(raised);
            }
        }
        Err(crate::contended(paths::CLUSTER))
    }
}

/// A random id whose base64 form does not begin with `-`, which command lines would take for a flag: so
/// does Kafka.
pub(crate) fn kafka_uuid(rng: &Rng) -> [u8; 16] {
    let mut id = rng.uuid_v4();
    for _ in 0..64 {
        let [first, ..] = id;
        if first >> 2 != 62 {
            break;
        }
        id = rng.uuid_v4();
    }
    id
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_id_reads_as_kafka_shows_it() {
        // Kafka's Uuid.METADATA_TOPIC_ID is 0 and 1: AAAAAAAAAAAAAAAAAAAAAQ.
        let one = ClusterId(1u128.to_be_bytes());
        assert_eq!(one.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        let ones = ClusterId([0xff; 16]);
        assert_eq!(ones.to_string(), "_____________________w");
        for id in [one, ones, ClusterId(*b"0123456789abcdef")] {
            assert_eq!(id.to_string().parse(), Ok(id));
        }
        for bad in
            ["", "A", "AAAAAAAAAAAAAAAAAAAAAB", "AAAAAAAAAAAAAAAAAAAA+Q", "AAAAAAAAAAAAAAAAAAAAAQA"]
        {
            assert!(bad.parse::<ClusterId>().is_err(), "{bad:?}");
        }
    }
}
