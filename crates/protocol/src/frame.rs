//! Frames: a 4-byte length, a header, a message.
//!
//! Reading a frame from a connection is the reader's work: it checks the length with
//! [`check_frame_length`] *before* it makes room for the frame. What is here gets the bytes behind
//! the length.

use bytes::Bytes;
use thiserror::Error;

use crate::api_key::ApiKey;
use crate::codec::{Chain, DecodeError, DecodeErrorKind, Decoder, EncodeError, Encoder, Layout};
use crate::describe::{Nullable, Wire};
use crate::messages::{Message, Request, Response};
use crate::primitives::Str;

/// Bytes of the length in front of each frame.
pub const LENGTH_BYTES: usize = 4;

/// A frame length that must not be read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum FrameError {
    /// Below zero.
    #[error("negative frame length {0}")]
    Negative(i32),
    /// Above the limit.
    #[error("frame of {length} bytes is above the limit of {limit}")]
    TooLong {
        /// The length that the peer announced.
        length: usize,
        /// The limit that applies.
        limit: usize,
    },
}

/// Checks the length that a peer announced; `limit` is inclusive, in bytes.
///
/// # Errors
/// Negative, or above `limit`.
pub fn check_frame_length(length: i32, limit: usize) -> Result<usize, FrameError> {
    let checked = usize::try_from(length).map_err(|_| FrameError::Negative(length))?;
    if checked > limit {
        return Err(FrameError::TooLong { length: checked, limit });
    }
    Ok(checked)
}

/// What each request starts with, whatever its API and version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestStart {
    /// Key of the API; may be unknown (see [`ApiKey::try_from`]).
    pub key: i16,
    /// Version of the API; may be unsupported.
    pub version: i16,
    /// Number that the answer must repeat.
    pub correlation_id: i32,
}

/// Reads the first eight bytes of a request without consuming them. They are the same for unknown
/// APIs and versions, so that an ApiVersions request that is too new can be answered.
///
/// # Errors
/// [`DecodeErrorKind::Truncated`] below eight bytes.
pub fn peek_request_start(frame: &Bytes) -> Result<RequestStart, DecodeError> {
    let mut d = Decoder::new(frame.clone());
    Ok(RequestStart { key: d.i16()?, version: d.i16()?, correlation_id: d.i32()? })
}

/// The header of a request.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RequestHeader {
    /// Key of the API.
    pub key: i16,
    /// Version of the API.
    pub version: i16,
    /// Number that the answer repeats.
    pub correlation_id: i32,
    /// Name that the client gives itself.
    pub client_id: Option<Str>,
}

/// The client id keeps its old form in flexible headers too.
const CLIENT_ID: Layout = Layout { version: 1, flexible: false };

/// Reads a request header; the message follows in `d`.
///
/// # Errors
/// Truncated or broken. An unknown key is read with header version 1, which may fail or misread
/// what follows: look at [`peek_request_start`] first.
pub fn decode_request_header(d: &mut Decoder) -> Result<RequestHeader, DecodeError> {
    let (key, version, correlation_id) = (d.i16()?, d.i16()?, d.i32()?);
    let header_version =
        ApiKey::try_from(key).map_or(1, |known| known.request_header_version(version));
    let client_id = if header_version >= 1 {
        <Option<Str> as Wire>::read(d, CLIENT_ID, true).map_err(|e| e.in_field("client_id"))?
    } else {
        None
    };
    if header_version >= 2 {
        d.tagged_fields(|_, _| Ok(false))?;
    }
    Ok(RequestHeader { key, version, correlation_id, client_id })
}

/// Reads the header of the response to `version` of `key` and gives its correlation id.
///
/// # Errors
/// Truncated or broken.
pub fn decode_response_header(
    d: &mut Decoder,
    key: ApiKey,
    version: i16,
) -> Result<i32, DecodeError> {
    let correlation_id = d.i32()?;
    if key.response_header_version(version) >= 1 {
        d.tagged_fields(|_, _| Ok(false))?;
    }
    Ok(correlation_id)
}

/// Reads the message that fills the rest of `d`.
///
/// # Errors
/// As [`Message::decode`], or [`DecodeErrorKind::TrailingBytes`].
pub fn decode_rest<M: Message>(mut d: Decoder, version: i16) -> Result<M, DecodeError> {
    let message = M::decode(&mut d, version)?;
    d.finish()?;
    Ok(message)
}

/// Reads the request that begins the rest of `d`. What is left over is ignored, as Apache Kafka does:
/// librdkafka 2.x sends three such bytes with Metadata 13.
///
/// # Errors
/// As [`Message::decode`].
pub fn decode_request_body<R: Request>(mut d: Decoder, version: i16) -> Result<R, DecodeError> {
    R::decode(&mut d, version)
}

