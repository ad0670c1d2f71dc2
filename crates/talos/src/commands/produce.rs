//! `talos produce`: lines of standard input or of a file become records.
//!
//! A reader thread cuts lines; the queue between it and the producer is bounded. Every line is
//! accounted for at the end: written, not written, or unknown.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::json;
use talos_common::Period;
use talos_protocol::ApiKey;
use talos_protocol::batch::Compression;
use tokio::sync::mpsc;

use super::{codec, name_value, run_client_until};
use crate::cli::{ClientArgs, OutputArgs};
use crate::client::batch::{Record, RecordHeader};
use crate::client::producer::{
    Delivery, PartitionHandle, Producer, ProducerOptions, partition_of_key,
};
use crate::client::{ClientError, Cluster};
use crate::output;
use crate::stop::Stop;

/// Longest line, in bytes.
const MAX_LINE: usize = 256 << 20;
/// Input is read in pieces of this many bytes.
const READ_BYTES: usize = 256 << 10;
/// After the stop, answers are waited for this long.
const FAREWELL: Duration = Duration::from_secs(5);
/// Without keys, records go to the next partition after this many bytes.
const STICK_BYTES: usize = 64 << 10;

/// Who must have a record before it counts as written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Acks {
    /// As durable as the broker makes it.
    All,
    /// The leader.
    #[value(name = "1")]
    Leader,
    /// Nobody: there is no answer.
    #[value(name = "0")]
    None,
}

impl Acks {
    /// The number in the protocol.
    pub fn code(self) -> i16 {
        match self {
            Self::All => -1,
            Self::Leader => 1,
            Self::None => 0,
        }
    }

    /// Its name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::Leader => "1",
            Self::None => "0",
        }
    }
}

const EXAMPLES: &str = "\
Examples:
  echo hello | talos produce greetings
  talos produce orders --file orders.txt --key-separator : --codec zstd
  talos produce audit --header source=import --partition 3 < lines.txt
  talos produce orders --key-separator : --null-marker NULL < lines.txt    lines KEY:NULL delete KEY

Each line is one record. The topic is created if the broker allows that. With
a key, a record goes to the partition that other Kafka clients choose for it;
without, to the partitions in turn that have a leader. A line that is wrong
ends it: what was read before is written and counted, and the error names the
line.

--json prints one object: topic, written, refused, unknown, skipped (numbers
of records), bad_line (the line that ended it, or null), partitions (by
number: first_offset, records).";

/// Flags of `talos produce`.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct ProduceArgs {
    /// Topic to write to.
    #[arg(value_name = "TOPIC")]
    topic: String,
    /// Read lines from this file instead of standard input.
    #[arg(long, value_name = "FILE")]
    file: Option<PathBuf>,
    /// What stands between key and value in a line; without it there are no keys.
    #[arg(long, value_name = "TEXT")]
    key_separator: Option<String>,
    /// Pass over lines that are wrong (no separator in them) instead of ending at the first.
    #[arg(long)]
    skip_bad_lines: bool,
    /// A value that is written as null (a tombstone in compacted topics).
    #[arg(long, value_name = "TEXT")]
    null_marker: Option<String>,
    /// A header for every record; may be repeated.
    #[arg(long = "header", value_name = "NAME=VALUE", value_parser = name_value)]
    headers: Vec<(String, String)>,
    /// Compression: none, gzip, snappy, lz4 or zstd.
    #[arg(long, value_name = "NAME", default_value = "none", value_parser = codec)]
    codec: Compression,
    /// Write to this partition only [default: by key, else in turn].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(0..))]
    partition: Option<i32>,
    /// Who must have a record before it counts as written.
    #[arg(long, value_enum, default_value = "all")]
    acks: Acks,
    /// Do without a producer id: a record may then be written twice after a lost connection.
    #[arg(long)]
    no_idempotence: bool,
    /// How long a batch waits for more lines.
    #[arg(long, value_name = "DURATION", allow_hyphen_values = true, default_value = "5ms")]
    linger: Period,
    #[command(flatten)]
    output: OutputArgs,
    #[command(flatten)]
    client: ClientArgs,
}

