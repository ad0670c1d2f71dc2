//! RemoveRaftVoter: remove a voter from the metadata quorum (KIP-853).

use crate::primitives::{Str, Uuid};

message! {
    RemoveRaftVoterRequest: versions [0], flexible [0+],
        key RemoveRaftVoter, response RemoveRaftVoterResponse;
    /// Request: remove a voter from the metadata quorum (KIP-853).
    struct RemoveRaftVoterRequest {
        cluster_id: Option<Str> [0+, null 0+],
        voter_id: i32 [0+],
        voter_directory_id: Uuid [0+],
    }
}

message! {
    RemoveRaftVoterResponse: versions [0], flexible [0+];
    /// Answers [`RemoveRaftVoterRequest`].
    struct RemoveRaftVoterResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+, ignorable],
    }
}
