//! Admin HTTP: `/metrics` (Prometheus text), `/healthz` (the process lives), `/readyz` (it serves; what it
//! can not serve stands in the text).
//!
//! [`AdminHandle`] is what the rest of the process sees of it: the registry of all metrics, whether
//! the broker is ready, and where it listens. The handle works with the server switched off too.
//!
//! What a client can cost is bounded: at most `MOST_CONNECTIONS` connections, each with at most
//! `MOST_REQUEST_BYTES` of request at a time, and each closed after `PATIENCE` without a whole
//! request, or without taking its answer.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::registry::Registry;
use talos_common::Clock;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

/// How long open admin connections may take to end after the stop.
const DRAIN: Duration = Duration::from_secs(2);

/// Connections that are served at once; further ones wait to be accepted.
const MOST_CONNECTIONS: usize = 64;
/// How long a connection may take for a request, for its answer, or between two.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest request, in bytes.
const MOST_REQUEST_BYTES: usize = 16 << 10;
/// The pause after connections cannot be accepted (no file descriptors).
const ACCEPT_PAUSE: Duration = Duration::from_secs(1);

/// Shared by the admin server and the broker. Clones share everything.
#[derive(Clone, Debug)]
pub struct AdminHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    registry: Mutex<Registry>,
    ready: Mutex<Ready>,
    listening: watch::Sender<Option<SocketAddr>>,
}

/// Tells whether the broker serves: what is not well although it does (nothing: all is well), or why not.
type Report = Arc<dyn Fn() -> Result<String, String> + Send + Sync>;

/// Whether the broker is ready.
#[derive(Clone)]
enum Ready {
    /// It is not, because of this.
    No(String),
    /// Ask it.
    Ask(Report),
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::No(why) => f.debug_tuple("No").field(why).finish(),
            Self::Ask(_) => f.write_str("Ask"),
        }
    }
}

impl Default for AdminHandle {
    fn default() -> Self {
        Self::new()
    }
}

impl AdminHandle {
    /// An empty registry, not ready because it is starting.
    pub fn new() -> Self {
        Self {
            shared: Arc::new(Shared {
                registry: Mutex::new(Registry::default()),
                ready: Mutex::new(Ready::No("starting".into())),
                listening: watch::Sender::new(None),
            }),
        }
    }

