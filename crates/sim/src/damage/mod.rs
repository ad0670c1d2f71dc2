//! Damage to the files of a stopped broker (P5): a bit is turned, a file is cut, taken away, made longer
//! or put back as it was earlier. Later all is put right again, and nothing may have been lost.
//!
//! While files are damaged every ordinary checker goes on: what is served is what was acknowledged, or it
//! is not served. Excused is only what nothing that is left contradicts (E-J15):
//!
//! - a turned bit in a batch that no statement calls durable: the very last flushes before power went;
//! - a journal put back from an older copy, taken away, or cut where files have no length of their own,
//!   where no statement is left: the newest file after a kill.

pub(crate) mod journal;

use std::collections::{BTreeMap, BTreeSet};

use talos_common::{BrokerDir, Rng, TopicPartitionId};
use talos_log::format::Frame;
use talos_protocol::batch::BatchHeader;
use talos_storage::FilePath;
use talos_storage::memory::{FileCopy, Layout, MemoryStorage};

use crate::plan::pick;
use journal::{Journal, Lane};

/// What was done to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Flipped(u64),
    Cut(u64),
    Extended,
    Removed,
    Older,
}

/// One damaged file.
#[derive(Debug)]
pub(crate) struct Damage {
    before: FileCopy,
    kind: Kind,
    /// What kind of file, and what was done to it.
    pub(crate) met: [&'static str; 2],
    /// Partitions that may have lost acknowledged records, undetectably.
    pub(crate) excused: BTreeSet<TopicPartitionId>,
    /// The only partitions that may be refused; `None`: any.
    pub(crate) may_refuse: Option<BTreeSet<TopicPartitionId>>,
}

/// What is known besides the files.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Files as they were at some earlier time.
    pub(crate) copies: BTreeMap<FilePath, FileCopy>,
    /// Directories whose broker stopped cleanly.
    pub(crate) clean: BTreeSet<BrokerDir>,
}

/// Damages one file; `None` where chance found nothing to damage.
pub(crate) fn inflict(
    disk: &MemoryStorage,
    layout: Layout,
    known: &Known,
    rng: &Rng,
) -> Option<Damage> {
    let files = disk.files();
    let of = |wanted: &str| files.iter().filter(|path| kind_of(path) == wanted).collect::<Vec<_>>();
    let wanted = pick(rng, &["journal", "journal", "sorted journal", "segment"]);
    let wanted = if rng.chance(30_000) { "cluster file" } else { wanted };
    let mut candidates = of(wanted);
    if candidates.is_empty() {
        candidates = of("journal");
    }
    if candidates.is_empty() {
        return None;
    }
    // The newest is the most delicate.
    let path = match rng.chance(400_000) {
        true => candidates.last().copied()?,
        false => pick(rng, &candidates),
    };
    let changed = |path: &&FilePath| {
        let (now, then) = (disk.copy(path), known.copies.get(path));
        now.zip(then).is_some_and(|(now, then)| now.content() != then.content())
    };
    let older: Vec<&FilePath> = files.iter().filter(changed).collect();
    let (path, kind) = match !older.is_empty() && rng.chance(200_000) {
        true => (pick(rng, &older), Kind::Older),
        false => (path, draw(&disk.copy(path)?, rng)),
    };
    let before = disk.copy(path)?;
    let lane_before = lane_of(disk, path, known);
    let done = match kind {
        Kind::Flipped(at) => disk.flip_bit(path, at..at + 1, rng).is_some(),
        Kind::Cut(len) => disk.cut(path, len),
        Kind::Extended => disk.extend(path, &vec![0xa5; rng.usize(1..3_000)]),
        Kind::Removed => disk.remove(path),
        Kind::Older => known.copies.get(path).is_some_and(|copy| {
            disk.restore(copy);
            true
        }),
    };
    if !done {
        return None;
    }
    let lane_after = lane_of(disk, path, known);
    let how = match kind {
        Kind::Flipped(_) => "a bit flipped",
        Kind::Cut(_) => "cut",
        Kind::Extended => "extended",
        Kind::Removed => "removed",
        Kind::Older => "older copy",
    };
    let excused = excused(path, kind, layout, &lane_before, &lane_after);
    let may_refuse = may_refuse(path, kind, &lane_before, &lane_after);
    Some(Damage { before, kind, met: [kind_of(path), how], excused, may_refuse })
}

/// Where batches lie that do not go on from what their directory has before them: ghosts, which nobody
/// was told of.
pub(crate) fn ghosts(disk: &MemoryStorage, dir: BrokerDir) -> BTreeMap<TopicPartitionId, i64> {
    let mut batches: BTreeMap<TopicPartitionId, BTreeMap<i64, i64>> = BTreeMap::new();
    for path in disk.files().into_iter().filter(|path| path.dir() == Some(dir)) {
        let Some(copy) = disk.copy(&path) else { continue };
        for placed in Journal::read(&path, copy.content()).frames {
            if let Frame::Batch(meta, bytes) = &placed.frame
                && let Ok(header) = BatchHeader::parse(bytes)
            {
                let of = batches.entry(meta.partition).or_default();
                of.insert(header.base_offset, header.last_offset());
            }
        }
    }
    let ghost = |batches: BTreeMap<i64, i64>| {
        let mut pairs = batches.iter().zip(batches.iter().skip(1));
        pairs.find(|((_, last), (base, _))| **base > **last + 1).map(|(_, (base, _))| *base)
    };
    batches.into_iter().filter_map(|(tp, batches)| Some((tp, ghost(batches)?))).collect()
}

