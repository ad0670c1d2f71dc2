//! AlterConfigs: replace whole configurations (old form).

use crate::primitives::Str;

message! {
    AlterConfigsRequest: versions [0-2], flexible [2+],
        key AlterConfigs, response AlterConfigsResponse;
    /// Request: replace whole configurations (old form).
    struct AlterConfigsRequest {
        resources: Vec<AlterConfigsResource> [0+],
        validate_only: bool [0+],
    }
    struct AlterConfigsResource {
        resource_type: i8 [0+],
        resource_name: Str [0+],
        configs: Vec<AlterableConfig> [0+],
    }
    struct AlterableConfig {
        name: Str [0+],
        value: Option<Str> [0+, null 0+],
    }
}

message! {
    AlterConfigsResponse: versions [0-2], flexible [2+];
    /// Answers [`AlterConfigsRequest`].
    struct AlterConfigsResponse {
        throttle_time_ms: i32 [0+],
        responses: Vec<AlterConfigsResourceResponse> [0+],
    }
    struct AlterConfigsResourceResponse {
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        resource_type: i8 [0+],
        resource_name: Str [0+],
    }
}
