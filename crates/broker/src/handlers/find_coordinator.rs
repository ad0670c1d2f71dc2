//! FindCoordinator (key 10), versions 0 to 6.
//!
//! The coordinator of every group is the leader of its partition of `__consumer_offsets`: this broker.
//! Below version 4 one key, from 4 on several. Asking creates that topic, as in Kafka.
//! COORDINATOR_NOT_AVAILABLE where that partition is offline or cannot be read.
//! Different from Kafka: transactions (type 1) and share groups (2) do not exist yet and are refused
//! with UNSUPPORTED_VERSION. Below version 4 a transactional id is refused with
//! TRANSACTIONAL_ID_AUTHORIZATION_FAILED and a message that says why: librdkafka, which asks in version
//! 2, tries again after every other code until it times out.

use std::sync::Arc;

use talos_protocol::messages::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
use talos_protocol::{ErrorCode, Str};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;
use crate::handlers::text;
use crate::topics::{OFFSETS_TOPIC, TopicRef};

const GROUP: i8 = 0;
const TRANSACTION: i8 = 1;
const SHARE: i8 = 2;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: FindCoordinatorRequest,
) -> FindCoordinatorResponse {
    let result = find(shared, request.key_type, context.version).await;
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

async fn find(shared: &Arc<Shared>, key_type: i8, version: i16) -> Result<(), Failure> {
    let (code, message) = match (key_type, version) {
        (GROUP, _) => return find_groups(shared).await,
        (TRANSACTION, ..4) => (
            ErrorCode::TransactionalIdAuthorizationFailed,
            "transactions are not supported by this broker yet",
        ),
        (TRANSACTION, _) => {
            (ErrorCode::UnsupportedVersion, "transactions are not supported by this broker yet")
        }
        (SHARE, _) => {
            (ErrorCode::UnsupportedVersion, "share groups are not supported by this broker yet")
        }
        _ => return Err(Failure::of(ErrorCode::InvalidRequest)),
    };
    Err(Failure::new(code, message))
}

async fn find_groups(shared: &Arc<Shared>) -> Result<(), Failure> {
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
        Ok(()) => match shared.coordinator(&key) {
            Some(coordinator) if coordinator.is_unreadable() => Err(offline()),
            Some(_) | None => shared.offsets_log(&key).map(drop).ok_or_else(offline),
        },
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
