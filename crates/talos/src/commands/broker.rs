//! The broker inside `talos serve`: its store and metadata opened, its configuration handed on, its
//! listener bound, and what ends it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use talos_broker::{Broker, BrokerConfig, Ended};
use talos_common::{BrokerId, Env, Tasks};
use talos_log::LogOptions;
use talos_meta::{Error as MetaError, Meta, SqliteMeta};
use talos_protocol::batch::TimestampType;
use talos_storage::local::{Failure, LocalOptions, LocalStorage};
use talos_storage::{Error as StorageError, ErrorKind, Storage};
use tokio::net::{TcpListener, TcpSocket};
use tokio::runtime::{Handle, Runtime};
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::admin::AdminHandle;
use crate::config::ServeConfig;

/// Recycled journal files that are kept ready.
const SPARE_FILES: usize = 4;

/// What a start on a full disk says before the error itself.
const NO_ROOM: &str = "the disk is full, and a start needs room: make some beside the data folder, or \
                       see «The disk is full» in docs/operations.md";

/// With less than this on the file system, a start that fails fails for that.
const LEAST_BYTES: u64 = 64 << 10;

/// File descriptors that are left to files: of journals, segments and metadata, of the admin server, and
/// of connections that are accepted only to be closed.
const RESERVED_FILES: usize = 384;

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

/// Connections that wait to be accepted; the system may keep it lower (`net.core.somaxconn`). With the usual
/// 128 all clients that come back at once after a restart wait for seconds.
const LISTEN_BACKLOG: u32 = 4_096;

/// Listens on the first address that works.
async fn listen(address: &str) -> std::io::Result<TcpListener> {
    let mut failed = None;
    for address in tokio::net::lookup_host(address).await? {
        let listening = || {
            let socket = match address.is_ipv4() {
                true => TcpSocket::new_v4()?,
                false => TcpSocket::new_v6()?,
            };
            // A restart need not wait for the connections of before.
            socket.set_reuseaddr(true)?;
            socket.bind(address)?;
            socket.listen(LISTEN_BACKLOG)
        };
        match listening() {
            Ok(listener) => return Ok(listener),
            Err(error) => failed = Some(error),
        }
    }
    let unknown = || std::io::Error::new(std::io::ErrorKind::NotFound, "the name has no address");
    Err(failed.unwrap_or_else(unknown))
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
    let _file_size = survive_file_size_limit()?;
    let listener = listen(&config.server.listen).await.with_context(|| {
        format!(
            "cannot listen on {}: if another broker runs there, stop it or take another address with \
             --listen HOST:PORT",
            config.server.listen
        )
    })?;
    let bound = listener.local_addr().context("the listener has no address")?;
    let dir = config.data_dir().context("cannot find the data folder")?;
    let (storage, meta) = open_data(&config, &dir, &env).await?;
    let local = storage.clone();
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let meta = Meta::new(Arc::new(meta), env.clone());

    let mut registry = prometheus_client::registry::Registry::default();
    let settings = broker_config(&config, bound);
    let started = tokio::select! {
        biased;
        () = stop.clone() => return Ok(()),
        started = Broker::start(settings, env.clone(), storage, meta, &mut registry) => {
            started.map_err(|error| start_failed(error.into(), &dir, local.failure()))?
        }
    };
    let broker = started;
    admin.with_registry(|shared| *shared = registry);
    admin.set_listening(bound);
    let watched = broker.clone();
    admin.set_ready_by(move || {
        let health = watched.health();
        if health.is_serving() { Ok(health.report()) } else { Err(health.report()) }
    });
    let ended = tokio::select! {
        biased;
        () = stop => None,
        ended = broker.ended() => Some(ended),
        failure = local.failed(&env.clock) => Some(Ended::Fatal(store_failed(&failure))),
        task = env.tasks.panicked() => Some(Ended::Fatal(format!(
            "the task {task:?} met a broken invariant, see the log above; nothing acknowledged is \
             lost: start again, which recovers"
        ))),
        // Nobody asked for a stop: it ends by itself, and says why in a moment.
        () = broker.serve_tcp(listener) => Some(broker.ended().await),
    };
    admin.set_not_ready("stopping");
    match ended {
        None => {
            let stopped = broker.stop().await;
            stopped.map_err(|error| match local.failure() {
                Some(failure) => anyhow::anyhow!(store_failed(&failure)),
                None => error.into(),
            })?;
            env.tasks.stop();
            Ok(())
        }
        // The broker may have noticed first, and knows less.
        Some(Ended::Fatal(why) | Ended::Fenced(why)) => {
            anyhow::bail!(local.failure().map_or(why, |failure| store_failed(&failure)))
        }
    }
}

