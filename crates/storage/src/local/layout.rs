//! Where files lie below the data directory, and how they are listed.
//!
//! A file lies at the text form of its name. Besides there are `lock`, `spare/` (recycled journals),
//! `tmp/` (files that have no name yet) and `sealed/<dir>.sealed` (the seals, kept for ever). What bears
//! no name of ours is not ours: it is passed over, and never removed.

use std::fs::{self, DirEntry};
use std::io;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use talos_common::{BrokerDir, TopicId, TopicPartitionId};

use crate::{FileInfo, FilePath, LIST_PAGE, Prefix};

pub(super) const FOLDERS: [&str; 5] = ["brokers", "topics", "sealed", "spare", "tmp"];

#[derive(Clone, Debug)]
pub(super) struct Layout {
    pub(super) root: PathBuf,
}

/// Absence is a fact, every other error is not.
fn if_there<T>(result: io::Result<T>) -> io::Result<Option<T>> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

impl Layout {
    pub(super) fn file(&self, path: &FilePath) -> PathBuf {
        self.root.join(path.to_string())
    }

    pub(super) fn folder(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    pub(super) fn dir(&self, dir: BrokerDir) -> PathBuf {
        self.root.join("brokers").join(dir.to_string())
    }

    pub(super) fn seal(&self, dir: BrokerDir) -> PathBuf {
        self.root.join("sealed").join(format!("{dir}.sealed"))
    }

    /// A recycled journal.
    pub(super) fn spare(&self, number: u64) -> PathBuf {
        self.root.join("spare").join(format!("spare-{number:016x}"))
    }

    /// A file that is not finished.
    pub(super) fn unfinished(&self, number: u64) -> PathBuf {
        self.root.join("tmp").join(format!("tmp-{number:016x}"))
    }

    /// The folders whose entries lead to `path`, innermost first.
    pub(super) fn folders_of(&self, path: &FilePath) -> Vec<PathBuf> {
        let file = self.file(path);
        let below = |folder: &&Path| folder.starts_with(&self.root);
        let depth = match path {
            // The folders of topics come and go with their files.
            FilePath::Segment { .. } => 3,
            FilePath::Cluster
            | FilePath::Journal { .. }
            | FilePath::Sorted { .. }
            | FilePath::SealIndex { .. } => 1,
        };
        file.ancestors().skip(1).take(depth).take_while(below).map(Path::to_path_buf).collect()
    }

    /// The files in `spare/` or `tmp/` that bear our name, with their numbers.
    pub(super) fn numbered(&self, folder: &str) -> io::Result<Vec<(u64, PathBuf)>> {
        let mut found = Vec::new();
        for entry in entries(&self.folder(folder))? {
            let name = entry.file_name();
            let number =
                name.to_str().and_then(|name| name.strip_prefix(folder)?.strip_prefix('-'));
            let number = number.filter(|number| number.len() == 16);
            if let Some(number) = number.and_then(|number| u64::from_str_radix(number, 16).ok()) {
                found.push((number, entry.path()));
            }
        }
        found.sort();
        Ok(found)
    }

    /// All directories that have a seal.
    pub(super) fn seals(&self) -> io::Result<Vec<BrokerDir>> {
        names(&self.folder("sealed"), |name| name.strip_suffix(".sealed")?.parse().ok())
    }

    /// One page of the files below `prefix`.
    pub(super) fn list(
        &self,
        prefix: Prefix,
        after: Option<&FilePath>,
    ) -> io::Result<Vec<FileInfo>> {
        let mut page = Vec::new();
        match prefix {
            Prefix::Dir(dir) => self.list_folder(&format!("brokers/{dir}"), after, &mut page)?,
            Prefix::Brokers => {
                let from = after.and_then(FilePath::dir);
                for dir in names(&self.folder("brokers"), |name| name.parse::<BrokerDir>().ok())? {
                    if page.len() < LIST_PAGE && from.is_none_or(|from| dir >= from) {
                        self.list_folder(&format!("brokers/{dir}"), after, &mut page)?;
                    }
                }
            }
            Prefix::Partition(of) => {
                self.list_folder(
                    &format!("topics/{}/{}", of.topic.hex(), of.partition),
                    after,
                    &mut page,
                )?;
            }
            Prefix::Topic(topic) => self.list_topic(topic, after, &mut page)?,
            Prefix::Topics => {
                let from = after.and_then(partition_of).map(|of| of.topic);
                for topic in names(&self.folder("topics"), |name| TopicId::from_hex(name).ok())? {
                    if page.len() < LIST_PAGE && from.is_none_or(|from| topic >= from) {
                        self.list_topic(topic, after, &mut page)?;
                    }
                }
            }
        }
        Ok(page)
    }

    fn list_topic(
        &self,
        topic: TopicId,
        after: Option<&FilePath>,
        page: &mut Vec<FileInfo>,
    ) -> io::Result<()> {
        let from = after.and_then(partition_of);
        let folder = self.folder("topics").join(topic.hex().to_string());
        let partitions = names(&folder, |name| {
            name.parse::<i32>().ok().filter(|partition| partition.to_string() == name)
        })?;
        for partition in partitions {
            let of = TopicPartitionId { topic, partition };
            if page.len() < LIST_PAGE && from.is_none_or(|from| of >= from) {
                self.list_folder(&format!("topics/{}/{partition}", topic.hex()), after, page)?;
            }
        }
        Ok(())
    }

    /// Adds the files of one folder after `after`, in name order, until the page is full.
    fn list_folder(
        &self,
        folder: &str,
        after: Option<&FilePath>,
        page: &mut Vec<FileInfo>,
    ) -> io::Result<()> {
        let files = names(&self.folder(folder), |name| {
            let path: FilePath = format!("{folder}/{name}").parse().ok()?;
            after.is_none_or(|after| path > *after).then_some(path)
        })?;
        for path in files {
            if page.len() >= LIST_PAGE {
                break;
            }
            // Deleted since: a listing is no snapshot.
            let Some(data) = if_there(fs::symlink_metadata(self.file(&path)))? else { continue };
            let since = data.modified()?.duration_since(UNIX_EPOCH).unwrap_or_default();
            let modified_ms = i64::try_from(since.as_millis()).unwrap_or(i64::MAX);
            if data.is_file() {
                page.push(FileInfo { path, len: data.len(), modified_ms });
            }
        }
        Ok(())
    }

    /// The first thing in `dir` that is not ours.
    pub(super) fn foreign(&self, dir: BrokerDir) -> io::Result<Option<PathBuf>> {
        for entry in entries(&self.dir(dir))? {
            let name = entry.file_name();
            let name = name.to_str().map(|name| format!("brokers/{dir}/{name}"));
            let ours = name.is_some_and(|name| name.parse::<FilePath>().is_ok());
            if !ours || !entry.file_type()?.is_file() {
                return Ok(Some(entry.path()));
            }
        }
        Ok(None)
    }
}

fn partition_of(path: &FilePath) -> Option<TopicPartitionId> {
    match path {
        FilePath::Segment { partition, .. } => Some(*partition),
        FilePath::Cluster
        | FilePath::Journal { .. }
        | FilePath::Sorted { .. }
        | FilePath::SealIndex { .. } => None,
    }
}

/// The entries of `folder`, in no order; none when it is missing.
fn entries(folder: &Path) -> io::Result<Vec<DirEntry>> {
    match if_there(fs::read_dir(folder))? {
        Some(entries) => entries.collect(),
        None => Ok(Vec::new()),
    }
}

/// What `parse` makes of the names in `folder`, sorted.
fn names<T: Ord>(folder: &Path, parse: impl Fn(&str) -> Option<T>) -> io::Result<Vec<T>> {
    let mut found = Vec::new();
    for entry in entries(folder)? {
        found.extend(entry.file_name().to_str().and_then(&parse));
    }
    found.sort();
    Ok(found)
}
