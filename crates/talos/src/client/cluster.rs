//! A cluster as a client sees it: its brokers, who leads which partition, connections to them.
//!
//! Metadata is cached and asked for again when a leader turns out wrong. Retries are for errors
//! that Kafka calls retriable and for lost connections, with growing pauses, until the time of the
//! options is up; only requests that may be repeated go through [`Cluster::retry`].

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use talos_common::{ByteSize, Env};
use talos_protocol::messages::find_coordinator::{FindCoordinatorRequest, FindCoordinatorResponse};
use talos_protocol::messages::metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic,
};
use talos_protocol::{ApiKey, ErrorCode, Request, Str, Uuid};

use super::connection::{Connection, ConnectionOptions};
use super::deadline;
use super::error::ClientError;

/// The first pause before a retry; it doubles up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(50);
/// The longest pause between retries.
const MAX_PAUSE: Duration = Duration::from_secs(1);

/// How to reach a cluster.
#[derive(Clone, Debug)]
pub struct ClusterOptions {
    /// Addresses (`HOST:PORT`) to ask first, in this order.
    pub bootstrap: Vec<String>,
    /// The name that the client gives itself.
    pub client_id: String,
    /// How long one operation may take: its requests, their retries, and the connections that they
    /// need, all together.
    pub timeout: Duration,
    /// Largest answer that is accepted.
    pub max_response: ByteSize,
}

impl Default for ClusterOptions {
    fn default() -> Self {
        Self {
            bootstrap: vec!["127.0.0.1:9092".into()],
            client_id: "talos".into(),
            timeout: Duration::from_secs(30),
            max_response: ByteSize::mib(256),
        }
    }
}

/// What is known of one topic.
#[derive(Clone, Debug)]
pub struct Topic {
    /// Its name.
    pub name: Str,
    /// Its id; zero where the cluster has none.
    pub id: Uuid,
    /// Whether the cluster keeps its own data in it.
    pub internal: bool,
    /// By partition index.
    pub partitions: BTreeMap<i32, Partition>,
}

impl Topic {
    /// Its partitions without a leader, by index.
    pub fn offline(&self) -> Vec<i32> {
        let offline = self.partitions.iter().filter(|(_, partition)| partition.leader.is_none());
        offline.map(|(index, _)| *index).collect()
    }
}

/// What is known of one partition.
#[derive(Clone, Debug)]
pub struct Partition {
    /// Its leader; `None` while there is none.
    pub leader: Option<i32>,
    /// Number of the leadership; -1 if the broker does not say.
    pub leader_epoch: i32,
    /// Brokers that hold it.
    pub replicas: Vec<i32>,
    /// Brokers that hold all of it.
    pub isr: Vec<i32>,
}

#[derive(Debug, Default)]
struct State {
    brokers: BTreeMap<i32, String>,
    topics: BTreeMap<String, Arc<Topic>>,
    connections: BTreeMap<String, Arc<Connection>>,
    /// Whether any broker was reached so far.
    reached: bool,
}

/// A cluster. Clones share connections and metadata.
#[derive(Clone, Debug)]
pub struct Cluster {
    env: Env,
    options: Arc<ClusterOptions>,
    state: Arc<Mutex<State>>,
}

impl Cluster {
    /// Nothing is connected yet.
    pub fn new(env: Env, options: ClusterOptions) -> Self {
        Self { env, options: Arc::new(options), state: Arc::default() }
    }