/// Runs the command.
///
/// # Errors
/// The input cannot be read, or records could not be written.
pub fn run(args: ProduceArgs) -> anyhow::Result<ExitCode> {
    run_client_until(&args.client.clone(), |cluster, stop| produce(cluster, stop, args))
}

/// What became of the lines so far.
#[derive(Debug, Default)]
struct Outcome {
    written: u64,
    refused: u64,
    unknown: u64,
    /// Lines that were wrong and passed over, and the first of them.
    skipped: u64,
    first_skipped: Option<Bad>,
    /// The line that ended it.
    bad: Option<Bad>,
    /// The first line of which a record was refused or is unknown; `error` says why.
    first_failed: Option<u64>,
    /// First offset and number of records by partition.
    partitions: BTreeMap<i32, (i64, u64)>,
    error: Option<ClientError>,
}

/// A line that is no record.
#[derive(Clone, Debug)]
struct Bad {
    /// Counted from 1.
    line: u64,
    why: String,
}

impl Outcome {
    fn add(&mut self, delivery: Delivery) {
        let count = u64::try_from(delivery.tags.len()).unwrap_or(u64::MAX);
        match delivery.result {
            Ok(offset) => {
                self.written += count;
                let known = self.partitions.entry(delivery.partition).or_insert((offset, 0));
                // Answers may be looked at in another order than they came.
                known.0 = known.0.min(offset);
                known.1 += count;
            }
            Err(error) => {
                let first = delivery.tags.iter().min().copied();
                self.failed(count, first, error);
            }
        }
    }

    fn failed(&mut self, count: u64, first_line: Option<u64>, error: ClientError) {
        if error.is_unknown_outcome() {
            self.unknown += count;
        } else {
            self.refused += count;
        }
        // Those of later lines may only follow from that of the first.
        if self.error.is_none() || (first_line.is_some() && first_line < self.first_failed) {
            (self.first_failed, self.error) = (first_line, Some(error));
        }
    }

    fn settled(&self) -> u64 {
        self.written + self.refused + self.unknown
    }
}

async fn produce(cluster: Cluster, stop: Stop, args: ProduceArgs) -> anyhow::Result<()> {
    let input = open(args.file.as_ref())?;
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let opening = Writer::open(&cluster, &args, &outcome);
    let mut writer = tokio::select! {
        biased;
        () = stop.asked() => return Ok(()),
        writer = opening => writer?,
    };
    let bar = progress(&input);
    let sent = send_all(&mut writer, input.reader, &stop, &bar).await;
    flush(&writer, &stop).await;
    bar.finish_and_clear();
    let outcome = std::mem::take(&mut *writer.outcome());
    report(&args, &outcome)?;
    sent
}

/// Waits until all that was handed over is settled; after the stop not for longer than [`FAREWELL`].
async fn flush(writer: &Writer<'_>, stop: &Stop) {
    let clock = writer.cluster.env().clock.clone();
    let too_long = async {
        stop.asked().await;
        clock.sleep(FAREWELL).await;
    };
    let cut_off = tokio::select! {
        biased;
        flushed = writer.producer.flush() => flushed.err(),
        () = too_long => Some(ClientError::Lost {
            server: writer.cluster.options().bootstrap.join(","),
            api: ApiKey::Produce,
            reason: "ended by a signal before the answer".into(),
        }),
    };
    if let Some(error) = cut_off {
        let mut outcome = writer.outcome();
        // What nobody told of may be written.
        outcome.unknown += writer.sent.saturating_sub(outcome.settled());
        outcome.error.get_or_insert(error);
    }
}

/// Where lines come from.
struct Input {
    reader: Box<dyn BufRead + Send>,
    /// Bytes, if that is known.
    size: Option<u64>,
}

fn open(file: Option<&PathBuf>) -> anyhow::Result<Input> {
    match file {
        None => Ok(Input {
            reader: Box::new(BufReader::with_capacity(READ_BYTES, io::stdin())),
            size: None,
        }),
        Some(path) => {
            let file =
                File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
            let size = file.metadata().ok().filter(|meta| meta.is_file()).map(|meta| meta.len());
            Ok(Input { reader: Box::new(BufReader::with_capacity(READ_BYTES, file)), size })
        }
    }
}

