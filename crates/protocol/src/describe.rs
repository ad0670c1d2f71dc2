//! The language in which messages are described, and what a description turns into.
//!
//! ```text
//! message! {
//!     ProduceRequest: versions [3-13], flexible [9+], key Produce, response ProduceResponse;
//!     /// What the message is for.
//!     struct ProduceRequest {
//!         transactional_id: Option<Str> [3+, null 3+] = None,
//!         acks: i16 [0+],
//!         topic_data: Vec<TopicProduceData> [0+],
//!     }
//!     struct TopicProduceData {
//!         name: Str [0-12, ignorable],
//!         ...
//!     }
//! }
//! ```
//!
//! In brackets: the versions that have the field (`3+`, `0-12`, or one number); `null V`: the
//! versions where it may be null; `tag N`: it is a tagged field with that number in all its
//! versions; `ignorable`: it is dropped without an error when a version lacks it. Behind `=` is
//! its default; without one it is zero, empty or, for an `Option`, *some* zero or empty value, as
//! in Kafka. Fields stand in wire order, tagged fields by rising tag. The first structure is the
//! message.

use std::ops::RangeInclusive;

use bytes::Bytes;

use crate::codec::{DecodeError, DecodeErrorKind, Decoder, EncodeError, Encoder, Layout};
use crate::primitives::{Records, Str, Uuid};

/// Where a field exists and how.
#[derive(Debug, Clone, Copy)]
pub(crate) struct FieldSpec {
    versions: (i16, i16),
    null: (i16, i16),
    pub(crate) tag: Option<u32>,
    pub(crate) ignorable: bool,
}

impl FieldSpec {
    pub(crate) const fn new(first: i16, last: i16) -> Self {
        Self { versions: (first, last), null: (1, 0), tag: None, ignorable: false }
    }

    pub(crate) const fn null(mut self, first: i16, last: i16) -> Self {
        self.null = (first, last);
        self
    }

    pub(crate) const fn tag(mut self, tag: u32) -> Self {
        self.tag = Some(tag);
        self
    }

    pub(crate) const fn ignorable(mut self) -> Self {
        self.ignorable = true;
        self
    }

    pub(crate) const fn in_version(&self, version: i16) -> bool {
        self.versions.0 <= version && version <= self.versions.1
    }

    pub(crate) const fn null_in(&self, version: i16) -> bool {
        self.null.0 <= version && version <= self.null.1
    }

    /// Whether the field stands among the ordinary fields in this version.
    pub(crate) const fn inline_in(&self, version: i16) -> bool {
        self.tag.is_none() && self.in_version(version)
    }
}

/// Whether the tags of a structure rise, which encoding relies on.
pub(crate) const fn tags_rise(mut fields: &[FieldSpec]) -> bool {
    let mut next = 0;
    while let [first, rest @ ..] = fields {
        if let Some(tag) = first.tag {
            if tag < next {
                return false;
            }
            next = tag + 1;
        }
        fields = rest;
    }
    true
}

/// A type that a field can have. `nullable` says whether the field may be null in this version; it
/// only matters to `Option`.
pub(crate) trait Wire: Sized + PartialEq {
    /// The value that a field of this type has unless its description says otherwise.
    fn initial() -> Self;
    fn read(d: &mut Decoder, layout: Layout, nullable: bool) -> Result<Self, DecodeError>;
    fn write(&self, e: &mut Encoder, layout: Layout, nullable: bool) -> Result<(), EncodeError>;
}

/// A type that may be null on the wire.
pub(crate) trait Nullable: Wire {
    fn read_nullable(d: &mut Decoder, layout: Layout) -> Result<Option<Self>, DecodeError>;
    fn write_nullable(
        this: Option<&Self>,
        e: &mut Encoder,
        layout: Layout,
    ) -> Result<(), EncodeError>;
}

macro_rules! wire_numbers {
    ($($ty:ident),*) => { $(
        impl Wire for $ty {
            fn initial() -> Self {
                Self::default()
            }
            fn read(d: &mut Decoder, _: Layout, _: bool) -> Result<Self, DecodeError> {
                d.$ty()
            }
            fn write(&self, e: &mut Encoder, _: Layout, _: bool) -> Result<(), EncodeError> {
                e.$ty(*self);
                Ok(())
            }
        }
    )* };
}

wire_numbers!(i8, i16, u16, i32, i64, f64);

impl Wire for bool {
    fn initial() -> Self {
        false
    }

    fn read(d: &mut Decoder, _: Layout, _: bool) -> Result<Self, DecodeError> {
        Ok(d.u8()? != 0)
    }

    fn write(&self, e: &mut Encoder, _: Layout, _: bool) -> Result<(), EncodeError> {
        e.u8(u8::from(*self));
        Ok(())
    }
}

impl Wire for Uuid {
    fn initial() -> Self {
        Self::ZERO
    }

