//! The frames of one connection, and the room that they take (P6, P7).
//!
//! A frame takes room as its bytes come, in steps that double, never because they were announced: who
//! sends a little and stops holds a little. Frames that came in part can so wait for each other; then
//! one of them at a time goes beyond the budget, so that it ends and gives back what it holds. While
//! frames wait for room, those that hold some have to come at a least rate. Small frames have room of
//! their own, for which they wait without a limit of time: they are here in whole.
//!
//! Not counted: while a step is added to a frame above 1 MiB, its bytes may be copied, which takes up
//! to half as much memory again.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use talos_common::{ByteBudget, ByteLease};
use talos_protocol::frame::{self, LENGTH_BYTES};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use super::{Activity, End};
use crate::broker::Shared;

/// What is read at once where no frame asks for more.
const READ_CHUNK_BYTES: usize = 8 << 10;
/// A frame takes room once this much of it has come, or all of it: what a connection may hold outside
/// the receive budget. Longer ones are large.
const FIRST_BYTES: usize = 16 << 10;
/// The first step of a large frame; each further one doubles what it has.
const FIRST_STEP_BYTES: usize = 64 << 10;
/// Frames up to this length get their memory at once, which costs nothing before it is written to.
const WHOLE_BYTES: usize = 1 << 20;
/// How often it is looked at how fast a frame comes, while others wait for room.
const RATE_WINDOW: Duration = Duration::from_secs(5);

/// The room of requests that were received, in part or whole, and are not yet accepted; of all
/// connections together.
#[derive(Debug)]
pub(crate) struct ReceiveRoom {
    small: ByteBudget,
    large: ByteBudget,
    /// Held by the one frame that may go beyond `large`.
    beyond: Arc<Semaphore>,
    /// Frames that wait for room.
    waiting: AtomicUsize,
}

/// What a frame takes of the room; given back when dropped.
#[derive(Debug, Default)]
pub(crate) struct FrameLease {
    parts: Vec<ByteLease>,
    beyond: Option<OwnedSemaphorePermit>,
}

/// Counts one that waits for room.
struct Waiting<'a>(&'a AtomicUsize);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl ReceiveRoom {
    /// Room for `bytes`, an eighth of them for small frames; besides one frame that goes beyond.
    pub(crate) fn new(bytes: usize) -> Self {
        Self {
            small: ByteBudget::new(bytes / 8),
            large: ByteBudget::new(bytes - bytes / 8),
            beyond: Arc::new(Semaphore::new(1)),
            waiting: AtomicUsize::new(0),
        }
    }

    async fn small(&self, bytes: usize) -> FrameLease {
        FrameLease { parts: vec![self.small.take(bytes).await], beyond: None }
    }

    /// `bytes` more for a large frame.
    async fn grow(&self, lease: &mut FrameLease, bytes: usize) {
        if lease.beyond.is_some() {
            return;
        }
        if let Some(more) = self.large.try_take(bytes) {
            return lease.parts.push(more);
        }
        let _waiting = Waiting::new(&self.waiting);
        tokio::select! {
            biased;
            more = self.large.take(bytes) => lease.parts.push(more),
            // The semaphore is never closed.
            permit = Arc::clone(&self.beyond).acquire_owned() => lease.beyond = permit.ok(),
        }
    }

    fn is_wanted(&self) -> bool {
        self.waiting.load(Ordering::Relaxed) > 0
    }
}

/// How fast the present frame comes.
struct Progress {
    /// What is left of the time that the frame may take; waiting for room does not count.
    left: Duration,
    window_end: Instant,
    window_bytes: usize,
}

/// Reads frames.
pub(super) struct Frames<'a, R> {
    reader: R,
    buffer: BytesMut,
    shared: &'a Shared,
    activity: &'a Activity,
}

fn late() -> End {
    End::after_answers("slow_frame", "a request did not arrive in time")
}

impl<'a, R: AsyncRead + Unpin> Frames<'a, R> {
    pub(super) fn new(reader: R, shared: &'a Shared, activity: &'a Activity) -> Self {
        Self { reader, buffer: BytesMut::new(), shared, activity }
    }

    /// Waits until a frame begins, and for its first 16 KiB or all of it; gives its length without the
    /// prefix. Takes no room. Not cancel safe: the connection ends with a cancelled call.
    pub(super) async fn start(&mut self) -> Result<usize, End> {
        self.first_byte().await?;
        let (config, clock) = (&self.shared.config, &self.shared.env.clock);
        let deadline = clock.now() + config.frame_timeout;
        let prefix = self.fill(LENGTH_BYTES);
        let left = deadline.saturating_duration_since(clock.now());
        clock.timeout(left, prefix).await.ok_or_else(late)??;
        let length = self.buffer.get_i32();
        let length = frame::check_frame_length(length, config.socket_request_max_bytes)
            .map_err(|error| End::after_answers("protocol", error))?;
        // Announcing bytes takes no room from others: the first of them must be here.
        let first = self.fill(length.min(FIRST_BYTES));
        let left = deadline.saturating_duration_since(clock.now());
        clock.timeout(left, first).await.ok_or_else(late)??;
        Ok(length)
    }

    /// The frame that [`Frames::start`] found, and its room. Not cancel safe.
    pub(super) async fn rest(&mut self, length: usize) -> Result<(Bytes, FrameLease), End> {
        let (frame, lease) = match length {
            ..=FIRST_BYTES => {
                let lease = self.shared.receive.small(length).await;
                (self.small(length), lease)
            }
            _ => self.large(length).await?,
        };
        self.shared.metrics.received_bytes.inc_by((length + LENGTH_BYTES) as u64);
        Ok((frame, lease))
    }

