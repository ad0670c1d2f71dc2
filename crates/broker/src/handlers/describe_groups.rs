//! DescribeGroups (key 15), versions 0 to 6. State, protocol and members of classic groups. From 6 a
//! missing group is GROUP_ID_NOT_FOUND; before, a dead one without an error.

use std::sync::Arc;

use talos_protocol::Str;
use talos_protocol::messages::describe_groups::{DescribedGroup, DescribedGroupMember};
use talos_protocol::messages::{DescribeGroupsRequest, DescribeGroupsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::errors::clipped;
use crate::groups::{Code, api};
use crate::handlers::{distinct, group_bytes, group_text, text};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    context: &Context,
    request: DescribeGroupsRequest,
) -> DescribeGroupsResponse {
    let describe = |group_id: Str| match shared.coordinator(&group_id) {
        Some(coordinator) => convert(context.version, coordinator.describe(&group_text(&group_id))),
        None => DescribedGroup {
            error_code: Code::NotCoordinator.code(),
            group_id,
            ..Default::default()
        },
    };
    let groups = distinct(request.groups, Str::clone).into_iter().map(describe).collect();
    DescribeGroupsResponse { groups, ..Default::default() }
}

fn convert(version: i16, group: api::DescribedGroup) -> DescribedGroup {
    let is_missing = group.code == Code::GroupIdNotFound;
    let code = if is_missing && version < 6 { Code::None } else { group.code };
    let member = |member: api::DescribedMember| DescribedGroupMember {
        member_id: text(&member.member_id),
        group_instance_id: member.group_instance_id.as_deref().map(text),
        client_id: text(&member.client_id),
        client_host: text(&member.client_host),
        member_metadata: group_bytes(member.metadata),
        member_assignment: group_bytes(member.assignment),
    };
    DescribedGroup {
        error_code: code.code(),
        error_message: group.message.filter(|_| version >= 6).map(|message| clipped(&message)),
        group_id: text(&group.group_id),
        group_state: group.state.into(),
        protocol_type: text(&group.protocol_type),
        protocol_data: text(&group.protocol_data),
        members: group.members.into_iter().map(member).collect(),
        ..Default::default()
    }
}
