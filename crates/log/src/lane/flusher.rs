//! The task behind a lane: takes what was accepted, makes it durable, hands it on.
//!
//! Everything goes through the `todo` queue in the order in which it was accepted. A flush leaves it
//! for the file, and comes back to its front when the file failed; so order is kept whatever fails.

mod roll;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use talos_common::{BrokerDir, Clock, Env, LaneId, LeaderEpoch, TopicPartitionId};
use talos_storage::{AppendFuture, Error as StorageError, ErrorKind, Storage, Writer};
use tokio::sync::watch;
use tokio::time::Instant;

use super::buffer::{Chunk, Filled, Tied};
use super::next_file::{self, NextFile};
use super::{Lane, LaneEnd};
use crate::extent::{Extent, Place};
use crate::format::{
    self, FLUSH_FRAME_BYTES, FORMAT, FileHeader, FlushHeader, Frame, IndexEntry, JournalId,
    LanePosition, toggle_mask,
};
use crate::metrics::LogMetrics;
use crate::tail_cache::{Piece, TailCache};

/// An index frame is due after this many bytes: how far a damaged spot can blur the ends of
/// partitions, and how far a reader without a seal index has to look back.
const INDEX_INTERVAL_BYTES: u64 = 4 << 20;
/// An idle lane states its durable-to after this long.
const IDLE_STATEMENT: Duration = Duration::from_secs(1);
/// First and longest pause between attempts to get a new file.
const RETRY: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));
/// Kept free at the end of a file for its close frame.
const CLOSE_BYTES: u64 = 256;

/// What a flusher is made of.
#[derive(Debug)]
pub(crate) struct FlusherParts {
    pub(crate) env: Env,
    pub(crate) storage: Arc<dyn Storage>,
    pub(crate) cluster: [u8; 16],
    pub(crate) dir: BrokerDir,
    pub(crate) lane_id: LaneId,
    pub(crate) lane: Lane,
    pub(crate) cache: TailCache,
    pub(crate) metrics: LogMetrics,
    /// Told the number of the file that is being written.
    pub(crate) current_file: watch::Sender<u64>,
}

/// The task's state.
#[derive(Debug)]
pub(crate) struct Flusher {
    parts: FlusherParts,
    depth: usize,
    file_bytes: u64,
    file: JournalId,
    mask: u32,
    /// The file and its mask, shared by the extents of all batches in it.
    place: Option<Arc<Place>>,
    /// Whether the file holds any batch.
    has_batches: bool,
    /// `None` after a failed append, until the next file is there.
    writer: Option<Box<dyn Writer>>,
    /// Whether the file's header frame is still to be written.
    header_due: bool,
    /// The file after this one, made ahead so that a roll waits for no folder and no allocation.
    next: Option<NextFile>,
    /// Whether the file after the present one was begun ahead: that is tried once.
    asked_ahead: bool,
    /// The highest file number that may be in use.
    used: u64,
    todo: VecDeque<Flush>,
    /// Control frames that go before `todo`: they are what makes room.
    aside: Option<Flush>,
    in_flight: VecDeque<InFlight>,
    /// The store had no room for another file: when it is asked again, and the pause after that.
    retry: Option<(Instant, Duration)>,
    next_sequence: u64,
    /// Everything before this is durable (exclusive).
    durable: LanePosition,
    /// The newest durable-to that a durable flush states.
    stated: LanePosition,
    /// End of the newest durable flush that held frames.
    content_end: LanePosition,
    /// Where the stretch begins that the next index frame speaks of.
    index_since: LanePosition,
    touched: BTreeMap<TopicPartitionId, (LeaderEpoch, i64)>,
}

#[derive(Debug)]
struct Flush {
    /// Given at the first attempt and kept.
    sequence: Option<u64>,
    filled: Filled,
}

struct InFlight {
    sequence: u64,
    tied: Tied,
    /// Position of the first chunk.
    chunks_start: u64,
    states: LanePosition,
    has_content: bool,
    outcome: AppendFuture,
}

impl std::fmt::Debug for InFlight {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "flush {} at {}", self.sequence, self.chunks_start)
    }
}

