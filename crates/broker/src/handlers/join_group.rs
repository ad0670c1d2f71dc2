//! JoinGroup (key 11), versions 0 to 9.
//!
//! Joins a group of the classic protocol and waits until its join phase ends. From 4 a new member is
//! first given its id (MEMBER_ID_REQUIRED), 5 adds static members, 7 protocol types in the answer, 9
//! may tell the leader to skip the assignment. The rules are those of [`crate::groups`].

use std::sync::Arc;

use talos_protocol::messages::{JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::Code;
use crate::groups::api::{JoinRequest, JoinResponse};
use crate::handlers::{group_bytes, group_text, text};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: JoinGroupRequest,
) -> JoinGroupResponse {
    let member_id = group_text(&request.member_id);
    let response = match shared.coordinator(&request.group_id) {
        Some(coordinator) => {
            let join = coordinator.join(convert(context, request));
            context.release();
            tokio::select! {
                biased;
                response = join => response,
                () = shared.stopping() => JoinResponse::error(Code::NotCoordinator, member_id),
            }
        }
        None => JoinResponse::error(Code::NotCoordinator, member_id),
    };
    let members = response.members.into_iter().map(|member| JoinGroupResponseMember {
        member_id: text(&member.member_id),
        group_instance_id: member.group_instance_id.as_deref().map(text),
        metadata: group_bytes(member.metadata),
    });
    // Below version 7 a missing name is the empty one.
    let protocol_name = response.protocol_name.as_deref().map(text);
    let protocol_name = match context.version {
        ..7 => Some(protocol_name.unwrap_or_default()),
        _ => protocol_name,
    };
    JoinGroupResponse {
        error_code: response.code.code(),
        generation_id: response.generation_id,
        protocol_type: response.protocol_type.as_deref().map(text),
        protocol_name,
        leader: text(&response.leader),
        skip_assignment: response.skip_assignment,
        member_id: text(&response.member_id),
        members: members.collect(),
        ..Default::default()
    }
}

fn convert(context: &Context, request: JoinGroupRequest) -> JoinRequest {
    let protocols = request.protocols.iter();
    JoinRequest {
        version: context.version,
        group_id: group_text(&request.group_id),
        session_timeout_ms: request.session_timeout_ms,
        rebalance_timeout_ms: request.rebalance_timeout_ms,
        member_id: group_text(&request.member_id),
        group_instance_id: request.group_instance_id.as_deref().map(group_text),
        protocol_type: group_text(&request.protocol_type),
        protocols: protocols
            .map(|protocol| (group_text(&protocol.name), protocol.metadata.as_ref().into()))
            .collect(),
        client_id: group_text(context.client_id.as_deref().unwrap_or_default()),
        client_host: Arc::clone(&context.client_host),
    }
}
