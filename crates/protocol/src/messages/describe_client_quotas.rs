//! DescribeClientQuotas: list the quotas that match a filter.

use crate::primitives::Str;

message! {
    DescribeClientQuotasRequest: versions [0-1], flexible [1+],
        key DescribeClientQuotas, response DescribeClientQuotasResponse;
    /// Request: list the quotas that match a filter.
    struct DescribeClientQuotasRequest {
        components: Vec<ComponentData> [0+],
        strict: bool [0+],
    }
    struct ComponentData {
        entity_type: Str [0+],
        match_type: i8 [0+],
        r#match: Option<Str> [0+, null 0+],
    }
}

message! {
    DescribeClientQuotasResponse: versions [0-1], flexible [1+];
    /// Answers [`DescribeClientQuotasRequest`].
    struct DescribeClientQuotasResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        entries: Option<Vec<EntryData>> [0+, null 0+],
    }
    struct EntryData {
        entity: Vec<EntityData> [0+],
        values: Vec<ValueData> [0+],
    }
    struct EntityData {
        entity_type: Str [0+],
        entity_name: Option<Str> [0+, null 0+],
    }
    struct ValueData {
        key: Str [0+],
        value: f64 [0+],
    }
}
