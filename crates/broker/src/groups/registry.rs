//! The coordinators of one broker, one per partition of `__consumer_offsets` that it leads.
//!
//! Invariant: per partition the coordinator of the highest leader epoch that was opened (E-G3).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use talos_common::{Env, LeaderEpoch};

use super::coordinator::Coordinator;
use super::offset_log::OffsetLog;
use super::shard::Config;

/// The coordinators of the partitions that this broker leads.
#[derive(Clone, Debug)]
pub struct Coordinators {
    inner: Arc<CoordinatorsInner>,
}

#[derive(Debug)]
struct CoordinatorsInner {
    env: Env,
    config: Config,
    partitions: i32,
    open: Mutex<BTreeMap<i32, Coordinator>>,
}

impl Coordinators {
    /// None open yet. `partitions`: of `__consumer_offsets`.
    pub fn new(env: Env, config: Config, partitions: i32) -> Self {
        let open = Mutex::new(BTreeMap::new());
        Self { inner: Arc::new(CoordinatorsInner { env, config, partitions, open }) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Coordinator>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the coordinator of a partition that this broker leads now. A coordinator of a lower
    /// leader epoch is closed; with the same or a higher one open, `log` is dropped and that one
    /// returned, unless it has ended.
    pub fn open(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        log: impl OffsetLog,
    ) -> Coordinator {
        let mut open = self.lock();
        if let Some(present) = open.get(&partition) {
            if present.leader_epoch() > leader_epoch
                || (present.leader_epoch() == leader_epoch && !present.is_ended())
            {
                return present.clone();
            }
            present.close();
        }
        let (env, config) = (&self.inner.env, self.inner.config.clone());
        let coordinator = Coordinator::open(env, config, partition, leader_epoch, log);
        open.insert(partition, coordinator.clone());
        coordinator
    }

    /// Closes the coordinator of a partition whose leadership in `leader_epoch` is over; a later one
    /// stays.
    pub fn close(&self, partition: i32, leader_epoch: LeaderEpoch) {
        let mut open = self.lock();
        if open.get(&partition).is_some_and(|present| present.leader_epoch() <= leader_epoch)
            && let Some(present) = open.remove(&partition)
        {
            present.close();
        }
    }

    /// The coordinator of a group; `None`: not here (NOT_COORDINATOR).
    pub fn of_group(&self, group_id: &str) -> Option<Coordinator> {
        let partition = super::coordinator_partition(group_id, self.inner.partitions);
        self.lock().get(&partition).cloned()
    }

    /// All open coordinators, by partition.
    pub fn all(&self) -> Vec<Coordinator> {
        self.lock().values().cloned().collect()
    }
}