fn kind_of(path: &FilePath) -> &'static str {
    match path {
        FilePath::Cluster => "cluster file",
        FilePath::Journal { .. } => "journal",
        FilePath::Sorted { .. } => "sorted journal",
        FilePath::SealIndex { .. } => "seal index",
        FilePath::Segment { .. } => "segment",
    }
}

fn draw(before: &FileCopy, rng: &Rng) -> Kind {
    let path = before.path();
    let len = before.content().len() as u64;
    let frames = Journal::read(path, before.content()).frames;
    // Where something is: most of a preallocated file is empty.
    let place = || match frames.is_empty() {
        true => rng.u64(0..len.max(1)),
        false if rng.chance(100_000) => rng.u64(0..len.max(1)),
        false => {
            let at = rng.usize(..frames.len());
            frames.get(at).map_or(0, |placed| rng.u64(placed.at..placed.end))
        }
    };
    match rng.u64(0..8) {
        0..=3 => Kind::Flipped(place()),
        4 => Kind::Cut(place()),
        5 if *path != FilePath::Cluster => Kind::Extended,
        _ => Kind::Removed,
    }
}

fn lane_of(disk: &MemoryStorage, path: &FilePath, known: &Known) -> Lane {
    let Some(dir) = path.dir() else { return Lane::default() };
    let files: Vec<_> = disk.files().into_iter().filter(|file| file.dir() == Some(dir)).collect();
    let copies: Vec<_> = files.iter().filter_map(|file| disk.copy(file)).collect();
    Lane::read(copies.iter(), known.clean.contains(&dir))
}

/// See the module.
fn excused(
    path: &FilePath,
    kind: Kind,
    layout: Layout,
    before: &Lane,
    after: &Lane,
) -> BTreeSet<TopicPartitionId> {
    let FilePath::Journal { number, .. } = *path else { return BTreeSet::new() };
    let excusable = |at: u64, end: u64| match kind {
        Kind::Flipped(bit) => at <= bit && bit < end,
        Kind::Cut(_) => layout == Layout::Exact,
        Kind::Removed | Kind::Older => true,
        Kind::Extended => false,
    };
    let left = after.files.get(&number);
    let frames = before.files.get(&number).map(|file| file.frames.as_slice()).unwrap_or_default();
    let lost = frames.iter().filter(|placed| left.is_none_or(|left| !left.frames.contains(placed)));
    let mut excused = BTreeSet::new();
    for placed in lost {
        if let Frame::Batch(meta, _) = &placed.frame
            && excusable(placed.at, placed.end)
            && !after.states(number, placed.end)
        {
            excused.insert(meta.partition);
        }
    }
    excused
}

/// Which partitions, and no others, may be refused, where it can be known.
fn may_refuse(
    path: &FilePath,
    kind: Kind,
    before: &Lane,
    after: &Lane,
) -> Option<BTreeSet<TopicPartitionId>> {
    let number = match *path {
        FilePath::Segment { partition, .. } => return Some(BTreeSet::from([partition])),
        FilePath::Journal { number, .. } => number,
        _ => return None,
    };
    let Kind::Flipped(bit) = kind else {
        return (kind == Kind::Extended).then(BTreeSet::new);
    };
    let hit = before.files.get(&number)?.covering(bit)?;
    let Frame::Batch(meta, _) = &hit.frame else { return None };
    // A later index names all that lay in that stretch, and where it ended (E-J7).
    let position = |position| talos_log::format::LanePosition { file: number, position };
    let (from, to) = (position(hit.at), position(hit.end));
    let covers = after.files.iter().any(|(file, journal)| {
        journal.frames.iter().any(|placed| match &placed.frame {
            Frame::Index { since, .. } => {
                let here = talos_log::format::LanePosition { file: *file, position: placed.at };
                *since <= from && to <= here
            }
            _ => false,
        })
    });
    covers.then(|| BTreeSet::from([meta.partition]))
}

impl Damage {
    /// Whether the broker must refuse to start.
    pub(crate) fn stops_everything(&self) -> bool {
        *self.before.path() == FilePath::Cluster && self.kind != Kind::Extended
    }

    /// Where and what, for people.
    pub(crate) fn describe(&self) -> String {
        let (path, kind, excused) = (self.before.path(), self.kind, &self.excused);
        format!("damage: {kind:?} in {path}; excused: {excused:?}")
    }

    /// Puts the file back as it was, unless nothing needs it any more.
    pub(crate) fn repair(&self, disk: &MemoryStorage) {
        let path = self.before.path();
        let is_there = disk.copy(path).is_some();
        let was_taken =
            self.kind == Kind::Removed && path.dir().is_none_or(|dir| disk.has_dir(dir));
        if is_there || was_taken {
            disk.restore(&self.before);
        }
    }
}
