//! ListConfigResources: resources that can have a configuration.

use crate::primitives::Str;

message! {
    ListConfigResourcesRequest: versions [0-1], flexible [0+],
        key ListConfigResources, response ListConfigResourcesResponse;
    /// Request: resources that can have a configuration.
    struct ListConfigResourcesRequest {
        resource_types: Vec<i8> [1+],
    }
}

message! {
    ListConfigResourcesResponse: versions [0-1], flexible [0+];
    /// Answers [`ListConfigResourcesRequest`].
    struct ListConfigResourcesResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        config_resources: Vec<ConfigResource> [0+],
    }
    struct ConfigResource {
        resource_name: Str [0+],
        resource_type: i8 [1+, ignorable] = 16,
    }
}