/// A request as a whole frame, length in front. `header.key` must be that of the message.
///
/// # Errors
/// As [`Message::encode`]; [`EncodeError::UnsupportedVersion`] also if the key is another one.
pub fn encode_request<R: Request>(
    header: &RequestHeader,
    message: &R,
) -> Result<Chain, EncodeError> {
    if header.key != R::KEY.code() {
        return Err(EncodeError::UnsupportedVersion { message: R::NAME, version: header.version });
    }
    let mut e = Encoder::new_frame();
    e.i16(header.key);
    e.i16(header.version);
    e.i32(header.correlation_id);
    let header_version = R::KEY.request_header_version(header.version);
    if header_version >= 1 {
        Str::write_nullable(header.client_id.as_ref(), &mut e, CLIENT_ID)?;
    }
    if header_version >= 2 {
        e.uvarint(0);
    }
    message.encode(&mut e, header.version)?;
    e.finish_frame()
}

/// A response in `version` as a whole frame, length in front.
///
/// # Errors
/// As [`Message::encode`].
pub fn encode_response<M: Response>(
    correlation_id: i32,
    version: i16,
    message: &M,
) -> Result<Chain, EncodeError> {
    let mut e = Encoder::new_frame();
    e.i32(correlation_id);
    if M::KEY.response_header_version(version) >= 1 {
        e.uvarint(0);
    }
    message.encode(&mut e, version)?;
    e.finish_frame()
}

/// A whole frame, without its length, read as a request of type `R`.
///
/// # Errors
/// As the parts; [`DecodeErrorKind::UnsupportedVersion`] if the key is another one.
pub fn decode_request<R: Request>(frame: Bytes) -> Result<(RequestHeader, R), DecodeError> {
    let mut d = Decoder::new(frame);
    let header = decode_request_header(&mut d)?;
    if header.key != R::KEY.code() {
        return Err(DecodeErrorKind::UnsupportedVersion(header.version).into());
    }
    let message = decode_rest(d, header.version)?;
    Ok((header, message))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::messages::api_versions::{ApiVersionsRequest, ApiVersionsResponse};
    use crate::messages::produce::ProduceRequest;

    #[test]
    fn frames_shorter_than_a_header_are_errors() {
        for length in 0..8 {
            let frame = Bytes::from(vec![0; length]);
            assert!(peek_request_start(&frame).is_err());
            assert!(decode_request_header(&mut Decoder::new(frame)).is_err());
        }
    }

    #[test]
    fn unknown_keys_and_versions_show_in_the_first_eight_bytes() {
        let frame = Bytes::from_static(&[0, 18, 0, 99, 0, 0, 0, 7, 1, 2, 3]);
        let start = peek_request_start(&frame).unwrap();
        assert_eq!(start, RequestStart { key: 18, version: 99, correlation_id: 7 });
        let frame = Bytes::from_static(&[0x7f, 0xff, 0, 0, 0, 0, 0, 8]);
        let start = peek_request_start(&frame).unwrap();
        assert!(ApiKey::try_from(start.key).is_err());
        assert_eq!(start.correlation_id, 8);
    }

    #[test]
    fn a_request_comes_back_from_its_frame() {
        for version in [3, 9, 13] {
            let header = RequestHeader {
                key: 0,
                version,
                correlation_id: -5,
                client_id: Some(Str::from("me")),
            };
            let request = ProduceRequest { acks: -1, timeout_ms: 30, ..Default::default() };
            let frame = encode_request(&header, &request).unwrap().to_bytes();
            let length = i32::from_be_bytes(frame[..4].try_into().unwrap());
            assert_eq!(length as usize, frame.len() - 4);
            let (head, back) = decode_request::<ProduceRequest>(frame.slice(4..)).unwrap();
            assert_eq!((head, back), (header, request));
            assert!(decode_request::<ApiVersionsRequest>(frame.slice(4..)).is_err());
            let longer: Bytes = [&frame[4..], &[0]].concat().into();
            let error = decode_request::<ProduceRequest>(longer).unwrap_err();
            assert_eq!(error.kind, DecodeErrorKind::TrailingBytes(1));
        }
    }

    #[test]
    fn an_api_versions_response_never_has_tagged_fields_in_its_header() {
        let frame = encode_response(9, 4, &ApiVersionsResponse::default()).unwrap().to_bytes();
        let mut d = Decoder::new(frame.slice(4..));
        assert_eq!(decode_response_header(&mut d, ApiKey::ApiVersions, 4), Ok(9));
        assert_eq!(decode_rest::<ApiVersionsResponse>(d, 4), Ok(ApiVersionsResponse::default()));
        assert_eq!(ApiKey::Fetch.response_header_version(12), 1);
        assert_eq!(ApiKey::Fetch.response_header_version(11), 0);
    }

    #[test]
    fn frame_lengths_are_checked_before_they_are_believed() {
        assert_eq!(check_frame_length(10, 10), Ok(10));
        assert_eq!(check_frame_length(11, 10), Err(FrameError::TooLong { length: 11, limit: 10 }));
        assert_eq!(check_frame_length(-1, 10), Err(FrameError::Negative(-1)));
    }
}
