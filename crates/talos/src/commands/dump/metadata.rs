//! The metadata of a stopped broker: read from a copy, because opening the file itself writes.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use talos_common::{BrokerDir, BrokerEpoch, BrokerId, Env, TopicId, TopicPartitionId};
use talos_log::dump::{Damage, Loss, RootReport, check_root};
use talos_log::format::LanePosition;
use talos_meta::{ClusterId, Error, Leader, Meta, Ownership, SqliteMeta, TopicState};
use talos_storage::Storage;

use super::show::Show;

/// The metadata file in a data folder.
const FILE: &str = "meta.sqlite";
/// What belongs to it; the shared-memory file is made anew.
const PARTS: [&str; 3] = ["", "-wal", "-mark"];
/// Of what a clean stop records.
const CLEAN_STOP_VERSION: u8 = 1;

/// What became of opening the metadata.
pub(super) enum Opened {
    /// It is open and as a whole undamaged.
    Open(Metadata),
    /// It is not what was written.
    Damaged(Damage),
    /// It can not be looked at, for this reason.
    Skipped(String),
}

/// A copy of the metadata. It goes when this is dropped.
pub(super) struct Metadata {
    meta: Meta,
    original: PathBuf,
    copy: PathBuf,
    _folder: tempfile::TempDir,
}

/// What is known before the files are read.
#[derive(Default)]
pub(super) struct Facts {
    pub(super) clean_ends: BTreeMap<BrokerDir, LanePosition>,
    pub(super) registered: BTreeMap<BrokerId, BrokerEpoch>,
    pub(super) names: BTreeMap<TopicId, String>,
    pub(super) notes: Vec<String>,
}

/// The store that belongs to the metadata.
pub(super) struct Store<'a> {
    pub(super) storage: &'a Arc<dyn Storage>,
    pub(super) cluster: [u8; 16],
    /// The broker directories that have files.
    pub(super) dirs: &'a BTreeSet<BrokerDir>,
}

/// One partition, as the metadata has it.
pub(super) struct PartitionRow {
    pub(super) id: TopicPartitionId,
    pub(super) topic: String,
    pub(super) deleting: bool,
    pub(super) ownership: Option<Ownership>,
    pub(super) root: Option<RootReport>,
    pub(super) damage: Vec<Damage>,
}

fn damage(file: String, what: String) -> Damage {
    Damage { file, position: 0, end: None, what, loss: Loss::Records }
}

impl Metadata {
    /// Copies and opens the metadata in `dir`. Blocks.
    pub(super) fn open(dir: &Path) -> Opened {
        let original = dir.join(FILE);
        let (folder, found) = match copy(&original) {
            Ok(copied) => copied,
            Err(error) => return Opened::Skipped(format!("it can not be copied: {error}")),
        };
        if !found {
            return Opened::Skipped(format!("there is no file {FILE}"));
        }
        let copy = folder.path().join(FILE);
        match SqliteMeta::open(&copy) {
            Ok(store) => {
                let meta = Meta::new(Arc::new(store), Env::system());
                Opened::Open(Self { meta, original, copy, _folder: folder })
            }
            Err(Error::Corrupt(text)) => {
                Opened::Damaged(damage(FILE.into(), original_name(&text, &copy, &original)))
            }
            Err(error) => Opened::Skipped(original_name(&error.to_string(), &copy, &original)),
        }
    }

    /// An error of a record as damage.
    pub(super) fn damage(&self, error: &Error) -> Damage {
        damage(FILE.into(), original_name(&error.to_string(), &self.copy, &self.original))
    }

    /// The cluster that it is the metadata of.
    pub(super) async fn cluster(&self) -> Option<ClusterId> {
        // A damaged record is reported by whoever reads the rest.
        self.meta.cluster().await.ok().flatten().map(|cluster| cluster.id)
    }

    /// Brokers and topic names.
    pub(super) async fn facts(&self) -> Result<Facts, Error> {
        let mut facts = Facts::default();
        for (broker, record) in self.meta.brokers().await? {
            facts.registered.insert(broker, record.epoch);
            for (epoch, stop) in record.clean_stops {
                let dir = BrokerDir { broker, epoch };
                match decode_clean_stop(&stop) {
                    Some(end) => {
                        facts.clean_ends.insert(dir, end);
                    }
                    None => facts.notes.push(format!(
                        "where the clean stop of {dir} ended can not be read; it is not used"
                    )),
                }
            }
        }
        for (topic, _) in self.meta.topics().await? {
            facts.names.insert(topic.id, topic.name);
        }
        Ok(facts)
    }

