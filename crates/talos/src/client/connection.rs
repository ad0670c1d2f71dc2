//! One connection: requests go out in the order of the calls, several may be in flight, answers are
//! matched by correlation id in the order in which a broker must give them.
//!
//! A writer task and a reader task own the socket. The first error ends both; every request that
//! was not answered then fails as lost. So does an answer that does not come in time: what is
//! behind it on the connection would only wait as well. Bounded: [`MAX_IN_FLIGHT`] requests,
//! answers of at most `max_response` bytes.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::{Buf, Bytes, BytesMut};
use talos_common::{Env, Period};
use talos_protocol::frame::{self, RequestHeader};
use talos_protocol::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
use talos_protocol::{ApiKey, Chain, Decoder, Message, Request, Str};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot, watch};

use super::deadline;
use super::error::ClientError;

/// Most requests of one connection that wait for their answer.
pub const MAX_IN_FLIGHT: usize = 256;
/// Bytes that one read of the socket makes room for.
const READ_BYTES: usize = 256 * 1024;

/// What a connection needs to know.
#[derive(Clone, Debug)]
pub struct ConnectionOptions {
    /// The name that the client gives itself.
    pub client_id: Str,
    /// How long connecting (with the first exchange), and each answer, may take; less where
    /// [`deadline::within`] leaves less.
    pub timeout: Duration,
    /// Largest answer that is accepted, in bytes.
    pub max_response: usize,
}

/// An open connection. Dropping it closes it once the requests in flight are answered or failed.
#[derive(Debug)]
pub struct Connection {
    server: Arc<str>,
    options: ConnectionOptions,
    env: Env,
    next_correlation: AtomicI32,
    queue: mpsc::Sender<Outgoing>,
    shared: Arc<Shared>,
    versions: BTreeMap<i16, (i16, i16)>,
}

#[derive(Debug)]
struct Outgoing {
    chain: Chain,
    waiting: Option<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    correlation_id: i32,
    answer: oneshot::Sender<Bytes>,
}

#[derive(Debug, Default)]
struct Shared {
    waiting: Mutex<VecDeque<Waiting>>,
    closed: AtomicBool,
    /// Ends the tasks that own the socket.
    ended: watch::Sender<bool>,
    reason: Mutex<Option<String>>,
}

impl Shared {
    /// Ends the connection: the first reason counts; everything that waits fails.
    fn close(&self, reason: String) {
        let first = !self.closed.swap(true, Ordering::AcqRel);
        if first {
            *self.reason.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
        }
        self.ended.send_replace(true);
        // Dropping the senders wakes those who wait.
        let waiting = {
            let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *waiting)
        };
        drop(waiting);
    }

    /// Waits for [`Shared::close`].
    async fn is_over(&self) {
        let mut ended = self.ended.subscribe();
        // The sender lives as long as `self`.
        let _ = ended.wait_for(|ended| *ended).await;
    }

    fn reason(&self) -> String {
        let reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        reason.clone().unwrap_or_else(|| "closed".into())
    }
}

/// An answer that is on its way.
#[derive(Debug)]
pub struct Pending<R: Request> {
    server: Arc<str>,
    version: i16,
    shared: Arc<Shared>,
    answer: oneshot::Receiver<Bytes>,
    request: std::marker::PhantomData<fn() -> R>,
}

impl<R: Request> Pending<R> {
    /// Waits for the answer, without a limit. Dropping this gives the answer up.
    ///
    /// # Errors
    /// `Lost`, or `Protocol` if the answer cannot be read.
    pub async fn answer(self) -> Result<R::Response, ClientError> {
        let Ok(frame) = self.answer.await else {
            let (server, reason) = (self.server.to_string(), self.shared.reason());
            return Err(ClientError::Lost { server, api: R::KEY, reason });
        };
        let mut d = Decoder::new(frame);
        frame::decode_response_header(&mut d, R::KEY, self.version)
            .and_then(|_| frame::decode_rest::<R::Response>(d, self.version))
            .map_err(|error| ClientError::decode(&self.server, R::KEY, &error))
    }
}

