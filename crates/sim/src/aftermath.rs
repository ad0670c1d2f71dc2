//! Lives of the broker on damaged files, and on metadata that came back as they were earlier.
//!
//! Nothing else goes wrong in them, so what must hold is exact: the broker starts, serves each partition
//! whole or says that it can not, and after the files are put right everything is there again.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use talos_common::{Env, Tasks, TopicPartitionId};
use talos_meta::MemoryMeta;
use talos_protocol::ErrorCode;
use tokio::sync::watch;

use crate::clients::{CHURN, Client};
use crate::cluster::{Phase, Process, World};
use crate::damage::{self, Damage};
use crate::history::{Data, Event, Recorder, What};
use crate::network::Network;
use crate::plan::{Ending, pick};
use crate::verify::{Unread, read_everything, read_what_is_served};

/// Starts that may fail one after the other on damaged files: none does for ever.
const STARTS: u32 = 3;
/// How often something to damage is looked for.
const DRAWS: u32 = 8;
/// Of a million excused damages this many are kept, the others drawn again: so most seeds have none.
const KEEP_EXCUSED: u32 = 200_000;

/// What a broker on older metadata served.
pub(crate) struct Served {
    /// When the broker before it served on these metadata: what it served then it had claimed in them.
    since: Range<usize>,
    /// Of each partition its records, or why not.
    parts: BTreeMap<TopicPartitionId, Result<Data, String>>,
}

impl World {
    /// Damages files of the stopped broker, lets it live on them, and puts them right.
    pub(crate) async fn damaged(&mut self, phases: &watch::Receiver<Phase>) {
        if !self.plan.kinds.damage {
            return;
        }
        let Some(damage) = self.inflict() else { return };
        damage.met.iter().for_each(|met| self.meet(format!("damage: {met}")));
        if !damage.excused.is_empty() {
            self.meet("damage that nothing shows");
        }
        let excused = damage.excused.iter().copied().collect();
        self.recorder.push(What::Damaged { what: damage.describe(), excused });
        for _ in 0..self.rng.u64(1..4) {
            self.damaged_life(&damage, phases).await;
        }
        damage.repair(&self.disk);
        self.recorder.note("the damage is put right");
    }

    fn inflict(&mut self) -> Option<Damage> {
        for _ in 0..DRAWS {
            let layout = self.plan.disk.layout;
            let Some(damage) = damage::inflict(&self.disk, layout, &self.known, &self.rng) else {
                continue;
            };
            if damage.excused.is_empty() || self.rng.chance(KEEP_EXCUSED) {
                return Some(damage);
            }
            damage.repair(&self.disk);
        }
        None
    }

    async fn damaged_life(&mut self, damage: &Damage, phases: &watch::Receiver<Phase>) {
        let mut process = None;
        for _ in 0..STARTS {
            process = self.start(self.disk.handle_for_new_process()).await;
            if process.is_some() {
                break;
            }
            self.env.clock.sleep(Duration::from_millis(20)).await;
        }
        let Some(process) = process else {
            match damage.stops_everything() {
                true => self.meet("start refused on a damaged store"),
                false => self.broken(format!("no start on {}", damage.describe())),
            }
            return;
        };
        if damage.stops_everything() {
            self.broken(format!("started on {}", damage.describe()));
        }
        if process.broker.partition_counts().1 > 0 {
            self.meet("recovery with damage");
        }
        let (judge, time) = (self.judge(phases), Duration::from_millis(self.rng.u64(50..800)));
        let (ended, served) = {
            let clock = self.env.clock.clone();
            let judging = async {
                clock.sleep(time).await;
                let mut judge = judge;
                read_what_is_served(&mut judge).await
            };
            tokio::select! {
                biased;
                ended = process.broker.ended() => (Some(format!("{ended:?}")), Vec::new()),
                task = process.env.tasks.panicked() => {
                    (Some(format!("panic in task {task}")), Vec::new())
                }
                served = judging => (None, served),
            }
        };
        if let Some(ended) = ended {
            self.broken(format!("the broker ended on {}: {ended}", damage.describe()));
        }
        for (name, tp, data) in served {
            if let Err(why) = data {
                self.refused(damage, name, tp, &why);
            }
        }
        self.end_damaged(process).await;
    }

    async fn end_damaged(&mut self, process: Process) {
        let ending = pick(&self.rng, &[Ending::Kill, Ending::PowerLoss, Ending::Stop]);
        self.end(process, ending).await;
    }

