//! DescribeCluster: brokers, controller and id of the cluster.

use crate::primitives::Str;

message! {
    DescribeClusterRequest: versions [0-2], flexible [0+],
        key DescribeCluster, response DescribeClusterResponse;
    /// Request: brokers, controller and id of the cluster.
    struct DescribeClusterRequest {
        include_cluster_authorized_operations: bool [0+],
        endpoint_type: i8 [1+] = 1,
        include_fenced_brokers: bool [2+],
    }
}

message! {
    DescribeClusterResponse: versions [0-2], flexible [0+];
    /// Answers [`DescribeClusterRequest`].
    struct DescribeClusterResponse {
        throttle_time_ms: i32 [0+],
        error_code: i16 [0+],
        error_message: Option<Str> [0+, null 0+] = None,
        endpoint_type: i8 [1+] = 1,
        cluster_id: Str [0+],
        controller_id: i32 [0+] = -1,
        brokers: Vec<DescribeClusterBroker> [0+],
        cluster_authorized_operations: i32 [0+] = i32::MIN,
    }
    struct DescribeClusterBroker {
        broker_id: i32 [0+],
        host: Str [0+],
        port: i32 [0+],
        rack: Option<Str> [0+, null 0+] = None,
        is_fenced: bool [2+],
    }
}
