//! Changes that clients ask for, such as a new topic. Each runs in a task of its own, so that neither a
//! dropped connection nor a timeout cuts it off.
//!
//! Invariants (P6, P7): a bounded number of them runs and a bounded number waits, whether or not who
//! asked for them still waits; what finds no place is refused before anything happened, with
//! THROTTLING_QUOTA_EXCEEDED, which Kafka's clients try again. So is what still waits for its turn when
//! the broker stops (P4): its outcome is known. Partitions are counted before they are made, so that
//! changes side by side do not pass the limit together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use talos_protocol::ErrorCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::broker::Shared;
use crate::config::BrokerConfig;
use crate::errors::Failure;

/// What bounds the changes of one broker.
#[derive(Debug)]
pub(crate) struct Changes {
    /// One permit for each that may run.
    turns: Arc<Semaphore>,
    /// One permit for each that may run or wait.
    places: Arc<Semaphore>,
    /// Partitions that changes under way may add.
    planned: Arc<AtomicUsize>,
}

/// Partitions that are about to be made; no longer counted when dropped.
#[derive(Debug)]
pub(crate) struct Planned {
    planned: Arc<AtomicUsize>,
    partitions: usize,
}

impl Drop for Planned {
    fn drop(&mut self) {
        self.planned.fetch_sub(self.partitions, Ordering::Relaxed);
    }
}

impl Changes {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        let places = config.waiting_changes.clamp(1, Semaphore::MAX_PERMITS);
        Self {
            turns: Arc::new(Semaphore::new(config.changes.clamp(1, places))),
            places: Arc::new(Semaphore::new(places)),
            planned: Arc::default(),
        }
    }
}

impl Shared {
    /// Runs `work` in a task of its own, so that a dropped connection does not cut it off, and waits.
    /// Refused when too many wait already, or when the broker stops before its turn. An outcome that
    /// does not come is unknown.
    pub(crate) async fn to_end<T: Send + 'static>(
        self: &Arc<Self>,
        name: &'static str,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Result<T, Failure> {
        let Ok(place) = Arc::clone(&self.changes.places).try_acquire_owned() else {
            let message = format!(
                "{} changes are under way or wait for their turn; try again later",
                self.config.waiting_changes
            );
            return Err(Failure::new(ErrorCode::ThrottlingQuotaExceeded, message));
        };
        let (done, outcome) = oneshot::channel();
        let shared = Arc::clone(self);
        self.env.tasks.spawn(name, async move {
            let result = match shared.turn().await {
                Some(turn) => {
                    let result = work.await;
                    drop(turn);
                    result
                }
                None => Err(Failure::new(
                    ErrorCode::ThrottlingQuotaExceeded,
                    "the broker is stopping; nothing was changed",
                )),
            };
            drop(place);
            // Whoever asked may be gone.
            let _ = done.send(result);
        });
        outcome.await.unwrap_or_else(|_| Err(Failure::of(ErrorCode::RequestTimedOut)))
    }

    /// Waits for a turn; `None` when nothing new should begin. Cancel safe.
    async fn turn(&self) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            () = self.stopping() => None,
            () = self.env.tasks.stopping() => None,
            // The semaphore is never closed.
            turn = Arc::clone(&self.changes.turns).acquire_owned() => turn.ok(),
        }
    }

    /// Whether one request may ask for so many partitions together.
    pub(crate) fn check_request_partitions(&self, partitions: i64) -> Result<(), Failure> {
        let most = self.config.max_request_partitions;
        if partitions <= i64::from(most) {
            return Ok(());
        }
        let message = format!(
            "the request asks for {partitions} new partitions; limits.request_partitions allows {most}"
        );
        Err(Failure::new(ErrorCode::InvalidPartitions, message))
    }

    /// Takes room for `partitions` more, until they are open or the change has failed.
    pub(crate) fn plan_partitions(&self, partitions: i32) -> Result<Planned, Failure> {
        let partitions = usize::try_from(partitions).unwrap_or(0);
        let planned = Arc::clone(&self.changes.planned);
        let before = planned.fetch_add(partitions, Ordering::Relaxed);
        // Gives them back where they are refused.
        let plan = Planned { planned, partitions };
        let present = self.partitions.len();
        let most = self.config.max_partitions;
        if present + before + partitions <= most {
            return Ok(plan);
        }
        let message = format!(
            "the broker has {present} partitions; {partitions} more would be above \
             limits.partitions, which is {most}"
        );
        Err(Failure::new(ErrorCode::PolicyViolation, message))
    }
}
