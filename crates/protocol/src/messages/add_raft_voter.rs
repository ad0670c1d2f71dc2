//! AddRaftVoter: add a voter to the metadata quorum (KIP-853).

use crate::primitives::{Str, Uuid};

message! {
    AddRaftVoterRequest: versions [0-1], flexible [0+],
        key AddRaftVoter, response AddRaftVoterResponse;
    /// Request: add a voter to the metadata quorum (KIP-853).
    struct AddRaftVoterRequest {
        cluster_id: Option<Str> [0+, null 0+],
        timeout_ms: i32 [0+],
        voter_id: i32 [0+],
        voter_directory_id: Uuid [0+],
        listeners: Vec<Listener> [0+],
        ack_when_committed: bool [1+] = true,
    }
    struct Listener {
        name: Str [0+],
        host: Str [0+],
        port: u16 [0+],
    }
}

message! {
    AddRaftVoterResponse: versions [0-1], flexible [0+];
    /// Answers [`AddRaftVoterRequest`].
    struct AddRaftVoterResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+, ignorable],
    }
}
