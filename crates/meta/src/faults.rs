//! Faults of the memory store: what goes wrong is drawn from a seed or scripted, and counted, so that
//! a test can prove that it happened.

use std::collections::VecDeque;
use std::ops::RangeInclusive;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use talos_common::Rng;

use crate::store::{Error, Op, Result};

/// What happens to a transaction whose answer is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LostAnswer {
    /// It was applied.
    Applied,
    /// It never arrived.
    Dropped,
    /// It is applied after this many further calls of any client (at least one), if its
    /// preconditions hold then.
    Late(u32),
}

/// How often each fault happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultCounts {
    /// Calls that were delayed.
    pub slow: u64,
    /// Calls answered `Unavailable`.
    pub unavailable: u64,
    /// Transactions answered `Full`.
    pub full: u64,
    /// Answers lost, change applied.
    pub lost_applied: u64,
    /// Answers lost, change not applied.
    pub lost_dropped: u64,
    /// Answers lost, change applied later or refused then.
    pub lost_late: u64,
    /// Reads answered from an older state.
    pub stale_reads: u64,
}

/// The faults of one tree. Clones share the same settings and counts. Starts without any.
#[derive(Clone, Debug)]
pub struct MetaFaults {
    state: Arc<Mutex<State>>,
}

#[derive(Debug)]
struct State {
    rng: Rng,
    slow_per_million: u32,
    slow_ms: RangeInclusive<u64>,
    unavailable_per_million: u32,
    lost_per_million: u32,
    down: bool,
    full: bool,
    script: VecDeque<LostAnswer>,
    counts: FaultCounts,
}

impl MetaFaults {
    pub(crate) fn new(rng: Rng) -> Self {
        Self {
            state: Arc::new(Mutex::new(State {
                rng,
                slow_per_million: 0,
                slow_ms: 0..=0,
                unavailable_per_million: 0,
                lost_per_million: 0,
                down: false,
                full: false,
                script: VecDeque::new(),
                counts: FaultCounts::default(),
            })),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Delays this share of calls by `ms` milliseconds, half before and half after their effect.
    pub fn set_slow(&self, per_million: u32, ms: RangeInclusive<u64>) {
        let mut state = self.lock();
        state.slow_per_million = if ms.is_empty() { 0 } else { per_million };
        state.slow_ms = ms;
    }

    /// Answers this share of calls with `Unavailable`.
    pub fn set_unavailable(&self, per_million: u32) {
        self.lock().unavailable_per_million = per_million;
    }

    /// Loses the answers of this share of transactions: a third each applied, dropped, late.
    pub fn set_lost_answers(&self, per_million: u32) {
        self.lock().lost_per_million = per_million;
    }

    /// Whether every call of every client is `Unavailable`.
    pub fn set_down(&self, down: bool) {
        self.lock().down = down;
    }

    /// Whether there is no room for any change.
    pub fn set_full(&self, full: bool) {
        self.lock().full = full;
    }

    /// Loses the answer of the next transaction that has no scripted fate yet.
    pub fn lose_next(&self, fate: LostAnswer) {
        self.lock().script.push_back(fate);
    }

    /// No more faults from now on. Late changes already under way still arrive.
    pub fn heal(&self) {
        let mut state = self.lock();
        state.slow_per_million = 0;
        state.unavailable_per_million = 0;
        state.lost_per_million = 0;
        state.down = false;
        state.full = false;
        state.script.clear();
    }

    /// What happened so far.
    pub fn counts(&self) -> FaultCounts {
        self.lock().counts
    }

    /// Half of the delay of one call.
    pub(crate) fn half_delay(&self) -> Option<Duration> {
        let mut state = self.lock();
        if state.slow_per_million == 0 || !state.rng.chance(state.slow_per_million) {
            return None;
        }
        state.counts.slow += 1;
        let ms = state.rng.u64(state.slow_ms.clone());
        Some(Duration::from_micros(ms.saturating_mul(500)))
    }

    pub(crate) fn check_up(&self, connected: bool) -> Result<()> {
        let mut state = self.lock();
        let per_million = state.unavailable_per_million;
        let drawn = per_million > 0 && state.rng.chance(per_million);
        if state.down || drawn || !connected {
            state.counts.unavailable += 1;
            return Err(Error::Unavailable("simulated: no connection".into()));
        }
        Ok(())
    }

    pub(crate) fn check_room(&self, ops: &[Op]) -> Result<()> {
        let mut state = self.lock();
        if state.full && !ops.iter().all(|op| matches!(op, Op::Check { .. })) {
            state.counts.full += 1;
            return Err(Error::Full("simulated: no space left".into()));
        }
        Ok(())
    }

    /// Whether, and how, the answer of this transaction is lost.
    pub(crate) fn lost_answer(&self) -> Option<LostAnswer> {
        let mut state = self.lock();
        let scripted = state.script.pop_front();
        let per_million = state.lost_per_million;
        let fate = scripted.or_else(|| {
            (per_million > 0 && state.rng.chance(per_million)).then(|| match state.rng.u64(..3) {
                0 => LostAnswer::Applied,
                1 => LostAnswer::Dropped,
                _ => LostAnswer::Late(1 + u32::try_from(state.rng.u64(..4)).unwrap_or(0)),
            })
        })?;
        match fate {
            LostAnswer::Applied => state.counts.lost_applied += 1,
            LostAnswer::Dropped => state.counts.lost_dropped += 1,
            LostAnswer::Late(_) => state.counts.lost_late += 1,
        }
        Some(fate)
    }

    pub(crate) fn count_stale_read(&self) {
        self.lock().counts.stale_reads += 1;
    }
}