    /// A partition was not served: that must be because of the damage, and said in the right words.
    fn refused(&mut self, damage: &Damage, name: &str, tp: TopicPartitionId, why: &Unread) {
        if name == CHURN {
            // It may be deleted at any time.
            return;
        }
        let right = match why {
            Unread::Code(_, code) => is_refusal(*code),
            Unread::Other(_) => false,
        };
        let may = damage.may_refuse.as_ref().is_none_or(|may| may.contains(&tp));
        match right && may {
            true => self.meet("partition refused because of damage"),
            false => {
                let damage = damage.describe();
                self.broken(format!("{name} {tp}: {why} (may be refused: {may}); {damage}"));
            }
        }
    }

    fn judge(&self, phases: &watch::Receiver<Phase>) -> Client {
        Client::new(1_001, &self.env, &self.network, &self.recorder, phases)
    }

    fn broken(&self, what: String) {
        self.recorder.push(What::Broken(what));
    }

    /// What a broker serves on a copy of the stopped disk when the metadata are as they were earlier
    /// (E-J14). Nothing of the real disk and metadata changes.
    pub(crate) async fn with_older_metadata(
        &mut self,
        phases: &watch::Receiver<Phase>,
    ) -> Option<Served> {
        let earlier = self.earlier.take().filter(|_| self.plan.kinds.older_metadata)?;
        self.meet("metadata from an older copy");
        let env = Env { tasks: Tasks::new(), rng: self.env.rng.fork(), ..self.env.clone() };
        let tree = MemoryMeta::new(&env);
        tree.restore(&earlier.snapshot);
        let mut copy = World::new(env.clone(), self.plan.clone());
        copy.recorder = Recorder::new(env.clock.clone());
        copy.disk = self.disk.fork(&env);
        copy.tree = tree;
        copy.network = Network::new(&env);
        let Some(process) = copy.start(copy.disk.handle_for_new_process()).await else {
            // A refusal, if it says so.
            self.recorder.note("no start on older metadata");
            copy.finish(None).await;
            return None;
        };
        read_everything(Client::new(1_002, &env, &copy.network, &copy.recorder, phases)).await;
        copy.finish(Some(process)).await;
        let mut parts = BTreeMap::new();
        for event in copy.recorder.history() {
            if let What::Final { tp, data } = event.what {
                let how = if data.is_ok() { "served" } else { "refused" };
                self.meet(format!("partition {how} on older metadata"));
                parts.insert(tp, data);
            }
        }
        Some(Served { since: earlier.served, parts })
    }
}

/// The codes of a partition that can not be served.
fn is_refusal(code: i16) -> bool {
    code == ErrorCode::KafkaStorageError.code() || code == ErrorCode::LeaderNotAvailable.code()
}

/// Partitions that a process claimed before the end of `since`: it answered for them.
fn claimed(history: &[Event], since: &Range<usize>) -> BTreeSet<TopicPartitionId> {
    let events = history.iter().take(since.end).skip(since.start);
    let of = |event: &Event| match &event.what {
        What::Fetched { begun, parts, .. } if *begun >= since.start => {
            parts.iter().filter(|part| part.data.is_ok()).map(|part| part.tp).collect()
        }
        What::Listed { begun, tp, .. } if *begun >= since.start => vec![*tp],
        _ => Vec::new(),
    };
    events.flat_map(of).collect()
}

/// Older metadata may bring deleted records back and may have partitions refused; what is served is the
/// truth, and not shorter than it.
pub(crate) fn compare(history: &mut Vec<Event>, served: Option<Served>) {
    let Some(served) = served else { return };
    let claimed = claimed(history, &served.since);
    let mut wrong = Vec::new();
    for event in history.iter() {
        let What::Final { tp, data: Ok(truth) } = &event.what else { continue };
        let Some(Ok(older)) = served.parts.get(tp).filter(|_| claimed.contains(tp)) else {
            continue;
        };
        let theirs: BTreeMap<i64, &str> = older.records.iter().map(|(at, v)| (*at, &**v)).collect();
        let differs = truth.records.iter().filter(|(at, _)| *at >= older.log_start);
        let differs: Vec<_> =
            differs.filter(|(at, value)| theirs.get(at) != Some(&&**value)).collect();
        if older.high_watermark < truth.high_watermark || !differs.is_empty() {
            let (end, was) = (older.high_watermark, truth.high_watermark);
            let first = differs.first();
            let text = format!(
                "older metadata: {tp} ends at {end}, not {was}; the first that differs: {first:?}"
            );
            wrong.push(Event { at_us: event.at_us, what: What::Broken(text) });
        }
    }
    history.append(&mut wrong);
}
