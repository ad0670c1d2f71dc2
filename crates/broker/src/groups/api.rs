//! Requests and answers of the group APIs as plain types: the fields of Kafka's messages, with
//! versions already folded in by the handlers (batched forms only, version given where it matters).

use std::sync::Arc;

use talos_common::TopicId;

/// Immutable text; cloning shares it.
pub type Text = Arc<str>;
/// Immutable bytes (subscriptions, assignments); cloning shares them.
pub type Blob = Arc<[u8]>;

/// Kafka's error codes as far as groups use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(i16)]
#[allow(missing_docs, reason = "the names are Kafka's")]
pub enum Code {
    UnknownServerError = -1,
    None = 0,
    RequestTimedOut = 7,
    OffsetMetadataTooLarge = 12,
    CoordinatorLoadInProgress = 14,
    CoordinatorNotAvailable = 15,
    NotCoordinator = 16,
    IllegalGeneration = 22,
    InconsistentGroupProtocol = 23,
    InvalidGroupId = 24,
    UnknownMemberId = 25,
    InvalidSessionTimeout = 26,
    RebalanceInProgress = 27,
    InvalidRequest = 42,
    PolicyViolation = 44,
    NonEmptyGroup = 68,
    GroupIdNotFound = 69,
    MemberIdRequired = 79,
    GroupMaxSizeReached = 81,
    FencedInstanceId = 82,
    GroupSubscribedToTopic = 86,
}

impl Code {
    /// The number on the wire.
    pub fn code(self) -> i16 {
        self as i16
    }
}

/// JoinGroup, versions 0 to 9.
#[derive(Clone, Debug)]
pub struct JoinRequest {
    /// Of the request: from 4 a dynamic member must come back with its id, from 9 the leader may be
    /// told to skip the assignment.
    pub version: i16,
    /// The group.
    pub group_id: Text,
    /// Silence after which the member is removed.
    pub session_timeout_ms: i32,
    /// Longest wait for members to join again. Ignored in version 0, which has none.
    pub rebalance_timeout_ms: i32,
    /// Empty for a new member.
    pub member_id: Text,
    /// Set for a static member.
    pub group_instance_id: Option<Text>,
    /// `consumer` for consumers.
    pub protocol_type: Text,
    /// Name and metadata, preferred first.
    pub protocols: Vec<(Text, Blob)>,
    /// Of the request header.
    pub client_id: Text,
    /// The client's address as Kafka shows it (`/127.0.0.1`).
    pub client_host: Text,
}

/// One member as the group's leader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinMember {
    /// Its id.
    pub member_id: Text,
    /// Its instance id, when static.
    pub group_instance_id: Option<Text>,
    /// Its metadata for the selected protocol.
    pub metadata: Blob,
}

/// Answer to JoinGroup. Below version 7 a missing protocol name is sent as the empty string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JoinResponse {
    /// Error or [`Code::None`].
    pub code: Code,
    /// -1 with an error.
    pub generation_id: i32,
    /// The group's protocol type.
    pub protocol_type: Option<Text>,
    /// The selected protocol.
    pub protocol_name: Option<Text>,
    /// Member id of the leader.
    pub leader: Text,
    /// The leader need not compute an assignment (version 9).
    pub skip_assignment: bool,
    /// The member's id.
    pub member_id: Text,
    /// All members, for the leader only.
    pub members: Vec<JoinMember>,
}

impl JoinResponse {
    /// An error for `member_id`.
    pub fn error(code: Code, member_id: Text) -> Self {
        Self {
            code,
            generation_id: -1,
            protocol_type: None,
            protocol_name: None,
            leader: "".into(),
            skip_assignment: false,
            member_id,
            members: Vec::new(),
        }
    }
}

/// SyncGroup, versions 0 to 5. (From version 5 both protocol fields are mandatory: the handler
/// refuses their absence with INCONSISTENT_GROUP_PROTOCOL.)
#[derive(Clone, Debug)]
pub struct SyncRequest {
    /// The group.
    pub group_id: Text,
    /// As the join answer said.
    pub generation_id: i32,
    /// The member.
    pub member_id: Text,
    /// Set for a static member.
    pub group_instance_id: Option<Text>,
    /// Checked when set.
    pub protocol_type: Option<Text>,
    /// Checked when set.
    pub protocol_name: Option<Text>,
    /// Member id and assignment; from the leader.
    pub assignments: Vec<(Text, Blob)>,
}

/// Answer to SyncGroup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SyncResponse {
    /// Error or [`Code::None`].
    pub code: Code,
    /// The group's protocol type.
    pub protocol_type: Option<Text>,
    /// The selected protocol.
    pub protocol_name: Option<Text>,
    /// The member's assignment; empty with an error.
    pub assignment: Blob,
}

impl SyncResponse {
    /// An error.
    pub fn error(code: Code) -> Self {
        Self { code, protocol_type: None, protocol_name: None, assignment: Blob::from([]) }
    }
}

