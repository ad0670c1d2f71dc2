//! Who leads each partition: one record per partition, changed by compare-and-set only.
//!
//! Invariants: the leader epoch rises by one with every claim and never falls; a claim moves the old
//! leader into `inherits` in the same change, so nothing that it wrote is forgotten; a missing record is
//! never taken for a free one [E-D3]; a dead broker epoch cannot claim, so it is never named anew [E-W1].

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use talos_common::{BrokerDir, BrokerId, LeaderEpoch, TopicPartitionId};

use crate::brokers::{Broker, broker_path};
use crate::codec::{Decoder, Encoder};
use crate::roots::{RootChange, root_op};
use crate::settle::{Settled, settle, settle_groups};
use crate::store::{Error, Node, Op, Result, Version};
use crate::{CONTENTION_ROUNDS, Meta, contended, paths};

/// Who may make records of a partition durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Leader {
    /// This broker epoch, until it releases, or is dead and another claims.
    Broker(BrokerDir),
    /// Nobody: never claimed, or given up with everything published.
    Released,
    /// Nobody ever again: the topic is being deleted [E-D1].
    Closed,
}

/// A leadership whose frames may still be needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Inherited {
    /// In which broker directory.
    pub dir: BrokerDir,
    /// Of which leader epoch: the same directory may have led twice [E-W2].
    pub leader_epoch: LeaderEpoch,
}

/// The ownership record of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    /// Who leads.
    pub leader: Leader,
    /// The epoch of the last claim; `None` before the first.
    pub leader_epoch: Option<LeaderEpoch>,
    /// Whose frames may still be needed, oldest first. A released record may have some [E-W9].
    pub inherits: Vec<Inherited>,
}

/// A leadership as its holder knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lead {
    /// Of which partition.
    pub partition: TopicPartitionId,
    /// Whose.
    pub dir: BrokerDir,
    /// Which.
    pub leader_epoch: LeaderEpoch,
    /// The version of the ownership record, as far as known: a hint that saves a read. Changes by this
    /// leader itself may have raised it.
    pub version: Version,
}

/// A claim that succeeded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Claim {
    /// Of which partition.
    pub partition: TopicPartitionId,
    /// The new leader epoch.
    pub leader_epoch: LeaderEpoch,
    /// What must be sealed and read before serving, oldest first, each pair once; the last leader, unless
    /// it released, is the last.
    pub inherits: Vec<Inherited>,
    /// The version of the ownership record.
    pub version: Version,
    /// The root, read after the claim: no older leader can change it any more.
    pub root: Option<Node>,
}

/// Why a partition could not be claimed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClaimError {
    /// There is no such partition (any more).
    #[error("partition does not exist")]
    NotFound,
    /// Its topic is being deleted.
    #[error("topic is being deleted")]
    Closed,
    /// It is led by a broker epoch that is not dead.
    #[error("partition is led by {0}")]
    Led(BrokerDir),
    /// The claimer itself is not registered or dead: it must go on as a new broker epoch.
    #[error("this broker epoch is not registered as alive")]
    NotAlive,
    /// The store. `Uncertain`: the claim may hold; claiming again is safe and gives a higher epoch.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Why a leader could not change its record or root.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeadError {
    /// The leadership is over: not applied, and never will be. `None`: the record is deleted.
    #[error("leadership is over: the record is now {current:?}")]
    Fenced {
        /// What the record says now.
        current: Option<Ownership>,
    },
    /// The root is not what was expected; not applied.
    #[error("root has changed")]
    Stale {
        /// The root now.
        current: Option<Node>,
    },
    /// The store.
    #[error(transparent)]
    Store(#[from] Error),
}

const RECORD_VERSION: u8 = 1;

