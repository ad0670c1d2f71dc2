//! AlterConfigs (key 33), versions 0 to 2: the old form, which replaces a topic's whole configuration.
//!
//! What the request does not name goes back to its default, as in Kafka. Brokers are refused as in
//! [`super::incremental_alter_configs`].

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_protocol::ErrorCode;
use talos_protocol::messages::alter_configs::{AlterConfigsResource, AlterConfigsResourceResponse};
use talos_protocol::messages::{AlterConfigsRequest, AlterConfigsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::handlers::incremental_alter_configs::alter;
use crate::topic_config;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: AlterConfigsRequest,
) -> AlterConfigsResponse {
    let mut response = AlterConfigsResponse::default();
    for resource in request.resources {
        let AlterConfigsResource { resource_type, resource_name, configs } = resource;
        let replace = move |_: &BTreeMap<String, String>| {
            let mut after = BTreeMap::new();
            for config in &configs {
                let value = topic_config::check(&config.name, config.value.as_deref())?;
                after.insert(config.name.to_string(), value);
            }
            Ok(after)
        };
        let result =
            alter(shared, resource_type, &resource_name, request.validate_only, replace).await;
        let failure = result.err();
        response.responses.push(AlterConfigsResourceResponse {
            error_code: failure.as_ref().map_or(ErrorCode::None, |failure| failure.code).code(),
            error_message: failure.and_then(|failure| failure.text()),
            resource_type,
            resource_name,
        });
    }
    response
}