    fn read(d: &mut Decoder, _: Layout, _: bool) -> Result<Self, DecodeError> {
        let bytes = d.take(16)?;
        let bytes = <[u8; 16]>::try_from(bytes.as_ref())
            .map_err(|_| DecodeErrorKind::Truncated { needed: 16, remaining: bytes.len() })?;
        Ok(Self(bytes))
    }

    fn write(&self, e: &mut Encoder, _: Layout, _: bool) -> Result<(), EncodeError> {
        e.put(self.as_bytes());
        Ok(())
    }
}

/// [`Wire`] for types whose length can say null.
macro_rules! wire_by_nullable {
    ([$($generic:tt)*] $ty:ty) => {
        impl $($generic)* Wire for $ty {
            fn initial() -> Self {
                Self::default()
            }
            fn read(d: &mut Decoder, layout: Layout, _: bool) -> Result<Self, DecodeError> {
                Self::read_nullable(d, layout)?
                    .ok_or_else(|| DecodeErrorKind::UnexpectedNull.into())
            }
            fn write(
                &self,
                e: &mut Encoder,
                layout: Layout,
                _: bool,
            ) -> Result<(), EncodeError> {
                Self::write_nullable(Some(self), e, layout)
            }
        }
    };
}

wire_by_nullable!([] Str);
wire_by_nullable!([] Bytes);
wire_by_nullable!([] Records);
wire_by_nullable!([<T: Wire>] Vec<T>);

impl Nullable for Str {
    fn read_nullable(d: &mut Decoder, layout: Layout) -> Result<Option<Self>, DecodeError> {
        let Some(length) = d.string_length(layout)? else { return Ok(None) };
        let text = Self::from_utf8(d.take(length)?).ok_or(DecodeErrorKind::InvalidUtf8)?;
        Ok(Some(text))
    }

    fn write_nullable(
        this: Option<&Self>,
        e: &mut Encoder,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        e.string_length(this.map(|s| s.as_bytes().len()), layout)?;
        if let Some(text) = this {
            e.put(text.as_bytes());
        }
        Ok(())
    }
}

impl Nullable for Bytes {
    fn read_nullable(d: &mut Decoder, layout: Layout) -> Result<Option<Self>, DecodeError> {
        let Some(length) = d.long_length(layout)? else { return Ok(None) };
        Ok(Some(d.take(length)?))
    }

    fn write_nullable(
        this: Option<&Self>,
        e: &mut Encoder,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        e.long_length(this.map(Self::len), layout)?;
        if let Some(bytes) = this {
            e.put(bytes);
        }
        Ok(())
    }
}

impl Nullable for Records {
    fn read_nullable(d: &mut Decoder, layout: Layout) -> Result<Option<Self>, DecodeError> {
        let Some(length) = d.long_length(layout)? else { return Ok(None) };
        Ok(Some(Self::from(d.take(length)?)))
    }

    fn write_nullable(
        this: Option<&Self>,
        e: &mut Encoder,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        e.records(this, layout)
    }
}

impl<T: Wire> Nullable for Vec<T> {
    fn read_nullable(d: &mut Decoder, layout: Layout) -> Result<Option<Self>, DecodeError> {
        let Some(count) = d.long_length(layout)? else { return Ok(None) };
        d.elements(count, |d| T::read(d, layout, false)).map(Some)
    }

    fn write_nullable(
        this: Option<&Self>,
        e: &mut Encoder,
        layout: Layout,
    ) -> Result<(), EncodeError> {
        e.long_length(this.map(Self::len), layout)?;
        for element in this.into_iter().flatten() {
            element.write(e, layout, false)?;
        }
        Ok(())
    }
}

impl<T: Nullable> Wire for Option<T> {
    fn initial() -> Self {
        Some(T::initial())
    }

    fn read(d: &mut Decoder, layout: Layout, nullable: bool) -> Result<Self, DecodeError> {
        if nullable { T::read_nullable(d, layout) } else { T::read(d, layout, false).map(Some) }
    }

    fn write(&self, e: &mut Encoder, layout: Layout, nullable: bool) -> Result<(), EncodeError> {
        match self {
            _ if nullable => T::write_nullable(self.as_ref(), e, layout),
            Some(value) => value.write(e, layout, false),
            None => Err(EncodeError::UnexpectedNull),
        }
    }
}

/// Reads the marker in front of a nullable structure: whether one follows.
pub(crate) fn read_present(d: &mut Decoder) -> Result<bool, DecodeError> {
    match d.i8()? {
        -1 => Ok(false),
        1 => Ok(true),
        other => Err(DecodeErrorKind::InvalidNullMarker(other).into()),
    }
}