impl Ownership {
    /// The record of a new partition.
    pub fn new() -> Self {
        Self { leader: Leader::Released, leader_epoch: None, inherits: Vec::new() }
    }

    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::new(RECORD_VERSION);
        match self.leader {
            Leader::Released => out.u8(0),
            Leader::Broker(dir) => {
                out.u8(1);
                out.dir(dir);
            }
            Leader::Closed => out.u8(2),
        }
        out.i32(self.leader_epoch.map_or(-1, |epoch| epoch.0));
        out.len(self.inherits.len());
        for inherited in &self.inherits {
            out.dir(inherited.dir);
            out.i32(inherited.leader_epoch.0);
        }
        out.finish()
    }

    /// Reads the stored form, found at `path`. `Corrupt` when it is none.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<Self> {
        let mut input = Decoder::new("ownership record", path, bytes, RECORD_VERSION)?;
        let leader = match input.u8()? {
            0 => Leader::Released,
            1 => Leader::Broker(input.dir()?),
            2 => Leader::Closed,
            _ => return Err(input.corrupt("unknown kind of leader")),
        };
        let leader_epoch = match input.i32()? {
            -1 => None,
            epoch if epoch >= 0 => Some(LeaderEpoch(epoch)),
            _ => return Err(input.corrupt("a leader epoch is negative")),
        };
        if leader_epoch.is_none() && matches!(leader, Leader::Broker(_)) {
            return Err(input.corrupt("it has a leader without leader epoch"));
        }
        let mut inherits = Vec::new();
        for _ in 0..input.count(16)? {
            inherits.push(Inherited { dir: input.dir()?, leader_epoch: input.leader_epoch()? });
        }
        input.finish()?;
        Ok(Self { leader, leader_epoch, inherits })
    }

    /// Whether the record names `dir`, so that its directory may not be deleted [E-W1].
    pub fn names(&self, dir: BrokerDir) -> bool {
        self.leader == Leader::Broker(dir) || self.inherits.iter().any(|other| other.dir == dir)
    }

    /// Whether `lead` still holds.
    pub fn is_led(&self, lead: &Lead) -> bool {
        self.leader == Leader::Broker(lead.dir) && self.leader_epoch == Some(lead.leader_epoch)
    }

    /// The record after a claim by `dir`; `None` when no leader epoch is left.
    fn claimed(&self, dir: BrokerDir) -> Option<(Self, LeaderEpoch)> {
        let next = self.leader_epoch.map_or(Some(0), |epoch| epoch.0.checked_add(1))?;
        let mut inherits = self.inherits.clone();
        if let (Leader::Broker(dir), Some(leader_epoch)) = (self.leader, self.leader_epoch) {
            let old = Inherited { dir, leader_epoch };
            if !inherits.contains(&old) {
                inherits.push(old);
            }
        }
        let leader_epoch = LeaderEpoch(next);
        let record =
            Self { leader: Leader::Broker(dir), leader_epoch: Some(leader_epoch), inherits };
        Some((record, leader_epoch))
    }
}

impl Default for Ownership {
    fn default() -> Self {
        Self::new()
    }
}

impl Claim {
    /// What the new leader shows with its changes.
    pub fn lead(&self, dir: BrokerDir) -> Lead {
        let (partition, leader_epoch) = (self.partition, self.leader_epoch);
        Lead { partition, dir, leader_epoch, version: self.version }
    }
}

pub(crate) fn ownership_path(tp: TopicPartitionId) -> String {
    paths::partition(paths::OWNERSHIP, tp)
}

/// How many partitions of one folder are asked for before the whole folder is read.
const FOLDER_READ: usize = 16;

impl Meta {
    /// The ownership record of a partition and its version; `None` when there is no such partition.
    pub async fn ownership(&self, tp: TopicPartitionId) -> Result<Option<(Ownership, Version)>> {
        let path = ownership_path(tp);
        let decode = |node: Node| Ok((Ownership::decode(&path, &node.value)?, node.version));
        self.store.get(&path).await?.map(decode).transpose()
    }