enum Step {
    Flushed(Result<u64, StorageError>),
    Created(Result<Box<dyn Writer>, StorageError>),
    Work,
    Idle,
}

impl Flusher {
    /// Creates the lane's first file, durable and with its header, so that the lane exists before
    /// its broker epoch is registered (E-J13).
    pub(crate) async fn create(parts: FlusherParts) -> Result<Self, StorageError> {
        let file = JournalId { dir: parts.dir, lane: parts.lane_id, number: 0 };
        let traits = parts.storage.traits();
        let writer = parts.storage.create(file.path()).await?;
        let mut flusher = Self {
            depth: traits.appends_in_flight.max(1),
            file_bytes: traits.file_bytes,
            parts,
            file,
            mask: 0,
            place: None,
            has_batches: false,
            writer: Some(writer),
            header_due: true,
            next: None,
            asked_ahead: false,
            used: 0,
            todo: VecDeque::new(),
            aside: None,
            in_flight: VecDeque::new(),
            retry: None,
            next_sequence: 0,
            durable: LanePosition::default(),
            stated: LanePosition::default(),
            content_end: LanePosition::default(),
            index_since: LanePosition::default(),
            touched: BTreeMap::new(),
        };
        let end = flusher.begin_file().await?;
        flusher.durable.position = end;
        flusher.content_end = flusher.durable;
        flusher.index_since = flusher.durable;
        Ok(flusher)
    }

    /// Runs until the lane is stopped or ends.
    pub(crate) async fn run(mut self) -> LaneEnd {
        loop {
            if let Err(end) = self.fill_pipeline().await {
                return self.finish(end);
            }
            if self.is_done() {
                let end = LaneEnd::Stopped(self.durable);
                return self.finish(end);
            }
            let may_take = self.in_flight.len() < self.depth;
            let idle = self.in_flight.is_empty() && self.todo.is_empty();
            let may_state = idle && self.is_unstated();
            let retry = self.retry.map(|(at, _)| at);
            self.prepare_next();
            let head = self.in_flight.front_mut();
            let flushed = head.map(|flush| &mut flush.outcome);
            let step = tokio::select! {
                biased;
                outcome = resolve(flushed) => Step::Flushed(outcome),
                created = next_file::created(self.next.as_mut()) => Step::Created(created),
                () = self.parts.lane.work(), if may_take => Step::Work,
                () = until(&self.parts.env.clock, retry) => Step::Work,
                () = self.parts.env.clock.sleep(IDLE_STATEMENT), if may_state => Step::Idle,
            };
            match step {
                Step::Flushed(Ok(end)) => self.hand_on(end),
                Step::Flushed(Err(error)) => {
                    if let Err(end) = self.take_back(error) {
                        return self.finish(end);
                    }
                }
                Step::Created(Ok(writer)) => self.keep_next(writer),
                Step::Created(Err(error)) => {
                    if let Err(end) = self.drop_next(&error) {
                        return self.finish(end);
                    }
                }
                Step::Work => {}
                Step::Idle => self.push_statement(),
            }
        }
    }

    /// Starts flushes while the store has room for more.
    async fn fill_pipeline(&mut self) -> Result<(), LaneEnd> {
        if self.parts.lane.wants_roll() {
            // The next file's header states where this one ended: let it end first.
            if !self.in_flight.is_empty() {
                return Ok(());
            }
            let worth = self.has_batches && self.writer.is_some() && self.retry.is_none();
            if self.parts.lane.take_roll()
                && worth
                && let Some(error) = self.next_file().await?
            {
                tracing::debug!(%error, "no new journal file yet");
            }
        }
        let mut fresh = false;
        while self.in_flight.len() < self.depth {
            match self.next_flush() {
                Next::NoRoom if fresh => {
                    let size = self.file_bytes;
                    let why =
                        format!("what waits does not fit into a journal file of {size} bytes");
                    return Err(LaneEnd::Fatal(why));
                }
                Next::Flush(flush) => {
                    fresh = false;
                    let started = self.write(flush);
                    self.in_flight.extend(started);
                }
                Next::NoRoom if self.in_flight.is_empty() && self.is_time_for_a_file() => {
                    if let Some(error) = self.next_file().await? {
                        self.stall(&error);
                        return Ok(());
                    }
                    fresh = true;
                }
                Next::NoRoom | Next::Nothing => return Ok(()),
            }
        }
        Ok(())
    }

