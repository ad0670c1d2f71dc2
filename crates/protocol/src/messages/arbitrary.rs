//! Arbitrary messages for tests: every field that a version has gets a value from a seed.

use bytes::Bytes;

use crate::primitives::{Records, Str, Uuid};

/// Where values come from, and how many levels of arrays are still filled.
pub(crate) struct Generator {
    pub(crate) rng: fastrand::Rng,
    depth: u32,
}

impl Generator {
    pub(crate) fn new(seed: u64) -> Self {
        Self { rng: fastrand::Rng::with_seed(seed), depth: 0 }
    }

    fn text(&mut self) -> String {
        let length = self.rng.usize(..12);
        (0..length)
            .map(|_| if self.rng.u8(..8) == 0 { 'é' } else { self.rng.alphanumeric() })
            .collect()
    }
}

pub(crate) trait Arbitrary: Sized {
    fn arbitrary(g: &mut Generator, version: i16, nullable: bool) -> Self;
}

macro_rules! arbitrary_numbers {
    ($($ty:ident),*) => { $(
        impl Arbitrary for $ty {
            fn arbitrary(g: &mut Generator, _: i16, _: bool) -> Self {
                match g.rng.u8(..8) {
                    0 => Self::MIN,
                    1 => Self::MAX,
                    2 => 0,
                    _ => g.rng.$ty(..),
                }
            }
        }
    )* };
}

arbitrary_numbers!(i8, i16, u16, i32, i64);

impl Arbitrary for f64 {
    fn arbitrary(g: &mut Generator, _: i16, _: bool) -> Self {
        f64::from(g.rng.i32(..)) / 7.0
    }
}

impl Arbitrary for bool {
    fn arbitrary(g: &mut Generator, _: i16, _: bool) -> Self {
        g.rng.bool()
    }
}

impl Arbitrary for Str {
    fn arbitrary(g: &mut Generator, _: i16, _: bool) -> Self {
        Self::from(g.text())
    }
}

impl Arbitrary for Uuid {
    fn arbitrary(g: &mut Generator, _: i16, _: bool) -> Self {
        Self(g.rng.u128(..).to_be_bytes())
    }
}

impl Arbitrary for Bytes {
    fn arbitrary(g: &mut Generator, _: i16, _: bool) -> Self {
        let length = g.rng.usize(..200);
        (0..length).map(|_| g.rng.u8(..)).collect()
    }
}

impl Arbitrary for Records {
    fn arbitrary(g: &mut Generator, version: i16, _: bool) -> Self {
        let parts = g.rng.usize(..3);
        (0..parts).map(|_| Bytes::arbitrary(g, version, false)).collect::<Vec<_>>().into()
    }
}

impl<T: Arbitrary> Arbitrary for Vec<T> {
    fn arbitrary(g: &mut Generator, version: i16, _: bool) -> Self {
        g.depth += 1;
        let most = if g.depth < 3 { 4 } else { 3 };
        let count = g.rng.usize(..most);
        let all = (0..count).map(|_| T::arbitrary(g, version, false)).collect();
        g.depth -= 1;
        all
    }
}

impl<T: Arbitrary> Arbitrary for Option<T> {
    fn arbitrary(g: &mut Generator, version: i16, nullable: bool) -> Self {
        (!nullable || g.rng.u8(..4) > 0).then(|| T::arbitrary(g, version, false))
    }
}
