//! All messages that a client of Kafka 4.4 can exchange with a broker, one file per API.
//!
//! Each file describes its messages as tables of fields (the language is that of `describe.rs`);
//! the names are those of Kafka's own message definitions, in snake case. APIs that only brokers
//! and controllers exchange (Vote, AlterPartition, BrokerRegistration, ...) are not described.
//!
//! Requests, responses and most structures inside them are re-exported here; a structure whose
//! name several APIs use is found in the module of its API.

#![allow(missing_docs, reason = "fields and structures bear Kafka's names and meanings")]

use std::fmt::Debug;
use std::ops::RangeInclusive;

use crate::api_key::ApiKey;
use crate::codec::{DecodeError, Decoder, EncodeError, Encoder};

/// A message of the protocol. `Default` gives each field Kafka's default.
pub trait Message: Sized + Default + Clone + Debug + PartialEq + Send + Sync + 'static {
    /// Kafka's name, such as `ProduceRequest`.
    const NAME: &'static str;
    /// All versions that are described (inclusive).
    const VERSIONS: RangeInclusive<i16>;
    /// The versions without those that Kafka 4.4 marks as unstable: what a broker may advertise.
    const STABLE_VERSIONS: RangeInclusive<i16>;
    /// The first version with compact lengths and tagged fields; `i16::MAX` where there is none.
    const FLEXIBLE_FROM: i16;

    /// Reads the message in `version`. Strings, byte fields and records are slices of the frame.
    /// Fields that the version lacks have their defaults. What follows the message is left in `d`.
    ///
    /// # Errors
    /// Any way in which the bytes are not this message; never a panic.
    fn decode(d: &mut Decoder, version: i16) -> Result<Self, DecodeError>;

    /// Writes the message in `version`; records are linked, not copied. A field that the version
    /// lacks is dropped if Kafka calls it ignorable and is an error if it does not have its default
    /// otherwise. After an error `e` holds a part of the message and must be dropped.
    ///
    /// # Errors
    /// An undescribed version, a field set that the version lacks, null where it is not allowed, or
    /// something longer than its length field can say.
    fn encode(&self, e: &mut Encoder, version: i16) -> Result<(), EncodeError>;
}

/// A message that a client sends.
pub trait Request: Message {
    /// The API that it belongs to.
    const KEY: ApiKey;
    /// What answers it, in the same version.
    type Response: Response;
}

/// A message that answers a request.
pub trait Response: Message {
    /// The API that it belongs to.
    const KEY: ApiKey;
}

