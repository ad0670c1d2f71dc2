//! The partitions that this broker leads: claimed, opened, looked up, closed.
//!
//! One task makes all changes, one after the other (a broker epoch claims a partition in one call at a
//! time); handlers ask it and wait, so a dropped connection leaves nothing half done. Invariants: a log
//! is looked up only while its topic is live and led here; a partition that can not be opened stays
//! *offline* with its reason, and all others are served (P5); a deleted topic's logs are ended before
//! its records are closed, and its files go because of its tombstone (E-D1, E-D2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use talos_common::{BrokerDir, BrokerId, LeaderEpoch, TopicId, TopicPartitionId};
use talos_log::format::LanePosition;
use talos_log::{OpenError, OpenRequest, Opened, PartitionLog, Unneeded};
use talos_meta::{Claim, ClaimError, Deletion, Inherited, Lead, TopicError, TopicState, Version};
use talos_storage::{ErrorKind, Prefix};
use tokio::sync::{Notify, mpsc, oneshot};

use crate::broker::Shared;
use crate::root_handle::MetaRoot;

/// Partitions claimed in one call: few transactions, none too large.
const CLAIM_BATCH: usize = 1_000;
/// Requests that may wait for the task.
pub(crate) const COMMANDS: usize = 256;
/// How often what failed is tried again and deletions are looked after.
const REPAIR_INTERVAL: Duration = Duration::from_secs(5);
/// Files that nothing needs are looked for once in so many repairs: that reads all records.
const REPAIRS_PER_SWEEP: u64 = 12;
/// With more directories of former broker epochs than this, what is raw in them is sorted after a start:
/// each start reads the raw journals of all of them. Sorted journals are read where they lie, and merged
/// by the log when they are in too many (E-W15).
const INHERITED_DIRS: usize = 4;
const MERGE_PAUSE: Duration = Duration::from_secs(30);
/// How long a tombstone outlives its topic's files (E-D2).
const TOMBSTONE_MS: i64 = 24 * 3_600_000;

/// What is known of a partition that this broker should lead.
#[derive(Clone, Debug)]
pub(crate) enum Slot {
    /// Served.
    Open(Arc<PartitionLog>),
    /// Led here (if it could be claimed at all) and not served.
    Offline(Offline),
}

/// Why a partition is not served.
#[derive(Clone, Debug)]
pub(crate) struct Offline {
    pub(crate) leader_epoch: Option<LeaderEpoch>,
    pub(crate) why: String,
    /// Whether another attempt may succeed without a person.
    pub(crate) retry: bool,
}

/// All partitions of this broker.
#[derive(Debug, Default)]
pub(crate) struct Partitions {
    slots: RwLock<BTreeMap<TopicPartitionId, Slot>>,
    /// Partitions that are not served because an epoch of another broker, not known to be dead, leads
    /// them.
    of_others: Mutex<BTreeMap<TopicPartitionId, BrokerDir>>,
    /// Inherited pairs that may leave their records: one transaction each, so not while opening.
    unneeded: Mutex<Vec<LeadPairs>>,
    unneeded_came: Notify,
}

type LeadPairs = (Lead, Vec<Inherited>);

/// What handlers ask of the task.
#[derive(Debug)]
pub(crate) enum Command {
    /// Claim and open these; answered when each is open or offline.
    Open(Vec<TopicPartitionId>, oneshot::Sender<()>),
    /// Let go of a topic that is marked as being deleted and free its name; answered with whether
    /// it is free.
    Delete(TopicId, oneshot::Sender<Result<bool, TopicError>>),
}

