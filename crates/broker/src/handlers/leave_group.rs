//! LeaveGroup (key 13), versions 0 to 5.
//!
//! Removes members. Up to 2 one member, whose code is that of the answer; from 3 several, each with
//! its own code, also static ones by their instance id.

use std::sync::Arc;

use talos_protocol::messages::{LeaveGroupRequest, LeaveGroupResponse, MemberResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::Code;
use crate::groups::api::{LeaveMember, LeaveResponse};
use crate::handlers::group_text;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: LeaveGroupRequest,
) -> LeaveGroupResponse {
    let asked: Vec<LeaveMember> = match context.version {
        ..3 => {
            vec![LeaveMember { member_id: group_text(&request.member_id), group_instance_id: None }]
        }
        _ => {
            let member = |member: &talos_protocol::messages::MemberIdentity| LeaveMember {
                member_id: group_text(&member.member_id),
                group_instance_id: member.group_instance_id.as_deref().map(group_text),
            };
            request.members.iter().map(member).collect()
        }
    };
    let response = match shared.coordinator(&request.group_id) {
        Some(coordinator) => coordinator.leave(group_text(&request.group_id), asked).await,
        None => LeaveResponse::error(Code::NotCoordinator),
    };
    if context.version < 3 {
        let one = response.members.first().copied().unwrap_or(Code::None);
        let code = if response.code == Code::None { one } else { response.code };
        return LeaveGroupResponse { error_code: code.code(), ..Default::default() };
    }
    let members = request.members.into_iter().zip(response.members);
    LeaveGroupResponse {
        error_code: response.code.code(),
        members: members
            .map(|(member, code)| MemberResponse {
                member_id: member.member_id,
                group_instance_id: member.group_instance_id,
                error_code: code.code(),
            })
            .collect(),
        ..Default::default()
    }
}
