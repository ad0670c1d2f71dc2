//! Which APIs are served, in which versions, and by which handler: one table. The answer to
//! ApiVersions is made from it; what is not in it does not exist for clients.

use std::sync::{Arc, PoisonError};

use talos_common::ByteLease;
use talos_protocol::codec::DecodeError;
use talos_protocol::frame;
use talos_protocol::messages::api_versions::{ApiVersion, ApiVersionsResponse};
use talos_protocol::messages::*;
use talos_protocol::{ApiKey, Decoder, ErrorCode};

use crate::broker::Shared;
use crate::connection::{Context, FrameLease, Outcome, Work};
use crate::handlers;

/// A request that was read.
pub(crate) enum Begun {
    /// Accepted: later produce requests need not wait for the work.
    Accepted(ApiKey, Work),
    /// Not begun: the work runs when all earlier requests are answered, and later ones wait for it.
    Exclusive(ApiKey, Work),
}

/// One served API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Served {
    /// Which.
    pub key: ApiKey,
    /// Lowest version that is advertised.
    pub advertised_min: i16,
    /// Lowest version that is served (inclusive).
    pub min: i16,
    /// Highest version that is served (inclusive).
    pub max: i16,
}

/// A handler's answer.
pub(crate) struct Handled<R> {
    pub(crate) response: R,
    /// Bytes of the answer budget that are given back when it is sent.
    pub(crate) leases: Vec<ByteLease>,
}

impl<R: Response> From<R> for Handled<R> {
    fn from(response: R) -> Self {
        Self { response, leases: Vec::new() }
    }
}

macro_rules! apis {
    ($($module:ident $request:ident;)*) => {
        /// All served APIs besides Produce, in the order of the table.
        const OTHERS: &[Served] = &[$(Served {
            key: <$request as Request>::KEY,
            advertised_min: *<$request as Message>::STABLE_VERSIONS.start(),
            min: *<$request as Message>::STABLE_VERSIONS.start(),
            max: *<$request as Message>::STABLE_VERSIONS.end(),
        },)*];

        fn exclusive(
            shared: &Arc<Shared>,
            key: ApiKey,
            context: Context,
            decoder: Decoder,
            lease: FrameLease,
        ) -> Result<Work, DecodeError> {
            let shared = Arc::clone(shared);
            match key {
                $(<$request as Request>::KEY => {
                    let request: $request = frame::decode_request_body(decoder, context.version)?;
                    Ok(Box::pin(async move {
                        let (correlation_id, version) = (context.correlation_id, context.version);
                        *context.lease.lock().unwrap_or_else(PoisonError::into_inner) = Some(lease);
                        let handled: Handled<<$request as Request>::Response> =
                            handlers::$module::handle(&shared, &context, request).await.into();
                        context.release();
                        let frame =
                            frame::encode_response(correlation_id, version, &handled.response);
                        Outcome::encoded(frame, handled.leases)
                    }))
                })*
                _ => Ok(Box::pin(async move {
                    drop((lease, decoder));
                    Outcome::Close(format!("{} is not served", key.name()))
                })),
            }
        }
    };
}

apis! {
    fetch FetchRequest;
    list_offsets ListOffsetsRequest;
    metadata MetadataRequest;
    offset_commit OffsetCommitRequest;
    offset_fetch OffsetFetchRequest;
    find_coordinator FindCoordinatorRequest;
    join_group JoinGroupRequest;
    heartbeat HeartbeatRequest;
    leave_group LeaveGroupRequest;
    sync_group SyncGroupRequest;
    describe_groups DescribeGroupsRequest;
    list_groups ListGroupsRequest;
    api_versions ApiVersionsRequest;
    create_topics CreateTopicsRequest;
    delete_topics DeleteTopicsRequest;
    delete_records DeleteRecordsRequest;
    init_producer_id InitProducerIdRequest;
    offset_for_leader_epoch OffsetForLeaderEpochRequest;
    describe_configs DescribeConfigsRequest;
    alter_configs AlterConfigsRequest;
    describe_log_dirs DescribeLogDirsRequest;
    create_partitions CreatePartitionsRequest;
    delete_groups DeleteGroupsRequest;
    incremental_alter_configs IncrementalAlterConfigsRequest;
    offset_delete OffsetDeleteRequest;
    describe_cluster DescribeClusterRequest;
    describe_producers DescribeProducersRequest;
    describe_topic_partitions DescribeTopicPartitionsRequest;
}

/// Advertised from 0 because old librdkafka takes a higher start for a broker without Produce
/// (KAFKA-18659); versions below 3 carry record formats that are gone and are refused.
const PRODUCE: Served = Served {
    key: ApiKey::Produce,
    advertised_min: 0,
    min: *<ProduceRequest as Message>::STABLE_VERSIONS.start(),
    max: *<ProduceRequest as Message>::STABLE_VERSIONS.end(),
};

/// All served APIs, by rising key.
pub fn served() -> Vec<Served> {
    let mut all: Vec<_> = std::iter::once(PRODUCE).chain(OTHERS.iter().copied()).collect();
    all.sort_by_key(|served| served.key.code());
    all
}

/// Whether this version of this API is served.
pub(crate) fn serves(key: ApiKey, version: i16) -> bool {
    let fits = |served: &&Served| served.key == key;
    let served = std::iter::once(&PRODUCE).chain(OTHERS).find(fits);
    served.is_some_and(|served| (served.min..=served.max).contains(&version))
}

/// Begins a request of a version that is served. Waits only while Produce is being accepted.
pub(crate) async fn begin(
    shared: &Arc<Shared>,
    key: ApiKey,
    context: Context,
    decoder: Decoder,
    lease: FrameLease,
) -> Result<Begun, DecodeError> {
    if key == ApiKey::Produce {
        let request: ProduceRequest = frame::decode_request_body(decoder, context.version)?;
        let work = handlers::produce::accept(shared, &context, request).await;
        drop(lease);
        return Ok(Begun::Accepted(key, work));
    }
    exclusive(shared, key, context, decoder, lease).map(|work| Begun::Exclusive(key, work))
}

/// The answer to an ApiVersions request of an unknown version: version 0, with the versions of
/// ApiVersions itself, so that the client can ask again (KIP-511).
pub(crate) fn unsupported_api_versions(correlation_id: i32) -> Begun {
    let key = ApiKey::ApiVersions;
    let own = served().into_iter().filter(|served| served.key == key);
    let response = ApiVersionsResponse {
        error_code: ErrorCode::UnsupportedVersion.code(),
        api_keys: own.map(advertised).collect(),
        ..Default::default()
    };
    let frame = frame::encode_response(correlation_id, 0, &response);
    Begun::Exclusive(key, Box::pin(async move { Outcome::encoded(frame, Vec::new()) }))
}

/// How a client is told of it.
pub(crate) fn advertised(served: Served) -> ApiVersion {
    ApiVersion {
        api_key: served.key.code(),
        min_version: served.advertised_min,
        max_version: served.max,
    }
}
