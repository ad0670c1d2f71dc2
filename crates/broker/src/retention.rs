//! Retention by time and size: moves the log start of each partition this broker leads.
//!
//! The clock is not trusted alone (E-R2): the time that counts is the earlier of ours and the
//! store's, and when ours is ahead by more than [`SKEW_MS`] nothing is deleted. The store's time is
//! what it stamped on our own files, carried on by the monotonic clock while nothing is written.

use std::sync::Arc;

use talos_storage::Prefix;
use tokio::time::Instant;

use crate::broker::Shared;

/// Clocks that differ by more than this are not believed, in milliseconds.
const SKEW_MS: i64 = 600_000;

/// The store's clock as far as it was seen.
#[derive(Debug, Default)]
struct StoreClock {
    seen: Option<(i64, Instant)>,
}

impl StoreClock {
    /// The store's time now in milliseconds, never later than it is; `None` before anything was seen.
    fn now_ms(&self, now: Instant) -> Option<i64> {
        let (ms, at) = self.seen?;
        let since = now.saturating_duration_since(at).as_millis();
        Some(ms.saturating_add(i64::try_from(since).unwrap_or(i64::MAX)))
    }

    fn saw(&mut self, stamped_ms: i64, now: Instant) {
        if self.now_ms(now).is_none_or(|known| known < stamped_ms) {
            self.seen = Some((stamped_ms, now));
        }
    }
}

/// The task. Ends when the broker stops.
pub(crate) async fn run(shared: Arc<Shared>) {
    let mut clock = StoreClock::default();
    // At once, while the stamp of the first file is fresh.
    look(&shared, &mut clock).await;
    loop {
        tokio::select! {
            biased;
            () = shared.stopping() => return,
            () = shared.env.clock.sleep(shared.config.log_retention_check_interval) => {}
        }
        look(&shared, &mut clock).await;
        pass(&shared, &clock).await;
    }
}

async fn look(shared: &Shared, clock: &mut StoreClock) {
    match shared.storage.list(Prefix::Dir(shared.dir), None).await {
        Ok(files) => {
            if let Some(newest) = files.iter().map(|file| file.modified_ms).max() {
                clock.saw(newest, shared.env.clock.now());
            }
        }
        Err(error) => tracing::debug!(%error, "the store's clock could not be seen"),
    }
}

async fn pass(shared: &Shared, clock: &StoreClock) {
    let own_ms = shared.env.clock.wall_ms();
    let Some(store_ms) = clock.now_ms(shared.env.clock.now()) else { return };
    let trusted = own_ms.saturating_sub(store_ms).abs() <= SKEW_MS;
    if !trusted {
        tracing::warn!(own_ms, store_ms, "the clocks of broker and store differ: no retention");
    }
    let now_ms = own_ms.min(store_ms);
    let producers_before = now_ms.saturating_sub(shared.config.producer_id_expiration_ms);
    let image = shared.topics.image();
    for log in shared.partitions.open() {
        if shared.is_stopping() {
            return;
        }
        if !trusted {
            continue;
        }
        log.expire_producers(producers_before);
        let Some(cached) = image.by_id(log.id().topic) else { continue };
        // Internal topics are trimmed by their own snapshots only (E-G2).
        if crate::topics::is_internal(&cached.topic.name) {
            continue;
        }
        let config = shared.topic_config(cached);
        let before_ms = config.retention_ms.map(|keep| now_ms.saturating_sub(keep));
        let offset = log.retention_offset(before_ms, config.retention_bytes);
        if offset <= log.offsets().log_start {
            continue;
        }
        match log.advance_log_start(offset).await {
            Ok(_) => {
                shared.metrics.retention_advances.inc();
            }
            Err(error) => {
                tracing::warn!(partition = %log.id(), %error, "retention could not move a log start");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn the_stores_clock_goes_on_while_nothing_is_written() {
        let start = talos_common::Clock::simulated(0).now();
        let mut clock = StoreClock::default();
        assert_eq!(clock.now_ms(start), None);
        clock.saw(1_000, start);
        let later = start + Duration::from_secs(5);
        assert_eq!(clock.now_ms(later), Some(6_000));
        clock.saw(2_000, later);
        assert_eq!(clock.now_ms(later), Some(6_000));
        clock.saw(7_000, later);
        assert_eq!(clock.now_ms(later), Some(7_000));
    }
}
