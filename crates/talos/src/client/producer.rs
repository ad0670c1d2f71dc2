//! Producing: records are collected into one batch per partition, batches into one request per
//! leader, several requests in flight.
//!
//! Order per partition: batches are sent in the order in which they were filled. When one has to be
//! sent again, the partition pauses until all its batches in flight came back, then sends them
//! again in their order, with the bytes they had; with a producer id the broker drops what it has
//! already. Idempotent producers stop for good at the first batch that fails for good, because
//! what follows it would leave a gap.
//!
//! The state is one struct under a lock that is never held across an await; what a request brings
//! back is judged in `State::settle`.

mod sender;
mod state;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use talos_common::{ByteBudget, ByteSize};
use talos_protocol::batch::Compression;
use talos_protocol::messages::init_producer_id::InitProducerIdRequest;
use talos_protocol::{ApiKey, Str};
use tokio::sync::{Notify, watch};

use super::batch::{ProducerId, Record};
use super::cluster::Cluster;
use super::error::ClientError;
use state::{Appended, State};

/// How a producer works.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// Who must have a batch before it is answered: -1 (all), 1 (the leader), 0 (no answer).
    pub acks: i16,
    /// Compression of batches.
    pub codec: Compression,
    /// How long a batch waits for more records while a request could be sent.
    pub linger: Duration,
    /// A batch is closed when it has this many bytes (a larger record is a batch of its own).
    pub batch_bytes: usize,
    /// Records that are not yet acknowledged take at most this much.
    pub buffer: ByteSize,
    /// Whether the broker drops what arrives twice. Needs `acks` -1.
    pub idempotent: bool,
    /// Most unanswered requests per leader; at most 5 with `idempotent`.
    pub in_flight: usize,
    /// How long a batch is tried again before it counts as failed.
    pub delivery_timeout: Duration,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self {
            acks: -1,
            codec: Compression::None,
            linger: Duration::from_millis(5),
            batch_bytes: 64 << 10,
            buffer: ByteSize::mib(32),
            idempotent: true,
            in_flight: 5,
            delivery_timeout: Duration::from_secs(120),
        }
    }
}

/// What became of a batch.
#[derive(Debug)]
pub struct Delivery {
    /// The topic.
    pub topic: Str,
    /// The partition.
    pub partition: i32,
    /// Offset of its first record; -1 when it is not known (`acks` 0, or a duplicate). The
    /// error's [`ClientError::is_unknown_outcome`] says whether the batch may be stored after all.
    pub result: Result<i64, ClientError>,
    /// Bytes of the batch before compression.
    pub bytes: usize,
    /// What [`Producer::send`] was given with each record, in order.
    pub tags: Vec<u64>,
}

/// Called once per batch, in the order in which batches settle. Must be quick.
pub type OnDelivery = Arc<dyn Fn(Delivery) + Send + Sync>;

/// A partition as a producer knows it; only for the producer that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartitionHandle(usize);

/// A producer. Clones share everything.
#[derive(Clone)]
pub struct Producer {
    inner: Arc<Inner>,
}

struct Inner {
    cluster: Cluster,
    options: ProducerOptions,
    id: ProducerId,
    budget: ByteBudget,
    state: Mutex<State>,
    /// Batches that are not settled.
    outstanding: watch::Sender<u64>,
    on_delivery: OnDelivery,
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of settled batches. Not under the lock.
    fn deliver(&self, settled: Vec<Delivery>) {
        let count = u64::try_from(settled.len()).unwrap_or(u64::MAX);
        for delivery in settled {
            (self.on_delivery)(delivery);
        }
        if count > 0 {
            self.outstanding.send_modify(|left| *left = left.saturating_sub(count));
        }
    }
}

