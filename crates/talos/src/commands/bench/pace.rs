//! Due times and the clock that wakes producers.
//!
//! The runtime's timers have a grain of a millisecond, which would show in every latency. So one
//! thread of its own sleeps with the system's precision and wakes the producers at each tick.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use talos_common::Clock;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Shortest time between two wake-ups.
const SHORTEST: Duration = Duration::from_micros(200);
/// Longest time between two wake-ups: how late a record can be handed over at a low rate.
const LONGEST: Duration = Duration::from_millis(1);

/// When the records of one producer are due.
#[derive(Clone, Copy, Debug)]
pub(super) struct Schedule {
    start: Instant,
    /// Records per second of all producers.
    rate: u64,
    producers: u64,
    index: u64,
}

impl Schedule {
    /// Producer `index` of `producers` that share `rate` records per second from `start` on, in
    /// turn.
    pub(super) fn new(start: Instant, rate: u64, producers: u64, index: u64) -> Self {
        Self { start, rate: rate.max(1), producers: producers.max(1), index }
    }

    /// When record `number` (from 0) of this producer is due. Rounded down to nanoseconds from the
    /// start, never from the record before: no drift.
    pub(super) fn due(&self, number: u64) -> Instant {
        let position = u128::from(number) * u128::from(self.producers) + u128::from(self.index);
        let ns = position * 1_000_000_000 / u128::from(self.rate);
        self.start + Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX >> 8))
    }
}

/// Wakes producers at each tick until it is dropped.
pub(super) struct Ticker {
    done: Arc<AtomicBool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Ticker {
    /// Starts ticking at `rate` records per second, every 200 µs to 1 ms.
    pub(super) fn start(clock: Clock, rate: u64, woken: Vec<Arc<Notify>>) -> std::io::Result<Self> {
        let every = Duration::from_nanos(1_000_000_000 / rate.max(1)).clamp(SHORTEST, LONGEST);
        let done = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&done);
        let thread = std::thread::Builder::new().name("bench ticker".into()).spawn(move || {
            let mut next = clock.now() + every;
            while !stop.load(Ordering::Relaxed) {
                let now = clock.now();
                if now < next {
                    std::thread::park_timeout(next - now);
                    continue;
                }
                woken.iter().for_each(|producer| producer.notify_one());
                // Ticks that were missed are not made up: due times tell what to send.
                next = (next + every).max(now);
            }
        })?;
        Ok(Self { done, thread: Some(thread) })
    }
}

impl Drop for Ticker {
    fn drop(&mut self) {
        self.done.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn due_times_interleave_and_do_not_drift() {
        let start = Clock::simulated(0).now();
        let of = |index| Schedule::new(start, 3_000, 3, index);
        assert_eq!(of(0).due(0), start);
        assert_eq!(of(1).due(0) - start, Duration::from_nanos(333_333));
        assert_eq!(of(0).due(1_000) - start, Duration::from_secs(1));
        assert_eq!(of(2).due(3_000_000) - of(2).due(0), Duration::from_secs(3_000));
    }
}