/// A write beyond `RLIMIT_FSIZE` shall fail like one on a full disk: unless somebody listens to its
/// signal, that ends the process with a core dump.
fn survive_file_size_limit() -> anyhow::Result<Signal> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    signal(kind).context("cannot listen to the signal of the file size limit")
}

/// What a person reads when the store ended the process.
fn store_failed(failure: &Failure) -> String {
    let error = &failure.error;
    if failure.files_are_gone {
        return format!(
            "{error}; nothing is acknowledged any more: put the data folder back in its place and \
             start again, which recovers what it holds; what was acknowledged since it went, and \
             all that is in files that are deleted, is lost"
        );
    }
    format!(
        "the store can not tell what is durable ({error}); nothing acknowledged is lost: check the \
         disk, then start again, which recovers"
    )
}

/// Opens the data folder: the store, then the metadata in it.
async fn open_data(
    config: &ServeConfig,
    dir: &Path,
    env: &Env,
) -> anyhow::Result<(LocalStorage, SqliteMeta)> {
    let options = LocalOptions {
        file_bytes: config.log.journal_size.0,
        spare_files: SPARE_FILES,
        reserve_bytes: config.log.reserve.0,
        ..LocalOptions::new(dir)
    };
    let (env, meta) = (env.clone(), dir.join("meta.sqlite"));
    let opened = tokio::task::spawn_blocking(move || -> anyhow::Result<_> {
        // The store's lock comes first: one process per data folder.
        let storage = LocalStorage::open(options, &env)?;
        let meta = SqliteMeta::open(meta)?;
        Ok((storage, meta))
    });
    let opened = opened.await.context("opening the data folder was cut off")?;
    opened.map_err(|error| start_failed(error, dir, None))
}

/// A start that failed, with what to do where the error does not say it.
fn start_failed(error: anyhow::Error, dir: &Path, failure: Option<Failure>) -> anyhow::Error {
    if let Some(failure) = failure {
        return anyhow::anyhow!(store_failed(&failure));
    }
    let storage = |error: &StorageError| error.kind() == ErrorKind::Full;
    let meta = |error: &MetaError| matches!(error, MetaError::Full(_));
    let mut causes = error.chain();
    let says_so = causes.any(|cause| {
        cause.downcast_ref().is_some_and(storage) || cause.downcast_ref().is_some_and(meta)
    });
    // SQLite calls it an I/O error when there is no room for its shared memory.
    let is_full = says_so || has_no_room(dir);
    if is_full { error.context(NO_ROOM) } else { error }
}

/// Whether the file system has next to nothing left.
fn has_no_room(dir: &Path) -> bool {
    rustix::fs::statvfs(dir)
        .is_ok_and(|system| system.f_bavail.saturating_mul(system.f_frsize) < LEAST_BYTES)
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
        max_connections: connection_limit(size(kafka.max_connections), open_files()),
        max_connections_per_ip: size(kafka.max_connections_per_ip),
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
        offsets_commit_timeout: millis(kafka.offsets_commit_timeout_ms.into()),
        group_bytes: config.memory.groups.as_usize(),
        max_request_partitions: config.limits.request_partitions,
        max_partitions: size(config.limits.partitions),
        changes: size(config.limits.changes),
        waiting_changes: size(config.limits.waiting_changes),
        frame_timeout: config.limits.request_timeout.0,
        send_stall_timeout: config.limits.answer_timeout.0,
        transfer_bytes_per_second: config.limits.transfer_rate.as_usize(),
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

/// How many files this process may have open; `None`: any number.
fn open_files() -> Option<usize> {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current?;
    Some(usize::try_from(limit).unwrap_or(usize::MAX))
}

/// `max.connections`, lowered to what the limit of open files allows.
fn connection_limit(asked: usize, open_files: Option<usize>) -> usize {
    let Some(open_files) = open_files else { return asked };
    // Some connections even where files alone may need all that there is.
    let allowed = open_files.saturating_sub(RESERVED_FILES).max(open_files / 4);
    if open_files < 2 * RESERVED_FILES {
        tracing::warn!(
            open_files,
            connections = allowed.min(asked),
            "the limit of open files is low: raise it (ulimit -n)"
        );
    }
    allowed.min(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_leave_descriptors_to_files() {
        let kafkas_default = i32::MAX as usize;
        assert_eq!(connection_limit(kafkas_default, None), kafkas_default);
        assert_eq!(connection_limit(kafkas_default, Some(1_048_576)), 1_048_192);
        assert_eq!(connection_limit(kafkas_default, Some(1_024)), 640);
        assert_eq!(connection_limit(100, Some(1_024)), 100);
        // Hardly any descriptors: both get their share.
        assert_eq!(connection_limit(kafkas_default, Some(256)), 64);
        assert_eq!(connection_limit(kafkas_default, Some(0)), 0);
        assert!(open_files().is_none_or(|files| files > 0));
    }
}
