//! InitProducerId: a producer id and epoch for idempotence and transactions.

use crate::primitives::Str;

message! {
    InitProducerIdRequest: versions [0-6], stable [0-5], flexible [2+],
        key InitProducerId, response InitProducerIdResponse;
    /// Request: a producer id and epoch for idempotence and transactions.
    struct InitProducerIdRequest {
        transactional_id: Option<Str> [0+, null 0+],
        transaction_timeout_ms: i32 [0+],
        producer_id: i64 [3+] = -1,
        producer_epoch: i16 [3+] = -1,
        enable2_pc: bool [6+],
        keep_prepared_txn: bool [6+],
    }
}

message! {
    InitProducerIdResponse: versions [0-6], stable [0-5], flexible [2+];
    /// Answers [`InitProducerIdRequest`].
    struct InitProducerIdResponse {
        throttle_time_ms: i32 [0+, ignorable],
        error_code: i16 [0+],
        producer_id: i64 [0+] = -1,
        producer_epoch: i16 [0+],
        ongoing_txn_producer_id: i64 [6+] = -1,
        ongoing_txn_producer_epoch: i16 [6+] = -1,
    }
}
