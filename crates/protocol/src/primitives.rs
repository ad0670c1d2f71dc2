//! The primitive types of the protocol: strings and records that are slices of a frame, and UUIDs
//! in Kafka's text form.

use std::borrow::Borrow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::str::FromStr;

use bytes::{Bytes, BytesMut};
use thiserror::Error;

/// An immutable UTF-8 string that is usually a slice of a received frame. Cloning is cheap and
/// keeps the whole frame alive: use [`Str::detached`] for what outlives the request.
#[derive(Clone, Default)]
pub struct Str(Bytes);

impl Str {
    /// A string without memory of its own.
    #[must_use]
    pub const fn from_static(text: &'static str) -> Self {
        Self(Bytes::from_static(text.as_bytes()))
    }

    /// `bytes` as a string, without copying; `None` if they are not UTF-8.
    #[must_use]
    pub fn from_utf8(bytes: Bytes) -> Option<Self> {
        std::str::from_utf8(&bytes).is_ok().then_some(Self(bytes))
    }

    /// The text. Checked as UTF-8 once more, because the workspace has no `unsafe`.
    #[must_use]
    pub fn as_str(&self) -> &str {
        // The constructors let only UTF-8 in, so the default is never taken.
        std::str::from_utf8(&self.0).unwrap_or_default()
    }

    /// The text as bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &Bytes {
        &self.0
    }

    /// A copy that shares no memory with the frame it came from.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
    }
}

impl Deref for Str {
    type Target = str;

    fn deref(&self) -> &str {
        self.as_str()
    }
}

impl AsRef<str> for Str {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl Borrow<str> for Str {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl From<&'static str> for Str {
    fn from(text: &'static str) -> Self {
        Self::from_static(text)
    }
}

impl From<String> for Str {
    fn from(text: String) -> Self {
        Self(Bytes::from(text))
    }
}

impl From<Str> for String {
    fn from(text: Str) -> Self {
        text.as_str().to_owned()
    }
}

// Equality and order of UTF-8 text are those of its bytes; the hash must be that of `str`, because
// of `Borrow<str>`.
impl PartialEq for Str {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for Str {}

impl PartialEq<str> for Str {
    fn eq(&self, other: &str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialEq<&str> for Str {
    fn eq(&self, other: &&str) -> bool {
        self.0 == other.as_bytes()
    }
}

impl PartialOrd for Str {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Str {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.cmp(&other.0)
    }
}

impl Hash for Str {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_str().hash(state);
    }
}

impl fmt::Debug for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

impl fmt::Display for Str {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self.as_str(), f)
    }
}

/// A UUID, as topics and directories have one. Its text form is Kafka's: 22 characters of base64
/// with the URL alphabet, without padding.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// A text is not a UUID in Kafka's form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("not a UUID: expected 22 characters of URL-safe base64")]
pub struct InvalidUuid;

const BASE64URL: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

impl Uuid {
    /// All bits zero: "no UUID" in most fields.
    pub const ZERO: Self = Self([0; 16]);

    /// Whether this is [`Uuid::ZERO`].
    #[must_use]
    pub fn is_zero(&self) -> bool {
        *self == Self::ZERO
    }