    /// What is to be written next. Control frames pass what waits for the next file, in the room that is
    /// kept for them: without them nothing could be deleted, and on a full disk no file be made. What is
    /// sent again is passed by nothing: it keeps its place in the order of flushes.
    fn next_flush(&mut self) -> Next {
        if self.aside.is_none() {
            let filled = self.parts.lane.take_aside();
            self.aside = filled.map(|filled| Flush { sequence: None, filled });
        }
        if self.todo.is_empty() {
            match self.parts.lane.take() {
                Some(filled) => self.todo.push_back(Flush { sequence: None, filled }),
                None if self.parts.lane.is_drained()
                    && self.aside.is_none()
                    && self.in_flight.is_empty()
                    && self.is_unstated() =>
                {
                    self.push_statement();
                }
                None => {}
            }
        }
        let again = self.todo.front().is_some_and(|flush| flush.sequence.is_some());
        if !again && let Some(aside) = self.aside.take() {
            if self.has_room(&aside.filled) {
                return Next::Flush(aside);
            }
            self.aside = Some(aside);
            return Next::NoRoom;
        }
        match self.todo.pop_front() {
            Some(flush) if self.has_room(&flush.filled) => Next::Flush(flush),
            Some(flush) => {
                self.todo.push_front(flush);
                Next::NoRoom
            }
            None => Next::Nothing,
        }
    }

    fn is_time_for_a_file(&self) -> bool {
        self.retry.is_none_or(|(at, _)| self.parts.env.clock.now() >= at)
    }

    fn is_done(&self) -> bool {
        let nothing_left = self.todo.is_empty() && self.in_flight.is_empty();
        nothing_left && self.aside.is_none() && self.parts.lane.is_drained() && !self.is_unstated()
    }

    fn is_unstated(&self) -> bool {
        self.content_end > self.stated || !self.touched.is_empty()
    }

    fn empty(&self) -> Filled {
        super::buffer::Buffer::default().take()
    }

    /// Queues a flush without frames: it states the durable-to.
    fn push_statement(&mut self) {
        let filled = self.empty();
        self.todo.push_back(Flush { sequence: None, filled });
    }

    /// Whether a flush fits into the present file. One with batches leaves the room of control frames.
    fn has_room(&self, filled: &Filled) -> bool {
        let Some(writer) = &self.writer else { return false };
        let kept = if filled.batches.is_empty() { 0 } else { control_room(self.file_bytes) };
        let index = 64 + 32 * self.touched.len();
        let need = (filled.bytes + index + FLUSH_FRAME_BYTES) as u64 + CLOSE_BYTES + kept;
        writer.position() + need <= self.file_bytes
    }

