//! AlterUserScramCredentials: add, change and delete SCRAM credentials.

use bytes::Bytes;

use crate::primitives::Str;

message! {
    AlterUserScramCredentialsRequest: versions [0], flexible [0+],
        key AlterUserScramCredentials, response AlterUserScramCredentialsResponse;
    /// Request: add, change and delete SCRAM credentials.
    struct AlterUserScramCredentialsRequest {
        deletions: Vec<ScramCredentialDeletion> [0+],
        upsertions: Vec<ScramCredentialUpsertion> [0+],
    }
    struct ScramCredentialDeletion {
        name: Str [0+],
        mechanism: i8 [0+],
    }
    struct ScramCredentialUpsertion {
        name: Str [0+],
        mechanism: i8 [0+],
        iterations: i32 [0+],
        salt: Bytes [0+],
        salted_password: Bytes [0+],
    }
}

message! {
    AlterUserScramCredentialsResponse: versions [0], flexible [0+];
    /// Answers [`AlterUserScramCredentialsRequest`].
    struct AlterUserScramCredentialsResponse {
        throttle_time_ms: i32 [0+],
        results: Vec<AlterUserScramCredentialsResult> [0+],
    }
    struct AlterUserScramCredentialsResult {
        user: Str [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
    }
}
