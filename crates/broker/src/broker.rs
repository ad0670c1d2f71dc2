//! One broker: started, serving, stopped.
//!
//! ```text
//! start:  cluster id → broker epoch → directory → registered → claims → opened → serve
//! stop:   listeners → reads → accepted work → last flush → own directory sealed → marked dead
//! ```
//!
//! Whoever runs the process waits for [`Broker::ended`] beside its signals: a lane that can not tell
//! what is durable must end the process; a sealed directory ends this broker epoch.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use prometheus_client::registry::Registry;
use talos_common::{BrokerDir, BrokerEpoch, ByteBudget, Env, TopicId};
use talos_log::format::LanePosition;
use talos_log::{BrokerLog, LaneEnd, LogMetrics};
use talos_meta::topics_cache::CachedTopic;
use talos_meta::{BrokerError, ClusterId, Meta, TopicState, TopicsCache, Version};
use talos_storage::{ErrorKind, Storage};
use tokio::sync::{mpsc, watch};

use crate::changes::Changes;
use crate::cluster;
use crate::config::BrokerConfig;
use crate::connection::ReceiveRoom;
use crate::group_log;
use crate::groups::Coordinators;
use crate::health::Health;
use crate::listener::{Connections, NoPlace, Place};
use crate::metrics::Metrics;
use crate::partitions::{self, COMMANDS, Command, Partitions};
use crate::producer_ids::ProducerIds;
use crate::retention;
use crate::topic_config::TopicConfig;

/// Broker epochs that are tried when making one's directory has an unknown outcome (E-H4).
const EPOCH_ATTEMPTS: u64 = 16;
const CLEAN_STOP_VERSION: u8 = 1;

/// Why a broker can not start or stop.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Store and metadata do not belong together (E-W3), or one of them was lost.
    #[error("{0}")]
    Cluster(String),
    /// The metadata.
    #[error("metadata: {0}")]
    Meta(#[from] talos_meta::Error),
    /// The store.
    #[error("storage: {0}")]
    Storage(#[from] talos_storage::Error),
    /// Another process with this broker id started meanwhile, or the id is not valid.
    #[error("broker {id} can not register: {why}; is another process running with this id?")]
    Register {
        /// The broker id.
        id: i32,
        /// Why.
        why: String,
    },
    /// A step of the stop took too long, or the lane ended otherwise: the next start recovers.
    #[error("the broker did not stop cleanly, the next start recovers: {0}")]
    Stop(String),
}

/// Why a broker ended by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The store can not tell what is durable: end the process; the next start recovers (E-H6).
    Fatal(String),
    /// Another process took over this broker's directory: this broker epoch is over, start again.
    Fenced(String),
}

/// A running broker. Clones are the same broker.
#[derive(Clone, Debug)]
pub struct Broker {
    shared: Arc<Shared>,
}

/// What the parts of a broker share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) config: BrokerConfig,
    pub(crate) env: Env,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) meta: Meta,
    pub(crate) topics: TopicsCache,
    pub(crate) cluster_id: ClusterId,
    pub(crate) dir: BrokerDir,
    pub(crate) log: BrokerLog,
    pub(crate) partitions: Partitions,
    pub(crate) commands: mpsc::Sender<Command>,
    pub(crate) producer_ids: ProducerIds,
    pub(crate) groups: Coordinators,
    pub(crate) metrics: Metrics,
    /// Requests received and not yet accepted.
    pub(crate) receive: ReceiveRoom,
    /// Records read for answers that are not yet sent.
    pub(crate) answers: ByteBudget,
    /// The same for fetches at the tail, before they compete for `answers`.
    pub(crate) answers_tail: ByteBudget,
    topic_configs: RwLock<BTreeMap<TopicId, (Version, TopicConfig)>>,
    pub(crate) connections: Connections,
    pub(crate) changes: Changes,
    phase: watch::Sender<Phase>,
    ended: watch::Sender<Option<Ended>>,
}

/// Only rises.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    /// Nothing new is read; what was accepted is answered.
    Stopping,
    /// Connections are cut.
    Cut,
}