    /// Hands one flush to the file. `None` when there is no file (never after `has_room`).
    fn write(&mut self, flush: Flush) -> Option<InFlight> {
        let Flush { sequence, filled } = flush;
        let sequence = sequence.unwrap_or(self.next_sequence);
        self.next_sequence = self.next_sequence.max(sequence + 1);
        let has_content = filled.frame_count() > 0;

        let index = self.index_if_due(has_content);
        let mut head = BytesMut::new();
        let mut starts = Vec::with_capacity(3);
        if self.header_due {
            let (cluster, id, durable_to) = (self.parts.cluster, self.file, self.durable);
            let nonce = self.parts.env.rng.u64(..) as u32;
            let preallocated = self.parts.storage.traits().preallocated;
            let preallocated_bytes = if preallocated { self.file_bytes } else { 0 };
            let format = FORMAT;
            let header = FileHeader { format, cluster, id, nonce, preallocated_bytes, durable_to };
            format::put_frame(&mut head, &Frame::Header(header));
            toggle_mask(&mut head, 0, id.header_mask());
            self.mask = header.mask();
            self.header_due = false;
        }
        let mut index_bytes = BytesMut::new();
        if let Some(index) = &index {
            format::put_frame(&mut index_bytes, index);
        }
        starts.push(head.len());
        let flush_bytes = FLUSH_FRAME_BYTES + index_bytes.len() + filled.bytes;
        let frames = filled.frame_count() + usize::from(index.is_some());
        let header = FlushHeader {
            durable_to: self.durable,
            sequence,
            // Both are limited by the bytes of a file.
            flush_bytes: flush_bytes as u32,
            frames: frames as u32,
        };
        format::put_frame(&mut head, &Frame::Flush(header));
        if index.is_some() {
            starts.push(head.len());
            head.extend_from_slice(&index_bytes);
        }
        starts.iter().for_each(|start| toggle_mask(&mut head, *start, self.mask));

        for batch in &filled.batches {
            let end = (batch.frame.meta.leader_epoch, batch.frame.last_offset + 1);
            self.touched.insert(batch.frame.meta.partition, end);
        }
        self.has_batches |= !filled.batches.is_empty();
        let tied = filled.tie(self.mask);
        let writer = self.writer.as_mut()?;
        let chunks_start = writer.position() + head.len() as u64;
        let mut buffers = Vec::with_capacity(1 + tied.chunks.len());
        buffers.push(head.freeze());
        buffers.extend(tied.chunks.iter().map(|chunk| chunk.bytes.clone()));
        let bytes: usize = buffers.iter().map(Bytes::len).sum();
        let note = note(self.file, self.mask, writer.position() + bytes as u64);
        self.parts.metrics.flush_started(bytes, tied.batches.len());
        let outcome = writer.append(buffers, Some(note));
        let states = self.durable;
        Some(InFlight { sequence, tied, chunks_start, states, has_content, outcome })
    }

    /// The index frame of the stretch up to here, when one is due: it speaks of what was written
    /// *before* the flush that carries it.
    fn index_if_due(&mut self, has_content: bool) -> Option<Frame> {
        let here = LanePosition {
            file: self.file.number,
            position: self.writer.as_ref().map_or(0, |writer| writer.position()),
        };
        let far = here.file != self.index_since.file
            || here.position - self.index_since.position >= INDEX_INTERVAL_BYTES;
        if self.touched.is_empty() || (has_content && !far) {
            return None;
        }
        let since = std::mem::replace(&mut self.index_since, here);
        let entries = std::mem::take(&mut self.touched).into_iter();
        let entries = entries
            .map(|(partition, (leader_epoch, end_offset))| IndexEntry {
                partition,
                leader_epoch,
                end_offset,
            })
            .collect();
        Some(Frame::Index { since, entries })
    }

    /// The head of the pipeline is durable, up to `end`. Durable → visible → acknowledged: the
    /// position is moved first, then each partition publishes, and publishing answers last.
    fn hand_on(&mut self, end: u64) {
        let Some(flush) = self.in_flight.pop_front() else { return };
        self.durable = LanePosition { file: self.file.number, position: end };
        self.stated = self.stated.max(flush.states);
        if flush.has_content {
            self.content_end = self.durable;
        }
        self.parts.metrics.flush_finished();
        let mut pieces = Vec::with_capacity(flush.tied.chunks.len());
        let mut start = flush.chunks_start;
        let mut starts = Vec::with_capacity(flush.tied.chunks.len());
        for Chunk { bytes, slab } in flush.tied.chunks {
            starts.push(start);
            let length = bytes.len() as u64;
            let piece = Piece::new(start, bytes, slab);
            start += length;
            self.parts.cache.insert(Arc::clone(&piece));
            pieces.push(piece);
        }
        let place = self.place();
        let mut batches = flush.tied.batches.into_iter().peekable();
        let mut extents = Vec::new();
        while let Some(batch) = batches.next() {
            if let Some((piece, start)) = pieces.get(batch.chunk).zip(starts.get(batch.chunk)) {
                let (base_offset, last_offset) = (batch.frame.base_offset, batch.frame.last_offset);
                extents.push(Extent {
                    base_offset,
                    // A batch holds at most as many records as its header can count.
                    last_offset_delta: (last_offset - base_offset) as i32,
                    max_timestamp: batch.frame.max_timestamp,
                    length: batch.length,
                    position: start + batch.start as u64,
                    place: Arc::clone(&place),
                    piece: Arc::downgrade(piece),
                });
            }
            let partition = &batch.frame.partition;
            let more = batches.peek().is_some_and(|b| Arc::ptr_eq(&b.frame.partition, partition));
            if !more {
                partition.publish(extents.drain(..));
            }
        }
        for waiting in flush.tied.waiting {
            // Whoever asked may have left.
            let _ = waiting.send(());
        }
    }