/// Calls the macro `$then` with one line `Key module Request Response;` per API, by rising key.
/// For code that must handle every API: tests, fuzzing, dumps.
#[macro_export]
macro_rules! for_each_api {
    ($then:ident) => {
        $then! {
            Produce produce ProduceRequest ProduceResponse;
            Fetch fetch FetchRequest FetchResponse;
            ListOffsets list_offsets ListOffsetsRequest ListOffsetsResponse;
            Metadata metadata MetadataRequest MetadataResponse;
            OffsetCommit offset_commit OffsetCommitRequest OffsetCommitResponse;
            OffsetFetch offset_fetch OffsetFetchRequest OffsetFetchResponse;
            FindCoordinator find_coordinator FindCoordinatorRequest FindCoordinatorResponse;
            JoinGroup join_group JoinGroupRequest JoinGroupResponse;
            Heartbeat heartbeat HeartbeatRequest HeartbeatResponse;
            LeaveGroup leave_group LeaveGroupRequest LeaveGroupResponse;
            SyncGroup sync_group SyncGroupRequest SyncGroupResponse;
            DescribeGroups describe_groups DescribeGroupsRequest DescribeGroupsResponse;
            ListGroups list_groups ListGroupsRequest ListGroupsResponse;
            SaslHandshake sasl_handshake SaslHandshakeRequest SaslHandshakeResponse;
            ApiVersions api_versions ApiVersionsRequest ApiVersionsResponse;
            CreateTopics create_topics CreateTopicsRequest CreateTopicsResponse;
            DeleteTopics delete_topics DeleteTopicsRequest DeleteTopicsResponse;
            DeleteRecords delete_records DeleteRecordsRequest DeleteRecordsResponse;
            InitProducerId init_producer_id InitProducerIdRequest InitProducerIdResponse;
            OffsetForLeaderEpoch offset_for_leader_epoch OffsetForLeaderEpochRequest OffsetForLeaderEpochResponse;
            AddPartitionsToTxn add_partitions_to_txn AddPartitionsToTxnRequest AddPartitionsToTxnResponse;
            AddOffsetsToTxn add_offsets_to_txn AddOffsetsToTxnRequest AddOffsetsToTxnResponse;
            EndTxn end_txn EndTxnRequest EndTxnResponse;
            WriteTxnMarkers write_txn_markers WriteTxnMarkersRequest WriteTxnMarkersResponse;
            TxnOffsetCommit txn_offset_commit TxnOffsetCommitRequest TxnOffsetCommitResponse;
            DescribeAcls describe_acls DescribeAclsRequest DescribeAclsResponse;
            CreateAcls create_acls CreateAclsRequest CreateAclsResponse;
            DeleteAcls delete_acls DeleteAclsRequest DeleteAclsResponse;
            DescribeConfigs describe_configs DescribeConfigsRequest DescribeConfigsResponse;
            AlterConfigs alter_configs AlterConfigsRequest AlterConfigsResponse;
            AlterReplicaLogDirs alter_replica_log_dirs AlterReplicaLogDirsRequest AlterReplicaLogDirsResponse;
            DescribeLogDirs describe_log_dirs DescribeLogDirsRequest DescribeLogDirsResponse;
            SaslAuthenticate sasl_authenticate SaslAuthenticateRequest SaslAuthenticateResponse;
            CreatePartitions create_partitions CreatePartitionsRequest CreatePartitionsResponse;
            CreateDelegationToken create_delegation_token CreateDelegationTokenRequest CreateDelegationTokenResponse;
            RenewDelegationToken renew_delegation_token RenewDelegationTokenRequest RenewDelegationTokenResponse;
            ExpireDelegationToken expire_delegation_token ExpireDelegationTokenRequest ExpireDelegationTokenResponse;
            DescribeDelegationToken describe_delegation_token DescribeDelegationTokenRequest DescribeDelegationTokenResponse;
            DeleteGroups delete_groups DeleteGroupsRequest DeleteGroupsResponse;
            ElectLeaders elect_leaders ElectLeadersRequest ElectLeadersResponse;
            IncrementalAlterConfigs incremental_alter_configs IncrementalAlterConfigsRequest IncrementalAlterConfigsResponse;
            AlterPartitionReassignments alter_partition_reassignments
                AlterPartitionReassignmentsRequest AlterPartitionReassignmentsResponse;
            ListPartitionReassignments list_partition_reassignments
                ListPartitionReassignmentsRequest ListPartitionReassignmentsResponse;
            OffsetDelete offset_delete OffsetDeleteRequest OffsetDeleteResponse;
            DescribeClientQuotas describe_client_quotas DescribeClientQuotasRequest DescribeClientQuotasResponse;
            AlterClientQuotas alter_client_quotas AlterClientQuotasRequest AlterClientQuotasResponse;
            DescribeUserScramCredentials describe_user_scram_credentials
                DescribeUserScramCredentialsRequest DescribeUserScramCredentialsResponse;
            AlterUserScramCredentials alter_user_scram_credentials
                AlterUserScramCredentialsRequest AlterUserScramCredentialsResponse;
            DescribeQuorum describe_quorum DescribeQuorumRequest DescribeQuorumResponse;
            UpdateFeatures update_features UpdateFeaturesRequest UpdateFeaturesResponse;
            DescribeCluster describe_cluster DescribeClusterRequest DescribeClusterResponse;
            DescribeProducers describe_producers DescribeProducersRequest DescribeProducersResponse;
            UnregisterBroker unregister_broker UnregisterBrokerRequest UnregisterBrokerResponse;
            DescribeTransactions describe_transactions DescribeTransactionsRequest DescribeTransactionsResponse;
            ListTransactions list_transactions ListTransactionsRequest ListTransactionsResponse;
            ConsumerGroupHeartbeat consumer_group_heartbeat ConsumerGroupHeartbeatRequest ConsumerGroupHeartbeatResponse;
            ConsumerGroupDescribe consumer_group_describe ConsumerGroupDescribeRequest ConsumerGroupDescribeResponse;
            GetTelemetrySubscriptions get_telemetry_subscriptions
                GetTelemetrySubscriptionsRequest GetTelemetrySubscriptionsResponse;
            PushTelemetry push_telemetry PushTelemetryRequest PushTelemetryResponse;
            ListConfigResources list_config_resources ListConfigResourcesRequest ListConfigResourcesResponse;
            DescribeTopicPartitions describe_topic_partitions DescribeTopicPartitionsRequest DescribeTopicPartitionsResponse;
            ShareGroupHeartbeat share_group_heartbeat ShareGroupHeartbeatRequest ShareGroupHeartbeatResponse;
            ShareGroupDescribe share_group_describe ShareGroupDescribeRequest ShareGroupDescribeResponse;
            ShareFetch share_fetch ShareFetchRequest ShareFetchResponse;
            ShareAcknowledge share_acknowledge ShareAcknowledgeRequest ShareAcknowledgeResponse;
            AddRaftVoter add_raft_voter AddRaftVoterRequest AddRaftVoterResponse;
            RemoveRaftVoter remove_raft_voter RemoveRaftVoterRequest RemoveRaftVoterResponse;
            InitializeShareGroupState initialize_share_group_state
                InitializeShareGroupStateRequest InitializeShareGroupStateResponse;
            ReadShareGroupState read_share_group_state ReadShareGroupStateRequest ReadShareGroupStateResponse;
            WriteShareGroupState write_share_group_state WriteShareGroupStateRequest WriteShareGroupStateResponse;
            DeleteShareGroupState delete_share_group_state DeleteShareGroupStateRequest DeleteShareGroupStateResponse;
            ReadShareGroupStateSummary read_share_group_state_summary
                ReadShareGroupStateSummaryRequest ReadShareGroupStateSummaryResponse;
            StreamsGroupHeartbeat streams_group_heartbeat StreamsGroupHeartbeatRequest StreamsGroupHeartbeatResponse;
            StreamsGroupDescribe streams_group_describe StreamsGroupDescribeRequest StreamsGroupDescribeResponse;
            DescribeShareGroupOffsets describe_share_group_offsets
                DescribeShareGroupOffsetsRequest DescribeShareGroupOffsetsResponse;
            AlterShareGroupOffsets alter_share_group_offsets AlterShareGroupOffsetsRequest AlterShareGroupOffsetsResponse;
            DeleteShareGroupOffsets delete_share_group_offsets DeleteShareGroupOffsetsRequest DeleteShareGroupOffsetsResponse;
            StreamsGroupTopologyDescriptionUpdate streams_group_topology_description_update
                StreamsGroupTopologyDescriptionUpdateRequest StreamsGroupTopologyDescriptionUpdateResponse;
            UnregisterController unregister_controller UnregisterControllerRequest UnregisterControllerResponse;
        }
    };
}

