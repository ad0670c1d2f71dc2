//! Errors of the client: which server, which API, what Kafka said, and what to do next.
//!
//! P4 on the client's side: [`ClientError::is_unknown_outcome`] tells a request that may have been
//! done from one that certainly was not.

use std::time::Duration;

use talos_common::Period;
use talos_protocol::batch::BatchError;
use talos_protocol::{ApiKey, DecodeError, EncodeError, ErrorCode};

/// Whatever can go wrong between us and a broker.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ClientError {
    /// No connection to any of the servers, or to this one.
    #[error("cannot connect to {server}: {reason}")]
    Connect {
        /// The server's address.
        server: String,
        /// Why, in the system's words.
        reason: String,
    },
    /// The connection ended before the answer; the request may have been done.
    #[error("the connection to {server} was lost before the answer to {api}: {reason}")]
    Lost {
        /// The server's address.
        server: String,
        /// The API that was asked.
        api: ApiKey,
        /// Why.
        reason: String,
    },
    /// No answer in time; the request may have been done.
    #[error("{server} did not answer {api} within {}", Period(*after))]
    Timeout {
        /// The server's address.
        server: String,
        /// The API that was asked.
        api: ApiKey,
        /// How long we waited.
        after: Duration,
    },
    /// The server does not have this API in a version that we have.
    #[error("{server} has no version of {api} that this client has")]
    Unsupported {
        /// The server's address.
        server: String,
        /// The API that was asked.
        api: ApiKey,
    },
    /// The server refused.
    #[error("{server} refused {api} for {subject}: {}{}", name(*code), details(*code, message.as_deref()))]
    Kafka {
        /// The server's address.
        server: String,
        /// The API that was asked.
        api: ApiKey,
        /// What it was about, as in `topic orders`.
        subject: String,
        /// Kafka's error code.
        code: i16,
        /// What the server said about it.
        message: Option<String>,
    },
    /// The server's answer is not what the protocol says.
    #[error("{server} sent an answer to {api} that cannot be read: {reason}")]
    Protocol {
        /// The server's address.
        server: String,
        /// The API that was asked.
        api: ApiKey,
        /// What is wrong with it.
        reason: String,
    },
    /// A request that cannot be written in the version that the server has.
    #[error("{api} cannot be asked of {server}: {source}")]
    Encode {
        /// The server's address.
        server: String,
        /// The API.
        api: ApiKey,
        /// Why.
        source: EncodeError,
    },
    /// Bytes of a partition that are no sound record batches.
    #[error("{topic}-{partition} at offset {offset}: {source}")]
    Corrupt {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
        /// Offset that was read.
        offset: i64,
        /// What is wrong.
        source: BatchError,
    },
    /// The partition has no leader that we could ask.
    #[error("partition {partition} of topic {topic} is offline: it has no leader")]
    NoLeader {
        /// The topic.
        topic: String,
        /// The partition.
        partition: i32,
    },
    /// Something that this client cannot do.
    #[error("{0}")]
    Invalid(String),
}

fn name(code: i16) -> String {
    ErrorCode::from_code(code).map_or_else(|| format!("error {code}"), |known| known.name().into())
}

fn details(code: i16, message: Option<&str>) -> String {
    match (message, ErrorCode::from_code(code)) {
        (Some(message), _) if !message.is_empty() => format!(" ({message})"),
        (_, Some(known)) => format!(" ({})", known.message()),
        _ => String::new(),
    }
}

impl ClientError {
    /// `Ok` for code 0, else the error.
    pub fn check(
        server: &str,
        api: ApiKey,
        subject: impl Into<String>,
        code: i16,
        message: Option<&str>,
    ) -> Result<(), Self> {
        if code == 0 {
            return Ok(());
        }
        Err(Self::Kafka {
            server: server.into(),
            api,
            subject: subject.into(),
            code,
            message: message.map(Into::into),
        })
    }

    /// An answer that cannot be decoded.
    pub(crate) fn decode(server: &str, api: ApiKey, error: &DecodeError) -> Self {
        Self::Protocol { server: server.into(), api, reason: error.to_string() }
    }

    /// An answer that lacks what was asked for.
    pub(crate) fn missing(server: &str, api: ApiKey, what: &str) -> Self {
        Self::Protocol { server: server.into(), api, reason: format!("it has no {what}") }
    }

