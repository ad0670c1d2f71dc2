//! The switches of a memory store's faults, and a count of each fault that really happened, so that
//! a test can prove that its fault was met.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use talos_common::Rng;
use tokio::sync::watch;

/// What can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Fault {
    /// A journal or published file finds no room.
    Full,
    /// An append finds no room; kills its writer.
    AppendFull,
    /// An append fails as unknown: it is durable, or only in the page cache, or nowhere.
    AppendUncertain,
    /// `fdatasync` fails: the bytes stay in the page cache, looking clean (E-H6); ends the process.
    SyncFails,
    /// An append became durable late because flushing stood still.
    Stalled,
    /// The answer to `make_dir`, `create` or `publish` is lost; half of them were applied.
    LostAnswer,
    /// A call takes 100 times as long.
    SlowCall,
    /// An append was acknowledged without being durable.
    Lie,
    /// A power loss dropped unsynced bytes wholly.
    LostWrite,
    /// A crash left a part of a write.
    TornWrite,
    /// A bit of a file was turned.
    FlippedBit,
    /// A file was made shorter.
    Cut,
    /// A file was made longer.
    Extended,
    /// A file was taken away.
    Removed,
    /// A file was put back from an older copy.
    Restored,
}

/// The faults of one memory disk. Clones share everything.
#[derive(Clone, Debug)]
pub struct Faults {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    state: Mutex<State>,
    /// Rises whenever a waiting append must look again.
    changed: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct State {
    per_million: BTreeMap<Fault, u32>,
    next: BTreeMap<Fault, u64>,
    counts: BTreeMap<Fault, u64>,
    full: bool,
    stalled: bool,
    lying: bool,
}

impl Default for Faults {
    fn default() -> Self {
        Self::new()
    }
}

impl Faults {
    /// No faults.
    pub fn new() -> Self {
        Self { inner: Arc::new(Inner { state: Mutex::default(), changed: watch::Sender::new(0) }) }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.inner.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes `fault` happen to this many of a million calls that it can happen to. For
    /// [`Fault::Full`], `AppendFull`, `AppendUncertain`, `SyncFails`, `LostAnswer` and `SlowCall`.
    pub fn set_rate(&self, fault: Fault, per_million: u32) {
        self.with(|state| state.per_million.insert(fault, per_million));
    }

    /// Makes `fault` happen to the next `calls` calls that it can happen to; same kinds as
    /// [`Faults::set_rate`].
    pub fn fail_next(&self, fault: Fault, calls: u64) {
        self.with(|state| state.next.insert(fault, calls));
    }

    /// No room for new files, until switched off. Appends to existing files go on.
    pub fn set_full(&self, full: bool) {
        self.with(|state| state.full = full);
    }

    /// Nothing more becomes durable, until switched off. Written bytes stay visible.
    pub fn set_stalled(&self, stalled: bool) {
        self.with(|state| state.stalled = stalled);
        self.wake();
    }

    /// Acknowledges appends that are in the page cache only: what checkers must find out.
    pub fn set_lying(&self, lying: bool) {
        self.with(|state| state.lying = lying);
    }

    /// Ends all rates and switches; the counts stay.
    pub fn heal(&self) {
        self.with(|state| {
            let counts = std::mem::take(&mut state.counts);
            *state = State { counts, ..State::default() };
        });
        self.wake();
    }

    /// How often `fault` happened.
    pub fn count(&self, fault: Fault) -> u64 {
        self.with(|state| state.counts.get(&fault).copied().unwrap_or(0))
    }

    /// All faults that happened, with how often.
    pub fn counts(&self) -> BTreeMap<Fault, u64> {
        self.with(|state| state.counts.clone())
    }

    pub(super) fn note(&self, fault: Fault) {
        self.with(|state| *state.counts.entry(fault).or_default() += 1);
    }

    /// Whether `fault` happens now; counts it.
    pub(super) fn roll(&self, fault: Fault, rng: &Rng) -> bool {
        let happens = self.with(|state| match state.next.get_mut(&fault) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            Some(_) | None => {
                let rate = state.per_million.get(&fault).copied().unwrap_or(0);
                (fault == Fault::Full && state.full) || (rate > 0 && rng.chance(rate))
            }
        });
        if happens {
            self.note(fault);
        }
        happens
    }

    pub(super) fn stalled(&self) -> bool {
        self.with(|state| state.stalled)
    }

    pub(super) fn lying(&self) -> bool {
        self.with(|state| state.lying)
    }

    pub(super) fn wake(&self) {
        self.inner.changed.send_modify(|version| *version += 1);
    }

    pub(super) fn watch(&self) -> watch::Receiver<u64> {
        self.inner.changed.subscribe()
    }
}
