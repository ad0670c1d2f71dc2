//! DescribeUserScramCredentials: which SCRAM credentials users have.

use crate::primitives::Str;

message! {
    DescribeUserScramCredentialsRequest: versions [0], flexible [0+],
        key DescribeUserScramCredentials, response DescribeUserScramCredentialsResponse;
    /// Request: which SCRAM credentials users have.
    struct DescribeUserScramCredentialsRequest {
        users: Option<Vec<UserName>> [0+, null 0+],
    }
    struct UserName {
        name: Str [0+],
    }
}

message! {
    DescribeUserScramCredentialsResponse: versions [0], flexible [0+];
    /// Answers [`DescribeUserScramCredentialsRequest`].
    struct DescribeUserScramCredentialsResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        results: Vec<DescribeUserScramCredentialsResult> [0+],
    }
    struct DescribeUserScramCredentialsResult {
        user: Str [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+],
        credential_infos: Vec<CredentialInfo> [0+],
    }
    struct CredentialInfo {
        mechanism: i8 [0+],
        iterations: i32 [0+],
    }
}
