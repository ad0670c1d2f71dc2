//! `talos bench`: an open-loop load with honest latencies.
//!
//! With `--rate` the times at which records are due are fixed before the run; a record's latency
//! counts from its due time, whether or not it could be handed over then (coordinated omission).
//! Without `--rate` records follow each other as fast as they are taken, and latency counts from
//! the hand-over. Every record carries its time, so that consumers measure end to end.

mod counts;
mod load;
mod pace;
mod report;

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use talos_common::{ByteSize, Period};
use talos_protocol::batch::Compression;

use super::produce::Acks;
use super::{codec, run_client_until};
use crate::cli::{ClientArgs, OutputArgs};
use crate::client::admin::{self, NewTopic};
use crate::client::producer::ProducerOptions;
use crate::client::{ClientError, Cluster};
use crate::output;
use crate::stop::Stop;
use load::{Consumers, Producers, Run};
use report::Report;

/// Smallest record: room for its time and the number of the run.
const MIN_SIZE: u64 = 16;

const EXAMPLES: &str = "\
Examples:
  talos bench                                        10 s, as fast as possible
  talos bench --rate 20000 --size 1KiB --linger 0ms --duration 30s
  talos bench --producers 4 --consumers 0 --partitions 1000 --size 100B --rate 10000
  talos bench --topic events --producers 0           only read what is there
  talos bench --bootstrap kafka.example:9092 --json  any Kafka-speaking broker

Latencies count from the time at which a record was due, so a broker that
stalls shows the whole stall, not one slow record. What an acknowledgement
means is the broker's: Talos answers acks=1 and acks=all when the record is on
stable storage; Kafka as shipped answers from memory. Ctrl-C ends the load and
reports what was measured until then.

Rates are over the time from the first to the last acknowledgement; of runs
shorter than a second, from when the first record was due.

--json prints one object: topic, settings, seconds, interrupted, failed,
unanswered (without an answer when it was interrupted), first_error, produced
and consumed (records, bytes, records_per_second, bytes_per_second,
latency_us: mean, p50 to p99.99, max, in microseconds; null where nothing was
timed).";

/// Flags of `talos bench`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct BenchArgs {
    /// Topic to use; created if it is missing [default: a new one, deleted at the end].
    #[arg(long, value_name = "NAME")]
    topic: Option<String>,
    /// Partitions of a topic that is created.
    #[arg(long, value_name = "N", default_value = "8", value_parser = clap::value_parser!(i32).range(1..))]
    partitions: i32,
    /// Configuration of a topic that is created; may be repeated.
    #[arg(long = "config", value_name = "NAME=VALUE", value_parser = super::name_value)]
    configs: Vec<(String, String)>,
    /// Producers, each with connections of its own. 0: only read.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=256))]
    producers: u32,
    /// Consumers, each with connections of its own. 0: only write.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(0..=256))]
    consumers: u32,
    /// Records per second, of all producers together [default: as fast as possible].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    rate: Option<u64>,
    /// Size of a record's value.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "100B")]
    size: ByteSize,
    /// How long to load, warm-up not counted.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "10s")]
    duration: Period,
    /// Load this long before anything counts.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "2s")]
    warmup: Period,
    /// End after this many records instead of --duration; then there is no warm-up.
    #[arg(long, value_name = "N", conflicts_with_all = ["duration", "warmup"], value_parser = clap::value_parser!(u64).range(1..))]
    records: Option<u64>,
    /// Who must have a record before it is acknowledged.
    #[arg(long, value_enum, default_value = "all")]
    acks: Acks,
    /// Do without producer ids.
    #[arg(long)]
    no_idempotence: bool,
    /// Compression: none, gzip, snappy, lz4 or zstd.
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = codec)]
    codec: Compression,
    /// How long a batch waits for more records.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "5ms")]
    linger: Period,
    /// A batch is closed at this size.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "64KiB")]
    batch: ByteSize,
    /// Unanswered requests per producer and broker.
    #[arg(long, value_name = "N", default_value = "5", value_parser = clap::value_parser!(u32).range(1..=128))]
    in_flight: u32,
    /// Memory of each producer for records that are not acknowledged.
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true, default_value = "32MiB")]
    buffer: ByteSize,
    /// Keep the topic that was made for this run.
    #[arg(long)]
    keep: bool,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

