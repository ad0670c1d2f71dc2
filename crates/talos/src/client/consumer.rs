//! Consuming: one task per leader asks for batches with long polls and hands them over through a
//! bounded queue.
//!
//! Batches come in order within a partition. What is in the queue is at most
//! [`ConsumerOptions::buffer`] bytes (one answer may pass it). A partition that its leader refuses
//! for good ends the consumer with that error. One that cannot be read now is tried again for as
//! long as the consumer lives, with pauses of at most `MAX_PAUSE`; [`Consumer::troubles`] says
//! which those are, so that whoever reads can tell of it or give up.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use talos_common::{ByteBudget, ByteLease, ByteSize};
use talos_protocol::batch::{Batch, BatchError, Batches};
use talos_protocol::messages::fetch::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData,
};
use talos_protocol::{ApiKey, ErrorCode, Str, Uuid};
use tokio::sync::{mpsc, watch};

use super::cluster::{Cluster, Topic};
use super::connection::Connection;
use super::error::ClientError;

/// The first pause before a refused partition is asked for again; it doubles up to [`MAX_PAUSE`].
const RETRY_PAUSE: Duration = Duration::from_millis(100);
/// The longest such pause.
const MAX_PAUSE: Duration = Duration::from_secs(1);
/// Stands for the leader of partitions that have none.
const NOBODY: i32 = -1;
/// From this version on Fetch names topics by id.
const LAST_VERSION_WITH_NAMES: i16 = 12;

/// How a consumer works.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// How long a leader may wait for `min_bytes`.
    pub max_wait: Duration,
    /// An answer comes as soon as there are this many bytes.
    pub min_bytes: i32,
    /// Most bytes of one answer (a first batch is always whole).
    pub max_bytes: i32,
    /// Most bytes of one partition in one answer.
    pub partition_max_bytes: i32,
    /// Most bytes waiting to be taken.
    pub buffer: ByteSize,
    /// Whether only committed records are read.
    pub read_committed: bool,
    /// Whether the checksum of each batch is checked.
    pub check_crc: bool,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self {
            max_wait: Duration::from_millis(500),
            min_bytes: 1,
            max_bytes: 50 << 20,
            partition_max_bytes: 4 << 20,
            buffer: ByteSize::mib(64),
            read_committed: true,
            check_crc: true,
        }
    }
}

/// What one answer said of one partition. May hold no batch: then only the watermark is news.
#[derive(Debug)]
pub struct Fetched {
    /// Topic and partition, as they were assigned.
    pub topic: Str,
    /// Partition index.
    pub partition: i32,
    /// Whole batches, in order. The first may begin before the offset that was asked for.
    pub batches: Vec<Batch>,
    /// The offset that was asked for: records below it are not part of the answer.
    pub from: i64,
    /// First offset that cannot be read yet.
    pub high_watermark: i64,
    /// The offset behind the last batch.
    pub next: i64,
    _lease: Option<Arc<ByteLease>>,
}

#[derive(Clone, Debug)]
struct Assigned {
    topic: Str,
    topic_id: Uuid,
    partition: i32,
    next: i64,
    leader: i32,
    /// Whether its leader has to be looked up again.
    retry: bool,
    /// Why it cannot be read now.
    trouble: Option<ClientError>,
}

/// A consumer of fixed partitions. Dropping it ends its tasks at their next step.
pub struct Consumer {
    inner: Arc<Inner>,
    fetched: mpsc::Receiver<Result<Fetched, ClientError>>,
}

struct Inner {
    cluster: Cluster,
    options: ConsumerOptions,
    budget: ByteBudget,
    partitions: Mutex<BTreeMap<(Str, i32), Assigned>>,
    queue: mpsc::Sender<Result<Fetched, ClientError>>,
    stop: watch::Sender<bool>,
    /// Changes whenever a partition gets into trouble or out of it.
    troubled: watch::Sender<u64>,
    running: Mutex<BTreeSet<i32>>,
}

impl Drop for Consumer {
    fn drop(&mut self) {
        self.inner.stop.send_replace(true);
    }
}

impl Consumer {
    /// Starts fetching these partitions from these offsets. One without a leader is waited for.
    ///
    /// # Errors
    /// As [`Cluster::topic`]; `Kafka` with `UNKNOWN_TOPIC_OR_PARTITION` for a partition that the
    /// topic does not have.
    pub async fn start(
        cluster: Cluster,
        options: ConsumerOptions,
        from: &[(Str, i32, i64)],
    ) -> Result<Self, ClientError> {
        let (queue, fetched) = mpsc::channel(1024);
        let budget = ByteBudget::new(options.buffer.as_usize());
        let inner = Arc::new(Inner {
            cluster,
            options,
            budget,
            partitions: Mutex::default(),
            queue,
            stop: watch::Sender::new(false),
            troubled: watch::Sender::new(0),
            running: Mutex::default(),
        });
        let consumer = Self { inner, fetched };
        consumer.add(from).await?;
        Ok(consumer)
    }

