//! Topics: identity, name, partition count, configuration, state.
//!
//! Invariants: a topic exists when its topic record does, which is written last and deleted last; a name
//! has at most one topic, also while that is being deleted [E-D1]; ownership records exist before the
//! partition count covers them [E-D3]; files of a UUID may be deleted because of its tombstone, never because it
//! is unknown [E-D2]. Each step is one transaction or repeatable, so what a crash left half done is
//! finished or undone by doing it again (F21).

mod deletion;

use std::collections::BTreeMap;

use bytes::Bytes;
use talos_common::{BrokerDir, TopicId, TopicPartitionId};

use crate::codec::{Decoder, Encoder};
use crate::ownership::{Leader, Ownership};
use crate::settle::{Settled, settle, settle_groups};
use crate::store::{Error, Node, Op, Refusal, Result, Version};
use crate::{CONTENTION_ROUNDS, Meta, contended, paths};

/// Whether a topic is in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicState {
    /// In use.
    Live,
    /// Being deleted: leaders let go; the name is still taken.
    Deleting,
}

/// One topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// Its identity (P8).
    pub id: TopicId,
    /// Its name.
    pub name: String,
    /// How many partitions it has: indices 0 (inclusive) to this (exclusive).
    pub partitions: i32,
    /// What was set for this topic, by Kafka's configuration names.
    pub configs: BTreeMap<String, String>,
    /// Whether it is in use.
    pub state: TopicState,
}

/// What [`Meta::create_topic`] makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewTopic {
    /// 1 to 249 of `a-z A-Z 0-9 . _ -`, not `.` or `..`, as in Kafka.
    pub name: String,
    /// How many partitions: 1 to [`PARTITIONS`].
    pub partitions: i32,
    /// Configuration; not judged here.
    pub configs: BTreeMap<String, String>,
}

/// What is left of a deleted UUID: the permission to delete its files [E-D2].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tombstone {
    /// Which.
    pub id: TopicId,
    /// The name it had.
    pub name: String,
    /// How many partitions it had.
    pub partitions: i32,
    /// When deletion began, by the wall clock of who began it, in milliseconds since the Unix epoch.
    pub deleted_ms: i64,
}

/// How far a deletion has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Deletion {
    /// Over; the name is free.
    Done,
    /// These partitions are still led by broker epochs that are not dead and sealed.
    Waiting(Vec<(TopicPartitionId, BrokerDir)>),
}

/// Why a change of topics failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// The name is taken.
    #[error("topic exists already{}", if *.deleting { ", marked for deletion" } else { "" })]
    Exists {
        /// By whom.
        id: TopicId,
        /// Whether that topic is being deleted.
        deleting: bool,
    },
    /// There is no such topic, or it is being deleted.
    #[error("topic does not exist")]
    NotFound,
    /// The request makes no sense.
    #[error("invalid topic request: {0}")]
    Invalid(String),
    /// The store. `Uncertain`: may be applied; look before doing it again.
    #[error(transparent)]
    Store(#[from] Error),
}

/// The most partitions of one topic.
pub const PARTITIONS: i32 = 1_000_000;

const TOPIC_VERSION: u8 = 1;
const NAME_VERSION: u8 = 1;
const TOMBSTONE_VERSION: u8 = 1;

impl Topic {
    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::new(TOPIC_VERSION);
        out.raw(&self.id.0);
        out.bytes(self.name.as_bytes());
        out.i32(self.partitions);
        out.u8(match self.state {
            TopicState::Live => 0,
            TopicState::Deleting => 1,
        });
        out.len(self.configs.len());
        for (key, value) in &self.configs {
            out.bytes(key.as_bytes());
            out.bytes(value.as_bytes());
        }
        out.finish()
    }

    /// Reads the stored form, found at `path`. `Corrupt` when it is none.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<Self> {
        let mut input = Decoder::new("topic record", path, bytes, TOPIC_VERSION)?;
        let id = TopicId(input.array()?);
        let name = input.text()?;
        let partitions = input.i32()?;
        if !(1..=PARTITIONS).contains(&partitions) {
            return Err(input.corrupt("impossible partition count"));
        }
        let state = match input.u8()? {
            0 => TopicState::Live,
            1 => TopicState::Deleting,
            _ => return Err(input.corrupt("unknown state")),
        };
        let mut configs = BTreeMap::new();
        for _ in 0..input.count(8)? {
            let key = input.text()?;
            let value = input.text()?;
            configs.insert(key, value);
        }
        input.finish()?;
        Ok(Self { id, name, partitions, configs, state })
    }

    /// Its partitions, in order.
    pub fn partition_ids(&self) -> impl Iterator<Item = TopicPartitionId> + use<> {
        let topic = self.id;
        (0..self.partitions).map(move |partition| TopicPartitionId { topic, partition })
    }
}

