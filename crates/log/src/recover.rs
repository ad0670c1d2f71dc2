//! What a partition's log holds after its former leaders' directories were sealed and read. Pure.
//!
//! Within a leader epoch an offset has one content, however often it was written, and file order means
//! nothing. For each inherited pair (broker epoch, leader epoch), oldest first, the batches with
//! exactly that pair count that go on gap-free from the end of what is known (E-W2, E-J5), and only
//! below the start of every higher leader epoch (E-W14).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use talos_common::{BrokerDir, LeaderEpoch, TopicPartitionId};

use crate::epochs::Epochs;
use crate::extent::{Extent, Place};
use crate::format::LanePosition;
use crate::producers::Producers;
use crate::root::Root;
use crate::run::Run;
use crate::scan::walk::Damage;
use crate::scan::{DirScan, ScannedBatch};

/// A recovered log.
#[derive(Debug)]
pub(crate) struct Recovered {
    pub(crate) root: Root,
    /// The live segments that the root reaches, and the runs that go on from them, gap-free.
    pub(crate) runs: VecDeque<Arc<Run>>,
    /// Durable batches that go on from the runs, gap-free.
    pub(crate) extents: VecDeque<Extent>,
    /// Batches that follow the extents gap-free but may not be on stable storage: to be written
    /// again before they become visible.
    pub(crate) rewrite: Vec<ScannedBatch>,
    /// Where the next record goes, behind all of them.
    pub(crate) end_offset: i64,
    pub(crate) epochs: Epochs,
    pub(crate) producers: Producers,
    /// Pairs that hold nothing this log still needs.
    pub(crate) unneeded: Vec<(BrokerDir, LeaderEpoch)>,
}

/// Why a log can not be recovered: acknowledged records may be missing (P5).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{file} at position {position}: {what}")]
pub(crate) struct Lost {
    pub(crate) file: String,
    pub(crate) position: u64,
    pub(crate) what: String,
}

/// The head that a root names, and the live segments of its manifest.
#[derive(Debug)]
pub(crate) struct KnownHead {
    pub(crate) segments: Vec<Arc<Run>>,
    pub(crate) epochs: Epochs,
    pub(crate) producers: Producers,
}

/// Recovers `partition` from its root, the head that the root names, and what `scans` found of the
/// `inherits` pairs, oldest first.
pub(crate) fn recover(
    partition: TopicPartitionId,
    root: Root,
    head: Option<KnownHead>,
    inherits: &[(BrokerDir, LeaderEpoch)],
    scans: &BTreeMap<BrokerDir, DirScan>,
) -> Result<Recovered, Lost> {
    let mut starts = epoch_starts(partition, inherits, scans);
    let head = head.unwrap_or_else(|| {
        let mut epochs = Epochs::default();
        if let Some(epoch) = root.end_epoch {
            epochs.note(epoch, root.log_start);
        }
        KnownHead { segments: Vec::new(), epochs, producers: Producers::default() }
    });
    let mut log = Recovered {
        root,
        runs: head.segments.into(),
        extents: VecDeque::new(),
        rewrite: Vec::new(),
        end_offset: root.end_offset,
        epochs: head.epochs,
        producers: head.producers,
        unneeded: Vec::new(),
    };
    for (dir, epoch) in inherits {
        let Some(scan) = scans.get(dir) else {
            return Err(Lost {
                file: format!("brokers/{dir}"),
                position: 0,
                what: "the broker directory is missing".into(),
            });
        };
        let limit = limit_of(*epoch, &root, &starts);
        if scan.published.get(&partition).is_some_and(|newest| *newest > root.generation) {
            return Err(Lost {
                file: "the partition's root record".into(),
                position: 0,
                what: format!(
                    "generation {} is older than one that was published",
                    root.generation
                ),
            });
        }
        let runs = scan.runs.get(&(partition, *epoch));
        log.take_runs(runs, limit)?;
        let batches = scan.batches.get(&(partition, *epoch));
        log.take_pair(batches, limit)?;
        // Deleted records still say what their producers sent (E-J2).
        let has_stamps = batches.is_some_and(|batches| batches.iter().any(|b| b.stamp.is_some()));
        if let Some(damage) = log.damage(scan, (partition, *epoch), batches) {
            return Err(Lost {
                file: damage.file.to_string(),
                position: damage.position,
                what: damage.what.clone(),
            });
        }
        let has_stamps = has_stamps || runs.into_iter().flatten().any(|run| has_producers(run));
        if !has_stamps {
            log.unneeded.push((*dir, *epoch));
        }
    }
    log.settle_unneeded();
    log.settle_epochs();
    starts.retain(|epoch, _| began(partition, *epoch, inherits, scans));
    log.check_starts(&starts, inherits)?;
    Ok(log)
}