impl Broker {
    /// Starts a broker on `storage` and `meta`: when this returns, all partitions that it leads are
    /// open or offline, and [`Broker::serve_connection`] serves. Metrics are registered in `registry`.
    ///
    /// # Errors
    /// Store and metadata of different clusters; failures of either. Nothing is served then.
    pub async fn start(
        config: BrokerConfig,
        env: Env,
        storage: Arc<dyn Storage>,
        meta: Meta,
        registry: &mut Registry,
    ) -> Result<Self, Error> {
        let cluster_id = cluster::join(&*storage, &meta).await?;
        // One broker: nobody else can be creating topics now.
        let undone = meta.repair_creations().await?;
        if undone > 0 {
            tracing::info!(undone, "undid topic creations that were interrupted");
        }
        let started = begin_epoch(&config, &env, &storage, &meta, cluster_id).await?;
        let topics = TopicsCache::start(&meta).await?;
        let (commands, inbox) = mpsc::channel(COMMANDS);
        let groups = Coordinators::new(
            env.clone(),
            group_log::group_config(&config),
            group_log::offsets_partitions(&topics.image(), &config),
        );
        let shared = Arc::new(Shared {
            receive: ReceiveRoom::new(config.receive_bytes),
            answers: ByteBudget::new(config.answer_bytes - config.answer_bytes / 4),
            answers_tail: ByteBudget::new(config.answer_bytes / 4),
            producer_ids: ProducerIds::new(meta.clone()),
            metrics: Metrics::new(registry, started.log_metrics),
            connections: Connections::new(&config),
            changes: Changes::new(&config),
            config,
            env,
            storage,
            meta,
            topics,
            cluster_id,
            dir: started.log.dir(),
            log: started.log,
            partitions: Partitions::default(),
            commands,
            groups,
            topic_configs: RwLock::default(),
            phase: watch::Sender::new(Phase::Serving),
            ended: watch::Sender::new(None),
        });
        let inherited_dirs = shared.open_all(&started.clean_ends).await;
        let tasks = &shared.env.tasks;
        tasks.spawn("partitions", partitions::run(Arc::clone(&shared), inbox));
        let merge = partitions::merge_inherited(Arc::clone(&shared), inherited_dirs);
        tasks.spawn("inherited directories", merge);
        tasks.spawn("inherited pairs", partitions::drop_inherited(Arc::clone(&shared)));
        tasks.spawn("retention", retention::run(Arc::clone(&shared)));
        tasks.spawn("lane watch", watch_lane(Arc::clone(&shared)));
        let deletions = Arc::clone(&shared);
        tasks.spawn("group deletions", async move {
            tokio::select! {
                biased;
                () = deletions.stopping() => {}
                () = deletions.tell_deleted_topics() => {}
            }
        });
        shared.say_started();
        Ok(Self { shared })
    }

    pub(crate) fn shared(&self) -> &Arc<Shared> {
        &self.shared
    }

    /// Which cluster it belongs to.
    pub fn cluster_id(&self) -> ClusterId {
        self.shared.cluster_id
    }

    /// Its broker epoch, as the name of its directory.
    pub fn dir(&self) -> BrokerDir {
        self.shared.dir
    }

    /// How many partitions are served, and how many it leads and can not serve.
    pub fn partition_counts(&self) -> (usize, usize) {
        self.shared.partitions.count()
    }

    /// What an operator should know of it now.
    pub fn health(&self) -> Health {
        self.shared.health()
    }

    /// Handles of its metrics.
    pub fn metrics(&self) -> &Metrics {
        &self.shared.metrics
    }

