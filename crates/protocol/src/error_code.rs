//! Kafka's error codes up to Kafka 4.4, with a wording of our own.

macro_rules! error_codes {
    ($($name:ident = $code:literal $kafka:ident $($retriable:ident)? $message:literal,)*) => {
        /// An error code of the Kafka protocol. Its number is the code on the wire.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(i16)]
        pub enum ErrorCode {
            $(
                #[doc = concat!("`", stringify!($kafka), "`: ", $message, ".")]
                $name = $code,
            )*
        }

        impl ErrorCode {
            /// All codes, rising.
            pub const ALL: &'static [Self] = &[$(Self::$name),*];

            /// The error with this number, or `None` if Kafka 4.4 has none.
            #[must_use]
            pub const fn from_code(code: i16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// Kafka's name, such as `OFFSET_OUT_OF_RANGE`.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => stringify!($kafka),)* }
            }

            /// What it means, in lower case without a full stop.
            #[must_use]
            pub const fn message(self) -> &'static str {
                match self { $(Self::$name => $message,)* }
            }

            /// Whether Kafka's Java client may try the same request again.
            #[must_use]
            pub const fn is_retriable(self) -> bool {
                match self { $(Self::$name => is_retriable!($($retriable)?),)* }
            }
        }
    };
}

macro_rules! is_retriable {
    () => {
        false
    };
    (retriable) => {
        true
    };
}

impl ErrorCode {
    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> i16 {
        self as i16
    }
}

impl From<ErrorCode> for i16 {
    fn from(error: ErrorCode) -> Self {
        error.code()
    }
}

impl std::fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

