//! The coordinator of one partition of `__consumer_offsets` during one leader epoch: loads the
//! partition's state, drives its [`Shard`] with time and appends, and answers.
//!
//! Order: accepted (the shard took the request) → durable (its append was) → visible → answered.
//! One append is under way at a time; what comes meanwhile goes into the next, so appends follow the
//! speed of the log, not the number of requests.
//!
//! A coordinator ends for good when its leadership does (E-G3, E-W13), when an append has an unknown
//! outcome (the log is the truth then, and is loaded anew), or when its log cannot be read: then its
//! groups are COORDINATOR_NOT_AVAILABLE. Requests that were accepted before and have no outcome are
//! answered REQUEST_TIMED_OUT (P4); so are those whose write is not known to be durable after
//! [`Config::commit_timeout`]: it goes on, and may have its effect later.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use talos_common::{ByteBudget, ByteLease, Clock, Env, LeaderEpoch, Rng, TopicId};
use tokio::sync::{Notify, oneshot, watch};
use tokio::time::Instant;

use super::api::{
    Code, CommitRequest, DescribedGroup, FetchRequest, FetchedOffset, HeartbeatRequest,
    JoinRequest, JoinResponse, LeaveMember, LeaveResponse, ListedGroup, OffsetDeleteResponse,
    SyncRequest, SyncResponse, Text,
};
use super::offset_log::OffsetLog;
use super::shard::{Config, Shard};
use super::state::{Now, Reply, Token};

mod drive;

/// Why there is no answer from the shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Absent {
    /// The state is being read.
    Loading,
    /// Ended before the request was accepted, or with the certainty that it had no effect.
    Ended,
    /// Ended because the log cannot be read.
    Unreadable,
    /// The request was accepted, and may have had its effect, or have it later.
    Unknown,
}

/// Why a coordinator ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// Nothing that was accepted and not answered had an effect.
    Certain,
    /// It may have.
    Unknown,
    /// The log cannot be read.
    Unreadable,
}

/// [`Phase`] for those who wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    Loading,
    Serving,
    Ended,
}

#[derive(Debug)]
enum Phase {
    Loading,
    Serving(Box<Shard>),
    Ended(End),
}

#[derive(Debug)]
struct Waiter {
    answer: oneshot::Sender<Reply>,
    /// The request's share of what requests that wait may take together.
    _lease: Option<ByteLease>,
}

#[derive(Debug)]
struct Table {
    phase: Phase,
    waiters: BTreeMap<Token, Waiter>,
    next_token: u64,
}

/// See the module. Clones are the same coordinator.
#[derive(Clone, Debug)]
pub struct Coordinator {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    partition: i32,
    leader_epoch: LeaderEpoch,
    config: Config,
    clock: Clock,
    rng: Rng,
    /// Zero of the shard's monotonic time.
    origin: Instant,
    table: Mutex<Table>,
    /// Something is to be appended.
    work: Notify,
    /// The next deadline may have changed.
    timers: Notify,
    stage: watch::Sender<Stage>,
    waiting: ByteBudget,
}

impl Coordinator {
    /// Starts to load the partition and serves it until [`Coordinator::close`].
    pub fn open(
        env: &Env,
        config: Config,
        partition: i32,
        leader_epoch: LeaderEpoch,
        log: impl OffsetLog,
    ) -> Self {
        let table = Table { phase: Phase::Loading, waiters: BTreeMap::new(), next_token: 0 };
        let inner = Arc::new(Inner {
            partition,
            leader_epoch,
            clock: env.clock.clone(),
            rng: env.rng.fork(),
            origin: env.clock.now(),
            table: Mutex::new(table),
            work: Notify::new(),
            timers: Notify::new(),
            stage: watch::Sender::new(Stage::Loading),
            waiting: config.memory.waiting().clone(),
            config,
        });
        let (worker, tasks) = (Arc::clone(&inner), env.tasks.clone());
        env.tasks.spawn("group coordinator", async move {
            let run = async {
                let loaded = tokio::select! {
                    biased;
                    () = tasks.stopping() => None,
                    loaded = worker.load(&log) => loaded,
                };
                if let Some(needless_bytes) = loaded {
                    tokio::join!(
                        worker.run_appends(&tasks, &log, needless_bytes),
                        worker.run_timers(&tasks),
                    );
                }
            };
            tokio::select! { biased; () = worker.reached(Stage::Ended) => {}, () = run => {} }
            worker.end(End::Unknown);
        });
        Self { inner }
    }

