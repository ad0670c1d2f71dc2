//! The thread that writes: takes what waits, applies each transaction in a savepoint, commits once.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use rusqlite::hooks::Wal;
use rusqlite::{Connection, OptionalExtension, params};
use tokio::sync::{mpsc, oneshot};

use super::file::{self, Opened, Totals, corrupt, row_crc};
use super::mark::Mark;
use crate::store::{Error, Op, Refusal, Result, Version};
use crate::tree::{name, parent};
use crate::watchers::Watchers;

/// The most transactions, and bytes of them, in one commit.
const GROUP: usize = 128;
const GROUP_BYTES: usize = 4 << 20;
/// When the write-ahead log is copied into the file: pages of 4 KiB.
const CHECKPOINT_PAGES: i64 = 1_000;
const PAGE_BYTES: u64 = 4_096;

type Answer = oneshot::Sender<Result<Vec<Version>>>;

/// What the thread is asked for.
#[derive(Debug)]
pub(super) enum Job {
    Transact { ops: Vec<Op>, done: Answer },
    Limit { bytes: Option<u64>, done: oneshot::Sender<Result<()>> },
}

/// The thread's state.
#[derive(Debug)]
pub(super) struct Writer {
    path: PathBuf,
    db: Connection,
    totals: Totals,
    mark: Mark,
    jobs: mpsc::Receiver<Job>,
    watchers: Arc<Watchers>,
    /// How long the write-ahead log was after the last commit.
    wal_pages: Arc<AtomicI64>,
}

impl Writer {
    pub(super) fn new(
        path: &Path,
        opened: Opened,
        jobs: mpsc::Receiver<Job>,
        watchers: Arc<Watchers>,
    ) -> Self {
        let Opened { mut db, totals, mut mark } = opened;
        mark.write(totals.commits);
        // What recovery found in the log is not counted, so one checkpoint is due at the first commit.
        let wal_pages = Arc::new(AtomicI64::new(CHECKPOINT_PAGES));
        let seen = Arc::clone(&wal_pages);
        let hook = move |_: &mut Wal, pages| {
            seen.store(i64::from(pages), Ordering::Relaxed);
            Ok(())
        };
        if let Err(error) = db.wal_hook(Some(hook)) {
            tracing::warn!(%error, "the length of the metadata log is unknown; it may grow");
        }
        Self { path: path.to_owned(), db, totals, mark, jobs, watchers, wal_pages }
    }

    /// Works until there is nothing to do and nobody left to ask.
    pub(super) fn run(mut self) {
        while let Some(job) = self.jobs.blocking_recv() {
            let mut group = Vec::new();
            let mut bytes = 0;
            let mut next = Some(job);
            while let Some(job) = next.take() {
                match job {
                    Job::Transact { ops, done } => {
                        bytes += ops.iter().map(Op::size).sum::<usize>();
                        group.push((ops, done));
                    }
                    Job::Limit { bytes, done } => {
                        // Whoever asked may have gone.
                        let _ = done.send(self.limit(bytes));
                    }
                }
                if group.len() < GROUP && bytes < GROUP_BYTES {
                    next = self.jobs.try_recv().ok();
                }
            }
            if !group.is_empty() {
                self.commit_group(group);
                self.checkpoint(CHECKPOINT_PAGES, "PRAGMA wal_checkpoint(PASSIVE)");
            }
        }
        self.checkpoint(0, "PRAGMA wal_checkpoint(TRUNCATE)");
    }

    fn limit(&self, bytes: Option<u64>) -> Result<()> {
        let pages = bytes.map_or(u64::from(u32::MAX - 1), |bytes| (bytes / PAGE_BYTES).max(1));
        let pages = i64::try_from(pages).unwrap_or(i64::MAX).min(i64::from(u32::MAX - 1));
        self.db
            .pragma_update_and_check(None, "max_page_count", pages, |row| row.get::<_, i64>(0))
            .map(|_| ())
            .map_err(|error| file::read_error(&self.path, &error))
    }