    /// The 16 bytes, most significant first.
    #[must_use]
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl From<[u8; 16]> for Uuid {
    fn from(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 128 bits are 21 digits of six bits and one of two bits, which stands in the high bits.
        let bits = u128::from_be_bytes(self.0);
        let mut text = String::with_capacity(22);
        for digit in 0..22_u32 {
            let six = if digit < 21 { bits >> (122 - 6 * digit) } else { bits << 4 } & 0x3f;
            let index = usize::try_from(six).unwrap_or_default();
            text.push(BASE64URL.get(index).copied().map_or('A', char::from));
        }
        f.pad(&text)
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Uuid {
    type Err = InvalidUuid;

    fn from_str(text: &str) -> Result<Self, InvalidUuid> {
        // Kafka also takes padding.
        let text = text.trim_end_matches('=').as_bytes();
        if text.len() != 22 {
            return Err(InvalidUuid);
        }
        let mut bits: u128 = 0;
        for (position, byte) in text.iter().enumerate() {
            let index = BASE64URL.iter().position(|b| b == byte).ok_or(InvalidUuid)?;
            let six = u128::try_from(index).map_err(|_| InvalidUuid)?;
            bits = if position < 21 { bits << 6 | six } else { bits << 2 | six >> 4 };
        }
        Ok(Self(bits.to_be_bytes()))
    }
}

/// Record batches as they go over the wire: a chain of slices that the codec neither looks into
/// nor copies. Decoding gives one slice of the frame.
#[derive(Clone, Default)]
pub struct Records(Vec<Bytes>);

impl Records {
    /// No records: zero bytes, which is not the same as null.
    #[must_use]
    pub const fn new() -> Self {
        Self(Vec::new())
    }

    /// Adds a slice at the end.
    pub fn push(&mut self, part: Bytes) {
        if !part.is_empty() {
            self.0.push(part);
        }
    }

    /// Length in bytes of all slices together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether there are no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// The slices, in order.
    #[must_use]
    pub fn parts(&self) -> &[Bytes] {
        &self.0
    }

    /// All bytes as one slice: free if there is one part (always so after decoding), else a copy.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.0.as_slice() {
            [] => Bytes::new(),
            [one] => one.clone(),
            many => {
                let mut all = BytesMut::with_capacity(self.len());
                for part in many {
                    all.extend_from_slice(part);
                }
                all.freeze()
            }
        }
    }
}

impl From<Bytes> for Records {
    fn from(part: Bytes) -> Self {
        let mut records = Self::new();
        records.push(part);
        records
    }
}

impl From<Vec<Bytes>> for Records {
    fn from(parts: Vec<Bytes>) -> Self {
        Self(parts)
    }
}

/// Equal bytes, however they are cut into slices.
impl PartialEq for Records {
    fn eq(&self, other: &Self) -> bool {
        self.len() == other.len() && self.to_bytes() == other.to_bytes()
    }
}

impl Eq for Records {}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Records({} bytes in {} parts)", self.len(), self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn uuids_have_kafkas_text_form() {
        // The text is what Kafka's Java class makes of the same bits.
        let one = Uuid(1_u128.to_be_bytes());
        assert_eq!(one.to_string(), "AAAAAAAAAAAAAAAAAAAAAQ");
        assert_eq!(Uuid::ZERO.to_string(), "AAAAAAAAAAAAAAAAAAAAAA");
        assert_eq!(Uuid([0xff; 16]).to_string(), "_____________________w");
        assert_eq!("AAAAAAAAAAAAAAAAAAAAAQ==".parse(), Ok(one));
        for bad in ["", "AAAA", "AAAAAAAAAAAAAAAAAAAAA+", "AAAAAAAAAAAAAAAAAAAAAAA"] {
            assert_eq!(bad.parse::<Uuid>(), Err(InvalidUuid), "{bad}");
        }
    }

    proptest::proptest! {
        #[test]
        fn uuids_come_back_from_text(bytes: [u8; 16]) {
            let uuid = Uuid(bytes);
            proptest::prop_assert_eq!(uuid.to_string().parse(), Ok(uuid));
        }

        #[test]
        fn strings_compare_like_str(a: String, b: String) {
            let (x, y) = (Str::from(a.clone()), Str::from(b.clone()));
            proptest::prop_assert_eq!(x.cmp(&y), a.cmp(&b));
            proptest::prop_assert_eq!(x == y, a == b);
            let map = HashMap::from([(x, 1)]);
            proptest::prop_assert_eq!(map.get(a.as_str()), Some(&1));
        }
    }

    #[test]
    fn records_are_equal_however_they_are_cut() {
        let whole = Records::from(Bytes::from_static(b"abcd"));
        let cut = Records::from(vec![Bytes::from_static(b"a"), Bytes::from_static(b"bcd")]);
        assert_eq!(whole, cut);
        assert_ne!(whole, Records::new());
        assert!(Records::from(Bytes::new()).is_empty());
    }
}
