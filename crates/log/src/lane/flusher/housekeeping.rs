//! Making room takes room: the record that lets files go reaches the present file also while the store
//! has none for a next one.
//!
//! Invariant: what goes before batches that were accepted earlier depends on none of them.

use super::{CLOSE_BYTES, FLUSH_FRAME_BYTES, Filled, Flush, Flusher, LaneEnd, Old};

/// Batches leave this part of a file to housekeeping, and at most so many bytes: less than the room
/// that no batch may take anyway, so that every batch fits into an empty file.
const HOUSEKEEPING: (u64, u64) = (64, 1 << 20);

impl Flusher {
    /// Whether the file takes the flush. Batches leave room for housekeeping behind them, so that files
    /// can be let go also when there is no next one.
    pub(super) fn has_room(&self, filled: &Filled) -> bool {
        let Some(writer) = &self.writer else { return false };
        let index = 64 + 32 * self.touched.len();
        let need = (filled.bytes + index + FLUSH_FRAME_BYTES) as u64 + CLOSE_BYTES;
        let last = filled.batches.is_empty();
        let (part, most) = HOUSEKEEPING;
        let kept = if last { 0 } else { most.min(self.file_bytes / part) };
        writer.position() + need + kept <= self.file_bytes
    }

    /// While there is no next file: housekeeping goes into the rest of the old one, before the batches
    /// that wait. Those have no sequence yet, or the old file failed and takes nothing. Gives whether
    /// there was any.
    pub(super) async fn keep_house(&mut self, old: &mut Old) -> Result<bool, LaneEnd> {
        if old.writer.is_none() {
            return Ok(false);
        }
        let Some(filled) = self.parts.lane.take_housekeeping() else { return Ok(false) };
        (self.writer, self.mask) = (old.writer.take(), old.mask);
        if !self.has_room(&filled) {
            self.todo.push_back(Flush { sequence: None, filled });
        } else if let Some(mut flush) = self.write(Flush { sequence: None, filled }) {
            let outcome = (&mut flush.outcome).await;
            self.in_flight.push_back(flush);
            match outcome {
                Ok(end) => self.hand_on(end),
                Err(error) => self.take_back(error)?,
            }
        }
        old.writer = self.writer.take();
        Ok(true)
    }
}