    /// Applies and commits `group`, then answers everybody.
    fn commit_group(&mut self, group: Vec<(Vec<Op>, Answer)>) {
        let before = self.totals;
        let mut results = Vec::with_capacity(group.len());
        let outcome = self.apply_group(&group, &mut results);
        if let Err(error) = outcome {
            // Nobody's answer stands, not even a refusal: it may rest on what was not committed.
            self.totals = before;
            if !self.db.is_autocommit()
                && let Err(rollback) = self.db.execute_batch("ROLLBACK")
            {
                tracing::error!(%rollback, "metadata transaction could not be rolled back");
            }
            tracing::warn!(%error, "metadata was not committed");
            results.clear();
            results.resize_with(group.len(), || Err(error.clone()));
        } else {
            self.mark.write(self.totals.commits);
            self.publish(&group, &results);
        }
        for ((_, done), result) in group.into_iter().zip(results) {
            // Whoever asked may have gone; the change stands.
            let _ = done.send(result);
        }
    }

    /// An error here means that nothing was applied, unless it is `Uncertain`.
    fn apply_group(
        &mut self,
        group: &[(Vec<Op>, Answer)],
        results: &mut Vec<Result<Vec<Version>>>,
    ) -> Result<()> {
        let path = self.path.clone();
        let failed = |error| file::read_error(&path, &error);
        self.db.execute_batch("BEGIN IMMEDIATE").map_err(failed)?;
        let mut changes = false;
        for (ops, _) in group {
            self.db.execute_batch("SAVEPOINT one").map_err(failed)?;
            let before = self.totals;
            let result = self.apply(ops);
            match &result {
                Ok(_) => changes |= ops.iter().any(|op| !matches!(op, Op::Check { .. })),
                Err(Error::Refused { .. } | Error::Invalid(_)) => {
                    self.totals = before;
                    self.db.execute_batch("ROLLBACK TO one").map_err(failed)?;
                }
                Err(error) => return Err(error.clone()),
            }
            self.db.execute_batch("RELEASE one").map_err(failed)?;
            results.push(result);
        }
        if !changes {
            return self.db.execute_batch("ROLLBACK").map_err(failed);
        }
        self.totals.commits += 1;
        file::write_totals(&self.db, self.totals).map_err(failed)?;
        self.db.execute_batch("COMMIT").map_err(|error| file::commit_error(&path, &error))
    }

    fn apply(&mut self, ops: &[Op]) -> Result<Vec<Version>> {
        ops.iter().enumerate().map(|(index, op)| self.apply_one(index, op)).collect()
    }

    /// Version, whether ephemeral, and checksum of a node.
    fn find(&self, path: &str) -> Result<Option<(i32, bool, i64)>> {
        if path == "/" {
            return Ok(Some((0, false, 0)));
        }
        let failed = |error| file::read_error(&self.path, &error);
        let mut select = self.db.prepare_cached(file::SELECT_NODE).map_err(failed)?;
        let row = select
            .query_row(params![parent(path), name(path)], file::Row::read)
            .optional()
            .map_err(failed)?;
        Ok(row.map(|row| (row.version, row.ephemeral, row.crc)))
    }

    fn has_children(&self, path: &str) -> rusqlite::Result<bool> {
        self.db
            .prepare_cached("SELECT EXISTS (SELECT 1 FROM nodes WHERE parent = ?1)")?
            .query_row([path], |row| row.get(0))
    }