    /// Where batches of the present file lie.
    fn place(&mut self) -> Arc<Place> {
        let place = Place::Journal { id: self.file, mask: self.mask };
        match &self.place {
            Some(known) if **known == place => Arc::clone(known),
            Some(_) | None => Arc::clone(self.place.insert(Arc::new(place))),
        }
    }

    /// The file failed: everything in flight goes back to the front of the queue, in its order, for
    /// the next file. Only a seal and a store that lost track end the lane.
    fn take_back(&mut self, error: StorageError) -> Result<(), LaneEnd> {
        self.writer = None;
        while let Some(flush) = self.in_flight.pop_back() {
            let (sequence, filled) = (Some(flush.sequence), flush.tied.untie());
            self.todo.push_front(Flush { sequence, filled });
        }
        self.roll_or_end(&error)?;
        tracing::warn!(file = %self.file.path(), %error, "journal file failed: rolling");
        Ok(())
    }

    /// Whether the lane goes on with another file after `error`, or ends.
    fn roll_or_end(&self, error: &StorageError) -> Result<(), LaneEnd> {
        match error.kind() {
            ErrorKind::Fenced | ErrorKind::NotFound => Err(LaneEnd::Fenced(error.to_string())),
            ErrorKind::Fatal | ErrorKind::Invalid => Err(LaneEnd::Fatal(error.to_string())),
            ErrorKind::Exists | ErrorKind::Unavailable | ErrorKind::Full | ErrorKind::Uncertain => {
                Ok(())
            }
        }
    }

    /// Tells everyone who still waits what became of their batches.
    fn finish(mut self, end: LaneEnd) -> LaneEnd {
        let why = match &end {
            LaneEnd::Stopped(_) => "the broker stopped",
            LaneEnd::Fenced(why) | LaneEnd::Fatal(why) => why.as_str(),
        };
        let rest = self.parts.lane.end(why);
        let in_flight = self.in_flight.drain(..).map(|flush| flush.tied.batches);
        let todo = self.todo.drain(..).map(|flush| flush.filled.batches);
        for batch in in_flight.chain(todo).chain(rest.map(|rest| rest.batches)).flatten() {
            batch.frame.partition.end(why);
        }
        end
    }
}

/// What a flusher can do next.
enum Next {
    Flush(Flush),
    /// What waits needs another file.
    NoRoom,
    Nothing,
}

/// Bytes at the end of a file that only control frames may take.
pub(crate) fn control_room(file_bytes: u64) -> u64 {
    file_bytes / 16
}

/// The head's outcome; never when nothing is in flight.
async fn resolve(head: Option<&mut AppendFuture>) -> Result<u64, StorageError> {
    match head {
        Some(outcome) => outcome.await,
        None => std::future::pending().await,
    }
}

/// Until an instant; for ever when there is none.
async fn until(clock: &Clock, at: Option<Instant>) {
    match at {
        Some(at) => clock.sleep_until(at).await,
        None => std::future::pending().await,
    }
}

/// The note behind a flush that ends at `position` (E-J15).
fn note(file: JournalId, mask: u32, position: u64) -> Bytes {
    let mut bytes = BytesMut::new();
    let durable_to = LanePosition { file: file.number, position };
    format::put_frame(&mut bytes, &Frame::Note { durable_to });
    toggle_mask(&mut bytes, 0, mask);
    bytes.freeze()
}
