//! UpdateFeatures: change finalized feature levels.

use crate::primitives::Str;

message! {
    UpdateFeaturesRequest: versions [0-2], flexible [0+],
        key UpdateFeatures, response UpdateFeaturesResponse;
    /// Request: change finalized feature levels.
    struct UpdateFeaturesRequest {
        timeout_ms: i32 [0+] = 60_000,
        feature_updates: Vec<FeatureUpdateKey> [0+],
        validate_only: bool [1+],
    }
    struct FeatureUpdateKey {
        feature: Str [0+],
        max_version_level: i16 [0+],
        allow_downgrade: bool [0],
        upgrade_type: i8 [1+] = 1,
    }
}

message! {
    UpdateFeaturesResponse: versions [0-2], flexible [0+];
    /// Answers [`UpdateFeaturesRequest`].
    struct UpdateFeaturesResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        results: Vec<UpdatableFeatureResult> [0-1, ignorable],
    }
    struct UpdatableFeatureResult {
        feature: Str [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
    }
}
