//! The file: its tables, how it is opened and checked, and what SQLite's errors mean.
//!
//! ```text
//! nodes  (parent, name) → version, ephemeral, value, crc    crc32c over all the others
//! totals one row: number of nodes, sum of their crcs (wrapping), number of commits
//! ```

use std::path::Path;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};
use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension};

use super::mark::Mark;
use crate::store::{Error, Node, Result, Version};

/// `Talo`: marks the file as ours.
const APPLICATION_ID: i32 = 0x5461_6c6f;
/// The version of the tables below.
const FORMAT: i32 = 1;

const CREATE_NODES: &str = "CREATE TABLE nodes (parent TEXT NOT NULL, name TEXT NOT NULL, \
    version INTEGER NOT NULL, ephemeral INTEGER NOT NULL, value BLOB NOT NULL, \
    crc INTEGER NOT NULL, PRIMARY KEY (parent, name)) WITHOUT ROWID";
const CREATE_TOTALS: &str = "CREATE TABLE totals (id INTEGER PRIMARY KEY, nodes INTEGER NOT NULL, \
    sum INTEGER NOT NULL, commits INTEGER NOT NULL)";

pub(super) const SELECT_NODE: &str = "SELECT parent, name, version, ephemeral, value, crc \
    FROM nodes WHERE parent = ?1 AND name = ?2";
pub(super) const SELECT_CHILDREN: &str = "SELECT parent, name, version, ephemeral, value, crc \
    FROM nodes WHERE parent = ?1 ORDER BY name";
pub(super) const SELECT_NAMES: &str = "SELECT name FROM nodes WHERE parent = ?1 ORDER BY name";
const SELECT_ALL: &str =
    "SELECT parent, name, version, ephemeral, value, crc FROM nodes ORDER BY parent, name";

/// One row of `nodes`.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) parent: String,
    pub(super) name: String,
    pub(super) version: i32,
    pub(super) ephemeral: bool,
    pub(super) value: Vec<u8>,
    pub(super) crc: i64,
}

/// The row of `totals`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    pub(super) nodes: i64,
    pub(super) sum: i64,
    pub(super) commits: i64,
}

/// An open and checked file.
#[derive(Debug)]
pub(super) struct Opened {
    pub(super) db: Connection,
    pub(super) totals: Totals,
    pub(super) mark: Mark,
}

/// The checksum of a row.
pub(super) fn row_crc(
    parent: &str,
    name: &str,
    version: i32,
    ephemeral: bool,
    value: &[u8],
) -> i64 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in [parent.as_bytes(), name.as_bytes()] {
        digest.update(&u32::try_from(part.len()).unwrap_or(u32::MAX).to_be_bytes());
        digest.update(part);
    }
    digest.update(&version.to_be_bytes());
    digest.update(&[u8::from(ephemeral)]);
    digest.update(value);
    i64::try_from(digest.finalize()).unwrap_or(-1)
}

impl Row {
    pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            parent: row.get(0)?,
            name: row.get(1)?,
            version: row.get(2)?,
            ephemeral: row.get::<_, i64>(3)? != 0,
            value: row.get(4)?,
            crc: row.get(5)?,
        })
    }

    fn is_good(&self) -> bool {
        let Self { parent, name, version, ephemeral, value, crc } = self;
        row_crc(parent, name, *version, *ephemeral, value) == *crc
    }

    /// The node, if the checksum is right.
    pub(super) fn verified(self, file: &Path) -> Result<Node> {
        if self.is_good() {
            return Ok(Node { value: Bytes::from(self.value), version: Version(self.version) });
        }
        let at = format!("{}/{}", self.parent.trim_end_matches('/'), self.name);
        Err(corrupt(file, &format!("the record at {at} has a wrong checksum")))
    }
}

pub(super) fn corrupt(file: &Path, why: &str) -> Error {
    Error::Corrupt(format!("metadata file {}: {why}", file.display()))
}

/// What an error means when nothing was being committed: nothing was applied.
pub(super) fn read_error(file: &Path, error: &rusqlite::Error) -> Error {
    let text = format!("metadata file {}: {error}", file.display());
    let Some(code) = error.sqlite_error_code() else {
        // Values of another type than we write, no row where one must be: not what was written.
        return Error::Corrupt(text);
    };
    match code {
        ErrorCode::DiskFull => Error::Full(text),
        // Our statements are fixed: one that does not fit the tables means that those are damaged.
        ErrorCode::DatabaseCorrupt
        | ErrorCode::NotADatabase
        | ErrorCode::Unknown
        | ErrorCode::SchemaChanged
        | ErrorCode::ConstraintViolation
        | ErrorCode::TypeMismatch => Error::Corrupt(text),
        _ => Error::Unavailable(text),
    }
}

