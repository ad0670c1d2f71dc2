//! A lane: one open journal that all partitions write into, and the group commit in front of it.
//!
//! [`Lane::push`] fixes a frame's place in the buffer that is being filled (*accepted*). The lane's
//! task takes the whole buffer as one flush as soon as the store has room for another append, and
//! when the append resolved (*durable*) hands each partition its new extents, which moves the
//! watermark (*visible*) and then completes the producers (*acknowledged*). See [`flusher`].
//!
//! Nothing is dropped on the way: a flush whose file failed is written again, byte for byte, into
//! the next file (E-H9). Only a sealed directory ends a lane with flushes left.

mod buffer;
mod flusher;
mod next_file;

use std::sync::{Arc, Mutex, PoisonError};

use talos_common::ByteBudget;
use tokio::sync::{Notify, oneshot};

use crate::format::{Frame, LanePosition};
use crate::limits::{Backlog, Limits};

pub(crate) use buffer::{BatchFrame, Filled};
pub(crate) use flusher::{Flusher, FlusherParts};

/// Why a lane takes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Refusal {
    /// The store has no room, or does not answer: nothing was accepted, try again later.
    #[error("the journal can not grow: {0}")]
    Stalled(String),
    /// The broker stops or the lane ended: this broker epoch accepts nothing more.
    #[error("the journal is closed: {0}")]
    Closed(String),
}

/// What ended a lane.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneEnd {
    /// Stopped on request; everything accepted is durable up to here.
    Stopped(LanePosition),
    /// The directory was sealed by another broker: a normal event.
    Fenced(String),
    /// The store can not tell what is durable: the process must end (E-H6).
    Fatal(String),
}

/// The front of a lane. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Lane {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    filling: Mutex<Filling>,
    /// Something waits for the flusher.
    work: Notify,
    /// Bytes accepted and not yet durable.
    room: ByteBudget,
    max_frame_bytes: usize,
    limits: Limits,
}

#[derive(Debug)]
struct Filling {
    buffer: buffer::Buffer,
    state: State,
    /// The next file was asked for.
    roll: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    Open,
    Stalled(String),
    Stopping,
    Ended(String),
}

impl Lane {
    /// A lane that holds at most `room_bytes` of accepted and not yet durable bytes, and takes no
    /// batch above `max_frame_bytes`.
    pub(crate) fn new(room_bytes: usize, max_frame_bytes: usize, limits: Limits) -> Self {
        let (buffer, state) = (buffer::Buffer::default(), State::Open);
        let filling = Mutex::new(Filling { buffer, state, roll: false });
        let (work, room) = (Notify::new(), ByteBudget::new(room_bytes));
        Self { shared: Arc::new(Shared { filling, work, room, max_frame_bytes, limits }) }
    }

    /// What all partitions of the broker together may take.
    pub(crate) fn limits(&self) -> &Limits {
        &self.shared.limits
    }

    /// The raw batches of all partitions.
    pub(crate) fn backlog(&self) -> &Backlog {
        &self.shared.limits.backlog
    }

    /// The budget from which a batch's bytes are leased before it is pushed.
    pub(crate) fn room(&self) -> &ByteBudget {
        &self.shared.room
    }

    /// The largest batch, in bytes, that fits.
    pub(crate) fn max_batch_bytes(&self) -> usize {
        self.shared.max_frame_bytes
    }

    fn filling(&self) -> std::sync::MutexGuard<'_, Filling> {
        self.shared.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Accepts one batch: its place among all frames of the lane is fixed by this call.
    pub(crate) fn push(&self, batch: BatchFrame, bytes: &[u8]) -> Result<(), Refusal> {
        let mut filling = self.filling();
        match &filling.state {
            State::Open => {}
            State::Stalled(why) => return Err(Refusal::Stalled(why.clone())),
            State::Stopping => return Err(Refusal::Closed("the broker is stopping".into())),
            State::Ended(why) => return Err(Refusal::Closed(why.clone())),
        }
        let first = filling.buffer.is_empty();
        filling.buffer.push_batch(batch, bytes);
        drop(filling);
        if first {
            self.shared.work.notify_one();
        }
        Ok(())
    }

    /// Accepts control frames; the receiver hears when they are durable. They are accepted while
    /// stopping too, so that a stop can state what it knows.
    pub(crate) fn push_control(&self, frames: &[Frame]) -> Result<oneshot::Receiver<()>, Refusal> {
        let mut filling = self.filling();
        if let State::Ended(why) = &filling.state {
            return Err(Refusal::Closed(why.clone()));
        }
        let (durable, receiver) = oneshot::channel();
        for frame in frames {
            filling.buffer.push_frame(frame);
        }
        filling.buffer.notify(durable);
        drop(filling);
        self.shared.work.notify_one();
        Ok(receiver)
    }

    /// Asks the flusher to go on in its next file, so that what lies in the present one can be sorted.
    /// Nothing happens when that holds no batch, or when the store has no room for another.
    pub(crate) fn ask_to_roll(&self) {
        self.filling().roll = true;
        self.shared.work.notify_one();
    }

    /// Whether the next file was asked for; the question is answered by this call.
    fn take_roll(&self) -> bool {
        std::mem::take(&mut self.filling().roll)
    }

    fn wants_roll(&self) -> bool {
        self.filling().roll
    }

    /// Asks the flusher to write what was accepted, state its end, and stop.
    pub(crate) fn stop(&self) {
        let mut filling = self.filling();
        if matches!(filling.state, State::Open | State::Stalled(_)) {
            filling.state = State::Stopping;
        }
        drop(filling);
        self.shared.work.notify_one();
    }

    /// Takes everything that waits; `None` when nothing does.
    fn take(&self) -> Option<Filled> {
        let mut filling = self.filling();
        (!filling.buffer.is_empty()).then(|| filling.buffer.take())
    }

    /// Waits until something was pushed, or a stop asked for, since the last call. Cancel safe.
    async fn work(&self) {
        self.shared.work.notified().await;
    }

    /// Whether a stop was asked for and nothing waits any more.
    fn is_drained(&self) -> bool {
        let filling = self.filling();
        filling.state == State::Stopping && filling.buffer.is_empty()
    }

    /// Refuses batches until [`Lane::resume`]: the store can not take them.
    fn stall(&self, why: &str) {
        let mut filling = self.filling();
        if matches!(filling.state, State::Open | State::Stalled(_)) {
            filling.state = State::Stalled(why.into());
        }
    }

    fn resume(&self) {
        let mut filling = self.filling();
        if matches!(filling.state, State::Stalled(_)) {
            filling.state = State::Open;
        }
    }

    /// Ends the lane: gives what was accepted and never reached the store.
    fn end(&self, why: &str) -> Option<Filled> {
        let mut filling = self.filling();
        filling.state = State::Ended(why.into());
        (!filling.buffer.is_empty()).then(|| filling.buffer.take())
    }
}
