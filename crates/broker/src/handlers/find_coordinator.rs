//! FindCoordinator (key 10), versions 0 to 6.
//!
//! The coordinator of every group is the leader of its partition of `__consumer_offsets`: this broker.
//! Below version 4 one key, from 4 on several. Asking creates that topic, as in Kafka.
//! Different from Kafka: transactions (type 1) and share groups (2) do not exist yet and are refused
//! with UNSUPPORTED_VERSION.

use std::sync::Arc;

use talos_protocol::messages::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use talos_protocol::{ErrorCode, Str};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::text;
use crate::topics::{OFFSETS_TOPIC, TopicRef};

const GROUP: i8 = 0;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let result = find(shared, request.key_type).await;
    if context.version >= 4 {
        let coordinators = request.coordinator_keys.into_iter();
        return FindCoordinatorResponse {
            coordinators: coordinators.map(|key| coordinator(shared, key, &result)).collect(),
            ..Default::default()
        };
    }
    let one = coordinator(shared, request.key, &result);
    FindCoordinatorResponse {
        error_code: one.error_code,
        error_message: one.error_message,
        node_id: one.node_id,
        host: one.host,
        port: one.port,
        ..Default::default()
    }
}

async fn find(shared: &Arc<Shared>, key_type: i8) -> Result<(), Failure> {
    if key_type != GROUP {
        let message = match key_type {
            1 => "transactions are not supported by this broker yet",
            2 => "share groups are not supported by this broker yet",
            _ => return Err(Failure::of(ErrorCode::InvalidRequest)),
        };
        return Err(Failure::new(ErrorCode::UnsupportedVersion, message));
    }
    if shared.topic(TopicRef::Name(OFFSETS_TOPIC)).is_err() {
        let created = shared.auto_create(OFFSETS_TOPIC).await;
        created
            .map_err(|failure| Failure::new(ErrorCode::CoordinatorNotAvailable, failure.message))?;
    }
    Ok(())
}

fn coordinator(shared: &Shared, key: Str, result: &Result<(), Failure>) -> Coordinator {
    let offline = || {
        Failure::new(
            ErrorCode::CoordinatorNotAvailable,
            "the partition of the group can not be served",
        )
    };
    let result = match result {
        Ok(()) => shared.offsets_log(&key).map(drop).ok_or_else(offline),
        Err(failure) => Err(failure.clone()),
    };
    match result {
        Ok(()) => Coordinator {
            key,
            node_id: shared.config.node_id.0,
            host: text(&shared.config.advertised_host),
            port: i32::from(shared.config.advertised_port),
            error_message: None,
            ..Default::default()
        },
        Err(failure) => Coordinator {
            key,
            node_id: -1,
            host: Str::default(),
            port: -1,
            error_code: failure.code.code(),
            error_message: failure.text(),
        },
    }
}