impl BenchArgs {
    fn producer_options(&self) -> ProducerOptions {
        ProducerOptions {
            acks: self.acks.code(),
            codec: self.codec,
            linger: self.linger.0,
            batch_bytes: self.batch.as_usize(),
            buffer: self.buffer,
            idempotent: self.is_idempotent(),
            in_flight: usize::try_from(self.in_flight).unwrap_or(5),
            ..Default::default()
        }
    }

    fn is_idempotent(&self) -> bool {
        self.acks == Acks::All && !self.no_idempotence && self.in_flight <= 5
    }

    fn warmup(&self) -> Duration {
        if self.records.is_some() { Duration::ZERO } else { self.warmup.0 }
    }

    fn check(&self) -> anyhow::Result<()> {
        let refuse = |text: &str| Err(output::usage(text));
        if self.producers == 0 && self.consumers == 0 {
            return refuse("--producers and --consumers are both 0: there is nothing to do");
        }
        if self.producers == 0 && self.topic.is_none() {
            return refuse("--producers 0 reads what is there: name its --topic");
        }
        if self.size.0 < MIN_SIZE || self.size.0 > 1 << 30 {
            return refuse("--size must be from 16B (the time of the record is in it) to 1GiB");
        }
        if self.batch.0 < 1 || self.batch.0 > 1 << 30 {
            return refuse("--batch must be from 1B to 1GiB");
        }
        if self.duration.0.is_zero() {
            return refuse("--duration must be above 0");
        }
        Ok(())
    }
}

/// Runs the command.
///
/// # Errors
/// The load could not be run. Records that failed are in the report, and make it an error too.
pub fn run(args: BenchArgs) -> anyhow::Result<ExitCode> {
    args.check()?;
    run_client_until(&args.client.clone(), |cluster, stop| bench(cluster, stop, args))
}

async fn bench(cluster: Cluster, stop: Stop, args: BenchArgs) -> anyhow::Result<()> {
    let made = args.topic.is_none();
    let name = match &args.topic {
        Some(name) => name.clone(),
        None => format!("talos-bench-{:08x}", cluster.env().rng.u64(..) >> 32),
    };
    ensure_topic(&cluster, &name, &args).await?;
    let measured = measure(&cluster, &stop, &name, &args).await;
    if made
        && !args.keep
        && let Err(error) = admin::delete_topics(&cluster, std::slice::from_ref(&name)).await
    {
        output::note(format!("the topic {name} could not be deleted: {error}"));
    }
    let report = measured?;
    if args.output.json {
        output::json(&report.to_json())?;
    } else {
        report.print()?;
    }
    match report.first_error {
        Some(error) => Err(anyhow::Error::new(error)
            .context(format!("{} records were not acknowledged", report.failed))),
        None => Ok(()),
    }
}

async fn ensure_topic(cluster: &Cluster, name: &str, args: &BenchArgs) -> anyhow::Result<()> {
    let exists = match cluster.topic(name, false).await {
        Ok(_) => true,
        Err(error) if error.code() == Some(talos_protocol::ErrorCode::UnknownTopicOrPartition) => {
            false
        }
        Err(error) => return Err(error.into()),
    };
    if exists || args.producers == 0 {
        cluster.topic(name, false).await?;
        return Ok(());
    }
    let topic = NewTopic {
        name: name.into(),
        partitions: args.partitions,
        replication_factor: -1,
        configs: args.configs.clone(),
    };
    admin::create_topic(cluster, &topic, false).await?;
    cluster.topic(name, true).await?;
    Ok(())
}

async fn measure(
    cluster: &Cluster,
    stop: &Stop,
    topic: &str,
    args: &BenchArgs,
) -> Result<Report, ClientError> {
    let run = Arc::new(Run::new(cluster.env(), args));
    // Consumers first: the records of this run begin behind what is there.
    let consumers = Consumers::start(cluster, &run, topic, args).await?;
    let bar = output::progress(None, "{spinner} {elapsed}  {msg}");
    let producers = Producers::start(cluster, &run, topic, args, stop).await?;
    let watching = async {
        loop {
            cluster.env().clock.sleep(Duration::from_millis(200)).await;
            bar.set_message(run.progress());
        }
    };
    let loaded = async {
        let produced = producers.join().await;
        consumers.join(&run, stop, args).await;
        produced
    };
    let produced = tokio::select! {
        biased;
        produced = loaded => produced,
        () = watching => Ok(()),
    };
    bar.finish_and_clear();
    produced?;
    Ok(Report::new(topic, args, &run, stop.is_asked()))
}