impl Partitions {
    /// The slot of a partition, if this broker should lead it.
    pub(crate) fn get(&self, id: TopicPartitionId) -> Option<Slot> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).get(&id).cloned()
    }

    /// All open logs, in order.
    pub(crate) fn open(&self) -> Vec<Arc<PartitionLog>> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let open = slots.values().filter_map(|slot| match slot {
            Slot::Open(log) => Some(Arc::clone(log)),
            Slot::Offline(_) => None,
        });
        open.collect()
    }

    /// Partitions to try again.
    fn retries(&self) -> Vec<TopicPartitionId> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let retry = |slot: &Slot| matches!(slot, Slot::Offline(offline) if offline.retry);
        slots.iter().filter(|(_, slot)| retry(slot)).map(|(id, _)| *id).collect()
    }

    /// How many there are, open or offline.
    pub(crate) fn len(&self) -> usize {
        self.slots.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Those that are offline, with the reason, in order.
    pub(crate) fn offline(&self) -> Vec<(TopicPartitionId, String)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let offline = slots.iter().filter_map(|(id, slot)| match slot {
            Slot::Open(_) => None,
            Slot::Offline(offline) => Some((*id, offline.why.clone())),
        });
        offline.collect()
    }

    /// Those that are served although reads met damage, with where it is, in order.
    pub(crate) fn damaged(&self) -> Vec<(TopicPartitionId, String)> {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let damaged = slots.iter().filter_map(|(id, slot)| match slot {
            Slot::Open(log) => log.damage().map(|what| (*id, what)),
            Slot::Offline(_) => None,
        });
        damaged.collect()
    }

    /// Partitions of other broker ids that are not known to have stopped.
    pub(crate) fn of_others(&self) -> BTreeMap<BrokerId, usize> {
        let of_others = self.of_others.lock().unwrap_or_else(PoisonError::into_inner);
        let mut counts = BTreeMap::new();
        for leader in of_others.values() {
            *counts.entry(leader.broker).or_default() += 1;
        }
        counts
    }

    fn note_claim(&self, id: TopicPartitionId, led_by: Option<BrokerDir>) {
        let mut of_others = self.of_others.lock().unwrap_or_else(PoisonError::into_inner);
        match led_by {
            Some(leader) => of_others.insert(id, leader),
            None => of_others.remove(&id),
        };
    }

    /// How many are open and how many offline.
    pub(crate) fn count(&self) -> (usize, usize) {
        let slots = self.slots.read().unwrap_or_else(PoisonError::into_inner);
        let open = slots.values().filter(|slot| matches!(slot, Slot::Open(_))).count();
        (open, slots.len() - open)
    }

    fn put(&self, id: TopicPartitionId, slot: Slot) {
        self.slots.write().unwrap_or_else(PoisonError::into_inner).insert(id, slot);
    }

    /// Takes all partitions of a topic out.
    fn remove_topic(&self, topic: TopicId) -> Vec<Slot> {
        let from = TopicPartitionId { topic, partition: i32::MIN };
        let to = TopicPartitionId { topic, partition: i32::MAX };
        let mut slots = self.slots.write().unwrap_or_else(PoisonError::into_inner);
        let ids: Vec<_> = slots.range(from..=to).map(|(id, _)| *id).collect();
        ids.iter().filter_map(|id| slots.remove(id)).collect()
    }

    fn forget_others(&self, topic: TopicId) {
        let mut of_others = self.of_others.lock().unwrap_or_else(PoisonError::into_inner);
        of_others.retain(|id, _| id.topic != topic);
    }

    fn note_unneeded(&self, pairs: Vec<LeadPairs>) {
        self.unneeded.lock().unwrap_or_else(PoisonError::into_inner).extend(pairs);
        self.unneeded_came.notify_one();
    }

    fn take_unneeded(&self) -> Vec<LeadPairs> {
        std::mem::take(&mut *self.unneeded.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Ends all leaderships: nothing is accepted or served any more.
    pub(crate) fn end_all(&self, why: &str) {
        for log in self.open() {
            log.end(why);
        }
    }
}

impl Shared {
    /// Claims and opens `ids`, all at once. Failures become offline slots. Gives how many directories of
    /// former broker epochs they inherit.
    pub(crate) async fn open_partitions(
        &self,
        ids: &[TopicPartitionId],
        clean_ends: &BTreeMap<BrokerDir, LanePosition>,
    ) -> usize {
        let mut claims = BTreeMap::new();
        for batch in ids.chunks(CLAIM_BATCH) {
            for (id, claim) in batch.iter().zip(self.meta.claim_many(self.dir, batch).await) {
                match claim {
                    Ok(claim) => {
                        self.partitions.note_claim(*id, None);
                        claims.insert(*id, claim);
                    }
                    Err(error) => {
                        let leader = match &error {
                            ClaimError::Led(leader) => Some(*leader),
                            ClaimError::NotFound
                            | ClaimError::Closed
                            | ClaimError::NotAlive
                            | ClaimError::Store(_) => None,
                        };
                        self.partitions.note_claim(*id, leader);
                        self.not_claimed(*id, &error);
                    }
                }
            }
        }
        let requests = claims.values().map(|claim| self.open_request(claim)).collect();
        let mut unneeded = Vec::new();
        for (id, outcome) in self.log.open(requests, clean_ends).await {
            let Some(claim) = claims.get(&id) else { continue };
            match outcome {
                Ok(Opened { log, unneeded: pairs }) => {
                    if self.is_offsets_partition(id) {
                        self.open_coordinator(&log);
                    }
                    self.partitions.put(id, Slot::Open(log));
                    if !pairs.is_empty() {
                        let pairs = pairs.into_iter();
                        let pairs =
                            pairs.map(|(dir, leader_epoch)| Inherited { dir, leader_epoch });
                        unneeded.push((claim.lead(self.dir), pairs.collect()));
                    }
                }
                Err(error) => {
                    let retry = match &error {
                        OpenError::Corrupt { .. } => false,
                        OpenError::Unavailable { .. } => true,
                    };
                    tracing::error!(partition = %id, %error, "a partition is offline");
                    let why = error.to_string();
                    let leader_epoch = Some(claim.leader_epoch);
                    self.partitions.put(id, Slot::Offline(Offline { leader_epoch, why, retry }));
                }
            }
        }
        self.partitions.note_unneeded(unneeded);
        self.count_partitions();
        let inherited = claims.values().flat_map(|claim| &claim.inherits);
        inherited.map(|pair| pair.dir).collect::<BTreeSet<_>>().len()
    }

    fn open_request(&self, claim: &Claim) -> OpenRequest {
        let version = claim.root.as_ref().map(|node| node.version);
        OpenRequest {
            id: claim.partition,
            leader_epoch: claim.leader_epoch,
            inherits: claim.inherits.iter().map(|pair| (pair.dir, pair.leader_epoch)).collect(),
            root: claim.root.as_ref().map(|node| node.value.clone()),
            root_handle: Arc::new(MetaRoot::new(self.meta.clone(), claim.lead(self.dir), version)),
        }
    }

    fn not_claimed(&self, id: TopicPartitionId, error: &ClaimError) {
        let retry = match error {
            // Deleted meanwhile, or another broker's: not ours to serve.
            ClaimError::NotFound | ClaimError::Closed | ClaimError::Led(_) => return,
            ClaimError::NotAlive => false,
            ClaimError::Store(talos_meta::Error::Corrupt(_)) => false,
            ClaimError::Store(_) => true,
        };
        tracing::error!(partition = %id, %error, "a partition could not be claimed");
        let why = format!("it could not be claimed: {error}");
        self.partitions.put(id, Slot::Offline(Offline { leader_epoch: None, why, retry }));
    }

    fn count_partitions(&self) {
        let (open, offline) = self.partitions.count();
        self.metrics.partitions.set(i64::try_from(open).unwrap_or(i64::MAX));
        self.metrics.partitions_offline.set(i64::try_from(offline).unwrap_or(i64::MAX));
        let topics = self.topics.image().len();
        self.metrics.topics.set(i64::try_from(topics).unwrap_or(i64::MAX));
    }

    /// The leadership that the pairs belong to, while it lasts.
    fn unneeded_of(&self, (id, pairs): Unneeded) -> Option<LeadPairs> {
        let leader_epoch = match self.partitions.get(id)? {
            Slot::Open(log) => log.leader_epoch(),
            Slot::Offline(_) => return None,
        };
        // The version is a hint that this call does not use: it reads the record.
        let lead = Lead { partition: id, dir: self.dir, leader_epoch, version: Version(0) };
        let pairs = pairs.into_iter();
        let pairs = pairs.map(|(dir, leader_epoch)| Inherited { dir, leader_epoch });
        Some((lead, pairs.collect()))
    }

    /// Asks the task to open partitions, and waits. False when the broker stops.
    pub(crate) async fn open_and_wait(&self, ids: Vec<TopicPartitionId>) -> bool {
        let (done, opened) = oneshot::channel();
        let sent = self.commands.send(Command::Open(ids, done)).await;
        sent.is_ok() && opened.await.is_ok()
    }

    /// Ends, closes and forgets a topic that is marked as being deleted. Gives whether its name is
    /// free.
    async fn delete_topic(&self, topic: TopicId) -> Result<bool, TopicError> {
        for slot in self.partitions.remove_topic(topic) {
            if let Slot::Open(log) = slot {
                log.end("the topic was deleted");
                self.log.forget(log.id());
            }
        }
        self.partitions.forget_others(topic);
        self.forget_topic_config(topic);
        self.count_partitions();
        if let Some(cached) = self.topics.image().by_id(topic) {
            let name = cached.topic.name.as_str().into();
            for coordinator in self.groups.all() {
                coordinator.topic_deleted(&name, topic);
            }
        }
        let mut sealed = BTreeSet::new();
        loop {
            // What this broker led has ended above: nothing of it can be appended or served.
            let is_sealed = |dir: BrokerDir| dir == self.dir || sealed.contains(&dir);
            let waiting = match self.meta.finish_deletion(topic, is_sealed).await? {
                Deletion::Done => break,
                Deletion::Waiting(waiting) => waiting,
            };
            let before = sealed.len();
            for dir in waiting.into_iter().map(|(_, dir)| dir).collect::<BTreeSet<_>>() {
                // A dead epoch had registered, so its directory was made; only a sealed one is deleted.
                if !self.meta.is_dead(dir).await? {
                    continue;
                }
                let is_sealed = match self.storage.seal(dir).await {
                    Ok(_) => true,
                    Err(error) => error.kind() == ErrorKind::NotFound,
                };
                if is_sealed {
                    sealed.insert(dir);
                }
            }
            if sealed.len() == before {
                return Ok(false);
            }
        }
        self.topics.refresh(topic).await?;
        self.count_partitions();
        Ok(true)
    }

    /// Deletes the files of topics whose deletion is over, because of their tombstones, and
    /// tombstones that have stood for a day.
    async fn sweep_tombstones(&self) {
        let tombstones = match self.meta.tombstones().await {
            Ok(tombstones) => tombstones,
            Err(error) => {
                tracing::debug!(%error, "tombstones could not be read");
                return;
            }
        };
        for tombstone in tombstones {
            if self.topics.image().by_id(tombstone.id).is_some() || self.is_stopping() {
                continue;
            }
            let files = match self.storage.list(Prefix::Topic(tombstone.id), None).await {
                Ok(files) => files,
                Err(error) => {
                    tracing::debug!(topic = %tombstone.id, %error, "files could not be listed");
                    continue;
                }
            };
            if let Err(error) = self.log.delete_topic(tombstone.id).await {
                tracing::debug!(topic = %tombstone.id, %error, "files of a deleted topic stay");
                continue;
            }
            let age_ms = self.env.clock.wall_ms().saturating_sub(tombstone.deleted_ms);
            if files.is_empty()
                && age_ms > TOMBSTONE_MS
                && let Err(error) = self.meta.remove_tombstone(tombstone.id).await
            {
                tracing::debug!(topic = %tombstone.id, %error, "a tombstone stays");
            }
        }
    }

    /// Deletes directories of dead broker epochs that no ownership record names any more (E-W1).
    async fn sweep_directories(&self) {
        if let Err(error) = self.try_sweep_directories().await {
            tracing::debug!(%error, "old broker directories stay for now");
        }
    }

    async fn try_sweep_directories(&self) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        let mut dirs = BTreeSet::new();
        let mut after = None;
        loop {
            let page = self.storage.list(Prefix::Brokers, after).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.path.clone());
            dirs.extend(page.iter().filter_map(|file| file.path.dir()));
        }
        dirs.remove(&self.dir);
        if dirs.is_empty() {
            return Ok(());
        }
        let mut dead = Vec::new();
        for dir in dirs {
            if self.meta.is_dead(dir).await? {
                dead.push(dir);
            }
        }
        // Read after they were dead: the dead are never named anew.
        let named = self.meta.named_epochs().await?;
        for dir in dead.into_iter().filter(|dir| !named.contains(dir)) {
            // One that can not be deleted now does not keep the others.
            match self.delete_directory(dir).await {
                Ok(()) => tracing::info!(%dir, "deleted an old broker directory"),
                Err(error) => {
                    tracing::debug!(%dir, %error, "an old broker directory stays for now")
                }
            }
        }
        Ok(())
    }

    async fn delete_directory(
        &self,
        dir: BrokerDir,
    ) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
        self.storage.seal(dir).await?;
        self.storage.delete_dir(dir).await?;
        self.meta.forget_clean_stop(dir).await?;
        Ok(())
    }
}