/// Heartbeat, versions 0 to 4. The answer is a code.
#[derive(Clone, Debug)]
pub struct HeartbeatRequest {
    /// The group.
    pub group_id: Text,
    /// As the join answer said.
    pub generation_id: i32,
    /// The member.
    pub member_id: Text,
    /// Set for a static member.
    pub group_instance_id: Option<Text>,
}

/// Who leaves. Answered by one code each, in order.
#[derive(Clone, Debug)]
pub struct LeaveMember {
    /// Empty when an administrator removes a static member.
    pub member_id: Text,
    /// Set for a static member.
    pub group_instance_id: Option<Text>,
}

/// Answer to LeaveGroup. Versions 0 to 2 have one member, whose code is the code of the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaveResponse {
    /// Error of the whole request.
    pub code: Code,
    /// One code per member of the request, in order; empty with an error of the whole.
    pub members: Vec<Code>,
}

impl LeaveResponse {
    /// An error of the whole request.
    pub fn error(code: Code) -> Self {
        Self { code, members: Vec::new() }
    }
}

/// OffsetCommit, versions 2 to 10, of topics that exist: the handler answers for unknown topics,
/// partitions and topic ids itself and gives the rest here.
#[derive(Clone, Debug)]
pub struct CommitRequest {
    /// Of the request: from 9 a missing group is GROUP_ID_NOT_FOUND, before ILLEGAL_GENERATION.
    pub version: i16,
    /// The group.
    pub group_id: Text,
    /// Negative for a consumer that manages its partitions itself.
    pub generation_id: i32,
    /// The member, or empty.
    pub member_id: Text,
    /// Set for a static member.
    pub group_instance_id: Option<Text>,
    /// Versions 2 to 4: milliseconds after which the offsets expire; negative means as configured.
    pub retention_ms: i64,
    /// What to commit.
    pub offsets: Vec<CommitOffset>,
}

/// One partition of an OffsetCommit. Answered by one code each, in order.
#[derive(Clone, Debug)]
pub struct CommitOffset {
    /// Topic name.
    pub topic: Text,
    /// The topic's id now; all zero when not known.
    pub topic_id: TopicId,
    /// Partition index.
    pub partition: i32,
    /// Next offset to read.
    pub offset: i64,
    /// Of the last record read, or -1.
    pub leader_epoch: i32,
    /// Free text of the client.
    pub metadata: Option<Text>,
}

/// One topic of an OffsetFetch.
#[derive(Clone, Debug)]
pub struct FetchTopic {
    /// Topic name.
    pub topic: Text,
    /// The topic's id now; an offset stored for another id is not returned. All zero: not checked.
    pub topic_id: TopicId,
    /// Partition indexes.
    pub partitions: Vec<i32>,
}

/// One group's part of an OffsetFetch, versions 1 to 10.
#[derive(Clone, Debug)]
pub struct FetchRequest {
    /// The group.
    pub group_id: Text,
    /// Topics; `None` for all with an offset.
    pub topics: Option<Vec<FetchTopic>>,
    /// Wait for open transactions. No transactions exist yet, so all offsets are stable.
    pub require_stable: bool,
}

/// An offset that was committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FetchedOffset {
    /// Topic name.
    pub topic: Text,
    /// As in the request, or as stored when all topics were asked for.
    pub topic_id: TopicId,
    /// Partition index.
    pub partition: i32,
    /// -1 when there is none.
    pub offset: i64,
    /// -1 when there is none.
    pub leader_epoch: i32,
    /// Empty when there is none.
    pub metadata: Text,
}

/// One group of a ListGroups answer. The type is always `classic`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedGroup {
    /// The group.
    pub group_id: Text,
    /// Empty for a simple group.
    pub protocol_type: Text,
    /// Kafka's name of the state.
    pub state: &'static str,
}

/// One group of a DescribeGroups answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescribedGroup {
    /// [`Code::GroupIdNotFound`] when there is none: versions below 6 send it as no error, with
    /// the state `Dead`.
    pub code: Code,
    /// For version 6.
    pub message: Option<String>,
    /// The group.
    pub group_id: Text,
    /// Kafka's name of the state.
    pub state: &'static str,
    /// Empty for a simple group.
    pub protocol_type: Text,
    /// The selected protocol, when stable.
    pub protocol_data: Text,
    /// Members in the order of their ids.
    pub members: Vec<DescribedMember>,
}

/// One member of a described group.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kafka's")]
pub struct DescribedMember {
    pub member_id: Text,
    pub group_instance_id: Option<Text>,
    pub client_id: Text,
    pub client_host: Text,
    pub metadata: Blob,
    pub assignment: Blob,
}

/// Answer to OffsetDelete (version 0).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetDeleteResponse {
    /// Error of the whole request.
    pub code: Code,
    /// One code per partition of the request, in order; empty with an error of the whole.
    pub partitions: Vec<Code>,
}
