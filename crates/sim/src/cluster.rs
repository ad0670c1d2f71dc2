//! The world and the broker's process in it: started, killed, robbed of power, stopped, started again.
//!
//! What outlives a process (disk, metadata, network) belongs to the [`World`]; a process has its own
//! tasks and its own handle on the disk, and ends with both.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::registry::Registry;
use talos_broker::{Broker, BrokerConfig, Ended};
use talos_common::{BrokerDir, Clock, Env, Rng, Tasks, TopicPartitionId};
use talos_log::LogOptions;
use talos_meta::{MemoryMeta, Meta, MetaSnapshot};
use talos_storage::MemoryStorage;
use talos_storage::memory::Crash;
use tokio::sync::watch;

use crate::chaos::Wall;
use crate::damage::{self, Known};
use crate::history::{Recorder, What};
use crate::network::Network;
use crate::observed::{Counts, observed};
use crate::plan::{Ending, Plan};
use crate::planted;

/// Starts that may fail one after the other once the faults are over.
const HEALED_STARTS: u32 = 20;
/// Starts that may fail one after the other in one life while faults happen.
const FAULTY_STARTS: u32 = 6;

/// More changes than a disk sees.
const NEVER: u64 = 1 << 60;

/// Where a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Faults happen, processes end.
    Faulty,
    /// Everything works; each client goes for its aim.
    Healed,
    /// All clients are done or given up.
    Over,
}

/// Of each partition the offset of a ghost.
pub(crate) type Ghosts = Arc<Mutex<BTreeMap<TopicPartitionId, i64>>>;

/// What outlives processes.
#[derive(Debug)]
pub struct World {
    /// Time, chance, and the tasks that are not the broker's.
    pub env: Env,
    /// The disk.
    pub disk: MemoryStorage,
    /// The metadata.
    pub tree: MemoryMeta,
    /// The network.
    pub network: Network,
    /// What happened.
    pub recorder: Recorder,
    /// The settings.
    pub plan: Plan,
    /// How often each way of ending a process, and each other thing, really happened.
    pub met: BTreeMap<String, u64>,
    pub(crate) known: Known,
    pub(crate) rng: Rng,
    starts: u64,
    pub(crate) wall: Arc<Wall>,
    /// What the log and clients met.
    pub(crate) counts: Counts,
    /// Where the last process left ghosts, for who deletes records.
    pub(crate) ghosts: Ghosts,
    /// The metadata as they were while the last healthy process served.
    pub(crate) earlier: Option<Earlier>,
}

/// The metadata at some moment of a process.
#[derive(Debug)]
pub(crate) struct Earlier {
    pub(crate) snapshot: MetaSnapshot,
    /// The moments between which the process served on them.
    pub(crate) served: Range<usize>,
}

/// One process.
#[derive(Debug)]
pub struct Process {
    pub(crate) broker: Broker,
    pub(crate) env: Env,
    pub(crate) storage: MemoryStorage,
}

/// How a life went.
enum Life {
    Over,
    Ended(Ended),
    Panicked(&'static str),
}

impl World {
    /// An empty world.
    pub fn new(env: Env, plan: Plan) -> Self {
        // The disk's clock is right whatever the broker's shows (E-R2).
        let disk_env = Env { clock: Clock::simulated(env.clock.wall_ms()), ..env.clone() };
        let disk = MemoryStorage::new(&disk_env, plan.disk.clone());
        let tree = MemoryMeta::new(&env);
        let network = Network::new(&env);
        let recorder = Recorder::new(env.clock.clone());
        let rng = env.rng.fork();
        let (met, known, earlier) = (BTreeMap::new(), Known::default(), None);
        Self {
            env,
            disk,
            tree,
            network,
            recorder,
            plan,
            met,
            known,
            rng,
            starts: 0,
            wall: Arc::default(),
            counts: Counts::default(),
            ghosts: Ghosts::default(),
            earlier,
        }
    }

    /// Counts something that happened.
    pub(crate) fn meet(&mut self, what: impl Into<String>) {
        *self.met.entry(what.into()).or_default() += 1;
    }

    fn config(&self) -> BrokerConfig {
        BrokerConfig {
            num_partitions: 1,
            auto_create_topics_enable: false,
            offsets_topic_num_partitions: 2,
            group_snapshot_bytes: 1 << 10,
            group_initial_rebalance_delay_ms: 100,
            group_min_session_timeout_ms: 1_000,
            log_retention_check_interval: Duration::from_millis(700),
            requests_in_flight: 16,
            receive_bytes: 1 << 20,
            answer_bytes: self.plan.answer_bytes,
            send_stall_timeout: Duration::from_secs(10),
            stop_step_timeout: Duration::from_secs(5),
            log: LogOptions {
                lane_bytes: self.plan.lane_bytes,
                tail_cache_bytes: self.plan.tail_cache_bytes,
                sort_bytes: self.plan.sort_bytes,
                segment_bytes: self.plan.segment_bytes,
                ..LogOptions::DEFAULT
            },
            ..BrokerConfig::default()
        }
    }

