//! Heartbeat (key 12), versions 0 to 4. Keeps a member of a classic group alive; 3 adds static
//! members.

use std::sync::Arc;

use talos_protocol::messages::{HeartbeatRequest, HeartbeatResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::{Code, api};
use crate::handlers::group_text;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: HeartbeatRequest,
) -> HeartbeatResponse {
    let code = match shared.coordinator(&request.group_id) {
        Some(coordinator) => coordinator.heartbeat(&api::HeartbeatRequest {
            group_id: group_text(&request.group_id),
            generation_id: request.generation_id,
            member_id: group_text(&request.member_id),
            group_instance_id: request.group_instance_id.as_deref().map(group_text),
        }),
        None => Code::NotCoordinator,
    };
    HeartbeatResponse { error_code: code.code(), ..Default::default() }
}
