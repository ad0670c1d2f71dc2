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
//! a client may rely on the order of what it sends. A frame takes its room in `receive` when it is its
//! turn. An answer that is not taken in time, which follows from its size, ends the connection. What
//! was accepted finishes whatever happens to the connection.

use std::future::Future;
use std::io::IoSlice;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes};
use talos_common::ByteLease;
use talos_protocol::{ApiKey, Chain, Decoder, EncodeError, Str, frame};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::broker::Shared;
use crate::config::BrokerConfig;
use crate::dispatch::{self, Begun};
use crate::metrics::{ApiLabels, CloseLabels};
use receive::Frames;
pub(crate) use receive::{FrameLease, ReceiveRoom};

mod receive;

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
    /// The room of the request's frame.
    pub(crate) lease: Mutex<Option<FrameLease>>,
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

/// What keeps a connection from being idle.
#[derive(Debug)]
struct Activity {
    /// Requests that were read and whose answer is not yet sent.
    in_flight: AtomicUsize,
    /// When the last one was answered.
    last: Mutex<Instant>,
}

impl Activity {
    fn new(now: Instant) -> Self {
        Self { in_flight: AtomicUsize::new(0), last: Mutex::new(now) }
    }

    fn begun(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
    }

    fn answered(&self, now: Instant) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }

    /// How much longer the connection may stay silent; zero: it is idle. Idle time begins when
    /// everything is answered.
    fn idle_left(&self, idle: Duration, now: Instant) -> Duration {
        if self.in_flight.load(Ordering::Relaxed) > 0 {
            return idle;
        }
        let last = *self.last.lock().unwrap_or_else(PoisonError::into_inner);
        idle.saturating_sub(now.saturating_duration_since(last))
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
    let activity = Activity::new(shared.env.clock.now());
    let frames = Frames::new(reader, shared, &activity);
    let mut reading = pin!(read_requests(shared, frames, sender, peer, &activity));
    let mut writing = pin!(write_answers(shared, writer, pending, &activity));
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
    mut frames: Frames<'_, R>,
    sender: mpsc::Sender<Pending>,
    peer: &str,
    activity: &Activity,
) -> End {
    let client_host: Arc<str> = format!("/{}", host_of(peer)).into();
    // The request that the next one has to wait for.
    let mut barrier: Option<oneshot::Receiver<()>> = None;
    loop {
        let length = tokio::select! {
            biased;
            () = shared.stopping() => return End::after_answers("stopped", ""),
            length = frames.start() => match length {
                Ok(length) => length,
                Err(end) => return end,
            },
        };
        let started = shared.env.clock.now();
        // A frame that has to wait for an earlier request takes no room meanwhile.
        if let Some(done) = barrier.take() {
            // Either way the work is over.
            let _ = done.await;
        }
        let waited = shared.env.clock.now().saturating_duration_since(started);
        let (frame, lease) = tokio::select! {
            biased;
            () = shared.stopping() => return End::after_answers("stopped", ""),
            frame = frames.rest(length) => match frame {
                Ok(frame) => frame,
                Err(end) => return end,
            },
        };
        // The time of its bytes on the way is the peer's.
        let now = shared.env.clock.now();
        let started = now.checked_sub(waited).unwrap_or(now);
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
        activity.begun();
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
    lease: FrameLease,
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
pub(crate) fn host_of(peer: &str) -> &str {
    let host = peer.rsplit_once(':').map_or(peer, |(host, _)| host);
    host.trim_start_matches('[').trim_end_matches(']')
}

async fn write_answers<W: AsyncWrite + Unpin>(
    shared: &Shared,
    mut writer: W,
    mut queue: mpsc::Receiver<Pending>,
    activity: &Activity,
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
        activity.answered(shared.env.clock.now());
    }
    End::now("stopped", "")
}

/// Writes all buffers of a frame, without copying them. A peer that takes nothing for too long, or too
/// little for the size of the frame, loses its connection: what it does not take is memory of all.
async fn write_frame<W: AsyncWrite + Unpin>(
    shared: &Shared,
    writer: &mut W,
    chain: Chain,
) -> Result<(), End> {
    let (config, clock) = (&shared.config, &shared.env.clock);
    let deadline = clock.now() + send_time(config, chain.len());
    let patience = || {
        let left = deadline.saturating_duration_since(clock.now());
        left.min(config.send_stall_timeout)
    };
    let mut left = std::collections::VecDeque::from(chain.0);
    let stalled = || End::now("slow_reader", "an answer could not be sent in time");
    while let Some(front) = left.front_mut() {
        if front.is_empty() {
            left.pop_front();
            continue;
        }
        let slices: Vec<IoSlice<'_>> =
            left.iter().take(WRITE_SLICES).map(|part| IoSlice::new(part)).collect();
        let write = clock.timeout(patience(), writer.write_vectored(&slices));
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
    let flush = clock.timeout(patience(), writer.flush());
    flush.await.ok_or_else(stalled)?.map_err(|error| End::now("peer", error))
}

/// How long a peer may take for a frame of `bytes`.
fn send_time(config: &BrokerConfig, bytes: usize) -> Duration {
    let rate = u64::try_from(config.transfer_bytes_per_second.max(1)).unwrap_or(u64::MAX);
    let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
    config.send_stall_timeout + Duration::from_millis(bytes.saturating_mul(1_000) / rate)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_for_an_answer_grows_with_its_size() {
        let config = BrokerConfig {
            send_stall_timeout: Duration::from_secs(60),
            transfer_bytes_per_second: 128 << 10,
            ..BrokerConfig::default()
        };
        assert_eq!(send_time(&config, 0), Duration::from_secs(60));
        assert_eq!(send_time(&config, 128 << 20), Duration::from_secs(60 + 1024));
    }

    #[test]
    fn idle_time_begins_when_everything_is_answered() {
        let idle = Duration::from_secs(10);
        let start = talos_common::Clock::simulated(0).now();
        let activity = Activity::new(start);
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(activity.idle_left(idle, at(4)), Duration::from_secs(6));
        activity.begun();
        assert_eq!(activity.idle_left(idle, at(60)), idle);
        activity.answered(at(60));
        assert_eq!(activity.idle_left(idle, at(63)), Duration::from_secs(7));
        assert_eq!(activity.idle_left(idle, at(70)), Duration::ZERO);
    }

    #[test]
    fn the_port_is_not_part_of_a_host() {
        assert_eq!(host_of("127.0.0.1:9092"), "127.0.0.1");
        assert_eq!(host_of("[::1]:5"), "::1");
        assert_eq!(host_of("memory"), "memory");
    }
}
