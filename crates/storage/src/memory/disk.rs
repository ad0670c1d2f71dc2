//! The disk that all handles of a memory store share. Nothing runs by itself: each append carries the
//! instants at which it is written and durable, and whoever next looks at the disk first brings it up to
//! now ([`Disk::with`]). So an append goes on whether or not its future is polled, and a run on virtual
//! time replays exactly.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use talos_common::{BrokerDir, Clock, Rng};
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::faults::{Fault, Faults};
use super::file::File;
use super::{Crash, Layout, MemoryOptions};
use crate::{Error, ErrorKind, FilePath, Result};

/// How many deleted journals' contents are kept for new ones.
const SPARES: usize = 4;

#[derive(Debug)]
pub(super) struct Disk {
    pub(super) options: MemoryOptions,
    pub(super) faults: Faults,
    pub(super) clock: Clock,
    pub(super) rng: Rng,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) dirs: BTreeMap<BrokerDir, Dir>,
    pub(super) files: BTreeMap<FilePath, File>,
    pub(super) lanes: BTreeMap<u64, Lane>,
    /// All processes there ever were.
    pub(super) processes: Vec<u64>,
    /// Processes that ended, and what their calls get.
    pub(super) ended: BTreeMap<u64, Error>,
    /// How many changes took effect so far.
    pub(super) steps: u64,
    /// At which step a crash is to happen, whose and how.
    pub(super) planned: Option<(u64, u64, Crash)>,
    spares: Vec<Vec<u8>>,
    last_id: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dir {
    Open,
    Sealed,
    /// Sealed and deleted.
    Gone,
}

/// One writer and its appends in flight.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) process: u64,
    pub(super) path: FilePath,
    pub(super) dir: BrokerDir,
    pub(super) file: u64,
    pub(super) dead: Option<Error>,
    pub(super) queue: VecDeque<InFlight>,
    /// Its writer was dropped.
    pub(super) dropped: bool,
}

#[derive(Debug)]
pub(super) struct InFlight {
    pub(super) id: u64,
    pub(super) at: u64,
    pub(super) bytes: Bytes,
    pub(super) note: Option<Bytes>,
    pub(super) fate: Fate,
    pub(super) written_at: Instant,
    pub(super) durable_at: Instant,
    pub(super) written: bool,
    /// Done, and only waits for its turn to resolve.
    pub(super) ready: bool,
    pub(super) held_up: bool,
    pub(super) reply: oneshot::Sender<Result<u64>>,
}

impl InFlight {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }
}

/// What is to become of an append, settled when it is called.
#[derive(Clone, Debug)]
pub(super) struct Fate {
    pub(super) writes: bool,
    pub(super) syncs: bool,
    pub(super) fails: Option<ErrorKind>,
}

/// Answers to give once the lock is free.
#[derive(Debug, Default)]
pub(super) struct Replies(Vec<(oneshot::Sender<Result<u64>>, Result<u64>)>);

impl Replies {
    fn push(&mut self, to: oneshot::Sender<Result<u64>>, answer: Result<u64>) {
        self.0.push((to, answer));
    }

    /// The process ended before it could hear of these.
    fn lose(&mut self, error: &Error) {
        self.0.iter_mut().for_each(|(_, answer)| *answer = Err(error.clone()));
    }

    fn send(self) {
        for (to, answer) in self.0 {
            // A dropped future wants no answer.
            let _ = to.send(answer);
        }
    }
}

impl Disk {
    pub(super) fn new(options: MemoryOptions, clock: Clock, rng: Rng) -> Self {
        Self { options, faults: Faults::new(), clock, rng, state: Mutex::default() }
    }

    /// Brings the disk up to now and works on it.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut State, &mut Replies) -> T) -> T {
        let mut replies = Replies::default();
        let result = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.settle(self, &mut replies);
            state.crash_as_planned(self, &mut replies);
            let result = work(&mut state, &mut replies);
            state.crash_as_planned(self, &mut replies);
            result
        };
        replies.send();
        result
    }
}

impl State {
    pub(super) fn next_id(&mut self) -> u64 {
        self.last_id += 1;
        self.last_id
    }

