//! What a partition's log holds after its former leaders' directories were sealed and read. Pure.
//!
//! Within a leader epoch an offset has one content, however often it was written, and file order means
//! nothing. For each inherited pair (broker epoch, leader epoch), oldest first, the batches with
//! exactly that pair count that go on gap-free from the end of what is known (E-W2, E-J5), and only
//! below the start of every higher leader epoch (E-W14). Runs of sorted journals hold what was durable
//! and visible: they come first, whichever pair they are of.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::{Arc, Weak};

use talos_common::{BrokerDir, LeaderEpoch, TopicPartitionId};
use talos_storage::FilePath;

use crate::epochs::Epochs;
use crate::extent::{Extent, Place};
use crate::format::LanePosition;
use crate::partition::tiers::StateRun;
use crate::producers::Producers;
use crate::root::{Head, Root};
use crate::run::Run;
use crate::scan::walk::Damage;
use crate::scan::{DirScan, Missing, ScannedBatch};

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
    /// The newest run or segment that says what is known of producers.
    pub(crate) state: Option<StateRun>,
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
    let state = root.head.map(|Head { base_offset, leader_epoch, attempt, .. }| StateRun {
        file: FilePath::Segment { partition, base_offset, leader_epoch, attempt },
        set: 0,
        newest_offset: head.producers.newest_offset(),
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
        state,
    };
    let pairs = known_pairs(partition, &root, inherits, scans)?;
    let missing = Missed::of(&pairs);
    let limits: Vec<i64> =
        inherits.iter().map(|(_, epoch)| limit_of(*epoch, &root, &starts)).collect();
    log.take_runs(&pairs, &limits).map_err(|lost| missing.or(lost))?;
    let mut stamped = BTreeSet::new();
    for (at, (pair, limit)) in pairs.iter().zip(limits).enumerate() {
        for run in pair.runs() {
            log.producers.merge(run_producers(run));
        }
        log.take_pair(pair.batches, limit).map_err(|lost| missing.or(lost))?;
        if let Some(damage) = log.damage(pair) {
            return Err(Lost {
                file: damage.file.to_string(),
                position: damage.position,
                what: damage.what.clone(),
            });
        }
        // Deleted records still say what their producers sent (E-J2).
        if pair.batches.into_iter().flatten().any(|batch| batch.stamp.is_some()) {
            stamped.insert(at);
        }
    }
    let state_at = log.settle_state(&pairs);
    missing.check(log.end_offset, state_at)?;
    log.settle_unneeded(inherits, &stamped, state_at);
    log.settle_epochs();
    starts.retain(|epoch, _| began(partition, *epoch, inherits, scans));
    log.check_starts(&starts, inherits)?;
    Ok(log)
}

/// What was found of one inherited pair.
struct Pair<'a> {
    key: (TopicPartitionId, LeaderEpoch),
    scan: &'a DirScan,
    runs: Option<&'a Vec<Arc<Run>>>,
    batches: Option<&'a Vec<ScannedBatch>>,
}

impl<'a> Pair<'a> {
    fn runs(&self) -> impl Iterator<Item = &'a Arc<Run>> + use<'a> {
        self.runs.into_iter().flatten()
    }
}

/// The inherited pairs, oldest first. Their directories must have been read, and must know of no newer
/// root (E-J14).
fn known_pairs<'a>(
    partition: TopicPartitionId,
    root: &Root,
    inherits: &[(BrokerDir, LeaderEpoch)],
    scans: &'a BTreeMap<BrokerDir, DirScan>,
) -> Result<Vec<Pair<'a>>, Lost> {
    let mut pairs = Vec::with_capacity(inherits.len());
    for (dir, epoch) in inherits {
        let Some(scan) = scans.get(dir) else {
            return Err(Lost {
                file: format!("brokers/{dir}"),
                position: 0,
                what: "the broker directory is missing".into(),
            });
        };
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
        let key = (partition, *epoch);
        pairs.push(Pair { key, scan, runs: scan.runs.get(&key), batches: scan.batches.get(&key) });
    }
    Ok(pairs)
}

/// What may lie in sorted journals that can not be read, of each pair that is concerned.
struct Missed<'a>(Vec<(usize, Missing<'a>)>);

