//! ApiVersions (key 18), versions 0 to 5.
//!
//! Answers with the table of [`crate::dispatch`]: what is not served is absent. Version 3 names the
//! client software (checked as Kafka does: INVALID_REQUEST), 5 says which cluster and node the client
//! means to talk to (KIP-1242: REBOOTSTRAP_REQUIRED when it is another one). An unknown version is
//! answered before the handler, in version 0 with UNSUPPORTED_VERSION (KIP-511).
//! Different from Kafka: no features are finalized, because none of them exist here yet.

use std::sync::Arc;

use talos_protocol::ErrorCode;
use talos_protocol::messages::{ApiVersionsRequest, ApiVersionsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::dispatch;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: ApiVersionsRequest,
) -> ApiVersionsResponse {
    let error =
        |code: ErrorCode| ApiVersionsResponse { error_code: code.code(), ..Default::default() };
    if context.version >= 3 {
        let (name, version) = (&request.client_software_name, &request.client_software_version);
        if !is_software_word(name) || !is_software_word(version) {
            return error(ErrorCode::InvalidRequest);
        }
    }
    let other_cluster =
        request.cluster_id.as_ref().is_some_and(|id| *id != *shared.cluster_id.to_string());
    let other_node = request.node_id >= 0 && request.node_id != shared.config.node_id.0;
    if other_cluster || other_node {
        return error(ErrorCode::RebootstrapRequired);
    }
    ApiVersionsResponse {
        api_keys: dispatch::served().into_iter().map(dispatch::advertised).collect(),
        ..Default::default()
    }
}

/// Letters, digits, `-` and `.`, beginning and ending with a letter or digit.
fn is_software_word(text: &str) -> bool {
    let inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'.';
    let edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    edge(bytes.first()) && edge(bytes.last()) && bytes.iter().all(|byte| inner(*byte))
}