    pub(super) fn start_process(&mut self) -> u64 {
        let process = self.next_id();
        self.processes.push(process);
        process
    }

    /// Fails when the handle's process has ended.
    pub(super) fn check(&self, process: u64) -> Result<()> {
        self.ended.get(&process).map_or(Ok(()), |error| Err(error.clone()))
    }

    pub(super) fn make_file(&mut self, disk: &Disk) -> File {
        let reserved =
            if disk.options.layout == Layout::Exact { 0 } else { disk.options.file_bytes };
        let image = match disk.options.layout {
            Layout::Recycled => self.spares.pop().unwrap_or_default(),
            Layout::Exact | Layout::Preallocated => Vec::new(),
        };
        let id = self.next_id();
        File::new(id, reserved, image, disk.clock.wall_ms())
    }

    pub(super) fn remove_file(&mut self, path: &FilePath, disk: &Disk) -> bool {
        let Some(file) = self.files.remove(path) else { return false };
        self.steps += 1;
        let journal = matches!(path, FilePath::Journal { .. });
        if journal && disk.options.layout == Layout::Recycled && self.spares.len() < SPARES {
            let mut image = file.content();
            image.truncate(usize::try_from(disk.options.file_bytes).unwrap_or(usize::MAX));
            self.spares.push(image);
        }
        true
    }

    /// Applies all that was due by now.
    fn settle(&mut self, disk: &Disk, replies: &mut Replies) {
        let now = disk.clock.now();
        let mut poisoned = Vec::new();
        for lane in self.lanes.values_mut() {
            match self.files.get_mut(&lane.path).filter(|file| file.id == lane.file) {
                Some(file) => {
                    self.steps += lane.advance(file, now, disk);
                    lane.resolve(file, disk, replies, &mut poisoned);
                }
                None => {
                    let error = Error::not_found("append", &lane.path);
                    lane.die(error, None, disk, replies);
                }
            }
        }
        for (process, error) in poisoned {
            self.end_process(process, &error, disk, replies);
        }
        self.lanes.retain(|_, lane| !(lane.dropped && lane.queue.is_empty()));
    }

    /// Ends a process: what it had not yet written is never written.
    pub(super) fn end_process(
        &mut self,
        process: u64,
        error: &Error,
        disk: &Disk,
        replies: &mut Replies,
    ) {
        self.ended.entry(process).or_insert_with(|| error.clone());
        for lane in self.lanes.values_mut().filter(|lane| lane.process == process) {
            let file = self.files.get_mut(&lane.path).filter(|file| file.id == lane.file);
            lane.die(error.clone(), file, disk, replies);
        }
    }

    pub(super) fn crash(&mut self, process: u64, how: Crash, disk: &Disk, replies: &mut Replies) {
        let error = |detail| Error::new(ErrorKind::Uncertain, "any call", "memory disk", detail);
        match how {
            Crash::Kill => {
                self.end_process(process, &error("this process was killed"), disk, replies);
            }
            Crash::PowerLoss => {
                for process in self.processes.clone() {
                    self.end_process(process, &error("the power failed"), disk, replies);
                }
                let in_order = disk.options.layout == Layout::Exact;
                for file in self.files.values_mut() {
                    file.lose_power(&disk.rng, &disk.faults, in_order);
                }
            }
        }
    }

    /// Crashes if the planned step was reached. Who waited for an answer at that instant gets none.
    fn crash_as_planned(&mut self, disk: &Disk, replies: &mut Replies) {
        if let Some((step, process, how)) = self.planned
            && self.steps >= step
        {
            self.planned = None;
            self.crash(process, how, disk, replies);
            if let Some(error) = self.ended.get(&process) {
                replies.lose(error);
            }
            disk.faults.wake();
        }
    }

