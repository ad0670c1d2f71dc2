//! Turns faults on and off while a run is in its faulty phase, and counts which really happened.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

use talos_common::{Env, Rng};
use talos_meta::MetaFaults;
use talos_storage::memory::{Fault, Faults};

use crate::cluster::World;
use crate::history::Recorder;
use crate::network::{NetFaults, Network};
use crate::plan::{Kinds, pick};

/// Wall clock jumps, in milliseconds.
const JUMPS_MS: [i64; 6] = [-5_000, 5_000, -300_000, 300_000, -3_000_000, 3_000_000];

/// What it turns.
pub(crate) struct Chaos {
    env: Env,
    rng: Rng,
    kinds: Kinds,
    disk: Faults,
    meta: MetaFaults,
    network: Network,
    recorder: Recorder,
    wall: Arc<Wall>,
}

/// What became of the broker's wall clock.
#[derive(Debug, Default)]
pub(crate) struct Wall {
    /// How often it jumped.
    pub(crate) jumps: AtomicU64,
    /// How far it is ahead, in milliseconds.
    pub(crate) ahead_ms: AtomicI64,
    /// How often everything stood still for a while.
    pub(crate) pauses: AtomicU64,
}

impl Chaos {
    pub(crate) fn new(world: &World) -> Self {
        Self {
            env: world.env.clone(),
            rng: world.env.rng.fork(),
            kinds: world.plan.kinds,
            disk: world.disk.faults().clone(),
            meta: world.tree.faults(),
            network: world.network.clone(),
            recorder: world.recorder.clone(),
            wall: world.wall.clone(),
        }
    }

    /// Until it is dropped.
    pub(crate) async fn run(self) {
        self.steady();
        loop {
            self.env.clock.sleep(Duration::from_millis(self.rng.u64(30..500))).await;
            self.turn().await;
        }
    }

    /// The faults with a rate.
    fn steady(&self) {
        let rate = |most: u64| u32::try_from(self.rng.u64(0..most)).unwrap_or(0);
        if self.kinds.store {
            self.disk.set_rate(Fault::AppendUncertain, rate(30_000));
            self.disk.set_rate(Fault::LostAnswer, rate(150_000));
            self.disk.set_rate(Fault::SlowCall, rate(60_000));
        }
        if self.kinds.full {
            self.disk.set_rate(Fault::AppendFull, rate(20_000));
        }
        if self.kinds.sync {
            self.disk.set_rate(Fault::SyncFails, rate(4_000));
        }
        if self.kinds.meta {
            self.meta.set_unavailable(rate(15_000));
            self.meta.set_lost_answers(rate(60_000));
            self.meta.set_slow(rate(200_000), 1..=40);
        }
        if self.kinds.network {
            self.network.set_faults(NetFaults {
                cut: rate(15_000),
                delay: rate(30_000),
                chop: rate(100_000),
                slow_reader: rate(400_000),
            });
        }
    }

    /// Something that stays for a while, or ends.
    async fn turn(&self) {
        let on = self.rng.chance(200_000);
        match self.rng.u64(0..6) {
            0 if self.kinds.full => self.disk.set_full(on),
            1 if self.kinds.stall => self.disk.set_stalled(on),
            2 if self.kinds.meta => self.meta.set_down(on),
            3 if self.kinds.meta => self.meta.set_full(on),
            4 if self.kinds.wall => {
                let jump = pick(&self.rng, &JUMPS_MS);
                self.env.clock.shift_wall(jump);
                self.wall.jumps.fetch_add(1, Ordering::Relaxed);
                self.wall.ahead_ms.fetch_add(jump, Ordering::Relaxed);
                self.recorder.note(format!("the wall clock jumps by {jump} ms"));
            }
            5 if self.kinds.pause => {
                // As a virtual machine that stands still (E-R5): all that was due in between is late.
                let pause = Duration::from_millis(self.rng.u64(500..8_000));
                self.wall.pauses.fetch_add(1, Ordering::Relaxed);
                self.recorder.note(format!("everything stands still for {pause:?}"));
                tokio::time::advance(pause).await;
            }
            _ => {}
        }
    }
}

/// Ends all faults; clocks are set right.
pub(crate) fn heal(world: &World) {
    let ahead = world.wall.ahead_ms.swap(0, Ordering::Relaxed);
    world.env.clock.shift_wall(-ahead);
    world.disk.faults().heal();
    world.tree.faults().heal();
    world.network.set_faults(NetFaults::default());
    if crate::planted::lies(world.plan.planted) {
        world.disk.faults().set_lying(true);
    }
}

/// Every kind of fault that happened in `world`, with how often.
pub(crate) fn counts(world: &World) -> BTreeMap<String, u64> {
    let mut counts = BTreeMap::new();
    for (fault, count) in world.disk.faults().counts() {
        counts.insert(format!("disk {fault:?}"), count);
    }
    let meta = world.tree.faults().counts();
    let net = world.network.counts();
    let named = [
        ("meta slow", meta.slow),
        ("meta unavailable", meta.unavailable),
        ("meta full", meta.full),
        ("meta lost answer, applied", meta.lost_applied),
        ("meta lost answer, dropped", meta.lost_dropped),
        ("meta lost answer, late", meta.lost_late),
        ("network cut", net.cuts),
        ("network delay", net.delays),
        ("network chop", net.chops),
        ("network slow reader", net.slow_readers),
        ("network refused", net.refused),
    ];
    counts.extend(named.into_iter().map(|(name, count)| (name.to_owned(), count)));
    counts.insert("wall clock jump".into(), world.wall.jumps.load(Ordering::Relaxed));
    counts.insert("pause".into(), world.wall.pauses.load(Ordering::Relaxed));
    counts.extend(world.met.clone());
    counts.extend(world.counts.all());
    counts
}
