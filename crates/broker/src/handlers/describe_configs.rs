//! DescribeConfigs (key 32), versions 1 to 4.
//!
//! Every entry of topics (type 2) and of this broker (type 4), with source, synonyms when asked for,
//! and from version 3 type and documentation. A topic's entry comes from the topic, from the broker's
//! configuration, or is the default. Asked keys that do not exist are left out, as in Kafka.
//! Different from Kafka: the broker's entries are those that have a meaning here, and read-only;
//! loggers, client metrics and groups are no resources (INVALID_REQUEST).

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_protocol::messages::describe_configs::{
    DescribeConfigsResource, DescribeConfigsResourceResult, DescribeConfigsResult,
    DescribeConfigsSynonym,
};
use talos_protocol::messages::{DescribeConfigsRequest, DescribeConfigsResponse};
use talos_protocol::{ErrorCode, Str};

use crate::broker::Shared;
use crate::broker_config_entries::broker_entries;
use crate::config::BrokerConfig;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::{distinct, text};
use crate::topic_config::{self, TOPIC_KEYS};
use crate::topics::{self, TopicRef};

/// Kafka's resource types.
pub(crate) const TOPIC: i8 = 2;
pub(crate) const BROKER: i8 = 4;
/// Kafka's configuration sources.
pub(crate) const SOURCE_TOPIC: i8 = 1;
pub(crate) const SOURCE_BROKER: i8 = 4;
pub(crate) const SOURCE_DEFAULT: i8 = 5;

/// One entry, before the request's wishes are applied.
pub(crate) struct Entry {
    pub(crate) name: &'static str,
    pub(crate) value: String,
    pub(crate) source: i8,
    pub(crate) read_only: bool,
    pub(crate) kind: i8,
    pub(crate) doc: &'static str,
    /// Name, value and source, the one that counts first.
    pub(crate) synonyms: Vec<(&'static str, String, i8)>,
}

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: DescribeConfigsRequest,
) -> DescribeConfigsResponse {
    let (synonyms, docs) = (request.include_synonyms, request.include_documentation);
    let describe = |resource: DescribeConfigsResource| {
        let entries = match resource.resource_type {
            TOPIC => topic(shared, &resource.resource_name),
            BROKER => broker(shared, &resource.resource_name),
            other => {
                let message = format!("resource type {other} has no configuration here");
                Err(Failure::new(ErrorCode::InvalidRequest, message))
            }
        };
        answer(resource, entries, synonyms, docs)
    };
    let resources =
        distinct(request.resources, |asked| (asked.resource_type, asked.resource_name.clone()));
    DescribeConfigsResponse {
        results: resources.into_iter().map(describe).collect(),
        ..Default::default()
    }
}

fn topic(shared: &Shared, name: &str) -> Result<Vec<Entry>, Failure> {
    topics::check_name(name)?;
    let cached = shared.topic(TopicRef::Name(name))?;
    Ok(topic_entries(&shared.config, &cached.topic.configs))
}

/// All entries of a topic that sets `set`.
pub(crate) fn topic_entries(config: &BrokerConfig, set: &BTreeMap<String, String>) -> Vec<Entry> {
    let entry = |key: &'static topic_config::TopicKey| {
        let of_broker = topic_config::default_of(key, config);
        let mut synonyms = Vec::new();
        if let Some(value) = set.get(key.name) {
            synonyms.push((key.name, value.clone(), SOURCE_TOPIC));
        }
        match key.broker_name {
            Some(name) if of_broker != key.default => {
                synonyms.push((name, of_broker, SOURCE_BROKER));
                synonyms.push((name, key.default.into(), SOURCE_DEFAULT));
            }
            Some(name) => synonyms.push((name, of_broker, SOURCE_DEFAULT)),
            None => {}
        }
        let first = synonyms.first();
        Entry {
            name: key.name,
            value: first.map_or_else(|| key.default.into(), |(_, value, _)| value.clone()),
            source: first.map_or(SOURCE_DEFAULT, |(.., source)| *source),
            read_only: false,
            kind: key.kind.code(),
            doc: key.doc,
            synonyms,
        }
    };
    TOPIC_KEYS.iter().map(entry).collect()
}

fn broker(shared: &Shared, name: &str) -> Result<Vec<Entry>, Failure> {
    let us = shared.config.node_id.0;
    // The empty name means what was set for all brokers at run time: nothing can be.
    if name.is_empty() {
        return Ok(Vec::new());
    }
    match name.parse::<i32>() {
        Ok(id) if id == us => Ok(broker_entries(&shared.config)),
        Ok(id) => {
            let message = format!("Unexpected broker id, expected {us}, but received {id}");
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        }
        Err(_) => {
            let message = format!("Broker id must be an integer, but it is: {name}");
            Err(Failure::new(ErrorCode::InvalidRequest, message))
        }
    }
}

fn answer(
    resource: DescribeConfigsResource,
    entries: Result<Vec<Entry>, Failure>,
    synonyms: bool,
    docs: bool,
) -> DescribeConfigsResult {
    let DescribeConfigsResource { resource_type, resource_name, configuration_keys } = resource;
    // An empty list asks for all, as in Kafka.
    let keys = configuration_keys.filter(|keys| !keys.is_empty());
    let wanted = |entry: &Entry| keys.as_ref().is_none_or(|k| k.iter().any(|k| *k == entry.name));
    match entries {
        Ok(entries) => DescribeConfigsResult {
            error_message: None,
            resource_type,
            resource_name,
            configs: entries
                .into_iter()
                .filter(wanted)
                .map(|entry| encode(entry, synonyms, docs))
                .collect(),
            ..Default::default()
        },
        Err(failure) => DescribeConfigsResult {
            error_code: failure.code.code(),
            error_message: failure.text(),
            resource_type,
            resource_name,
            configs: Vec::new(),
        },
    }
}

fn encode(entry: Entry, synonyms: bool, docs: bool) -> DescribeConfigsResourceResult {
    let synonym = |(name, value, source): (&'static str, String, i8)| DescribeConfigsSynonym {
        name: Str::from_static(name),
        value: Some(Str::from(value)),
        source,
    };
    DescribeConfigsResourceResult {
        name: text(entry.name),
        value: Some(Str::from(entry.value)),
        read_only: entry.read_only,
        config_source: entry.source,
        is_sensitive: false,
        synonyms: match synonyms {
            true => entry.synonyms.into_iter().map(synonym).collect(),
            false => Vec::new(),
        },
        config_type: entry.kind,
        documentation: docs.then(|| Str::from_static(entry.doc)),
    }
}
