//! Bugs planted from outside, by wrappers around the store, the metadata and the network: proof that
//! the checkers find what they are for. Nothing in the product knows of them.

mod meta;
mod proxy;
mod store;

use std::sync::Arc;

use talos_common::Env;
use talos_meta::MetaStore;
use talos_storage::Storage;
use talos_storage::memory::{Latency, Layout, MemoryOptions};

use crate::network::Accept;
use crate::plan::{Ending, Kinds, Plan};

/// A bug.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Planted {
    /// What is acknowledged is in the page cache only. The store lies.
    AcknowledgeBeforeFlush,
    /// One produce request in a thousand is answered as if it had been stored, and is not. In the network.
    DropABatch,
    /// Appends are visible before they are written. A writer that resolves early.
    VisibleBeforeWritten,
    /// At times an answer has records past the watermark that it states. In the network.
    ServePastTheWatermark,
    /// After a restart a producer's sequence numbers are forgotten. In the network: each start of the
    /// broker sees other producer ids.
    ForgetTheDedupeState,
    /// What lies behind a damaged place of an old journal does not count. A store that shows zeros.
    TornMiddleAsTornEnd,
    /// A root is forgotten at a restart, and with it the log start and the end offset. In the metadata.
    EndOffsetBackToZero,
    /// Recovery takes a ghost of an older leader epoch for the truth: nothing bounds the older epochs
    /// (E-W14), because frames in the store do not say where their leader epoch starts, and roots in the
    /// metadata not of which epoch their last record is.
    AdoptAGhost,
    /// Journals of former broker epochs are deleted while they are still needed. In the store.
    DeleteJournalTooEarly,
}

/// All of them.
pub const ALL: [Planted; 9] = [
    Planted::AcknowledgeBeforeFlush,
    Planted::DropABatch,
    Planted::VisibleBeforeWritten,
    Planted::ServePastTheWatermark,
    Planted::ForgetTheDedupeState,
    Planted::TornMiddleAsTornEnd,
    Planted::EndOffsetBackToZero,
    Planted::DeleteJournalTooEarly,
    Planted::AdoptAGhost,
];

impl Planted {
    /// A plan in which the bug can show, and nothing else goes wrong.
    pub fn plan(self, seed: u64) -> Plan {
        let honest = calm(seed, self);
        Plan { planted: Some(self), ..honest }
    }

    /// The same plan without the bug.
    pub fn control(self, seed: u64) -> Plan {
        calm(seed, self)
    }
}

fn calm(seed: u64, bug: Planted) -> Plan {
    let none = Kinds {
        store: false,
        full: false,
        stall: false,
        sync: false,
        meta: false,
        // Lost answers make producers send again.
        network: bug == Planted::ForgetTheDedupeState,
        wall: false,
        pause: false,
        damage: false,
        older_metadata: false,
    };
    let ending = match bug {
        Planted::AcknowledgeBeforeFlush | Planted::AdoptAGhost => Ending::PowerLoss,
        Planted::DropABatch
        | Planted::VisibleBeforeWritten
        | Planted::ServePastTheWatermark
        | Planted::ForgetTheDedupeState
        | Planted::TornMiddleAsTornEnd
        | Planted::EndOffsetBackToZero
        | Planted::DeleteJournalTooEarly => Ending::Kill,
    };
    let plan =
        Plan { kinds: none, lives: vec![ending; 4], last_ending: ending, ..Plan::of_seed(seed) };
    match bug {
        Planted::AdoptAGhost => with_ghosts(plan),
        _ => plan,
    }
}

/// Power goes while several flushes are under way, so that a later one may be there without an earlier
/// one; and what is left of it is where the log starts when the next process dies.
fn with_ghosts(plan: Plan) -> Plan {
    let disk = MemoryOptions {
        file_bytes: 256 << 10,
        appends_in_flight: 4,
        layout: Layout::Preallocated,
        append_latency: Latency { min_us: 50, max_us: 20_000 },
        ..plan.disk
    };
    Plan {
        disk,
        lives: vec![Ending::PowerLoss; 8],
        lane_bytes: 64 << 10,
        sort_bytes: 1 << 30,
        producers: 3,
        depth: 5,
        trim_at_ghosts: true,
        ..plan
    }
}

pub(crate) fn lies(planted: Option<Planted>) -> bool {
    planted == Some(Planted::AcknowledgeBeforeFlush)
}

/// The store that the process of this start sees.
pub(crate) fn store(
    planted: Option<Planted>,
    inner: Arc<dyn Storage>,
    env: &Env,
    start: u64,
) -> Arc<dyn Storage> {
    match planted {
        Some(Planted::VisibleBeforeWritten) => store::early(inner, env),
        Some(Planted::TornMiddleAsTornEnd) => store::torn(inner, start),
        Some(Planted::DeleteJournalTooEarly) => store::deleting(inner, env),
        Some(Planted::AdoptAGhost) => store::unbounded(inner),
        Some(
            Planted::AcknowledgeBeforeFlush
            | Planted::DropABatch
            | Planted::ServePastTheWatermark
            | Planted::ForgetTheDedupeState
            | Planted::EndOffsetBackToZero,
        )
        | None => inner,
    }
}

/// The metadata that the process of this start sees.
pub(crate) fn meta(
    planted: Option<Planted>,
    inner: Arc<dyn MetaStore>,
    start: u64,
) -> Arc<dyn MetaStore> {
    match planted {
        Some(Planted::EndOffsetBackToZero) if start > 1 => meta::without_roots(inner),
        Some(Planted::AdoptAGhost) if start > 1 => meta::without_end_epochs(inner),
        Some(_) | None => inner,
    }
}

/// Who takes connections for the process of this start.
pub(crate) fn accept(planted: Option<Planted>, inner: Accept, env: &Env, start: u64) -> Accept {
    match planted {
        Some(Planted::DropABatch) => proxy::accept(inner, env, proxy::Bug::DropABatch),
        Some(Planted::ServePastTheWatermark) => {
            proxy::accept(inner, env, proxy::Bug::PastTheWatermark)
        }
        Some(Planted::ForgetTheDedupeState) => {
            proxy::accept(inner, env, proxy::Bug::OtherProducerIds(start))
        }
        Some(_) | None => inner,
    }
}