impl Tombstone {
    /// The stored form. Also that of a creation under way.
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::new(TOMBSTONE_VERSION);
        out.raw(&self.id.0);
        out.bytes(self.name.as_bytes());
        out.i32(self.partitions);
        out.i64(self.deleted_ms);
        out.finish()
    }

    /// Reads the stored form, found at `path`. `Corrupt` when it is none.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<Self> {
        let mut input = Decoder::new("tombstone", path, bytes, TOMBSTONE_VERSION)?;
        let tombstone = Self {
            id: TopicId(input.array()?),
            name: input.text()?,
            partitions: input.i32()?,
            deleted_ms: input.i64()?,
        };
        input.finish()?;
        Ok(tombstone)
    }
}

/// The stored form of a name's record.
fn encode_name(id: TopicId) -> Bytes {
    let mut out = Encoder::new(NAME_VERSION);
    out.raw(&id.0);
    out.finish()
}

fn decode_name(path: &str, bytes: &[u8]) -> Result<TopicId> {
    let mut input = Decoder::new("topic name record", path, bytes, NAME_VERSION)?;
    let id = TopicId(input.array()?);
    input.finish()?;
    Ok(id)
}

/// Whether Kafka allows this name.
fn check_new(new: &NewTopic) -> Result<(), TopicError> {
    let name = &new.name;
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    let good = (1..=249).contains(&name.len()) && name != "." && name != "..";
    if !good || !name.bytes().all(legal) {
        return Err(TopicError::Invalid(format!("{name:?} is not a topic name")));
    }
    if !(1..=PARTITIONS).contains(&new.partitions) {
        let partitions = new.partitions;
        return Err(TopicError::Invalid(format!("{partitions} partitions, 1 to {PARTITIONS}")));
    }
    Ok(())
}

fn create(path: String, value: Bytes) -> Op {
    Op::Create { path, value, ephemeral: false }
}

/// The nodes of the partitions `from` (inclusive) to `to` (exclusive): folders before records.
fn partition_groups(id: TopicId, from: i32, to: i32) -> Vec<Vec<Op>> {
    let mut groups = Vec::new();
    let record = Ownership::new().encode();
    for partition in from..to {
        if partition == from || partition % paths::CHUNK_PARTITIONS == 0 {
            for tree in [paths::OWNERSHIP, paths::ROOTS] {
                groups.push(vec![create(paths::chunk(tree, id, partition), Bytes::new())]);
            }
        }
        let path = paths::partition(paths::OWNERSHIP, TopicPartitionId { topic: id, partition });
        groups.push(vec![create(path, record.clone())]);
    }
    groups
}

impl Meta {
    /// The topic with this id and its version (of its configuration, count and state).
    pub async fn topic(&self, id: TopicId) -> Result<Option<(Topic, Version)>> {
        let path = paths::topic(id);
        let node = self.store.get(&path).await?;
        node.map(|node| Ok((decode_topic(&path, id, &node)?, node.version))).transpose()
    }

    /// The topic that has this name, also while it is being deleted.
    pub async fn topic_by_name(&self, name: &str) -> Result<Option<(Topic, Version)>> {
        match self.topic_id(name).await? {
            Some(id) => self.topic(id).await,
            None => Ok(None),
        }
    }

    async fn topic_id(&self, name: &str) -> Result<Option<TopicId>> {
        let path = paths::topic_name(name);
        let node = self.store.get(&path).await?;
        node.map(|node| decode_name(&path, &node.value)).transpose()
    }

    /// All topics with their versions, by id. Not a snapshot.
    pub async fn topics(&self) -> Result<Vec<(Topic, Version)>> {
        let mut topics = Vec::new();
        for shard in self.store.children(paths::TOPICS).await? {
            let folder = format!("{}/{shard}", paths::TOPICS);
            for (name, node) in self.store.read_children(&folder).await? {
                let path = format!("{folder}/{name}");
                let id = TopicId::from_hex(&name)
                    .map_err(|_| Error::Corrupt(format!("{path}: no topic id")))?;
                topics.push((decode_topic(&path, id, &node)?, node.version));
            }
        }
        Ok(topics)
    }

