//! Accepting connections: up to `max.connections`, each served by a task of its own.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;

use crate::broker::{Broker, Shared};
use crate::connection;

/// Pause after a failed accept: file descriptors may be used up for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

impl Broker {
    /// Serves connections of `listener` until the broker stops. The listener is closed then.
    pub async fn serve_tcp(&self, listener: TcpListener) {
        let shared = self.shared();
        loop {
            let accepted = tokio::select! {
                biased;
                () = shared.stopping() => return,
                accepted = listener.accept() => accepted,
            };
            match accepted {
                Ok((stream, peer)) => {
                    // Answers are whole frames in one write: waiting for more only delays them.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%peer, %error, "a connection ended before it was served");
                        continue;
                    }
                    self.serve_connection(stream, peer.to_string());
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection could not be accepted");
                    shared.env.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Starts to serve one connection, from `peer` (`host:port`), in a task of its own. Beyond
    /// `max.connections`, or when the broker stops, it is closed at once.
    pub fn serve_connection<Io>(&self, io: Io, peer: String)
    where
        Io: AsyncRead + AsyncWrite + Send + 'static,
    {
        let shared = Arc::clone(self.shared());
        let Some(place) = Shared::take_connection_place(&shared) else {
            tracing::debug!(peer, "no place for another connection");
            return;
        };
        let tasks = shared.env.tasks.clone();
        tasks.spawn("connection", async move {
            connection::serve(shared, io, peer).await;
            drop(place);
        });
    }
}
