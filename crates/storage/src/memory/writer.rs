//! The writer of a journal on a memory disk.

use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::sync::oneshot;

use super::disk::{Disk, Fate, InFlight, State};
use super::faults::Fault;
use crate::{AppendFuture, Error, ErrorKind, FilePath, Result, Writer};

#[derive(Debug)]
pub(super) struct MemoryWriter {
    disk: Arc<Disk>,
    lane: u64,
    path: FilePath,
    position: u64,
}

/// An append that is under way: where its outcome will come from, and not before when.
struct Started {
    reply: oneshot::Receiver<Result<u64>>,
    due: tokio::time::Instant,
}

impl MemoryWriter {
    pub(super) fn new(disk: Arc<Disk>, lane: u64, path: FilePath) -> Self {
        Self { disk, lane, path, position: 0 }
    }

    fn invalid(&self, detail: &str) -> Error {
        Error::new(ErrorKind::Invalid, "append", &self.path, detail)
    }

    fn start(&mut self, bytes: Bytes, note: Option<Bytes>) -> Result<Started> {
        let disk = Arc::clone(&self.disk);
        let end = self.position.saturating_add(bytes.len() as u64);
        let note_len = note.as_ref().map_or(0, Bytes::len) as u64;
        if end.saturating_add(note_len) > disk.options.file_bytes {
            return Err(self.invalid("more than the file can hold"));
        }
        disk.with(|state, _| {
            let lost = || Error::not_found("append", &self.path);
            let id = state.next_id();
            let lane = state.lanes.get(&self.lane).ok_or_else(lost)?;
            state.check(lane.process)?;
            if let Some(dead) = &lane.dead {
                return Err(dead.clone());
            }
            if lane.queue.len() >= disk.options.appends_in_flight {
                return Err(self.invalid("too many appends in flight"));
            }
            let (reply, outcome) = oneshot::channel();
            let append = plan(state, &disk, self.lane, id, self.position, bytes, note, reply);
            let due = append.durable_at;
            let lane = state.lanes.get_mut(&self.lane).ok_or_else(lost)?;
            let due = lane.queue.iter().map(|other| other.durable_at).fold(due, Ord::max);
            lane.queue.push_back(append);
            self.position = end;
            Ok(Started { reply: outcome, due })
        })
    }
}

/// Settles when the append is written and durable, and whether it fails.
#[allow(clippy::too_many_arguments, reason = "the fields of one struct")]
fn plan(
    state: &State,
    disk: &Disk,
    lane: u64,
    id: u64,
    at: u64,
    bytes: Bytes,
    note: Option<Bytes>,
    reply: oneshot::Sender<Result<u64>>,
) -> InFlight {
    let now = disk.clock.now();
    let slow = disk.faults.roll(Fault::SlowCall, &disk.rng);
    let sync = disk.options.append_latency.draw(&disk.rng) * if slow { 100 } else { 1 };
    let before = disk.options.append_latency.draw(&disk.rng) / 4;
    let (mut written_at, mut durable_at) = (now + before, now + before + sync);
    if disk.options.layout == super::Layout::Exact {
        // Without preallocation a file has no holes.
        let earlier = state.lanes.get(&lane).and_then(|lane| lane.queue.back());
        if let Some(earlier) = earlier {
            written_at = written_at.max(earlier.written_at);
            durable_at = durable_at.max(earlier.durable_at);
        }
    }
    InFlight {
        id,
        at,
        bytes,
        note,
        fate: fate(disk),
        written_at,
        durable_at,
        written: false,
        ready: false,
        held_up: false,
        reply,
    }
}

fn fate(disk: &Disk) -> Fate {
    let fails = |kind, writes, syncs| Fate { writes, syncs, fails: Some(kind) };
    if disk.faults.roll(Fault::AppendFull, &disk.rng) {
        fails(ErrorKind::Full, false, false)
    } else if disk.faults.roll(Fault::SyncFails, &disk.rng) {
        fails(ErrorKind::Fatal, true, false)
    } else if disk.faults.roll(Fault::AppendUncertain, &disk.rng) {
        let how_far = disk.rng.u64(0..3);
        fails(ErrorKind::Uncertain, how_far > 0, how_far > 1)
    } else {
        Fate { writes: true, syncs: true, fails: None }
    }
}

impl Writer for MemoryWriter {
    fn append(&mut self, buffers: Vec<Bytes>, note: Option<Bytes>) -> AppendFuture {
        let bytes = match <[Bytes; 1]>::try_from(buffers) {
            Ok([single]) => single,
            Err(buffers) => {
                let mut joined = BytesMut::with_capacity(buffers.iter().map(Bytes::len).sum());
                buffers.iter().for_each(|buffer| joined.extend_from_slice(buffer));
                joined.freeze()
            }
        };
        match self.start(bytes, note) {
            Err(error) => Box::pin(std::future::ready(Err(error))),
            Ok(started) => Box::pin(finish(Arc::clone(&self.disk), self.path.clone(), started)),
        }
    }

    fn position(&self) -> u64 {
        self.position
    }
}

/// Looks at the disk when the append is due and whenever something else changed it.
async fn finish(disk: Arc<Disk>, path: FilePath, started: Started) -> Result<u64> {
    let Started { mut reply, due } = started;
    let mut changed = disk.faults.watch();
    loop {
        disk.with(|_, _| ());
        let late = disk.clock.now() >= due;
        let timer = async {
            if late {
                std::future::pending::<()>().await;
            }
            disk.clock.sleep_until(due).await;
        };
        tokio::select! {
            biased;
            outcome = &mut reply => {
                let ended = |_| Error::new(ErrorKind::Uncertain, "append", path, "the disk is gone");
                return outcome.map_err(ended).flatten();
            }
            // The sender lives as long as the disk.
            _ = changed.changed() => {}
            () = timer => {}
        }
    }
}

impl Drop for MemoryWriter {
    fn drop(&mut self) {
        self.disk.with(|state, _| {
            if let Some(lane) = state.lanes.get_mut(&self.lane) {
                lane.dropped = true;
            }
        });
    }
}

/// A range of latencies, both ends inclusive, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Latency {
    /// The least.
    pub min_us: u64,
    /// The most; not below the least.
    pub max_us: u64,
}

impl Latency {
    /// No time at all.
    pub const NONE: Self = Self { min_us: 0, max_us: 0 };

    pub(super) fn draw(self, rng: &talos_common::Rng) -> Duration {
        Duration::from_micros(rng.u64(self.min_us..=self.max_us.max(self.min_us)))
    }
}