#[cfg(test)]
pub(crate) mod arbitrary;
#[cfg(test)]
mod tests;

pub mod add_offsets_to_txn;
pub mod add_partitions_to_txn;
pub mod add_raft_voter;
pub mod alter_client_quotas;
pub mod alter_configs;
pub mod alter_partition_reassignments;
pub mod alter_replica_log_dirs;
pub mod alter_share_group_offsets;
pub mod alter_user_scram_credentials;
pub mod api_versions;
pub mod consumer_group_describe;
pub mod consumer_group_heartbeat;
pub mod create_acls;
pub mod create_delegation_token;
pub mod create_partitions;
pub mod create_topics;
pub mod delete_acls;
pub mod delete_groups;
pub mod delete_records;
pub mod delete_share_group_offsets;
pub mod delete_share_group_state;
pub mod delete_topics;
pub mod describe_acls;
pub mod describe_client_quotas;
pub mod describe_cluster;
pub mod describe_configs;
pub mod describe_delegation_token;
pub mod describe_groups;
pub mod describe_log_dirs;
pub mod describe_producers;
pub mod describe_quorum;
pub mod describe_share_group_offsets;
pub mod describe_topic_partitions;
pub mod describe_transactions;
pub mod describe_user_scram_credentials;
pub mod elect_leaders;
pub mod embedded;
pub mod end_txn;
pub mod expire_delegation_token;
pub mod fetch;
pub mod find_coordinator;
pub mod get_telemetry_subscriptions;
pub mod heartbeat;
pub mod incremental_alter_configs;
pub mod init_producer_id;
pub mod initialize_share_group_state;
pub mod join_group;
pub mod leave_group;
pub mod list_config_resources;
pub mod list_groups;
pub mod list_offsets;
pub mod list_partition_reassignments;
pub mod list_transactions;
pub mod metadata;
pub mod offset_commit;
pub mod offset_delete;
pub mod offset_fetch;
pub mod offset_for_leader_epoch;
pub mod produce;
pub mod push_telemetry;
pub mod read_share_group_state;
pub mod read_share_group_state_summary;
pub mod remove_raft_voter;
pub mod renew_delegation_token;
pub mod sasl_authenticate;
pub mod sasl_handshake;
pub mod share_acknowledge;
pub mod share_fetch;
pub mod share_group_describe;
pub mod share_group_heartbeat;
pub mod streams_group_describe;
pub mod streams_group_heartbeat;
pub mod streams_group_topology_description_update;
pub mod sync_group;
pub mod txn_offset_commit;
pub mod unregister_broker;
pub mod unregister_controller;
pub mod update_features;
pub mod write_share_group_state;
pub mod write_txn_markers;