fn progress(input: &Input) -> ProgressBar {
    let template = match input.size {
        Some(_) => "{bar:30} {bytes} of {total_bytes}  {bytes_per_sec}  {eta} left",
        None => "{spinner} {bytes}  {bytes_per_sec}",
    };
    output::progress(input.size, template)
}

fn headers(list: &[(String, String)]) -> Vec<RecordHeader> {
    let bytes = |text: &String| Bytes::copy_from_slice(text.as_bytes());
    list.iter().map(|(name, value)| (bytes(name), Some(bytes(value)))).collect()
}

struct Writer<'a> {
    producer: Producer,
    /// By partition; `None` where it is offline.
    handles: Vec<(i32, Option<PartitionHandle>)>,
    /// Indexes of those that are not offline.
    led: Vec<usize>,
    stuck_to: usize,
    stuck_bytes: usize,
    /// Records handed over to the producer.
    sent: u64,
    args: &'a ProduceArgs,
    headers: Vec<RecordHeader>,
    cluster: &'a Cluster,
    outcome: Arc<Mutex<Outcome>>,
}

impl<'a> Writer<'a> {
    async fn open(
        cluster: &'a Cluster,
        args: &'a ProduceArgs,
        outcome: &Arc<Mutex<Outcome>>,
    ) -> anyhow::Result<Self> {
        let topic = cluster.topic(&args.topic, true).await?;
        let options = ProducerOptions {
            acks: args.acks.code(),
            codec: args.codec,
            linger: args.linger.0,
            idempotent: args.acks == Acks::All && !args.no_idempotence,
            delivery_timeout: cluster.options().timeout,
            ..Default::default()
        };
        let on_delivery = {
            let outcome = Arc::clone(outcome);
            Arc::new(move |delivery: Delivery| {
                outcome.lock().unwrap_or_else(PoisonError::into_inner).add(delivery);
            })
        };
        let producer = Producer::open(cluster.clone(), options, on_delivery).await?;
        let partitions: Vec<i32> = match args.partition {
            Some(partition) => vec![partition],
            None => topic.partitions.keys().copied().collect(),
        };
        let mut handles = Vec::with_capacity(partitions.len());
        for partition in partitions {
            let offline = topic.partitions.get(&partition).is_some_and(|p| p.leader.is_none());
            let handle = match offline {
                true => None,
                false => Some(producer.partition(&args.topic, partition).await?),
            };
            handles.push((partition, handle));
        }
        let led: Vec<usize> =
            handles.iter().enumerate().filter(|(_, (_, h))| h.is_some()).map(|(i, _)| i).collect();
        let offline: Vec<i32> =
            handles.iter().filter(|(_, handle)| handle.is_none()).map(|(p, _)| *p).collect();
        if let Some(partition) = offline.first().copied() {
            if led.is_empty() {
                return Err(ClientError::NoLeader { topic: args.topic.clone(), partition }.into());
            }
            let list: Vec<String> = offline.iter().take(8).map(i32::to_string).collect();
            let more = if offline.len() > 8 { ", …" } else { "" };
            output::note(format!(
                "warning: of topic {}, these partitions are offline and get nothing: {}{more}; see \
                 docs/operations.md#a-partition-is-offline",
                args.topic,
                list.join(", "),
            ));
        }
        Ok(Self {
            producer,
            stuck_to: cluster.env().rng.usize(0..led.len().max(1)),
            handles,
            led,
            stuck_bytes: 0,
            sent: 0,
            args,
            headers: headers(&args.headers),
            cluster,
            outcome: Arc::clone(outcome),
        })
    }

