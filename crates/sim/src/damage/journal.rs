//! What the bytes of journal files say, read without the code that recovery uses: every frame wherever
//! it lies, and which of them something that is left states as durable.
//!
//! Only the frame format is shared with the log; what a torn end is and what damage is, is decided
//! here anew, so that recovery is compared with something else than itself.

use std::collections::BTreeMap;

use bytes::Bytes;
use talos_log::format::{self, Frame, JournalId, LanePosition};
use talos_storage::FilePath;
use talos_storage::memory::FileCopy;

/// A frame and where it lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) at: u64,
    /// Exclusive.
    pub(crate) end: u64,
    pub(crate) frame: Frame,
}

/// One journal file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Journal {
    /// In the order of the file. Empty where not even the header can be read.
    pub(crate) frames: Vec<Placed>,
}

impl Journal {
    /// Reads all frames of a file.
    pub(crate) fn read(path: &FilePath, content: &[u8]) -> Self {
        let FilePath::Journal { dir, lane, number } = *path else { return Self::default() };
        let id = JournalId { dir, lane, number };
        let bytes = Bytes::copy_from_slice(content);
        let Ok(format::Parsed { frame: Frame::Header(header), length }) =
            format::parse(&bytes, id.header_mask())
        else {
            return Self::default();
        };
        let mut frames = vec![Placed { at: 0, end: length as u64, frame: Frame::Header(header) }];
        let mut at = length;
        // Most of a preallocated file is zeros, and so is no frame's length.
        let used = content.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        while at < used {
            if content.get(at..at + 4).is_some_and(|length| length == [0; 4]) {
                at += 1;
                continue;
            }
            match format::parse(&bytes.slice(at..), header.mask()) {
                Ok(format::Parsed { frame, length }) => {
                    let end = at + length;
                    frames.push(Placed { at: at as u64, end: end as u64, frame });
                    at = end;
                }
                Err(_) => at += 1,
            }
        }
        Self { frames }
    }

    /// The frame that covers a byte.
    pub(crate) fn covering(&self, at: u64) -> Option<&Placed> {
        self.frames.iter().find(|placed| placed.at <= at && at < placed.end)
    }
}

/// The journals of one broker directory.
#[derive(Clone, Debug, Default)]
pub(crate) struct Lane {
    pub(crate) files: BTreeMap<u64, Journal>,
    /// A clean stop left in the metadata where it ends.
    pub(crate) clean: bool,
}

impl Lane {
    pub(crate) fn read<'a>(copies: impl Iterator<Item = &'a FileCopy>, clean: bool) -> Self {
        let files = copies.filter_map(|copy| match copy.path() {
            FilePath::Journal { number, .. } => {
                Some((*number, Journal::read(copy.path(), copy.content())))
            }
            _ => None,
        });
        Self { files: files.collect(), clean }
    }

    fn frames(&self) -> impl Iterator<Item = (u64, &Placed)> {
        self.files.iter().flat_map(|(number, file)| file.frames.iter().map(|f| (*number, f)))
    }

    /// The highest position that something states as durable.
    fn stated(&self) -> LanePosition {
        let states = self.frames().filter_map(|(file, placed)| match &placed.frame {
            Frame::Header(header) => Some(header.durable_to),
            Frame::Flush(flush) => Some(flush.durable_to),
            Frame::Note { durable_to }
                if *durable_to == LanePosition { file, position: placed.at } =>
            {
                Some(*durable_to)
            }
            // The next file exists, with a header.
            Frame::Close { next_file } => Some(LanePosition { file: *next_file, position: 1 }),
            _ => None,
        });
        states.max().unwrap_or_default()
    }

    /// Whether something that is left says that what ends at `end` of file `number` is durable.
    pub(crate) fn states(&self, number: u64, end: u64) -> bool {
        if self.clean {
            return true;
        }
        let limit = self.frames().find_map(|(file, placed)| match &placed.frame {
            Frame::Header(header) if file > number && header.durable_to.file == number => {
                Some(header.durable_to.position)
            }
            _ => None,
        });
        let stated = self.stated();
        match limit {
            Some(limit) => end <= limit,
            None => {
                let here = LanePosition { file: number, position: end };
                // A file that must exist and has no readable header is missed as a whole.
                let named = number == 0 || stated == LanePosition { file: number, position: 1 };
                let unreadable = self.files.get(&number).is_none_or(|file| file.frames.is_empty());
                here <= stated || (named && unreadable)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::BytesMut;
    use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LaneId};
    use talos_log::format::{FileHeader, FlushHeader};

    use super::*;

    const DIR: BrokerDir = BrokerDir { broker: BrokerId(0), epoch: BrokerEpoch(1) };
    const ID: JournalId = JournalId { dir: DIR, lane: LaneId(0), number: 0 };

    fn content(durable_to: u64, torn: bool) -> Vec<u8> {
        let header = FileHeader {
            format: format::FORMAT,
            cluster: [1; 16],
            id: ID,
            nonce: 7,
            preallocated_bytes: 0,
            durable_to: LanePosition::default(),
        };
        let mut out = BytesMut::new();
        format::put_frame(&mut out, &Frame::Header(header));
        format::toggle_mask(&mut out, 0, ID.header_mask());
        if torn {
            out.extend_from_slice(&[9; 40]);
        }
        let start = out.len();
        let durable_to = LanePosition { file: 0, position: durable_to };
        let flush = FlushHeader { durable_to, sequence: 0, flush_bytes: 0, frames: 0 };
        format::put_frame(&mut out, &Frame::Flush(flush));
        format::toggle_mask(&mut out, start, header.mask());
        out.extend_from_slice(&[0; 100]);
        out.to_vec()
    }

    #[test]
    fn frames_are_found_behind_what_is_torn_and_their_statements_count() {
        let journal = Journal::read(&ID.path(), &content(90, true));
        assert_eq!(journal.frames.len(), 2);
        let lane = Lane { files: BTreeMap::from([(0, journal)]), clean: false };
        assert!(lane.states(0, 90) && !lane.states(0, 91));
        let lane = Lane { clean: true, ..lane };
        assert!(lane.states(0, 91));
    }

    #[test]
    fn a_first_file_without_a_header_is_missed_as_a_whole() {
        let lane = Lane::default();
        assert!(lane.states(0, 1_000) && !lane.states(1, 1_000));
    }
}
