//! DescribeTransactions: state of transactions by transactional id.

use crate::primitives::Str;

message! {
    DescribeTransactionsRequest: versions [0], flexible [0+],
        key DescribeTransactions, response DescribeTransactionsResponse;
    /// Request: state of transactions by transactional id.
    struct DescribeTransactionsRequest {
        transactional_ids: Vec<Str> [0+],
    }
}

message! {
    DescribeTransactionsResponse: versions [0], flexible [0+];
    /// Answers [`DescribeTransactionsRequest`].
    struct DescribeTransactionsResponse {
        throttle_time_ms: i32 [0+],
        transaction_states: Vec<TransactionState> [0+],
    }
    struct TransactionState {
        error_code: i16 [0+],
        transactional_id: Str [0+],
        transaction_state: Str [0+],
        transaction_timeout_ms: i32 [0+],
        transaction_start_time_ms: i64 [0+],
        producer_id: i64 [0+],
        producer_epoch: i16 [0+],
        topics: Vec<TopicData> [0+],
    }
    struct TopicData {
        topic: Str [0+],
        partitions: Vec<i32> [0+],
    }
}
