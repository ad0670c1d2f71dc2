//! Kafka's wire format: frames, messages, record batches and error codes. No I/O.
//!
//! Every message of the protocol is *described* ([`messages`]) by a table of fields with version
//! ranges; the codec around it ([`codec`]) keeps these invariants:
//!
//! * decoding never panics and never makes memory out of proportion to the frame (see
//!   [`codec::Decoder`]): a length is checked against the bytes that remain before it is used;
//! * strings, byte fields and records are slices of the received frame, not copies;
//! * encoding links record bytes into the answer (see [`codec::Chain`]) and never copies them;
//! * record batches ([`batch`]) are handled by their 61-byte header; the records inside
//!   ([`records`]) are only looked at where a caller asks for it, always within limits.

#![deny(
    clippy::indexing_slicing,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_possible_wrap
)]
#![cfg_attr(
    test,
    allow(
        clippy::indexing_slicing,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        clippy::cast_possible_wrap,
        reason = "tests may panic"
    )
)]

#[macro_use]
mod describe;

pub mod api_key;
pub mod batch;
pub mod codec;
pub mod error_code;
pub mod frame;
pub mod messages;
pub mod primitives;
pub mod records;

pub use api_key::ApiKey;
pub use codec::{Chain, DecodeError, Decoder, EncodeError, Encoder};
pub use error_code::ErrorCode;
pub use messages::{Message, Request, Response};
pub use primitives::{Records, Str, Uuid};
