//! Typed sizes and durations for configuration: `"64MiB"`, `"10ms"`.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A number of bytes. Text form: a whole number and one of `B`, `KiB`, `MiB`, `GiB`, `TiB`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ByteSize(pub u64);

/// A length of time. Text form: a whole number and one of `ms`, `s`, `min`, `h`, `d`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Period(pub Duration);

/// A text that is no size or no duration; says what would be.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseUnitError {
    /// Not a byte size.
    #[error(
        "{0:?} is not a size: write a whole number and B, KiB, MiB, GiB or TiB, as in \"64MiB\""
    )]
    Size(String),
    /// Not a duration.
    #[error("{0:?} is not a duration: write a whole number and ms, s, min, h or d, as in \"10ms\"")]
    Period(String),
}

const SIZE_UNITS: [(&str, u64); 5] =
    [("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10), ("B", 1)];
const PERIOD_UNITS: [(&str, u64); 5] =
    [("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000), ("ms", 1)];

impl ByteSize {
    /// `n` KiB.
    pub const fn kib(n: u64) -> Self {
        Self(n << 10)
    }

    /// `n` MiB.
    pub const fn mib(n: u64) -> Self {
        Self(n << 20)
    }

    /// The size as a length in memory; saturates where `usize` is smaller.
    pub fn as_usize(self) -> usize {
        usize::try_from(self.0).unwrap_or(usize::MAX)
    }
}

impl Period {
    /// `n` milliseconds.
    pub const fn ms(n: u64) -> Self {
        Self(Duration::from_millis(n))
    }

    /// `n` seconds.
    pub const fn secs(n: u64) -> Self {
        Self(Duration::from_secs(n))
    }
}

/// Splits `12MiB` into the number and the factor of its unit; `None` for everything else.
fn parse(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at_checked(digits)?;
    let factor = units.iter().find(|(name, _)| *name == unit.trim())?.1;
    number.parse::<u64>().ok()?.checked_mul(factor)
}

/// The largest unit that divides `value`.
fn format(value: u64, units: &[(&str, u64)], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let exact = units.iter().find(|(_, factor)| value >= *factor && value.is_multiple_of(*factor));
    match exact.or(units.last()) {
        Some((unit, factor)) => write!(f, "{}{unit}", value / factor),
        None => write!(f, "{value}"),
    }
}

impl FromStr for ByteSize {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse(text, &SIZE_UNITS).map(Self).ok_or_else(|| ParseUnitError::Size(text.into()))
    }
}

impl FromStr for Period {
    type Err = ParseUnitError;

    fn from_str(text: &str) -> Result<Self, ParseUnitError> {
        parse(text, &PERIOD_UNITS)
            .map(|ms| Self(Duration::from_millis(ms)))
            .ok_or_else(|| ParseUnitError::Period(text.into()))
    }
}

impl fmt::Display for ByteSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format(self.0, &SIZE_UNITS, f)
    }
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        format(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX), &PERIOD_UNITS, f)
    }
}

macro_rules! via_string {
    ($($kind:ident),*) => {$(
        impl TryFrom<String> for $kind {
            type Error = ParseUnitError;
            fn try_from(text: String) -> Result<Self, ParseUnitError> {
                text.parse()
            }
        }
        impl From<$kind> for String {
            fn from(value: $kind) -> String {
                value.to_string()
            }
        }
    )*};
}
via_string!(ByteSize, Period);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_periods_round_trip_and_nonsense_is_refused() {
        for text in ["0B", "1B", "1025B", "64MiB", "3GiB"] {
            assert_eq!(text.parse::<ByteSize>().unwrap().to_string(), text);
        }
        for text in ["0ms", "10ms", "90s", "5min", "7d"] {
            assert_eq!(text.parse::<Period>().unwrap().to_string(), text);
        }
        for bad in ["", "64", "MiB", "-1B", "1.5MiB", "64MB", "99999999999999TiB"] {
            assert!(bad.parse::<ByteSize>().is_err(), "{bad:?}");
        }
        assert!("10".parse::<Period>().is_err());
    }
}
