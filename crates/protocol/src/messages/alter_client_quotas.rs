//! AlterClientQuotas: change the quotas of users, client ids and addresses.

use crate::primitives::Str;

message! {
    AlterClientQuotasRequest: versions [0-1], flexible [1+],
        key AlterClientQuotas, response AlterClientQuotasResponse;
    /// Request: change the quotas of users, client ids and addresses.
    struct AlterClientQuotasRequest {
        entries: Vec<AlterClientQuotasRequestEntryData> [0+],
        validate_only: bool [0+],
    }
    struct AlterClientQuotasRequestEntryData {
        entity: Vec<AlterClientQuotasRequestEntityData> [0+],
        ops: Vec<OpData> [0+],
    }
    struct AlterClientQuotasRequestEntityData {
        entity_type: Str [0+],
        entity_name: Option<Str> [0+, null 0+],
    }
    struct OpData {
        key: Str [0+],
        value: f64 [0+],
        remove: bool [0+],
    }
}

message! {
    AlterClientQuotasResponse: versions [0-1], flexible [1+];
    /// Answers [`AlterClientQuotasRequest`].
    struct AlterClientQuotasResponse {
        throttle_time_ms: i32 [0+],
        entries: Vec<AlterClientQuotasResponseEntryData> [0+],
    }
    struct AlterClientQuotasResponseEntryData {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        entity: Vec<AlterClientQuotasResponseEntityData> [0+],
    }
    struct AlterClientQuotasResponseEntityData {
        entity_type: Str [0+],
        entity_name: Option<Str> [0+, null 0+],
    }
}