error_codes! {
    UnknownServerError = -1 UNKNOWN_SERVER_ERROR "the server failed in an unexpected way",
    None = 0 NONE "no error",
    OffsetOutOfRange = 1 OFFSET_OUT_OF_RANGE
        "the offset is outside the range that the partition holds",
    CorruptMessage = 2 CORRUPT_MESSAGE retriable
        "the record batch is damaged, or its checksum is wrong",
    UnknownTopicOrPartition = 3 UNKNOWN_TOPIC_OR_PARTITION retriable
        "this broker does not know the topic or partition",
    InvalidFetchSize = 4 INVALID_FETCH_SIZE "the fetch size is not valid",
    LeaderNotAvailable = 5 LEADER_NOT_AVAILABLE retriable
        "the partition has no leader at the moment",
    NotLeaderOrFollower = 6 NOT_LEADER_OR_FOLLOWER retriable
        "this broker does not lead the partition",
    RequestTimedOut = 7 REQUEST_TIMED_OUT retriable "the request was not completed in time",
    BrokerNotAvailable = 8 BROKER_NOT_AVAILABLE "the broker is not available",
    ReplicaNotAvailable = 9 REPLICA_NOT_AVAILABLE retriable "the replica is not available",
    MessageTooLarge = 10 MESSAGE_TOO_LARGE "the record batch is larger than the topic allows",
    StaleControllerEpoch = 11 STALE_CONTROLLER_EPOCH "another broker has become controller",
    OffsetMetadataTooLarge = 12 OFFSET_METADATA_TOO_LARGE
        "the metadata of the committed offset is too long",
    NetworkException = 13 NETWORK_EXCEPTION retriable
        "the connection was lost before an answer came",
    CoordinatorLoadInProgress = 14 COORDINATOR_LOAD_IN_PROGRESS retriable
        "the coordinator is still loading its state",
    CoordinatorNotAvailable = 15 COORDINATOR_NOT_AVAILABLE retriable
        "there is no coordinator at the moment",
    NotCoordinator = 16 NOT_COORDINATOR retriable "this broker is not the coordinator",
    InvalidTopicException = 17 INVALID_TOPIC_EXCEPTION
        "the topic name is not valid, or the topic does not allow the operation",
    RecordListTooLarge = 18 RECORD_LIST_TOO_LARGE "the records are larger than a segment may be",
    NotEnoughReplicas = 19 NOT_ENOUGH_REPLICAS retriable
        "fewer replicas are in sync than the topic requires",
    NotEnoughReplicasAfterAppend = 20 NOT_ENOUGH_REPLICAS_AFTER_APPEND retriable
        "the records were written, but to fewer replicas than the topic requires",
    InvalidRequiredAcks = 21 INVALID_REQUIRED_ACKS "acks must be 0, 1 or -1",
    IllegalGeneration = 22 ILLEGAL_GENERATION "the generation is not the current one of the group",
    InconsistentGroupProtocol = 23 INCONSISTENT_GROUP_PROTOCOL
        "the protocols of the member do not fit those of the group",
    InvalidGroupId = 24 INVALID_GROUP_ID "the group id is not valid",
    UnknownMemberId = 25 UNKNOWN_MEMBER_ID "the group does not know this member",
    InvalidSessionTimeout = 26 INVALID_SESSION_TIMEOUT
        "the session timeout is outside the range that the broker allows",
    RebalanceInProgress = 27 REBALANCE_IN_PROGRESS
        "the group is rebalancing; the member must join again",
    InvalidCommitOffsetSize = 28 INVALID_COMMIT_OFFSET_SIZE
        "the offsets are too large to be committed together",
    TopicAuthorizationFailed = 29 TOPIC_AUTHORIZATION_FAILED "not authorized for the topic",
    GroupAuthorizationFailed = 30 GROUP_AUTHORIZATION_FAILED "not authorized for the group",
    ClusterAuthorizationFailed = 31 CLUSTER_AUTHORIZATION_FAILED "not authorized for the cluster",
    InvalidTimestamp = 32 INVALID_TIMESTAMP
        "a record timestamp is outside the range that the topic allows",
    UnsupportedSaslMechanism = 33 UNSUPPORTED_SASL_MECHANISM "the SASL mechanism is not supported",
    IllegalSaslState = 34 ILLEGAL_SASL_STATE
        "the request does not fit the state of the SASL exchange",
    UnsupportedVersion = 35 UNSUPPORTED_VERSION "this version of the request is not supported",
    TopicAlreadyExists = 36 TOPIC_ALREADY_EXISTS "a topic with this name exists already",
    InvalidPartitions = 37 INVALID_PARTITIONS "the number of partitions is not valid",
    InvalidReplicationFactor = 38 INVALID_REPLICATION_FACTOR
        "the replication factor is not valid for this cluster",
    InvalidReplicaAssignment = 39 INVALID_REPLICA_ASSIGNMENT "the replica assignment is not valid",
    InvalidConfig = 40 INVALID_CONFIG "a configuration entry is not valid",
    NotController = 41 NOT_CONTROLLER retriable "this broker is not the controller",
    InvalidRequest = 42 INVALID_REQUEST "the request contradicts itself or the protocol",
    UnsupportedForMessageFormat = 43 UNSUPPORTED_FOR_MESSAGE_FORMAT
        "the record format does not allow the request",
    PolicyViolation = 44 POLICY_VIOLATION "a policy of the cluster forbids the request",
    OutOfOrderSequenceNumber = 45 OUT_OF_ORDER_SEQUENCE_NUMBER
        "the sequence number is not the one that follows",
    DuplicateSequenceNumber = 46 DUPLICATE_SEQUENCE_NUMBER "the sequence number was used before",
    InvalidProducerEpoch = 47 INVALID_PRODUCER_EPOCH "the producer epoch is not the current one",
    InvalidTxnState = 48 INVALID_TXN_STATE
        "the transaction is in a state that does not allow the request",
    InvalidProducerIdMapping = 49 INVALID_PRODUCER_ID_MAPPING
        "the transactional id has another producer id",
    InvalidTransactionTimeout = 50 INVALID_TRANSACTION_TIMEOUT
        "the transaction timeout is longer than the broker allows",
    ConcurrentTransactions = 51 CONCURRENT_TRANSACTIONS retriable
        "another operation on the same transaction is under way",
    TransactionCoordinatorFenced = 52 TRANSACTION_COORDINATOR_FENCED
        "the transaction coordinator has been replaced",
    TransactionalIdAuthorizationFailed = 53 TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        "not authorized for the transactional id",
    SecurityDisabled = 54 SECURITY_DISABLED "security features are switched off",
    OperationNotAttempted = 55 OPERATION_NOT_ATTEMPTED
        "not tried, because another part of the request failed",
    KafkaStorageError = 56 KAFKA_STORAGE_ERROR retriable "the storage of the partition failed",
    LogDirNotFound = 57 LOG_DIR_NOT_FOUND "the broker has no such log directory",
    SaslAuthenticationFailed = 58 SASL_AUTHENTICATION_FAILED "SASL authentication failed",
    UnknownProducerId = 59 UNKNOWN_PRODUCER_ID "the partition knows nothing of this producer id",
    ReassignmentInProgress = 60 REASSIGNMENT_IN_PROGRESS "the partition is being moved",
    DelegationTokenAuthDisabled = 61 DELEGATION_TOKEN_AUTH_DISABLED
        "delegation tokens are switched off",
    DelegationTokenNotFound = 62 DELEGATION_TOKEN_NOT_FOUND "there is no such delegation token",
    DelegationTokenOwnerMismatch = 63 DELEGATION_TOKEN_OWNER_MISMATCH
        "only an owner or renewer may do this with the delegation token",
    DelegationTokenRequestNotAllowed = 64 DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        "delegation tokens cannot be requested over this connection",
    DelegationTokenAuthorizationFailed = 65 DELEGATION_TOKEN_AUTHORIZATION_FAILED
        "not authorized for the delegation token",
    DelegationTokenExpired = 66 DELEGATION_TOKEN_EXPIRED "the delegation token has expired",
    InvalidPrincipalType = 67 INVALID_PRINCIPAL_TYPE "the principal type is not supported",
    NonEmptyGroup = 68 NON_EMPTY_GROUP "the group still has members",
    GroupIdNotFound = 69 GROUP_ID_NOT_FOUND "there is no such group",
    FetchSessionIdNotFound = 70 FETCH_SESSION_ID_NOT_FOUND retriable
        "there is no such fetch session",
    InvalidFetchSessionEpoch = 71 INVALID_FETCH_SESSION_EPOCH retriable
        "the fetch session epoch is not the expected one",
    ListenerNotFound = 72 LISTENER_NOT_FOUND retriable "the leader has no listener of this name",
    TopicDeletionDisabled = 73 TOPIC_DELETION_DISABLED "topic deletion is switched off",
    FencedLeaderEpoch = 74 FENCED_LEADER_EPOCH retriable
        "the leader epoch is older than the broker's",
    UnknownLeaderEpoch = 75 UNKNOWN_LEADER_EPOCH retriable
        "the leader epoch is newer than the broker's",
    UnsupportedCompressionType = 76 UNSUPPORTED_COMPRESSION_TYPE
        "the compression type is not supported by this version of the request",
    StaleBrokerEpoch = 77 STALE_BROKER_EPOCH "the broker epoch has changed",
    OffsetNotAvailable = 78 OFFSET_NOT_AVAILABLE retriable
        "a new leader does not know its watermark yet",
    MemberIdRequired = 79 MEMBER_ID_REQUIRED "join again with the member id in this answer",
    PreferredLeaderNotAvailable = 80 PREFERRED_LEADER_NOT_AVAILABLE retriable
        "the preferred leader is not available",
    GroupMaxSizeReached = 81 GROUP_MAX_SIZE_REACHED "the group is full",
    FencedInstanceId = 82 FENCED_INSTANCE_ID "another member has taken over this group instance id",
    EligibleLeadersNotAvailable = 83 ELIGIBLE_LEADERS_NOT_AVAILABLE retriable
        "no replica may become leader at the moment",
    ElectionNotNeeded = 84 ELECTION_NOT_NEEDED retriable
        "the partition has the leader it should have",
    NoReassignmentInProgress = 85 NO_REASSIGNMENT_IN_PROGRESS "the partition is not being moved",
    GroupSubscribedToTopic = 86 GROUP_SUBSCRIBED_TO_TOPIC "the group still consumes the topic",
    InvalidRecord = 87 INVALID_RECORD
        "a record does not satisfy the rules of the topic or the format",
    UnstableOffsetCommit = 88 UNSTABLE_OFFSET_COMMIT retriable
        "the offsets belong to a transaction that has not ended",
    ThrottlingQuotaExceeded = 89 THROTTLING_QUOTA_EXCEEDED retriable "a quota is used up",
    ProducerFenced = 90 PRODUCER_FENCED "a newer producer uses the same transactional id",
    ResourceNotFound = 91 RESOURCE_NOT_FOUND "there is no such resource",
    DuplicateResource = 92 DUPLICATE_RESOURCE "the request names a resource twice",
    UnacceptableCredential = 93 UNACCEPTABLE_CREDENTIAL "the credential does not satisfy the rules",
    InconsistentVoterSet = 94 INCONSISTENT_VOTER_SET
        "sender or receiver is not one of the expected voters",
    InvalidUpdateVersion = 95 INVALID_UPDATE_VERSION "the feature level is not valid",
    FeatureUpdateFailed = 96 FEATURE_UPDATE_FAILED "the feature levels could not be updated",
    PrincipalDeserializationFailure = 97 PRINCIPAL_DESERIALIZATION_FAILURE
        "the principal of a forwarded request could not be read",
    SnapshotNotFound = 98 SNAPSHOT_NOT_FOUND "there is no such snapshot",
    PositionOutOfRange = 99 POSITION_OUT_OF_RANGE "the position is outside the snapshot",
    UnknownTopicId = 100 UNKNOWN_TOPIC_ID retriable "this broker does not know the topic id",
    DuplicateBrokerRegistration = 101 DUPLICATE_BROKER_REGISTRATION "another broker uses this id",
    BrokerIdNotRegistered = 102 BROKER_ID_NOT_REGISTERED "no broker is registered under this id",
    InconsistentTopicId = 103 INCONSISTENT_TOPIC_ID retriable
        "the topic id is not the one of the log",
    InconsistentClusterId = 104 INCONSISTENT_CLUSTER_ID
        "the cluster id is not the one of this cluster",
    TransactionalIdNotFound = 105 TRANSACTIONAL_ID_NOT_FOUND "there is no such transactional id",
    FetchSessionTopicIdError = 106 FETCH_SESSION_TOPIC_ID_ERROR retriable
        "the fetch session mixes topic names and topic ids",
    IneligibleReplica = 107 INELIGIBLE_REPLICA "a replica may not join the in-sync set",
    NewLeaderElected = 108 NEW_LEADER_ELECTED
        "the change was made, but the partition has a new leader",
    OffsetMovedToTieredStorage = 109 OFFSET_MOVED_TO_TIERED_STORAGE
        "the offset has moved to tiered storage",
    FencedMemberEpoch = 110 FENCED_MEMBER_EPOCH
        "the member is fenced; it must give up its partitions and join again",
    UnreleasedInstanceId = 111 UNRELEASED_INSTANCE_ID
        "another member still holds this group instance id",
    UnsupportedAssignor = 112 UNSUPPORTED_ASSIGNOR "the group does not support the assignor",
    StaleMemberEpoch = 113 STALE_MEMBER_EPOCH "the member epoch is old; heartbeat, then try again",
    MismatchedEndpointType = 114 MISMATCHED_ENDPOINT_TYPE
        "the request was sent to the wrong kind of endpoint",
    UnsupportedEndpointType = 115 UNSUPPORTED_ENDPOINT_TYPE
        "this kind of endpoint is not supported",
    UnknownControllerId = 116 UNKNOWN_CONTROLLER_ID "there is no such controller",
    UnknownSubscriptionId = 117 UNKNOWN_SUBSCRIPTION_ID
        "the telemetry subscription is not the current one",
    TelemetryTooLarge = 118 TELEMETRY_TOO_LARGE
        "the pushed metrics are larger than the broker allows",
    InvalidRegistration = 119 INVALID_REGISTRATION "the broker registration is not valid",
    TransactionAbortable = 120 TRANSACTION_ABORTABLE
        "the transaction met an error and can only be aborted",
    InvalidRecordState = 121 INVALID_RECORD_STATE
        "the state of the record does not allow this acknowledgement",
    ShareSessionNotFound = 122 SHARE_SESSION_NOT_FOUND retriable "there is no such share session",
    InvalidShareSessionEpoch = 123 INVALID_SHARE_SESSION_EPOCH retriable
        "the share session epoch is not the expected one",
    FencedStateEpoch = 124 FENCED_STATE_EPOCH "the state epoch is not the current one",
    InvalidVoterKey = 125 INVALID_VOTER_KEY "the voter key is not that of the receiver",
    DuplicateVoter = 126 DUPLICATE_VOTER "the voter is in the set already",
    VoterNotFound = 127 VOTER_NOT_FOUND "the voter is not in the set",
    InvalidRegularExpression = 128 INVALID_REGULAR_EXPRESSION "the regular expression is not valid",
    RebootstrapRequired = 129 REBOOTSTRAP_REQUIRED
        "the metadata of the client is too old; it must bootstrap again",
    StreamsInvalidTopology = 130 STREAMS_INVALID_TOPOLOGY "the streams topology is not valid",
    StreamsInvalidTopologyEpoch = 131 STREAMS_INVALID_TOPOLOGY_EPOCH
        "the streams topology epoch is not valid",
    StreamsTopologyFenced = 132 STREAMS_TOPOLOGY_FENCED "the streams topology epoch is outdated",
    ShareSessionLimitReached = 133 SHARE_SESSION_LIMIT_REACHED retriable
        "there are too many share sessions",
    GroupDeletionFailed = 134 GROUP_DELETION_FAILED
        "the group could not be deleted; its own error message says why",
    StreamsTopologyDescriptionUpdateFailed = 135 STREAMS_TOPOLOGY_DESCRIPTION_UPDATE_FAILED
        "the description of the streams topology could not be stored",
    ControllerIdNotRegistered = 136 CONTROLLER_ID_NOT_REGISTERED
        "no controller is registered under this id",
}
