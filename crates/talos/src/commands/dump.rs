//! `talos dump`: reads the files of a broker that is not running and verifies every checksum.
//!
//! Invariant: nothing in the data folder is changed. The store is opened for reading only; the metadata
//! file is copied away before it is opened, because opening it writes.

mod frames;
mod metadata;
mod show;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use clap::Args;
use talos_common::TopicId;
use talos_log::dump::{Damage, Dump, DumpOptions, Loss};
use talos_meta::ClusterId;
use talos_storage::{ErrorKind, FilePath, LocalReader, Storage};

use crate::output;
use metadata::{Metadata, Opened};
use show::Show;

const EXAMPLES: &str = "\
Examples:
  talos dump ./talos-data
  talos dump ./talos-data --json
  talos dump ./talos-data --frames brokers/1-3/journal-0000-000000000000

The broker must not be running. Nothing is changed. Every checksum is
verified: those of journals, sorted journals and segments, and those of the
metadata. Exit code 1 if anything is damaged; what was cut off at the end of a
journal before anybody was told about it is no damage.

--json prints one object per line, whose `type` says what it is: store
(first), note, file, partition, damage (of nothing that is listed), summary
(last: damaged_places, damaged_files); with --frames: frame.";

/// What the store's cluster file begins with; the id and a line feed follow.
const CLUSTER_MAGIC: &str = "talos cluster 1 ";
/// More than that file has.
const CLUSTER_BYTES: u64 = 256;

/// Flags of `talos dump`.
#[derive(Clone, Debug, Args)]
#[command(after_help = EXAMPLES)]
pub struct DumpArgs {
    /// Data folder of the broker.
    #[arg(value_name = "DIR")]
    pub dir: PathBuf,
    /// List each frame of this one file instead: position, size, offsets, times.
    #[arg(long, value_name = "FILE")]
    pub frames: Option<String>,
    /// Print JSON, one object per line.
    #[arg(long)]
    pub json: bool,
}

/// Reads every journal, sorted journal and segment under `args.dir`, prints what is there, and fails
/// if anything is damaged.
///
/// # Errors
/// The folder cannot be read or is in use, or something in it is damaged.
pub fn run(args: &DumpArgs) -> anyhow::Result<()> {
    // First: it keeps brokers away from everything else that is read.
    let storage = LocalReader::open(&args.dir).map_err(|error| {
        let next = match error.kind() {
            ErrorKind::Unavailable => "stop the broker, or dump a copy of its folder",
            _ => "name the folder that `talos serve --data-dir` was given",
        };
        anyhow::anyhow!("{error}\n  next: {next}")
    })?;
    let storage: Arc<dyn Storage> = Arc::new(storage);
    let metadata = Metadata::open(&args.dir);
    let runtime = super::runtime()?;
    runtime.block_on(async {
        match &args.frames {
            Some(file) => frames::run(args, file, &storage, metadata).await,
            None => dump(args, storage, metadata).await,
        }
    })
}

async fn dump(args: &DumpArgs, storage: Arc<dyn Storage>, metadata: Opened) -> anyhow::Result<()> {
    let mut show = Show::new(args.json);
    let mut names = BTreeMap::new();
    let mut options = DumpOptions::default();
    let metadata = match metadata {
        Opened::Open(metadata) => {
            match metadata.facts().await {
                Ok(facts) => {
                    options.clean_ends = facts.clean_ends;
                    options.registered = Some(facts.registered);
                    names = facts.names;
                    facts.notes.iter().try_for_each(|note| show.note(note))?;
                }
                Err(error) => show.damage(metadata.damage(&error))?,
            }
            Some(metadata)
        }
        Opened::Damaged(damage) => {
            show.damage(damage)?;
            None
        }
        Opened::Skipped(why) => {
            show.note(&format!("metadata not checked: {why}"))?;
            None
        }
    };
    let known = match &metadata {
        Some(metadata) => metadata.cluster().await,
        None => None,
    };
    let stored = read_cluster(&storage).await?;
    options.cluster = stored.as_ref().ok().copied().flatten().or(known).map(|id| id.0);
    let mut dump =
        Dump::new(Arc::clone(&storage), options).await.context("cannot list the files")?;
    let (files, bytes) = dump.totals();
    if let Some(damage) = cluster_damage(stored, known, files > 0) {
        show.damage(damage)?;
    }
    let dirs: BTreeSet<_> = dump.dirs().collect();
    show.begin(&args.dir, dump.cluster().map(ClusterId), files, bytes)?;
    let bar = output::progress(
        Some(bytes),
        "verifying {bar:30} {bytes}/{total_bytes} {bytes_per_sec} {eta} left {msg}",
    );
    let count = |read: u64| bar.inc(read);
    let mut count = count;
    while let Some(file) = dump.next(&mut count).await.context("cannot read the files")? {
        bar.set_message(file.path.to_string());
        show.file(file)?;
    }
    bar.finish_and_clear();
    if let Some(metadata) = &metadata {
        let cluster = dump.cluster().unwrap_or_default();
        let store = metadata::Store { storage: &storage, cluster, dirs: &dirs };
        metadata.partitions(&store, dump.published(), &mut show).await?;
    }
    show.finish(&names)
}

/// The cluster of the store: `Ok(None)` when it has no cluster file, `Err` when that is damaged.
async fn read_cluster(
    storage: &Arc<dyn Storage>,
) -> anyhow::Result<Result<Option<ClusterId>, Damage>> {
    let bytes = match storage.read(&FilePath::Cluster, 0..CLUSTER_BYTES).await {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Ok(None)),
        Err(error) => return Err(error.into()),
    };
    let text = std::str::from_utf8(&bytes).ok();
    let id = text.and_then(|text| text.strip_prefix(CLUSTER_MAGIC)?.strip_suffix('\n'));
    let id: Option<ClusterId> = id.and_then(|id| id.parse().ok());
    Ok(id.map(Some).ok_or_else(|| cluster_file("it does not name a cluster".into())))
}

fn cluster_file(what: String) -> Damage {
    let file = FilePath::Cluster.to_string();
    Damage { file, position: 0, end: None, what, loss: Loss::Nothing }
}

/// What is wrong with the cluster file: a broker refuses to start with it.
fn cluster_damage(
    stored: Result<Option<ClusterId>, Damage>,
    known: Option<ClusterId>,
    has_files: bool,
) -> Option<Damage> {
    match (stored, known) {
        (Err(damage), _) => Some(damage),
        (Ok(None), _) if has_files => Some(cluster_file("the file is missing".into())),
        (Ok(Some(stored)), Some(known)) if stored != known => Some(cluster_file(format!(
            "it names cluster {stored}, the metadata is that of cluster {known}"
        ))),
        (Ok(_), _) => None,
    }
}

/// The name of a topic, or its id where the name is not known.
fn topic_name(names: &BTreeMap<TopicId, String>, topic: TopicId) -> String {
    names.get(&topic).cloned().unwrap_or_else(|| topic.to_string())
}