pub use add_offsets_to_txn::{AddOffsetsToTxnRequest, AddOffsetsToTxnResponse};
pub use add_partitions_to_txn::{
    AddPartitionsToTxnPartitionResult, AddPartitionsToTxnRequest, AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult, AddPartitionsToTxnTopic, AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
};
pub use add_raft_voter::{AddRaftVoterRequest, AddRaftVoterResponse};
pub use alter_client_quotas::{
    AlterClientQuotasRequest, AlterClientQuotasRequestEntityData,
    AlterClientQuotasRequestEntryData, AlterClientQuotasResponse,
    AlterClientQuotasResponseEntityData, AlterClientQuotasResponseEntryData, OpData,
};
pub use alter_configs::{AlterConfigsRequest, AlterConfigsResponse};
pub use alter_partition_reassignments::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse, ReassignablePartition,
    ReassignablePartitionResponse, ReassignableTopic, ReassignableTopicResponse,
};
pub use alter_replica_log_dirs::{
    AlterReplicaLogDir, AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopic,
    AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse,
};
pub use alter_share_group_offsets::{
    AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic, AlterShareGroupOffsetsResponse,
    AlterShareGroupOffsetsResponsePartition, AlterShareGroupOffsetsResponseTopic,
};
pub use alter_user_scram_credentials::{
    AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult, ScramCredentialDeletion, ScramCredentialUpsertion,
};
pub use api_versions::{
    ApiVersion, ApiVersionsRequest, ApiVersionsResponse, FinalizedFeatureKey, SupportedFeatureKey,
};
pub use consumer_group_describe::{ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse};
pub use consumer_group_heartbeat::{
    ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatRequestTopicPartitions,
    ConsumerGroupHeartbeatResponse, ConsumerGroupHeartbeatResponseTopicPartitions,
};
pub use create_acls::{AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse};
pub use create_delegation_token::{
    CreatableRenewers, CreateDelegationTokenRequest, CreateDelegationTokenResponse,
};
pub use create_partitions::{
    CreatePartitionsAssignment, CreatePartitionsRequest, CreatePartitionsResponse,
    CreatePartitionsTopic, CreatePartitionsTopicResult,
};
pub use create_topics::{
    CreatableReplicaAssignment, CreatableTopic, CreatableTopicConfig, CreatableTopicConfigs,
    CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse,
};
pub use delete_acls::{
    DeleteAclsFilter, DeleteAclsFilterResult, DeleteAclsMatchingAcl, DeleteAclsRequest,
    DeleteAclsResponse,
};
pub use delete_groups::{DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse};
pub use delete_records::{
    DeleteRecordsPartition, DeleteRecordsPartitionResult, DeleteRecordsRequest,
    DeleteRecordsResponse, DeleteRecordsTopic, DeleteRecordsTopicResult,
};
pub use delete_share_group_offsets::{
    DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse, DeleteShareGroupOffsetsResponseTopic,
};
pub use delete_share_group_state::{
    DeleteShareGroupStateRequest, DeleteShareGroupStateResponse, DeleteStateData, DeleteStateResult,
};
pub use delete_topics::{
    DeletableTopicResult, DeleteTopicState, DeleteTopicsRequest, DeleteTopicsResponse,
};
pub use describe_acls::{
    AclDescription, DescribeAclsRequest, DescribeAclsResource, DescribeAclsResponse,
};
pub use describe_client_quotas::{
    ComponentData, DescribeClientQuotasRequest, DescribeClientQuotasResponse, EntityData,
    EntryData, ValueData,
};
pub use describe_cluster::{
    DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse,
};
pub use describe_configs::{
    DescribeConfigsRequest, DescribeConfigsResource, DescribeConfigsResourceResult,
    DescribeConfigsResponse, DescribeConfigsResult, DescribeConfigsSynonym,
};
pub use describe_delegation_token::{
    DescribeDelegationTokenOwner, DescribeDelegationTokenRequest, DescribeDelegationTokenResponse,
    DescribedDelegationToken, DescribedDelegationTokenRenewer,
};
pub use describe_groups::{DescribeGroupsRequest, DescribeGroupsResponse, DescribedGroupMember};
pub use describe_log_dirs::{
    DescribableLogDirTopic, DescribeLogDirsPartition, DescribeLogDirsRequest,
    DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};