impl Producer {
    /// A producer, with a producer id of its own if it is idempotent.
    ///
    /// # Errors
    /// As [`Cluster::ask`]; `Invalid` for options that contradict each other.
    pub async fn open(
        cluster: Cluster,
        options: ProducerOptions,
        on_delivery: OnDelivery,
    ) -> Result<Self, ClientError> {
        if options.idempotent && (options.acks != -1 || options.in_flight > 5) {
            let text = "an idempotent producer needs acks=all and at most 5 requests in flight";
            return Err(ClientError::Invalid(text.into()));
        }
        let id = match options.idempotent {
            true => cluster.retry(|| init_producer_id(&cluster), true).await?,
            false => ProducerId::NONE,
        };
        let state = Mutex::new(State::new(&options, id));
        let budget = ByteBudget::new(options.buffer.as_usize());
        let outstanding = watch::Sender::new(0);
        let inner = Inner { cluster, options, id, budget, state, outstanding, on_delivery };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Finds the leader of a partition and gets ready to send to it.
    ///
    /// # Errors
    /// As [`Cluster::leader`].
    pub async fn partition(
        &self,
        topic: &str,
        partition: i32,
    ) -> Result<PartitionHandle, ClientError> {
        if let Some(known) = self.inner.state().find(topic, partition) {
            return Ok(PartitionHandle(known));
        }
        let cluster = &self.inner.cluster;
        let (known, leader, _) = cluster.retry(|| cluster.leader(topic, partition), false).await?;
        let index = self.inner.state().add(&known, partition, leader);
        self.ensure_sender(leader);
        Ok(PartitionHandle(index))
    }

    /// Adds a record to the partition's batch; `tag` comes back with the delivery. Waits while the
    /// buffer is full. Cancel safe: the record is added or it is not.
    ///
    /// # Errors
    /// What stopped the producer, or `Invalid` for a record that no batch can hold.
    pub async fn send(
        &self,
        to: PartitionHandle,
        record: &Record<'_>,
        tag: u64,
    ) -> Result<(), ClientError> {
        let mut lease = None;
        loop {
            let now = self.inner.cluster.env().clock.now();
            let appended = {
                let mut state = self.inner.state();
                state.append(to.0, record, tag, now, &self.inner.budget, &mut lease)?
            };
            match appended {
                Appended::Done { opened, wake } => {
                    if opened > 0 {
                        self.inner.outstanding.send_modify(|count| *count += opened);
                    }
                    if let Some(sender) = wake {
                        sender.notify_one();
                    }
                    return Ok(());
                }
                Appended::NeedsRoom { bytes, wake } => {
                    wake.iter().for_each(|sender| sender.notify_one());
                    lease = Some((self.inner.budget.take(bytes).await, bytes));
                }
            }
        }
    }

    /// Waits until every record so far is settled, without waiting for batches to fill.
    ///
    /// # Errors
    /// What stopped the producer.
    pub async fn flush(&self) -> Result<(), ClientError> {
        let mut outstanding = self.inner.outstanding.subscribe();
        let senders = self.inner.state().press(true);
        senders.iter().for_each(|sender| sender.notify_one());
        // The sender lives as long as `self`.
        let _ = outstanding.wait_for(|left| *left == 0).await;
        let mut state = self.inner.state();
        state.press(false);
        state.failure().map_or(Ok(()), Err)
    }

    fn ensure_sender(&self, leader: i32) {
        let notify = {
            let mut state = self.inner.state();
            if !state.claim_sender(leader) {
                return;
            }
            state.sender(leader)
        };
        let weak = Arc::downgrade(&self.inner);
        let tasks = &self.inner.cluster.env().tasks;
        tasks.spawn("producer sender", sender::run(weak, leader, notify));
    }
}

async fn init_producer_id(cluster: &Cluster) -> Result<ProducerId, ClientError> {
    let request = InitProducerIdRequest {
        transactional_id: None,
        transaction_timeout_ms: i32::MAX,
        ..Default::default()
    };
    let (connection, answer) = cluster.ask(&request).await?;
    let (server, code) = (connection.server(), answer.error_code);
    ClientError::check(server, ApiKey::InitProducerId, "a producer id", code, None)?;
    Ok(ProducerId { id: answer.producer_id, epoch: answer.producer_epoch })
}

/// Wakes the task that sends to one leader.
type Wake = Arc<Notify>;
/// One [`Wake`] per leader, with whether its task runs.
type Senders = BTreeMap<i32, (Wake, bool)>;

/// The partition (of `count`) that Kafka's own clients choose for a key: murmur2 over the key.
/// 0 when there are no partitions.
pub fn partition_of_key(key: &[u8], count: i32) -> i32 {
    let positive = murmur2(key) & 0x7fff_ffff;
    let count = u32::try_from(count).unwrap_or(0).max(1);
    i32::try_from(positive % count).unwrap_or(0)
}

/// MurmurHash2 (32 bits) with the seed that Kafka's clients use.
fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let length = u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut hash: u32 = 0x9747_b28c ^ length;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        let mut last = [0_u8; 4];
        last[..rest.len()].copy_from_slice(rest);
        hash = (hash ^ u32::from_le_bytes(last)).wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_go_where_the_java_client_sends_them() {
        // Hashes of Kafka's Utils.murmur2, as signed numbers.
        for (key, hash) in [
            ("21", -973_932_308_i32),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key.as_bytes()).cast_signed(), hash, "{key}");
        }
        assert_eq!(partition_of_key(b"anything", 0), 0);
        assert!((0..7).contains(&partition_of_key(b"x", 7)));
    }
}
