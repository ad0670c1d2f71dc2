//! The codec core: a bounded [`Decoder`] over one received frame and an [`Encoder`] that builds an
//! answer as a chain of buffers.
//!
//! Invariants of decoding, on any input: no panic; a count or length is compared with the bytes
//! that remain before anything is reserved; what arrays may allocate comes out of one budget per
//! frame. Invariants of encoding: linked bytes are never copied; the length in front of a frame is
//! right or there is an error.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use thiserror::Error;

use crate::primitives::Records;

/// What arrays of one frame may allocate at least, in bytes, however short the frame is. Short
/// frames of tiny elements (empty strings, empty arrays) need more than [`BUDGET_FACTOR`] allows.
pub const BUDGET_FLOOR: usize = 256 * 1024;
/// What arrays of one frame may allocate, as a multiple of the frame's length.
pub const BUDGET_FACTOR: usize = 16;
/// What arrays of one frame may allocate at most, in bytes.
pub const BUDGET_CEILING: usize = 64 * 1024 * 1024;
/// An array reserves room for at most this many elements before it has seen them.
const RESERVE_AT_MOST: usize = 1024;

/// Why bytes could not be decoded, with the field where that happened, if it was inside one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("{kind}{}", field.map(|f| format!(" (field {f})")).unwrap_or_default())]
pub struct DecodeError {
    /// What was wrong.
    pub kind: DecodeErrorKind,
    /// The innermost field that was being decoded, in snake case.
    pub field: Option<&'static str>,
}

/// What was wrong with the bytes of a [`DecodeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum DecodeErrorKind {
    /// The frame ends before the value does.
    #[error("needs {needed} bytes where {remaining} remain")]
    Truncated {
        /// Bytes that the value needs.
        needed: usize,
        /// Bytes that were left in the frame.
        remaining: usize,
    },
    /// A length below -1, or one that does not fit.
    #[error("invalid length {0}")]
    InvalidLength(i64),
    /// Null where this version of the message does not allow it.
    #[error("null is not allowed here")]
    UnexpectedNull,
    /// A string that is not UTF-8.
    #[error("string is not UTF-8")]
    InvalidUtf8,
    /// A variable-length integer with too many bits.
    #[error("variable-length integer is too long")]
    InvalidVarint,
    /// Legal so far, but decoding would need more memory than a frame of this length may use.
    #[error("decoding needs more memory than a frame of this length may use")]
    OverBudget,
    /// A tagged field whose content is not as long as it says.
    #[error("tagged field {0} is longer than its content")]
    TaggedFieldLength(u32),
    /// A marker byte of a nullable structure that is neither 1 nor -1.
    #[error("invalid null marker {0}")]
    InvalidNullMarker(i8),
    /// The message is not described for this version.
    #[error("version {0} is not supported")]
    UnsupportedVersion(i16),
    /// Bytes are left over after the message.
    #[error("{0} bytes are left over after the message")]
    TrailingBytes(usize),
}

impl From<DecodeErrorKind> for DecodeError {
    fn from(kind: DecodeErrorKind) -> Self {
        Self { kind, field: None }
    }
}

impl DecodeError {
    /// The same error, in field `name` unless an inner field is known already.
    #[must_use]
    pub fn in_field(mut self, name: &'static str) -> Self {
        self.field.get_or_insert(name);
        self
    }
}

/// Why a value could not be encoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum EncodeError {
    /// The message is not described for this version.
    #[error("{message} has no version {version}")]
    UnsupportedVersion {
        /// Name of the message.
        message: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// A field that this version lacks and that must not be dropped has a value.
    #[error("field {field} is set, but version {version} does not have it")]
    FieldNotInVersion {
        /// Name of the field, in snake case.
        field: &'static str,
        /// The version asked for.
        version: i16,
    },
    /// Null where this version does not allow it.
    #[error("null is not allowed here in this version")]
    UnexpectedNull,
    /// A string, byte field or array is longer than its length field can say.
    #[error("a value of length {0} is too long for its length field")]
    TooLong(usize),
    /// The frame is longer than 2^31 - 1 bytes.
    #[error("a frame of {0} bytes is too long")]
    FrameTooLong(usize),
}

/// How values of one message are laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Version of the message.
    pub version: i16,
    /// Whether this version has compact lengths and tagged fields (KIP-482).
    pub flexible: bool,
}

