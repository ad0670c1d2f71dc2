//! The one thread of a data directory that writes journals. It takes all appends that wait, writes
//! them, syncs each file once, puts the notes, and answers in the order of the calls (group commit).
//!
//! Invariants: nothing is answered before the sync of its file returned; after a failed sync nothing is
//! answered with success ever again (E-H6); what reaches the thread after a seal is not written.

use std::collections::BTreeSet;
use std::fs::File;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use talos_common::{BrokerDir, Clock};
use tokio::sync::oneshot;

use super::disk::{Disk, is_full};
use super::place::links;
use crate::{AppendFuture, Error, ErrorKind, FilePath, Result, Writer};

/// The most commands that wait for the thread.
const QUEUE: usize = 1024;
/// A sync that takes longer is worth a word.
const SLOW_SYNC: Duration = Duration::from_secs(1);

/// One journal that is open for writing.
#[derive(Debug)]
pub(super) struct Journal {
    pub(super) path: FilePath,
    pub(super) dir: BrokerDir,
    pub(super) file: File,
    /// Why nothing more is written to it.
    pub(super) dead: OnceLock<Error>,
    /// Whether its file system counts the names of a file.
    counts_links: bool,
}

/// What a journal is looked for with: the operation of the error when its name is gone.
pub(super) const UNLINKED: &str = "look for";

impl Journal {
    /// A journal that has its name.
    pub(super) fn new(path: FilePath, dir: BrokerDir, file: File) -> Self {
        let counts_links = links(&file).is_some_and(|links| links > 0);
        Self { path, dir, file, dead: OnceLock::new(), counts_links }
    }

    /// Says that somebody else took the file's name away, when that is so.
    pub(super) fn unlinked(&self) -> Option<String> {
        // One that we deleted is dead before it loses its name.
        let gone = self.counts_links && links(&self.file) == Some(0) && self.dead.get().is_none();
        gone.then(|| format!("the journal {} was removed while it was written", self.path))
    }
}

/// Set by the first failed sync: the process must end.
pub(super) type Poison = Arc<OnceLock<Error>>;

#[derive(Debug)]
struct Append {
    journal: Arc<Journal>,
    at: u64,
    buffers: Vec<Bytes>,
    note: Option<Bytes>,
    reply: oneshot::Sender<Result<u64>>,
}

#[derive(Debug)]
enum Command {
    Append(Append),
    /// Answers once all earlier commands are done; from then on `seal` takes no more appends.
    Barrier {
        seal: Option<BrokerDir>,
        done: SyncSender<()>,
    },
}

/// The thread, from outside. Dropping it waits for what was called.
#[derive(Debug)]
pub(super) struct Flusher {
    commands: Option<SyncSender<Command>>,
    thread: Option<JoinHandle<()>>,
    poison: Poison,
    disk: Disk,
    /// Held as long as anything may still be written.
    _lock: File,
}

impl Flusher {
    pub(super) fn start(
        disk: Disk,
        clock: Clock,
        poison: Poison,
        lock: File,
    ) -> std::io::Result<Self> {
        let (commands, received) = sync_channel(QUEUE);
        let work = Work {
            disk: disk.clone(),
            clock,
            poison: Arc::clone(&poison),
            sealed: BTreeSet::new(),
        };
        let thread = std::thread::Builder::new()
            .name("talos-journal".into())
            .spawn(move || work.run(&received))?;
        Ok(Self { commands: Some(commands), thread: Some(thread), poison, disk, _lock: lock })
    }

    /// Waits until all appends called so far are answered; with `seal`, no later one in that directory
    /// is written. Blocks.
    pub(super) fn barrier(&self, seal: Option<BrokerDir>) -> Result<()> {
        let (done, passed) = sync_channel(1);
        let sent = self.commands.as_ref().map(|to| to.send(Command::Barrier { seal, done }));
        match (sent, passed.recv()) {
            (Some(Ok(())), Ok(())) => Ok(()),
            (Some(Ok(()) | Err(_)) | None, Ok(()) | Err(_)) => Err(self.ended()),
        }
    }