    /// Nodes of many partitions in `tree`, in the order asked for.
    pub(crate) async fn partition_nodes(
        &self,
        tree: &str,
        partitions: &[TopicPartitionId],
    ) -> Vec<Result<Option<Node>>> {
        let mut folders: BTreeMap<String, Vec<usize>> = BTreeMap::new();
        for (index, tp) in partitions.iter().enumerate() {
            folders.entry(paths::chunk(tree, tp.topic, tp.partition)).or_default().push(index);
        }
        let mut nodes: Vec<Result<Option<Node>>> = partitions.iter().map(|_| Ok(None)).collect();
        for (folder, members) in folders {
            let whole = if members.len() >= FOLDER_READ {
                Some(self.store.read_children(&folder).await.map(BTreeMap::from_iter))
            } else {
                None
            };
            for index in members {
                let Some(tp) = partitions.get(index) else { continue };
                let node = match &whole {
                    Some(Ok(whole)) => Ok(whole.get(&tp.partition.to_string()).cloned()),
                    Some(Err(error)) => Err(error.clone()),
                    None => self.store.get(&format!("{folder}/{}", tp.partition)).await,
                };
                if let Some(slot) = nodes.get_mut(index) {
                    *slot = node;
                }
            }
        }
        nodes
    }

    /// Claims `partitions` for `dir`, which must be registered as alive: those that are released, led
    /// by a dead broker epoch, or led by `dir` itself (then it gets a new leader epoch). One result each,
    /// in order; one that cannot be had does not hinder the others. At most one call per broker epoch
    /// may claim a partition at a time. A cancelled call may have claimed; claim again.
    pub async fn claim_many(
        &self,
        dir: BrokerDir,
        partitions: &[TopicPartitionId],
    ) -> Vec<Result<Claim, ClaimError>> {
        let mut claiming = Claiming::new(partitions);
        if let Err(error) = self.store.sync().await {
            claiming.fail_open(&error.into());
        }
        for _ in 0..CONTENTION_ROUNDS {
            if claiming.open.is_empty() {
                break;
            }
            match self.claim_round(dir, &mut claiming).await {
                Ok(()) => {}
                Err(error) => claiming.fail_open(&error),
            }
        }
        claiming.fail_open(&contended("ownership").into());
        self.read_claimed_roots(&mut claiming).await;
        let missing = || Err(ClaimError::NotFound);
        claiming.results.into_values().map(|result| result.unwrap_or_else(missing)).collect()
    }

    async fn claim_round(&self, dir: BrokerDir, claiming: &mut Claiming) -> Result<(), ClaimError> {
        let brokers: BTreeMap<BrokerId, Broker> = self.brokers().await?.into_iter().collect();
        let own = self.broker(dir.broker).await?;
        let alive = |broker: &Broker| broker.epoch == dir.epoch && broker.alive;
        let version = match own {
            Some((broker, version)) if alive(&broker) => version,
            _ => return Err(ClaimError::NotAlive),
        };
        // A claim counts only while its claimer is alive: E-W1 needs that the dead name nothing new.
        let still_alive = [Op::Check { path: broker_path(dir.broker), version }];
        let is_dead = |other: BrokerDir| {
            brokers.get(&other.broker).is_some_and(|broker| broker.is_dead(other.epoch))
        };

        let open = std::mem::take(&mut claiming.open);
        let asked: Vec<_> = open.iter().map(|(_, tp)| *tp).collect();
        let nodes = self.partition_nodes(paths::OWNERSHIP, &asked).await;
        let (mut tried, mut groups) = (Vec::new(), Vec::new());
        for ((index, tp), node) in open.into_iter().zip(nodes) {
            match judge(dir, tp, node, is_dead) {
                Ok((op, claim)) => {
                    groups.push(vec![op]);
                    tried.push((index, claim));
                }
                Err(error) => claiming.settle(index, Err(error)),
            }
        }
        let settled = settle_groups(&*self.store, &self.env.clock, &groups, &still_alive).await;
        for ((index, mut claim), settled) in tried.into_iter().zip(settled) {
            match settled {
                Ok(Settled::Applied(versions)) => {
                    claim.version = versions.first().copied().unwrap_or(claim.version);
                    claiming.settle(index, Ok(claim));
                }
                // Something changed: read and judge again.
                Ok(Settled::Refused(..)) => claiming.open.push((index, claim.partition)),
                Err(error) => claiming.settle(index, Err(error.into())),
            }
        }
        Ok(())
    }

