//! The journal file after the present one, made ahead so that a roll waits for no allocation and no
//! folder: a producer that is not at the limit of the disk does not notice one.
//!
//! A file that has no header frame counts for nothing, whatever it held in a former life. So one that
//! is never used, because the process ended, needs no clearing up.

use std::sync::Arc;

use talos_storage::{BoxFuture, Result, Storage, Writer};

use crate::format::JournalId;

/// A file that has its name, or is about to get it, and no header yet.
pub(super) struct NextFile {
    number: u64,
    state: State,
}

enum State {
    Creating(BoxFuture<'static, Result<Box<dyn Writer>>>),
    Ready(Box<dyn Writer>),
}

impl std::fmt::Debug for NextFile {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "file {} made ahead", self.number)
    }
}

impl NextFile {
    /// Begins to make the file; whoever polls it drives that on.
    pub(super) fn start(storage: &Arc<dyn Storage>, id: JournalId) -> Self {
        let storage = Arc::clone(storage);
        let creating = Box::pin(async move { storage.create(id.path()).await });
        Self { number: id.number, state: State::Creating(creating) }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// It was made.
    pub(super) fn ready(self, writer: Box<dyn Writer>) -> Self {
        Self { state: State::Ready(writer), ..self }
    }

    /// Its writer, once it is made. Not cancel safe: the outcome of a cancelled call is unknown.
    pub(super) async fn finish(self) -> Result<Box<dyn Writer>> {
        match self.state {
            State::Ready(writer) => Ok(writer),
            State::Creating(creating) => creating.await,
        }
    }
}

/// The outcome of making the file; never when none is being made. Cancel safe.
pub(super) async fn created(next: Option<&mut NextFile>) -> Result<Box<dyn Writer>> {
    match next.map(|next| &mut next.state) {
        Some(State::Creating(creating)) => creating.await,
        Some(State::Ready(_)) | None => std::future::pending().await,
    }
}