pub use describe_producers::{
    DescribeProducersRequest, DescribeProducersResponse, PartitionResponse, ProducerState,
    TopicResponse,
};
pub use describe_quorum::{
    DescribeQuorumRequest, DescribeQuorumRequestPartitionData, DescribeQuorumRequestTopicData,
    DescribeQuorumResponse, DescribeQuorumResponsePartitionData, DescribeQuorumResponseTopicData,
    Node,
};
pub use describe_share_group_offsets::{
    DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic, DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup, DescribeShareGroupOffsetsResponsePartition,
    DescribeShareGroupOffsetsResponseTopic,
};
pub use describe_topic_partitions::{
    DescribeTopicPartitionsRequest, DescribeTopicPartitionsRequestCursor,
    DescribeTopicPartitionsResponse, DescribeTopicPartitionsResponseCursor,
    DescribeTopicPartitionsResponsePartition, DescribeTopicPartitionsResponseTopic,
};
pub use describe_transactions::{
    DescribeTransactionsRequest, DescribeTransactionsResponse, TopicData,
};
pub use describe_user_scram_credentials::{
    CredentialInfo, DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult, UserName,
};
pub use elect_leaders::{ElectLeadersRequest, ElectLeadersResponse, ReplicaElectionResult};
pub use embedded::{
    ConsumerProtocolAssignment, ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription, ConsumerProtocolSubscriptionTopicPartition, EndTxnMarker,
};
pub use end_txn::{EndTxnRequest, EndTxnResponse};
pub use expire_delegation_token::{ExpireDelegationTokenRequest, ExpireDelegationTokenResponse};
pub use fetch::{
    AbortedTransaction, FetchRequest, FetchResponse, FetchableTopicResponse, SnapshotId,
};
pub use find_coordinator::{Coordinator, FindCoordinatorRequest, FindCoordinatorResponse};
pub use get_telemetry_subscriptions::{
    GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse,
};
pub use heartbeat::{HeartbeatRequest, HeartbeatResponse};
pub use incremental_alter_configs::{
    IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse,
};
pub use init_producer_id::{InitProducerIdRequest, InitProducerIdResponse};
pub use initialize_share_group_state::{
    InitializeShareGroupStateRequest, InitializeShareGroupStateResponse, InitializeStateData,
    InitializeStateResult,
};
pub use join_group::{
    JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse, JoinGroupResponseMember,
};
pub use leave_group::{LeaveGroupRequest, LeaveGroupResponse, MemberIdentity, MemberResponse};
pub use list_config_resources::{
    ConfigResource, ListConfigResourcesRequest, ListConfigResourcesResponse,
};
pub use list_groups::{ListGroupsRequest, ListGroupsResponse, ListedGroup};
pub use list_offsets::{
    ListOffsetsPartition, ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse,
    ListOffsetsTopic, ListOffsetsTopicResponse,
};
pub use list_partition_reassignments::{
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics, OngoingPartitionReassignment, OngoingTopicReassignment,
};
pub use list_transactions::{ListTransactionsRequest, ListTransactionsResponse};
pub use metadata::{
    MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseBroker,
    MetadataResponsePartition, MetadataResponseTopic,
};
pub use offset_commit::{
    OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic,
    OffsetCommitResponse, OffsetCommitResponsePartition, OffsetCommitResponseTopic,
};
pub use offset_delete::{
    OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic,
    OffsetDeleteResponse, OffsetDeleteResponsePartition, OffsetDeleteResponseTopic,
};
pub use offset_fetch::{
    OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopic, OffsetFetchRequestTopics,
    OffsetFetchResponse, OffsetFetchResponseGroup, OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions, OffsetFetchResponseTopic, OffsetFetchResponseTopics,
};
pub use offset_for_leader_epoch::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartition,
    OffsetForLeaderTopic, OffsetForLeaderTopicResult,
};
pub use produce::{
    BatchIndexAndErrorMessage, PartitionProduceData, PartitionProduceResponse, ProduceRequest,
    ProduceResponse, TopicProduceData, TopicProduceResponse,
};
pub use push_telemetry::{PushTelemetryRequest, PushTelemetryResponse};
pub use read_share_group_state::{
    ReadShareGroupStateRequest, ReadShareGroupStateResponse, ReadStateData, ReadStateResult,
};
pub use read_share_group_state_summary::{
    ReadShareGroupStateSummaryRequest, ReadShareGroupStateSummaryResponse, ReadStateSummaryData,
    ReadStateSummaryResult,
};
pub use remove_raft_voter::{RemoveRaftVoterRequest, RemoveRaftVoterResponse};
pub use renew_delegation_token::{RenewDelegationTokenRequest, RenewDelegationTokenResponse};
pub use sasl_authenticate::{SaslAuthenticateRequest, SaslAuthenticateResponse};
pub use sasl_handshake::{SaslHandshakeRequest, SaslHandshakeResponse};
pub use share_acknowledge::{
    AcknowledgePartition, AcknowledgeTopic, ShareAcknowledgeRequest, ShareAcknowledgeResponse,
    ShareAcknowledgeTopicResponse,
};
pub use share_fetch::{
    AcquiredRecords, ShareFetchRequest, ShareFetchResponse, ShareFetchableTopicResponse,
};
pub use share_group_describe::{ShareGroupDescribeRequest, ShareGroupDescribeResponse};
pub use share_group_heartbeat::{ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse};
pub use streams_group_describe::{
    Endpoint, StreamsGroupDescribeRequest, StreamsGroupDescribeResponse, TaskIds,
};
pub use streams_group_heartbeat::{
    CopartitionGroup, EndpointToPartitions, Status, StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatRequestEndpoint, StreamsGroupHeartbeatRequestTaskIds,
    StreamsGroupHeartbeatResponse, StreamsGroupHeartbeatResponseEndpoint,
    StreamsGroupHeartbeatResponseTaskIds, TopicPartition,
};
pub use streams_group_topology_description_update::{
    StreamsGroupTopologyDescriptionUpdateRequest, StreamsGroupTopologyDescriptionUpdateResponse,
};
pub use sync_group::{SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse};
pub use txn_offset_commit::{
    TxnOffsetCommitRequest, TxnOffsetCommitRequestPartition, TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse, TxnOffsetCommitResponsePartition, TxnOffsetCommitResponseTopic,
};
pub use unregister_broker::{UnregisterBrokerRequest, UnregisterBrokerResponse};
pub use unregister_controller::{UnregisterControllerRequest, UnregisterControllerResponse};
pub use update_features::{
    FeatureUpdateKey, UpdatableFeatureResult, UpdateFeaturesRequest, UpdateFeaturesResponse,
};
pub use write_share_group_state::{
    WriteShareGroupStateRequest, WriteShareGroupStateResponse, WriteStateData, WriteStateResult,
};
pub use write_txn_markers::{
    WritableTxnMarker, WritableTxnMarkerPartitionResult, WritableTxnMarkerResult,
    WritableTxnMarkerTopic, WritableTxnMarkerTopicResult, WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
};
