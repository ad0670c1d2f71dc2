//! ListTransactions: transactions of a broker.

use crate::primitives::Str;

message! {
    ListTransactionsRequest: versions [0-2], flexible [0+],
        key ListTransactions, response ListTransactionsResponse;
    /// Request: transactions of a broker.
    struct ListTransactionsRequest {
        state_filters: Vec<Str> [0+],
        producer_id_filters: Vec<i64> [0+],
        duration_filter: i64 [1+] = -1,
        transactional_id_pattern: Option<Str> [2+, null 2+] = None,
    }
}

message! {
    ListTransactionsResponse: versions [0-2], flexible [0+];
    /// Answers [`ListTransactionsRequest`].
    struct ListTransactionsResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        unknown_state_filters: Vec<Str> [0+],
        transaction_states: Vec<TransactionState> [0+],
    }
    struct TransactionState {
        transactional_id: Str [0+],
        producer_id: i64 [0+],
        transaction_state: Str [0+],
    }
}
