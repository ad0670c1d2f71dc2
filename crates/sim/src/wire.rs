//! One client's connection: requests out, answers in, in order, with a time limit. Whatever goes
//! wrong ends the connection, and the client then does not know what became of its requests.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use talos_common::Clock;
use talos_protocol::frame::{self, RequestHeader};
use talos_protocol::messages::Request;
use talos_protocol::{Decoder, Str};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::history::{Recorder, What};
use crate::network::Network;

/// No answer is larger than this.
const ANSWER_BYTES: usize = 16 << 20;

/// The connection ended or the answer did not come in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lost;

/// A client's connection, made anew when it is needed.
#[derive(Debug)]
pub struct Wire {
    network: Network,
    clock: Clock,
    recorder: Recorder,
    connection: Option<DuplexStream>,
    next: i32,
    /// How long an answer may take.
    pub timeout: Duration,
}

impl Wire {
    /// Not connected yet.
    pub fn new(network: Network, clock: Clock, recorder: Recorder, timeout: Duration) -> Self {
        Self { network, clock, recorder, connection: None, next: 0, timeout }
    }

    /// Whether there is a connection now.
    pub fn connect(&mut self) -> bool {
        if self.connection.is_none() {
            self.connection = self.network.connect();
        }
        self.connection.is_some()
    }

    /// Ends the connection.
    pub fn disconnect(&mut self) {
        self.connection = None;
    }

    /// Sends a request; gives what [`Wire::receive`] needs. Several may be under way.
    ///
    /// # Errors
    /// [`Lost`]: maybe nothing, maybe all of it arrived.
    pub async fn send<R: Request>(&mut self, version: i16, request: &R) -> Result<i32, Lost> {
        let correlation_id = self.next;
        self.next = self.next.wrapping_add(1);
        let client_id = Some(Str::from("sim"));
        let header = RequestHeader { key: R::KEY.code(), version, correlation_id, client_id };
        let bytes = match frame::encode_request(&header, request) {
            Ok(chain) => chain.to_bytes(),
            Err(error) => {
                self.recorder.push(What::Broken(format!("{} {version}: {error}", R::NAME)));
                return Err(Lost);
            }
        };
        let Some(connection) = &mut self.connection else { return Err(Lost) };
        let sent = self.clock.timeout(self.timeout, connection.write_all(&bytes)).await;
        match sent {
            Some(Ok(())) => Ok(correlation_id),
            Some(Err(_)) | None => {
                self.connection = None;
                Err(Lost)
            }
        }
    }

    /// The answer to the oldest request that has none yet.
    ///
    /// # Errors
    /// [`Lost`]: it did not come, or what came is no answer (which is also recorded as broken).
    pub async fn receive<R: Request>(
        &mut self,
        version: i16,
        correlation_id: i32,
    ) -> Result<R::Response, Lost> {
        let Some(connection) = &mut self.connection else { return Err(Lost) };
        let body = self.clock.timeout(self.timeout, read_frame(connection)).await.flatten();
        let parsed = body.map(|body| {
            let mut decoder = Decoder::new(body);
            let id = frame::decode_response_header(&mut decoder, R::KEY, version)
                .map_err(|error| error.to_string())?;
            if id != correlation_id {
                return Err(format!("answer {id} came, not {correlation_id}"));
            }
            frame::decode_rest(decoder, version).map_err(|error| error.to_string())
        });
        match parsed {
            Some(Ok(response)) => return Ok(response),
            Some(Err(error)) => {
                self.recorder.push(What::Broken(format!("{} {version}: {error}", R::NAME)));
            }
            None => {}
        }
        self.connection = None;
        Err(Lost)
    }

    /// Connects if need be, sends, and waits for the answer.
    ///
    /// # Errors
    /// [`Lost`].
    pub async fn call<R: Request>(
        &mut self,
        version: i16,
        request: &R,
    ) -> Result<R::Response, Lost> {
        if !self.connect() {
            return Err(Lost);
        }
        let id = self.send(version, request).await?;
        self.receive::<R>(version, id).await
    }
}

/// The next frame without its length; `None` at the end of the connection.
pub(crate) async fn read_frame(connection: &mut DuplexStream) -> Option<Bytes> {
    let mut length = [0; 4];
    connection.read_exact(&mut length).await.ok()?;
    let length = usize::try_from(i32::from_be_bytes(length)).ok()?;
    if length > ANSWER_BYTES {
        return None;
    }
    let mut body = BytesMut::zeroed(length);
    connection.read_exact(&mut body).await.ok()?;
    Some(body.freeze())
}