    /// Fetches these partitions too.
    ///
    /// # Errors
    /// As [`Consumer::start`]; then none of them is added.
    pub async fn add(&self, from: &[(Str, i32, i64)]) -> Result<(), ClientError> {
        let cluster = &self.inner.cluster;
        let mut more = Vec::with_capacity(from.len());
        for (topic, partition, next) in from {
            let known = cluster.topic(topic, false).await?;
            let Some(found) = known.partitions.get(partition) else {
                return Err(cluster.no_partition(&known, *partition).await);
            };
            more.push(Assigned {
                topic: topic.clone(),
                topic_id: known.id,
                partition: *partition,
                next: *next,
                leader: found.leader.unwrap_or(NOBODY),
                retry: found.leader.is_none(),
                trouble: None,
            });
        }
        let places = more.into_iter().map(|p| ((p.topic.clone(), p.partition), p));
        self.inner.partitions().extend(places);
        self.inner.start_missing();
        Ok(())
    }

    /// The partitions that cannot be read now, and why.
    pub fn troubles(&self) -> Vec<(i32, ClientError)> {
        let partitions = self.inner.partitions();
        let troubled = partitions.values().filter_map(|p| Some((p.partition, p.trouble.clone()?)));
        troubled.collect()
    }

    /// Changes whenever [`Consumer::troubles`] may have.
    pub fn troubled(&self) -> watch::Receiver<u64> {
        self.inner.troubled.subscribe()
    }

    /// The next news of a partition. Cancel safe. `None` never comes while the consumer lives.
    ///
    /// # Errors
    /// What a leader refuses for good, or batches that are damaged.
    pub async fn next(&mut self) -> Option<Result<Fetched, ClientError>> {
        self.fetched.recv().await
    }
}

impl Inner {
    fn partitions(&self) -> MutexGuard<'_, BTreeMap<(Str, i32), Assigned>> {
        self.partitions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a task for each leader that has none.
    fn start_missing(self: &Arc<Self>) {
        let leaders: Vec<i32> = self.partitions().values().map(|p| p.leader).collect();
        for leader in leaders {
            let fresh = self.running.lock().unwrap_or_else(PoisonError::into_inner).insert(leader);
            if fresh {
                let inner = Arc::clone(self);
                let tasks = self.cluster.env().tasks.clone();
                tasks.spawn("consumer fetcher", async move {
                    let mut stop = inner.stop.subscribe();
                    tokio::select! {
                        biased;
                        _ = stop.wait_for(|stop| *stop) => {}
                        () = inner.fetch_from(leader) => {}
                    }
                });
            }
        }
    }

    /// Fetches from one leader for as long as it has partitions of ours.
    async fn fetch_from(self: &Arc<Self>, leader: i32) {
        let mut pause = RETRY_PAUSE;
        loop {
            let mut assigned: Vec<Assigned> =
                self.partitions().values().filter(|p| p.leader == leader).cloned().collect();
            let troubled = assigned.iter().filter(|p| p.retry).count();
            // While others are read, those that cannot be wait for a round of their own.
            if troubled > 0 && leader != NOBODY {
                self.set_aside(&assigned);
                continue;
            }
            if troubled > 0 {
                self.cluster.env().clock.sleep(pause).await;
                pause = (pause * 2).min(MAX_PAUSE);
                if let Err(error) = self.find_leaders(&assigned).await {
                    let _ = self.queue.send(Err(error)).await;
                    return;
                }
                continue;
            }
            if assigned.is_empty() {
                self.running.lock().unwrap_or_else(PoisonError::into_inner).remove(&leader);
                // One may have come back in between.
                self.start_missing();
                return;
            }
            // Who got least should come first next time.
            assigned.sort_by_key(|p| p.next);
            match self.fetch_once(leader, &assigned).await {
                Ok(news) => {
                    for news in news {
                        if self.queue.send(news).await.is_err() {
                            return;
                        }
                    }
                }
                Err(error) if error.is_retriable() || error.is_away() => {
                    tracing::debug!(%error, "fetching again");
                    self.mark(&assigned, &error);
                }
                Err(error) => {
                    let _ = self.queue.send(Err(error)).await;
                    return;
                }
            }
        }
    }

    /// These cannot be read now, because of this.
    fn mark(&self, assigned: &[Assigned], error: &ClientError) {
        let mut partitions = self.partitions();
        for p in assigned {
            if let Some(known) = partitions.get_mut(&(p.topic.clone(), p.partition)) {
                known.retry = true;
                known.trouble = Some(error.clone());
            }
        }
        drop(partitions);
        self.troubled.send_modify(|changes| *changes = changes.wrapping_add(1));
    }

