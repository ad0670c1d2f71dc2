//! The only source of time. Timers and pauses use a monotonic clock; timestamps use the wall clock.
//!
//! Both go through tokio's clock in a simulation, so that a paused runtime makes all time virtual.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// A clock. Clones show the same time.
#[derive(Clone, Debug)]
pub struct Clock {
    wall: Wall,
}

#[derive(Clone, Debug)]
enum Wall {
    System,
    /// `offset_ms` is wall time minus the monotonic time since `origin`; a test may move it.
    Simulated {
        origin: Instant,
        offset_ms: Arc<AtomicI64>,
    },
}

#[allow(clippy::disallowed_methods, reason = "the one place that reads the system's clocks")]
impl Clock {
    /// The machine's clocks.
    pub fn system() -> Self {
        Self { wall: Wall::System }
    }

    /// A wall clock that shows `wall_ms` (milliseconds since the Unix epoch) now and goes on with
    /// tokio's clock. Call it inside the runtime whose time it is to follow.
    pub fn simulated(wall_ms: i64) -> Self {
        let offset_ms = Arc::new(AtomicI64::new(wall_ms));
        Self { wall: Wall::Simulated { origin: Instant::now(), offset_ms } }
    }

    /// Monotonic time, for timeouts and intervals.
    pub fn now(&self) -> Instant {
        Instant::now()
    }

    /// Wall time in milliseconds since the Unix epoch, for timestamps. May jump either way.
    pub fn wall_ms(&self) -> i64 {
        match &self.wall {
            Wall::System => {
                let now = std::time::SystemTime::now();
                match now.duration_since(std::time::UNIX_EPOCH) {
                    Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
                    Err(before) => {
                        i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms)
                    }
                }
            }
            Wall::Simulated { origin, offset_ms } => {
                let elapsed = i64::try_from(origin.elapsed().as_millis()).unwrap_or(i64::MAX);
                offset_ms.load(Ordering::Relaxed).saturating_add(elapsed)
            }
        }
    }

    /// Moves a simulated wall clock by `delta_ms`. The system's clock is not ours to move: no effect.
    pub fn shift_wall(&self, delta_ms: i64) {
        match &self.wall {
            Wall::System => {}
            Wall::Simulated { offset_ms, .. } => {
                offset_ms.fetch_add(delta_ms, Ordering::Relaxed);
            }
        }
    }

    /// Waits for `period`. Cancel safe.
    pub async fn sleep(&self, period: Duration) {
        tokio::time::sleep(period).await;
    }

    /// Waits until `deadline`. Cancel safe.
    pub async fn sleep_until(&self, deadline: Instant) {
        tokio::time::sleep_until(deadline).await;
    }

    /// Runs `work` for at most `period`; `None` when the time was up first (`work` is dropped).
    pub async fn timeout<T>(&self, period: Duration, work: impl Future<Output = T>) -> Option<T> {
        tokio::time::timeout(period, work).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn simulated_wall_time_follows_the_runtime_and_can_be_shifted() {
        let clock = Clock::simulated(1_000);
        assert_eq!(clock.wall_ms(), 1_000);
        clock.sleep(Duration::from_millis(250)).await;
        assert_eq!(clock.wall_ms(), 1_250);
        clock.shift_wall(-2_000);
        assert_eq!(clock.wall_ms(), -750);
        let never = std::future::pending::<()>();
        assert_eq!(clock.timeout(Duration::from_secs(5), never).await, None);
    }
}
