//! IncrementalAlterConfigs: set, delete, append to and subtract from single configuration entries.

use crate::primitives::Str;

message! {
    IncrementalAlterConfigsRequest: versions [0-1], flexible [1+],
        key IncrementalAlterConfigs, response IncrementalAlterConfigsResponse;
    /// Request: set, delete, append to and subtract from single configuration entries.
    struct IncrementalAlterConfigsRequest {
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
        config_operation: i8 [0+],
        value: Option<Str> [0+, null 0+],
    }
}

message! {
    IncrementalAlterConfigsResponse: versions [0-1], flexible [1+];
    /// Answers [`IncrementalAlterConfigsRequest`].
    struct IncrementalAlterConfigsResponse {
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
