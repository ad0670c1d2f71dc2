//! Bytes that Kafka's Java client wrote (`testdata/`): each message decodes to its end and encodes
//! to the same bytes again.

use bytes::Bytes;

use super::*;
use crate::ErrorCode;
use crate::frame;

/// One golden message.
pub(super) struct Line {
    pub(super) name: &'static str,
    pub(super) version: i16,
    pub(super) bytes: Bytes,
}

/// All golden messages: at least the last two versions of each API.
pub(super) fn lines() -> impl Iterator<Item = Line> {
    include_str!("../../../testdata/messages.txt").lines().map(|line| {
        let mut words = line.split(' ');
        let name = words.next().unwrap();
        let version = words.next().unwrap().parse().unwrap();
        Line { name, version, bytes: crate::records::tests::from_hex(words.next().unwrap()) }
    })
}

fn same<M: Message>(line: &Line) {
    let at = || format!("{} v{}", line.name, line.version);
    let mut d = Decoder::new(line.bytes.clone());
    let message = M::decode(&mut d, line.version).unwrap_or_else(|e| panic!("{}: {e}", at()));
    assert_eq!(d.remaining(), 0, "{}: bytes left over", at());
    assert_eq!(encode(&message, line.version).to_bytes(), line.bytes, "{}: {message:?}", at());
}

macro_rules! same_by_name {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => {
        |line: &Line| match line.name {
            $(
                stringify!($request) => same::<$module::$request>(line),
                stringify!($response) => same::<$module::$response>(line),
            )*
            "RequestHeader" => same_header(line),
            other => panic!("{other} is not described"),
        }
    };
}

fn same_header(line: &Line) {
    // The key in the line is arbitrary; put one there that has this header version.
    let mut bytes = line.bytes.to_vec();
    let (key, version) = if line.version == 2 { (0_i16, 9_i16) } else { (0, 3) };
    bytes[..2].copy_from_slice(&key.to_be_bytes());
    bytes[2..4].copy_from_slice(&version.to_be_bytes());
    let mut d = Decoder::new(bytes.into());
    let header = frame::decode_request_header(&mut d).unwrap();
    assert_eq!(d.remaining(), 0);
    assert_eq!((header.key, header.version), (key, version));
    let request = produce::ProduceRequest::default();
    let chain = frame::encode_request(&header, &request).unwrap().to_bytes();
    assert_eq!(chain[4 + 8..4 + line.bytes.len()], line.bytes[8..], "client id and tags");
}

#[test]
fn messages_of_the_java_client_come_back_byte_for_byte() {
    let check = for_each_api!(same_by_name);
    let mut count = 0;
    for line in lines() {
        check(&line);
        count += 1;
    }
    assert!(count > 200, "only {count} lines");
}

/// The words behind `kind` in the lines of `tables.txt`.
fn table(kind: &'static str) -> impl Iterator<Item = Vec<&'static str>> {
    include_str!("../../../testdata/tables.txt")
        .lines()
        .map(|line| line.split(' ').collect::<Vec<_>>())
        .filter(move |words| words[0] == kind)
        .map(|words| words[1..].to_vec())
}

#[test]
fn error_codes_are_those_of_the_java_client() {
    let theirs: Vec<_> = table("error")
        .map(|words| (words[0].parse().unwrap(), words[1], words[2] == "true"))
        .collect();
    let ours: Vec<_> =
        ErrorCode::ALL.iter().map(|e| (e.code(), e.name(), e.is_retriable())).collect();
    assert_eq!(ours, theirs);
    for error in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_code(error.code()), Some(*error));
    }
    assert_eq!(ErrorCode::from_code(ErrorCode::ALL.len() as i16), None);
}

macro_rules! versions_by_key {
    ($($key:ident $module:ident $request:ident $response:ident;)*) => {
        |key: ApiKey| match key {
            $(ApiKey::$key => Some((
                $module::$request::VERSIONS,
                $module::$request::STABLE_VERSIONS,
            )),)*
            _ => None,
        }
    };
}

#[test]
fn api_keys_and_versions_are_those_of_the_java_client() {
    let versions = for_each_api!(versions_by_key);
    let mut keys = Vec::new();
    for words in table("api") {
        let key = ApiKey::try_from(words[0].parse::<i16>().unwrap()).unwrap();
        keys.push(key);
        assert_eq!(key.name(), words[1]);
        let number = |at: usize| words[at].parse::<i16>().unwrap();
        let served = words[5] == "true";
        assert_eq!(versions(key).is_some(), served, "{key}");
        if served {
            let (all, stable) = versions(key).unwrap();
            assert_eq!(all, number(2)..=number(3), "{key}");
            assert_eq!(stable, number(2)..=number(4), "{key}");
        }
    }
    assert_eq!(keys, ApiKey::ALL);
    assert!(ApiKey::try_from(-1).is_err());
    assert!(ApiKey::try_from(ApiKey::ALL.len() as i16).is_err());
}