impl Connection {
    /// Connects to `server` (`HOST:PORT`) and asks which versions it has.
    ///
    /// # Errors
    /// `Connect`, or whatever the first exchange gives.
    pub async fn open(
        env: &Env,
        server: &str,
        options: ConnectionOptions,
    ) -> Result<Self, ClientError> {
        // Connecting and the first exchange share one limit.
        let limit = options.timeout;
        deadline::within(&env.clock, limit, Self::open_now(env, server, options)).await
    }

    async fn open_now(
        env: &Env,
        server: &str,
        options: ConnectionOptions,
    ) -> Result<Self, ClientError> {
        let refused = |reason: String| ClientError::Connect { server: server.to_owned(), reason };
        let connecting = TcpStream::connect(server);
        let left = deadline::left(&env.clock, options.timeout);
        let stream = match env.clock.timeout(left.time, connecting).await {
            Some(Ok(stream)) => stream,
            Some(Err(error)) => return Err(refused(error.to_string())),
            None => return Err(refused(format!("no answer within {}", Period(left.allowed)))),
        };
        stream.set_nodelay(true).map_err(|error| refused(error.to_string()))?;
        let (reading, writing) = stream.into_split();
        let shared = Arc::new(Shared::default());
        let (queue, outgoing) = mpsc::channel(MAX_IN_FLIGHT);
        let limit = options.max_response;
        {
            let shared = Arc::clone(&shared);
            env.tasks.spawn("client writer", async move {
                tokio::select! {
                    biased;
                    () = shared.is_over() => {}
                    ended = write_all(writing, outgoing, &shared) => {
                        if let Err(error) = ended {
                            shared.close(error.to_string());
                        }
                    }
                }
            });
        }
        {
            let shared = Arc::clone(&shared);
            env.tasks.spawn("client reader", async move {
                tokio::select! {
                    biased;
                    () = shared.is_over() => {}
                    read = read_all(reading, &shared, limit) => shared.close(match read {
                        Ok(()) => "the server closed it".into(),
                        Err(error) => error.to_string(),
                    }),
                }
            });
        }
        let mut connection = Self {
            server: server.into(),
            options,
            env: env.clone(),
            next_correlation: AtomicI32::new(0),
            queue,
            shared,
            versions: BTreeMap::new(),
        };
        connection.versions = connection.negotiate().await?;
        Ok(connection)
    }

    /// The server's address.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// Whether the connection has ended.
    pub fn is_closed(&self) -> bool {
        self.shared.closed.load(Ordering::Acquire)
    }

    /// The newest version of `R` that both sides have, at most `cap`.
    ///
    /// # Errors
    /// `Unsupported`.
    pub fn version<R: Request>(&self, cap: i16) -> Result<i16, ClientError> {
        let ours: RangeInclusive<i16> = R::STABLE_VERSIONS;
        let common = self.versions.get(&R::KEY.code()).and_then(|(min, max)| {
            let newest = (*ours.end()).min(*max).min(cap);
            (newest >= *min && newest >= *ours.start()).then_some(newest)
        });
        let server = || self.server.to_string();
        common.ok_or_else(|| ClientError::Unsupported { server: server(), api: R::KEY })
    }

    /// Ends the connection now; what is not answered fails as lost.
    pub fn abort(&self, reason: &str) {
        self.shared.close(reason.to_owned());
    }

    /// Asks and waits for the answer, as long as the options say.
    ///
    /// # Errors
    /// Any [`ClientError`]; error codes in the answer are the caller's to look at.
    pub async fn call<R: Request>(&self, request: &R) -> Result<R::Response, ClientError> {
        let version = self.version::<R>(i16::MAX)?;
        self.call_version(request, version).await
    }