/// What decoding and encoding of a whole message start with.
pub(crate) fn layout_of(
    version: i16,
    versions: &RangeInclusive<i16>,
    flexible_from: i16,
) -> Option<Layout> {
    versions.contains(&version).then_some(Layout { version, flexible: version >= flexible_from })
}

/// What stands in brackets behind a field, as a [`FieldSpec`].
macro_rules! field_spec {
    (@ [$($spec:tt)*]) => { $($spec)* };
    (@ [$($spec:tt)*] , null $a:literal + $($rest:tt)*) => {
        field_spec!(@ [$($spec)*.null($a, i16::MAX)] $($rest)*)
    };
    (@ [$($spec:tt)*] , null $a:literal - $b:literal $($rest:tt)*) => {
        field_spec!(@ [$($spec)*.null($a, $b)] $($rest)*)
    };
    (@ [$($spec:tt)*] , null $a:literal $($rest:tt)*) => {
        field_spec!(@ [$($spec)*.null($a, $a)] $($rest)*)
    };
    (@ [$($spec:tt)*] , tag $tag:literal $($rest:tt)*) => {
        field_spec!(@ [$($spec)*.tag($tag)] $($rest)*)
    };
    (@ [$($spec:tt)*] , ignorable $($rest:tt)*) => {
        field_spec!(@ [$($spec)*.ignorable()] $($rest)*)
    };
    ($a:literal + $($rest:tt)*) => {
        field_spec!(@ [$crate::describe::FieldSpec::new($a, i16::MAX)] $($rest)*)
    };
    ($a:literal - $b:literal $($rest:tt)*) => {
        field_spec!(@ [$crate::describe::FieldSpec::new($a, $b)] $($rest)*)
    };
    ($a:literal $($rest:tt)*) => {
        field_spec!(@ [$crate::describe::FieldSpec::new($a, $a)] $($rest)*)
    };
}

/// The default of a field.
macro_rules! field_default {
    ($ty:ty) => {
        <$ty as $crate::describe::Wire>::initial()
    };
    ($ty:ty, $default:expr) => {
        $default
    };
}

/// The last version of a range in brackets, and the first flexible version.
macro_rules! version_range {
    ($a:literal) => {
        $a..=$a
    };
    ($a:literal - $b:literal) => {
        $a..=$b
    };
}
macro_rules! flexible_from {
    (none) => {
        i16::MAX
    };
    ($a:literal +) => {
        $a
    };
}
macro_rules! stable_range {
    ($versions:expr) => {
        $versions
    };
    ($versions:expr, $a:literal) => {
        $a..=$a
    };
    ($versions:expr, $a:literal - $b:literal) => {
        $a..=$b
    };
}

/// Describes one message; see the [module](crate::describe).
macro_rules! message {
    (
        $name:ident: versions [$($versions:tt)*], $(stable [$($stable:tt)*],)?
        flexible [$($flexible:tt)*] $(, key $key:ident, response $response:ident)?;
        $($structs:tt)*
    ) => {
        structs! { $name; $($structs)* }

        impl $crate::messages::Message for $name {
            const NAME: &'static str = stringify!($name);
            const VERSIONS: ::std::ops::RangeInclusive<i16> = version_range!($($versions)*);
            const STABLE_VERSIONS: ::std::ops::RangeInclusive<i16> =
                stable_range!(version_range!($($versions)*) $(, $($stable)*)?);
            const FLEXIBLE_FROM: i16 = flexible_from!($($flexible)*);

            fn decode(
                d: &mut $crate::codec::Decoder,
                version: i16,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let layout =
                    $crate::describe::layout_of(version, &Self::VERSIONS, Self::FLEXIBLE_FROM)
                        .ok_or($crate::codec::DecodeErrorKind::UnsupportedVersion(version))?;
                <Self as $crate::describe::Wire>::read(d, layout, false)
            }

            fn encode(
                &self,
                e: &mut $crate::codec::Encoder,
                version: i16,
            ) -> Result<(), $crate::codec::EncodeError> {
                let layout =
                    $crate::describe::layout_of(version, &Self::VERSIONS, Self::FLEXIBLE_FROM)
                        .ok_or($crate::codec::EncodeError::UnsupportedVersion {
                            message: Self::NAME,
                            version,
                        })?;
                $crate::describe::Wire::write(self, e, layout, false)
            }
        }

        $(impl $crate::messages::Request for $name {
            const KEY: $crate::api_key::ApiKey = $crate::api_key::ApiKey::$key;
            type Response = $response;
        }

        impl $crate::messages::Response for $response {
            const KEY: $crate::api_key::ApiKey = $crate::api_key::ApiKey::$key;
        })?
    };
}

