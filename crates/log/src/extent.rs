//! Where one durable batch lies.

use std::sync::Weak;

use talos_storage::FilePath;

use crate::format::JournalId;
use crate::tail_cache::Piece;

/// The file that holds a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// A journal, of this broker epoch or of one that is inherited.
    Journal {
        /// Which.
        id: JournalId,
        /// What its frames' checksums are XORed with.
        mask: u32,
    },
}

impl Place {
    pub(crate) fn path(&self) -> FilePath {
        let Self::Journal { id, .. } = self;
        id.path()
    }
}

/// One durable batch of one partition.
#[derive(Clone, Debug)]
pub(crate) struct Extent {
    /// Offset of its first record.
    pub(crate) base_offset: i64,
    /// Offset of its last record (inclusive).
    pub(crate) last_offset: i64,
    /// Largest timestamp in it, in milliseconds.
    pub(crate) max_timestamp: i64,
    /// Bytes of the record batch.
    pub(crate) length: u32,
    /// Where in the file the record batch starts.
    pub(crate) position: u64,
    /// In which file.
    pub(crate) place: Place,
    /// The bytes in memory, unless evicted.
    pub(crate) piece: Weak<Piece>,
}

impl Extent {
    /// Whether it holds `offset` or lies above it.
    pub(crate) fn reaches(&self, offset: i64) -> bool {
        self.last_offset >= offset
    }
}