/// Where the own records of the inherited leader epochs start, as far as their frames say it, and as
/// runs do once these are sorted and gone.
fn epoch_starts(
    partition: TopicPartitionId,
    inherits: &[(BrokerDir, LeaderEpoch)],
    scans: &BTreeMap<BrokerDir, DirScan>,
) -> BTreeMap<LeaderEpoch, i64> {
    let mut starts = BTreeMap::new();
    for (dir, epoch) in inherits {
        let Some(scan) = scans.get(dir) else { continue };
        let pair = (partition, *epoch);
        let runs = scan.runs.get(&pair).into_iter().flatten();
        let in_runs = runs.filter_map(|run| run.known()?.epochs.start_of(*epoch)).min();
        let in_frames = scan.epoch_starts.get(&pair).copied();
        if let Some(start) = in_frames.into_iter().chain(in_runs).min() {
            starts.insert(*epoch, start);
        }
    }
    starts
}

/// Below which offset (exclusive) frames of `epoch` count: where higher epochs start (E-W14).
fn limit_of(epoch: LeaderEpoch, root: &Root, starts: &BTreeMap<LeaderEpoch, i64>) -> i64 {
    let higher = starts.range((Bound::Excluded(epoch), Bound::Unbounded)).map(|(_, start)| *start);
    // The epoch of the root's last record is known even when its own directory is gone.
    let at_root = root.end_epoch.filter(|end| *end > epoch).map(|_| root.end_offset);
    higher.chain(at_root).min().unwrap_or(i64::MAX)
}

/// Whether `epoch` accepted a record of its own. What it wrote before that was written again from its
/// forerunners, and proves nothing: it may have ended half way, before anyone saw any of it.
fn began(
    partition: TopicPartitionId,
    epoch: LeaderEpoch,
    inherits: &[(BrokerDir, LeaderEpoch)],
    scans: &BTreeMap<BrokerDir, DirScan>,
) -> bool {
    let of_epoch = inherits.iter().filter(|(_, of)| *of == epoch);
    of_epoch
        .filter_map(|(dir, _)| scans.get(dir)?.batches.get(&(partition, epoch)))
        .flatten()
        .any(|batch| batch.base_offset >= batch.meta.epoch_start)
}

impl Recovered {
    /// Runs that go on from what is known. A run is durable as a whole.
    fn take_runs(&mut self, runs: Option<&Vec<Arc<Run>>>, limit: i64) -> Result<(), Lost> {
        let mut sorted: Vec<&Arc<Run>> = runs.into_iter().flatten().collect();
        sorted.sort_by_key(|run| run.base_offset);
        for run in sorted {
            let lost = |what: String| Lost { file: run.file.to_string(), position: 0, what };
            if run.end_offset <= self.end_offset {
                // Deleted or published since; what its producers sent is still known from it (E-J2).
                self.producers.merge(run_producers(run));
                continue;
            }
            if run.base_offset > self.end_offset {
                let known = self.end_offset;
                return Err(lost(format!("offset {} follows {known}", run.base_offset)));
            }
            if run.end_offset > limit {
                return Err(lost("it overlaps records of a newer leader epoch".into()));
            }
            // It was written from the raw batches of this and former leaders: they are replaced.
            self.extents.retain(|extent| extent.base_offset < run.base_offset);
            self.rewrite.retain(|batch| batch.base_offset < run.base_offset);
            while self
                .runs
                .back()
                .is_some_and(|old| old.segment.is_none() && old.base_offset >= run.base_offset)
            {
                self.runs.pop_back();
            }
            if !self.extents.is_empty() || !self.rewrite.is_empty() {
                return Err(lost("raw batches lie before a run".into()));
            }
            if let Some(entry) = run.known() {
                entry.epochs.starts().iter().for_each(|(epoch, at)| self.epochs.note(*epoch, *at));
                self.producers.merge(&entry.producers);
            }
            self.end_offset = run.end_offset;
            self.runs.push_back(Arc::clone(run));
        }
        Ok(())
    }

    fn take_pair(&mut self, batches: Option<&Vec<ScannedBatch>>, limit: i64) -> Result<(), Lost> {
        let mut sorted: Vec<&ScannedBatch> = batches.into_iter().flatten().collect();
        // A resent batch stands in several files with one content. The copy that is stated durable
        // comes first; among equals the order does not matter.
        sorted.sort_by_key(|b| (b.base_offset, b.above_durable, b.file.number, b.position));
        for batch in sorted {
            if batch.last_offset >= limit {
                break;
            }
            if batch.last_offset < self.end_offset {
                self.remember(batch);
                continue;
            }
            // Only where the known part ends in the middle: at the root's end, after DeleteRecords.
            let straddles = batch.base_offset < self.end_offset;
            let at_root =
                self.runs.is_empty() && self.extents.is_empty() && self.rewrite.is_empty();
            if batch.base_offset > self.end_offset || (straddles && !at_root) {
                if batch.above_durable {
                    // A ghost: nobody was told about it.
                    break;
                }
                let what = format!(
                    "offset {} follows {}: records are missing",
                    batch.base_offset, self.end_offset
                );
                return Err(Lost {
                    file: batch.file.path().to_string(),
                    position: batch.position,
                    what,
                });
            }
            self.remember(batch);
            self.epochs.note(batch.accepted_epoch, batch.base_offset);
            self.end_offset = batch.last_offset + 1;
            // What follows a batch that is written again is written again too: order.
            if batch.above_durable || !self.rewrite.is_empty() {
                self.rewrite.push(batch.clone());
            } else {
                let place = self.extents.back().map(|last| &last.place);
                self.extents.push_back(extent(batch, place));
            }
        }
        Ok(())
    }

