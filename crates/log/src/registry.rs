//! The open partitions of a broker epoch, as its background tasks see them.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use talos_common::{BrokerDir, LeaderEpoch, TopicPartitionId};
use tokio::sync::{Notify, oneshot};

use crate::partition::PartitionLog;

/// A partition and the inherited pairs that it no longer needs.
pub type Unneeded = (TopicPartitionId, Vec<(BrokerDir, LeaderEpoch)>);

/// Hears how a sorting pass went.
pub(crate) type Ask = oneshot::Sender<Result<(), String>>;

/// The open partitions. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Registry {
    inner: Arc<Inner>,
}

/// The same, without keeping the partitions open.
#[derive(Clone, Debug)]
pub(crate) struct WeakRegistry(Weak<Inner>);

impl WeakRegistry {
    pub(crate) fn upgrade(&self) -> Option<Registry> {
        self.0.upgrade().map(|inner| Registry { inner })
    }
}

#[derive(Debug, Default)]
struct Inner {
    state: Mutex<State>,
    unneeded: Notify,
    sort: Notify,
}

#[derive(Debug, Default)]
struct State {
    logs: BTreeMap<TopicPartitionId, Arc<PartitionLog>>,
    unneeded: Vec<Unneeded>,
    asks: Vec<Ask>,
}

impl Registry {
    fn state(&self) -> MutexGuard<'_, State> {
        self.inner.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn downgrade(&self) -> WeakRegistry {
        WeakRegistry(Arc::downgrade(&self.inner))
    }

    pub(crate) fn insert(&self, log: &Arc<PartitionLog>) {
        self.state().logs.insert(log.id(), Arc::clone(log));
    }

    pub(crate) fn remove(&self, id: TopicPartitionId) {
        let mut state = self.state();
        let gone = state.logs.remove(&id);
        // A later leadership may need what this one did not.
        state.unneeded.retain(|(of, _)| *of != id);
        drop(state);
        // Not under the lock: its end may wake others.
        drop(gone);
        // What it held may go.
        self.inner.sort.notify_one();
    }

    /// The partitions whose leadership lasts, in order.
    pub(crate) fn logs(&self) -> Vec<Arc<PartitionLog>> {
        let mut logs = self.all();
        logs.retain(|log| log.ended().is_none());
        logs
    }

    /// All partitions, in order: what lies in files for one whose leadership ended is needed until
    /// somebody says that it is not.
    pub(crate) fn all(&self) -> Vec<Arc<PartitionLog>> {
        self.state().logs.values().cloned().collect()
    }

    pub(crate) fn get(&self, id: TopicPartitionId) -> Option<Arc<PartitionLog>> {
        self.state().logs.get(&id).cloned()
    }

    pub(crate) fn holds(&self, id: TopicPartitionId) -> bool {
        self.state().logs.contains_key(&id)
    }

    /// Collects the inherited pairs that `logs`, which a pass has just sorted, no longer need, for
    /// whoever keeps the ownership records. `own` is the directory of this epoch. Nothing is said of a log
    /// that was removed meanwhile: a later one of the same partition reads where it did.
    pub(crate) fn note_unneeded(&self, logs: &[Arc<PartitionLog>], own: BrokerDir) {
        let mut found = Vec::new();
        for log in logs {
            let pairs = log.take_unneeded(own);
            if !pairs.is_empty() {
                found.push((log, pairs));
            }
        }
        if !found.is_empty() {
            let mut state = self.state();
            for (log, pairs) in found {
                let id = log.id();
                if state.logs.get(&id).is_some_and(|known| Arc::ptr_eq(known, log)) {
                    state.unneeded.push((id, pairs));
                }
            }
            drop(state);
            self.inner.unneeded.notify_one();
        }
    }

    /// Waits until there are unneeded pairs, and takes them. Cancel safe.
    pub(crate) async fn unneeded(&self) -> Vec<Unneeded> {
        loop {
            let taken = std::mem::take(&mut self.state().unneeded);
            if !taken.is_empty() {
                return taken;
            }
            self.inner.unneeded.notified().await;
        }
    }

    /// Asks for a sorting pass; the receiver hears how it went.
    pub(crate) fn ask_to_sort(&self) -> oneshot::Receiver<Result<(), String>> {
        let (sender, receiver) = oneshot::channel();
        self.state().asks.push(sender);
        self.inner.sort.notify_one();
        receiver
    }

    /// Wakes who sorts, without asking for a pass that is not due.
    pub(crate) fn nudge(&self) {
        self.inner.sort.notify_one();
    }

    pub(crate) async fn asked_to_sort(&self) {
        self.inner.sort.notified().await;
    }

    /// All who asked since the last call.
    pub(crate) fn take_asks(&self) -> Vec<Ask> {
        std::mem::take(&mut self.state().asks)
    }
}