    /// [`Connection::call`] in the given version.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_version<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<R::Response, ClientError> {
        self.call_within(request, version, self.options.timeout).await
    }

    /// [`Connection::call_version`] with another limit on the time; what [`deadline::within`] leaves
    /// holds all the same.
    ///
    /// # Errors
    /// As [`Connection::call`].
    pub async fn call_within<R: Request>(
        &self,
        request: &R,
        version: i16,
        limit: Duration,
    ) -> Result<R::Response, ClientError> {
        let work = async { self.send(request, version).await?.answer().await };
        let left = deadline::left(&self.env.clock, limit);
        match self.env.clock.timeout(left.time, work).await {
            Some(answer) => answer,
            None => {
                self.abort("an answer did not come in time");
                let server = self.server.to_string();
                Err(ClientError::Timeout { server, api: R::KEY, after: left.allowed })
            }
        }
    }

    /// Puts the request in line; requests go out in the order of these calls. Waits only while
    /// [`MAX_IN_FLIGHT`] requests are in line.
    ///
    /// # Errors
    /// `Encode`, or `Connect` if the connection ended before (the request was not sent).
    pub async fn send<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<Pending<R>, ClientError> {
        let (correlation_id, chain) = self.encode(request, version)?;
        let (sender, answer) = oneshot::channel();
        let waiting = Some(Waiting { correlation_id, answer: sender });
        self.enqueue(Outgoing { chain, waiting }).await?;
        let (server, shared) = (Arc::clone(&self.server), Arc::clone(&self.shared));
        Ok(Pending { server, version, shared, answer, request: std::marker::PhantomData })
    }

    /// [`Connection::send`] for a request that the server does not answer (Produce with `acks=0`).
    ///
    /// # Errors
    /// As [`Connection::send`].
    pub async fn send_unanswered<R: Request>(
        &self,
        request: &R,
        version: i16,
    ) -> Result<(), ClientError> {
        let (_, chain) = self.encode(request, version)?;
        self.enqueue(Outgoing { chain, waiting: None }).await
    }

    fn encode<R: Request>(&self, request: &R, version: i16) -> Result<(i32, Chain), ClientError> {
        let correlation_id = self.next_correlation.fetch_add(1, Ordering::Relaxed);
        let header = RequestHeader {
            key: R::KEY.code(),
            version,
            correlation_id,
            client_id: Some(self.options.client_id.clone()),
        };
        match frame::encode_request(&header, request) {
            Ok(chain) => Ok((correlation_id, chain)),
            Err(source) => {
                let server = self.server.to_string();
                Err(ClientError::Encode { server, api: R::KEY, source })
            }
        }
    }

    async fn enqueue(&self, outgoing: Outgoing) -> Result<(), ClientError> {
        let refused = || ClientError::Connect {
            server: self.server.to_string(),
            reason: self.shared.reason(),
        };
        if self.is_closed() {
            return Err(refused());
        }
        self.queue.send(outgoing).await.map_err(|_| refused())
    }

    async fn negotiate(&self) -> Result<BTreeMap<i16, (i16, i16)>, ClientError> {
        let request = ApiVersionsRequest {
            client_software_name: "talos".into(),
            client_software_version: env!("CARGO_PKG_VERSION").into(),
            ..Default::default()
        };
        // A server that lacks our version answers in version 0 (KIP-511), which only differs in
        // the first bytes when it has no error; so the sure way down is to ask again.
        let mut answer = self.call_version(&request, 3).await;
        if !matches!(&answer, Ok(answer) if answer.error_code == 0) {
            // One that is silent has no time left for a second question.
            if self.is_closed() || matches!(&answer, Err(ClientError::Timeout { .. })) {
                return Err(self.no_kafka(answer.err()));
            }
            answer = self.call_version(&ApiVersionsRequest::default(), 0).await;
        }
        let answer: ApiVersionsResponse = answer.map_err(|error| self.no_kafka(Some(error)))?;
        ClientError::check(
            &self.server,
            ApiKey::ApiVersions,
            "this client",
            answer.error_code,
            None,
        )?;
        let versions = answer.api_keys.iter();
        Ok(versions.map(|api| (api.api_key, (api.min_version, api.max_version))).collect())
    }

    /// A server that ends the connection at the first request does not speak our protocol.
    fn no_kafka(&self, error: Option<ClientError>) -> ClientError {
        match error {
            Some(ClientError::Lost { server, reason, .. }) => ClientError::Connect {
                server,
                reason: format!("it ended the first exchange ({reason}); is it a Kafka port?"),
            },
            Some(error) => error,
            None => ClientError::Connect {
                server: self.server.to_string(),
                reason: self.shared.reason(),
            },
        }
    }
}