    /// Creates a topic under a new UUID: first its ownership records, then name and topic record in one
    /// transaction. If it fails, nothing is visible; what is left over goes by
    /// [`Meta::repair_creations`]. `Uncertain`: look by name.
    pub async fn create_topic(&self, new: NewTopic) -> Result<(Topic, Version), TopicError> {
        check_new(&new)?;
        if let Some(taken) = self.taken(&new.name).await? {
            return Err(taken);
        }
        let NewTopic { name, partitions, configs } = new;
        let id = TopicId(crate::cluster::kafka_uuid(&self.env.rng));
        let topic = Topic { id, name, partitions, configs, state: TopicState::Live };
        let creation = paths::creation(id);
        let begun = Tombstone {
            id,
            name: topic.name.clone(),
            partitions,
            deleted_ms: self.env.clock.wall_ms(),
        };
        let begin = create(creation.clone(), begun.encode());
        if let Settled::Refused(_, refusal) = self.settle(&[begin]).await? {
            return Err(Error::Refused { index: 0, path: creation, refusal }.into());
        }
        let guard = Op::Check { path: creation.clone(), version: Version(0) };
        if let Err(error) = self.create_partitions(id, 0, partitions, guard).await {
            // As far as it goes now; the rest is for `repair_creations`.
            let _ = self.undo_creation(id).await;
            return Err(error);
        }
        let commit = [
            Op::Delete { path: creation, version: Version(0) },
            create(paths::topic_name(&topic.name), encode_name(id)),
            create(paths::topic(id), topic.encode()),
        ];
        match self.settle(&commit).await? {
            Settled::Applied(_) => Ok((topic, Version(0))),
            Settled::Refused(1, Refusal::Exists) => {
                self.undo_creation(id).await?;
                let vanished = || TopicError::Store(contended("the topic name"));
                Err(self.taken(&topic.name).await?.unwrap_or_else(vanished))
            }
            Settled::Refused(0, _) => Err(rolled_back()),
            Settled::Refused(index, refusal) => {
                Err(Error::Refused { index, path: topic.name, refusal }.into())
            }
        }
    }

    async fn settle(&self, ops: &[Op]) -> Result<Settled> {
        settle(&*self.store, &self.env.clock, ops).await
    }

    /// The error for a name that is taken.
    async fn taken(&self, name: &str) -> Result<Option<TopicError>, TopicError> {
        let Some(id) = self.topic_id(name).await? else { return Ok(None) };
        let topic = self.topic(id).await?;
        let deleting = topic.is_none_or(|(topic, _)| topic.state == TopicState::Deleting);
        Ok(Some(TopicError::Exists { id, deleting }))
    }

    /// Creates the records of partitions `from` to `to` (exclusive) as long as `guard` holds. Those
    /// that exist are left as they are.
    async fn create_partitions(
        &self,
        id: TopicId,
        from: i32,
        to: i32,
        guard: Op,
    ) -> Result<(), TopicError> {
        let mut groups = partition_groups(id, from, to);
        if from > 0 {
            // What an earlier attempt, or the topic so far, left: not to be refused one by one.
            groups = self.missing_only(groups).await?;
        }
        for result in settle_groups(&*self.store, &self.env.clock, &groups, &[guard]).await {
            match result? {
                Settled::Applied(_) | Settled::Refused(1.., Refusal::Exists) => {}
                Settled::Refused(..) => return Err(rolled_back()),
            }
        }
        Ok(())
    }

    async fn missing_only(&self, groups: Vec<Vec<Op>>) -> Result<Vec<Vec<Op>>> {
        let mut missing = Vec::new();
        for group in groups {
            let there = match group.first() {
                Some(op) => self.store.get(op.path()).await?.is_some(),
                None => true,
            };
            if !there {
                missing.push(group);
            }
        }
        Ok(missing)
    }

    /// Undoes creations that were interrupted; gives how many. A creation that is still running
    /// elsewhere is stopped too (it fails with `Unavailable`), so this is for the one who has just become
    /// controller, or for a single broker at its start.
    pub async fn repair_creations(&self) -> Result<usize> {
        self.store.sync().await?;
        let interrupted = self.store.children(paths::CREATIONS).await?;
        for name in &interrupted {
            let corrupt = |_| Error::Corrupt(format!("{}/{name}: no topic id", paths::CREATIONS));
            self.undo_creation(TopicId::from_hex(name).map_err(corrupt)?).await?;
        }
        Ok(interrupted.len())
    }

    /// Fences the creation of `id` if it is under way, and removes what it made.
    async fn undo_creation(&self, id: TopicId) -> Result<()> {
        let path = paths::creation(id);
        for _ in 0..CONTENTION_ROUNDS {
            // Committing deletes this node at version 0: one of both comes too late.
            let Some(node) = self.store.get(&path).await? else { return Ok(()) };
            if node.version == Version(0) {
                let value = node.value;
                let fence = Op::Set { path: path.clone(), value, version: Version(0) };
                self.settle(&[fence]).await?;
                continue;
            }
            // The node may also be an echo: a lost first attempt that arrived after the commit. Fenced, no
            // commit can follow, so what is seen now is final.
            self.store.sync().await?;
            if self.topic(id).await?.is_none() {
                self.delete_partition_nodes(paths::ROOTS, id).await?;
                self.delete_partition_nodes(paths::OWNERSHIP, id).await?;
            }
            self.settle(&[Op::Delete { path: path.clone(), version: node.version }]).await?;
        }
        Err(contended(&path))
    }

