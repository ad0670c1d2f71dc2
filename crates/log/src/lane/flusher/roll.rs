//! Going on in the next file: made ahead, begun with a header, and only then the present one is closed.
//!
//! Invariant: the present file is written to only as long as no later one may have a header, which ends
//! the present one where that header says.

use bytes::BytesMut;
use talos_storage::{Error as StorageError, ErrorKind, Writer};

use super::{Flush, Flusher, LaneEnd, RETRY};
use crate::format::{
    self, FLUSH_FRAME_BYTES, FlushHeader, Frame, JournalId, LanePosition, toggle_mask,
};
use crate::lane::next_file::NextFile;

impl Flusher {
    /// Begins to make the next file once the present one is half full.
    pub(super) fn prepare_next(&mut self) {
        let position = self.writer.as_ref().map_or(0, |writer| writer.position());
        if self.next.is_none() && !self.asked_ahead && position >= self.file_bytes / 2 {
            self.asked_ahead = true;
            self.next = Some(self.start_next());
        }
    }

    fn start_next(&mut self) -> NextFile {
        self.used += 1;
        NextFile::start(&self.parts.storage, JournalId { number: self.used, ..self.file })
    }

    pub(super) fn keep_next(&mut self, writer: Box<dyn Writer>) {
        self.next = self.next.take().map(|next| next.ready(writer));
    }

    /// The next file could not be made ahead: no reason to stall, the roll tries again.
    pub(super) fn drop_next(&mut self, error: &StorageError) -> Result<(), LaneEnd> {
        self.next = None;
        self.forget_unused(error);
        self.roll_or_end(error)?;
        tracing::debug!(%error, "the next journal file is not made ahead");
        Ok(())
    }

    /// A number whose creation failed without a trace is tried again; one whose creation has no known
    /// outcome never is.
    fn forget_unused(&mut self, error: &StorageError) {
        if matches!(error.kind(), ErrorKind::Full | ErrorKind::Unavailable) {
            self.used -= 1;
        }
    }

    /// Writes the header of the file that was just created, and waits until it is durable: so a file
    /// that is named, or holds anything that was acknowledged, has a readable header. Gives its end.
    pub(super) async fn begin_file(&mut self) -> Result<u64, StorageError> {
        self.header_due = true;
        let filled = self.empty();
        match self.write(Flush { sequence: None, filled }) {
            Some(flush) => flush.outcome.await,
            None => Ok(0),
        }
    }

    /// Makes the next file the lane's, closing the present one if it still works. Gives why the store takes
    /// none, if it does not: then the present file stays, unless a later one may have a header, which ends it
    /// where that says.
    pub(super) async fn next_file(&mut self) -> Result<Option<StorageError>, LaneEnd> {
        let old = Old { writer: self.writer.take(), mask: self.mask };
        let index = (self.index_since, self.touched.clone());
        let next = match self.next.take() {
            Some(next) => next,
            None => self.start_next(),
        };
        let number = next.number();
        let begun = match next.finish().await {
            Ok(writer) => self.begin_next(number, writer).await.map_err(|error| (error, false)),
            Err(error) => Err((error, true)),
        };
        let end = match begun {
            Ok(end) => end,
            Err((error, no_header)) => {
                // Went with a header that nobody reads.
                (self.index_since, self.touched) = index;
                (self.writer, self.mask, self.header_due) = (None, old.mask, false);
                if no_header {
                    self.forget_unused(&error);
                    self.writer = old.writer;
                }
                self.roll_or_end(&error)?;
                return Ok(Some(error));
            }
        };
        self.retry = None;
        self.parts.lane.resume();
        self.close(old, number).await?;
        self.stated = self.stated.max(self.durable);
        self.file.number = number;
        self.asked_ahead = false;
        self.has_batches = false;
        self.parts.current_file.send_replace(number);
        self.durable = LanePosition { file: number, position: end };
        self.content_end = self.content_end.max(self.stated);
        Ok(None)
    }

    /// Refuses producers, with a definite error, until there is a file: it is asked for again after a pause.
    pub(super) fn stall(&mut self, error: &StorageError) {
        tracing::warn!(%error, "no new journal file: produce is refused");
        self.parts.lane.stall(&error.to_string());
        self.parts.metrics.stalled();
        let pause = self.retry.map_or(RETRY.0, |(_, pause)| pause);
        let at = self.parts.env.clock.now() + pause;
        self.retry = Some((at, (pause * 2).min(RETRY.1)));
    }

    /// Writes the header of file `number`; the lane's own file stays the old one until all is done.
    async fn begin_next(
        &mut self,
        number: u64,
        writer: Box<dyn Writer>,
    ) -> Result<u64, StorageError> {
        self.writer = Some(writer);
        let next = JournalId { number, ..self.file };
        let old = std::mem::replace(&mut self.file, next);
        let end = self.begin_file().await;
        self.file = old;
        end
    }

    /// Ends the old file with a close frame that names the next one, which exists (E-J13).
    async fn close(&mut self, old: Old, next_file: u64) -> Result<(), LaneEnd> {
        let Some(mut writer) = old.writer else { return Ok(()) };
        let mut close = BytesMut::new();
        format::put_frame(&mut close, &Frame::Close { next_file });
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        let flush_bytes = (FLUSH_FRAME_BYTES + close.len()) as u32;
        let header = FlushHeader { durable_to: self.durable, sequence, flush_bytes, frames: 1 };
        let mut bytes = BytesMut::new();
        format::put_frame(&mut bytes, &Frame::Flush(header));
        let second = bytes.len();
        bytes.extend_from_slice(&close);
        toggle_mask(&mut bytes, 0, old.mask);
        toggle_mask(&mut bytes, second, old.mask);
        match writer.append(vec![bytes.freeze()], None).await {
            Ok(_) => Ok(()),
            // What matters is durable already: the next file's header states it.
            Err(error) => self.roll_or_end(&error),
        }
    }
}

/// The file that is left, while the next one is made.
struct Old {
    writer: Option<Box<dyn Writer>>,
    mask: u32,
}
