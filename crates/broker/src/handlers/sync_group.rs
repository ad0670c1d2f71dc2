//! SyncGroup (key 14), versions 0 to 5.
//!
//! Takes the leader's assignment, and gives each member its part when it is durable. 3 adds static
//! members, 5 protocol type and name, which are mandatory then (INCONSISTENT_GROUP_PROTOCOL).

use std::sync::Arc;

use talos_protocol::messages::{SyncGroupRequest, SyncGroupResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::Code;
use crate::groups::api::{SyncRequest, SyncResponse};
use crate::handlers::{group_bytes, group_text, text};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: SyncGroupRequest,
) -> SyncGroupResponse {
    let lacks = request.protocol_type.is_none() || request.protocol_name.is_none();
    let response = match shared.coordinator(&request.group_id) {
        _ if context.version >= 5 && lacks => SyncResponse::error(Code::InconsistentGroupProtocol),
        Some(coordinator) => {
            let sync = coordinator.sync(convert(request));
            context.release();
            tokio::select! {
                biased;
                response = sync => response,
                () = shared.stopping() => SyncResponse::error(Code::NotCoordinator),
            }
        }
        None => SyncResponse::error(Code::NotCoordinator),
    };
    SyncGroupResponse {
        error_code: response.code.code(),
        protocol_type: response.protocol_type.as_deref().map(text),
        protocol_name: response.protocol_name.as_deref().map(text),
        assignment: group_bytes(response.assignment),
        ..Default::default()
    }
}

fn convert(request: SyncGroupRequest) -> SyncRequest {
    let assignments = request.assignments.iter();
    SyncRequest {
        group_id: group_text(&request.group_id),
        generation_id: request.generation_id,
        member_id: group_text(&request.member_id),
        group_instance_id: request.group_instance_id.as_deref().map(group_text),
        protocol_type: request.protocol_type.as_deref().map(group_text),
        protocol_name: request.protocol_name.as_deref().map(group_text),
        assignments: assignments
            .map(|one| (group_text(&one.member_id), one.assignment.as_ref().into()))
            .collect(),
    }
}
