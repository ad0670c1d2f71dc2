//! AddOffsetsToTxn: add the offsets of a group to a transaction.

use crate::primitives::Str;

message! {
    AddOffsetsToTxnRequest: versions [0-4], flexible [3+],
        key AddOffsetsToTxn, response AddOffsetsToTxnResponse;
    /// Request: add the offsets of a group to a transaction.
    struct AddOffsetsToTxnRequest {
        transactional_id: Str [0+],
        producer_id: i64 [0+],
        producer_epoch: i16 [0+],
        group_id: Str [0+],
    }
}

message! {
    AddOffsetsToTxnResponse: versions [0-4], flexible [3+];
    /// Answers [`AddOffsetsToTxnRequest`].
    struct AddOffsetsToTxnResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
    }
}
