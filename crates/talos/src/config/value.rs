//! Values of configuration keys: their types, bounds and text forms.
//!
//! Every source (file, variable, flag) hands a value over as text or as a TOML scalar; [`Kind`]
//! turns it into a [`Value`] or says what would be right. Nothing is clamped silently.

use std::fmt;

use talos_common::{ByteSize, Period};

/// What a key takes, with its bounds. All bounds are inclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number.
    Int {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A number of bytes in one of Kafka's names: a plain number, or a typed size such as `64MiB`.
    Bytes {
        /// Smallest.
        min: i64,
        /// Largest.
        max: i64,
    },
    /// A time in one of Kafka's names, whose unit the name fixes: a plain number, or a typed
    /// duration such as `7d` if it is a whole number of units.
    Time {
        /// Milliseconds in one unit.
        unit_ms: i64,
        /// Smallest, in units.
        min: i64,
        /// Largest, in units.
        max: i64,
    },
    /// A size with a unit.
    Size {
        /// Smallest, in bytes.
        min: u64,
        /// Largest, in bytes.
        max: u64,
    },
    /// A duration with a unit.
    Period {
        /// Smallest, in milliseconds.
        min_ms: u64,
        /// Largest, in milliseconds.
        max_ms: u64,
    },
    /// One of these words.
    Choice(&'static [&'static str]),
    /// `HOST:PORT`; empty where that means "off" or "not set".
    Address {
        /// Whether an empty text is allowed.
        optional: bool,
    },
    /// A path.
    Path,
    /// Any text.
    Text,
}

/// A parsed value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Of [`Kind::Bool`].
    Bool(bool),
    /// Of [`Kind::Int`], [`Kind::Bytes`] and [`Kind::Time`] (in the unit of the name).
    Int(i64),
    /// Of [`Kind::Size`].
    Size(ByteSize),
    /// Of [`Kind::Period`].
    Period(Period),
    /// Of the kinds that are text.
    Text(String),
    /// No value: only where the default is empty and the kind is a number.
    Unset,
}

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool(value) => value.fmt(f),
            Self::Int(value) => value.fmt(f),
            Self::Size(value) => value.fmt(f),
            Self::Period(value) => value.fmt(f),
            Self::Text(value) => f.write_str(value),
            Self::Unset => Ok(()),
        }
    }
}

impl Kind {
    /// Parses `text`. The error says what would be right, as a sentence without a subject ("must
    /// be …").
    pub fn parse(&self, text: &str) -> Result<Value, String> {
        let text = text.trim();
        match *self {
            Self::Bool => match text {
                "true" => Ok(Value::Bool(true)),
                "false" => Ok(Value::Bool(false)),
                _ => Err("must be true or false".into()),
            },
            Self::Int { min, max } => within(text.parse().ok(), min, max, self),
            Self::Bytes { min, max } => {
                let typed = || text.parse::<ByteSize>().ok().and_then(|s| i64::try_from(s.0).ok());
                within(text.parse().ok().or_else(typed), min, max, self)
            }
            Self::Time { unit_ms, min, max } => {
                let typed = || {
                    let ms = i64::try_from(text.parse::<Period>().ok()?.0.as_millis()).ok()?;
                    (ms % unit_ms == 0).then_some(ms / unit_ms)
                };
                within(text.parse().ok().or_else(typed), min, max, self)
            }
            Self::Size { min, max } => match text.parse::<ByteSize>() {
                Ok(size) if (min..=max).contains(&size.0) => Ok(Value::Size(size)),
                _ => Err(format!("must be {}", self.expected())),
            },
            Self::Period { min_ms, max_ms } => match text.parse::<Period>() {
                Ok(period)
                    if (u128::from(min_ms)..=u128::from(max_ms))
                        .contains(&period.0.as_millis()) =>
                {
                    Ok(Value::Period(period))
                }
                _ => Err(format!("must be {}", self.expected())),
            },
            Self::Choice(words) => {
                let wanted = text.to_ascii_lowercase();
                match words.iter().find(|word| word.to_ascii_lowercase() == wanted) {
                    Some(word) => Ok(Value::Text((*word).into())),
                    None => Err(format!("must be {}", self.expected())),
                }
            }
            Self::Address { optional } => {
                if (text.is_empty() && optional) || split_address(text).is_some() {
                    Ok(Value::Text(text.into()))
                } else {
                    Err(format!("must be {}", self.expected()))
                }
            }
            Self::Path if text.is_empty() => Err("must not be empty".into()),
            Self::Path | Self::Text => Ok(Value::Text(text.into())),
        }
    }

    /// What the kind accepts, for messages and for the documentation.
    pub fn expected(&self) -> String {
        match *self {
            Self::Bool => "true or false".into(),
            Self::Int { min, max } => format!("a whole number {}", bounds(min, max)),
            Self::Bytes { min, max } => {
                format!("a number of bytes {}, or a size as in \"64MiB\"", bounds(min, max))
            }
            Self::Time { unit_ms, min, max } => {
                let unit = unit_name(unit_ms);
                let range = bounds(min, max);
                format!("a number of {unit} {range}, or a duration as in \"7d\"")
            }
            Self::Size { min, max } => {
                let (min, max) = (ByteSize(min), ByteSize(max));
                format!("a size from {min} to {max}, as in \"64MiB\"")
            }
            Self::Period { min_ms, max_ms } => {
                let (min, max) = (Period::ms(min_ms), Period::ms(max_ms));
                format!("a duration from {min} to {max}, as in \"10ms\"")
            }
            Self::Choice(words) => format!("one of {}", words.join(", ")),
            Self::Address { optional: false } => "HOST:PORT, as in 127.0.0.1:9092".into(),
            Self::Address { optional: true } => "HOST:PORT, as in 127.0.0.1:9092, or empty".into(),
            Self::Path => "a path".into(),
            Self::Text => "text".into(),
        }
    }

