//! Reads of any length: the store takes at most [`READ_LIMIT_BYTES`] in one call, a batch may be larger.

use std::ops::Range;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use talos_storage::{Error as StorageError, FilePath, READ_LIMIT_BYTES, Storage};

/// The bytes at `range` of `file`, or fewer when the file ends before. Cancel safe.
pub(crate) async fn read_range(
    storage: &Arc<dyn Storage>,
    file: &FilePath,
    range: Range<u64>,
) -> Result<Bytes, StorageError> {
    if range.end.saturating_sub(range.start) <= READ_LIMIT_BYTES {
        return storage.read(file, range).await;
    }
    let mut all = BytesMut::new();
    let mut at = range.start;
    while at < range.end {
        let end = range.end.min(at.saturating_add(READ_LIMIT_BYTES));
        let bytes = storage.read(file, at..end).await?;
        all.extend_from_slice(&bytes);
        at += bytes.len() as u64;
        if at < end {
            break;
        }
    }
    Ok(all.freeze())
}
