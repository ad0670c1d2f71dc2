//! The network between clients and the broker: pipes in memory that delay, chop and cut, and readers
//! that are slow. All chance is seeded, all time virtual.
//!
//! A connection is two pipes with a task between them. When the broker's process ends, its ends of the
//! pipes are gone and the client sees a closed connection, as with a real kernel.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use talos_common::{Clock, Env, Rng, Tasks};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf};

/// Takes the broker's end of a new connection.
pub type Accept = Arc<dyn Fn(DuplexStream) + Send + Sync>;

/// How bad the network is, in a million pieces carried, where not said otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetFaults {
    /// Pieces at which the connection is cut.
    pub cut: u32,
    /// Pieces that take up to a second.
    pub delay: u32,
    /// Pieces that are as small as a few bytes.
    pub chop: u32,
    /// Of a million connections: the client reads only now and then.
    pub slow_reader: u32,
}

/// What really happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NetCounts {
    /// Connections cut.
    pub cuts: u64,
    /// Pieces that were late.
    pub delays: u64,
    /// Small pieces.
    pub chops: u64,
    /// Connections with a slow reader.
    pub slow_readers: u64,
    /// Connections refused because no broker ran.
    pub refused: u64,
}

/// The network. Clones are the same one.
#[derive(Clone)]
pub struct Network {
    clock: Clock,
    rng: Rng,
    tasks: Tasks,
    state: Arc<Mutex<State>>,
}

#[derive(Default)]
struct State {
    accept: Option<Accept>,
    faults: NetFaults,
    counts: NetCounts,
}

impl std::fmt::Debug for Network {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Network")
    }
}

/// What happens to one piece.
struct Fate {
    bytes: usize,
    wait: Duration,
    cut: bool,
}

impl Network {
    /// A perfect network without a broker. Its tasks belong to `env`.
    pub fn new(env: &Env) -> Self {
        let (clock, rng, tasks) = (env.clock.clone(), env.rng.fork(), env.tasks.clone());
        Self { clock, rng, tasks, state: Arc::default() }
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who takes connections from now on; `None`: nobody.
    pub fn listen(&self, accept: Option<Accept>) {
        self.with(|state| state.accept = accept);
    }

    /// Sets how bad it is.
    pub fn set_faults(&self, faults: NetFaults) {
        self.with(|state| state.faults = faults);
    }

    /// What happened so far.
    pub fn counts(&self) -> NetCounts {
        self.with(|state| state.counts)
    }

    /// The client's end of a new connection, or `None` when nobody listens.
    pub fn connect(&self) -> Option<DuplexStream> {
        let rng = &self.rng;
        let (accept, slow) = self.with(|state| {
            if state.accept.is_none() {
                state.counts.refused += 1;
            }
            let slow = rng.chance(state.faults.slow_reader);
            state.counts.slow_readers += u64::from(slow);
            (state.accept.clone(), slow)
        });
        let accept = accept?;
        let pipe_bytes = 1 << self.rng.usize(9..15);
        let (client, near) = tokio::io::duplex(pipe_bytes);
        let (far, server) = tokio::io::duplex(pipe_bytes);
        let network = self.clone();
        self.tasks.spawn("connection", async move {
            let (near_read, near_write) = tokio::io::split(near);
            let (far_read, far_write) = tokio::io::split(far);
            tokio::select! {
                biased;
                () = network.carry(near_read, far_write, false) => {}
                () = network.carry(far_read, near_write, slow) => {}
            }
        });
        accept(server);
        Some(client)
    }

    fn fate(&self, slow: bool) -> Fate {
        let rng = &self.rng;
        self.with(|State { faults, counts, .. }| {
            let mut fate = Fate {
                bytes: 16 << 10,
                wait: Duration::from_micros(rng.u64(20..400)),
                cut: rng.chance(faults.cut),
            };
            counts.cuts += u64::from(fate.cut);
            if rng.chance(faults.chop) {
                counts.chops += 1;
                fate.bytes = rng.usize(1..40);
            }
            if rng.chance(faults.delay) {
                counts.delays += 1;
                fate.wait = Duration::from_millis(rng.u64(10..1_000));
            }
            if slow {
                fate.wait += Duration::from_millis(rng.u64(5..120));
                fate.bytes = fate.bytes.min(512);
            }
            fate
        })
    }

    /// Carries bytes one way until either end closes or the connection is cut.
    async fn carry(
        &self,
        mut from: ReadHalf<DuplexStream>,
        mut to: WriteHalf<DuplexStream>,
        slow: bool,
    ) {
        let mut buffer = vec![0; 16 << 10];
        loop {
            let fate = self.fate(slow);
            let room = buffer.get_mut(..fate.bytes).unwrap_or_default();
            let read = match from.read(room).await {
                Ok(0) | Err(_) => return,
                Ok(read) => read,
            };
            self.clock.sleep(fate.wait).await;
            if fate.cut {
                // Maybe a part of it arrived.
                let part = buffer.get(..self.rng.usize(0..=read)).unwrap_or_default();
                let _ = to.write_all(part).await;
                return;
            }
            if to.write_all(buffer.get(..read).unwrap_or_default()).await.is_err() {
                return;
            }
        }
    }
}
