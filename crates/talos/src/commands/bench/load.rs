//! The load: producers and consumers of one run, and what they count.
//!
//! A record's value begins with its time (nanoseconds since the start of the run, big-endian) and
//! the number of the run, so that consumers count only this run's records.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use talos_common::Env;
use talos_protocol::Str;
use talos_protocol::records::{Limits, decode_records};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use super::BenchArgs;
use super::counts::Counts;
use super::pace::{Schedule, Ticker};
use crate::client::batch::Record;
use crate::client::consumer::{Consumer, ConsumerOptions, Fetched};
use crate::client::offsets::{self, Spec};
use crate::client::producer::{Delivery, Producer};
use crate::client::{ClientError, Cluster};
use crate::stop::Stop;

/// How long consumers may take to get what was acknowledged.
const CATCH_UP: Duration = Duration::from_secs(10);
/// After the stop, answers are waited for this long.
const FAREWELL: Duration = Duration::from_secs(5);
/// Values are cut out of a pool of random text of this many bytes.
const POOL_BYTES: usize = 1 << 20;
/// Without a rate, a producer looks at the clock this often.
const CLOCK_EVERY: u64 = 16;

/// One run: its start and everything counted.
#[derive(Debug)]
pub(super) struct Run {
    env: Env,
    id: u64,
    pub(super) start: Instant,
    warmup_ns: u64,
    pub(super) acked: Mutex<Vec<Arc<Mutex<Counts>>>>,
    pub(super) consumed: Mutex<Vec<Arc<Mutex<Counts>>>>,
    /// Records handed over, warm-up included.
    pub(super) sent: AtomicU64,
    /// Records acknowledged, warm-up included.
    pub(super) acked_all: AtomicU64,
    /// Records of this run that consumers got, warm-up included.
    consumed_all: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) first_error: Mutex<Option<ClientError>>,
    pub(super) end_ns: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Run {
    pub(super) fn new(env: &Env, args: &BenchArgs) -> Self {
        Self {
            env: env.clone(),
            id: env.rng.u64(..),
            start: env.clock.now(),
            warmup_ns: nanos(args.warmup()),
            acked: Mutex::default(),
            consumed: Mutex::default(),
            sent: AtomicU64::new(0),
            acked_all: AtomicU64::new(0),
            consumed_all: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            first_error: Mutex::default(),
            end_ns: AtomicU64::new(0),
        }
    }

    fn now_ns(&self) -> u64 {
        nanos(self.env.clock.now() - self.start)
    }

    fn counts(list: &Mutex<Vec<Arc<Mutex<Counts>>>>) -> Arc<Mutex<Counts>> {
        let counts = Arc::new(Mutex::new(Counts::new()));
        lock(list).push(Arc::clone(&counts));
        counts
    }

    /// Everything that one side counted.
    pub(super) fn total(list: &Mutex<Vec<Arc<Mutex<Counts>>>>) -> Counts {
        let mut all = Counts::new();
        for counts in lock(list).iter() {
            all.merge(&lock(counts));
        }
        all
    }

    pub(super) fn progress(&self) -> String {
        let seconds = self.now_ns() as f64 / 1e9;
        let (acked, consumed) =
            (self.acked_all.load(Ordering::Relaxed), self.consumed_all.load(Ordering::Relaxed));
        format!("{acked} acknowledged, {consumed} consumed, {:.0}/s", acked as f64 / seconds)
    }

    fn delivered(&self, counts: &Mutex<Counts>, delivery: &Delivery) {
        let count = u64::try_from(delivery.tags.len()).unwrap_or(0);
        if let Err(error) = &delivery.result {
            self.failed.fetch_add(count, Ordering::Relaxed);
            lock(&self.first_error).get_or_insert_with(|| error.clone());
            return;
        }
        self.acked_all.fetch_add(count, Ordering::Relaxed);
        let now = self.now_ns();
        let mut counts = lock(counts);
        let before = counts.records;
        for due in delivery.tags.iter().filter(|due| **due >= self.warmup_ns) {
            counts.add(*due, now);
        }
        if counts.records > before {
            counts.at(now);
        }
    }
}

/// The producers of a run, each a task.
pub(super) struct Producers {
    ended: mpsc::Receiver<Result<(), ClientError>>,
    run: Arc<Run>,
    _ticker: Option<Ticker>,
}

