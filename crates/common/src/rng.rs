//! The only source of chance: seeded, so that a run can be repeated.

use std::sync::{Arc, Mutex, PoisonError};

/// A random number generator. Clones draw from the same sequence; [`Rng::fork`] starts another.
/// Not for secrets.
#[derive(Clone, Debug)]
pub struct Rng {
    inner: Arc<Mutex<fastrand::Rng>>,
}

impl Rng {
    /// The sequence of `seed`.
    pub fn from_seed(seed: u64) -> Self {
        Self { inner: Arc::new(Mutex::new(fastrand::Rng::with_seed(seed))) }
    }

    /// A sequence that nobody can foretell.
    #[allow(clippy::disallowed_methods, reason = "the one place that draws a seed from the system")]
    pub fn from_entropy() -> Self {
        Self { inner: Arc::new(Mutex::new(fastrand::Rng::new())) }
    }

    /// Another generator, whose sequence depends on this one's next value.
    pub fn fork(&self) -> Self {
        Self::from_seed(self.u64(..))
    }

    fn with<T>(&self, draw: impl FnOnce(&mut fastrand::Rng) -> T) -> T {
        draw(&mut self.inner.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A number in `range`. Panics on an empty range.
    pub fn u64(&self, range: impl std::ops::RangeBounds<u64>) -> u64 {
        self.with(|rng| rng.u64(range))
    }

    /// A number in `range`. Panics on an empty range.
    pub fn usize(&self, range: impl std::ops::RangeBounds<usize>) -> usize {
        self.with(|rng| rng.usize(range))
    }

    /// True with a probability of `per_million` in a million.
    pub fn chance(&self, per_million: u32) -> bool {
        self.with(|rng| rng.u32(..1_000_000)) < per_million
    }

    /// 16 random bytes in the form of a version 4 UUID (RFC 9562), for topic and cluster ids.
    pub fn uuid_v4(&self) -> [u8; 16] {
        let mut bytes = self.with(|rng| rng.u128(..)).to_be_bytes();
        bytes[6] = (bytes[6] & 0x0f) | 0x40;
        bytes[8] = (bytes[8] & 0x3f) | 0x80;
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let draw = |seed| {
            let rng = Rng::from_seed(seed);
            let fork = rng.fork();
            (rng.u64(..), fork.u64(..), rng.uuid_v4())
        };
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
        assert_eq!(draw(3).2[6] >> 4, 4);
    }
}
