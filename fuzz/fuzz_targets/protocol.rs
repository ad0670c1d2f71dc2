//! One target for everything that `talos-protocol` reads from the network: the first byte picks
//! the message (or the header, or a record set), the second its version, the rest are its bytes.
//!
//! What decodes must encode and decode to the same value again; nothing may panic, and memory stays
//! within the decoder's budget (run with a memory limit).

#![no_main]

use bytes::Bytes;
use libfuzzer_sys::fuzz_target;
use talos_protocol::batch::Batches;
use talos_protocol::messages::*;
use talos_protocol::records::{Limits, decode_records, validate_inner};
use talos_protocol::{Decoder, Encoder, Message, for_each_api, frame};

fn message<M: Message>(version: u8, bytes: Bytes) {
    let (first, last) = (*M::VERSIONS.start(), *M::VERSIONS.end());
    let version = first + i16::from(version) % (last - first + 1);
    let room = bytes.len();
    let Ok(message) = M::decode(&mut Decoder::new(bytes), version) else { return };
    let mut e = Encoder::new();
    message.encode(&mut e, version).expect("what was decoded can be encoded");
    // Unknown tagged fields fall away; the shorter form keeps the budget of the longer one.
    let mut again = e.finish().to_bytes().to_vec();
    again.resize(again.len() + room, 0);
    let back = M::decode(&mut Decoder::new(again.into()), version).expect("decodes again");
    assert!(back == message || format!("{back:?}") == format!("{message:?}"));
}

fn record_set(bytes: Bytes) {
    let limits = Limits { max_decompressed_bytes: 1 << 20 };
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else { return };
        let checked = validate_inner(&batch, &limits);
        let Ok(records) = decode_records(&batch, &limits) else { return };
        let read = records.take_while(Result::is_ok).count();
        if checked.is_ok() {
            assert_eq!(i32::try_from(read), Ok(batch.header.records_count));
        }
    }
}

fn header(bytes: Bytes) {
    let start = frame::peek_request_start(&bytes);
    let header = frame::decode_request_header(&mut Decoder::new(bytes));
    if let Ok(header) = header {
        let start = start.expect("a header has eight bytes");
        assert_eq!((start.key, start.version), (header.key, header.version));
    }
}

macro_rules! pick {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => {
        &[
            header_of as fn(u8, Bytes),
            record_set_of,
            message::<embedded::ConsumerProtocolSubscription>,
            message::<embedded::ConsumerProtocolAssignment>,
            $(message::<$module::$request>, message::<$module::$response>,)*
        ]
    };
}

fn header_of(_: u8, bytes: Bytes) {
    header(bytes);
}

fn record_set_of(_: u8, bytes: Bytes) {
    record_set(bytes);
}

fuzz_target!(|data: &[u8]| {
    let [pick, version, rest @ ..] = data else { return };
    let targets: &[fn(u8, Bytes)] = for_each_api!(pick);
    targets[usize::from(*pick) % targets.len()](*version, Bytes::copy_from_slice(rest));
});