    fn ended(&self) -> Error {
        self.poison.get().cloned().unwrap_or_else(|| {
            Error::new(ErrorKind::Fatal, "append", "journal thread", "the thread has ended")
        })
    }

    fn append(&self, append: Append) -> Result<()> {
        let path = append.journal.path.clone();
        match self.commands.as_ref().map(|to| to.try_send(Command::Append(append))) {
            Some(Ok(())) => Ok(()),
            Some(Err(TrySendError::Full(_))) => {
                Err(Error::new(ErrorKind::Invalid, "append", path, "too many appends in flight"))
            }
            Some(Err(TrySendError::Disconnected(_))) | None => Err(self.ended()),
        }
    }
}

impl Drop for Flusher {
    fn drop(&mut self) {
        if let Some(faults) = &self.disk.faults {
            faults.set_sync_stall(false);
        }
        self.commands = None;
        if self.thread.take().map(JoinHandle::join).is_some_and(|ended| ended.is_err()) {
            tracing::error!("the journal thread panicked: a broken invariant");
        }
    }
}

struct Work {
    disk: Disk,
    clock: Clock,
    poison: Poison,
    sealed: BTreeSet<BrokerDir>,
}

impl Work {
    fn run(mut self, commands: &Receiver<Command>) {
        let mut appends = Vec::new();
        while let Ok(first) = commands.recv() {
            let mut next = Some(first);
            let mut barrier = None;
            // Bounded: not more than may wait at once.
            while let Some(command) = next {
                match command {
                    Command::Append(append) => appends.push(append),
                    Command::Barrier { seal, done } => {
                        barrier = Some((seal, done));
                        break;
                    }
                }
                next = if appends.len() < QUEUE { commands.try_recv().ok() } else { None };
            }
            self.flush(std::mem::take(&mut appends));
            if let Some((seal, done)) = barrier {
                self.sealed.extend(seal);
                // Who went away needs no answer.
                let _ = done.send(());
            }
        }
    }

    fn flush(&self, appends: Vec<Append>) {
        let outcomes: Vec<_> = appends.iter().map(|append| self.write(append)).collect();
        let mut journals: Vec<&Journal> = Vec::new();
        for (append, outcome) in appends.iter().zip(&outcomes) {
            if outcome.is_ok() && !journals.iter().any(|it| std::ptr::eq(*it, &*append.journal)) {
                journals.push(&append.journal);
            }
        }
        let synced = journals.iter().try_for_each(|journal| self.sync(journal));
        if synced.is_ok() {
            for journal in journals {
                let of_journal = appends.iter().zip(&outcomes).rev();
                let mut of_journal = of_journal.filter(|(append, outcome)| {
                    outcome.is_ok() && std::ptr::eq(&*append.journal, journal)
                });
                if let Some((append, Ok(end))) = of_journal.next() {
                    self.write_note(append, *end);
                }
            }
        }
        for (append, outcome) in appends.into_iter().zip(outcomes) {
            let outcome = outcome.and_then(|end| synced.clone().map(|()| end));
            // A dropped future wants no answer.
            let _ = append.reply.send(outcome);
        }
    }

    /// Writes one append; gives the position of its end.
    fn write(&self, append: &Append) -> Result<u64> {
        let journal = &append.journal;
        if let Some(error) = self.poison.get().or_else(|| journal.dead.get()) {
            return Err(error.clone());
        }
        let fail = |kind, detail: &dyn std::fmt::Display| {
            let error = Error::new(kind, "append", &journal.path, detail);
            Err(journal.dead.get_or_init(|| error).clone())
        };
        if self.sealed.contains(&journal.dir) {
            return fail(ErrorKind::Fenced, &"the directory is sealed");
        }
        match self.disk.write_at(&journal.file, &append.buffers, append.at) {
            Ok(()) => Ok(append.at + len(&append.buffers)),
            Err(failed) if failed.written == 0 && is_full(&failed.error) => {
                fail(ErrorKind::Full, &failed.error)
            }
            Err(failed) => fail(ErrorKind::Uncertain, &failed.error),
        }
    }

