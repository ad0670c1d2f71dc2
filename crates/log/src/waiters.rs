//! Who waits for a partition's watermark: producers for an offset, long polls for any progress.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};

use tokio::sync::{Notify, oneshot};

/// The leadership ended before the batch was known to be durable: it may exist or not (P4).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("whether the batch is durable is not known: {0}")]
pub struct OutcomeUnknown(pub String);

type Outcome = Result<(), OutcomeUnknown>;

/// Resolves when a batch is durable and visible. Dropping it takes nothing back.
#[derive(Debug)]
pub struct Durable(Waiting);

#[derive(Debug)]
enum Waiting {
    Done,
    For(oneshot::Receiver<Outcome>),
}

impl Durable {
    pub(crate) fn done() -> Self {
        Self(Waiting::Done)
    }
}

impl Future for Durable {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Waiting::Done => Poll::Ready(Ok(())),
            Waiting::For(receiver) => Pin::new(receiver).poll(cx).map(|outcome| {
                outcome.unwrap_or_else(|_| Err(OutcomeUnknown("the partition was dropped".into())))
            }),
        }
    }
}

/// A long poll's interest in several partitions: one wake-up, and which of them moved.
#[derive(Debug, Default)]
pub struct FetchWaiter {
    changed: Mutex<Vec<usize>>,
    notify: Notify,
}

impl FetchWaiter {
    /// A waiter that is registered nowhere yet.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Waits until one of the partitions moved, and gives the keys of all that did since the last
    /// call (in order, each once). Cancel safe.
    pub async fn changed(&self) -> Vec<usize> {
        loop {
            let mut changed =
                std::mem::take(&mut *self.changed.lock().unwrap_or_else(PoisonError::into_inner));
            if !changed.is_empty() {
                changed.sort_unstable();
                changed.dedup();
                return changed;
            }
            self.notify.notified().await;
        }
    }

    fn mark(&self, key: usize) {
        let mut changed = self.changed.lock().unwrap_or_else(PoisonError::into_inner);
        if changed.last() != Some(&key) {
            changed.push(key);
        }
        drop(changed);
        self.notify.notify_one();
    }
}

/// The waiters of one partition; part of its locked state.
#[derive(Debug, Default)]
pub(crate) struct Waiters {
    producers: VecDeque<(i64, oneshot::Sender<Outcome>)>,
    fetches: Vec<(Weak<FetchWaiter>, usize)>,
    /// Fetches that are over are looked for when there are this many: each registration costs little.
    sweep_at: usize,
}

/// Waiters to complete once the partition's lock is released (R4).
#[derive(Debug, Default)]
pub(crate) struct Wake {
    producers: Vec<(oneshot::Sender<Outcome>, Outcome)>,
    fetches: Vec<(Arc<FetchWaiter>, usize)>,
}

impl Waiters {
    /// Waits until the watermark reaches `end_offset`.
    pub(crate) fn wait_for(&mut self, end_offset: i64) -> Durable {
        let (sender, receiver) = oneshot::channel();
        // Appends come in order; only a retried batch waits for an older end.
        let at = self.producers.partition_point(|(end, _)| *end <= end_offset);
        self.producers.insert(at, (end_offset, sender));
        Durable(Waiting::For(receiver))
    }

    pub(crate) fn register(&mut self, waiter: &Arc<FetchWaiter>, key: usize) {
        if self.fetches.len() >= self.sweep_at {
            self.fetches.retain(|(waiter, _)| waiter.strong_count() > 0);
            self.sweep_at = 2 * self.fetches.len() + 16;
        }
        self.fetches.push((Arc::downgrade(waiter), key));
    }

    /// Whom to wake now that the watermark is at `high_watermark`.
    pub(crate) fn reached(&mut self, high_watermark: i64) -> Wake {
        let due = self.producers.partition_point(|(end, _)| *end <= high_watermark);
        let producers = self.producers.drain(..due).map(|(_, sender)| (sender, Ok(()))).collect();
        Wake { producers, fetches: self.live_fetches() }
    }

    /// Everyone, because the leadership ended.
    pub(crate) fn ended(&mut self, why: &str) -> Wake {
        let unknown = OutcomeUnknown(why.into());
        let all = self.producers.drain(..);
        let producers = all.map(|(_, sender)| (sender, Err(unknown.clone()))).collect();
        Wake { producers, fetches: self.live_fetches() }
    }

    fn live_fetches(&mut self) -> Vec<(Arc<FetchWaiter>, usize)> {
        let mut live = Vec::new();
        self.fetches.retain(|(waiter, key)| match waiter.upgrade() {
            Some(waiter) => {
                live.push((waiter, *key));
                true
            }
            None => false,
        });
        live
    }
}

impl Wake {
    /// Completes them. Never under a lock.
    pub(crate) fn up(self) {
        for (sender, outcome) in self.producers {
            // The producer may have left.
            let _ = sender.send(outcome);
        }
        for (waiter, key) in self.fetches {
            waiter.mark(key);
        }
    }
}