    fn ended(&mut self, how: &str) {
        self.meet(format!("process {how}"));
        self.recorder.note(format!("process over: {how}"));
    }

    /// Starts a process; a crash that was planned for it may come first. `None`: it did not start, and
    /// is gone.
    pub(crate) async fn start(&mut self, storage: MemoryStorage) -> Option<Process> {
        self.starts += 1;
        let env = Env { tasks: Tasks::new(), rng: self.env.rng.fork(), ..self.env.clone() };
        let store = observed(Arc::new(storage.clone()), self.counts.clone());
        let store = planted::store(self.plan.planted, store, &env, self.starts);
        let tree = planted::meta(self.plan.planted, Arc::new(self.tree.handle()), self.starts);
        let meta = Meta::new(tree, env.clone());
        let mut registry = Registry::default();
        let started = {
            let start = Broker::start(self.config(), env.clone(), store, meta, &mut registry);
            tokio::select! {
                biased;
                () = storage.crashed() => None,
                task = env.tasks.panicked() => {
                    self.recorder.push(What::Broken(format!("panic in task {task}")));
                    None
                }
                started = start => Some(started),
            }
        };
        match started {
            Some(Ok(broker)) => {
                self.recorder.note(format!("started {}", broker.dir()));
                let accept = {
                    let broker = broker.clone();
                    move |io| broker.serve_connection(io, "127.0.0.1:1".into())
                };
                let accept =
                    planted::accept(self.plan.planted, Arc::new(accept), &self.env, self.starts);
                self.network.listen(Some(accept));
                Some(Process { broker, env, storage })
            }
            Some(Err(error)) => {
                self.recorder.note(format!("start failed: {error}"));
                storage.crash_after(NEVER, Crash::Kill);
                storage.crash(Crash::Kill);
                env.tasks.abort();
                None
            }
            None => {
                env.tasks.abort();
                None
            }
        }
    }

    /// Ends what is left of a process.
    pub(crate) async fn bury(&mut self, process: Process) {
        if process.broker.metrics().retention_advances.get() > 0 {
            self.meet("log retention");
        }
        process.storage.crash_after(NEVER, Crash::Kill);
        self.network.listen(None);
        process.storage.crash(Crash::Kill);
        process.env.tasks.abort();
        drop(process);
        // Its tasks are dropped when they are next looked at.
        tokio::task::yield_now().await;
    }

    /// One life of the process, from its start to the end that is planned for it.
    pub async fn life(&mut self, ending: Ending) {
        let time = Duration::from_millis(self.rng.u64(20..2_000));
        let mut process = None;
        for _ in 0..FAULTY_STARTS {
            let storage = self.disk.handle_for_new_process();
            let steps = self.rng.u64(1..250);
            // A plan of an earlier life that did not come to it must not hit this one.
            storage.crash_after(NEVER, Crash::Kill);
            match ending {
                Ending::KillAtStep => storage.crash_after(steps, Crash::Kill),
                Ending::PowerLossAtStep => storage.crash_after(steps, Crash::PowerLoss),
                Ending::Kill | Ending::PowerLoss | Ending::Stop => {}
            }
            process = self.start(storage).await;
            if process.is_some() {
                break;
            }
            self.ended("while starting");
            self.env.clock.sleep(Duration::from_millis(self.rng.u64(1..200))).await;
        }
        let Some(process) = process else { return };
        let lived = match self.live(&process, time / 2).await {
            Life::Over => {
                self.remember_files(process.broker.dir());
                self.live(&process, time / 2).await
            }
            other => other,
        };
        match lived {
            Life::Over => {}
            Life::Ended(Ended::Fatal(why)) => self.ended_by_itself("flush failed", &why),
            Life::Ended(Ended::Fenced(why)) => {
                self.recorder.push(What::Broken(format!("fenced without a second broker: {why}")));
            }
            Life::Panicked(task) => {
                self.recorder.push(What::Broken(format!("panic in task {task}")));
            }
        }
        let dir = process.broker.dir();
        self.end(process, ending).await;
        if self.plan.trim_at_ghosts {
            let ghosts = damage::ghosts(&self.disk, dir);
            if !ghosts.is_empty() {
                self.meet("ghost of an older leader epoch");
                self.recorder.note(format!("ghosts: {ghosts:?}"));
            }
            *self.ghosts.lock().unwrap_or_else(PoisonError::into_inner) = ghosts;
        }
        self.env.clock.sleep(Duration::from_millis(self.rng.u64(1..200))).await;
    }

