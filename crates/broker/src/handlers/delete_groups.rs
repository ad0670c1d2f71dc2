//! DeleteGroups (key 42), versions 0 to 3. Deletes empty groups with their offsets, durably:
//! NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND. Each group's failure is its own.

use std::sync::Arc;

use talos_protocol::messages::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::groups::Code;
use crate::handlers::group_text;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: DeleteGroupsRequest,
) -> DeleteGroupsResponse {
    let mut results = Vec::with_capacity(request.groups_names.len());
    for group_id in request.groups_names {
        let code = match shared.coordinator(&group_id) {
            Some(coordinator) => coordinator.delete(group_text(&group_id)).await,
            None => Code::NotCoordinator,
        };
        let error_code = code.code();
        results.push(DeletableGroupResult { group_id, error_code, ..Default::default() });
    }
    DeleteGroupsResponse { results, ..Default::default() }
}
