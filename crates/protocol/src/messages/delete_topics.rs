//! DeleteTopics: delete topics by name or id.

use crate::primitives::{Str, Uuid};

message! {
    DeleteTopicsRequest: versions [1-6], flexible [4+],
        key DeleteTopics, response DeleteTopicsResponse;
    /// Request: delete topics by name or id.
    struct DeleteTopicsRequest {
        topics: Vec<DeleteTopicState> [6+],
        topic_names: Vec<Str> [0-5, ignorable],
        timeout_ms: i32 [0+],
    }
    struct DeleteTopicState {
        name: Option<Str> [6+, null 6+] = None,
        topic_id: Uuid [6+],
    }
}

message! {
    DeleteTopicsResponse: versions [1-6], flexible [4+];
    /// Answers [`DeleteTopicsRequest`].
    struct DeleteTopicsResponse {
        throttle_time_ms: i32 [1+, ignorable],
        responses: Vec<DeletableTopicResult> [0+],
    }
    struct DeletableTopicResult {
        name: Option<Str> [0+, null 6+],
        topic_id: Uuid [6+, ignorable],
        error_code: i16 [0+],
        error_message: Option<Str> [5+, null 5+, ignorable] = None,
    }
}