    fn apply_one(&mut self, index: usize, op: &Op) -> Result<Version> {
        let refuse = |refusal| Error::Refused { index, path: op.path().to_owned(), refusal };
        let found = self.find(op.path())?;
        match op {
            Op::Create { path, value, ephemeral } => {
                if found.is_some() {
                    return Err(refuse(Refusal::Exists));
                }
                match self.find(parent(path))? {
                    None => return Err(refuse(Refusal::NotFound)),
                    Some((_, true, _)) => {
                        return Err(Error::Invalid(format!("{path}: its parent is ephemeral")));
                    }
                    Some(_) => self.insert(path, value, *ephemeral)?,
                }
                Ok(Version(0))
            }
            Op::Set { path, value, version } => {
                let old = has_version(found, *version).map_err(refuse)?;
                let next = version.0.checked_add(1).ok_or_else(|| {
                    Error::Invalid(format!("{path}: no version above {}", version.0))
                })?;
                self.update(path, value, next, old)?;
                Ok(Version(next))
            }
            Op::Delete { path, version } => {
                let (_, crc) = has_version(found, *version).map_err(refuse)?;
                let failed = |error| file::read_error(&self.path, &error);
                if self.has_children(path).map_err(failed)? {
                    return Err(refuse(Refusal::NotEmpty));
                }
                let deleted = self
                    .db
                    .prepare_cached("DELETE FROM nodes WHERE parent = ?1 AND name = ?2")
                    .and_then(|mut delete| delete.execute(params![parent(path), name(path)]))
                    .map_err(failed)?;
                self.expect_one(path, deleted)?;
                self.totals.nodes -= 1;
                self.totals.sum = self.totals.sum.wrapping_sub(crc);
                Ok(*version)
            }
            Op::Check { version, .. } => {
                has_version(found, *version).map_err(refuse)?;
                Ok(*version)
            }
        }
    }

    fn insert(&mut self, path: &str, value: &[u8], ephemeral: bool) -> Result<()> {
        let (above, own) = (parent(path), name(path));
        let crc = row_crc(above, own, 0, ephemeral, value);
        let inserted = self
            .db
            .prepare_cached("INSERT INTO nodes VALUES (?1, ?2, 0, ?3, ?4, ?5)")
            .and_then(|mut insert| insert.execute(params![above, own, ephemeral, value, crc]))
            .map_err(|error| file::read_error(&self.path, &error))?;
        self.expect_one(path, inserted)?;
        self.totals.nodes += 1;
        self.totals.sum = self.totals.sum.wrapping_add(crc);
        Ok(())
    }

    fn update(&mut self, path: &str, value: &[u8], next: i32, old: (bool, i64)) -> Result<()> {
        let (above, own) = (parent(path), name(path));
        let (ephemeral, old_crc) = old;
        let crc = row_crc(above, own, next, ephemeral, value);
        let updated = self
            .db
            .prepare_cached(
                "UPDATE nodes SET version = ?3, value = ?4, crc = ?5 \
                 WHERE parent = ?1 AND name = ?2",
            )
            .and_then(|mut update| update.execute(params![above, own, next, value, crc]))
            .map_err(|error| file::read_error(&self.path, &error))?;
        self.expect_one(path, updated)?;
        self.totals.sum = self.totals.sum.wrapping_sub(old_crc).wrapping_add(crc);
        Ok(())
    }

    /// A statement about one row that was just seen must meet one row.
    fn expect_one(&self, path: &str, rows: usize) -> Result<()> {
        if rows == 1 { Ok(()) } else { Err(corrupt(&self.path, &format!("{rows} rows at {path}"))) }
    }

    fn publish(&self, group: &[(Vec<Op>, Answer)], results: &[Result<Vec<Version>>]) {
        let applied = group.iter().zip(results).filter(|(_, result)| result.is_ok());
        let ops = applied.flat_map(|((ops, _), _)| ops);
        let changes = ops.filter(|op| !matches!(op, Op::Check { .. })).map(Op::path);
        self.watchers.changed(changes);
    }

    /// Copies the write-ahead log into the file when it has more than `pages`. If that fails nothing
    /// is lost: the log stays and grows.
    fn checkpoint(&self, pages: i64, pragma: &str) {
        if self.wal_pages.load(Ordering::Relaxed) <= pages {
            return;
        }
        match self.db.query_row(pragma, [], |row| row.get::<_, i64>(0)) {
            // Complete or not: the next commit says how long the log is then.
            Ok(_) => self.wal_pages.store(0, Ordering::Relaxed),
            Err(error) => tracing::debug!(%error, "metadata checkpoint failed; trying again later"),
        }
    }
}

/// Whether an ephemeral node, and its checksum, if it has `version`.
fn has_version(
    found: Option<(i32, bool, i64)>,
    version: Version,
) -> std::result::Result<(bool, i64), Refusal> {
    match found {
        None => Err(Refusal::NotFound),
        Some((found, ..)) if found != version.0 => Err(Refusal::BadVersion),
        Some((_, ephemeral, crc)) => Ok((ephemeral, crc)),
    }
}
