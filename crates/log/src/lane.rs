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

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use talos_common::ByteBudget;
use tokio::sync::{Notify, oneshot};

use crate::format::{Frame, LanePosition};
use crate::limits::{Backlog, Limits};

pub(crate) use buffer::{BatchFrame, Filled};
pub(crate) use flusher::{Flusher, FlusherParts, control_room};

/// Control frames that went aside are written in portions of about this part of a file.
const ASIDE_PART: usize = 32;

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
    /// Control frames whose order among the others means nothing, in portions that fit into any file.
    aside: VecDeque<buffer::Buffer>,
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
        let (buffer, aside) = (buffer::Buffer::default(), VecDeque::new());
        let filling = Mutex::new(Filling { buffer, aside, state: State::Open, roll: false });
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
    /// stopping too, so that a stop can state what it knows. Frames that speak of batches accepted before
    /// them stay behind these; others may pass them.
    pub(crate) fn push_control(&self, frames: &[Frame]) -> Result<oneshot::Receiver<()>, Refusal> {
        let mut filling = self.filling();
        if let State::Ended(why) = &filling.state {
            return Err(Refusal::Closed(why.clone()));
        }
        let (durable, receiver) = oneshot::channel();
        let passes = frames.iter().all(|frame| {
            matches!(frame, Frame::Published { .. } | Frame::Sorted { .. } | Frame::Catalog { .. })
        });
        let buffer = if passes {
            let most = self.shared.max_frame_bytes / ASIDE_PART;
            filling.aside.pop_back_if(|last| last.bytes() < most)
        } else {
            Some(std::mem::take(&mut filling.buffer))
        };
        let mut buffer = buffer.unwrap_or_default();
        for frame in frames {
            buffer.push_frame(frame);
        }
        buffer.notify(durable);
        match passes {
            true => filling.aside.push_back(buffer),
            false => filling.buffer = buffer,
        }
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

    /// Takes the control frames that may pass others.
    fn take_aside(&self) -> Option<Filled> {
        self.filling().aside.pop_front().map(|mut buffer| buffer.take())
    }

    /// Takes all else that waits; `None` when nothing does.
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
        let empty = filling.buffer.is_empty() && filling.aside.is_empty();
        filling.state == State::Stopping && empty
    }

    /// Refuses batches until [`Lane::resume`]: the store can not take them.
    fn stall(&self, why: &str) {
        let mut filling = self.filling();
        if matches!(filling.state, State::Open | State::Stalled(_)) {
            filling.state = State::Stalled(why.into());
        }
        drop(filling);
        // Sorting may make room.
        self.shared.limits.backlog.press();
    }

    /// Whether batches are refused because the store can not take them.
    pub(crate) fn is_stalled(&self) -> bool {
        matches!(self.filling().state, State::Stalled(_))
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
        // Who waits for control frames hears that the lane is gone.
        filling.aside.clear();
        (!filling.buffer.is_empty()).then(|| filling.buffer.take())
    }
}

#[cfg(test)]
mod tests {
    use talos_common::{Env, TopicId, TopicPartitionId};

    use super::*;
    use crate::logs::LogOptions;
    use crate::metrics::LogMetrics;

    #[test]
    fn control_frames_of_any_number_are_written_in_portions_that_fit_into_any_file() {
        let env = Env::simulated(1, 0);
        let limits = Limits::new(&LogOptions::DEFAULT, 32 << 10, &env, LogMetrics::default());
        let lane = Lane::new(8 << 10, 24 << 10, limits);
        let mut heard = Vec::new();
        for partition in 0..2_000 {
            let partition = TopicPartitionId { topic: TopicId([7; 16]), partition };
            let frame = Frame::Published { partition, end_offset: 1, root_generation: 1 };
            heard.push(lane.push_control(&[frame]).unwrap());
        }
        let (mut frames, mut hears) = (0, 0);
        while let Some(portion) = lane.take_aside() {
            assert!(portion.bytes < 2 << 10, "{} bytes", portion.bytes);
            frames += portion.frame_count();
            hears += portion.waiting.len();
        }
        assert_eq!((frames, hears), (2_000, 2_000));
    }
}