    async fn read_claimed_roots(&self, claiming: &mut Claiming) {
        let claimed = claiming.results.iter().filter_map(|(index, result)| match result {
            Some(Ok(claim)) => Some((*index, claim.partition)),
            _ => None,
        });
        let (indices, partitions): (Vec<_>, Vec<_>) = claimed.unzip();
        let roots = self.partition_nodes(paths::ROOTS, &partitions).await;
        for (index, root) in indices.into_iter().zip(roots) {
            let Some(Some(result)) = claiming.results.get_mut(&index) else { continue };
            match (root, &mut *result) {
                (Ok(root), Ok(claim)) => claim.root = root,
                (Err(error), _) => *result = Err(error.into()),
                (Ok(_), Err(_)) => {}
            }
        }
    }

    /// Changes the record of a leadership, with its root if `root` is given, in one transaction.
    async fn change_lead(
        &self,
        lead: &Lead,
        root: Option<&RootChange>,
        change: impl Fn(&mut Ownership),
    ) -> Result<Version, LeadError> {
        let path = ownership_path(lead.partition);
        for _ in 0..CONTENTION_ROUNDS {
            let found = self.ownership(lead.partition).await?;
            let Some((record, version)) = found else {
                return Err(LeadError::Fenced { current: None });
            };
            if !record.is_led(lead) {
                return Err(LeadError::Fenced { current: Some(record) });
            }
            let mut changed = record.clone();
            change(&mut changed);
            if changed == record && root.is_none() {
                return Ok(version);
            }
            let set = Op::Set { path: path.clone(), value: changed.encode(), version };
            let ops: Vec<Op> = std::iter::once(set)
                .chain(root.map(|root| root_op(lead.partition, root)))
                .collect();
            match settle(&*self.store, &self.env.clock, &ops).await? {
                Settled::Applied(versions) => {
                    return Ok(versions.first().copied().unwrap_or(version));
                }
                Settled::Refused(0, _) => self.store.sync().await?,
                Settled::Refused(..) => {
                    let current = self.root(lead.partition).await?;
                    return Err(LeadError::Stale { current });
                }
            }
        }
        Err(LeadError::Store(contended(&path)))
    }

    /// Takes `pairs` out of `inherits`: nothing above the log start is needed from them any more.
    /// Gives the new version of the record.
    pub async fn drop_inherited(
        &self,
        lead: &Lead,
        pairs: &[Inherited],
    ) -> Result<Version, LeadError> {
        let keep = |record: &mut Ownership| record.inherits.retain(|pair| !pairs.contains(pair));
        self.change_lead(lead, None, keep).await
    }

    /// Gives a partition up: `released`, and the last root with it, in one transaction. Before it,
    /// everything in flight must be resolved. Whatever this answers, the leader epoch is over from the
    /// moment of the call [E-W4]: on `Uncertain` or `Unavailable` call again with the same arguments, and
    /// lead again only through a claim. `inherits` stays. Repeating a release that was applied is `Ok`.
    pub async fn release(&self, lead: &Lead, root: Option<RootChange>) -> Result<(), LeadError> {
        self.give_up(lead, root.as_ref(), Leader::Released).await
    }

    /// Ends a leadership because the topic is being deleted; nobody can claim afterwards [E-D1]. Else
    /// like [`Meta::release`].
    pub async fn close(&self, lead: &Lead) -> Result<(), LeadError> {
        self.give_up(lead, None, Leader::Closed).await
    }