    /// The kind's name in listings.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Bool => "boolean",
            Self::Int { .. } => "int",
            Self::Bytes { .. } => "bytes",
            Self::Time { .. } => "time",
            Self::Size { .. } => "size",
            Self::Period { .. } => "duration",
            Self::Choice(_) => "choice",
            Self::Address { .. } => "address",
            Self::Path => "path",
            Self::Text => "text",
        }
    }
}

fn within(number: Option<i64>, min: i64, max: i64, kind: &Kind) -> Result<Value, String> {
    match number {
        Some(number) if (min..=max).contains(&number) => Ok(Value::Int(number)),
        _ => Err(format!("must be {}", kind.expected())),
    }
}

fn bounds(min: i64, max: i64) -> String {
    match max {
        i64::MAX => format!("from {min}"),
        max => format!("from {min} to {max}"),
    }
}

fn unit_name(unit_ms: i64) -> &'static str {
    match unit_ms {
        1 => "milliseconds",
        1_000 => "seconds",
        60_000 => "minutes",
        _ => "hours",
    }
}

/// Splits `host:port` or `[v6]:port`. `None` when there is no host, no port, or the port is not a
/// number below 65,536 (0 means: any free port).
pub fn split_address(text: &str) -> Option<(&str, u16)> {
    let (host, port) = text.rsplit_once(':')?;
    let bare = match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']')?,
        None if host.contains(':') => return None,
        None => host,
    };
    let fits = !bare.is_empty() && !bare.contains(char::is_whitespace) && bare.len() <= 255;
    let digits = !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit());
    if fits && digits { Some((bare, port.parse().ok()?)) } else { None }
}

/// How a typed field takes its value out of a [`Value`]. `None` means that the key's kind and the
/// field's type do not fit each other: a mistake in the table, which a test finds.
pub(crate) trait FromValue: Sized {
    fn from_value(value: &Value) -> Option<Self>;
}

macro_rules! from_value {
    ($($ty:ty: $pattern:pat => $take:expr;)*) => {$(
        impl FromValue for $ty {
            fn from_value(value: &Value) -> Option<Self> {
                match value {
                    $pattern => $take,
                    _ => None,
                }
            }
        }
    )*};
}

from_value! {
    bool: Value::Bool(value) => Some(*value);
    i64: Value::Int(value) => Some(*value);
    i32: Value::Int(value) => i32::try_from(*value).ok();
    i16: Value::Int(value) => i16::try_from(*value).ok();
    u32: Value::Int(value) => u32::try_from(*value).ok();
    ByteSize: Value::Size(value) => Some(*value);
    Period: Value::Period(value) => Some(*value);
    String: Value::Text(value) => Some(value.clone());
    std::path::PathBuf: Value::Text(value) => Some(value.into());
}

impl FromValue for Option<i64> {
    fn from_value(value: &Value) -> Option<Self> {
        match value {
            Value::Unset => Some(None),
            Value::Int(value) => Some(Some(*value)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn typed_and_plain_forms_are_read_and_nonsense_is_explained() {
        let bytes = Kind::Bytes { min: 0, max: i64::MAX };
        assert_eq!(bytes.parse("1048588"), Ok(Value::Int(1_048_588)));
        assert_eq!(bytes.parse("1MiB"), Ok(Value::Int(1 << 20)));
        assert!(bytes.parse("1MB").is_err());
        assert!(bytes.parse("-1").is_err());
        let minutes = Kind::Time { unit_ms: 60_000, min: 1, max: i64::MAX };
        assert_eq!(minutes.parse("7d"), Ok(Value::Int(10_080)));
        assert!(minutes.parse("90s").is_err(), "no whole number of minutes");
        assert!(minutes.parse("0").is_err());
        let size = Kind::Size { min: 1024, max: 1 << 30 };
        assert_eq!(size.parse("64MiB"), Ok(Value::Size(ByteSize::mib(64))));
        let error = size.parse("64").unwrap_err();
        assert_eq!(error, "must be a size from 1KiB to 1GiB, as in \"64MiB\"");
        assert!(size.parse("1B").is_err());
        let choice = Kind::Choice(&["CreateTime", "LogAppendTime"]);
        assert_eq!(choice.parse("logappendtime"), Ok(Value::Text("LogAppendTime".into())));
    }

    #[test]
    fn addresses_need_a_host_and_a_port() {
        for (text, host, port) in [
            ("127.0.0.1:9092", "127.0.0.1", 9092),
            ("[::1]:0", "::1", 0),
            ("a.b:65535", "a.b", 65535),
        ] {
            assert_eq!(split_address(text), Some((host, port)), "{text}");
        }
        for bad in ["", ":1", "a", "a:", "a:65536", "::1:5", "[::1:5", "a:+1", "a b:1"] {
            assert_eq!(split_address(bad), None, "{bad:?}");
        }
        assert!(Kind::Address { optional: true }.parse("").is_ok());
        assert!(Kind::Address { optional: false }.parse("").is_err());
    }
}