/// The task that makes all changes. Ends when the broker stops.
pub(crate) async fn run(shared: Arc<Shared>, mut commands: mpsc::Receiver<Command>) {
    let none = BTreeMap::new();
    let mut next_repair = shared.env.clock.now();
    let mut repairs = 0u64;
    loop {
        let command = tokio::select! {
            biased;
            () = shared.stopping() => return,
            command = commands.recv() => command,
            () = shared.env.clock.sleep_until(next_repair) => {
                repair(&shared).await;
                if repairs.is_multiple_of(REPAIRS_PER_SWEEP) {
                    shared.sweep_tombstones().await;
                    shared.sweep_directories().await;
                }
                repairs += 1;
                next_repair = shared.env.clock.now() + REPAIR_INTERVAL;
                continue;
            }
        };
        match command {
            Some(Command::Open(ids, done)) => {
                // Opened by an earlier command: a second claim would only end that leadership.
                let missing = |id: &TopicPartitionId| shared.partitions.get(*id).is_none();
                let ids: Vec<_> = ids.into_iter().filter(missing).collect();
                if !ids.is_empty() {
                    shared.open_partitions(&ids, &none).await;
                }
                let _ = done.send(());
            }
            Some(Command::Delete(topic, done)) => {
                let _ = done.send(shared.delete_topic(topic).await);
            }
            None => return,
        }
    }
}