    /// Copies a directory's files as they are now: to be put back later.
    fn remember_files(&mut self, dir: BrokerDir) {
        if !self.plan.kinds.damage {
            return;
        }
        let files = self.disk.files().into_iter().filter(|path| path.dir() == Some(dir));
        let copies = files.filter_map(|path| self.disk.copy(&path).map(|copy| (path, copy)));
        let copies: Vec<_> = copies.collect();
        self.known.copies.extend(copies);
    }

    fn ended_by_itself(&mut self, how: &str, why: &str) {
        self.recorder.note(why.to_owned());
        self.ended(how);
    }

    async fn live(&self, process: &Process, time: Duration) -> Life {
        tokio::select! {
            biased;
            () = process.storage.crashed() => Life::Over,
            ended = process.broker.ended() => Life::Ended(ended),
            task = process.env.tasks.panicked() => Life::Panicked(task),
            () = self.env.clock.sleep(time) => Life::Over,
        }
    }

    /// Ends a process as planned (it may be dead already).
    pub(crate) async fn end(&mut self, process: Process, ending: Ending) {
        match ending {
            Ending::Kill => self.ended("kill"),
            Ending::PowerLoss => {
                process.storage.crash(Crash::PowerLoss);
                self.ended("power loss");
            }
            Ending::Stop => {
                let stopped = tokio::select! {
                    biased;
                    () = process.storage.crashed() => None,
                    task = process.env.tasks.panicked() => {
                        self.recorder.push(What::Broken(format!("panic in task {task}")));
                        None
                    }
                    stopped = process.broker.stop() => Some(stopped),
                };
                match stopped {
                    Some(Ok(())) => {
                        self.known.clean.insert(process.broker.dir());
                        self.ended("clean stop");
                    }
                    Some(Err(error)) => self.ended_by_itself("unclean stop", &error.to_string()),
                    None => self.ended("while stopping"),
                }
            }
            Ending::KillAtStep | Ending::PowerLossAtStep => {
                // It may be still alive: then the step comes while it stops, or not at all.
                let alive = self.env.clock.timeout(Duration::ZERO, process.storage.crashed()).await;
                if alive.is_none() {
                    let stop = process.broker.stop();
                    tokio::select! {
                        biased;
                        () = process.storage.crashed() => {}
                        stopped = stop => if stopped.is_ok() {
                            self.known.clean.insert(process.broker.dir());
                        },
                    }
                    self.ended("step while stopping");
                } else {
                    self.ended(if ending == Ending::KillAtStep {
                        "kill at step"
                    } else {
                        "power loss at step"
                    });
                }
            }
        }
        self.bury(process).await;
    }

    /// Runs processes without faults until `phase` is over. Gives the last one.
    pub async fn serve_healed(&mut self, phase: &mut watch::Receiver<Phase>) -> Option<Process> {
        let mut failed = 0;
        while failed < HEALED_STARTS && *phase.borrow() != Phase::Over {
            let storage = self.disk.handle_for_new_process();
            let Some(process) = self.start(storage).await else {
                failed += 1;
                self.env.clock.sleep(Duration::from_millis(250)).await;
                continue;
            };
            let snapshot_after = Duration::from_millis(self.rng.u64(0..1_500));
            let (clock, tree) = (self.env.clock.clone(), self.tree.handle());
            let (earlier, recorder) = (&mut self.earlier, self.recorder.clone());
            let snapshot = async {
                let started = recorder.moment();
                clock.sleep(snapshot_after).await;
                let served = started..recorder.moment();
                *earlier = Some(Earlier { snapshot: tree.snapshot(), served });
                std::future::pending::<String>().await
            };
            let ended = tokio::select! {
                biased;
                // The sender outlives this call.
                _ = phase.wait_for(|phase| *phase == Phase::Over) => return Some(process),
                ended = process.broker.ended() => format!("{ended:?}"),
                task = process.env.tasks.panicked() => format!("panic in task {task}"),
                ended = snapshot => ended,
            };
            failed += 1;
            self.recorder.push(What::Broken(format!("ended without faults: {ended}")));
            self.bury(process).await;
        }
        None
    }

    /// Ends the healed process as planned.
    pub async fn end_healed(&mut self, process: Option<Process>) {
        if let Some(process) = process {
            let ending = self.plan.last_ending;
            self.end(process, ending).await;
        }
    }

    /// Starts the process that is read from for the last time.
    pub async fn start_for_the_last_time(&mut self) -> Option<Process> {
        let storage = self.disk.handle_for_new_process();
        let process = self.start(storage).await;
        if process.is_none() {
            self.recorder.push(What::Broken("the last start failed without faults".into()));
        }
        process
    }

    /// Ends the last process and all tasks.
    pub async fn finish(&mut self, process: Option<Process>) {
        if let Some(process) = process {
            self.bury(process).await;
        }
        self.env.tasks.abort();
        tokio::task::yield_now().await;
    }
}