    /// Another client of the same cluster, with connections of its own.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self { env: self.env.clone(), options: Arc::clone(&self.options), state: Arc::default() }
    }

    /// The surroundings.
    pub fn env(&self) -> &Env {
        &self.env
    }

    /// The options.
    pub fn options(&self) -> &ClusterOptions {
        &self.options
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An open connection to an address, shared by all who ask for it.
    ///
    /// # Errors
    /// As [`Connection::open`].
    pub async fn connect(&self, server: &str) -> Result<Arc<Connection>, ClientError> {
        let known = self.state().connections.get(server).cloned();
        if let Some(connection) = known.filter(|connection| !connection.is_closed()) {
            return Ok(connection);
        }
        let options = ConnectionOptions {
            client_id: Str::from(self.options.client_id.clone()),
            timeout: self.options.timeout,
            max_response: self.options.max_response.as_usize(),
        };
        let opened = Arc::new(Connection::open(&self.env, server, options).await?);
        let mut state = self.state();
        state.reached = true;
        let slot =
            state.connections.entry(server.to_owned()).or_insert_with(|| Arc::clone(&opened));
        // Two may have connected at once: the first stays, so that the order of requests holds.
        if slot.is_closed() {
            *slot = opened;
        }
        Ok(Arc::clone(slot))
    }

    /// A connection to any broker: one that is known, else the first of the bootstrap addresses
    /// that answers.
    ///
    /// # Errors
    /// The last one's.
    pub async fn any(&self) -> Result<Arc<Connection>, ClientError> {
        let open = {
            let state = self.state();
            state.connections.values().find(|connection| !connection.is_closed()).cloned()
        };
        if let Some(connection) = open {
            return Ok(connection);
        }
        let mut last = ClientError::Invalid("there is no bootstrap address".into());
        for (index, server) in self.options.bootstrap.iter().enumerate() {
            // One that is silent leaves the others their share of the time.
            let others = u32::try_from(self.options.bootstrap.len() - index).unwrap_or(1).max(1);
            let share = deadline::left(&self.env.clock, self.options.timeout).time / others;
            let connecting = self.connect(server.trim());
            match deadline::within(&self.env.clock, share, connecting).await {
                Ok(connection) => return Ok(connection),
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    /// A connection to the broker with this id.
    ///
    /// # Errors
    /// As [`Cluster::connect`]; `Invalid` if metadata does not know the id.
    pub async fn broker(&self, id: i32) -> Result<Arc<Connection>, ClientError> {
        let address = self.state().brokers.get(&id).cloned();
        match address {
            Some(address) => self.connect(&address).await,
            None => Err(ClientError::Invalid(format!("the cluster has no broker {id}"))),
        }
    }

    /// Asks any broker.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn ask<R: Request>(
        &self,
        request: &R,
    ) -> Result<(Arc<Connection>, R::Response), ClientError> {
        let connection = self.any().await?;
        let answer = connection.call(request).await?;
        Ok((connection, answer))
    }

    /// Metadata as a broker gives it now; the cache learns of it. `topics: None` asks for all.
    ///
    /// # Errors
    /// As [`Cluster::ask`]; errors of single topics stand in the answer.
    pub async fn metadata(
        &self,
        topics: Option<&[&str]>,
        create: bool,
    ) -> Result<MetadataResponse, ClientError> {
        let named = |name: &&str| MetadataRequestTopic {
            name: Some(Str::from((*name).to_owned())),
            ..Default::default()
        };
        let request = MetadataRequest {
            topics: topics.map(|topics| topics.iter().map(named).collect()),
            allow_auto_topic_creation: create,
            ..Default::default()
        };
        let (connection, answer) = self.ask(&request).await?;
        let api = ApiKey::Metadata;
        ClientError::check(connection.server(), api, "the cluster", answer.error_code, None)?;
        let mut state = self.state();
        state.brokers = answer
            .brokers
            .iter()
            .map(|broker| (broker.node_id, address(&broker.host, broker.port)))
            .collect();
        for topic in &answer.topics {
            let Some(name) = topic.name.as_deref() else { continue };
            if topic.error_code == 0 {
                state.topics.insert(name.to_owned(), Arc::new(read_topic(name, topic)));
            } else {
                state.topics.remove(name);
            }
        }
        Ok(answer)
    }

    /// The topic, from the cache or asked for. With `create` it is made if the cluster allows that,
    /// and a new one is waited for until all its partitions have leaders. A topic that was there
    /// may have partitions without a leader: they are offline, and the others are of use.
    ///
    /// # Errors
    /// `Kafka` with `UNKNOWN_TOPIC_OR_PARTITION` at once if it does not exist (unless `create`).
    pub async fn topic(&self, name: &str, create: bool) -> Result<Arc<Topic>, ClientError> {
        if let Some(known) = self.state().topics.get(name).cloned() {
            return Ok(known);
        }
        if !create {
            return self.retry(|| self.topic_once(name, false), false).await;
        }
        let unknown =
            |error: &ClientError| error.code() == Some(ErrorCode::UnknownTopicOrPartition);
        match self.retry(|| self.topic_once(name, false), false).await {
            Err(error) if unknown(&error) => self.new_topic(name, true).await,
            found => found,
        }
    }

    /// A topic that was created a moment ago (or is to be, with `create`), once every partition has
    /// a leader.
    ///
    /// # Errors
    /// `NoLeader` when that takes too long, or Kafka's.
    pub async fn new_topic(&self, name: &str, create: bool) -> Result<Arc<Topic>, ClientError> {
        let led = || async {
            let known = self.topic_once(name, create).await?;
            match known.offline().first() {
                Some(partition) => {
                    Err(ClientError::NoLeader { topic: name.into(), partition: *partition })
                }
                None => Ok(known),
            }
        };
        self.retry(led, true).await
    }

    async fn topic_once(&self, name: &str, create: bool) -> Result<Arc<Topic>, ClientError> {
        let answer = self.metadata(Some(&[name]), create).await?;
        let server = self.any().await?.server().to_owned();
        let found = answer.topics.iter().find(|topic| topic.name.as_deref() == Some(name));
        let code = found.map_or(ErrorCode::UnknownTopicOrPartition.code(), |t| t.error_code);
        let subject = format!("topic {name}");
        ClientError::check(&server, ApiKey::Metadata, subject, code, None)?;
        let known = self.state().topics.get(name).cloned();
        known.ok_or_else(|| ClientError::missing(&server, ApiKey::Metadata, name))
    }

    /// Drops what the cache knows of a topic, because a leader was wrong.
    pub fn forget(&self, topic: &str) {
        self.state().topics.remove(topic);
    }

    /// Leader of a partition and a connection to it.
    ///
    /// # Errors
    /// `NoLeader`, `Kafka` with `UNKNOWN_TOPIC_OR_PARTITION`, or as [`Cluster::connect`].
    pub async fn leader(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<(Arc<Topic>, i32, Arc<Connection>), ClientError> {
        let known = self.topic(topic, false).await?;
        let leader = match known.partitions.get(&partition) {
            Some(partition) => partition.leader,
            None => return Err(self.no_partition(&known, partition).await),
        };
        let Some(leader) = leader else {
            self.forget(topic);
            return Err(ClientError::NoLeader { topic: topic.into(), partition });
        };
        let connection = self.broker(leader).await?;
        Ok((known, leader, connection))
    }

    /// The error of asking for a partition that the topic does not have.
    pub(crate) async fn no_partition(&self, topic: &Topic, partition: i32) -> ClientError {
        let server = match self.any().await {
            Ok(connection) => connection.server().to_owned(),
            Err(error) => return error,
        };
        ClientError::Kafka {
            server,
            api: ApiKey::Metadata,
            subject: format!("partition {}-{partition}", topic.name),
            code: ErrorCode::UnknownTopicOrPartition.code(),
            message: Some(format!("the topic has {} partitions", topic.partitions.len())),
        }
    }

    /// Repeats `work` while it fails with a retriable error and time is left; all of it together
    /// takes at most the time of the options. An unknown topic counts as retriable only with
    /// `patient` (it may be about to exist).
    ///
    /// # Errors
    /// The last error of `work`.
    pub async fn retry<T, F>(
        &self,
        mut work: impl FnMut() -> F,
        patient: bool,
    ) -> Result<T, ClientError>
    where
        F: Future<Output = Result<T, ClientError>>,
    {
        let repeating = async {
            let mut pause = FIRST_PAUSE;
            loop {
                let error = match work().await {
                    Ok(done) => return Ok(done),
                    Err(error) => error,
                };
                let unknown = error.code() == Some(ErrorCode::UnknownTopicOrPartition);
                // Who is not there at the start is told at once: waiting hides the mistake.
                let absent = matches!(error, ClientError::Connect { .. }) && !self.state().reached;
                let again = error.is_retriable() && !absent && (patient || !unknown);
                let left = deadline::left(&self.env.clock, self.options.timeout).time;
                if !again || left <= pause {
                    return Err(error);
                }
                tracing::debug!(%error, "trying again");
                self.env.clock.sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
            }
        };
        deadline::within(&self.env.clock, self.options.timeout, repeating).await
    }

    /// A connection to the coordinator of a group.
    ///
    /// # Errors
    /// `Kafka` with the coordinator's error once retries are used up.
    pub async fn coordinator(&self, group: &str) -> Result<Arc<Connection>, ClientError> {
        self.retry(|| self.find_coordinator(group), true).await
    }

    async fn find_coordinator(&self, group: &str) -> Result<Arc<Connection>, ClientError> {
        let connection = self.any().await?;
        let version = connection.version::<FindCoordinatorRequest>(4)?;
        let key = Str::from(group.to_owned());
        let request = if version >= 4 {
            FindCoordinatorRequest { coordinator_keys: vec![key], ..Default::default() }
        } else {
            FindCoordinatorRequest { key, ..Default::default() }
        };
        let answer: FindCoordinatorResponse = connection.call_version(&request, version).await?;
        let (code, message, host, port) = match answer.coordinators.first() {
            Some(c) if version >= 4 => {
                (c.error_code, c.error_message.clone(), c.host.clone(), c.port)
            }
            _ if version >= 4 => {
                let api = ApiKey::FindCoordinator;
                return Err(ClientError::missing(connection.server(), api, "coordinator"));
            }
            _ => (answer.error_code, answer.error_message, answer.host, answer.port),
        };
        let (server, subject) = (connection.server(), format!("group {group}"));
        let api = ApiKey::FindCoordinator;
        ClientError::check(server, api, subject, code, message.as_deref())?;
        self.connect(&address(&host, port)).await
    }
}

fn address(host: &str, port: i32) -> String {
    if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
}

fn read_topic(name: &str, topic: &MetadataResponseTopic) -> Topic {
    let partitions = topic.partitions.iter().map(|partition| {
        let usable = partition.leader_id >= 0;
        let read = Partition {
            leader: usable.then_some(partition.leader_id),
            leader_epoch: partition.leader_epoch,
            replicas: partition.replica_nodes.clone(),
            isr: partition.isr_nodes.clone(),
        };
        (partition.partition_index, read)
    });
    Topic {
        name: Str::from(name.to_owned()),
        id: topic.topic_id,
        internal: topic.is_internal,
        partitions: partitions.collect(),
    }
}