impl<'a> Missed<'a> {
    fn of(pairs: &[Pair<'a>]) -> Self {
        let missing = pairs.iter().enumerate();
        let missing = missing.filter_map(|(at, pair)| Some((at, pair.scan.missing_of(pair.key)?)));
        Self(missing.collect())
    }

    fn lost(missing: &Missing<'_>) -> Lost {
        let file = missing.file;
        Lost { file: file.file.to_string(), position: file.position, what: file.what.clone() }
    }

    /// A gap is where an unreadable file is missed, if there is one.
    fn or(&self, lost: Lost) -> Lost {
        self.0.first().map_or(lost, |(_, missing)| Self::lost(missing))
    }

    /// Whether the log that was found proves that nothing is missing: it reaches as far as the runs did,
    /// without a gap, and pair `state_at` or a later one says what was known of producers.
    fn check(&self, end_offset: i64, state_at: Option<usize>) -> Result<(), Lost> {
        let lost = self.0.iter().find(|(at, missing)| {
            let whole = missing.end_offset.is_some_and(|end| end <= end_offset);
            let known = !missing.state || state_at.is_some_and(|newer| newer > *at);
            !whole || !known
        });
        lost.map_or(Ok(()), |(_, missing)| Err(Self::lost(missing)))
    }
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
    /// Runs that go on from what is known, of all pairs: a run is durable as a whole, and one of a newer
    /// pair may hold older records, which were merged. Where several hold the same, the newest pair's is
    /// taken, so that older directories can go.
    fn take_runs(&mut self, pairs: &[Pair<'_>], limits: &[i64]) -> Result<(), Lost> {
        let mut rest: Vec<(usize, &Arc<Run>)> = Vec::new();
        for (at, (pair, limit)) in pairs.iter().zip(limits).enumerate() {
            for run in pair.runs().filter(|run| run.end_offset > self.end_offset) {
                if run.end_offset > *limit {
                    return Err(lost_run(
                        run,
                        "it overlaps records of a newer leader epoch".into(),
                    ));
                }
                rest.push((at, run));
            }
        }
        loop {
            rest.retain(|(_, run)| run.end_offset > self.end_offset);
            let goes_on = rest.iter().filter(|(_, run)| run.base_offset <= self.end_offset);
            let Some((_, run)) = goes_on.max_by_key(|(at, run)| (*at, run.end_offset)) else {
                break;
            };
            if let Some(entry) = run.known() {
                entry.epochs.starts().iter().for_each(|(epoch, at)| self.epochs.note(*epoch, *at));
            }
            self.end_offset = run.end_offset;
            self.runs.push_back(Arc::clone(run));
        }
        match rest.iter().min_by_key(|(_, run)| run.base_offset) {
            Some((_, run)) => {
                let (offset, known) = (run.base_offset, self.end_offset);
                Err(lost_run(run, format!("offset {offset} follows {known}")))
            }
            None => Ok(()),
        }
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

    /// The damage that may have taken something of `pair`, or the catalog that named it.
    fn damage<'a>(&self, pair: &Pair<'a>) -> Option<&'a Damage> {
        let proven = self.proven(pair.batches);
        let (partition, epoch) = pair.key;
        let found = pair.scan.damage_of(partition, epoch, self.end_offset, proven);
        found.or_else(|| {
            let (damage, runs) = pair.scan.doubt.as_ref()?;
            let mut of_pair = runs.get(&pair.key).into_iter().flatten();
            of_pair.any(|run| self.lacks(run)).then_some(damage)
        })
    }

    /// Finds the newest pair with a run that says what is known of producers: everything that older
    /// pairs say is in it.
    fn settle_state(&mut self, pairs: &[Pair<'_>]) -> Option<usize> {
        let (at, pair) = pairs
            .iter()
            .enumerate()
            .rfind(|(_, pair)| pair.runs().any(|run| has_producers(run)))?;
        let newest = |run: &&Arc<Run>| (run_producers(run).newest_offset(), run.end_offset);
        let run = pair.runs().filter(|run| has_producers(run)).max_by_key(newest)?;
        let newest_offset = run_producers(run).newest_offset();
        // The head may know as much, and stays in any case.
        if self.state.as_ref().is_none_or(|head| head.newest_offset < newest_offset) {
            self.state = Some(StateRun { file: run.file.clone(), set: run.set, newest_offset });
        }
        Some(at)
    }

    /// A pair is needed while the log reads something in its directory, or only it says what some
    /// producer sent. What a later pair has as well was taken from there: only the outcome says it.
    fn settle_unneeded(
        &mut self,
        inherits: &[(BrokerDir, LeaderEpoch)],
        stamped: &BTreeSet<usize>,
        state_at: Option<usize>,
    ) {
        let used = self.used_dirs();
        let is_needed = |at: usize| match state_at {
            Some(newest) if at < newest => false,
            Some(newest) if at == newest => true,
            Some(_) | None => stamped.contains(&at),
        };
        let unneeded = inherits.iter().enumerate();
        let unneeded = unneeded.filter(|(at, (dir, _))| !is_needed(*at) && !used.contains(dir));
        self.unneeded = unneeded.map(|(_, pair)| *pair).collect();
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

fn lost_run(run: &Run, what: String) -> Lost {
    Lost { file: run.file.to_string(), position: 0, what }
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
