//! One client connection: frames in, answers out, strictly in the order of the requests.
//!
//! ```text
//! read_requests:  frame → header → dispatch ─┬ Produce: accepted here, in order ──────────┐
//!                                            └ all others: not begun yet ──────┐          │
//!                                                        bounded queue of pending answers │
//! write_answers:            begin, wait, write ◄───────────────────────────────┴──────────┘
//! ```
//!
//! Both halves run in one task. Invariants: answers leave in request order; produce requests are
//! accepted in request order, many of them before the first is answered; any other request begins
//! when all earlier ones are answered, and holds back later ones until it is done (as Kafka does), so
//! a client may rely on the order of what it sends. A frame takes from the receive budget before it is
//! allocated, its first 16 KiB apart. What was accepted finishes whatever happens to the connection.

use std::future::Future;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use talos_common::ByteLease;
use talos_protocol::frame::{self, LENGTH_BYTES};
use talos_protocol::{ApiKey, Chain, Decoder, EncodeError, Str};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::broker::Shared;
use crate::dispatch::{self, Begun};
use crate::metrics::{ApiLabels, CloseLabels};

/// What is read at once where no frame asks for more.
const READ_CHUNK_BYTES: usize = 8 << 10;
/// A frame takes room once this much of it has come, or all of it: what a connection may hold outside
/// the receive budget.
const FIRST_BYTES: usize = 16 << 10;
/// Buffers of one vectored write.
const WRITE_SLICES: usize = 64;

/// What a handler knows of the request besides its message.
#[derive(Debug)]
pub(crate) struct Context {
    pub(crate) version: i16,
    pub(crate) correlation_id: i32,
    pub(crate) client_id: Option<Str>,
    /// The peer as Kafka shows it: `/127.0.0.1`.
    pub(crate) client_host: Arc<str>,
    /// The receive budget's bytes of the request's frame.
    pub(crate) lease: Mutex<Option<ByteLease>>,
}

impl Context {
    /// Gives the bytes of the request's frame back. A handler that waits for others calls it before
    /// it waits, when it holds nothing of the frame any more: the frames of requests that wait must
    /// not keep everybody else's out.
    pub(crate) fn release(&self) {
        drop(self.lease.lock().unwrap_or_else(PoisonError::into_inner).take());
    }
}

/// What became of a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// Send this.
    Answer(Answer),
    /// The client expects no answer.
    Nothing,
    /// End the connection: there is no answer that could say this.
    Close(String),
}

/// An answer on its way out.
#[derive(Debug)]
pub(crate) struct Answer {
    /// The frame.
    pub(crate) chain: Chain,
    /// Given back when the answer is sent.
    pub(crate) leases: Vec<ByteLease>,
}

/// Work that gives an outcome.
pub(crate) type Work = Pin<Box<dyn Future<Output = Outcome> + Send>>;

/// A request whose answer is still to come.
struct Pending {
    work: Work,
    api: ApiKey,
    started: Instant,
    /// Dropped when the work is done: the next request may begin.
    done: Option<oneshot::Sender<()>>,
}

/// Why a connection ended.
#[derive(Debug)]
struct End {
    /// Of a closed set, for metrics.
    reason: &'static str,
    /// For the log; empty when there is nothing to say.
    detail: String,
    /// Whether answers that are still to come are sent first.
    drains: bool,
}

impl End {
    fn now(reason: &'static str, detail: impl ToString) -> Self {
        Self { reason, detail: detail.to_string(), drains: false }
    }

    fn after_answers(reason: &'static str, detail: impl ToString) -> Self {
        Self { reason, detail: detail.to_string(), drains: true }
    }
}

impl Outcome {
    /// A frame to send, or a closed connection where it can not be encoded.
    pub(crate) fn encoded(frame: Result<Chain, EncodeError>, leases: Vec<ByteLease>) -> Self {
        match frame {
            Ok(chain) => Self::Answer(Answer { chain, leases }),
            Err(error) => Self::Close(format!("the answer can not be encoded: {error}")),
        }
    }
}

/// Serves one connection until it ends. `peer` is its address, for logs and group members.
pub(crate) async fn serve<Io>(shared: Arc<Shared>, io: Io, peer: String)
where
    Io: AsyncRead + AsyncWrite + Send,
{
    shared.metrics.connections.inc();
    shared.metrics.connections_opened.inc();
    let end = run(&shared, io, &peer).await;
    shared.metrics.connections.dec();
    shared.metrics.connections_closed.get_or_create(&CloseLabels { reason: end.reason }).inc();
    match end.reason {
        "peer" | "stopped" | "idle" => {
            tracing::debug!(peer, reason = end.reason, detail = end.detail, "connection closed");
        }
        _ => tracing::info!(peer, reason = end.reason, detail = end.detail, "connection closed"),
    }
}

