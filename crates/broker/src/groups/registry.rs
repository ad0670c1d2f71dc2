//! The coordinators of one broker, one per partition of `__consumer_offsets` that it leads.
//!
//! Invariants: per partition the coordinator of the highest leader epoch that was opened (E-G3); a log
//! that cannot be read is read again after a pause that doubles, not with every request.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use talos_common::{Env, LeaderEpoch};
use tokio::time::Instant;

use super::coordinator::Coordinator;
use super::offset_log::OffsetLog;
use super::shard::Config;

/// Before a log that could not be read is read again; doubles with each failure.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

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
    open: Mutex<BTreeMap<i32, Open>>,
}

#[derive(Debug)]
struct Open {
    coordinator: Coordinator,
    /// How long to wait once the log turns out to be unreadable.
    pause: Duration,
    /// When it is read again; set when its failure is noticed.
    retry_at: Option<Instant>,
}

impl Open {
    /// Whether to go on with this coordinator, which belongs to the present leader epoch.
    fn stays(&mut self, now: Instant) -> bool {
        if !self.coordinator.is_ended() {
            return true;
        }
        let pause = self.pause;
        self.coordinator.is_unreadable() && now < *self.retry_at.get_or_insert(now + pause)
    }
}

impl Coordinators {
    /// None open yet. `partitions`: of `__consumer_offsets`.
    pub fn new(env: Env, config: Config, partitions: i32) -> Self {
        let open = Mutex::new(BTreeMap::new());
        Self { inner: Arc::new(CoordinatorsInner { env, config, partitions, open }) }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<i32, Open>> {
        self.inner.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Opens the coordinator of a partition that this broker leads now. A coordinator of a lower
    /// leader epoch is closed; with the same or a higher one open, `log` is dropped and that one
    /// returned, unless it has ended. One whose log could not be read is returned until it is time to
    /// read it again.
    pub fn open(
        &self,
        partition: i32,
        leader_epoch: LeaderEpoch,
        log: impl OffsetLog,
    ) -> Coordinator {
        let (env, config) = (&self.inner.env, self.inner.config.clone());
        let now = env.clock.now();
        let mut open = self.lock();
        let mut pause = FIRST_PAUSE;
        if let Some(present) = open.get_mut(&partition) {
            let coordinator = &present.coordinator;
            if coordinator.leader_epoch() > leader_epoch {
                return coordinator.clone();
            }
            if coordinator.leader_epoch() == leader_epoch {
                if present.stays(now) {
                    return present.coordinator.clone();
                }
                if present.coordinator.is_unreadable() {
                    pause = (present.pause * 2).min(LONGEST_PAUSE);
                }
            }
            present.coordinator.close();
        }
        let coordinator = Coordinator::open(env, config, partition, leader_epoch, log);
        let entry = Open { coordinator: coordinator.clone(), pause, retry_at: None };
        open.insert(partition, entry);
        coordinator
    }

    /// Closes the coordinator of a partition whose leadership in `leader_epoch` is over; a later one
    /// stays.
    pub fn close(&self, partition: i32, leader_epoch: LeaderEpoch) {
        let mut open = self.lock();
        let over = |present: &Open| present.coordinator.leader_epoch() <= leader_epoch;
        if open.get(&partition).is_some_and(over)
            && let Some(present) = open.remove(&partition)
        {
            present.coordinator.close();
        }
    }

    /// The coordinator of a group; `None`: not here (NOT_COORDINATOR).
    pub fn of_group(&self, group_id: &str) -> Option<Coordinator> {
        let partition = super::coordinator_partition(group_id, self.inner.partitions);
        self.lock().get(&partition).map(|present| present.coordinator.clone())
    }

    /// All open coordinators, by partition.
    pub fn all(&self) -> Vec<Coordinator> {
        self.lock().values().map(|present| present.coordinator.clone()).collect()
    }
}
