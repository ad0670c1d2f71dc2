//! A broker with one topic of one partition that knows a handful of APIs and fails on order.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use talos_protocol::batch::Batch;
use talos_protocol::frame;
use talos_protocol::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use talos_protocol::messages::init_producer_id::InitProducerIdResponse;
use talos_protocol::messages::metadata::{
    MetadataResponse, MetadataResponseBroker, MetadataResponsePartition, MetadataResponseTopic,
};
use talos_protocol::messages::produce::{
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use talos_protocol::records::{Limits, decode_records};
use talos_protocol::{ApiKey, Chain, ErrorCode, Str};

/// What happens to the next Produce request; when the list is empty, it is stored.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Act {
    /// Stored and answered.
    Store,
    /// Stored; the connection ends instead of the answer.
    StoreAndCut,
    /// Not stored; the connection ends.
    Cut,
    /// Not stored, and answered with this.
    Refuse(ErrorCode),
}

#[derive(Default)]
struct State {
    acts: VecDeque<Act>,
    stored: Vec<String>,
    next_sequence: i32,
}

/// The broker. Its threads end with their connections.
pub(crate) struct Fake {
    pub(crate) address: String,
    state: Arc<Mutex<State>>,
}

impl Fake {
    pub(crate) fn start(acts: Vec<Act>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let state = Arc::new(Mutex::new(State { acts: acts.into(), ..Default::default() }));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let shared = Arc::clone(&shared);
                std::thread::spawn(move || serve(stream, address.port(), &shared));
            }
        });
        Self { address: address.to_string(), state }
    }

    /// The values that are stored, in order.
    pub(crate) fn stored(&self) -> Vec<String> {
        self.state.lock().unwrap().stored.clone()
    }
}

/// A peer that reads a little, says `bytes` and closes.
pub(crate) fn speak_once(bytes: &'static [u8]) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let _ = stream.read(&mut [0; 256]);
            let _ = stream.write_all(bytes);
        }
    });
    address
}

fn serve(mut stream: TcpStream, port: u16, state: &Mutex<State>) {
    loop {
        let mut length = [0; 4];
        if stream.read_exact(&mut length).is_err() {
            return;
        }
        let mut body = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        let Some(answer) = answer(Bytes::from(body), port, state) else { return };
        if stream.write_all(&answer.to_bytes()).is_err() {
            return;
        }
    }
}

/// The frame that answers a request; `None` ends the connection.
fn answer(body: Bytes, port: u16, state: &Mutex<State>) -> Option<Chain> {
    let start = frame::peek_request_start(&body).unwrap();
    let (id, version) = (start.correlation_id, start.version);
    match ApiKey::try_from(start.key).unwrap() {
        ApiKey::ApiVersions => {
            let api = |key: ApiKey, min_version, max_version| ApiVersion {
                api_key: key.code(),
                min_version,
                max_version,
            };
            let answer = ApiVersionsResponse {
                api_keys: vec![
                    api(ApiKey::ApiVersions, 0, 3),
                    api(ApiKey::Metadata, 0, 12),
                    api(ApiKey::InitProducerId, 0, 4),
                    api(ApiKey::Produce, 3, 9),
                ],
                ..Default::default()
            };
            Some(frame::encode_response(id, version, &answer).unwrap())
        }
        ApiKey::Metadata => Some(frame::encode_response(id, version, &metadata(port)).unwrap()),
        ApiKey::InitProducerId => {
            let answer = InitProducerIdResponse { producer_id: 7, ..Default::default() };
            Some(frame::encode_response(id, version, &answer).unwrap())
        }
        ApiKey::Produce => {
            let (_, request) = frame::decode_request::<ProduceRequest>(body).unwrap();
            let answer = produce(&request, &mut state.lock().unwrap())?;
            Some(frame::encode_response(id, version, &answer).unwrap())
        }
        other => unreachable!("{other} was not advertised"),
    }
}

fn metadata(port: u16) -> MetadataResponse {
    MetadataResponse {
        brokers: vec![MetadataResponseBroker {
            node_id: 5,
            host: "127.0.0.1".into(),
            port: i32::from(port),
            rack: None,
        }],
        topics: vec![MetadataResponseTopic {
            name: Some("t".into()),
            partitions: vec![MetadataResponsePartition { leader_id: 5, ..Default::default() }],
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn produce(request: &ProduceRequest, state: &mut State) -> Option<ProduceResponse> {
    let data = &request.topic_data[0].partition_data[0];
    let batch = Batch::parse(&data.records.as_ref().unwrap().to_bytes()).unwrap();
    batch.verify_crc().unwrap();
    let act = state.acts.pop_front().unwrap_or(Act::Store);
    let offset = i64::try_from(state.stored.len()).unwrap();
    let code = match act {
        Act::Refuse(code) => code,
        Act::Cut => return None,
        Act::Store | Act::StoreAndCut => store(&batch, state),
    };
    if matches!(act, Act::StoreAndCut) {
        return None;
    }
    Some(ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: Str::from("t"),
            partition_responses: vec![PartitionProduceResponse {
                error_code: code.code(),
                base_offset: offset,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    })
}

/// Stores a batch if its sequence is the next one.
fn store(batch: &Batch, state: &mut State) -> ErrorCode {
    let (sequence, count) = (batch.header.base_sequence, batch.header.records_count);
    if sequence >= 0 && sequence < state.next_sequence {
        return ErrorCode::DuplicateSequenceNumber;
    }
    if sequence > state.next_sequence {
        return ErrorCode::OutOfOrderSequenceNumber;
    }
    state.next_sequence += count;
    for record in decode_records(batch, &Limits::default()).unwrap() {
        let value = record.unwrap().value.unwrap();
        state.stored.push(String::from_utf8(value.to_vec()).unwrap());
    }
    ErrorCode::None
}
