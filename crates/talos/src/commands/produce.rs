//! `talos produce`: lines of standard input or of a file become records.
//!
//! A reader thread cuts lines; the queue between it and the producer is bounded. Every line is
//! accounted for at the end: written, not written, or unknown.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use indicatif::ProgressBar;
use serde_json::json;
use talos_common::Period;
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

Each line is one record. The topic is created if the broker allows that.";

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
    #[arg(long, value_name = "DURATION", default_value = "5ms")]
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
    /// First offset and number of records by partition.
    partitions: BTreeMap<i32, (i64, u64)>,
    error: Option<ClientError>,
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
                if error.is_unknown_outcome() {
                    self.unknown += count;
                } else {
                    self.refused += count;
                }
                self.error.get_or_insert(error);
            }
        }
    }
}

async fn produce(cluster: Cluster, stop: Stop, args: ProduceArgs) -> anyhow::Result<()> {
    let input = open(args.file.as_ref())?;
    let topic = cluster.topic(&args.topic, true).await?;
    let outcome = Arc::new(Mutex::new(Outcome::default()));
    let options = ProducerOptions {
        acks: args.acks.code(),
        codec: args.codec,
        linger: args.linger.0,
        idempotent: args.acks == Acks::All && !args.no_idempotence,
        ..Default::default()
    };
    let on_delivery = {
        let outcome = Arc::clone(&outcome);
        Arc::new(move |delivery: Delivery| {
            outcome.lock().unwrap_or_else(PoisonError::into_inner).add(delivery);
        })
    };
    let producer = Producer::open(cluster.clone(), options, on_delivery).await?;
    let partitions: Vec<i32> = match args.partition {
        Some(partition) => vec![partition],
        None => topic.partitions.keys().copied().collect(),
    };
    let mut handles = Vec::new();
    for partition in partitions {
        handles.push(producer.partition(&args.topic, partition).await?);
    }
    let mut writer = Writer {
        producer: producer.clone(),
        stuck_to: cluster.env().rng.usize(0..handles.len().max(1)),
        handles,
        stuck_bytes: 0,
        args: &args,
        headers: headers(&args.headers),
        cluster: &cluster,
    };
    let bar = progress(&input);
    let sent = send_all(&mut writer, input.reader, &stop, &bar).await;
    let flushed = producer.flush().await;
    bar.finish_and_clear();
    let outcome = std::mem::take(&mut *outcome.lock().unwrap_or_else(PoisonError::into_inner));
    report(&args, &outcome, flushed)?;
    sent
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
    handles: Vec<PartitionHandle>,
    stuck_to: usize,
    stuck_bytes: usize,
    args: &'a ProduceArgs,
    headers: Vec<RecordHeader>,
    cluster: &'a Cluster,
}

impl Writer<'_> {
    async fn write(&mut self, line: &[u8]) -> anyhow::Result<()> {
        let (key, value) = match &self.args.key_separator {
            None => (None, line),
            Some(separator) => {
                let at = find(line, separator.as_bytes()).with_context(|| {
                    let shown =
                        String::from_utf8_lossy(line.get(..80).unwrap_or(line)).into_owned();
                    format!(
                        "there is no {separator:?} in the line {shown:?}; --key-separator needs one"
                    )
                })?;
                (line.get(..at), line.get(at + separator.len()..).unwrap_or_default())
            }
        };
        let index = self.choose(key, line.len());
        let null = self.args.null_marker.as_ref().is_some_and(|marker| marker.as_bytes() == value);
        let record = Record {
            key,
            value: (!null).then_some(value),
            headers: &self.headers,
            timestamp: self.cluster.env().clock.wall_ms(),
        };
        let handle = self.handles.get(index).context("the topic has no partitions")?;
        Ok(self.producer.send(*handle, &record, 0).await?)
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
            self.stuck_to = (self.stuck_to + 1) % self.handles.len().max(1);
        }
        self.stuck_to
    }
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
    loop {
        let lot = tokio::select! {
            biased;
            () = stop.asked() => return Ok(()),
            lot = queue.recv() => lot,
        };
        let Some(lot) = lot else { break };
        for line in &lot {
            writer.write(line).await?;
            bar.inc(u64::try_from(line.len() + 1).unwrap_or(0));
        }
    }
    reading.await.context("the reader failed")?.context("cannot read the input")
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

fn report(
    args: &ProduceArgs,
    outcome: &Outcome,
    flushed: Result<(), ClientError>,
) -> anyhow::Result<()> {
    let error = outcome.error.clone().or(flushed.err());
    if args.output.json {
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
            "partitions": partitions,
        }))?;
    }
    if let Some(error) = error {
        let (written, refused, unknown) = (outcome.written, outcome.refused, outcome.unknown);
        let text = format!("{written} records written, {refused} not written, {unknown} unknown");
        return Err(anyhow::Error::new(error).context(text));
    }
    if !args.output.json {
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
        ))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_cut_at_every_buffer_border() {
        let text = b"one\n\nthree is longer\nlast without end";
        for size in 1..text.len() + 1 {
            let (lots, mut queue) = mpsc::channel(64);
            read_lots(Box::new(BufReader::with_capacity(size, &text[..])), &lots).unwrap();
            drop(lots);
            let mut lines = Vec::new();
            while let Some(lot) = queue.blocking_recv() {
                lines.extend(lot);
            }
            let wanted: Vec<&[u8]> = vec![b"one", b"", b"three is longer", b"last without end"];
            assert_eq!(lines, wanted, "{size}");
        }
    }

    #[test]
    fn separators_are_found() {
        assert_eq!(find(b"a::b", b"::"), Some(1));
        assert_eq!(find(b"ab", b"::"), None);
        assert_eq!(find(b"ab", b""), None);
    }
}