    /// The folders of a topic's partitions in `tree`.
    async fn chunk_folders(&self, tree: &str, id: TopicId) -> Result<Vec<String>> {
        let above = paths::chunks_folder(tree, id);
        let names = self.store.children(&above).await?;
        let own = |name: &String| paths::parse_chunk(name).is_some_and(|(topic, _)| topic == id);
        Ok(names.into_iter().filter(own).map(|name| format!("{above}/{name}")).collect())
    }

    /// Deletes all records of a topic in `tree` as they are now, and their folders.
    async fn delete_partition_nodes(&self, tree: &str, id: TopicId) -> Result<()> {
        for _ in 0..CONTENTION_ROUNDS {
            let folders = self.chunk_folders(tree, id).await?;
            if folders.is_empty() {
                return Ok(());
            }
            let mut groups = Vec::new();
            for folder in folders {
                for (child, node) in self.store.read_children(&folder).await? {
                    let path = format!("{folder}/{child}");
                    groups.push(vec![Op::Delete { path, version: node.version }]);
                }
                groups.push(vec![Op::Delete { path: folder, version: Version(0) }]);
            }
            for result in settle_groups(&*self.store, &self.env.clock, &groups, &[]).await {
                // What was refused is looked at again.
                result?;
            }
        }
        Err(contended(&paths::chunks_folder(tree, id)))
    }

    /// Changes a live topic's record by compare-and-set. `change` gets the record as it is now, maybe
    /// several times, must do the same each time, and may refuse. Gives the topic as it is then.
    async fn change_topic(
        &self,
        id: TopicId,
        mut change: impl FnMut(&mut Topic) -> Result<(), TopicError>,
    ) -> Result<(Topic, Version), TopicError> {
        let path = paths::topic(id);
        for _ in 0..CONTENTION_ROUNDS {
            let (topic, version) = self.topic(id).await?.ok_or(TopicError::NotFound)?;
            if topic.state == TopicState::Deleting {
                return Err(TopicError::NotFound);
            }
            let mut changed = topic.clone();
            change(&mut changed)?;
            if changed == topic {
                return Ok((topic, version));
            }
            let set = Op::Set { path: path.clone(), value: changed.encode(), version };
            match self.settle(&[set]).await? {
                Settled::Applied(versions) => {
                    return Ok((changed, versions.first().copied().unwrap_or(version)));
                }
                Settled::Refused(..) => self.store.sync().await?,
            }
        }
        Err(TopicError::Store(contended(&path)))
    }

    /// Changes a topic's configuration by compare-and-set. `change` may run several times, each time on
    /// what is stored then, and must be a plain function of it. Its error ends the call, nothing applied.
    pub async fn alter_configs(
        &self,
        id: TopicId,
        mut change: impl FnMut(&mut BTreeMap<String, String>) -> Result<(), TopicError>,
    ) -> Result<(Topic, Version), TopicError> {
        self.change_topic(id, |topic| change(&mut topic.configs)).await
    }

    /// Raises the partition count to `partitions`, the ownership records first [E-D3]. What an interrupted
    /// call left is used by the next. `Invalid` when the count is not above the present one.
    pub async fn add_partitions(
        &self,
        id: TopicId,
        partitions: i32,
    ) -> Result<(Topic, Version), TopicError> {
        for _ in 0..CONTENTION_ROUNDS {
            let (topic, version) = self.topic(id).await?.ok_or(TopicError::NotFound)?;
            if topic.state == TopicState::Deleting {
                return Err(TopicError::NotFound);
            }
            let has = topic.partitions;
            if partitions <= has || partitions > PARTITIONS {
                let text = format!("the topic has {has} partitions, {partitions} asked for");
                return Err(TopicError::Invalid(text));
            }
            let path = paths::topic(id);
            let guard = Op::Check { path: path.clone(), version };
            match self.create_partitions(id, has, partitions, guard).await {
                Ok(()) => {}
                // The topic changed meanwhile.
                Err(TopicError::Store(Error::Unavailable(_))) => {
                    self.store.sync().await?;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let raised = Topic { partitions, ..topic };
            let set = Op::Set { path, value: raised.encode(), version };
            if let Settled::Applied(versions) = self.settle(&[set]).await? {
                return Ok((raised, versions.first().copied().unwrap_or(version)));
            }
        }
        Err(TopicError::Store(contended("the topic")))
    }
}

fn rolled_back() -> TopicError {
    TopicError::Store(Error::Unavailable("the topic changed, or its creation was undone".into()))
}

pub(crate) fn decode_topic(path: &str, id: TopicId, node: &Node) -> Result<Topic> {
    let topic = Topic::decode(path, &node.value)?;
    if topic.id == id {
        Ok(topic)
    } else {
        Err(Error::Corrupt(format!("{path}: the record of another topic, {}", topic.id)))
    }
}