    /// The leader epoch whose coordinator this is.
    pub fn leader_epoch(&self) -> LeaderEpoch {
        self.inner.leader_epoch
    }

    /// Ends the coordinator: its state is dropped, parked requests are answered. An append that is
    /// under way may still become durable.
    pub fn close(&self) {
        self.inner.end(End::Unknown);
    }

    /// Waits until the coordinator has ended: by [`Coordinator::close`], or by itself when it lost
    /// its leadership, an outcome is unknown or its log is corrupt. Cancel safe.
    pub async fn ended(&self) {
        self.inner.reached(Stage::Ended).await;
    }

    /// Waits until the state is loaded; false if the coordinator ended instead. Cancel safe.
    pub async fn loaded(&self) -> bool {
        self.inner.reached(Stage::Serving).await;
        matches!(self.inner.lock().phase, Phase::Serving(_))
    }

    /// Whether it has ended.
    pub fn is_ended(&self) -> bool {
        matches!(self.inner.lock().phase, Phase::Ended(_))
    }

    /// Whether it has ended because its log cannot be read.
    pub fn is_unreadable(&self) -> bool {
        matches!(self.inner.lock().phase, Phase::Ended(End::Unreadable))
    }

    /// Starts a snapshot now: before a planned move, for a short loading elsewhere (E-G2).
    pub fn start_snapshot(&self) {
        let _ = self.inner.step(|shard, _| shard.start_snapshot());
    }

    /// Whether a snapshot is under way.
    pub fn is_snapshotting(&self) -> bool {
        self.inner.step(|shard, _| shard.is_snapshotting()).unwrap_or(false)
    }

    /// JoinGroup. Waits until the join phase ends. Not cancelled by dropping: the member stays.
    pub async fn join(&self, request: JoinRequest) -> JoinResponse {
        let new_id = self.new_member_id(&request);
        let member_id = request.member_id.clone();
        let asked = self.inner.ask(None, |shard, token, now| {
            shard.join(&request, new_id, token, now);
        });
        match asked.await {
            Ok(Reply::Join(response)) => response,
            Ok(_) => JoinResponse::error(Code::UnknownServerError, member_id),
            Err(absent) => JoinResponse::error(absent.code_of_member(), member_id),
        }
    }

    /// SyncGroup. Waits for the leader's assignment to be durable; the leader itself only for
    /// [`Config::commit_timeout`].
    pub async fn sync(&self, request: SyncRequest) -> SyncResponse {
        let step = |shard: &mut Shard, token, now| shard.sync(&request, token, now);
        let asked = match request.assignments.is_empty() {
            true => self.inner.ask(None, step).await,
            false => self.inner.ask_briefly(None, step).await,
        };
        match asked {
            Ok(Reply::Sync(response)) => response,
            Ok(_) => SyncResponse::error(Code::UnknownServerError),
            // The rebalance is lost with the old coordinator, and old clients know no other code.
            Err(Absent::Loading) => SyncResponse::error(Code::RebalanceInProgress),
            // Whether the assignment was stored does not matter: the member joins anew either way.
            Err(absent) => SyncResponse::error(absent.code_of_member()),
        }
    }

    /// Heartbeat.
    pub fn heartbeat(&self, request: &HeartbeatRequest) -> Code {
        match self.inner.step(|shard, now| shard.heartbeat(request, now)) {
            Ok(code) => code,
            // Sessions start anew after loading, and clients know no other answer (as Kafka).
            Err(Absent::Loading) => Code::None,
            Err(absent) => absent.code_of_member(),
        }
    }

    /// LeaveGroup.
    pub async fn leave(&self, group_id: Text, members: Vec<LeaveMember>) -> LeaveResponse {
        let asked = self.inner.ask_briefly(None, |shard, token, now| {
            shard.leave(&group_id, &members, token, now);
        });
        match asked.await {
            Ok(Reply::Leave(response)) => response,
            Ok(_) => LeaveResponse::error(Code::UnknownServerError),
            Err(absent) => LeaveResponse::error(absent.code()),
        }
    }

