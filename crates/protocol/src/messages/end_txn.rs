//! EndTxn: commit or abort a transaction.

use crate::primitives::Str;

message! {
    EndTxnRequest: versions [0-5], flexible [3+],
        key EndTxn, response EndTxnResponse;
    /// Request: commit or abort a transaction.
    struct EndTxnRequest {
        transactional_id: Str [0+],
        producer_id: i64 [0+],
        producer_epoch: i16 [0+],
        committed: bool [0+],
    }
}

message! {
    EndTxnResponse: versions [0-5], flexible [3+];
    /// Answers [`EndTxnRequest`].
    struct EndTxnResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        producer_id: i64 [5+, ignorable] = -1,
        producer_epoch: i16 [5+, ignorable] = -1,
    }
}
