//! The root of a partition: what of its log exists. One small record in the metadata, swapped in a
//! transaction that also checks the ownership record, so that an old leader can add, trim and delete
//! nothing (E-J1 to E-J4). This crate is *given* a handle to it; it never talks to the metadata.

use std::fmt;
use std::future::Future;
use std::pin::Pin;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use talos_common::LeaderEpoch;

const ROOT_VERSION: u8 = 1;

/// What of a partition's log exists. Its `Default` is the root of a log that never had a record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Root {
    /// First readable offset.
    pub log_start: i64,
    /// At least this is where the next record goes: kept when retention empties the log (E-J2).
    pub end_offset: i64,
    /// The leader epoch of the record before `end_offset`, if there ever was one.
    pub end_epoch: Option<LeaderEpoch>,
    /// The newest segment, whose footer names all live ones.
    pub head: Option<Head>,
    /// Rises by one with every swap: tells an older root from a newer one (E-J14).
    pub generation: u64,
}

/// The name of the newest segment, as [`talos_storage::FilePath::Segment`] has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// First offset in it.
    pub base_offset: i64,
    /// Of the leader that wrote it.
    pub leader_epoch: LeaderEpoch,
    /// Which attempt.
    pub attempt: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
}

/// Why a root could not be read or swapped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RootError {
    /// Another broker leads the partition: this leadership is over.
    #[error("the partition has another leader")]
    Fenced,
    /// Not applied; the same swap may succeed later.
    #[error("the root can not be written now: {0}")]
    Unavailable(String),
    /// May be applied: the root must be read before it is swapped again.
    #[error("whether the root was written is not known: {0}")]
    Uncertain(String),
    /// The root's bytes are not what was written.
    #[error("the root is corrupt: {0}")]
    Corrupt(String),
    /// The log start can not move beyond the high watermark.
    #[error("offset {offset} lies above the high watermark {high_watermark}")]
    OutOfRange {
        /// As asked.
        offset: i64,
        /// As it is (exclusive).
        high_watermark: i64,
    },
}

/// Where one leadership of one partition keeps its root.
pub trait RootHandle: Send + Sync + fmt::Debug {
    /// Replaces the root, if the ownership record is still this leader's and the root is the one
    /// that this handle last read or wrote; durable when this resolves. An implementation settles an
    /// unknown outcome by reading where it can.
    fn swap(
        &self,
        value: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<(), RootError>> + Send + '_>>;

    /// The root as it is stored; `None` when there is none. To be called after a swap of unknown
    /// outcome, which it settles: no earlier swap is applied any more when this resolves. An error
    /// leaves it unknown.
    fn read(&self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, RootError>> + Send + '_>>;
}

impl Root {
    /// The same root, covering at least everything below `offset`.
    pub fn covering(self, offset: i64, epoch: Option<LeaderEpoch>) -> Self {
        if offset > self.end_offset {
            Self { end_offset: offset, end_epoch: epoch.or(self.end_epoch), ..self }
        } else {
            self
        }
    }

    /// The record: version, log start, end offset, end epoch (-1: none), generation, head (1 and its
    /// name and length, or 0), CRC-32C of all that; little-endian.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(48);
        out.put_u8(ROOT_VERSION);
        out.put_i64_le(self.log_start);
        out.put_i64_le(self.end_offset);
        out.put_i32_le(self.end_epoch.map_or(-1, |epoch| epoch.0));
        out.put_u64_le(self.generation);
        match &self.head {
            Some(head) => {
                out.put_u8(1);
                out.put_i64_le(head.base_offset);
                out.put_i32_le(head.leader_epoch.0);
                out.put_u64_le(head.attempt);
                out.put_u64_le(head.file_bytes);
            }
            None => out.put_u8(0),
        }
        let crc = talos_protocol::batch::crc32c(&out);
        out.put_u32_le(crc);
        out.freeze()
    }

    /// Reads what [`Root::encode`] wrote.
    ///
    /// # Errors
    /// `Corrupt` for all other bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, RootError> {
        let corrupt = |why: &str| RootError::Corrupt(format!("{why} in {} bytes", bytes.len()));
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or_else(|| corrupt("no checksum"))?;
        if talos_protocol::batch::crc32c(body) != u32::from_le_bytes(*crc) {
            return Err(corrupt("checksum mismatch"));
        }
        let mut body = body;
        let root = decode_body(&mut body).ok_or_else(|| corrupt("unknown version or length"))?;
        let sound = body.is_empty() && 0 <= root.log_start && root.log_start <= root.end_offset;
        if sound { Ok(root) } else { Err(corrupt("impossible offsets")) }
    }
}

fn decode_body(body: &mut &[u8]) -> Option<Root> {
    if body.try_get_u8().ok()? != ROOT_VERSION {
        return None;
    }
    let log_start = body.try_get_i64_le().ok()?;
    let end_offset = body.try_get_i64_le().ok()?;
    let end_epoch = body.try_get_i32_le().ok()?;
    let end_epoch = (end_epoch >= 0).then_some(LeaderEpoch(end_epoch));
    let generation = body.try_get_u64_le().ok()?;
    let head = match body.try_get_u8().ok()? {
        0 => None,
        1 => Some(Head {
            base_offset: body.try_get_i64_le().ok()?,
            leader_epoch: LeaderEpoch(body.try_get_i32_le().ok()?),
            attempt: body.try_get_u64_le().ok()?,
            file_bytes: body.try_get_u64_le().ok()?,
        }),
        _ => return None,
    };
    Some(Root { log_start, end_offset, end_epoch, head, generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_round_trips_and_any_flipped_bit_or_cut_is_corruption() {
        let head =
            Head { base_offset: 5, leader_epoch: LeaderEpoch(2), attempt: 9, file_bytes: 77 };
        let end_epoch = Some(LeaderEpoch(3));
        let root =
            Root { log_start: 7, end_offset: 11, end_epoch, head: Some(head), generation: 3 };
        let bytes = root.encode();
        assert_eq!(Root::decode(&bytes), Ok(root));
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.to_vec();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(matches!(Root::decode(&flipped), Err(RootError::Corrupt(_))));
        }
        for cut in 0..bytes.len() {
            assert!(matches!(Root::decode(&bytes[..cut]), Err(RootError::Corrupt(_))));
        }
    }
}