/// What an error of COMMIT means. A full disk stops it before the commit frame is written; busy
/// comes before anything is written. All else may be on disk: also when SQLite forgets it, a crash may
/// bring it back.
pub(super) fn commit_error(file: &Path, error: &rusqlite::Error) -> Error {
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull | ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            read_error(file, error)
        }
        _ => Error::Uncertain(format!("metadata file {}: {error}", file.display())),
    }
}

/// Opens a connection with everything set that is not stored in the file.
pub(super) fn connect(file: &Path) -> Result<Connection> {
    let failed = |error| read_error(file, &error);
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let db = Connection::open_with_flags(file, flags).map_err(failed)?;
    db.busy_timeout(std::time::Duration::from_secs(2)).map_err(failed)?;
    db.set_prepared_statement_cache_capacity(32);
    for (name, value) in [
        ("synchronous", "FULL"),
        ("cell_size_check", "ON"),
        ("trusted_schema", "OFF"),
        ("temp_store", "MEMORY"),
        ("mmap_size", "0"),
        // The writer does it, after it has answered.
        ("wal_autocheckpoint", "0"),
        ("journal_size_limit", "16777216"),
    ] {
        db.pragma_update(None, name, value).map_err(failed)?;
    }
    Ok(db)
}

/// Opens and checks the file; makes it if there is none and never was one.
pub(super) fn open(file: &Path) -> Result<Opened> {
    let failed = |error| read_error(file, &error);
    let mark = Mark::open(file)?;
    let length = std::fs::metadata(file).map_or(0, |meta| meta.len());
    if length == 0 && mark.commits() > 0 {
        let why = format!(
            "it is missing or empty, but {} changes were committed to it; {}",
            mark.commits(),
            mark.advice()
        );
        return Err(corrupt(file, &why));
    }
    let db = connect(file)?;
    if is_new(file, &db)? {
        if mark.commits() > 0 {
            let why = format!("it has no tables any more; {}", mark.advice());
            return Err(corrupt(file, &why));
        }
        create(&db).map_err(failed)?;
    }
    let mode: String = db
        .pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0))
        .map_err(failed)?;
    if !mode.eq_ignore_ascii_case("wal") {
        let why = format!("metadata file {}: no write-ahead log, but {mode}", file.display());
        return Err(Error::Unavailable(why));
    }
    check_tables(file, &db)?;
    let totals = check_rows(file, &db)?;
    if totals.commits < mark.commits() {
        let why = format!(
            "it is older than it was: it has {} commits, {} were made; {}",
            totals.commits,
            mark.commits(),
            mark.advice()
        );
        return Err(corrupt(file, &why));
    }
    let totals = end_sessions(file, &db, totals)?;
    Ok(Opened { db, totals, mark })
}

/// Whether the file has no tables yet. An older format or another program's file is an error.
fn is_new(file: &Path, db: &Connection) -> Result<bool> {
    let failed = |error| read_error(file, &error);
    let number = |name| db.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = number("application_id").map_err(failed)?;
    let format = number("user_version").map_err(failed)?;
    let tables: i64 =
        db.query_row("SELECT count(*) FROM sqlite_schema", [], |row| row.get(0)).map_err(failed)?;
    match (application, format, tables) {
        (0, 0, 0) => Ok(true),
        (APPLICATION_ID, FORMAT, _) => Ok(false),
        (APPLICATION_ID, format, _) => {
            let why = format!("its format is {format}, this release reads {FORMAT}");
            Err(corrupt(file, &why))
        }
        _ => Err(corrupt(file, "it is not a metadata file of this program")),
    }
}

fn create(db: &Connection) -> rusqlite::Result<()> {
    let transaction = db.unchecked_transaction()?;
    transaction.pragma_update(None, "application_id", APPLICATION_ID)?;
    transaction.pragma_update(None, "user_version", FORMAT)?;
    transaction.execute(CREATE_NODES, [])?;
    transaction.execute(CREATE_TOTALS, [])?;
    transaction.execute("INSERT INTO totals VALUES (0, 0, 0, 0)", [])?;
    transaction.commit()
}

