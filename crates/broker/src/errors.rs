//! The only place that turns our errors into Kafka's codes: one exhaustive match per error type,
//! without a default arm, so that a new error cannot get a code by accident.
//!
//! P4: what was refused before it was accepted has a definite code; an unknown outcome is only ever
//! REQUEST_TIMED_OUT (or a closed connection). T2: no produce path gives UNKNOWN_SERVER_ERROR, which
//! makes idempotent clients write twice.

use talos_log::root::RootError;
use talos_log::validate::Rejection;
use talos_log::waiters::OutcomeUnknown;
use talos_log::{AppendError, ReadError};
use talos_meta::TopicError;
use talos_protocol::{ErrorCode, Str};

/// A code for the client and a message where the answer has room for one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }

    /// `code` with its own wording.
    pub(crate) fn of(code: ErrorCode) -> Self {
        Self::new(code, code.message())
    }

    /// For an answer that describes a topic: after THROTTLING_QUOTA_EXCEEDED clients do not ask for it
    /// again, after LEADER_NOT_AVAILABLE they do.
    pub(crate) fn for_metadata(self) -> Self {
        if self.code == ErrorCode::ThrottlingQuotaExceeded {
            return Self { code: ErrorCode::LeaderNotAvailable, ..self };
        }
        self
    }

    pub(crate) fn text(&self) -> Option<Str> {
        Some(clipped(&self.message))
    }
}

/// `message` within what a string of the protocol can hold, and a log line should.
pub(crate) fn clipped(message: &str) -> Str {
    const LONGEST: usize = 1_024;
    let end = message.floor_char_boundary(LONGEST.min(message.len()));
    Str::from(message.get(..end).unwrap_or_default().to_owned())
}

impl From<Rejection> for Failure {
    fn from(error: Rejection) -> Self {
        let code = match &error {
            Rejection::Corrupt(_) => ErrorCode::CorruptMessage,
            Rejection::InvalidRecord(_) => ErrorCode::InvalidRecord,
            Rejection::OldFormat(_) => ErrorCode::UnsupportedForMessageFormat,
            Rejection::TooLarge { .. } => ErrorCode::MessageTooLarge,
            Rejection::Timestamp { .. } | Rejection::TimestampType => ErrorCode::InvalidTimestamp,
        };
        Self::new(code, error.to_string())
    }
}

impl From<AppendError> for Failure {
    fn from(error: AppendError) -> Self {
        let code = match &error {
            AppendError::Ended(_) => ErrorCode::NotLeaderOrFollower,
            AppendError::Stalled(_) => ErrorCode::KafkaStorageError,
            AppendError::TooLarge { .. } => ErrorCode::MessageTooLarge,
            AppendError::StaleProducerEpoch { .. } => ErrorCode::InvalidProducerEpoch,
            AppendError::OutOfOrderSequence { .. } => ErrorCode::OutOfOrderSequenceNumber,
        };
        Self::new(code, error.to_string())
    }
}

impl From<OutcomeUnknown> for Failure {
    fn from(error: OutcomeUnknown) -> Self {
        Self::new(ErrorCode::RequestTimedOut, error.to_string())
    }
}

impl From<ReadError> for Failure {
    fn from(error: ReadError) -> Self {
        let code = match &error {
            ReadError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
            ReadError::Ended(_) => ErrorCode::NotLeaderOrFollower,
            ReadError::Corrupt { .. } | ReadError::Unavailable(_) => ErrorCode::KafkaStorageError,
        };
        Self::new(code, error.to_string())
    }
}

impl From<RootError> for Failure {
    fn from(error: RootError) -> Self {
        let code = match &error {
            RootError::Fenced => ErrorCode::NotLeaderOrFollower,
            RootError::Unavailable(_) | RootError::Corrupt(_) => ErrorCode::KafkaStorageError,
            RootError::Uncertain(_) => ErrorCode::RequestTimedOut,
            RootError::OutOfRange { .. } => ErrorCode::OffsetOutOfRange,
        };
        Self::new(code, error.to_string())
    }
}

impl From<talos_meta::Error> for Failure {
    fn from(error: talos_meta::Error) -> Self {
        use talos_meta::Error;
        let code = match &error {
            Error::Uncertain(_) => ErrorCode::RequestTimedOut,
            // Not applied; Kafka's clients try again after this code.
            Error::Refused { .. } | Error::Unavailable(_) | Error::Full(_) | Error::Closed => {
                ErrorCode::KafkaStorageError
            }
            Error::Invalid(_) => ErrorCode::InvalidRequest,
            Error::Corrupt(_) => ErrorCode::UnknownServerError,
        };
        Self::new(code, error.to_string())
    }
}

impl From<TopicError> for Failure {
    fn from(error: TopicError) -> Self {
        let message = error.to_string();
        match error {
            TopicError::Exists { .. } => Self::new(ErrorCode::TopicAlreadyExists, message),
            TopicError::NotFound => Self::new(ErrorCode::UnknownTopicOrPartition, message),
            TopicError::Invalid(_) => Self::new(ErrorCode::InvalidRequest, message),
            TopicError::Store(error) => error.into(),
        }
    }
}
