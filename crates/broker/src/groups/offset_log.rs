//! What a coordinator needs of the log of its partition of `__consumer_offsets`.

/// A record for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRecord {
    /// Never empty.
    pub key: Vec<u8>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// A record of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogRecord {
    /// Its offset.
    pub offset: i64,
    /// Its key; `None` is corruption here.
    pub key: Option<Vec<u8>>,
    /// `None` is a tombstone.
    pub value: Option<Vec<u8>>,
}

/// A stretch of the log.
#[derive(Clone, Debug, Default)]
pub struct LogChunk {
    /// In the order of offsets.
    pub records: Vec<LogRecord>,
    /// Where to read on; beyond every record here.
    pub next_offset: i64,
}

/// Why an append, a trim or a read did not succeed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AppendError {
    /// Refused: this leader epoch is over. Nothing was or will be stored.
    #[error("not the leader any more")]
    NotLeader,
    /// Refused for now. Nothing was or will be stored.
    #[error("log unavailable")]
    Unavailable,
    /// It may be stored, now or later.
    #[error("outcome unknown")]
    Uncertain,
    /// What was read is not what was written.
    #[error("corrupt: {0}")]
    Corrupt(String),
}

/// One partition of `__consumer_offsets` as a coordinator needs it, in one leader epoch.
pub trait OffsetLog: Send + Sync + 'static {
    /// Log start offset.
    fn start_offset(&self) -> i64;

    /// First offset beyond all durable records (the high watermark). Fixed once the partition is
    /// open, but for this coordinator's own appends.
    fn end_offset(&self) -> i64;

    /// Records from `from` on, as many as one read brings, at least one while `from` is below the
    /// end. Cancel safe.
    fn read(&self, from: i64) -> impl Future<Output = Result<LogChunk, AppendError>> + Send;

    /// Appends all records as one batch, atomically; `Ok(offset of the first)` when durable. Called
    /// once at a time.
    fn append(
        &self,
        records: Vec<GroupRecord>,
    ) -> impl Future<Output = Result<i64, AppendError>> + Send;

    /// Moves the log start to `offset`, unless it is there already. May fail: it is tried again
    /// with the next snapshot.
    fn trim(&self, offset: i64) -> impl Future<Output = Result<(), AppendError>> + Send;
}
