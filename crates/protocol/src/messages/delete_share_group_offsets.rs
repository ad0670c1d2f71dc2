//! DeleteShareGroupOffsets: forget the offsets of a share group.

use crate::primitives::{Str, Uuid};

message! {
    DeleteShareGroupOffsetsRequest: versions [0], flexible [0+],
        key DeleteShareGroupOffsets, response DeleteShareGroupOffsetsResponse;
    /// Request: forget the offsets of a share group.
    struct DeleteShareGroupOffsetsRequest {
        group_id: Str [0+],
        topics: Vec<DeleteShareGroupOffsetsRequestTopic> [0+],
    }
    struct DeleteShareGroupOffsetsRequestTopic {
        topic_name: Str [0+],
    }
}

message! {
    DeleteShareGroupOffsetsResponse: versions [0], flexible [0+];
    /// Answers [`DeleteShareGroupOffsetsRequest`].
    struct DeleteShareGroupOffsetsResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        responses: Vec<DeleteShareGroupOffsetsResponseTopic> [0+],
    }
    struct DeleteShareGroupOffsetsResponseTopic {
        topic_name: Str [0+],
        topic_id: Uuid [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
    }
}