    fn outcome(&self) -> MutexGuard<'_, Outcome> {
        self.outcome.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes line `number`; `false`: it is wrong, and that ends the work.
    async fn write(&mut self, number: u64, line: &[u8]) -> anyhow::Result<bool> {
        let (key, value) = match &self.args.key_separator {
            None => (None, line),
            Some(separator) => match find(line, separator.as_bytes()) {
                Some(at) => (line.get(..at), line.get(at + separator.len()..).unwrap_or_default()),
                None => return Ok(self.bad(number, no_separator(separator, line))),
            },
        };
        let index = self.choose(key, line.len());
        let (partition, handle) =
            *self.handles.get(index).context("the topic has no partitions")?;
        let Some(handle) = handle else {
            let topic = self.args.topic.clone();
            let error = ClientError::NoLeader { topic, partition };
            self.outcome().failed(1, Some(number), error);
            return Ok(true);
        };
        let null = self.args.null_marker.as_ref().is_some_and(|marker| marker.as_bytes() == value);
        let record = Record {
            key,
            value: (!null).then_some(value),
            headers: &self.headers,
            timestamp: self.cluster.env().clock.wall_ms(),
        };
        match self.producer.send(handle, &record, number).await {
            Ok(()) => self.sent += 1,
            // The producer has stopped: its error is that of an earlier record.
            Err(error) if self.outcome().error.is_some() => {
                tracing::debug!(%error, "the producer has stopped");
                return Ok(false);
            }
            Err(error) => {
                return Err(anyhow::Error::new(error).context(self.place(number)));
            }
        }
        Ok(true)
    }

    fn bad(&mut self, line: u64, why: String) -> bool {
        let skip = self.args.skip_bad_lines;
        let mut outcome = self.outcome();
        let bad = Bad { line, why };
        if skip {
            outcome.skipped += 1;
            outcome.first_skipped.get_or_insert(bad);
        } else {
            outcome.bad = Some(bad);
        }
        skip
    }

    fn place(&self, line: u64) -> String {
        place(self.args, line)
    }

    fn choose(&mut self, key: Option<&[u8]>, bytes: usize) -> usize {
        if let Some(key) = key
            && self.args.partition.is_none()
        {
            let count = i32::try_from(self.handles.len()).unwrap_or(i32::MAX);
            return usize::try_from(partition_of_key(key, count)).unwrap_or(0);
        }
        self.stuck_bytes += bytes;
        if self.stuck_bytes >= STICK_BYTES {
            self.stuck_bytes = 0;
            self.stuck_to = (self.stuck_to + 1) % self.led.len().max(1);
        }
        self.led.get(self.stuck_to).copied().unwrap_or(0)
    }
}

/// Where a line is, for messages.
fn place(args: &ProduceArgs, line: u64) -> String {
    match &args.file {
        Some(file) => format!("{} line {line}", file.display()),
        None => format!("standard input line {line}"),
    }
}

fn no_separator(separator: &str, line: &[u8]) -> String {
    let shown = String::from_utf8_lossy(line.get(..80).unwrap_or(line)).into_owned();
    let more = if line.len() > 80 { "…" } else { "" };
    format!("there is no {separator:?} in {shown:?}{more}, and --key-separator needs one")
}

fn find(line: &[u8], separator: &[u8]) -> Option<usize> {
    if separator.is_empty() {
        return None;
    }
    line.windows(separator.len()).position(|window| window == separator)
}

async fn send_all(
    writer: &mut Writer<'_>,
    reader: Box<dyn BufRead + Send>,
    stop: &Stop,
    bar: &ProgressBar,
) -> anyhow::Result<()> {
    let (lots, mut queue) = mpsc::channel(4);
    // Standard input cannot be read without blocking a thread. The thread ends with the queue.
    let reading = tokio::task::spawn_blocking(move || read_lots(reader, &lots));
    let mut number = 0;
    loop {
        let lot = tokio::select! {
            biased;
            () = stop.asked() => return Ok(()),
            lot = queue.recv() => lot,
        };
        let Some(lot) = lot else { break };
        for line in &lot {
            number += 1;
            let on = tokio::select! {
                biased;
                on = writer.write(number, line) => on?,
                // A buffer that is full is no reason to stay.
                () = stop.asked() => return Ok(()),
            };
            if !on {
                return Ok(());
            }
            bar.inc(u64::try_from(line.len() + 1).unwrap_or(0));
        }
    }
    let read = reading.await.context("the reader failed")?;
    read.with_context(|| format!("cannot read {}", place(writer.args, number + 1)))
}

