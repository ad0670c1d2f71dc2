//! One persistent record per broker id: which broker epoch it has, and whether that is alive.
//!
//! Invariants [E-W5]: a broker epoch only rises; «(id, epoch) is dead» holds when the record says so or
//! has a higher epoch, and then for ever. So a read that shows it needs no check later. A dead epoch cannot
//! register again: the process goes on as a new one.

use bytes::Bytes;
use talos_common::{BrokerDir, BrokerEpoch, BrokerId};

use crate::codec::{Decoder, Encoder};
use crate::settle::{Settled, settle};
use crate::store::{Error, Node, Op, Result, Version};
use crate::{CONTENTION_ROUNDS, Meta, contended, paths};

/// A broker id's record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broker {
    /// The newest epoch that registered.
    pub epoch: BrokerEpoch,
    /// Whether that epoch was not marked dead.
    pub alive: bool,
    /// Drawn at registration, so that an unknown outcome can be told from another process with the
    /// same epoch.
    pub incarnation: u64,
    /// What epochs that stopped cleanly left (the ends of their lanes, E-J15), oldest first. Opaque
    /// here. Kept over later registrations, until [`Meta::forget_clean_stop`].
    pub clean_stops: Vec<(BrokerEpoch, Bytes)>,
}

/// What [`Meta::register`] found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// The record before; `None` for a new broker id. Its epoch is dead now.
    pub previous: Option<Broker>,
}

/// Why a broker epoch could not register or be marked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BrokerError {
    /// This epoch, or a higher one, registered before. Go on as a new broker epoch.
    #[error("broker epoch {dir} cannot register: epoch {} is registered", .current.epoch)]
    Superseded {
        /// Which.
        dir: BrokerDir,
        /// The record that stands in the way.
        current: Broker,
    },
    /// The store; `Uncertain` in a registration means: go on as a new broker epoch [E-H4].
    #[error(transparent)]
    Store(#[from] Error),
}

/// The most bytes of one clean stop.
pub const CLEAN_STOP_BYTES: usize = 64 * 1024;
/// How many clean stops are kept; the oldest go first, and with them only the detection of E-J15.
const CLEAN_STOPS: usize = 8;
const RECORD_VERSION: u8 = 1;

impl Broker {
    /// The stored form.
    pub fn encode(&self) -> Bytes {
        let mut out = Encoder::new(RECORD_VERSION);
        out.u64(self.epoch.0);
        out.u8(u8::from(self.alive));
        out.u64(self.incarnation);
        out.len(self.clean_stops.len());
        for (epoch, stop) in &self.clean_stops {
            out.u64(epoch.0);
            out.bytes(stop);
        }
        out.finish()
    }

    /// Reads the stored form, found at `path`. `Corrupt` when it is none.
    pub fn decode(path: &str, bytes: &[u8]) -> Result<Self> {
        let mut input = Decoder::new("broker record", path, bytes, RECORD_VERSION)?;
        let epoch = BrokerEpoch(input.u64()?);
        let alive = match input.u8()? {
            0 => false,
            1 => true,
            _ => return Err(input.corrupt("neither alive nor dead")),
        };
        let incarnation = input.u64()?;
        let mut clean_stops = Vec::new();
        for _ in 0..input.count(12)? {
            let epoch = BrokerEpoch(input.u64()?);
            clean_stops.push((epoch, Bytes::copy_from_slice(input.bytes()?)));
        }
        input.finish()?;
        Ok(Self { epoch, alive, incarnation, clean_stops })
    }

    /// Whether `epoch` of this broker id is dead, for ever.
    pub fn is_dead(&self, epoch: BrokerEpoch) -> bool {
        self.epoch > epoch || (self.epoch == epoch && !self.alive)
    }

    /// What `epoch` left when it stopped cleanly.
    pub fn clean_stop(&self, epoch: BrokerEpoch) -> Option<&Bytes> {
        self.clean_stops.iter().find(|(of, _)| *of == epoch).map(|(_, stop)| stop)
    }
}

pub(crate) fn broker_path(id: BrokerId) -> String {
    format!("{}/{id}", paths::BROKERS)
}

impl Meta {
    /// The record of a broker id and its version.
    pub async fn broker(&self, id: BrokerId) -> Result<Option<(Broker, Version)>> {
        let path = broker_path(id);
        let decode = |node: Node| Ok((Broker::decode(&path, &node.value)?, node.version));
        self.store.get(&path).await?.map(decode).transpose()
    }

    /// All broker records, by id.
    pub async fn brokers(&self) -> Result<Vec<(BrokerId, Broker)>> {
        let mut brokers = Vec::new();
        for (name, node) in self.store.read_children(paths::BROKERS).await? {
            let path = format!("{}/{name}", paths::BROKERS);
            let id =
                name.parse().map_err(|_| Error::Corrupt(format!("{path}: not a broker id")))?;
            brokers.push((BrokerId(id), Broker::decode(&path, &node.value)?));
        }
        brokers.sort_by_key(|(id, _)| *id);
        Ok(brokers)
    }