    fn sync(&self, journal: &Journal) -> Result<()> {
        let start = self.clock.now();
        let done = self.disk.sync_data(&journal.file);
        let took = self.clock.now().saturating_duration_since(start);
        if took > SLOW_SYNC {
            let took_ms = u64::try_from(took.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(took_ms, file = %journal.path, "slow fdatasync");
        }
        done.map_err(|error| poison(&self.poison, "fdatasync", &journal.path, &error))?;
        // Durable in a file that no path leads to is lost: looked at behind every sync, it costs
        // less than a microsecond.
        if let Some(why) = journal.unlinked() {
            self.poison.get_or_init(|| Error::new(ErrorKind::Fatal, UNLINKED, &journal.path, why));
        }
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    fn write_note(&self, append: &Append, end: u64) {
        let Some(note) = append.note.clone() else { return };
        if let Err(failed) = self.disk.write_at(&append.journal.file, &[note], end) {
            // The append is durable, so it succeeds; but this file takes no more.
            let detail = failed.error;
            let error =
                Error::new(ErrorKind::Uncertain, "write note", &append.journal.path, detail);
            append.journal.dead.get_or_init(|| error);
        }
    }
}

/// Notes that a sync failed: from now on the store fails as a whole.
pub(super) fn poison(
    poison: &Poison,
    operation: &'static str,
    subject: &dyn std::fmt::Display,
    error: &std::io::Error,
) -> Error {
    let detail = format!(
        "{error}; what this process wrote may not be on disk and cannot be checked: check the disk and \
         the kernel log, then start again"
    );
    poison.get_or_init(|| Error::new(ErrorKind::Fatal, operation, subject, detail)).clone()
}

fn len(buffers: &[Bytes]) -> u64 {
    buffers.iter().map(|buffer| buffer.len() as u64).sum()
}

/// The writer of a local journal.
#[derive(Debug)]
pub(super) struct LocalWriter {
    journal: Arc<Journal>,
    flusher: Arc<Flusher>,
    file_bytes: u64,
    position: u64,
}

impl LocalWriter {
    pub(super) fn new(journal: Arc<Journal>, flusher: Arc<Flusher>, file_bytes: u64) -> Self {
        Self { journal, flusher, file_bytes, position: 0 }
    }

    fn start(
        &mut self,
        buffers: Vec<Bytes>,
        note: Option<Bytes>,
    ) -> Result<oneshot::Receiver<Result<u64>>> {
        let at = self.position;
        let end = at.saturating_add(len(&buffers));
        let note_len = note.as_ref().map_or(0, Bytes::len) as u64;
        if end.saturating_add(note_len) > self.file_bytes {
            let detail = "more than the file can hold";
            return Err(Error::new(ErrorKind::Invalid, "append", &self.journal.path, detail));
        }
        let (reply, outcome) = oneshot::channel();
        let journal = Arc::clone(&self.journal);
        self.flusher.append(Append { journal, at, buffers, note, reply })?;
        self.position = end;
        Ok(outcome)
    }
}

impl Writer for LocalWriter {
    fn append(&mut self, buffers: Vec<Bytes>, note: Option<Bytes>) -> AppendFuture {
        let path = self.journal.path.clone();
        let started = self.start(buffers, note);
        Box::pin(async move {
            let ended =
                |_| Error::new(ErrorKind::Fatal, "append", path, "the journal thread has ended");
            started?.await.map_err(ended).flatten()
        })
    }

    fn position(&self) -> u64 {
        self.position
    }
}