    async fn give_up(
        &self,
        lead: &Lead,
        root: Option<&RootChange>,
        to: Leader,
    ) -> Result<(), LeadError> {
        let given_up = self.change_lead(lead, root, |record| record.leader = to).await;
        match given_up {
            Ok(_) => Ok(()),
            // Only the leader of an epoch can release at that epoch: this was an earlier call.
            Err(LeadError::Fenced { current: Some(record) })
                if record.leader == to && record.leader_epoch == Some(lead.leader_epoch) =>
            {
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Every ownership record, folder by folder. Not a snapshot.
    pub(crate) async fn scan_ownership(
        &self,
        mut visit: impl FnMut(TopicPartitionId, Ownership, Version),
    ) -> Result<()> {
        for shard in self.store.children(paths::OWNERSHIP).await? {
            let shard = format!("{}/{shard}", paths::OWNERSHIP);
            for name in self.store.children(&shard).await? {
                let folder = format!("{shard}/{name}");
                let corrupt = || Error::Corrupt(format!("{folder}: not a folder of partitions"));
                let (topic, _) = paths::parse_chunk(&name).ok_or_else(corrupt)?;
                for (child, node) in self.store.read_children(&folder).await? {
                    let path = format!("{folder}/{child}");
                    let partition = child
                        .parse()
                        .map_err(|_| Error::Corrupt(format!("{path}: not a partition")))?;
                    let record = Ownership::decode(&path, &node.value)?;
                    visit(TopicPartitionId { topic, partition }, record, node.version);
                }
            }
        }
        Ok(())
    }

    /// The partitions that some epoch of broker `id` leads, in order, with their records.
    pub async fn list_led_by(
        &self,
        id: BrokerId,
    ) -> Result<Vec<(TopicPartitionId, Ownership, Version)>> {
        self.store.sync().await?;
        let mut led = Vec::new();
        self.scan_ownership(|tp, record, version| {
            if matches!(record.leader, Leader::Broker(dir) if dir.broker == id) {
                led.push((tp, record, version));
            }
        })
        .await?;
        led.sort_by_key(|(tp, ..)| *tp);
        Ok(led)
    }

    /// All broker epochs that any record names, as leader or in `inherits`. After a sync, so a dead
    /// broker epoch that is missing here is never named again [E-W1, E-W3].
    pub async fn named_epochs(&self) -> Result<BTreeSet<BrokerDir>> {
        self.store.sync().await?;
        let mut named = BTreeSet::new();
        self.scan_ownership(|_, record, _| {
            named.extend(record.inherits.iter().map(|pair| pair.dir));
            if let Leader::Broker(dir) = record.leader {
                named.insert(dir);
            }
        })
        .await?;
        Ok(named)
    }

    /// Whether any record names `dir`, as leader or in `inherits`. The directory of a dead and sealed
    /// broker epoch may be deleted when this is false.
    pub async fn names_epoch(&self, dir: BrokerDir) -> Result<bool> {
        Ok(self.named_epochs().await?.contains(&dir))
    }
}

/// The state of one [`Meta::claim_many`].
struct Claiming {
    open: Vec<(usize, TopicPartitionId)>,
    results: BTreeMap<usize, Option<Result<Claim, ClaimError>>>,
}

impl Claiming {
    fn new(partitions: &[TopicPartitionId]) -> Self {
        let mut claiming = Self { open: Vec::new(), results: BTreeMap::new() };
        let mut seen = BTreeSet::new();
        for (index, tp) in partitions.iter().enumerate() {
            claiming.results.insert(index, None);
            if seen.insert(*tp) {
                claiming.open.push((index, *tp));
            } else {
                let twice = Error::Invalid(format!("{tp} is claimed twice in one call"));
                claiming.settle(index, Err(twice.into()));
            }
        }
        claiming
    }

    fn settle(&mut self, index: usize, result: Result<Claim, ClaimError>) {
        self.results.insert(index, Some(result));
    }

    fn fail_open(&mut self, error: &ClaimError) {
        for (index, _) in std::mem::take(&mut self.open) {
            self.settle(index, Err(error.clone()));
        }
    }
}

/// Whether `dir` may claim `tp`, whose record is `node`, and how.
fn judge(
    dir: BrokerDir,
    tp: TopicPartitionId,
    node: Result<Option<Node>>,
    is_dead: impl Fn(BrokerDir) -> bool,
) -> Result<(Op, Claim), ClaimError> {
    let path = ownership_path(tp);
    let node = node?.ok_or(ClaimError::NotFound)?;
    let record = Ownership::decode(&path, &node.value)?;
    match record.leader {
        Leader::Closed => return Err(ClaimError::Closed),
        Leader::Broker(leader) if leader != dir && !is_dead(leader) => {
            return Err(ClaimError::Led(leader));
        }
        Leader::Broker(_) | Leader::Released => {}
    }
    let exhausted = || Error::Corrupt(format!("{path}: no leader epoch is left"));
    let (record, leader_epoch) = record.claimed(dir).ok_or_else(exhausted)?;
    let value = record.encode();
    let inherits = record.inherits;
    let claim = Claim { partition: tp, leader_epoch, inherits, version: node.version, root: None };
    Ok((Op::Set { path, value, version: node.version }, claim))
}
