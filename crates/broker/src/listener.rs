//! Accepting connections: up to `max.connections`, and up to `max.connections.per.ip` of one address,
//! each served by a task of its own.
//!
//! Beyond a limit a connection is closed at once. The binary keeps `max.connections` below the limit of
//! open files, so that files and accepting itself have descriptors left; where they run out
//! nevertheless, accepting pauses and goes on.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::broker::Broker;
use crate::config::BrokerConfig;
use crate::connection::{self, host_of};

/// Pause after a failed accept: file descriptors may be used up for a while.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How often it is said at most that connections are refused, or can not be accepted.
const SAY_EVERY: Duration = Duration::from_secs(60);

/// The places of connections.
#[derive(Debug)]
pub(crate) struct Connections {
    places: Arc<Semaphore>,
    all: usize,
    per_host: usize,
    hosts: Arc<Mutex<BTreeMap<String, usize>>>,
    last_said: Mutex<Option<Instant>>,
}

/// A place of one connection; given back when dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _permit: OwnedSemaphorePermit,
    hosts: Arc<Mutex<BTreeMap<String, usize>>>,
    host: String,
}

/// Why there is no place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoPlace {
    /// The broker stops.
    Stopping,
    /// `max.connections`.
    All,
    /// `max.connections.per.ip`.
    Host,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = hosts.get_mut(&self.host) {
            *count -= 1;
            if *count == 0 {
                hosts.remove(&self.host);
            }
        }
    }
}

impl Connections {
    pub(crate) fn new(config: &BrokerConfig) -> Self {
        // What can be waited for in one call.
        let most = Semaphore::MAX_PERMITS.min(u32::MAX as usize);
        let all = config.max_connections.min(most);
        Self {
            places: Arc::new(Semaphore::new(all)),
            all,
            per_host: config.max_connections_per_ip,
            hosts: Arc::default(),
            last_said: Mutex::new(None),
        }
    }

    pub(crate) fn take(&self, host: &str) -> Result<Place, NoPlace> {
        let Ok(permit) = Arc::clone(&self.places).try_acquire_owned() else {
            return Err(NoPlace::All);
        };
        let mut hosts = self.hosts.lock().unwrap_or_else(PoisonError::into_inner);
        let count = hosts.get(host).copied().unwrap_or(0);
        if count >= self.per_host {
            return Err(NoPlace::Host);
        }
        hosts.insert(host.to_owned(), count + 1);
        drop(hosts);
        Ok(Place { _permit: permit, hosts: Arc::clone(&self.hosts), host: host.to_owned() })
    }

    /// Waits until no connection has a place. Cancel safe.
    pub(crate) async fn all_ended(&self) {
        let all = u32::try_from(self.all).unwrap_or(u32::MAX);
        // The semaphore is never closed.
        let _ = self.places.acquire_many(all).await;
    }

    /// Whether it is time to say again what may happen very often.
    fn may_say(&self, now: Instant) -> bool {
        let mut last_said = self.last_said.lock().unwrap_or_else(PoisonError::into_inner);
        let may = last_said.is_none_or(|last| now.saturating_duration_since(last) >= SAY_EVERY);
        if may {
            *last_said = Some(now);
        }
        may
    }
}

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
                    if shared.connections.may_say(shared.env.clock.now()) {
                        tracing::warn!(%error, "a connection could not be accepted");
                    }
                    shared.env.clock.sleep(ACCEPT_PAUSE).await;
                }
            }
        }
    }

    /// Starts to serve one connection, from `peer` (`host:port`), in a task of its own. Beyond
    /// `max.connections` or `max.connections.per.ip`, or when the broker stops, it is closed at once.
    pub fn serve_connection<Io>(&self, io: Io, peer: String)
    where
        Io: AsyncRead + AsyncWrite + Send + 'static,
    {
        let shared = Arc::clone(self.shared());
        let place = match shared.take_connection_place(host_of(&peer)) {
            Ok(place) => place,
            Err(why) => {
                shared.metrics.connections_refused.inc();
                let (limit, value) = match why {
                    NoPlace::Stopping => return,
                    NoPlace::All => ("max.connections", shared.config.max_connections),
                    NoPlace::Host => {
                        ("max.connections.per.ip", shared.config.max_connections_per_ip)
                    }
                };
                if shared.connections.may_say(shared.env.clock.now()) {
                    tracing::warn!(peer, limit, value, "connections are refused");
                }
                return;
            }
        };
        let tasks = shared.env.tasks.clone();
        tasks.spawn("connection", async move {
            connection::serve(shared, io, peer).await;
            drop(place);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn places_are_limited_together_and_by_address_and_given_back() {
        let config = BrokerConfig {
            max_connections: 3,
            max_connections_per_ip: 2,
            ..BrokerConfig::default()
        };
        let connections = Connections::new(&config);
        let one = connections.take("a").unwrap();
        let two = connections.take("a").unwrap();
        assert_eq!(connections.take("a").unwrap_err(), NoPlace::Host);
        let other = connections.take("b").unwrap();
        assert_eq!(connections.take("c").unwrap_err(), NoPlace::All);
        drop(one);
        let again = connections.take("a").unwrap();
        drop((two, other, again));
        connections.all_ended().await;
        assert!(connections.hosts.lock().unwrap().is_empty());
        let unlimited = Connections::new(&BrokerConfig::default());
        let place = unlimited.take("a").unwrap();
        drop(place);
        unlimited.all_ended().await;
    }
}