/// The task that, after a start that had to read many old directories, has what is raw in them sorted into
/// the own one, so that the next start is short and most can go.
pub(crate) async fn merge_inherited(shared: Arc<Shared>, inherited_dirs: usize) {
    if inherited_dirs <= INHERITED_DIRS {
        return;
    }
    tracing::info!(inherited_dirs, "sorting what is raw in old broker directories");
    loop {
        tokio::select! {
            biased;
            () = shared.stopping() => return,
            sorted = shared.log.sort() => match sorted {
                Ok(()) => return,
                Err(why) => tracing::debug!(why, "old broker directories are read where they lie"),
            },
        }
        tokio::select! {
            biased;
            () = shared.stopping() => return,
            () = shared.env.clock.sleep(MERGE_PAUSE) => {}
        }
    }
}

/// The task that takes inherited pairs that nothing needs any more out of the ownership records: so the
/// directories of dead broker epochs can go. Ends when the broker stops.
pub(crate) async fn drop_inherited(shared: Arc<Shared>) {
    loop {
        let pairs = tokio::select! {
            biased;
            () = shared.stopping() => return,
            () = shared.partitions.unneeded_came.notified() => shared.partitions.take_unneeded(),
            // What was rewritten into this epoch's own directory since.
            unneeded = shared.log.unneeded() => {
                let lead = |unneeded: Unneeded| shared.unneeded_of(unneeded);
                unneeded.into_iter().filter_map(lead).collect()
            }
        };
        for (lead, pairs) in pairs {
            if shared.is_stopping() {
                return;
            }
            if let Err(error) = shared.meta.drop_inherited(&lead, &pairs).await {
                // It only costs a longer next start.
                tracing::debug!(partition = %lead.partition, %error, "inherited pairs stay");
            }
        }
    }
}

/// Tries again what failed, finishes what was begun.
async fn repair(shared: &Arc<Shared>) {
    let mut ids = shared.partitions.retries();
    let image = shared.topics.image();
    let mut deleting = Vec::new();
    for cached in image.iter() {
        match cached.topic.state {
            TopicState::Live => {
                let missing = |id: &TopicPartitionId| shared.partitions.get(*id).is_none();
                ids.extend(cached.topic.partition_ids().filter(missing));
            }
            TopicState::Deleting => deleting.push(cached.topic.id),
        }
    }
    if !ids.is_empty() {
        shared.open_partitions(&ids, &BTreeMap::new()).await;
    }
    for topic in deleting {
        if let Err(error) = shared.delete_topic(topic).await {
            tracing::debug!(%topic, %error, "a topic's deletion goes on later");
        }
    }
}
