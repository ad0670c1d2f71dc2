//! Append-only files in broker directories that can be sealed: the one seam between Talos and a
//! store. Six calls, at the level where fencing has a meaning; no offset, topic or wire format is
//! known here.
//!
//! Three facts carry the safety of everything above (P1, P2):
//! 1. a file has one writer, of one broker epoch, and is never reopened for writing;
//! 2. an append that resolved is on stable storage;
//! 3. once [`Storage::seal`] has answered, nothing in that directory becomes durable any more.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;

use bytes::Bytes;
use talos_common::BrokerDir;

#[doc(hidden)]
pub mod conformance;
mod error;
pub mod local;
pub mod memory;
pub mod metered;
mod path;

pub use error::{Error, ErrorKind, Result};
pub use local::{Failure as LocalFailure, LocalOptions, LocalReader, LocalStorage};
pub use memory::{MemoryOptions, MemoryStorage};
pub use metered::{Metered, StorageMetrics};
pub use path::{FilePath, Prefix};

/// The most files that one page of [`Storage::list`] holds.
pub const LIST_PAGE: usize = 1_000;

/// The most bytes that one [`Storage::read`] may ask for; more is `Invalid`.
pub const READ_LIMIT_BYTES: u64 = 64 << 20;

/// A boxed future, so that [`Storage`] can be a trait object.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// One store. Calls may run side by side; each may be cancelled by dropping its future, after which
/// its outcome is unknown.
pub trait Storage: Send + Sync + std::fmt::Debug {
    /// Makes the empty broker directory `dir`, once. `Exists` when it is there already or ever was:
    /// a directory is never made again (E-H4). An `Uncertain` outcome means: take another epoch.
    /// `Full`: no room for a journal in it, nothing was made.
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>>;

    /// Creates the journal `path` and gives its writer. Exclusive: `Exists` when it is there. In a
    /// sealed directory this, or the first append, fails with `Fenced`. `Full`: no room, nothing was
    /// created. `NotFound`: the directory was never made.
    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>>;

    /// The bytes of `path` in `range` (end exclusive), by any process, also while it is written.
    /// Shorter only where the file ends; `Invalid` for a backward range or one of more than
    /// [`READ_LIMIT_BYTES`]. What an open or preallocated file holds above the position
    /// that its writer states as durable is not a fact (E-H5); checksums are the caller's.
    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>>;

    /// Closes `dir` for ever and lists its files. Idempotent, also when an earlier call was cut off,
    /// and may race with appends in flight: each is in the lengths or never durable. A length is an
    /// upper bound where the store preallocates. `NotFound` when the directory was never made or is
    /// gone; that is *not* «sealed and empty» (E-H4).
    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>>;

    /// Files below `prefix` in name order, those after `after` (exclusive) only, at most one page
    /// ([`LIST_PAGE`]). Not a snapshot: for sealed directories and garbage only (E-J1). An empty page is the
    /// end; a missing directory has no files.
    fn list(&self, prefix: Prefix, after: Option<FilePath>)
    -> BoxFuture<'_, Result<Vec<FileInfo>>>;

    /// Removes `path`; fine when it is missing already. A writer of it gets `NotFound`. May be undone by
    /// a power loss: a file that is back is garbage, not news.
    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>>;

    /// Removes the sealed directory `dir` and all its files; its seal outlives it (E-O3). `Invalid`
    /// when it is not sealed; fine when it is gone already; `NotFound` when it was never made.
    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>>;

    /// Writes the whole immutable file `path`, durable when this resolves. Exclusive: `Exists` when
    /// there is one. After any other error the name must not be used again: each attempt takes a new
    /// one. Nobody sees a part of it. `Full`: no room, not applied. A file of a broker directory:
    /// `NotFound` when the directory was never made, `Fenced` when it is sealed. `Invalid` for a journal.
    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>>;

    /// What the layer above may expect of this store.
    fn traits(&self) -> Traits;
}

/// The writer of one journal file. Dropping it leaves the file as it is; appends in flight go on.
pub trait Writer: Send + std::fmt::Debug {
    /// Appends `buffers` as one piece. Its place is fixed by the call; the future gives the position
    /// of its end (exclusive) once all of it is durable. Futures resolve in the order of the calls.
    /// The first failure fails all later ones and kills the writer: `Fenced` when the directory is
    /// sealed, `Full` when nothing of it was written, `Uncertain` when it may become durable later,
    /// `Fatal` when the store can no longer tell what is durable (a failed `fdatasync`). Dropping the
    /// future does not take the append back. `Invalid`: nothing was written and the writer lives; the
    /// bytes and the note reach beyond [`Traits::file_bytes`], or far too many appends are in flight.
    ///
    /// `note` is put behind the appended bytes before the future resolves, without being part of the
    /// file: the next append overwrites it. It survives the end of the process but maybe not of the
    /// machine (E-J15). Stores for which that means nothing drop it.
    fn append(&mut self, buffers: Vec<Bytes>, note: Option<Bytes>) -> AppendFuture;

    /// Where the next append goes: the bytes of all appends called so far.
    fn position(&self) -> u64;
}

/// The outcome of one append; resolves whether or not it is polled in order.
pub type AppendFuture = BoxFuture<'static, Result<u64>>;

/// One file as a store lists it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileInfo {
    /// Its name.
    pub path: FilePath,
    /// Its length in bytes; an upper bound where the store preallocates.
    pub len: u64,
    /// When it was last written by the *store's* clock, in milliseconds since the Unix epoch.
    pub modified_ms: i64,
}

/// Properties of a store that the log adapts to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traits {
    /// How many appends of one writer may usefully be in flight.
    pub appends_in_flight: usize,
    /// The most bytes one journal file can hold.
    pub file_bytes: u64,
    /// Whether a journal file has its full length from the moment it is created, so that a shorter
    /// one was cut.
    pub preallocated: bool,
    /// What an acknowledged append survives, for people: `fdatasync`, `hsync`, ...
    pub durability: &'static str,
}