    /// The lowest epoch that `id` may register next. A higher one may be used too, and must be
    /// when making the directory of this one had an unknown outcome [E-H4].
    pub async fn next_epoch(&self, id: BrokerId) -> Result<BrokerEpoch> {
        self.store.sync().await?;
        let last = self.broker(id).await?.map_or(0, |(broker, _)| broker.epoch.0);
        match last.checked_add(1) {
            Some(next) => Ok(BrokerEpoch(next)),
            None => Err(Error::Corrupt(format!("{}: no epoch is left", broker_path(id)))),
        }
    }

    /// Registers `dir` as alive. From then on every earlier epoch of this broker id is dead. The directory
    /// must exist already, made by this process [E-H4].
    pub async fn register(&self, dir: BrokerDir) -> Result<Registered, BrokerError> {
        if dir.broker.0 < 0 || dir.epoch.0 == 0 {
            return Err(Error::Invalid(format!("{dir} is not a broker directory")).into());
        }
        let path = broker_path(dir.broker);
        let incarnation = self.env.rng.u64(..);
        for _ in 0..CONTENTION_ROUNDS {
            let found = self.broker(dir.broker).await?;
            let (previous, version) = found.unzip();
            let mut clean_stops = Vec::new();
            if let Some(current) = previous.clone() {
                if current.epoch >= dir.epoch {
                    return Err(BrokerError::Superseded { dir, current });
                }
                clean_stops = current.clean_stops;
            }
            let record = Broker { epoch: dir.epoch, alive: true, incarnation, clean_stops };
            let (path, value) = (path.clone(), record.encode());
            let op = match version {
                Some(version) => Op::Set { path, value, version },
                None => Op::Create { path, value, ephemeral: false },
            };
            if let Settled::Applied(_) = settle(&*self.store, &self.env.clock, &[op]).await? {
                return Ok(Registered { previous });
            }
        }
        Err(contended(&path).into())
    }

    /// Marks `dir` dead, for ever. Fine when it is dead already; then `clean_stop` is dropped, unless
    /// this very stop is being repeated. A clean stop is at most [`CLEAN_STOP_BYTES`].
    pub async fn mark_dead(&self, dir: BrokerDir, clean_stop: Option<Bytes>) -> Result<()> {
        let path = broker_path(dir.broker);
        if clean_stop.as_ref().is_some_and(|stop| stop.len() > CLEAN_STOP_BYTES) {
            return Err(Error::Invalid(format!(
                "clean stop of {dir} over {CLEAN_STOP_BYTES} bytes"
            )));
        }
        for _ in 0..CONTENTION_ROUNDS {
            let unknown = || Error::Invalid(format!("{dir} never registered"));
            let (mut broker, version) = self.broker(dir.broker).await?.ok_or_else(unknown)?;
            if broker.is_dead(dir.epoch) {
                return Ok(());
            }
            if broker.epoch < dir.epoch {
                return Err(unknown());
            }
            broker.alive = false;
            if let Some(stop) = clean_stop.clone() {
                broker.clean_stops.push((dir.epoch, stop));
                let excess = broker.clean_stops.len().saturating_sub(CLEAN_STOPS);
                broker.clean_stops.drain(..excess);
            }
            let op = Op::Set { path: path.clone(), value: broker.encode(), version };
            if let Settled::Applied(_) = settle(&*self.store, &self.env.clock, &[op]).await? {
                return Ok(());
            }
        }
        Err(contended(&path))
    }

    /// Whether `dir` is dead, for ever. A broker id without a record is not: nothing is concluded from
    /// absence (E-W3).
    pub async fn is_dead(&self, dir: BrokerDir) -> Result<bool> {
        Ok(self.broker(dir.broker).await?.is_some_and(|(broker, _)| broker.is_dead(dir.epoch)))
    }

    /// Drops what `dir` left when it stopped, after its directory was deleted.
    pub async fn forget_clean_stop(&self, dir: BrokerDir) -> Result<()> {
        let path = broker_path(dir.broker);
        for _ in 0..CONTENTION_ROUNDS {
            let Some((mut broker, version)) = self.broker(dir.broker).await? else { return Ok(()) };
            if broker.clean_stop(dir.epoch).is_none() {
                return Ok(());
            }
            broker.clean_stops.retain(|(epoch, _)| *epoch != dir.epoch);
            let op = Op::Set { path: path.clone(), value: broker.encode(), version };
            if let Settled::Applied(_) = settle(&*self.store, &self.env.clock, &[op]).await? {
                return Ok(());
            }
        }
        Err(contended(&path))
    }
}