/// Reads one frame front to back.
///
/// Slices that it hands out share the frame's memory. Array memory is charged to a budget of
/// max([`BUDGET_FACTOR`] × frame length, [`BUDGET_FLOOR`]), at most [`BUDGET_CEILING`].
#[derive(Debug)]
pub struct Decoder {
    buf: Bytes,
    budget: usize,
}

impl Decoder {
    /// A decoder at the start of `frame`, with the budget that a frame of this length has.
    #[must_use]
    pub fn new(frame: Bytes) -> Self {
        let budget = frame.len().saturating_mul(BUDGET_FACTOR).clamp(BUDGET_FLOOR, BUDGET_CEILING);
        Self { buf: frame, budget }
    }

    /// Bytes not read yet.
    #[must_use]
    pub fn remaining(&self) -> usize {
        self.buf.len()
    }

    /// Bytes that arrays may still allocate.
    #[must_use]
    pub fn budget(&self) -> usize {
        self.budget
    }

    /// Ends decoding.
    ///
    /// # Errors
    /// [`DecodeErrorKind::TrailingBytes`] if anything was not read.
    pub fn finish(self) -> Result<(), DecodeError> {
        match self.buf.len() {
            0 => Ok(()),
            n => Err(DecodeErrorKind::TrailingBytes(n).into()),
        }
    }

    /// Takes the next `n` bytes as a slice of the frame.
    ///
    /// # Errors
    /// [`DecodeErrorKind::Truncated`] if fewer remain; then nothing is taken.
    pub fn take(&mut self, n: usize) -> Result<Bytes, DecodeError> {
        self.need(n)?;
        Ok(self.buf.split_to(n))
    }

    fn need(&self, needed: usize) -> Result<(), DecodeError> {
        let remaining = self.buf.len();
        if remaining < needed {
            return Err(DecodeErrorKind::Truncated { needed, remaining }.into());
        }
        Ok(())
    }

    /// Takes `bytes` out of the budget.
    ///
    /// # Errors
    /// [`DecodeErrorKind::OverBudget`] if less is left.
    fn charge(&mut self, bytes: usize) -> Result<(), DecodeError> {
        self.budget = self.budget.checked_sub(bytes).ok_or(DecodeErrorKind::OverBudget)?;
        Ok(())
    }

    /// Reads an unsigned varint of at most 32 bits.
    ///
    /// # Errors
    /// Truncated, or more than 32 bits.
    pub fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value: u32 = 0;
        for shift in [0_u32, 7, 14, 21, 28] {
            let byte = self.u8()?;
            let bits = u32::from(byte & 0x7f);
            if shift == 28 && bits > 0x0f {
                return Err(DecodeErrorKind::InvalidVarint.into());
            }
            value |= bits << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeErrorKind::InvalidVarint.into())
    }

    /// Reads a length in the form that a layout has: `None` is null.
    fn length(&mut self, raw: i64) -> Result<Option<usize>, DecodeError> {
        match raw {
            -1 => Ok(None),
            n => {
                let n = usize::try_from(n).map_err(|_| DecodeErrorKind::InvalidLength(n))?;
                self.need(n)?;
                Ok(Some(n))
            }
        }
    }

    /// Reads the length of a string and checks it against the bytes that remain; `None` is null.
    ///
    /// # Errors
    /// Truncated, negative other than -1, or longer than what remains.
    pub fn string_length(&mut self, layout: Layout) -> Result<Option<usize>, DecodeError> {
        let raw =
            if layout.flexible { i64::from(self.uvarint()?) - 1 } else { i64::from(self.i16()?) };
        self.length(raw)
    }

    /// Reads the length of a byte field, or the count of an array (every element has at least one
    /// byte), and checks it against the bytes that remain; `None` is null.
    ///
    /// # Errors
    /// Truncated, negative other than -1, or more than what remains.
    pub fn long_length(&mut self, layout: Layout) -> Result<Option<usize>, DecodeError> {
        let raw =
            if layout.flexible { i64::from(self.uvarint()?) - 1 } else { i64::from(self.i32()?) };
        self.length(raw)
    }

    /// Reads `count` elements. Memory is reserved in steps and charged to the budget first.
    ///
    /// # Errors
    /// The first error of an element, or over budget.
    pub fn elements<T>(
        &mut self,
        count: usize,
        mut element: impl FnMut(&mut Self) -> Result<T, DecodeError>,
    ) -> Result<Vec<T>, DecodeError> {
        let mut out: Vec<T> = Vec::new();
        for _ in 0..count {
            if out.len() == out.capacity() {
                let more = out.len().max(RESERVE_AT_MOST).min(count - out.len());
                self.charge(more.saturating_mul(size_of::<T>()))?;
                out.reserve_exact(more);
            }
            out.push(element(self)?);
        }
        Ok(out)
    }

    /// Reads the tagged fields at the end of a structure. `known` is called with each tag and a
    /// decoder over the field's bytes and says whether it read them; others are skipped.
    ///
    /// # Errors
    /// Truncated, an error of `known`, or a known field longer than what `known` read.
    pub fn tagged_fields(
        &mut self,
        mut known: impl FnMut(&mut Self, u32) -> Result<bool, DecodeError>,
    ) -> Result<(), DecodeError> {
        let count = self.uvarint()?;
        for _ in 0..count {
            let tag = self.uvarint()?;
            let size = usize::try_from(self.uvarint()?)
                .map_err(|_| DecodeErrorKind::InvalidLength(i64::from(u32::MAX)))?;
            let content = self.take(size)?;
            let mut inner = Self { buf: content, budget: self.budget };
            let read = known(&mut inner, tag)?;
            self.budget = inner.budget;
            if read && inner.remaining() > 0 {
                return Err(DecodeErrorKind::TaggedFieldLength(tag).into());
            }
        }
        Ok(())
    }
}

