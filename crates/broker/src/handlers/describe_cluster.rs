//! DescribeCluster (key 60), versions 0 to 2.
//!
//! This broker, the cluster's id and the controller. 1 adds the endpoint type: controllers are no
//! endpoints here (UNSUPPORTED_ENDPOINT_TYPE). 2 adds fenced brokers, of which there are none.

use std::sync::Arc;

use talos_protocol::ErrorCode;
use talos_protocol::messages::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};

use crate::broker::Shared;
use crate::connection::Context;
use crate::handlers::text;

const BROKERS: i8 = 1;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: DescribeClusterRequest,
) -> DescribeClusterResponse {
    let config = &shared.config;
    if request.endpoint_type != BROKERS {
        return DescribeClusterResponse {
            error_code: ErrorCode::UnsupportedEndpointType.code(),
            error_message: Some(text("only brokers can be asked here")),
            endpoint_type: request.endpoint_type,
            ..Default::default()
        };
    }
    let broker = DescribeClusterBroker {
        broker_id: config.node_id.0,
        host: text(&config.advertised_host),
        port: i32::from(config.advertised_port),
        rack: config.rack.as_deref().map(text),
        is_fenced: false,
    };
    DescribeClusterResponse {
        endpoint_type: BROKERS,
        cluster_id: text(&shared.cluster_id.to_string()),
        controller_id: config.node_id.0,
        brokers: vec![broker],
        ..Default::default()
    }
}
