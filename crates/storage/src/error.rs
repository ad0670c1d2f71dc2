//! What a store's calls can fail with. The kind says what the caller may conclude.

use crate::FilePath;

/// Shorthand for this crate.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What a failure means for the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The directory is sealed: this broker epoch lost its place. A normal event.
    Fenced,
    /// Not applied; the same call may succeed later.
    Unavailable,
    /// No room; not applied; the same call may succeed once there is room.
    Full,
    /// May or may not be applied, now or later.
    Uncertain,
    /// The call itself is wrong; not applied.
    Invalid,
    /// The file or directory is not there.
    NotFound,
    /// The file or directory is there already; not applied.
    Exists,
    /// The store can no longer tell what is durable: the process must end (E-H6).
    Fatal,
}

/// A failed call: which one, on what, and why.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{operation} {subject}: {detail}")]
pub struct Error {
    kind: ErrorKind,
    operation: &'static str,
    subject: String,
    detail: String,
}

impl Error {
    /// An error of `operation` on `subject` (a file, directory or server).
    pub fn new(
        kind: ErrorKind,
        operation: &'static str,
        subject: impl std::fmt::Display,
        detail: impl std::fmt::Display,
    ) -> Self {
        Self { kind, operation, subject: subject.to_string(), detail: detail.to_string() }
    }

    /// [`ErrorKind::NotFound`] for `path`.
    pub fn not_found(operation: &'static str, path: &FilePath) -> Self {
        Self::new(ErrorKind::NotFound, operation, path, "no such file")
    }

    /// The name of the call that failed.
    pub(crate) fn operation(&self) -> &'static str {
        self.operation
    }

    /// What the caller may conclude.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}
