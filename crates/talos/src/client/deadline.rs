//! One deadline over everything that an operation does: its requests, their retries, the connections
//! opened for them. Scopes nest, and the earliest deadline holds.
//!
//! The deadline belongs to the task that works: a task that is spawned inside has none.

use std::time::Duration;

use talos_common::Clock;
use tokio::time::Instant;

/// Until when, and how long that was when the scope began (for messages).
#[derive(Clone, Copy, Debug)]
struct Scope {
    until: Instant,
    allowed: Duration,
}

tokio::task_local! {
    static SCOPE: Scope;
}

/// What remains for a step that may take `limit` by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Left {
    /// How long the step may take; zero when the time is up.
    pub time: Duration,
    /// What to name when that was too short: the limit that held, in full.
    pub allowed: Duration,
}

/// Runs `work` with a deadline of `limit` from now, or with that of the scope around it if that is
/// earlier. Nothing is cut off by this: the steps inside ask [`left`].
pub async fn within<T>(clock: &Clock, limit: Duration, work: impl Future<Output = T>) -> T {
    let until = clock.now().checked_add(limit);
    let outer = SCOPE.try_with(|scope| *scope).ok();
    let scope = match (until, outer) {
        (Some(until), Some(outer)) if outer.until <= until => outer,
        (Some(until), _) => Scope { until, allowed: limit },
        // A limit beyond all time.
        (None, Some(outer)) => outer,
        (None, None) => return work.await,
    };
    SCOPE.scope(scope, work).await
}

/// What remains of the scope, at most `limit`.
pub fn left(clock: &Clock, limit: Duration) -> Left {
    match SCOPE.try_with(|scope| *scope) {
        Ok(scope) => {
            let time = scope.until.saturating_duration_since(clock.now());
            if time < limit {
                Left { time, allowed: scope.allowed }
            } else {
                Left { time: limit, allowed: limit }
            }
        }
        Err(_) => Left { time: limit, allowed: limit },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_earliest_deadline_holds_and_names_itself() {
        let clock = Clock::system();
        let s = Duration::from_secs;
        assert_eq!(left(&clock, s(9)), Left { time: s(9), allowed: s(9) });
        within(&clock, s(10), async {
            clock.sleep(s(4)).await;
            // An inner scope can not allow more.
            within(&clock, s(60), async {
                assert_eq!(left(&clock, s(30)), Left { time: s(6), allowed: s(10) });
            })
            .await;
            within(&clock, s(2), async {
                assert_eq!(left(&clock, s(30)), Left { time: s(2), allowed: s(2) });
            })
            .await;
            clock.sleep(s(7)).await;
            assert_eq!(left(&clock, s(30)), Left { time: s(0), allowed: s(10) });
        })
        .await;
        within(&clock, Duration::MAX, async {
            assert_eq!(left(&clock, s(1)).time, s(1));
        })
        .await;
    }
}