    /// Waits until the broker ended by itself, and says why. Cancel safe.
    pub async fn ended(&self) -> Ended {
        let mut ended = self.shared.ended.subscribe();
        match ended.wait_for(Option::is_some).await.map(|ended| (*ended).clone()) {
            Ok(Some(ended)) => ended,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Stops: no new connections and requests, what was accepted is answered, one last flush, the own
    /// directory sealed and this broker epoch marked dead, so that the next start need not recover.
    /// Each step is bounded by `stop_step_timeout`. Nothing acknowledged depends on it.
    ///
    /// # Errors
    /// A step that failed or took too long; later steps are left out.
    pub async fn stop(&self) -> Result<(), Error> {
        let shared = &self.shared;
        let step = shared.config.stop_step_timeout;
        shared.raise(Phase::Stopping);
        if shared.env.clock.timeout(step, shared.connections.all_ended()).await.is_none() {
            tracing::warn!("connections are cut: their answers took too long");
        }
        shared.raise(Phase::Cut);
        for coordinator in shared.groups.all() {
            coordinator.close();
        }
        let position = match shared.env.clock.timeout(step, shared.log.stop()).await {
            Some(LaneEnd::Stopped(position)) => position,
            Some(LaneEnd::Fenced(why) | LaneEnd::Fatal(why)) => return Err(Error::Stop(why)),
            None => return Err(Error::Stop("the last flush took too long".into())),
        };
        shared.partitions.end_all("the broker stopped");
        let late = |what: &str| Error::Stop(format!("{what} took too long"));
        let seal = shared.storage.seal(shared.dir);
        shared.env.clock.timeout(step, seal).await.ok_or_else(|| late("the seal"))??;
        let dead = shared.meta.mark_dead(shared.dir, Some(encode_clean_stop(position)));
        shared.env.clock.timeout(step, dead).await.ok_or_else(|| late("the metadata"))??;
        tracing::info!(broker = %shared.dir, "broker stopped cleanly");
        Ok(())
    }
}

impl Shared {
    fn raise(&self, phase: Phase) {
        self.phase.send_if_modified(|now| {
            let rises = *now < phase;
            *now = phase.max(*now);
            rises
        });
    }

    pub(crate) fn is_stopping(&self) -> bool {
        *self.phase.borrow() >= Phase::Stopping
    }

    /// Waits until nothing new should begin. Cancel safe.
    pub(crate) async fn stopping(&self) {
        self.reached(Phase::Stopping).await;
    }

    /// Waits until connections are to be cut. Cancel safe.
    pub(crate) async fn cut(&self) {
        self.reached(Phase::Cut).await;
    }

    async fn reached(&self, phase: Phase) {
        // The sender lives as long as `self`.
        let _ = self.phase.subscribe().wait_for(|now| *now >= phase).await;
    }

    /// A place for one connection of `host`, until dropped; else why there is none.
    pub(crate) fn take_connection_place(&self, host: &str) -> Result<Place, NoPlace> {
        if self.is_stopping() { Err(NoPlace::Stopping) } else { self.connections.take(host) }
    }

    /// A topic's configuration, read anew when its record changed.
    pub(crate) fn topic_config(&self, cached: &CachedTopic) -> TopicConfig {
        let id = cached.topic.id;
        let known = self.topic_configs.read().unwrap_or_else(PoisonError::into_inner);
        if let Some((version, config)) = known.get(&id)
            && *version == cached.version
        {
            return *config;
        }
        drop(known);
        let config = TopicConfig::new(&cached.topic.configs, &self.config);
        let mut known = self.topic_configs.write().unwrap_or_else(PoisonError::into_inner);
        known.insert(id, (cached.version, config));
        config
    }

    pub(crate) fn forget_topic_config(&self, id: TopicId) {
        self.topic_configs.write().unwrap_or_else(PoisonError::into_inner).remove(&id);
    }

    /// Claims and opens all partitions of all topics: one broker leads them all.
    async fn open_all(&self, clean_ends: &BTreeMap<BrokerDir, LanePosition>) -> usize {
        let image = self.topics.image();
        let live = image.iter().filter(|cached| cached.topic.state == TopicState::Live);
        let ids: Vec<_> = live.flat_map(|cached| cached.topic.partition_ids()).collect();
        self.open_partitions(&ids, clean_ends).await
    }
}

/// What [`begin_epoch`] gives.
struct Started {
    log: BrokerLog,
    log_metrics: LogMetrics,
    clean_ends: BTreeMap<BrokerDir, LanePosition>,
}

/// A new broker epoch: its directory made, then registered. From then on earlier ones are dead.
async fn begin_epoch(
    config: &BrokerConfig,
    env: &Env,
    storage: &Arc<dyn Storage>,
    meta: &Meta,
    cluster_id: ClusterId,
) -> Result<Started, Error> {
    let id = config.node_id;
    let mut epoch = meta.next_epoch(id).await?;
    let mut why = String::new();
    // Starts that failed before they registered left directories that are never made again: the
    // steps grow and differ from start to start, so that a few attempts pass any number of them.
    for attempt in 0..EPOCH_ATTEMPTS {
        let dir = BrokerDir { broker: id, epoch };
        epoch = BrokerEpoch(epoch.0.saturating_add(1 + env.rng.u64(..1 << attempt)));
        let (env, storage) = (env.clone(), Arc::clone(storage));
        let log_metrics = LogMetrics::default();
        let (cluster, metrics) = (cluster_id.0, log_metrics.clone());
        let created = BrokerLog::create(env, storage, cluster, dir, config.log, metrics).await;
        let log = match created {
            Ok(log) => log,
            Err(error) => match error.kind() {
                // Made by a process that died before it registered, or maybe by this one.
                ErrorKind::Exists | ErrorKind::Uncertain | ErrorKind::Fenced => {
                    why = error.to_string();
                    continue;
                }
                ErrorKind::Unavailable
                | ErrorKind::Full
                | ErrorKind::Invalid
                | ErrorKind::NotFound
                | ErrorKind::Fatal => return Err(error.into()),
            },
        };
        match meta.register(dir).await {
            Ok(registered) => {
                let stops = registered.previous.map(|broker| broker.clean_stops);
                let clean_ends = clean_ends(id, stops.unwrap_or_default());
                return Ok(Started { log, log_metrics, clean_ends });
            }
            Err(BrokerError::Store(talos_meta::Error::Uncertain(text))) => {
                log.stop().await;
                why = text;
            }
            Err(BrokerError::Superseded { .. }) => {
                log.stop().await;
                let why = format!("epoch {} is not newer than the registered one", dir.epoch);
                return Err(Error::Register { id: id.0, why });
            }
            Err(BrokerError::Store(error)) => {
                log.stop().await;
                return Err(error.into());
            }
        }
    }
    Err(Error::Register { id: id.0, why })
}

fn clean_ends(
    broker: talos_common::BrokerId,
    stops: Vec<(BrokerEpoch, Bytes)>,
) -> BTreeMap<BrokerDir, LanePosition> {
    let decoded = stops.into_iter().filter_map(|(epoch, stop)| {
        let position = decode_clean_stop(stop);
        if position.is_none() {
            tracing::warn!(%epoch, "what a clean stop left can not be read; it is not used");
        }
        Some((BrokerDir { broker, epoch }, position?))
    });
    decoded.collect()
}

/// Version, file and position of the lane's end, little-endian.
fn encode_clean_stop(end: LanePosition) -> Bytes {
    let mut out = BytesMut::with_capacity(17);
    out.put_u8(CLEAN_STOP_VERSION);
    out.put_u64_le(end.file);
    out.put_u64_le(end.position);
    out.freeze()
}

fn decode_clean_stop(mut bytes: Bytes) -> Option<LanePosition> {
    if bytes.try_get_u8().ok()? != CLEAN_STOP_VERSION {
        return None;
    }
    let file = bytes.try_get_u64_le().ok()?;
    let position = bytes.try_get_u64_le().ok()?;
    bytes.is_empty().then_some(LanePosition { file, position })
}

/// Ends everything when the lane ends by itself.
async fn watch_lane(shared: Arc<Shared>) {
    let end = tokio::select! {
        biased;
        () = shared.cut() => return,
        end = shared.log.ended() => end,
    };
    let ended = match end {
        LaneEnd::Stopped(_) => return,
        LaneEnd::Fatal(why) => {
            tracing::error!(why, "the store can not tell what is durable: the process must end");
            Ended::Fatal(format!(
                "the store can not tell what is durable ({why}); nothing acknowledged is lost: \
                 check the disk, then start again, which recovers"
            ))
        }
        LaneEnd::Fenced(why) => {
            tracing::info!(why, "this broker epoch is over: its directory was sealed");
            Ended::Fenced(format!(
                "another process took over the data of broker {} ({why}); if that was not meant, \
                 make sure that only one process runs with this id",
                shared.config.node_id
            ))
        }
    };
    shared.partitions.end_all("the broker's journal ended");
    shared.raise(Phase::Cut);
    shared.ended.send_replace(Some(ended));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clean_stop_round_trips_and_other_bytes_are_none() {
        let end = LanePosition { file: 3, position: 77 };
        let bytes = encode_clean_stop(end);
        assert_eq!(decode_clean_stop(bytes.clone()), Some(end));
        for cut in 0..bytes.len() {
            assert_eq!(decode_clean_stop(bytes.slice(..cut)), None);
        }
    }
}