/// The structures of one message: their definition and their codec.
macro_rules! structs {
    ($message:ident; $(
        $(#[$doc:meta])*
        struct $name:ident {
            $($field:ident: $ty:ty [$($spec:tt)*] $(= $default:expr)?,)*
        }
    )*) => { $(
        $(#[$doc])*
        #[doc = concat!("\n\nBelongs to [`", stringify!($message), "`].")]
        #[derive(Debug, Clone, PartialEq)]
        pub struct $name {
            $(pub $field: $ty,)*
        }

        const _: () = assert!($crate::describe::tags_rise(&[$(field_spec!($($spec)*)),*]));

        impl Default for $name {
            fn default() -> Self {
                Self { $($field: field_default!($ty $(, $default)?),)* }
            }
        }

        impl $crate::describe::Wire for $name {
            fn initial() -> Self {
                Self::default()
            }

            #[allow(unused_mut, unused_variables, reason = "some structures have no such field")]
            fn read(
                d: &mut $crate::codec::Decoder,
                layout: $crate::codec::Layout,
                _: bool,
            ) -> Result<Self, $crate::codec::DecodeError> {
                let version = layout.version;
                let mut this = Self::default();
                $({
                    const SPEC: $crate::describe::FieldSpec = field_spec!($($spec)*);
                    if SPEC.inline_in(version) {
                        this.$field = <$ty as $crate::describe::Wire>::read(
                            d, layout, SPEC.null_in(version),
                        ).map_err(|e| e.in_field(stringify!($field)))?;
                    }
                })*
                if layout.flexible {
                    d.tagged_fields(|d, tag| {
                        $({
                            const SPEC: $crate::describe::FieldSpec = field_spec!($($spec)*);
                            if SPEC.tag == Some(tag) && SPEC.in_version(version) {
                                this.$field = <$ty as $crate::describe::Wire>::read(
                                    d, layout, SPEC.null_in(version),
                                ).map_err(|e| e.in_field(stringify!($field)))?;
                                return Ok(true);
                            }
                        })*
                        Ok(false)
                    })?;
                }
                Ok(this)
            }

            #[allow(unused_mut, unused_variables, reason = "some structures have no such field")]
            fn write(
                &self,
                e: &mut $crate::codec::Encoder,
                layout: $crate::codec::Layout,
                _: bool,
            ) -> Result<(), $crate::codec::EncodeError> {
                let version = layout.version;
                let mut tagged: u32 = 0;
                $({
                    const SPEC: $crate::describe::FieldSpec = field_spec!($($spec)*);
                    if SPEC.inline_in(version) {
                        $crate::describe::Wire::write(
                            &self.$field, e, layout, SPEC.null_in(version),
                        )?;
                    } else if self.$field != field_default!($ty $(, $default)?) {
                        if SPEC.in_version(version) {
                            tagged += 1;
                        } else if !SPEC.ignorable {
                            return Err($crate::codec::EncodeError::FieldNotInVersion {
                                field: stringify!($field),
                                version,
                            });
                        }
                    }
                })*
                if layout.flexible {
                    e.uvarint(tagged);
                    if tagged > 0 {
                        $({
                            const SPEC: $crate::describe::FieldSpec = field_spec!($($spec)*);
                            if let Some(tag) = SPEC.tag
                                && SPEC.in_version(version)
                                && self.$field != field_default!($ty $(, $default)?)
                            {
                                e.tagged_field(tag, |e| $crate::describe::Wire::write(
                                    &self.$field, e, layout, SPEC.null_in(version),
                                ))?;
                            }
                        })*
                    }
                }
                Ok(())
            }
        }

        impl $crate::describe::Nullable for $name {
            fn read_nullable(
                d: &mut $crate::codec::Decoder,
                layout: $crate::codec::Layout,
            ) -> Result<Option<Self>, $crate::codec::DecodeError> {
                if $crate::describe::read_present(d)? {
                    <Self as $crate::describe::Wire>::read(d, layout, false).map(Some)
                } else {
                    Ok(None)
                }
            }

            fn write_nullable(
                this: Option<&Self>,
                e: &mut $crate::codec::Encoder,
                layout: $crate::codec::Layout,
            ) -> Result<(), $crate::codec::EncodeError> {
                e.i8(if this.is_some() { 1 } else { -1 });
                this.map_or(Ok(()), |this| $crate::describe::Wire::write(this, e, layout, false))
            }
        }

        #[cfg(test)]
        impl $crate::messages::arbitrary::Arbitrary for $name {
            #[allow(unused_mut, unused_variables, reason = "some structures have no such field")]
            fn arbitrary(
                g: &mut $crate::messages::arbitrary::Generator,
                version: i16,
                _: bool,
            ) -> Self {
                let mut this = Self::default();
                $({
                    const SPEC: $crate::describe::FieldSpec = field_spec!($($spec)*);
                    if SPEC.in_version(version) {
                        this.$field = $crate::messages::arbitrary::Arbitrary::arbitrary(
                            g, version, SPEC.null_in(version),
                        );
                    }
                })*
                this
            }
        }
    )* };
}
