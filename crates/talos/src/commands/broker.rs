//! The broker inside `talos serve`: its store and metadata opened, its configuration handed on, its
//! listener bound, and what ends it.

use std::time::Duration;

use anyhow::Context as _;
use std::sync::Arc;
use talos_broker::{Broker, BrokerConfig, Ended};
use talos_common::{BrokerId, Env, Tasks};
use talos_log::LogOptions;
use talos_meta::{Meta, SqliteMeta};
use talos_protocol::batch::TimestampType;
use talos_storage::Storage;
use talos_storage::local::{LocalOptions, LocalStorage};
use tokio::net::TcpListener;
use tokio::runtime::{Handle, Runtime};

use crate::admin::AdminHandle;
use crate::config::ServeConfig;

/// Recycled journal files that are kept ready.
const SPARE_FILES: usize = 4;

/// The thread on which journals are sorted, so that doing so keeps no connection's thread busy.
struct Background(Option<Runtime>);

impl Background {
    fn start() -> anyhow::Result<Self> {
        let mut builder = tokio::runtime::Builder::new_multi_thread();
        let runtime = builder.worker_threads(1).thread_name("background").enable_all().build();
        Ok(Self(Some(runtime.context("cannot start the background's thread")?)))
    }

    fn handle(&self) -> Handle {
        match &self.0 {
            Some(runtime) => runtime.handle().clone(),
            // Taken when it is dropped.
            None => unreachable!("the background has ended"),
        }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Waiting for its thread is not allowed here; its tasks were joined or are to be cut off.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Runs the broker until `stop`, or until it ends by itself.
///
/// # Errors
/// Whatever makes the broker unable to start or to go on, saying what to do.
pub async fn run(
    config: ServeConfig,
    admin: AdminHandle,
    stop: impl Future<Output = ()> + Clone + Send + 'static,
) -> anyhow::Result<()> {
    let background = Background::start()?;
    let env = Env { tasks: Tasks::with_background(background.handle()), ..Env::system() };
    let listener = TcpListener::bind(&config.server.listen).await.with_context(|| {
        format!(
            "cannot listen on {}: if another broker runs there, stop it or take another address with \
             --listen HOST:PORT",
            config.server.listen
        )
    })?;
    let bound = listener.local_addr().context("the listener has no address")?;
    let dir = config.data_dir().context("cannot find the data folder")?;
    let options = LocalOptions {
        file_bytes: config.log.journal_size.0,
        spare_files: SPARE_FILES,
        reserve_bytes: config.log.reserve.0,
        ..LocalOptions::new(&dir)
    };
    let opening = env.clone();
    let (storage, meta) = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        // The store's lock comes first: one process per data folder.
        let storage = LocalStorage::open(options, &opening)?;
        let meta = SqliteMeta::open(dir.join("meta.sqlite"))?;
        Ok((storage, meta))
    })
    .await
    .context("opening the data folder was cut off")??;
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let meta = Meta::new(Arc::new(meta), env.clone());

    let mut registry = prometheus_client::registry::Registry::default();
    let settings = broker_config(&config, bound);
    let started = tokio::select! {
        biased;
        () = stop.clone() => return Ok(()),
        started = Broker::start(settings, env.clone(), storage, meta, &mut registry) => started?,
    };
    let broker = started;
    admin.with_registry(|shared| *shared = registry);
    admin.set_listening(bound);
    admin.set_ready();
    let ended = tokio::select! {
        biased;
        () = stop => None,
        ended = broker.ended() => Some(ended),
        task = env.tasks.panicked() => Some(Ended::Fatal(format!(
            "the task {task:?} met a broken invariant, see the log above; nothing acknowledged is \
             lost: start again, which recovers"
        ))),
        () = broker.serve_tcp(listener) => None,
    };
    admin.set_not_ready("stopping");
    match ended {
        None => {
            broker.stop().await?;
            env.tasks.stop();
            Ok(())
        }
        Some(Ended::Fatal(why) | Ended::Fenced(why)) => anyhow::bail!(why),
    }
}

/// The broker's plain configuration out of the checked one. Bounds were checked there.
fn broker_config(config: &ServeConfig, bound: std::net::SocketAddr) -> BrokerConfig {
    let kafka = &config.kafka;
    let (advertised_host, advertised_port) = config.advertised(bound);
    let size = |value: i32| usize::try_from(value).unwrap_or(0);
    let millis = |value: i64| Duration::from_millis(u64::try_from(value).unwrap_or(0));
    let timestamp_type = match kafka.log_message_timestamp_type.as_str() {
        "LogAppendTime" => TimestampType::LogAppendTime,
        _ => TimestampType::CreateTime,
    };
    BrokerConfig {
        node_id: BrokerId(config.server.node_id),
        advertised_host,
        advertised_port,
        rack: None,
        num_partitions: kafka.num_partitions,
        default_replication_factor: kafka.default_replication_factor,
        auto_create_topics_enable: kafka.auto_create_topics_enable,
        delete_topic_enable: kafka.delete_topic_enable,
        message_max_bytes: kafka.message_max_bytes,
        log_message_timestamp_type: timestamp_type,
        log_message_timestamp_before_max_ms: kafka.log_message_timestamp_before_max_ms,
        log_message_timestamp_after_max_ms: kafka.log_message_timestamp_after_max_ms,
        log_retention_ms: kafka.retention_ms(),
        log_retention_bytes: kafka.log_retention_bytes,
        log_retention_check_interval: millis(kafka.log_retention_check_interval_ms),
        fetch_max_bytes: kafka.fetch_max_bytes,
        socket_request_max_bytes: size(kafka.socket_request_max_bytes),
        connections_max_idle: u64::try_from(kafka.connections_max_idle_ms)
            .ok()
            .map(Duration::from_millis),
        max_connections: size(kafka.max_connections),
        producer_id_expiration_ms: kafka.producer_id_expiration_ms.into(),
        offsets_topic_num_partitions: kafka.offsets_topic_num_partitions,
        offsets_retention_ms: i64::from(kafka.offsets_retention_minutes) * 60_000,
        offsets_retention_check_interval_ms: u64::try_from(
            kafka.offsets_retention_check_interval_ms,
        )
        .unwrap_or(0),
        offset_metadata_max_bytes: size(kafka.offset_metadata_max_bytes),
        group_min_session_timeout_ms: kafka.group_min_session_timeout_ms,
        group_max_session_timeout_ms: kafka.group_max_session_timeout_ms,
        group_initial_rebalance_delay_ms: u64::try_from(kafka.group_initial_rebalance_delay_ms)
            .unwrap_or(0),
        group_max_size: size(kafka.group_max_size),
        receive_bytes: config.memory.receive.as_usize(),
        answer_bytes: config.memory.answers.as_usize(),
        max_decompressed_bytes: config.log.max_decompressed.as_usize(),
        log: LogOptions {
            sort_bytes: config.log.sort_after.0,
            segment_bytes: config.log.segment_after.0,
            lane_bytes: config.memory.lanes.as_usize(),
            tail_cache_bytes: config.memory.tail_cache.as_usize(),
            raw_limit_bytes: config.log.raw_limit.0,
            extent_bytes: config.memory.positions.as_usize(),
            pinned_bytes: config.memory.pinned.as_usize(),
            producer_bytes: config.memory.producers.as_usize(),
        },
        ..BrokerConfig::default()
    }
}