    /// Waits until a frame begins; a connection that is idle for too long ends.
    async fn first_byte(&mut self) -> Result<(), End> {
        let clock = &self.shared.env.clock;
        while self.buffer.is_empty() {
            let idle = self.shared.config.connections_max_idle;
            self.buffer.reserve(READ_CHUNK_BYTES);
            let read = self.reader.read_buf(&mut self.buffer);
            let read = match idle {
                Some(idle) => clock.timeout(self.activity.idle_left(idle, clock.now()), read).await,
                None => Some(read.await),
            };
            match read {
                Some(Ok(0)) => return Err(End::now("peer", "")),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(End::now("peer", error)),
                None => {
                    let left = idle.map(|idle| self.activity.idle_left(idle, clock.now()));
                    if left.is_some_and(|left| left.is_zero()) {
                        return Err(End::now("idle", ""));
                    }
                }
            }
        }
        Ok(())
    }

    /// Reads until the buffer holds `bytes`.
    async fn fill(&mut self, bytes: usize) -> Result<(), End> {
        while self.buffer.len() < bytes {
            self.buffer.reserve(READ_CHUNK_BYTES);
            read_some(&mut self.reader, &mut self.buffer).await?;
        }
        Ok(())
    }

    /// A frame that is here: a slice of the buffer when it is little, else memory of its own.
    fn small(&mut self, length: usize) -> Bytes {
        let frame = self.buffer.split_to(length);
        if length <= READ_CHUNK_BYTES / 2 { frame.freeze() } else { Bytes::copy_from_slice(&frame) }
    }

    async fn large(&mut self, length: usize) -> Result<(Bytes, FrameLease), End> {
        let (room, clock) = (&self.shared.receive, &self.shared.env.clock);
        let mut lease = FrameLease::default();
        let mut frame = Vec::new();
        if length <= WHOLE_BYTES {
            frame.reserve_exact(length);
        }
        let mut granted = 0;
        let left = self.shared.config.frame_timeout;
        let mut progress = Progress { left, window_end: clock.now(), window_bytes: 0 };
        while frame.len() < length {
            if frame.len() == granted {
                let step = (length - granted).min(granted.max(FIRST_STEP_BYTES));
                room.grow(&mut lease, step).await;
                granted += step;
                frame.reserve_exact(granted - frame.len());
                progress.window_end = clock.now() + RATE_WINDOW;
                progress.window_bytes = 0;
            }
            let space = granted - frame.len();
            if self.buffer.is_empty() {
                let before = frame.len();
                self.read_into(&mut (&mut frame).limit(space), &mut progress).await?;
                progress.window_bytes += frame.len() - before;
            } else {
                let here = self.buffer.len().min(space);
                frame.extend_from_slice(&self.buffer.split_to(here));
            }
        }
        Ok((frame.into(), lease))
    }

    /// One read of a large frame's bytes, or none when a window is over.
    async fn read_into(
        &mut self,
        into: &mut (impl BufMut + Send),
        progress: &mut Progress,
    ) -> Result<(), End> {
        let (config, clock) = (&self.shared.config, &self.shared.env.clock);
        let begun = clock.now();
        if begun >= progress.window_end {
            let least =
                config.transfer_bytes_per_second.saturating_mul(RATE_WINDOW.as_secs() as usize);
            if self.shared.receive.is_wanted() && progress.window_bytes < least {
                return Err(End::after_answers(
                    "slow_frame",
                    "a request came too slowly while others waited for its room",
                ));
            }
            progress.window_end = begun + RATE_WINDOW;
            progress.window_bytes = 0;
        }
        let window = progress.window_end.saturating_duration_since(begun);
        let read = read_some(&mut self.reader, into);
        let read = clock.timeout(window.min(progress.left), read).await;
        progress.left = progress.left.saturating_sub(clock.now().saturating_duration_since(begun));
        match read {
            Some(read) => read,
            None if progress.left.is_zero() => Err(late()),
            None => Ok(()),
        }
    }
}

async fn read_some(
    reader: &mut (impl AsyncRead + Unpin),
    into: &mut impl BufMut,
) -> Result<(), End> {
    match reader.read_buf(into).await {
        Ok(0) => Err(End::now("peer", "closed inside a request")),
        Ok(_) => Ok(()),
        Err(error) => Err(End::now("peer", error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_frame_at_a_time_goes_beyond_the_room_and_then_the_next() {
        let room = ReceiveRoom::new(8 << 20);
        let (mut one, mut two) = (FrameLease::default(), FrameLease::default());
        room.grow(&mut one, 4 << 20).await;
        room.grow(&mut two, 3 << 20).await;
        // Nothing is left: the first goes beyond, for as much as it likes.
        room.grow(&mut one, 64 << 20).await;
        room.grow(&mut one, 64 << 20).await;
        assert!(one.beyond.is_some());
        let second = async {
            room.grow(&mut two, 64 << 20).await;
            two
        };
        tokio::pin!(second);
        tokio::select! {
            biased;
            _ = &mut second => panic!("two frames beyond the room"),
            () = tokio::task::yield_now() => assert!(room.is_wanted()),
        }
        drop(one);
        let two = second.await;
        assert!(!room.is_wanted());
        drop(two);
        assert_eq!(room.large.free_bytes(), room.large.limit_bytes());
    }
}
