//! IncrementalAlterConfigs (key 44), versions 0 to 1.
//!
//! SET, DELETE, and for lists APPEND and SUBTRACT, on topics. All changes of one topic are applied
//! together or not at all. A resource or an entry named twice is INVALID_REQUEST.
//! Different from Kafka: a broker's configuration is read from its file at start and refused here
//! (INVALID_REQUEST) with a message that says so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use talos_meta::TopicError;
use talos_protocol::ErrorCode;
use talos_protocol::messages::incremental_alter_configs::{
    AlterConfigsResource, AlterConfigsResourceResponse, AlterableConfig,
};
use talos_protocol::messages::{IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse};

use crate::broker::Shared;
use crate::config::BrokerConfig;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::describe_configs::{BROKER, TOPIC};
use crate::topic_config::{self, TOPIC_KEYS};
use crate::topics::TopicRef;

const SET: i8 = 0;
const DELETE: i8 = 1;
const APPEND: i8 = 2;
const SUBTRACT: i8 = 3;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: IncrementalAlterConfigsRequest,
) -> IncrementalAlterConfigsResponse {
    let (mut seen, mut twice) = (BTreeSet::new(), BTreeSet::new());
    for resource in &request.resources {
        let key = (resource.resource_type, resource.resource_name.clone());
        if !seen.insert(key.clone()) {
            twice.insert(key);
        }
    }
    let mut response = IncrementalAlterConfigsResponse::default();
    for resource in request.resources {
        let AlterConfigsResource { resource_type, resource_name, configs } = resource;
        let result = if twice.contains(&(resource_type, resource_name.clone())) {
            let message = "Each resource must appear at most once.";
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        } else {
            let base = Arc::clone(shared);
            let change = move |set: &BTreeMap<String, String>| apply(&base.config, set, &configs);
            alter(shared, resource_type, &resource_name, request.validate_only, change).await
        };
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

/// Changes one resource's configuration by what `change` makes of the present one.
pub(crate) async fn alter(
    shared: &Arc<Shared>,
    resource_type: i8,
    name: &str,
    validate_only: bool,
    change: impl Fn(&BTreeMap<String, String>) -> Result<BTreeMap<String, String>, Failure>
    + Send
    + Sync
    + 'static,
) -> Result<(), Failure> {
    match resource_type {
        TOPIC => {}
        BROKER => {
            let message = "A broker's configuration is read from its file when it starts; change \
                           it there and restart the broker.";
            return Err(Failure::new(ErrorCode::InvalidRequest, message));
        }
        other => {
            let message = format!("resource type {other} has no configuration here");
            return Err(Failure::new(ErrorCode::InvalidRequest, message));
        }
    }
    let cached = shared.topic(TopicRef::Name(name))?;
    if validate_only {
        return change(&cached.topic.configs).map(drop);
    }
    let (task, id) = (Arc::clone(shared), cached.topic.id);
    shared
        .to_end("alter configs", async move {
            let mut refusal = None;
            let altered = task.meta.alter_configs(id, |set| match change(set) {
                Ok(changed) => {
                    *set = changed;
                    Ok(())
                }
                Err(failure) => {
                    refusal = Some(failure);
                    Err(TopicError::Invalid("refused".into()))
                }
            });
            let altered = altered.await;
            if let Some(failure) = refusal {
                return Err(failure);
            }
            altered?;
            if let Err(error) = task.topics.refresh(id).await {
                tracing::debug!(topic = %id, %error, "a changed topic could not be read at once");
            }
            Ok(())
        })
        .await
}

/// The configuration after `changes`.
fn apply(
    config: &BrokerConfig,
    set: &BTreeMap<String, String>,
    changes: &[AlterableConfig],
) -> Result<BTreeMap<String, String>, Failure> {
    let mut after = set.clone();
    let mut seen = BTreeSet::new();
    for AlterableConfig { name, config_operation, value } in changes {
        if !seen.insert(name) {
            let message = format!("{name} appears twice.");
            return Err(Failure::new(ErrorCode::InvalidRequest, message));
        }
        let key = topic_config::find(name)
            .ok_or_else(|| topic_config::unknown(name, TOPIC_KEYS.iter().map(|key| key.name)))?;
        let value = value.as_deref();
        let list = || {
            let now = set.get(key.name).cloned();
            split(&now.unwrap_or_else(|| topic_config::default_of(key, config)))
        };
        let value = match *config_operation {
            DELETE => {
                after.remove(key.name);
                continue;
            }
            SET => topic_config::check(name, value)?,
            APPEND | SUBTRACT if !key.kind.is_list() => {
                let message = format!("{name} is no list, so nothing can be added or taken away.");
                return Err(Failure::new(ErrorCode::InvalidConfig, message));
            }
            APPEND => {
                let mut parts = list();
                for part in split(value.unwrap_or_default()) {
                    if !parts.contains(&part) {
                        parts.push(part);
                    }
                }
                topic_config::check(name, Some(&parts.join(",")))?
            }
            SUBTRACT => {
                let gone = split(value.unwrap_or_default());
                let parts: Vec<_> =
                    list().into_iter().filter(|part| !gone.contains(part)).collect();
                topic_config::check(name, Some(&parts.join(",")))?
            }
            other => {
                let message = format!("Unknown config operation {other}.");
                return Err(Failure::new(ErrorCode::InvalidRequest, message));
            }
        };
        after.insert(key.name.to_owned(), value);
    }
    Ok(after)
}

fn split(list: &str) -> Vec<String> {
    list.split(',').map(str::trim).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