    /// Where the last of the pair's batches lies that counts: everything before it in its lane was
    /// written earlier, so no record of the pair is missing there.
    fn proven(&self, batches: Option<&Vec<ScannedBatch>>) -> Option<LanePosition> {
        let all = batches.into_iter().flatten();
        all.filter(|batch| batch.last_offset < self.end_offset).map(ScannedBatch::end).max()
    }

    /// The damage in `scan` that may have taken something of `pair`, or the catalog that named it.
    fn damage<'a>(
        &self,
        scan: &'a DirScan,
        pair: (TopicPartitionId, LeaderEpoch),
        batches: Option<&Vec<ScannedBatch>>,
    ) -> Option<&'a Damage> {
        let found = scan.damage_of(pair.0, pair.1, self.end_offset, self.proven(batches));
        found.or_else(|| {
            let (damage, runs) = scan.doubt.as_ref()?;
            let mut of_pair = runs.get(&pair).into_iter().flatten();
            of_pair.any(|run| self.lacks(run)).then_some(damage)
        })
    }

    /// What a later pair has as well was taken from there: only the outcome says what is needed.
    fn settle_unneeded(&mut self) {
        let used = self.used_dirs();
        self.unneeded.retain(|(dir, _)| !used.contains(dir));
    }

    /// The leader epochs as they were known before: of deleted records, only the root's last one.
    fn settle_epochs(&mut self) {
        let Root { log_start, end_offset, end_epoch, .. } = self.root;
        if log_start == end_offset && self.end_offset == end_offset {
            end_epoch.into_iter().for_each(|epoch| self.epochs.note(epoch, log_start));
        }
        self.epochs.trim(log_start);
    }

    /// Whether `run` holds records, or says something of producers, that is not known from elsewhere.
    fn lacks(&self, run: &Run) -> bool {
        run.end_offset > self.end_offset || self.producers.lacks(run_producers(run))
    }

    /// The directories in which something of the log is read.
    fn used_dirs(&self) -> BTreeSet<BrokerDir> {
        let runs = self.runs.iter().filter_map(|run| run.file.dir());
        let extents = self.extents.iter().map(|extent| {
            let Place::Journal { id, .. } = *extent.place;
            id.dir
        });
        runs.chain(extents).chain(self.rewrite.iter().map(|batch| batch.file.dir)).collect()
    }

    fn remember(&mut self, batch: &ScannedBatch) {
        if let Some(stamp) = &batch.stamp {
            let (base, last) = (batch.base_offset, batch.last_offset);
            let append_time = batch.meta.append_time_ms;
            self.producers.apply(stamp, base, last, batch.max_timestamp, append_time);
        }
    }

    /// A leader epoch accepted its first record because everything below was durable then.
    fn check_starts(
        &self,
        starts: &BTreeMap<LeaderEpoch, i64>,
        inherits: &[(BrokerDir, LeaderEpoch)],
    ) -> Result<(), Lost> {
        let Some((epoch, start)) = starts.iter().max_by_key(|(_, start)| **start) else {
            return Ok(());
        };
        if *start <= self.end_offset {
            return Ok(());
        }
        let dir = inherits.iter().find(|(_, of)| of == epoch).map(|(dir, _)| dir.to_string());
        Err(Lost {
            file: format!("brokers/{}", dir.unwrap_or_default()),
            position: 0,
            what: format!(
                "leader epoch {epoch} began at offset {start}, the records before it end at {}",
                self.end_offset
            ),
        })
    }
}

fn run_producers(run: &Run) -> &Producers {
    static NONE: Producers = Producers::new();
    run.known().map_or(&NONE, |entry| &entry.producers)
}

fn has_producers(run: &Run) -> bool {
    !run_producers(run).is_empty()
}

/// Extents of one file share `place`.
fn extent(batch: &ScannedBatch, place: Option<&Arc<Place>>) -> Extent {
    let of_batch = Place::Journal { id: batch.file, mask: batch.mask };
    let place = place.filter(|place| ***place == of_batch).cloned();
    Extent {
        base_offset: batch.base_offset,
        // A batch holds at most as many records as its header can count.
        last_offset_delta: (batch.last_offset - batch.base_offset) as i32,
        max_timestamp: batch.max_timestamp,
        length: batch.length,
        position: batch.position,
        place: place.unwrap_or_else(|| Arc::new(of_batch)),
        piece: Weak::new(),
    }
}
