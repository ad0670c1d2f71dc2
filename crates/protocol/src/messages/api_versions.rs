//! ApiVersions: which APIs and versions the broker has.

use crate::primitives::Str;

message! {
    ApiVersionsRequest: versions [0-5], flexible [3+],
        key ApiVersions, response ApiVersionsResponse;
    /// Request: which APIs and versions the broker has.
    struct ApiVersionsRequest {
        client_software_name: Str [3+, ignorable],
        client_software_version: Str [3+, ignorable],
        cluster_id: Option<Str> [5+, null 5+, ignorable] = None,
        node_id: i32 [5+, ignorable] = -1,
    }
}

message! {
    ApiVersionsResponse: versions [0-5], flexible [3+];
    /// Answers [`ApiVersionsRequest`].
    struct ApiVersionsResponse {
        error_code: i16 [0+],
        api_keys: Vec<ApiVersion> [0+],
        throttle_time_ms: i32 [1+, ignorable],
        supported_features: Vec<SupportedFeatureKey> [3+, tag 0, ignorable],
        finalized_features_epoch: i64 [3+, tag 1, ignorable] = -1,
        finalized_features: Vec<FinalizedFeatureKey> [3+, tag 2, ignorable],
        zk_migration_ready: bool [3+, tag 3, ignorable],
    }
    struct ApiVersion {
        api_key: i16 [0+],
        min_version: i16 [0+],
        max_version: i16 [0+],
    }
    struct SupportedFeatureKey {
        name: Str [3+],
        min_version: i16 [3+],
        max_version: i16 [3+],
    }
    struct FinalizedFeatureKey {
        name: Str [3+],
        max_version_level: i16 [3+],
        min_version_level: i16 [3+],
    }
}