    /// Closes the directory: of each writer's appends in flight a first part is kept, of which a first
    /// part is still acknowledged; the rest is never durable.
    pub(super) fn seal(&mut self, dir: BrokerDir, disk: &Disk, replies: &mut Replies) {
        self.dirs.insert(dir, Dir::Sealed);
        self.steps += 1;
        let exact = disk.options.layout == Layout::Exact;
        for lane in self.lanes.values_mut().filter(|lane| lane.dir == dir) {
            let file = self.files.get_mut(&lane.path).filter(|file| file.id == lane.file);
            let Some(file) = file else { continue };
            let sound = lane.queue.iter().take_while(|append| append.fate.fails.is_none()).count();
            let kept = disk.rng.usize(0..=sound);
            let acknowledged = disk.rng.usize(0..=kept);
            for (number, mut append) in std::mem::take(&mut lane.queue).into_iter().enumerate() {
                if number < kept {
                    append.write(file);
                    file.sync(append.id);
                } else {
                    let keep = append.written && !exact && disk.rng.chance(500_000);
                    file.abandon(append.id, keep);
                }
                let end = append.end();
                let answer = if number < acknowledged { Ok(end) } else { Err(fenced(&lane.path)) };
                replies.push(append.reply, answer);
            }
            lane.dead = Some(fenced(&lane.path));
        }
        self.lanes.retain(|_, lane| !(lane.dropped && lane.queue.is_empty()));
    }
}

pub(super) fn fenced(path: &FilePath) -> Error {
    Error::new(ErrorKind::Fenced, "append", path, "the directory is sealed")
}

impl InFlight {
    fn write(&mut self, file: &mut File) {
        if !self.written && self.fate.writes {
            file.write(self.id, self.at, &self.bytes);
        }
        self.written = true;
    }
}

impl Lane {
    /// Writes and syncs what is due; gives how many appends became durable.
    fn advance(&mut self, file: &mut File, now: Instant, disk: &Disk) -> u64 {
        let mut durable = 0;
        let stalled = disk.faults.stalled();
        let exact = disk.options.layout == Layout::Exact;
        let mut hole = false;
        for append in &mut self.queue {
            // Nothing goes behind what will not be there.
            if hole {
                break;
            }
            hole = exact && !append.fate.syncs;
            if now >= append.written_at && !append.written {
                append.write(file);
                file.modified_ms = disk.clock.wall_ms();
            }
            if now < append.durable_at || append.ready {
                continue;
            }
            if stalled {
                append.held_up = true;
                continue;
            }
            append.ready = true;
            if append.held_up {
                disk.faults.note(Fault::Stalled);
            }
            if append.fate.syncs && disk.faults.lying() {
                disk.faults.note(Fault::Lie);
                file.abandon(append.id, true);
            } else if append.fate.syncs {
                file.sync(append.id);
                durable += 1;
            }
        }
        durable
    }

    /// Resolves in order what is ready.
    fn resolve(
        &mut self,
        file: &mut File,
        disk: &Disk,
        replies: &mut Replies,
        poisoned: &mut Vec<(u64, Error)>,
    ) {
        while let Some(append) = self.queue.pop_front_if(|append| append.ready) {
            let end = append.end();
            let Some(kind) = append.fate.fails else {
                // What is written already must not be hidden by an older append's note.
                let newest = !self.queue.iter().any(|append| append.written);
                if let Some(note) = append.note.filter(|_| newest && file.reserved > 0) {
                    file.write_note(end, note);
                }
                replies.push(append.reply, Ok(end));
                continue;
            };
            file.abandon(append.id, true);
            let error = Error::new(kind, "append", &self.path, "injected fault");
            replies.push(append.reply, Err(error.clone()));
            if kind == ErrorKind::Fatal {
                poisoned.push((self.process, error.clone()));
            }
            self.die(error, Some(file), disk, replies);
            return;
        }
    }

    /// Fails all that is in flight and all that comes later.
    fn die(
        &mut self,
        error: Error,
        mut file: Option<&mut File>,
        disk: &Disk,
        replies: &mut Replies,
    ) {
        for append in std::mem::take(&mut self.queue) {
            if let Some(file) = file.as_deref_mut() {
                // The write at which the process is killed may be half done.
                if !append.written && append.fate.writes && disk.rng.chance(250_000) {
                    let part = append.bytes.slice(..disk.rng.usize(0..=append.bytes.len()));
                    disk.faults.note(Fault::TornWrite);
                    file.write(append.id, append.at, &part);
                }
                file.abandon(append.id, true);
            }
            replies.push(append.reply, Err(error.clone()));
        }
        self.dead.get_or_insert(error);
    }
}