    /// Kafka's error, if the server sent one that is known.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Kafka { code, .. } => ErrorCode::from_code(*code),
            _ => None,
        }
    }

    /// Whether asking again may help: leadership moved, a coordinator is loading, a connection
    /// went. Whether the request may be repeated at all is the caller's to know.
    pub fn is_retriable(&self) -> bool {
        match self {
            Self::Connect { .. } | Self::Lost { .. } | Self::NoLeader { .. } => true,
            Self::Kafka { .. } => self.code().is_some_and(ErrorCode::is_retriable),
            _ => false,
        }
    }

    /// Whether the request may have been done although it failed.
    pub fn is_unknown_outcome(&self) -> bool {
        match self {
            Self::Lost { .. } | Self::Timeout { .. } | Self::Protocol { .. } => true,
            Self::Kafka { .. } => self.code() == Some(ErrorCode::RequestTimedOut),
            _ => false,
        }
    }

    /// Whether this is about one partition that nobody serves now, while others of its topic may
    /// be served.
    pub fn is_offline(&self) -> bool {
        let offline = [ErrorCode::LeaderNotAvailable, ErrorCode::KafkaStorageError];
        match self {
            Self::NoLeader { .. } => true,
            Self::Kafka { .. } => self.code().is_some_and(|code| offline.contains(&code)),
            _ => false,
        }
    }

    /// Whether it is the connection that failed, or a broker that does not answer: waiting may help
    /// whatever was asked.
    pub fn is_away(&self) -> bool {
        matches!(self, Self::Connect { .. } | Self::Lost { .. } | Self::Timeout { .. })
    }

    /// The server that it is about, if that is known.
    pub fn server(&self) -> Option<&str> {
        match self {
            Self::Connect { server, .. }
            | Self::Lost { server, .. }
            | Self::Timeout { server, .. }
            | Self::Unsupported { server, .. }
            | Self::Kafka { server, .. }
            | Self::Protocol { server, .. }
            | Self::Encode { server, .. } => Some(server),
            Self::Corrupt { .. } | Self::NoLeader { .. } | Self::Invalid(_) => None,
        }
    }

    /// What the user can do next.
    pub fn hint(&self) -> Option<String> {
        let text = match self {
            Self::Connect { server, .. } => {
                return Some(format!(
                    "start a broker with `talos serve`, or name another one than {server} with --bootstrap \
                     HOST:PORT; a broker that advertises an address you cannot reach is set right \
                     with `talos serve --advertised HOST:PORT`"
                ));
            }
            Self::Lost { .. } => {
                "the request may have been done; look before you repeat it, and read the broker's log"
            }
            Self::Timeout { .. } => {
                "the request may have been done; look before you repeat it, or allow more time with \
                 --timeout"
            }
            Self::Unsupported { .. } => "use a broker of Kafka 2.1 or newer, or Talos",
            Self::NoLeader { .. } => OFFLINE,
            Self::Corrupt { .. } => "stop the broker and run `talos dump` on its data folder",
            Self::Protocol { .. } => "check that the address is that of a Kafka protocol port",
            Self::Encode { .. } | Self::Invalid(_) => return None,
            Self::Kafka { .. } => return self.code().and_then(code_hint).map(Into::into),
        };
        Some(text.into())
    }
}

/// What helps when a partition is offline.
const OFFLINE: &str = "the broker's log says why; docs/operations.md#a-partition-is-offline says what to do. \
     `talos topic describe NAME` lists the partitions that are offline; the others are served";

/// What helps against the errors that users meet.
fn code_hint(code: ErrorCode) -> Option<&'static str> {
    Some(match code {
        ErrorCode::UnknownTopicOrPartition => {
            "`talos topic list` shows the topics; `talos topic create NAME` makes one"
        }
        ErrorCode::TopicAlreadyExists => {
            "choose another name, or change it with `talos topic alter`"
        }
        ErrorCode::InvalidTopicException => {
            "a name has 1 to 249 of the letters a-z and A-Z, digits, '.', '_' and '-', is not '.' or '..', \
             differs from others in more than '.' and '_', and is none of the cluster's own topics"
        }
        ErrorCode::InvalidPartitions => {
            "the number must be above 0, and above the present one when a topic grows"
        }
        ErrorCode::InvalidReplicationFactor => {
            "leave --replication-factor out to take the broker's"
        }
        ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge => {
            "raise max.message.bytes with `talos topic alter`, or send smaller records"
        }
        ErrorCode::OffsetOutOfRange => "use --from-beginning, or an offset that still exists",
        ErrorCode::NonEmptyGroup => "stop the group's consumers, then repeat",
        ErrorCode::GroupIdNotFound => "`talos group list` shows the groups",
        ErrorCode::UnknownMemberId
        | ErrorCode::IllegalGeneration
        | ErrorCode::RebalanceInProgress => {
            "the group has active members; stop its consumers, then repeat"
        }
        ErrorCode::InvalidConfig => {
            "`talos topic describe NAME --all-configs` shows the names and present values of any topic; \
             docs/kafka-compatibility.md describes them"
        }
        ErrorCode::RequestTimedOut => "the request may have been done; look before you repeat it",
        ErrorCode::CoordinatorLoadInProgress
        | ErrorCode::CoordinatorNotAvailable
        | ErrorCode::NotCoordinator
        | ErrorCode::NotLeaderOrFollower => {
            "the cluster is moving or starting; repeat in a few seconds"
        }
        ErrorCode::LeaderNotAvailable => OFFLINE,
        ErrorCode::KafkaStorageError => {
            "the store of the broker fails or is full, or the partition is offline: the broker's log says \
             which, docs/operations.md says what to do"
        }
        _ => return None,
    })
}