    /// OffsetCommit: one code per offset, in order. Waits until durable, for at most
    /// [`Config::commit_timeout`]. Not cancelled by dropping.
    pub async fn commit(&self, request: CommitRequest) -> Vec<Code> {
        let count = request.offsets.len();
        let bytes = request.offsets.iter().map(|offset| {
            128 + offset.topic.len() + offset.metadata.as_ref().map_or(0, |text| text.len())
        });
        let lease = self.inner.waiting.take(bytes.sum::<usize>().max(1));
        let timeout = self.inner.config.commit_timeout;
        let Some(lease) = self.inner.clock.timeout(timeout, lease).await else {
            // Nothing of it was accepted.
            return vec![Code::CoordinatorNotAvailable; count];
        };
        let asked = self.inner.ask_briefly(Some(lease), |shard, token, now| {
            shard.commit(&request, token, now);
        });
        match asked.await {
            Ok(Reply::Codes(codes)) => codes,
            Ok(_) => vec![Code::UnknownServerError; count],
            Err(absent) => vec![absent.code(); count],
        }
    }

    /// OffsetFetch of one group.
    pub fn fetch(&self, request: &FetchRequest) -> Result<Vec<FetchedOffset>, Code> {
        self.inner.step(|shard, _| shard.fetch(request)).map_err(|absent| match absent {
            // Clients take any other code here for fatal; this one makes them look again.
            Absent::Unreadable => Code::NotCoordinator,
            Absent::Loading | Absent::Ended | Absent::Unknown => absent.code(),
        })
    }

    /// OffsetDelete. Waits until durable.
    pub async fn delete_offsets(
        &self,
        group_id: Text,
        partitions: Vec<(Text, i32)>,
    ) -> OffsetDeleteResponse {
        let asked = self.inner.ask_briefly(None, |shard, token, _| {
            shard.delete_offsets(&group_id, &partitions, token);
        });
        match asked.await {
            Ok(Reply::Codes(codes)) => Shard::offset_delete_response(codes),
            Ok(_) => Shard::offset_delete_response(vec![Code::UnknownServerError]),
            Err(absent) => Shard::offset_delete_response(vec![absent.code()]),
        }
    }

    /// ListGroups, the groups of this partition. Both filters empty, or the names to show.
    pub fn list(&self, states: &[Text], types: &[Text]) -> Result<Vec<ListedGroup>, Code> {
        self.inner.step(|shard, _| shard.list(states, types)).map_err(Absent::code)
    }

    /// DescribeGroups, one group.
    pub fn describe(&self, group_id: &Text) -> DescribedGroup {
        let described = self.inner.step(|shard, _| shard.describe(group_id));
        described.unwrap_or_else(|absent| DescribedGroup {
            code: absent.code(),
            message: None,
            group_id: group_id.clone(),
            state: "",
            protocol_type: "".into(),
            protocol_data: "".into(),
            members: Vec::new(),
        })
    }

    /// DeleteGroups, one group. Waits until durable.
    pub async fn delete(&self, group_id: Text) -> Code {
        let asked = self.inner.ask_briefly(None, |shard, token, _| shard.delete(&group_id, token));
        match asked.await {
            Ok(Reply::Code(code)) => code,
            Ok(_) => Code::UnknownServerError,
            Err(absent) => absent.code(),
        }
    }

    /// A topic was deleted: its offsets go. To be called again after loading for deletions that a
    /// coordinator may have missed.
    pub fn topic_deleted(&self, topic: &Text, topic_id: TopicId) {
        let _ = self.inner.step(|shard, _| shard.topic_deleted(topic, topic_id));
    }

    /// Client id or instance id and a UUID, as Kafka makes them; long ids are cut.
    fn new_member_id(&self, request: &JoinRequest) -> Text {
        if !request.member_id.is_empty() {
            return "".into();
        }
        let prefix = request.group_instance_id.as_ref().unwrap_or(&request.client_id);
        let prefix = prefix.get(..prefix.floor_char_boundary(200)).unwrap_or_default();
        let uuid = u128::from_be_bytes(self.inner.rng.uuid_v4());
        let (a, b, c, d) = (uuid >> 96, uuid >> 80, uuid >> 64, uuid >> 48);
        let (b, c, d, e) = (b & 0xffff, c & 0xffff, d & 0xffff, uuid & 0xffff_ffff_ffff);
        format!("{prefix}-{a:08x}-{b:04x}-{c:04x}-{d:04x}-{e:012x}").into()
    }
}

impl Absent {
    fn code(self) -> Code {
        match self {
            Self::Loading => Code::CoordinatorLoadInProgress,
            Self::Ended => Code::NotCoordinator,
            Self::Unreadable => Code::CoordinatorNotAvailable,
            Self::Unknown => Code::RequestTimedOut,
        }
    }

