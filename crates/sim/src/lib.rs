//! A whole broker on virtual time in one thread, from a seed: the real code of the broker, its log and
//! its metadata, over a memory disk and a metadata tree with faults, and a network that is no better.
//!
//! ```text
//! seed → plan → world (disk, metadata, network) ← chaos turns faults on and off
//!                 ↑ process: started, killed, robbed of power, stopped      (cluster)
//!                 ↑ clients: producers, consumers, group members, admin     → history → checkers
//! ```
//!
//! A run has three parts: faults and ends of processes; then all faults heal, and every client must
//! reach its aim in bounded virtual time; then one more restart, and everything is read. Invariant: a
//! run depends on its [`Plan`] alone, so two runs of one seed have equal histories.

mod aftermath;
mod chaos;
pub mod checkers;
mod clients;
pub mod cluster;
mod damage;
pub mod history;
pub mod network;
mod observed;
pub mod plan;
pub mod planted;
mod verify;
pub mod wire;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use talos_common::{Env, Tasks};
use tokio::sync::watch;

use crate::chaos::Chaos;
use crate::checkers::Violation;
use crate::clients::Client;
use crate::cluster::{Phase, World};
use crate::history::{Event, What};
pub use crate::plan::Plan;

/// Wall time at which each run begins, in milliseconds.
const START_MS: i64 = 1_700_000_000_000;
/// How much virtual time clients have once the faults are healed.
const HEALED_TIME: Duration = Duration::from_secs(60);

/// What a run gave.
#[derive(Clone, Debug)]
pub struct Report {
    /// Of which plan.
    pub plan: Plan,
    /// Everything that happened.
    pub history: Vec<Event>,
    /// Every kind of fault that really happened, and how often.
    pub faults: BTreeMap<String, u64>,
    /// What the checkers found.
    pub violations: Vec<Violation>,
}

impl Report {
    /// For comparing two runs.
    pub fn fingerprint(&self) -> u64 {
        history::fingerprint(&self.history)
    }

    /// For people: what is wrong, and the one command that shows it again.
    pub fn verdict(&self) -> String {
        let seed = self.plan.seed;
        if self.violations.is_empty() {
            return format!("seed {seed}: {} events, nothing wrong", self.history.len());
        }
        let mut text = format!("seed {seed}: {} violations\n", self.violations.len());
        for violation in self.violations.iter().take(12) {
            let Violation { checker, moment, detail } = violation;
            let detail: String = detail.chars().take(400).collect();
            text += &format!("  {checker} at event {moment}: {detail}\n");
        }
        text + &format!("  again, with all events: cargo run -p talos-sim -- --seed {seed} --trace")
    }
}

/// Runs a plan. Blocks; starts a runtime of its own, so call it outside of any.
///
/// # Errors
/// Only when the runtime can not be made.
pub fn run(plan: Plan) -> std::io::Result<Report> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    Ok(runtime.block_on(run_plan(plan)))
}

/// Runs the plan of `seed`.
///
/// # Errors
/// As [`run`].
pub fn run_seed(seed: u64) -> std::io::Result<Report> {
    run(Plan::of_seed(seed))
}

async fn run_plan(plan: Plan) -> Report {
    let env = Env::simulated(plan.seed, START_MS);
    let mut world = World::new(env, plan.clone());
    let (phase, mut phases) = watch::channel(Phase::Faulty);
    if world.plan.answer_bytes < plan::AMPLE_BYTES {
        world.recorder.push(What::Tight);
    }
    let storm = Tasks::new();
    let chaos = Chaos::new(&world);
    storm.spawn("chaos", chaos.run());
    let clients = Tasks::new();
    let names = start_clients(&world, &clients, &phases);
    for ending in plan.lives.clone() {
        world.life(ending).await;
    }
    storm.abort();
    chaos::heal(&world);
    world.damaged(&phases).await;
    world.recorder.note("healed");
    phase.send_replace(Phase::Healed);
    let (clock, recorder) = (world.env.clock.clone(), world.recorder.clone());
    let aims = async {
        let in_time = clock.timeout(HEALED_TIME, clients.join()).await.is_some();
        recorder.note(if in_time { "all clients ended" } else { "time is up" });
        phase.send_replace(Phase::Over);
    };
    let (process, ()) = tokio::join!(world.serve_healed(&mut phases), aims);
    clients.abort();
    let history = world.recorder.history();
    for name in names {
        let done = |event: &Event| matches!(&event.what, What::Done(who) if *who == name);
        if !history.iter().any(done) {
            world.recorder.push(What::Stuck(name));
        }
    }
    world.end_healed(process).await;
    let older = world.with_older_metadata(&phases).await;
    let process = world.start_for_the_last_time().await;
    if process.is_some() {
        let reader = Client::new(1_000, &world.env, &world.network, &world.recorder, &phases);
        verify::read_everything(reader).await;
    }
    world.finish(process).await;
    let mut history = world.recorder.history();
    aftermath::compare(&mut history, older);
    let mut faults = chaos::counts(&world);
    faults.extend(history::counts(&history));
    let violations = checkers::check_all(&history);
    Report { plan, history, faults, violations }
}

/// Starts all clients, and gives the names under which they say that they are done.
fn start_clients(world: &World, tasks: &Tasks, phases: &watch::Receiver<Phase>) -> Vec<String> {
    let client = |id| Client::new(id, &world.env, &world.network, &world.recorder, phases);
    let plan = &world.plan;
    let mut names = vec!["admin 0".to_owned()];
    let ghosts = plan.trim_at_ghosts.then(|| Arc::clone(&world.ghosts));
    tasks.spawn("admin", clients::admin::run(client(0), ghosts));
    for id in 10..10 + plan.producers {
        names.push(format!("producer {id}"));
        tasks.spawn("producer", clients::producer::run(client(id), plan.clone()));
    }
    for id in 20..20 + plan.consumers {
        names.push(format!("consumer {id}"));
        tasks.spawn("consumer", clients::consumer::run(client(id)));
    }
    let has_groups =
        talos_broker::served().iter().any(|api| api.key == talos_protocol::ApiKey::JoinGroup);
    if has_groups {
        for id in 30..30 + plan.members {
            names.push(format!("member {id}"));
            tasks.spawn("member", clients::member::run(client(id), 1));
        }
    }
    names
}
