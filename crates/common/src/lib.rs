//! What at least two Talos crates need: ids, time, randomness, byte sizes, byte budgets and
//! task supervision. Nothing here knows Kafka's wire format, a store or a broker.
//!
//! Everything that a run could depend on besides its input comes in through [`Env`]: a broker built
//! on a virtual [`Clock`], a seeded [`Rng`] and a single-threaded runtime replays exactly.

pub mod budget;
pub mod clock;
pub mod ids;
pub mod offload;
pub mod rng;
pub mod size;
pub mod tasks;

pub use budget::{ByteBudget, ByteLease};
pub use clock::Clock;
pub use ids::{BrokerDir, BrokerEpoch, BrokerId, LaneId, LeaderEpoch, TopicId, TopicPartitionId};
pub use offload::Offload;
pub use rng::Rng;
pub use size::{ByteSize, Period};
pub use tasks::Tasks;

/// The surroundings of one broker. Cheap to clone; clones share everything.
#[derive(Clone, Debug)]
pub struct Env {
    /// All time.
    pub clock: Clock,
    /// All chance.
    pub rng: Rng,
    /// All tasks.
    pub tasks: Tasks,
    /// Work that keeps a processor busy.
    pub cpu: Offload,
}

impl Env {
    /// Real time, operating-system entropy, tasks on the current runtime.
    pub fn system() -> Self {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let (clock, rng) = (Clock::system(), Rng::from_entropy());
        Self { clock, rng, tasks: Tasks::new(), cpu: Offload::threads(processors) }
    }

    /// Virtual time (a paused runtime moves it) and chance from `seed`. `wall_ms` is what the wall
    /// clock shows now, in milliseconds since the Unix epoch.
    pub fn simulated(seed: u64, wall_ms: i64) -> Self {
        let (clock, rng) = (Clock::simulated(wall_ms), Rng::from_seed(seed));
        Self { clock, rng, tasks: Tasks::new(), cpu: Offload::in_place() }
    }
}
