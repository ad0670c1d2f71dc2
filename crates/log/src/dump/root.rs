//! What a partition's root record says, and whether the files that it reaches are there.

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_common::TopicPartitionId;
use talos_storage::{Error as StorageError, FilePath, Prefix, Storage};

use super::{Damage, Loss};
use crate::root::{Head, Root};
use crate::runs::{self, RunFileError, Stated};

/// A root and what it reaches.
#[derive(Clone, Debug)]
pub struct RootReport {
    /// The root; `None` when there is none or it can not be read.
    pub root: Option<Root>,
    /// How many live segments it reaches.
    pub segments: u64,
    /// Bytes of their files.
    pub segment_bytes: u64,
    /// What is wrong. Content is not read here: the files' own reports say what is damaged in them.
    pub damage: Vec<Damage>,
}

/// Checks the root record of `partition` (`None`: there is none) and that every live segment that it
/// reaches is there with its length. `published` is the newest generation that a journal states.
///
/// # Errors
/// Those of the store.
pub async fn check_root(
    storage: &Arc<dyn Storage>,
    cluster: [u8; 16],
    partition: TopicPartitionId,
    record: Option<&[u8]>,
    published: u64,
) -> Result<RootReport, StorageError> {
    let mut report = RootReport { root: None, segments: 0, segment_bytes: 0, damage: Vec::new() };
    let damaged = |what: String| Damage {
        file: format!("root record of {partition}"),
        position: 0,
        end: None,
        what,
        loss: Loss::Records,
    };
    let root = match record.map(Root::decode) {
        None => Root::default(),
        Some(Ok(root)) => root,
        Some(Err(error)) => {
            report.damage.push(damaged(error.to_string()));
            return Ok(report);
        }
    };
    report.root = record.map(|_| root);
    if root.generation < published {
        let generation = root.generation;
        report.damage.push(damaged(format!(
            "generation {generation} is older than {published}, which was published"
        )));
    }
    let Some(Head { base_offset, leader_epoch, attempt, file_bytes }) = root.head else {
        return Ok(report);
    };
    let head = FilePath::Segment { partition, base_offset, leader_epoch, attempt };
    let index = runs::read_index(storage, &head, Stated::exactly(file_bytes), cluster).await;
    let index = match index {
        Ok(found) => found.index,
        Err(RunFileError::Storage(error)) => return Err(error),
        Err(RunFileError::Corrupt { position, what, .. }) => {
            let what = format!("{what} (the root names it as the newest segment)");
            let (file, end, loss) = (head.to_string(), None, Loss::Records);
            report.damage.push(Damage { file, position, end, what, loss });
            return Ok(report);
        }
    };
    let there = lengths(storage, partition).await?;
    for segment in index.manifest.iter().filter(|segment| segment.end_offset > root.log_start) {
        report.segments += 1;
        report.segment_bytes += segment.file_bytes;
        let path = segment.path(partition);
        let found = there.get(&path).copied();
        let (position, what) = match found {
            Some(len) if len == segment.file_bytes => continue,
            Some(len) => (
                len.min(segment.file_bytes),
                format!("it has {len} bytes, not {}", segment.file_bytes),
            ),
            None => (0, "the file is missing".into()),
        };
        let (file, end, loss) = (path.to_string(), None, Loss::Records);
        let what = format!("{what} (the manifest in {head} names it)");
        report.damage.push(Damage { file, position, end, what, loss });
    }
    Ok(report)
}

/// The segment files of a partition with their lengths.
async fn lengths(
    storage: &Arc<dyn Storage>,
    partition: TopicPartitionId,
) -> Result<BTreeMap<FilePath, u64>, StorageError> {
    let mut found = BTreeMap::new();
    let mut after = None;
    loop {
        let page = storage.list(Prefix::Partition(partition), after).await?;
        let Some(last) = page.last() else { return Ok(found) };
        after = Some(last.path.clone());
        found.extend(page.into_iter().map(|file| (file.path, file.len)));
    }
}