async fn run<Io>(shared: &Arc<Shared>, io: Io, peer: &str) -> End
where
    Io: AsyncRead + AsyncWrite + Send,
{
    let (reader, writer) = tokio::io::split(io);
    let (sender, pending) = mpsc::channel(shared.config.requests_in_flight.max(1));
    let mut reading = pin!(read_requests(shared, reader, sender, peer));
    let mut writing = pin!(write_answers(shared, writer, pending));
    let end = tokio::select! {
        biased;
        () = shared.cut() => return End::now("stopped", ""),
        end = &mut writing => return end,
        end = &mut reading => end,
    };
    if end.drains {
        // The queue ends with the reader.
        tokio::select! {
            biased;
            () = shared.cut() => {}
            _ = &mut writing => {}
        }
    }
    end
}

async fn read_requests<R: AsyncRead + Unpin>(
    shared: &Arc<Shared>,
    reader: R,
    sender: mpsc::Sender<Pending>,
    peer: &str,
) -> End {
    let mut frames = Frames { reader, buffer: BytesMut::new(), shared };
    let client_host: Arc<str> = format!("/{}", host_of(peer)).into();
    // The request that the next one has to wait for.
    let mut barrier: Option<oneshot::Receiver<()>> = None;
    loop {
        let in_flight = || sender.capacity() < sender.max_capacity();
        let frame = tokio::select! {
            biased;
            () = shared.stopping() => return End::after_answers("stopped", ""),
            frame = frames.next(in_flight) => frame,
        };
        let (frame, lease) = match frame {
            Ok(frame) => frame,
            Err(end) => return end,
        };
        let started = shared.env.clock.now();
        if let Some(done) = barrier.take() {
            // Either way the work is over.
            let _ = done.await;
        }
        let begun = match begin(shared, frame, lease, &client_host).await {
            Ok(begun) => begun,
            Err(detail) => return End::after_answers("protocol", detail),
        };
        let (api, work, done) = match begun {
            Begun::Accepted(api, work) => (api, work, None),
            Begun::Exclusive(api, work) => {
                let (done, over) = oneshot::channel();
                barrier = Some(over);
                (api, work, Some(done))
            }
        };
        if sender.send(Pending { work, api, started, done }).await.is_err() {
            // The other half ended and says why.
            return std::future::pending().await;
        }
    }
}

/// Parses the header and hands the request on; an error ends the connection.
async fn begin(
    shared: &Arc<Shared>,
    frame: Bytes,
    lease: ByteLease,
    client_host: &Arc<str>,
) -> Result<Begun, String> {
    let start = frame::peek_request_start(&frame).map_err(|error| error.to_string())?;
    let key = ApiKey::try_from(start.key)
        .map_err(|_| format!("unknown api key {} version {}", start.key, start.version))?;
    if !dispatch::serves(key, start.version) {
        if key == ApiKey::ApiVersions {
            return Ok(dispatch::unsupported_api_versions(start.correlation_id));
        }
        return Err(format!("{} version {} is not served", key.name(), start.version));
    }
    let mut decoder = Decoder::new(frame);
    let header = frame::decode_request_header(&mut decoder)
        .map_err(|error| format!("{} version {}: {error}", key.name(), start.version))?;
    shared.metrics.requests.get_or_create(&ApiLabels { api: key.name() }).inc();
    let context = Context {
        version: header.version,
        correlation_id: header.correlation_id,
        // The frame goes before a request that waits is answered.
        client_id: header.client_id.map(|id| id.detached()),
        client_host: Arc::clone(client_host),
        lease: Mutex::new(None),
    };
    dispatch::begin(shared, key, context, decoder, lease)
        .await
        .map_err(|error| format!("{} version {}: {error}", key.name(), start.version))
}

/// The address without its port.
fn host_of(peer: &str) -> &str {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

struct Frames<'a, R> {
    reader: R,
    buffer: BytesMut,
    shared: &'a Shared,
}