/// Cuts lines and hands them over in lots. A lot ends when it is large enough, or when the buffer
/// holds no further whole line: someone who types wants each line to go at once.
fn read_lots(
    mut reader: Box<dyn BufRead + Send>,
    lots: &mpsc::Sender<Vec<Vec<u8>>>,
) -> io::Result<()> {
    let mut rest: Vec<u8> = Vec::new();
    loop {
        let buffer = reader.fill_buf()?;
        let (taken, ended) = (buffer.len(), buffer.is_empty());
        let mut lot = Vec::new();
        let mut left = buffer;
        while let Some(at) = left.iter().position(|byte| *byte == b'\n') {
            let (line, after) = left.split_at(at);
            rest.extend_from_slice(line);
            lot.push(std::mem::take(&mut rest));
            left = after.get(1..).unwrap_or_default();
        }
        rest.extend_from_slice(left);
        reader.consume(taken);
        if rest.len() > MAX_LINE {
            return Err(io::Error::other("a line is longer than 256 MiB"));
        }
        // The last line may lack its end.
        if ended && !rest.is_empty() {
            lot.push(std::mem::take(&mut rest));
        }
        if !lot.is_empty() && lots.blocking_send(lot).is_err() {
            return Ok(());
        }
        if ended {
            return Ok(());
        }
    }
}

/// Prints what became of the lines; an error unless all were written.
fn report(args: &ProduceArgs, outcome: &Outcome) -> anyhow::Result<()> {
    if args.output.json {
        report_json(args, outcome)?;
    }
    if let Some(bad) = &outcome.first_skipped {
        let lines = if outcome.skipped == 1 { "line was" } else { "lines were" };
        let (count, at, why) = (outcome.skipped, place(args, bad.line), &bad.why);
        output::note(format!("warning: {count} {lines} skipped, first {at}: {why}"));
    }
    let (written, refused, unknown) = (outcome.written, outcome.refused, outcome.unknown);
    if let Some(error) = outcome.error.clone() {
        let mut text = format!("{written} records written, {refused} not, {unknown} unknown");
        if let Some(line) = outcome.first_failed {
            text = format!("{text}; the first that failed is {}", place(args, line));
        }
        return Err(anyhow::Error::new(error).context(text));
    }
    if let Some(bad) = &outcome.bad {
        let next = "put the line right and go on from it, or pass over such lines with \
                    --skip-bad-lines";
        let records = if written == 1 { "record before it was" } else { "records before it were" };
        let text = format!("{}: {}; {written} {records} written", place(args, bad.line), bad.why);
        return Err(output::advised(text, next));
    }
    if args.output.json { Ok(()) } else { report_text(args, outcome) }
}

fn report_json(args: &ProduceArgs, outcome: &Outcome) -> anyhow::Result<()> {
    let partitions: BTreeMap<String, _> = outcome
        .partitions
        .iter()
        .map(|(partition, (offset, count))| {
            (partition.to_string(), json!({ "first_offset": offset, "records": count }))
        })
        .collect();
    output::json(&json!({
        "topic": args.topic,
        "written": outcome.written,
        "refused": outcome.refused,
        "unknown": outcome.unknown,
        "skipped": outcome.skipped,
        "bad_line": outcome.bad.as_ref().map(|bad| bad.line),
        "partitions": partitions,
    }))
}

fn report_text(args: &ProduceArgs, outcome: &Outcome) -> anyhow::Result<()> {
    let places: Vec<_> = outcome
        .partitions
        .iter()
        .take(8)
        .map(|(partition, (offset, _))| match offset {
            -1 => format!("{partition}"),
            offset => format!("{partition} from offset {offset}"),
        })
        .collect();
    let records = if outcome.written == 1 { "record" } else { "records" };
    let more = if outcome.partitions.len() > 8 { ", …" } else { "" };
    let what = if args.acks == Acks::None { "sent (not acknowledged)" } else { "written" };
    output::line(format!(
        "{} {records} {what} to {}{}{}{more}",
        outcome.written,
        args.topic,
        if places.is_empty() { "" } else { ", partition " },
        places.join(", "),
    ))
}

#[cfg(test)]
mod tests;