/// Fixed-width reads and writes, one pair per type.
macro_rules! fixed_width {
    ($($ty:ident $get:ident $put:ident),* $(,)?) => {
        impl Decoder {
            $(
                #[doc = concat!("Reads a big-endian `", stringify!($ty), "`.")]
                ///
                /// # Errors
                /// [`DecodeErrorKind::Truncated`].
                pub fn $ty(&mut self) -> Result<$ty, DecodeError> {
                    self.need(size_of::<$ty>())?;
                    Ok(self.buf.$get())
                }
            )*
        }
        impl Encoder {
            $(
                #[doc = concat!("Writes a big-endian `", stringify!($ty), "`.")]
                pub fn $ty(&mut self, value: $ty) {
                    self.small.$put(value);
                }
            )*
        }
    };
}

fixed_width! {
    u8 get_u8 put_u8, i8 get_i8 put_i8, u16 get_u16 put_u16, i16 get_i16 put_i16,
    u32 get_u32 put_u32, i32 get_i32 put_i32, u64 get_u64 put_u64, i64 get_i64 put_i64,
    f64 get_f64 put_f64,
}

/// One encoded frame or message as buffers to be written one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Chain(pub Vec<Bytes>);

impl Chain {
    /// Length in bytes of all buffers together.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Whether there is nothing to write.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(Bytes::is_empty)
    }

    /// All buffers copied into one. For tests, tools and small frames: the data path writes the
    /// buffers as they are.
    #[must_use]
    pub fn to_bytes(&self) -> Bytes {
        match self.0.as_slice() {
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

/// A part of the chain that is being built.
#[derive(Debug)]
enum Part {
    Small(BytesMut),
    Linked(Bytes),
}

/// Builds a message as a chain of buffers: small fields are collected in one buffer, record bytes
/// are linked in between.
#[derive(Debug, Default)]
pub struct Encoder {
    parts: Vec<Part>,
    small: BytesMut,
}

impl Encoder {
    /// An empty encoder.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An encoder that starts with four bytes for the length of the frame, set by
    /// [`Encoder::finish_frame`].
    #[must_use]
    pub fn new_frame() -> Self {
        let mut small = BytesMut::with_capacity(256);
        small.put_i32(0);
        Self { parts: Vec::new(), small }
    }

    /// Writes bytes by copying them.
    pub fn put(&mut self, bytes: &[u8]) {
        self.small.extend_from_slice(bytes);
    }

    /// Adds `bytes` to the chain without copying them.
    pub fn link(&mut self, bytes: Bytes) {
        if bytes.is_empty() {
            return;
        }
        if !self.small.is_empty() {
            let small = self.small.split();
            self.parts.push(Part::Small(small));
        }
        self.parts.push(Part::Linked(bytes));
    }

    /// Writes an unsigned varint.
    pub fn uvarint(&mut self, mut value: u32) {
        loop {
            let [low, ..] = (value & 0x7f).to_le_bytes();
            value >>= 7;
            if value == 0 {
                self.small.put_u8(low);
                return;
            }
            self.small.put_u8(low | 0x80);
        }
    }

    /// Writes the length of a string (`None` is null).
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] above 32,767 bytes, in flexible versions too, as Kafka has it.
    pub fn string_length(
        &mut self,
        length: Option<usize>,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        let raw = match length {
            None => -1,
            Some(n) => i16::try_from(n).map_err(|_| EncodeError::TooLong(n))?,
        };
        if layout.flexible {
            self.compact_length(length)
        } else {
            self.i16(raw);
            Ok(())
        }
    }

    /// Writes the length of a byte field or the count of an array (`None` is null).
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] above 2^31 - 1.
    pub fn long_length(
        &mut self,
        length: Option<usize>,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        let raw = match length {
            None => -1,
            Some(n) => i32::try_from(n).map_err(|_| EncodeError::TooLong(n))?,
        };
        if layout.flexible {
            self.compact_length(length)
        } else {
            self.i32(raw);
            Ok(())
        }
    }

    fn compact_length(&mut self, length: Option<usize>) -> Result<(), EncodeError> {
        let n = length.map_or(0, |n| n.saturating_add(1));
        self.uvarint(u32::try_from(n).map_err(|_| EncodeError::TooLong(n))?);
        Ok(())
    }

    /// Writes one tagged field: its tag, its length and what `content` writes. `content` must not
    /// link records (no tagged field of the protocol has any).
    ///
    /// # Errors
    /// An error of `content`.
    pub fn tagged_field(
        &mut self,
        tag: u32,
        content: impl FnOnce(&mut Self) -> Result<(), EncodeError>,
    ) -> Result<(), EncodeError> {
        self.uvarint(tag);
        let start = self.small.len();
        let parts = self.parts.len();
        content(self)?;
        assert_eq!(parts, self.parts.len(), "a tagged field holds no records");
        let size = self.small.len() - start;
        let before = self.small.len();
        self.uvarint(u32::try_from(size).map_err(|_| EncodeError::TooLong(size))?);
        // The length was written behind the content; bring it to the front.
        let width = self.small.len() - before;
        if let Some(tail) = self.small.get_mut(start..) {
            tail.rotate_right(width);
        }
        Ok(())
    }

    /// Writes records, linked.
    ///
    /// # Errors
    /// [`EncodeError::TooLong`] above 2^31 - 1 bytes.
    pub fn records(
        &mut self,
        records: Option<&Records>,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        self.long_length(records.map(Records::len), layout)?;
        for part in records.into_iter().flat_map(Records::parts) {
            self.link(part.clone());
        }
        Ok(())
    }

    /// The chain of everything written.
    #[must_use]
    pub fn finish(mut self) -> Chain {
        if !self.small.is_empty() {
            self.parts.push(Part::Small(self.small));
        }
        Chain(
            self.parts
                .into_iter()
                .map(|part| match part {
                    Part::Small(small) => small.freeze(),
                    Part::Linked(bytes) => bytes,
                })
                .collect(),
        )
    }

    /// The chain of everything written after [`Encoder::new_frame`], with the length of the frame
    /// in its first four bytes.
    ///
    /// # Errors
    /// [`EncodeError::FrameTooLong`].
    pub fn finish_frame(mut self) -> Result<Chain, EncodeError> {
        let linked: usize = self
            .parts
            .iter()
            .map(|part| match part {
                Part::Small(small) => small.len(),
                Part::Linked(bytes) => bytes.len(),
            })
            .sum();
        let length = (linked + self.small.len()).saturating_sub(4);
        let raw = i32::try_from(length).map_err(|_| EncodeError::FrameTooLong(length))?;
        let first = match self.parts.first_mut() {
            Some(Part::Small(first)) => first,
            _ => &mut self.small,
        };
        if let Some(slot) = first.get_mut(..4) {
            slot.copy_from_slice(&raw.to_be_bytes());
        }
        Ok(self.finish())
    }
}
