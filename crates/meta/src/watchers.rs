//! Watches of stores that see every change themselves (memory, SQLite).
//!
//! Invariants: an event is published after its change can be read; a queue holds at most
//! [`QUEUE_EVENTS`] events, each path once; what does not fit becomes one `Lost`.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use tokio::sync::Notify;

use crate::store::{BoxFuture, Error, Result, Watch, WatchEvent};
use crate::tree::is_within;

/// How many events a watch keeps for a slow reader.
pub(crate) const QUEUE_EVENTS: usize = 1_024;

/// All watches of one client.
#[derive(Debug, Default)]
pub(crate) struct Watchers {
    list: Mutex<Vec<Weak<Queue>>>,
}

#[derive(Debug)]
struct Queue {
    prefix: String,
    state: Mutex<State>,
    wake: Notify,
}

#[derive(Debug, Default)]
struct State {
    order: VecDeque<String>,
    waiting: BTreeSet<String>,
    lost: bool,
    closed: bool,
}

/// The reading end.
#[derive(Debug)]
struct QueueWatch(Arc<Queue>);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Watchers {
    /// A watch of `prefix` from now on.
    pub(crate) fn add(&self, prefix: &str) -> Box<dyn Watch> {
        let queue = Arc::new(Queue {
            prefix: prefix.to_owned(),
            state: Mutex::default(),
            wake: Notify::new(),
        });
        let mut list = lock(&self.list);
        list.retain(|queue| queue.strong_count() > 0);
        list.push(Arc::downgrade(&queue));
        Box::new(QueueWatch(queue))
    }

    fn each(&self, mut act: impl FnMut(&Queue)) {
        lock(&self.list).retain(|queue| match queue.upgrade() {
            Some(queue) => {
                act(&queue);
                true
            }
            None => false,
        });
    }

    /// Tells all watches concerned that `paths` changed.
    pub(crate) fn changed<'a>(&self, paths: impl Iterator<Item = &'a str> + Clone) {
        self.each(|queue| {
            let within = paths.clone().filter(|path| is_within(path, &queue.prefix));
            queue.push(within);
        });
    }

    /// Tells all watches that events may be missing.
    pub(crate) fn lost(&self) {
        self.each(|queue| {
            lock(&queue.state).lose();
            queue.wake.notify_one();
        });
    }

    /// Ends all watches.
    #[cfg(feature = "sqlite")]
    pub(crate) fn close(&self) {
        self.each(|queue| {
            lock(&queue.state).closed = true;
            queue.wake.notify_one();
        });
    }
}

impl State {
    fn lose(&mut self) {
        self.order.clear();
        self.waiting.clear();
        self.lost = true;
    }
}

impl Queue {
    fn push<'a>(&self, paths: impl Iterator<Item = &'a str>) {
        let mut some = false;
        let mut state = lock(&self.state);
        for path in paths {
            some = true;
            if state.lost || state.waiting.contains(path) {
                continue;
            }
            if state.order.len() == QUEUE_EVENTS {
                state.lose();
                continue;
            }
            state.waiting.insert(path.to_owned());
            state.order.push_back(path.to_owned());
        }
        drop(state);
        if some {
            self.wake.notify_one();
        }
    }

    fn pop(&self) -> Result<Option<WatchEvent>> {
        let mut state = lock(&self.state);
        if state.lost {
            // Whoever reads everything again after this sees all that was skipped until now.
            state.lost = false;
            return Ok(Some(WatchEvent::Lost));
        }
        if let Some(path) = state.order.pop_front() {
            state.waiting.remove(&path);
            return Ok(Some(WatchEvent::Changed(path)));
        }
        if state.closed { Err(Error::Closed) } else { Ok(None) }
    }
}

impl Watch for QueueWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<WatchEvent>> {
        Box::pin(async move {
            loop {
                if let Some(event) = self.0.pop()? {
                    return Ok(event);
                }
                // A wake-up between `pop` and here is kept as a permit.
                self.0.wake.notified().await;
            }
        })
    }
}
