//! ListGroups (key 16), versions 0 to 5. All groups of this broker; 4 filters by state, 5 by type
//! (there are classic groups only). While a part is still loading: COORDINATOR_LOAD_IN_PROGRESS.

use std::sync::Arc;

use talos_protocol::messages::list_groups::ListedGroup;
use talos_protocol::messages::{ListGroupsRequest, ListGroupsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::{Code, Text};
use crate::handlers::{group_text, text};

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: ListGroupsRequest,
) -> ListGroupsResponse {
    let states: Vec<Text> = request.states_filter.iter().map(|name| group_text(name)).collect();
    let types: Vec<Text> = request.types_filter.iter().map(|name| group_text(name)).collect();
    let mut response = ListGroupsResponse::default();
    for coordinator in shared.groups.all() {
        match coordinator.list(&states, &types) {
            Ok(groups) => response.groups.extend(groups.into_iter().map(|group| ListedGroup {
                group_id: text(&group.group_id),
                protocol_type: text(&group.protocol_type),
                group_state: group.state.into(),
                group_type: "classic".into(),
            })),
            // One that gave up is opened anew by the next request for one of its groups; one that cannot
            // be read is missing like one whose partition is offline.
            Err(Code::NotCoordinator | Code::CoordinatorNotAvailable) => {}
            Err(code) => response.error_code = code.code(),
        }
    }
    response
}