impl Producers {
    pub(super) async fn start(
        cluster: &Cluster,
        run: &Arc<Run>,
        topic: &str,
        args: &BenchArgs,
        stop: &Stop,
    ) -> Result<Self, ClientError> {
        let mut ready = Vec::new();
        for index in 0..args.producers {
            let counts = Run::counts(&run.acked);
            let on_delivery = {
                let run = Arc::clone(run);
                Arc::new(move |delivery: Delivery| run.delivered(&counts, &delivery))
            };
            let cluster = cluster.fresh();
            let options = args.producer_options();
            let producer = Producer::open(cluster.clone(), options, on_delivery).await?;
            let mut partitions = Vec::new();
            for partition in cluster.topic(topic, false).await?.partitions.keys() {
                partitions.push(producer.partition(topic, *partition).await?);
            }
            ready.push((index, producer, partitions, Arc::new(Notify::new())));
        }
        let clock = run.env.clock.clone();
        // All are ready: the schedule begins now.
        let start = clock.now();
        let ticker = match args.rate {
            Some(rate) if !ready.is_empty() => {
                let woken = ready.iter().map(|(_, _, _, wake)| Arc::clone(wake)).collect();
                let ticker = Ticker::start(clock, rate, woken);
                Some(ticker.map_err(|error| ClientError::Invalid(error.to_string()))?)
            }
            _ => None,
        };
        let (ends, ended) = mpsc::channel(ready.len().max(1));
        for (index, producer, partitions, wake) in ready {
            let load = Load {
                run: Arc::clone(run),
                producer,
                partitions,
                wake,
                start,
                index: u64::from(index),
                stop: stop.clone(),
                values: Values::new(&run.env, args, run.id),
                args: args.clone(),
            };
            let ends = ends.clone();
            run.env.tasks.spawn("bench producer", async move {
                let _ = ends.send(load.run().await).await;
            });
        }
        Ok(Self { ended, run: Arc::clone(run), _ticker: ticker })
    }

    /// Waits until all producers have ended and gives the first error.
    pub(super) async fn join(mut self) -> Result<(), ClientError> {
        let mut first = Ok(());
        while let Some(ended) = self.ended.recv().await {
            // Errors of records are counted; this is a producer that could not go on.
            if let Err(error) = ended {
                lock(&self.run.first_error).get_or_insert_with(|| error.clone());
                if self.run.failed.load(Ordering::Relaxed) == 0 {
                    first = first.and(Err(error));
                }
            }
        }
        self.run.end_ns.store(self.run.now_ns(), Ordering::Relaxed);
        first
    }
}

/// Record values: time and run, then text out of a pool.
struct Values {
    pool: Vec<u8>,
    value: Vec<u8>,
    at: usize,
}

impl Values {
    fn new(env: &Env, args: &BenchArgs, run: u64) -> Self {
        // Text of 64 letters: compresses by a quarter, as logs of identifiers do.
        const LETTERS: &[u8; 64] =
            b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
        let size = args.size.as_usize();
        let rng = env.rng.fork();
        let letter =
            |bits: u64, shift: u32| LETTERS[usize::try_from(bits >> shift & 0x3f).unwrap_or(0)];
        let mut pool = Vec::with_capacity(POOL_BYTES.max(size) + 10);
        while pool.len() < POOL_BYTES.max(size) {
            let bits = rng.u64(..);
            pool.extend((0..10).map(|digit| letter(bits, digit * 6)));
        }
        let mut value = vec![0; size.max(16)];
        value[8..16].copy_from_slice(&run.to_be_bytes());
        Self { pool, value, at: 0 }
    }

    fn next(&mut self, time_ns: u64) -> &[u8] {
        let body = self.value.len() - 16;
        if self.at + body > self.pool.len() {
            self.at = self.at * 31 % 4_096 % (self.pool.len() - body + 1);
        }
        self.value[..8].copy_from_slice(&time_ns.to_be_bytes());
        self.value[16..].copy_from_slice(&self.pool[self.at..self.at + body]);
        self.at += body.max(1);
        &self.value
    }
}

/// One producer's work.
struct Load {
    run: Arc<Run>,
    producer: Producer,
    partitions: Vec<crate::client::producer::PartitionHandle>,
    wake: Arc<Notify>,
    start: Instant,
    index: u64,
    stop: Stop,
    values: Values,
    args: BenchArgs,
}