    /// Gives access to the registry, to register metrics. Do not block inside.
    pub fn with_registry<T>(&self, work: impl FnOnce(&mut Registry) -> T) -> T {
        work(&mut self.shared.registry.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// From now on `/readyz` answers 200.
    pub fn set_ready(&self) {
        self.set_ready_by(|| Ok(String::new()));
    }

    /// From now on `/readyz` answers what `report` says: 200 and what is not well although it serves
    /// (nothing: all is well), or 503 and why. Must not block.
    pub fn set_ready_by(
        &self,
        report: impl Fn() -> Result<String, String> + Send + Sync + 'static,
    ) {
        self.set(Ready::Ask(Arc::new(report)));
    }

    /// From now on `/readyz` answers 503 with this reason.
    pub fn set_not_ready(&self, why: impl Into<String>) {
        self.set(Ready::No(why.into()));
    }

    fn set(&self, ready: Ready) {
        *self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner) = ready;
    }

    /// Says where the broker accepts Kafka connections; the start banner waits for it.
    pub fn set_listening(&self, bound: SocketAddr) {
        self.shared.listening.send_replace(Some(bound));
    }

    /// Waits for [`AdminHandle::set_listening`]. Cancel safe.
    pub async fn listening(&self) -> SocketAddr {
        let mut listening = self.shared.listening.subscribe();
        match listening.wait_for(Option::is_some).await.map(|bound| *bound) {
            Ok(Some(bound)) => bound,
            // The sender lives as long as `self`.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    fn ready(&self) -> Result<String, String> {
        let ready = self.shared.ready.lock().unwrap_or_else(PoisonError::into_inner).clone();
        match ready {
            Ready::No(why) => Err(why),
            Ready::Ask(report) => report(),
        }
    }

    fn metrics(&self) -> Result<String, std::fmt::Error> {
        let registry = self.shared.registry.lock().unwrap_or_else(PoisonError::into_inner);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// Binds the admin address. Fails with what to do about it.
pub async fn bind(address: &str) -> anyhow::Result<TcpListener> {
    TcpListener::bind(address).await.with_context(|| {
        format!(
            "cannot listen on the admin address {address}; set another one with --admin HOST:PORT, or \
             switch it off with --admin ''"
        )
    })
}

/// Serves until `stop`, then ends open connections within two seconds.
pub async fn serve(
    listener: TcpListener,
    handle: AdminHandle,
    stop: impl Future<Output = ()> + Clone + Send + 'static,
) -> anyhow::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(handle);
    let slots = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    let clock = Clock::system();
    let listener = Bounded { listener, slots, clock: clock.clone() };
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.clone());
    let too_long = async {
        stop.await;
        clock.sleep(DRAIN).await;
    };
    tokio::select! {
        biased;
        served = serving => served.context("the admin server failed"),
        () = too_long => Ok(()),
    }
}

/// Accepts no more connections than there are slots.
struct Bounded {
    listener: TcpListener,
    slots: Arc<Semaphore>,
    clock: Clock,
}

impl axum::serve::Listener for Bounded {
    type Io = Guarded;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Guarded, SocketAddr) {
        loop {
            let slot = Arc::clone(&self.slots).acquire_owned().await;
            match (slot, self.listener.accept().await) {
                (Ok(slot), Ok((stream, peer))) => {
                    return (Guarded::new(stream, slot, self.clock.clone()), peer);
                }
                (Err(_), _) => unreachable!("the slots are never closed"),
                (Ok(_), Err(error)) => {
                    tracing::warn!(%error, "the admin server cannot accept connections");
                    self.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection with a limit on the time and size of each request. What is written to it is an
/// answer, and begins both anew.
struct Guarded {
    stream: TcpStream,
    clock: Clock,
    patience: Pin<Box<dyn Future<Output = ()> + Send>>,
    late: bool,
    /// Bytes of the request so far.
    taken: usize,
    _slot: OwnedSemaphorePermit,
}

impl Guarded {
    fn new(stream: TcpStream, slot: OwnedSemaphorePermit, clock: Clock) -> Self {
        let patience = patience(&clock);
        Self { stream, clock, patience, late: false, taken: 0, _slot: slot }
    }

    fn progress(&mut self) {
        self.taken = 0;
        self.patience = patience(&self.clock);
        self.late = false;
    }

    /// An error once the time is up; wakes the task then.
    fn is_too_late(&mut self, context: &mut Context<'_>) -> io::Result<()> {
        // A timer that has ended is not asked again.
        self.late = self.late || self.patience.as_mut().poll(context).is_ready();
        if self.late { Err(io::ErrorKind::TimedOut.into()) } else { Ok(()) }
    }
}

fn patience(clock: &Clock) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    let clock = clock.clone();
    Box::pin(async move { clock.sleep(PATIENCE).await })
}

impl AsyncRead for Guarded {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.is_too_late(context)?;
        let before = buffer.filled().len();
        let read = std::task::ready!(Pin::new(&mut this.stream).poll_read(context, buffer));
        this.taken += buffer.filled().len().saturating_sub(before);
        if this.taken > MOST_REQUEST_BYTES {
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        Poll::Ready(read)
    }
}

impl AsyncWrite for Guarded {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.is_too_late(context)?;
        let written = std::task::ready!(Pin::new(&mut this.stream).poll_write(context, bytes));
        this.progress();
        // The new timer has to know whom to wake.
        this.is_too_late(context)?;
        Poll::Ready(written)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

async fn metrics(State(handle): State<AdminHandle>) -> impl IntoResponse {
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    match handle.metrics() {
        Ok(text) => (StatusCode::OK, [(header::CONTENT_TYPE, kind)], text),
        Err(error) => {
            let text = format!("cannot write the metrics: {error}\n");
            (StatusCode::INTERNAL_SERVER_ERROR, [(header::CONTENT_TYPE, "text/plain")], text)
        }
    }
}

async fn ready(State(handle): State<AdminHandle>) -> impl IntoResponse {
    match handle.ready() {
        Ok(report) => (StatusCode::OK, format!("ready\n{report}")),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("not ready: {}\n", why.trim_end())),
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::counter::Counter;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;
    use crate::stop::Stop;

    async fn get_page(address: SocketAddr, path: &str) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    }

    #[tokio::test]
    async fn pages_follow_the_handle_and_the_server_stops() {
        let handle = AdminHandle::new();
        let counter: Counter = Counter::default();
        counter.inc_by(7);
        handle.with_registry(|registry| registry.register("talos_test_things", "Things", counter));
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new();
        let serving = serve(listener, handle.clone(), stop.asked());
        let asking = async {
            assert!(get_page(address, "/healthz").await.starts_with("HTTP/1.1 200"));
            let starting = get_page(address, "/readyz").await;
            assert!(starting.starts_with("HTTP/1.1 503"), "{starting}");
            assert!(starting.ends_with("not ready: starting\n"), "{starting}");
            handle.set_ready();
            assert!(get_page(address, "/readyz").await.ends_with("ready\n"));
            handle.set_ready_by(|| Ok("2 partitions are offline\n".into()));
            let degraded = get_page(address, "/readyz").await;
            assert!(degraded.starts_with("HTTP/1.1 200"), "it serves all others: {degraded}");
            assert!(degraded.ends_with("ready\n2 partitions are offline\n"), "{degraded}");
            handle.set_ready_by(|| Err("all belong to broker 7\n".into()));
            let wrong = get_page(address, "/readyz").await;
            assert!(wrong.starts_with("HTTP/1.1 503"), "{wrong}");
            assert!(wrong.ends_with("not ready: all belong to broker 7\n"), "{wrong}");
            let metrics = get_page(address, "/metrics").await;
            assert!(metrics.contains("\ntalos_test_things_total 7\n"), "{metrics}");
            assert!(get_page(address, "/nothing").await.starts_with("HTTP/1.1 404"));
            stop.ask();
        };
        let (served, ()) = tokio::join!(serving, asking);
        served.unwrap();
        assert!(TcpStream::connect(address).await.is_err());
    }

    /// What is read until the server closes the connection; `None`: it does not.
    async fn closed(stream: &mut TcpStream) -> Option<Vec<u8>> {
        let mut answer = Vec::new();
        let reading = async {
            let mut buffer = [0; 4096];
            // Bytes that the server did not read make it a reset.
            while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                answer.extend_from_slice(&buffer[..read]);
            }
        };
        tokio::time::timeout(Duration::from_secs(3600), reading).await.ok()?;
        Some(answer)
    }

    /// Runs `work` against a server.
    async fn with_server<F: Future<Output = ()>>(work: impl FnOnce(SocketAddr) -> F) {
        let listener = bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = Stop::new();
        let serving = serve(listener, AdminHandle::new(), stop.asked());
        let working = async {
            work(address).await;
            stop.ask();
        };
        tokio::join!(serving, working).0.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn who_sends_a_request_byte_by_byte_is_cut_off() {
        with_server(async |address| {
            let mut slow = TcpStream::connect(address).await.unwrap();
            slow.write_all(b"GET /healthz HTTP/1.1\r\nHo").await.unwrap();
            assert_eq!(closed(&mut slow).await, Some(vec![]));
            // Silent after an answer.
            let mut idle = TcpStream::connect(address).await.unwrap();
            idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
            assert!(closed(&mut idle).await.unwrap().starts_with(b"HTTP/1.1 200"));
        })
        .await;
    }

    #[tokio::test]
    async fn a_request_has_a_limited_size() {
        with_server(async |address| {
            let mut large = TcpStream::connect(address).await.unwrap();
            let header = "x".repeat(2 * MOST_REQUEST_BYTES);
            let request = format!("GET /healthz HTTP/1.1\r\nHost: {header}\r\n\r\n");
            // It may be closed before all is written.
            let _ = large.write_all(request.as_bytes()).await;
            let answer = closed(&mut large).await.unwrap();
            assert!(!answer.starts_with(b"HTTP/1.1 200"), "{answer:?}");
            assert!(get_page(address, "/healthz").await.starts_with("HTTP/1.1 200"));
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn connections_are_limited_and_idle_ones_make_room() {
        with_server(async |address| {
            let mut idle = Vec::new();
            for _ in 0..MOST_CONNECTIONS {
                idle.push(TcpStream::connect(address).await.unwrap());
            }
            assert!(get_page(address, "/healthz").await.starts_with("HTTP/1.1 200"));
            for mut stream in idle {
                assert_eq!(closed(&mut stream).await, Some(vec![]));
            }
        })
        .await;
    }

    #[tokio::test]
    async fn a_taken_address_says_what_to_do() {
        let first = bind("127.0.0.1:0").await.unwrap();
        let address = first.local_addr().unwrap().to_string();
        let error = format!("{:#}", bind(&address).await.unwrap_err());
        assert!(error.contains("--admin") && error.contains(&address), "{error}");
    }
}
