//! What a seed decides before a run begins: the sizes, the disk, which faults are on, how processes end.
//!
//! Each seed turns some kinds of faults off altogether, so that rare orders are not drowned by common
//! faults.

use talos_common::Rng;
use talos_storage::memory::{Latency, Layout, MemoryOptions};

use crate::planted::Planted;

/// Memory that all answers of a run together do not need.
pub const AMPLE_BYTES: usize = 256 << 20;

/// How one life of the broker's process ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Ending {
    /// `kill -9` after some time.
    Kill,
    /// The machine loses power after some time.
    PowerLoss,
    /// A clean stop after some time.
    Stop,
    /// `kill -9` at the n-th change of the disk, be it while starting, serving or stopping.
    KillAtStep,
    /// Power loss at the n-th change of the disk.
    PowerLossAtStep,
}

/// All endings.
pub const ENDINGS: [Ending; 5] =
    [Ending::Kill, Ending::PowerLoss, Ending::Stop, Ending::KillAtStep, Ending::PowerLossAtStep];

/// Which faults may happen in a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// Appends with unknown outcome, lost answers, slow calls of the store.
    pub store: bool,
    /// No room on the disk, and room again.
    pub full: bool,
    /// Flushes stand still for a while.
    pub stall: bool,
    /// A flush fails and ends the process.
    pub sync: bool,
    /// Metadata that is slow, unavailable, full, or loses answers.
    pub meta: bool,
    /// Connections that are slow, chopped or cut.
    pub network: bool,
    /// The broker's wall clock jumps; those of the clients and of the disk are right.
    pub wall: bool,
    /// Everything stands still at times, and goes on late.
    pub pause: bool,
    /// Files are damaged while the broker is stopped, and put right again later.
    pub damage: bool,
    /// At the end, on a copy of everything, the metadata come back as they were earlier.
    pub older_metadata: bool,
}

/// A run's settings.
#[derive(Clone, Debug)]
pub struct Plan {
    /// All else follows from it.
    pub seed: u64,
    /// Which faults may happen.
    pub kinds: Kinds,
    /// How the process' lives end, one after the other; then the faults heal.
    pub lives: Vec<Ending>,
    /// The disk.
    pub disk: MemoryOptions,
    /// Bytes of a lane's buffer and of the tail cache.
    pub lane_bytes: usize,
    /// See [`Plan::lane_bytes`].
    pub tail_cache_bytes: usize,
    /// Bytes of closed journals that are sorted, and bytes of a partition in them that become a segment.
    pub sort_bytes: u64,
    /// See [`Plan::sort_bytes`].
    pub segment_bytes: u64,
    /// Memory of the broker for answers. With less than [`AMPLE_BYTES`] a fetch may get nothing.
    pub answer_bytes: usize,
    /// How many producers; every second one is idempotent.
    pub producers: u32,
    /// How many consumers.
    pub consumers: u32,
    /// How many members of one consumer group.
    pub members: u32,
    /// Most batches of one producer and partition in flight.
    pub depth: usize,
    /// Most bytes of one record's value.
    pub value_bytes: usize,
    /// Whether records are deleted up to where a lost process left a ghost (E-W14).
    pub trim_at_ghosts: bool,
    /// How the process ends before everything is read for the last time.
    pub last_ending: Ending,
    /// A bug to plant; `None` in honest runs.
    pub planted: Option<Planted>,
}

impl Plan {
    /// The plan of `seed`.
    pub fn of_seed(seed: u64) -> Self {
        let rng = Rng::from_seed(seed ^ 0x7a10_5000);
        let likely = || rng.chance(600_000);
        let kinds = Kinds {
            store: likely(),
            full: rng.chance(300_000),
            stall: rng.chance(300_000),
            sync: rng.chance(250_000),
            meta: likely(),
            network: likely(),
            wall: rng.chance(300_000),
            pause: rng.chance(200_000),
            damage: rng.chance(220_000),
            older_metadata: rng.chance(100_000),
        };
        let ending = || pick(&rng, &ENDINGS);
        let lives = (0..rng.usize(1..5)).map(|_| ending()).collect();
        let layouts = [Layout::Exact, Layout::Preallocated, Layout::Recycled];
        let disk = MemoryOptions {
            file_bytes: pick(&rng, &[12 << 10, 24 << 10, 64 << 10, 256 << 10]),
            appends_in_flight: rng.usize(1..5),
            layout: pick(&rng, &layouts),
            append_latency: Latency { min_us: 50, max_us: pick(&rng, &[500, 4_000, 20_000]) },
            call_latency: Latency { min_us: 10, max_us: 500 },
        };
        // Damage is to meet all kinds of files.
        let is_sorted = kinds.damage && rng.chance(600_000);
        let sort_bytes = pick(&rng, &[4 << 10, 32 << 10, 1 << 30]);
        let segment_bytes = pick(&rng, &[4 << 10, 32 << 10, 64 << 20]);
        Self {
            seed,
            kinds,
            lives,
            disk,
            lane_bytes: pick(&rng, &[6 << 10, 64 << 10]),
            tail_cache_bytes: pick(&rng, &[2 << 10, 256 << 10]),
            sort_bytes: if is_sorted { 4 << 10 } else { sort_bytes },
            segment_bytes: if is_sorted { 4 << 10 } else { segment_bytes },
            answer_bytes: pick(&rng, &[1 << 20, AMPLE_BYTES]),
            producers: u32::try_from(rng.u64(2..4)).unwrap_or(2),
            consumers: u32::try_from(rng.u64(1..3)).unwrap_or(1),
            members: u32::try_from(rng.u64(0..3)).unwrap_or(1),
            depth: rng.usize(1..6),
            value_bytes: pick(&rng, &[20, 200, 900]),
            last_ending: pick(&rng, &[Ending::Kill, Ending::PowerLoss, Ending::Stop]),
            trim_at_ghosts: rng.chance(350_000),
            planted: None,
        }
    }

    /// The same with a planted bug, and nothing else that could hide it.
    #[must_use]
    pub fn with(mut self, planted: Planted) -> Self {
        self.planted = Some(planted);
        self
    }
}

/// One of `choices`, which must not be empty.
pub(crate) fn pick<T: Copy>(rng: &Rng, choices: &[T]) -> T {
    #[allow(clippy::indexing_slicing, reason = "the range is that of the slice")]
    choices[rng.usize(..choices.len())]
}