/// Writes what is in line, everything that is there at once with one system call where possible.
async fn write_all(
    mut socket: OwnedWriteHalf,
    mut outgoing: mpsc::Receiver<Outgoing>,
    shared: &Shared,
) -> io::Result<()> {
    let mut batch = Vec::with_capacity(64);
    let mut buffers: VecDeque<Bytes> = VecDeque::new();
    while outgoing.recv_many(&mut batch, 64).await > 0 {
        {
            let mut waiting = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner);
            if shared.closed.load(Ordering::Acquire) {
                return Ok(());
            }
            for item in batch.drain(..) {
                waiting.extend(item.waiting);
                buffers.extend(item.chain.0);
            }
        }
        while !buffers.is_empty() {
            let slices: Vec<_> =
                buffers.iter().take(64).map(|part| io::IoSlice::new(part)).collect();
            let mut written = socket.write_vectored(&slices).await?;
            if written == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            while let Some(first) = buffers.front_mut() {
                if written < first.len() {
                    first.advance(written);
                    break;
                }
                written -= first.len();
                buffers.pop_front();
            }
        }
    }
    // The last handle is gone. Whoever still waits for an answer gets it: the reader goes on until
    // the server closes.
    socket.shutdown().await
}

/// Reads answers until the server closes the connection.
async fn read_all(
    mut socket: OwnedReadHalf,
    shared: &Shared,
    limit: usize,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let mut buffer = BytesMut::with_capacity(READ_BYTES);
    loop {
        while let Some(head) = buffer.first_chunk::<4>() {
            let length = frame::check_frame_length(i32::from_be_bytes(*head), limit)?;
            if buffer.len() < 4 + length {
                buffer.reserve(4 + length - buffer.len());
                break;
            }
            buffer.advance(4);
            give_out(buffer.split_to(length).freeze(), shared)?;
        }
        if buffer.capacity() - buffer.len() < READ_BYTES / 4 {
            buffer.reserve(READ_BYTES);
        }
        if socket.read_buf(&mut buffer).await? == 0 {
            return if buffer.is_empty() {
                Ok(())
            } else {
                Err("it ended within an answer".into())
            };
        }
    }
}

fn give_out(frame: Bytes, shared: &Shared) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let id =
        frame.first_chunk::<4>().map(|id| i32::from_be_bytes(*id)).ok_or("answer too short")?;
    let next = shared.waiting.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
    match next {
        Some(waiting) if waiting.correlation_id == id => {
            // Nobody waits any more after a timeout: the answer is dropped.
            let _ = waiting.answer.send(frame);
            Ok(())
        }
        Some(waiting) => {
            Err(format!("answer {id} came where {} was due", waiting.correlation_id).into())
        }
        None => Err(format!("answer {id} came that nobody asked for").into()),
    }
}

/// The chain of a message, for what is nested in others (group protocol).
pub(crate) fn nested<M: Message>(message: &M, version: i16) -> Option<Bytes> {
    let mut e = talos_protocol::Encoder::new();
    e.i16(version);
    message.encode(&mut e, version).ok()?;
    Some(e.finish().to_bytes())
}