impl Load {
    async fn run(mut self) -> Result<(), ClientError> {
        let end = self.start + self.args.warmup() + self.args.duration.0;
        let most = match self.args.records {
            // Shares that differ by one at most.
            Some(all) => {
                let producers = u64::from(self.args.producers.max(1));
                all / producers + u64::from(self.index < all % producers)
            }
            None => u64::MAX,
        };
        let end = if self.args.records.is_some() { None } else { Some(end) };
        let sent = match self.args.rate {
            Some(rate) => self.at_rate(rate, end, most).await,
            None => self.flat_out(end, most).await,
        };
        let (stop, clock) = (self.stop.clone(), self.run.env.clock.clone());
        let too_long = async {
            stop.asked().await;
            clock.sleep(FAREWELL).await;
        };
        tokio::select! {
            biased;
            flushed = self.producer.flush() => sent.and(flushed),
            // The report counts what has no answer yet.
            () = too_long => sent,
        }
    }

    async fn at_rate(
        &mut self,
        rate: u64,
        end: Option<Instant>,
        most: u64,
    ) -> Result<(), ClientError> {
        let producers = u64::from(self.args.producers);
        let schedule = Schedule::new(self.start, rate, producers, self.index);
        let clock = self.run.env.clock.clone();
        let mut number = 0;
        while number < most && !self.stop.is_asked() {
            let due = schedule.due(number);
            if end.is_some_and(|end| due >= end) {
                break;
            }
            let stop = self.stop.clone();
            let step = async {
                if due > clock.now() {
                    self.wake.notified().await;
                    return Ok(false);
                }
                self.send(due, number).await.map(|()| true)
            };
            tokio::select! {
                biased;
                sent = step => number += u64::from(sent?),
                // A buffer that is full is no reason to stay.
                () = stop.asked() => break,
            }
        }
        Ok(())
    }

    async fn flat_out(&mut self, end: Option<Instant>, most: u64) -> Result<(), ClientError> {
        let clock = self.run.env.clock.clone();
        let mut number = 0;
        let mut now = clock.now();
        while number < most && !self.stop.is_asked() {
            if number % CLOCK_EVERY == 0 {
                now = clock.now();
                if end.is_some_and(|end| now >= end) {
                    break;
                }
                // A loop that never waits would keep the worker for itself.
                tokio::task::consume_budget().await;
            }
            let stop = self.stop.clone();
            tokio::select! {
                biased;
                sent = self.send(now, number) => sent?,
                () = stop.asked() => break,
            }
            number += 1;
        }
        Ok(())
    }

    async fn send(&mut self, due: Instant, number: u64) -> Result<(), ClientError> {
        let time_ns = nanos(due.saturating_duration_since(self.run.start));
        // The warm-up counts from the start of the load, not of the preparations.
        let before = nanos(self.start - self.run.start);
        let counted = time_ns.saturating_sub(before) >= self.run.warmup_ns;
        let tag = if counted { time_ns } else { 0 };
        let partitions = u64::try_from(self.partitions.len()).unwrap_or(1).max(1);
        let turn = (number + self.index) % partitions;
        let Some(to) = self.partitions.get(usize::try_from(turn).unwrap_or(0)) else {
            return Err(ClientError::Invalid("the topic has no partitions".into()));
        };
        let value = self.values.next(if counted { time_ns } else { u64::MAX });
        let timestamp = self.run.env.clock.wall_ms();
        let record = Record { value: Some(value), timestamp, ..Default::default() };
        self.producer.send(*to, &record, tag).await?;
        self.run.sent.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }
}

/// The consumers of a run, each a task.
pub(super) struct Consumers {
    ended: mpsc::Receiver<Result<(), ClientError>>,
    news: Arc<Notify>,
}

impl Consumers {
    pub(super) async fn start(
        cluster: &Cluster,
        run: &Arc<Run>,
        topic: &str,
        args: &BenchArgs,
    ) -> Result<Self, ClientError> {
        let known = cluster.topic(topic, false).await?;
        let partitions: Vec<i32> = known.partitions.keys().copied().collect();
        let only_read = args.producers == 0;
        let spec = if only_read { Spec::Earliest } else { Spec::Latest };
        let from = offsets::list_all(cluster, topic, &partitions, spec).await?;
        let ends = match only_read {
            true => offsets::list_all(cluster, topic, &partitions, Spec::Latest).await?,
            false => BTreeMap::new(),
        };
        let count = usize::try_from(args.consumers).unwrap_or(0);
        let (sender, ended) = mpsc::channel(count.max(1));
        let news = Arc::new(Notify::new());
        for index in 0..count {
            let mine: Vec<_> = from
                .iter()
                .enumerate()
                .filter(|(position, _)| position % count == index)
                .map(|(_, (partition, offset))| {
                    (Str::from(topic.to_owned()), *partition, offset.unwrap_or(0))
                })
                .collect();
            if mine.is_empty() {
                continue;
            }
            let open: BTreeMap<i32, i64> = mine
                .iter()
                .filter_map(|(_, partition, start)| {
                    let end = ends.get(partition).copied().flatten()?;
                    (end > *start).then_some((*partition, end))
                })
                .collect();
            let consumer =
                Consumer::start(cluster.fresh(), ConsumerOptions::default(), &mine).await?;
            let reading = Reading {
                run: Arc::clone(run),
                counts: Run::counts(&run.consumed),
                news: Arc::clone(&news),
                only_read,
                began_ns: run.now_ns(),
                open,
            };
            let sender = sender.clone();
            run.env.tasks.spawn("bench consumer", async move {
                let _ = sender.send(reading.run(consumer).await).await;
            });
        }
        Ok(Self { ended, news })
    }

