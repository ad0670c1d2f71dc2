//! InitProducerId (key 22), versions 0 to 5.
//!
//! A producer id that no producer ever had, with epoch 0, for idempotent producers. A producer that
//! sends its id and epoch (3, KIP-360) gets a new id as well: it starts over, its sequences from 0.
//! Different from Kafka: a transactional id is refused with UNSUPPORTED_VERSION until transactions
//! exist; clients take that as fatal.

use std::sync::Arc;

use talos_protocol::ErrorCode;
use talos_protocol::messages::{InitProducerIdRequest, InitProducerIdResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::Failure;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: InitProducerIdRequest,
) -> InitProducerIdResponse {
    let refused = |code: ErrorCode| InitProducerIdResponse {
        error_code: code.code(),
        producer_epoch: -1,
        ..Default::default()
    };
    match request.transactional_id.as_deref() {
        Some("") => return refused(ErrorCode::InvalidRequest),
        Some(_) => return refused(ErrorCode::UnsupportedVersion),
        None => {}
    }
    match shared.producer_ids.next().await {
        Ok(producer_id) => InitProducerIdResponse { producer_id, ..Default::default() },
        Err(error) => {
            let failure = Failure::from(error);
            tracing::warn!(why = failure.message, "no producer id could be taken");
            // Kafka's clients ask again after this code; nothing was given.
            refused(ErrorCode::CoordinatorNotAvailable)
        }
    }
}