    /// For JoinGroup, SyncGroup and Heartbeat, whose effect is never in doubt: the member joins anew.
    fn code_of_member(self) -> Code {
        match self {
            Self::Unknown => Code::NotCoordinator,
            Self::Loading | Self::Ended | Self::Unreadable => self.code(),
        }
    }
}

impl Inner {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Now {
        let elapsed = self.clock.now().saturating_duration_since(self.origin);
        let mono_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        Now { mono_ms, wall_ms: self.clock.wall_ms() }
    }

    /// One step of the shard; answers leave after the lock.
    fn step<T>(&self, step: impl FnOnce(&mut Shard, Now) -> T) -> Result<T, Absent> {
        self.step_with(|shard, _, now| step(shard, now))
    }

    fn step_with<T>(
        &self,
        step: impl FnOnce(&mut Shard, &mut Waiters<'_>, Now) -> T,
    ) -> Result<T, Absent> {
        let now = self.now();
        let mut table = self.lock();
        let Table { phase, waiters, next_token } = &mut *table;
        let shard = match phase {
            Phase::Serving(shard) => shard,
            Phase::Loading => return Err(Absent::Loading),
            Phase::Ended(End::Unreadable) => return Err(Absent::Unreadable),
            Phase::Ended(End::Certain | End::Unknown) => return Err(Absent::Ended),
        };
        let before = shard.next_deadline();
        let result = step(shard, &mut Waiters { waiters, next_token }, now);
        let replies = shard.take_replies();
        let answers: Vec<_> = replies
            .into_iter()
            .filter_map(|(token, reply)| Some((waiters.remove(&token)?, reply)))
            .collect();
        let (has_batch, sooner) = (shard.has_batch(), shard.next_deadline() < before);
        drop(table);
        for (waiter, reply) in answers {
            // Whoever asked may be gone.
            let _ = waiter.answer.send(reply);
        }
        if has_batch {
            self.work.notify_one();
        }
        if sooner {
            self.timers.notify_one();
        }
        Ok(result)
    }

    /// Gives a request to the shard and waits for its answer.
    async fn ask(
        &self,
        lease: Option<ByteLease>,
        request: impl FnOnce(&mut Shard, Token, Now),
    ) -> Result<Reply, Absent> {
        let answer = self.step_with(|shard, waiters, now| {
            let (token, answer) = waiters.add(lease);
            request(shard, token, now);
            answer
        })?;
        match answer.await {
            Ok(reply) => Ok(reply),
            Err(_) => match self.lock().phase {
                Phase::Ended(End::Certain) => Err(Absent::Ended),
                Phase::Loading
                | Phase::Serving(_)
                | Phase::Ended(End::Unknown | End::Unreadable) => Err(Absent::Unknown),
            },
        }
    }

    /// [`Inner::ask`], for a request that waits for nothing but its write. After the timeout the write
    /// goes on.
    async fn ask_briefly(
        &self,
        lease: Option<ByteLease>,
        request: impl FnOnce(&mut Shard, Token, Now),
    ) -> Result<Reply, Absent> {
        let asked = self.ask(lease, request);
        let answer = self.clock.timeout(self.config.commit_timeout, asked).await;
        answer.unwrap_or(Err(Absent::Unknown))
    }

    fn end(&self, why: End) {
        let mut table = self.lock();
        if matches!(table.phase, Phase::Ended(_)) {
            return;
        }
        table.phase = Phase::Ended(why);
        let waiters = std::mem::take(&mut table.waiters);
        drop(table);
        drop(waiters);
        self.stage.send_replace(Stage::Ended);
    }

    async fn reached(&self, stage: Stage) {
        // The sender lives as long as `self`.
        let _ = self.stage.subscribe().wait_for(|present| *present >= stage).await;
    }
}

/// Makes tokens inside a step.
struct Waiters<'a> {
    waiters: &'a mut BTreeMap<Token, Waiter>,
    next_token: &'a mut u64,
}

impl Waiters<'_> {
    fn add(&mut self, lease: Option<ByteLease>) -> (Token, oneshot::Receiver<Reply>) {
        let token = Token(*self.next_token);
        *self.next_token += 1;
        let (answer, receiver) = oneshot::channel();
        self.waiters.insert(token, Waiter { answer, _lease: lease });
        (token, receiver)
    }
}
