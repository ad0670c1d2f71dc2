//! The label of a run file, at its head and again at its tail: what the file is, and where its index
//! lies. A file under another name (exchanged with another, or put back from an older copy) says so.

use bytes::{Buf, BufMut, BytesMut};
use talos_common::{BrokerDir, BrokerEpoch, BrokerId, LeaderEpoch, TopicId, TopicPartitionId};
use talos_protocol::batch::crc32c;
use talos_storage::FilePath;

const MAGIC: [u8; 8] = *b"TALOSRUN";
const FORMAT: u16 = 1;
const SORTED: u8 = 1;
const SEGMENT: u8 = 2;
/// Bytes of a file's name in a label; that of a sorted journal is shorter, with zeros behind it.
const NAME_BYTES: usize = 40;
/// Bytes of a label.
pub(crate) const LABEL_BYTES: u64 = 88;

/// What a run file says about itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Label {
    pub(super) cluster: [u8; 16],
    /// The file's own name.
    pub(super) path: FilePath,
    /// Bytes of the whole file.
    pub(super) bytes: u64,
    /// Of each copy of the index.
    pub(super) index_bytes: u32,
    pub(super) index_crc: u32,
}

impl Label {
    pub(super) fn encode(&self) -> BytesMut {
        let mut out = BytesMut::with_capacity(LABEL_BYTES as usize);
        out.put_slice(&MAGIC);
        out.put_u16_le(FORMAT);
        let mut name = BytesMut::with_capacity(NAME_BYTES);
        let kind = put_name(&mut name, &self.path);
        out.put_u8(kind);
        out.put_u8(0);
        out.put_slice(&self.cluster);
        out.put_slice(&name);
        out.put_bytes(0, NAME_BYTES.saturating_sub(name.len()));
        out.put_u64_le(self.bytes);
        out.put_u32_le(self.index_bytes);
        out.put_u32_le(self.index_crc);
        let crc = crc32c(&out);
        out.put_u32_le(crc);
        out
    }

    /// Reads what [`Label::encode`] wrote.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, &'static str> {
        let (body, crc) = bytes.split_last_chunk::<4>().ok_or("the label is cut off")?;
        if bytes.len() as u64 != LABEL_BYTES || crc32c(body).to_le_bytes() != *crc {
            return Err("checksum mismatch in the label");
        }
        decode_body(body)
    }

    /// Whether the label is that of the file `path` of `cluster`.
    pub(super) fn check(&self, path: &FilePath, cluster: [u8; 16]) -> Result<(), String> {
        if self.cluster != cluster {
            return Err("the file belongs to another cluster".into());
        }
        if self.path != *path {
            return Err(format!("the file is {} by its label", self.path));
        }
        Ok(())
    }
}

/// Appends the name of `path`; gives its kind, 0 for what is no run file.
fn put_name(out: &mut BytesMut, path: &FilePath) -> u8 {
    match path {
        FilePath::Sorted { dir, number } => {
            out.put_i32_le(dir.broker.0);
            out.put_u64_le(dir.epoch.0);
            out.put_u64_le(*number);
            SORTED
        }
        FilePath::Segment { partition, base_offset, leader_epoch, attempt } => {
            out.put_slice(&partition.topic.0);
            out.put_i32_le(partition.partition);
            out.put_i64_le(*base_offset);
            out.put_i32_le(leader_epoch.0);
            out.put_u64_le(*attempt);
            SEGMENT
        }
        FilePath::Cluster | FilePath::Journal { .. } | FilePath::SealIndex { .. } => 0,
    }
}

fn decode_body(mut body: &[u8]) -> Result<Label, &'static str> {
    const SHORT: &str = "the label is cut off";
    let mut magic = [0; 8];
    body.try_copy_to_slice(&mut magic).map_err(|_| SHORT)?;
    if magic != MAGIC {
        return Err("not a run file");
    }
    if body.try_get_u16_le().map_err(|_| SHORT)? != FORMAT {
        return Err("written by another version of Talos");
    }
    let kind = body.try_get_u16_le().map_err(|_| SHORT)?;
    let mut cluster = [0; 16];
    body.try_copy_to_slice(&mut cluster).map_err(|_| SHORT)?;
    let (mut name, mut rest) = body.split_at_checked(NAME_BYTES).ok_or(SHORT)?;
    let path = match u8::try_from(kind) {
        Ok(SORTED) => sorted_name(&mut name),
        Ok(SEGMENT) => segment_name(&mut name),
        Ok(_) | Err(_) => None,
    };
    Ok(Label {
        cluster,
        path: path.ok_or("another kind of run file")?,
        bytes: rest.try_get_u64_le().map_err(|_| SHORT)?,
        index_bytes: rest.try_get_u32_le().map_err(|_| SHORT)?,
        index_crc: rest.try_get_u32_le().map_err(|_| SHORT)?,
    })
}

fn sorted_name(name: &mut &[u8]) -> Option<FilePath> {
    let broker = BrokerId(name.try_get_i32_le().ok()?);
    let epoch = BrokerEpoch(name.try_get_u64_le().ok()?);
    let number = name.try_get_u64_le().ok()?;
    Some(FilePath::Sorted { dir: BrokerDir { broker, epoch }, number })
}

fn segment_name(name: &mut &[u8]) -> Option<FilePath> {
    let mut topic = [0; 16];
    name.try_copy_to_slice(&mut topic).ok()?;
    let partition = name.try_get_i32_le().ok()?;
    Some(FilePath::Segment {
        partition: TopicPartitionId { topic: TopicId(topic), partition },
        base_offset: name.try_get_i64_le().ok()?,
        leader_epoch: LeaderEpoch(name.try_get_i32_le().ok()?),
        attempt: name.try_get_u64_le().ok()?,
    })
}