    /// Hands partitions that cannot be read over to the task that looks for their leaders.
    fn set_aside(self: &Arc<Self>, assigned: &[Assigned]) {
        let mut partitions = self.partitions();
        for p in assigned.iter().filter(|p| p.retry) {
            if let Some(known) = partitions.get_mut(&(p.topic.clone(), p.partition)) {
                known.leader = NOBODY;
            }
        }
        drop(partitions);
        self.start_missing();
    }

    /// Looks up the leaders of partitions that were refused.
    async fn find_leaders(self: &Arc<Self>, assigned: &[Assigned]) -> Result<(), ClientError> {
        let topics: BTreeSet<&Str> =
            assigned.iter().filter(|p| p.retry).map(|p| &p.topic).collect();
        for topic in topics {
            let of_topic: Vec<Assigned> =
                assigned.iter().filter(|p| p.retry && p.topic == *topic).cloned().collect();
            self.cluster.forget(topic);
            let known = match self.cluster.topic(topic, false).await {
                Ok(known) => known,
                // The topic was deleted: waiting for another of its name would hide that.
                Err(error) if error.code() == Some(ErrorCode::UnknownTopicOrPartition) => {
                    return Err(error);
                }
                // It is tried again after the next pause.
                Err(error) if error.is_retriable() || error.is_away() => {
                    self.mark(&of_topic, &error);
                    continue;
                }
                Err(error) => return Err(error),
            };
            for p in of_topic {
                self.found(&p, &known).await?;
            }
        }
        self.start_missing();
        Ok(())
    }

    /// Its topic is known again.
    async fn found(&self, p: &Assigned, topic: &Topic) -> Result<(), ClientError> {
        if topic.id != p.topic_id {
            let text = format!("topic {} was deleted and created again meanwhile", p.topic);
            return Err(ClientError::Invalid(text));
        }
        match topic.partitions.get(&p.partition).map(|found| found.leader) {
            Some(Some(leader)) => {
                if let Some(known) = self.partitions().get_mut(&(p.topic.clone(), p.partition)) {
                    known.leader = leader;
                    known.retry = false;
                }
                Ok(())
            }
            Some(None) => {
                let (topic, partition) = (p.topic.to_string(), p.partition);
                let error = ClientError::NoLeader { topic, partition };
                self.mark(std::slice::from_ref(p), &error);
                Ok(())
            }
            None => Err(self.cluster.no_partition(topic, p.partition).await),
        }
    }

    async fn fetch_once(
        &self,
        leader: i32,
        assigned: &[Assigned],
    ) -> Result<Vec<Result<Fetched, ClientError>>, ClientError> {
        let connection = self.cluster.broker(leader).await?;
        let named = assigned.iter().any(|p| p.topic_id.is_zero());
        let cap = if named { LAST_VERSION_WITH_NAMES } else { i16::MAX };
        let version = connection.version::<FetchRequest>(cap)?;
        let request = self.request(assigned);
        let limit = self.cluster.options().timeout + self.options.max_wait;
        let answer = connection.call_within(&request, version, limit).await?;
        let server = connection.server();
        ClientError::check(server, ApiKey::Fetch, "the request", answer.error_code, None)?;
        self.read(&connection, assigned, answer).await
    }

    fn request(&self, assigned: &[Assigned]) -> FetchRequest {
        let mut topics: Vec<FetchTopic> = Vec::new();
        for p in assigned {
            let partition = FetchPartition {
                partition: p.partition,
                fetch_offset: p.next,
                partition_max_bytes: self.options.partition_max_bytes,
                ..Default::default()
            };
            match topics.last_mut().filter(|topic| topic.topic == p.topic) {
                Some(topic) => topic.partitions.push(partition),
                None => topics.push(FetchTopic {
                    topic: p.topic.clone(),
                    topic_id: p.topic_id,
                    partitions: vec![partition],
                }),
            }
        }
        FetchRequest {
            max_wait_ms: i32::try_from(self.options.max_wait.as_millis()).unwrap_or(i32::MAX),
            min_bytes: self.options.min_bytes,
            max_bytes: self.options.max_bytes,
            isolation_level: i8::from(self.options.read_committed),
            topics,
            ..Default::default()
        }
    }