/// SQLite's own check of its pages, and that the tables are the ones we made.
fn check_tables(file: &Path, db: &Connection) -> Result<()> {
    let failed = |error| read_error(file, &error);
    let found: String =
        db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0)).map_err(failed)?;
    if found != "ok" {
        return Err(corrupt(file, &found));
    }
    let mut select = db.prepare("SELECT sql FROM sqlite_schema ORDER BY name").map_err(failed)?;
    let tables: Vec<String> = select
        .query_map([], |row| row.get(0))
        .and_then(Iterator::collect::<rusqlite::Result<_>>)
        .map_err(failed)?;
    if tables != [CREATE_NODES, CREATE_TOTALS] {
        return Err(corrupt(file, "its tables are not the ones that were made"));
    }
    Ok(())
}

/// Reads every row: checksums, count and sum.
fn check_rows(file: &Path, db: &Connection) -> Result<Totals> {
    let failed = |error| read_error(file, &error);
    let mut counted = Totals::default();
    let mut select = db.prepare(SELECT_ALL).map_err(failed)?;
    let mut rows = select.query([]).map_err(failed)?;
    while let Some(row) = rows.next().map_err(failed)? {
        let row = Row::read(row).map_err(failed)?;
        counted.nodes += 1;
        counted.sum = counted.sum.wrapping_add(row.crc);
        row.verified(file)?;
    }
    let stored = db
        .query_row("SELECT nodes, sum, commits FROM totals WHERE id = 0", [], |row| {
            Ok(Totals { nodes: row.get(0)?, sum: row.get(1)?, commits: row.get(2)? })
        })
        .optional()
        .map_err(failed)?
        .ok_or_else(|| corrupt(file, "its totals are missing"))?;
    if (stored.nodes, stored.sum) == (counted.nodes, counted.sum) && stored.commits >= 0 {
        return Ok(stored);
    }
    let why = format!("it has {} records, its totals say {}", counted.nodes, stored.nodes);
    Err(corrupt(file, &format!("records are missing or old: {why}")))
}

/// Deletes the ephemeral nodes of whoever had the file open before.
fn end_sessions(file: &Path, db: &Connection, mut totals: Totals) -> Result<Totals> {
    let failed = |error| read_error(file, &error);
    let (nodes, sum): (i64, i64) = db
        .query_row(
            "SELECT count(*), ifnull(sum(crc), 0) FROM nodes WHERE ephemeral <> 0",
            [],
            |row| Ok((row.get(0)?, row.get(1)?)),
        )
        .map_err(failed)?;
    if nodes == 0 {
        return Ok(totals);
    }
    totals.nodes -= nodes;
    totals.sum = totals.sum.wrapping_sub(sum);
    totals.commits += 1;
    let transaction = db.unchecked_transaction().map_err(failed)?;
    transaction.execute("DELETE FROM nodes WHERE ephemeral <> 0", []).map_err(failed)?;
    write_totals(&transaction, totals).map_err(failed)?;
    transaction.commit().map_err(|error| commit_error(file, &error))?;
    Ok(totals)
}

pub(super) fn write_totals(db: &Connection, totals: Totals) -> rusqlite::Result<()> {
    let mut update =
        db.prepare_cached("UPDATE totals SET nodes = ?1, sum = ?2, commits = ?3 WHERE id = 0")?;
    update.execute([totals.nodes, totals.sum, totals.commits]).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sqlite(code: std::ffi::c_int) -> rusqlite::Error {
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(code), None)
    }

    #[test]
    fn errors_say_whether_a_change_may_be_applied() {
        use rusqlite::ffi;
        let file = Path::new("m.sqlite");
        assert!(matches!(commit_error(file, &sqlite(ffi::SQLITE_FULL)), Error::Full(_)));
        assert!(matches!(commit_error(file, &sqlite(ffi::SQLITE_BUSY)), Error::Unavailable(_)));
        let fsync = sqlite(ffi::SQLITE_IOERR_FSYNC);
        assert!(matches!(commit_error(file, &fsync), Error::Uncertain(_)));
        assert!(matches!(read_error(file, &fsync), Error::Unavailable(_)));
        for code in [ffi::SQLITE_CORRUPT, ffi::SQLITE_NOTADB, ffi::SQLITE_ERROR] {
            let error = read_error(file, &sqlite(code));
            assert!(matches!(error, Error::Corrupt(text) if text.contains("m.sqlite")));
        }
    }
}