    /// Waits until everything that was acknowledged was consumed, or for 10 s.
    pub(super) async fn join(mut self, run: &Run, stop: &Stop, args: &BenchArgs) {
        if args.consumers == 0 {
            return;
        }
        let clock = run.env.clock.clone();
        let deadline = clock.now() + CATCH_UP;
        let only_read = args.producers == 0;
        let all = async {
            if only_read {
                while let Some(ended) = self.ended.recv().await {
                    if let Err(error) = ended {
                        lock(&run.first_error).get_or_insert(error);
                    }
                }
                return;
            }
            let acked = || run.acked_all.load(Ordering::Relaxed);
            while run.consumed_all.load(Ordering::Relaxed) < acked() {
                tokio::select! {
                    biased;
                    ended = self.ended.recv() => {
                        if let Some(Err(error)) = ended {
                            lock(&run.first_error).get_or_insert(error);
                        }
                        return;
                    }
                    () = self.news.notified() => {}
                }
            }
        };
        let too_long = async {
            if only_read { std::future::pending().await } else { clock.sleep_until(deadline).await }
        };
        tokio::select! {
            biased;
            () = all => {}
            () = stop.asked() => {}
            () = too_long => {}
        }
        if only_read {
            run.end_ns.store(run.now_ns(), Ordering::Relaxed);
        }
    }
}

/// One consumer's work.
struct Reading {
    run: Arc<Run>,
    counts: Arc<Mutex<Counts>>,
    news: Arc<Notify>,
    only_read: bool,
    began_ns: u64,
    /// With only reading: partitions that are not read to their end.
    open: BTreeMap<i32, i64>,
}

impl Reading {
    async fn run(mut self, mut consumer: Consumer) -> Result<(), ClientError> {
        if self.only_read && self.open.is_empty() {
            return Ok(());
        }
        while let Some(fetched) = consumer.next().await {
            let fetched = fetched?;
            self.count(&fetched)?;
            self.news.notify_one();
            if self.only_read {
                if self.open.get(&fetched.partition).is_some_and(|end| fetched.next >= *end) {
                    self.open.remove(&fetched.partition);
                }
                if self.open.is_empty() {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    fn count(&self, fetched: &Fetched) -> Result<(), ClientError> {
        let now = self.run.now_ns();
        let mut counts = lock(&self.counts);
        let mut all = 0;
        for batch in &fetched.batches {
            let corrupt = |source| ClientError::Corrupt {
                topic: fetched.topic.to_string(),
                partition: fetched.partition,
                offset: batch.header.base_offset,
                source,
            };
            let limits = Limits { max_decompressed_bytes: 1 << 30 };
            for record in decode_records(batch, &limits).map_err(corrupt)? {
                let record = record.map_err(corrupt)?;
                let value = record.value.unwrap_or_default();
                if self.only_read {
                    counts.records += 1;
                    counts.bytes += u64::try_from(value.len()).unwrap_or(0);
                    continue;
                }
                let Some((time, rest)) = value.split_first_chunk::<8>() else { continue };
                if rest.first_chunk::<8>() != Some(&self.run.id.to_be_bytes()) {
                    continue;
                }
                all += 1;
                let due = u64::from_be_bytes(*time);
                if due != u64::MAX {
                    counts.add(due, now);
                    counts.bytes += u64::try_from(value.len()).unwrap_or(0);
                }
            }
        }
        if all > 0 || self.only_read {
            counts.at(now);
        }
        if self.only_read {
            counts.first_due_ns = counts.first_due_ns.min(self.began_ns);
        }
        self.run.consumed_all.fetch_add(all, Ordering::Relaxed);
        Ok(())
    }
}