    /// Shows every partition, and checks its root and that the directories that it names exist.
    pub(super) async fn partitions(
        &self,
        store: &Store<'_>,
        published: &BTreeMap<TopicPartitionId, u64>,
        show: &mut Show,
    ) -> anyhow::Result<()> {
        let mut topics = match self.meta.topics().await {
            Ok(topics) => topics,
            // Said before: the names come from here too.
            Err(_) => return Ok(()),
        };
        topics.sort_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        for (topic, _) in topics {
            let deleting = topic.state == TopicState::Deleting;
            for id in topic.partition_ids() {
                let published = published.get(&id).copied().unwrap_or(0);
                let mut row = PartitionRow {
                    id,
                    topic: topic.name.clone(),
                    deleting,
                    ownership: None,
                    root: None,
                    damage: Vec::new(),
                };
                self.check(store, published, &mut row).await?;
                show.partition(row)?;
            }
        }
        Ok(())
    }

    async fn check(
        &self,
        store: &Store<'_>,
        published: u64,
        row: &mut PartitionRow,
    ) -> anyhow::Result<()> {
        let id = row.id;
        match self.meta.ownership(id).await {
            Ok(Some((ownership, _))) => row.ownership = Some(ownership),
            Ok(None) if row.deleting => {}
            Ok(None) => {
                let what = format!("the ownership record of {id} is missing");
                row.damage.push(damage(FILE.into(), what));
            }
            Err(error) => row.damage.push(self.damage(&error)),
        }
        // Of a topic that is being deleted, anything may be gone.
        if row.deleting {
            return Ok(());
        }
        let named = row.ownership.iter().flat_map(named_dirs).collect::<BTreeSet<_>>();
        for dir in named.difference(store.dirs) {
            let what = format!("the broker directory is missing; partition {id} needs it");
            row.damage.push(damage(format!("brokers/{dir}"), what));
        }
        match self.meta.root(id).await {
            Ok(node) => {
                let record = node.as_ref().map(|node| &*node.value);
                let (storage, cluster) = (store.storage, store.cluster);
                let mut report = check_root(storage, cluster, id, record, published).await?;
                row.damage.append(&mut report.damage);
                row.root = Some(report);
            }
            Err(error) => row.damage.push(self.damage(&error)),
        }
        Ok(())
    }
}

/// The directories whose frames may still be needed.
fn named_dirs(ownership: &Ownership) -> Vec<BrokerDir> {
    let leader = match ownership.leader {
        Leader::Broker(dir) => Some(dir),
        Leader::Released | Leader::Closed => None,
    };
    ownership.inherits.iter().map(|inherited| inherited.dir).chain(leader).collect()
}

/// Copies the file and what belongs to it into a new folder; and whether there was anything.
fn copy(original: &Path) -> io::Result<(tempfile::TempDir, bool)> {
    let folder = tempfile::Builder::new().prefix("talos-dump-").tempdir()?;
    let mut found = false;
    for part in PARTS {
        let mut from = original.as_os_str().to_owned();
        from.push(part);
        match fs::copy(from, folder.path().join(format!("{FILE}{part}"))) {
            Ok(_) => found = true,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok((folder, found))
}

/// An error of the copy, told of the original.
fn original_name(text: &str, copy: &Path, original: &Path) -> String {
    text.replace(&copy.display().to_string(), &original.display().to_string())
}

/// Version, file and position of the lane's end, little-endian, as the broker records it.
fn decode_clean_stop(bytes: &[u8]) -> Option<LanePosition> {
    let (version, rest) = bytes.split_first()?;
    let (file, rest) = rest.split_first_chunk::<8>()?;
    let (position, rest) = rest.split_first_chunk::<8>()?;
    let (file, position) = (u64::from_le_bytes(*file), u64::from_le_bytes(*position));
    (*version == CLEAN_STOP_VERSION && rest.is_empty()).then_some(LanePosition { file, position })
}
