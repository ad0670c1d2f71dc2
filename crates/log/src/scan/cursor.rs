//! Walks the frames of one journal file, a window of it in memory at a time.

use std::sync::Arc;

use bytes::Bytes;
use talos_storage::{Error as StorageError, Storage};

use crate::format::{
    self, FLUSH_FRAME_BYTES, FRAME_HEADER_BYTES, Frame, FrameError, HEADER_FRAME_BYTES,
    HEADER_NONCE_AT, JournalId, LanePosition, Parsed,
};
use crate::ranges::read_range;

/// Read at once.
const WINDOW_BYTES: u64 = 4 << 20;
/// At least this much is looked through at once.
const SEARCH_BYTES: u64 = 64 << 10;
/// What every frame of this version has in bytes 9 to 11.
const SIGNATURE: [u8; 3] = [1, 0, 0];
const SIGNATURE_AT: usize = 9;

/// Where in a file one is.
pub(crate) struct Cursor<'a> {
    storage: &'a Arc<dyn Storage>,
    id: JournalId,
    mask: u32,
    len: u64,
    position: u64,
    window: Bytes,
    window_start: u64,
}

impl<'a> Cursor<'a> {
    /// At the start of the file `id` of `len` bytes.
    pub(crate) fn new(storage: &'a Arc<dyn Storage>, id: JournalId, len: u64) -> Self {
        let (mask, window) = (id.header_mask(), Bytes::new());
        Self { storage, id, mask, len, position: 0, window, window_start: 0 }
    }

    /// Where the next frame is expected.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// What the checksums of the frames behind the header are XORed with.
    pub(crate) fn mask(&self) -> u32 {
        self.mask
    }

    /// The bytes from the position on: at least `bytes` of them, unless the file ends before.
    async fn bytes(&mut self, bytes: u64) -> Result<Bytes, StorageError> {
        let end = self.position.saturating_add(bytes).min(self.len);
        let window_end = self.window_start + self.window.len() as u64;
        if self.position < self.window_start || end > window_end {
            let to = (self.position + bytes.max(WINDOW_BYTES)).min(self.len);
            self.window = match to > self.position {
                true => read_range(self.storage, &self.id.path(), self.position..to).await?,
                false => Bytes::new(),
            };
            self.window_start = self.position;
        }
        // The window begins at or before the position and is in memory.
        let from = (self.position - self.window_start) as usize;
        Ok(self.window.slice(from.min(self.window.len())..))
    }

    /// The frame at the position, which moves behind it; on a frame error it stays.
    pub(crate) async fn next(&mut self) -> Result<Result<Frame, FrameError>, StorageError> {
        let head = self.bytes(FRAME_HEADER_BYTES as u64).await?;
        let Some(length) = head.first_chunk::<4>() else { return Ok(Err(FrameError::CutOff)) };
        let length = u64::from(u32::from_le_bytes(*length));
        if length > self.len - self.position {
            return Ok(Err(FrameError::CutOff));
        }
        let bytes = self.bytes(length.max(FRAME_HEADER_BYTES as u64)).await?;
        match format::parse(&bytes, self.mask) {
            Ok(parsed) => {
                self.position += parsed.length as u64;
                if let Frame::Header(header) = &parsed.frame {
                    self.mask = header.mask();
                }
                Ok(Ok(parsed.frame))
            }
            Err(error) => Ok(Err(error)),
        }
    }

    /// What the header that can not be read said of the lane, if the file was begun: the flush that is
    /// written with it says the same, and is tied to its nonce. A file that was made ahead has no such
    /// flush, whatever it held in a former life.
    pub(crate) async fn lost_header(&mut self) -> Result<Option<LanePosition>, StorageError> {
        self.position = 0;
        let bytes = self.bytes((HEADER_FRAME_BYTES + FLUSH_FRAME_BYTES) as u64).await?;
        let Some((header, behind)) = bytes.split_at_checked(HEADER_FRAME_BYTES) else {
            return Ok(None);
        };
        let behind = bytes.slice_ref(behind);
        let flush = |nonce: u32| match format::parse(&behind, self.id.header_mask() ^ nonce) {
            Ok(Parsed { frame: Frame::Flush(flush), .. }) => Some(flush.durable_to),
            Ok(_) | Err(_) => None,
        };
        let (front, rest) = header.split_at(HEADER_NONCE_AT);
        let Some((nonce, rest)) = rest.split_first_chunk::<4>() else { return Ok(None) };
        let said = flush(u32::from_le_bytes(*nonce));
        if said.is_some() {
            return Ok(said);
        }
        // Or the nonce itself is damaged: the flush says which one it was.
        let Some(nonce) = format::mask_of_flush(&behind).map(|mask| mask ^ self.id.header_mask())
        else {
            return Ok(None);
        };
        let repaired = Bytes::from([front, &nonce.to_le_bytes(), rest].concat());
        let is_header = format::parse(&repaired, self.id.header_mask()).is_ok();
        Ok(flush(nonce).filter(|_| is_header))
    }

    /// Moves to the next position behind the present one at which a frame can be read, and gives it;
    /// `None`, and the end of the file, when there is none.
    pub(crate) async fn find_next(&mut self) -> Result<Option<u64>, StorageError> {
        self.position += 1;
        while self.position < self.len {
            let bytes = self.bytes(SEARCH_BYTES).await?;
            if bytes.is_empty() {
                break;
            }
            let Some(found) = memchr::memmem::find(&bytes, &SIGNATURE) else {
                // A signature may lie across the end of the window.
                let step = bytes.len().saturating_sub(SIGNATURE_AT + SIGNATURE.len()).max(1);
                self.position += step as u64;
                continue;
            };
            if found < SIGNATURE_AT {
                self.position += 1;
                continue;
            }
            self.position += (found - SIGNATURE_AT) as u64;
            let candidate = self.position;
            if self.next().await?.is_ok() {
                self.position = candidate;
                return Ok(Some(candidate));
            }
            self.position = candidate + 1;
        }
        self.position = self.len;
        Ok(None)
    }
}