impl<R: AsyncRead + Unpin> Frames<'_, R> {
    /// The next frame, without its length, and its share of the receive budget. Not cancel safe: the
    /// connection ends with a cancelled call.
    async fn next(&mut self, in_flight: impl Fn() -> bool) -> Result<(Bytes, ByteLease), End> {
        self.first_byte(in_flight).await?;
        let (config, clock) = (&self.shared.config, &self.shared.env.clock);
        let late = || End::after_answers("slow_frame", "a request did not arrive in time");
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
        // Waiting for room is not the peer's fault, so it is outside the deadline. Small requests never
        // wait for the room of large ones.
        let small = length <= FIRST_BYTES;
        let budget = if small { &self.shared.receive_small } else { &self.shared.receive };
        let lease = budget.take(length).await;
        let body = self.body(length);
        let body = clock.timeout(config.frame_timeout, body).await.ok_or_else(late)??;
        self.shared.metrics.received_bytes.inc_by((length + LENGTH_BYTES) as u64);
        Ok((body, lease))
    }

    /// Waits until a frame begins; a connection that is idle for too long ends.
    async fn first_byte(&mut self, in_flight: impl Fn() -> bool) -> Result<(), End> {
        let clock = &self.shared.env.clock;
        while self.buffer.is_empty() {
            let idle = self.shared.config.connections_max_idle;
            self.buffer.reserve(READ_CHUNK_BYTES);
            let read = self.reader.read_buf(&mut self.buffer);
            let read = match idle {
                Some(idle) => clock.timeout(idle, read).await,
                None => Some(read.await),
            };
            match read {
                Some(Ok(0)) => return Err(End::now("peer", "")),
                Some(Ok(_)) => {}
                Some(Err(error)) => return Err(End::now("peer", error)),
                None if in_flight() => {}
                None => return Err(End::now("idle", "")),
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

    /// The `length` bytes of a frame: a slice of the buffer when it is small, else memory of its own.
    async fn body(&mut self, length: usize) -> Result<Bytes, End> {
        if length <= READ_CHUNK_BYTES / 2 {
            self.fill(length).await?;
            return Ok(self.buffer.split_to(length).freeze());
        }
        let mut body = BytesMut::with_capacity(length);
        let here = self.buffer.len().min(length);
        body.extend_from_slice(&self.buffer.split_to(here));
        while body.len() < length {
            let rest = length - body.len();
            read_some(&mut self.reader, &mut (&mut body).limit(rest)).await?;
        }
        Ok(body.freeze())
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

async fn write_answers<W: AsyncWrite + Unpin>(
    shared: &Shared,
    mut writer: W,
    mut queue: mpsc::Receiver<Pending>,
) -> End {
    while let Some(Pending { work, api, started, done }) = queue.recv().await {
        let outcome = work.await;
        drop(done);
        let took = shared.env.clock.now().saturating_duration_since(started);
        let labels = ApiLabels { api: api.name() };
        shared.metrics.request_seconds.get_or_create(&labels).observe(took.as_secs_f64());
        match outcome {
            Outcome::Answer(answer) => {
                if let Err(end) = write_frame(shared, &mut writer, answer.chain).await {
                    return end;
                }
                drop(answer.leases);
            }
            Outcome::Nothing => {}
            Outcome::Close(detail) => return End::now("refused", detail),
        }
    }
    End::now("stopped", "")
}

/// Writes all buffers of a frame, without copying them. A peer that takes nothing for too long loses
/// its connection.
async fn write_frame<W: AsyncWrite + Unpin>(
    shared: &Shared,
    writer: &mut W,
    chain: Chain,
) -> Result<(), End> {
    let mut left = std::collections::VecDeque::from(chain.0);
    let clock = &shared.env.clock;
    let stalled = || End::now("slow_reader", "an answer could not be sent in time");
    while let Some(front) = left.front_mut() {
        if front.is_empty() {
            left.pop_front();
            continue;
        }
        let slices: Vec<IoSlice<'_>> =
            left.iter().take(WRITE_SLICES).map(|part| IoSlice::new(part)).collect();
        let write = clock.timeout(shared.config.send_stall_timeout, writer.write_vectored(&slices));
        let mut written = match write.await.ok_or_else(stalled)? {
            Ok(0) => return Err(End::now("peer", "takes no more bytes")),
            Ok(written) => written,
            Err(error) => return Err(End::now("peer", error)),
        };
        shared.metrics.sent_bytes.inc_by(written as u64);
        while written > 0 {
            let Some(front) = left.front_mut() else { break };
            let step = written.min(front.len());
            front.advance(step);
            written -= step;
            if front.is_empty() {
                left.pop_front();
            }
        }
    }
    let flush = clock.timeout(shared.config.send_stall_timeout, writer.flush());
    flush.await.ok_or_else(stalled)?.map_err(|error| End::now("peer", error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_port_is_not_part_of_a_host() {
        assert_eq!(host_of("127.0.0.1:9092"), "127.0.0.1");
        assert_eq!(host_of("[::1]:5"), "::1");
        assert_eq!(host_of("memory"), "memory");
    }
}