    async fn read(
        &self,
        connection: &Connection,
        assigned: &[Assigned],
        answer: FetchResponse,
    ) -> Result<Vec<Result<Fetched, ClientError>>, ClientError> {
        let mut all = Vec::new();
        let bytes: usize = answer
            .responses
            .iter()
            .flat_map(|topic| &topic.partitions)
            .map(|data| data.records.as_ref().map_or(0, talos_protocol::Records::len))
            .sum();
        // One lease per answer: taking it in parts, two leaders could wait for each other.
        let lease = match bytes {
            0 => None,
            bytes => Some(Arc::new(self.budget.take(bytes).await)),
        };
        for topic in answer.responses {
            for data in topic.partitions {
                let ours = |p: &&Assigned| {
                    p.partition == data.partition_index
                        && (p.topic == topic.topic
                            || (topic.topic.is_empty() && p.topic_id == topic.topic_id))
                };
                let Some(p) = assigned.iter().find(ours) else { continue };
                match self.read_partition(connection, p, data) {
                    Ok(Some(mut fetched)) => {
                        if !fetched.batches.is_empty() {
                            fetched._lease = lease.clone();
                        }
                        all.push(Ok(fetched));
                    }
                    Ok(None) => {}
                    Err(error) if error.is_retriable() => {
                        self.mark(std::slice::from_ref(p), &error);
                    }
                    Err(error) => all.push(Err(error)),
                }
            }
        }
        Ok(all)
    }

    fn read_partition(
        &self,
        connection: &Connection,
        p: &Assigned,
        data: PartitionData,
    ) -> Result<Option<Fetched>, ClientError> {
        let (server, api) = (connection.server(), ApiKey::Fetch);
        let subject = format!("{}-{} at offset {}", p.topic, p.partition, p.next);
        if ErrorCode::from_code(data.error_code) == Some(ErrorCode::OffsetNotAvailable) {
            return Ok(None);
        }
        ClientError::check(server, api, subject, data.error_code, None)?;
        let bytes = data.records.map(|records| records.to_bytes()).unwrap_or_default();
        let aborted = data.aborted_transactions.unwrap_or_default();
        let mut next = p.next;
        let mut batches = Vec::new();
        let mut filter = AbortFilter::new(
            aborted.iter().map(|txn| (txn.producer_id, txn.first_offset)).collect(),
        );
        for batch in whole_batches(bytes) {
            let batch = batch.map_err(|source| self.corrupt(p, next, source))?;
            if self.options.check_crc {
                batch.verify_crc().map_err(|source| self.corrupt(p, next, source))?;
            }
            let end = batch.header.end_offset();
            // Compaction may leave a batch below what was asked for.
            if end > p.next {
                next = next.max(end);
                if filter.passes(&batch) {
                    batches.push(batch);
                }
            }
        }
        let mut recovered = false;
        if let Some(known) = self.partitions().get_mut(&(p.topic.clone(), p.partition)) {
            known.next = next;
            recovered = known.trouble.take().is_some();
        }
        if recovered {
            self.troubled.send_modify(|changes| *changes = changes.wrapping_add(1));
        }
        let readable = if self.options.read_committed && data.last_stable_offset >= 0 {
            data.last_stable_offset
        } else {
            data.high_watermark
        };
        Ok(Some(Fetched {
            topic: p.topic.clone(),
            partition: p.partition,
            batches,
            from: p.next,
            high_watermark: readable,
            next,
            _lease: None,
        }))
    }

    fn corrupt(&self, p: &Assigned, offset: i64, source: BatchError) -> ClientError {
        let (topic, partition) = (p.topic.to_string(), p.partition);
        ClientError::Corrupt { topic, partition, offset, source }
    }
}

/// The whole batches of an answer: a last one that was cut off is left for the next answer.
fn whole_batches(bytes: Bytes) -> impl Iterator<Item = Result<Batch, BatchError>> {
    let mut given = false;
    Batches::new(bytes).filter_map(move |batch| match batch {
        Err(BatchError::Truncated { .. }) if given => None,
        other => {
            given = true;
            Some(other)
        }
    })
}

/// Leaves out control batches and the batches of aborted transactions, as Kafka's consumer does.
struct AbortFilter {
    /// Producer id and first offset, by rising offset.
    ahead: std::collections::VecDeque<(i64, i64)>,
    open: BTreeSet<i64>,
}

impl AbortFilter {
    fn new(mut aborted: Vec<(i64, i64)>) -> Self {
        aborted.sort_by_key(|(_, first)| *first);
        Self { ahead: aborted.into(), open: Default::default() }
    }

    fn passes(&mut self, batch: &Batch) -> bool {
        let header = &batch.header;
        while let Some((producer, first)) = self.ahead.front().copied()
            && first <= header.last_offset()
        {
            self.open.insert(producer);
            self.ahead.pop_front();
        }
        if header.attributes.is_control() {
            // The marker ends the transaction, whichever way.
            self.open.remove(&header.producer_id);
            return false;
        }
        !(header.attributes.is_transactional() && self.open.contains(&header.producer_id))
    }
}
