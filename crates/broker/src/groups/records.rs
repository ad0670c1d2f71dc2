//! Keys and values of `__consumer_offsets` in Apache Kafka's own schemas, so that its tools can read
//! them. A key begins with an `i16` that says what it is (0, 1: offset commit; 2: group metadata), a
//! value with its version. Facts: the schemas `OffsetCommit{Key,Value}` and `GroupMetadata{Key,Value}`
//! of Kafka 4.4; versions 0 to 4 are read, 4 (offset commits; 1 when the client set an expiry) and 3
//! (group metadata) are written, as Kafka does.
//!
//! Input is never trusted: every length is checked against what remains before anything is made.

use talos_common::TopicId;

use super::api::{Blob, Text};

const OFFSET_COMMIT_KEY: i16 = 1;
const GROUP_METADATA_KEY: i16 = 2;
/// Longest text that the schemas (and Kafka's wire format) can carry, in bytes.
pub const TEXT_MAX_BYTES: usize = i16::MAX as usize;

/// A committed offset as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredOffset {
    /// Next offset to read.
    pub offset: i64,
    /// Of the last record read, or -1.
    pub leader_epoch: i32,
    /// Free text of the client.
    pub metadata: Text,
    /// Wall time of the commit, milliseconds since the Unix epoch.
    pub commit_ms: i64,
    /// Wall time at which the client wants it to expire, if it said so.
    pub expire_ms: Option<i64>,
    /// The topic's id at the commit; all zero when not known.
    pub topic_id: TopicId,
}

/// One member of a stored generation.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are Kafka's")]
pub struct StoredMember {
    pub member_id: Text,
    pub group_instance_id: Option<Text>,
    pub client_id: Text,
    pub client_host: Text,
    pub rebalance_timeout_ms: i32,
    pub session_timeout_ms: i32,
    pub subscription: Blob,
    pub assignment: Blob,
}

/// One generation of a group as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGroup {
    /// Empty when the group has none.
    pub protocol_type: Text,
    /// The generation.
    pub generation: i32,
    /// The selected protocol; none in an empty group.
    pub protocol: Option<Text>,
    /// Member id of the leader; none in an empty group.
    pub leader: Option<Text>,
    /// Wall time of the last change of state, or -1.
    pub state_since_ms: i64,
    /// Members in the order of their ids.
    pub members: Vec<StoredMember>,
}

/// One record of the log, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// An offset was committed, or with `None` removed.
    Offset {
        /// The group.
        group: Text,
        /// Topic name.
        topic: Text,
        /// Partition index.
        partition: i32,
        /// The offset.
        value: Option<StoredOffset>,
    },
    /// A generation was completed, or with `None` the group was removed.
    Group {
        /// The group.
        group: Text,
        /// The generation.
        value: Option<StoredGroup>,
    },
    /// A key of a kind that this version does not know: it is left alone.
    Unknown {
        /// The kind.
        kind: i16,
    },
}

/// Bytes that are no record of these schemas.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("bad {part}: {problem}")]
pub struct DecodeError {
    /// `key` or `value`.
    pub part: &'static str,
    /// What is wrong.
    pub problem: &'static str,
}

impl Record {
    /// Key and value for the log; `None` for [`Record::Unknown`] and when a text is longer than
    /// [`TEXT_MAX_BYTES`].
    pub fn encode(&self) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
        let mut key = Writer::default();
        let value = match self {
            Self::Offset { group, topic, partition, value } => {
                key.i16(OFFSET_COMMIT_KEY);
                key.text(group)?;
                key.text(topic)?;
                key.i32(*partition);
                value.as_ref().map(encode_offset)
            }
            Self::Group { group, value } => {
                key.i16(GROUP_METADATA_KEY);
                key.text(group)?;
                value.as_ref().map(encode_group)
            }
            Self::Unknown { .. } => return None,
        };
        match value {
            Some(value) => Some((key.0, Some(value?))),
            None => Some((key.0, None)),
        }
    }

    /// Reads one record. Extra bytes are refused.
    pub fn decode(key: &[u8], value: Option<&[u8]>) -> Result<Self, DecodeError> {
        let mut reader = Reader { rest: key, part: "key" };
        match reader.i16()? {
            0 | OFFSET_COMMIT_KEY => {
                let group = reader.text()?;
                let topic = reader.text()?;
                let partition = reader.i32()?;
                reader.end()?;
                let value = value.map(decode_offset).transpose()?;
                Ok(Self::Offset { group, topic, partition, value })
            }
            GROUP_METADATA_KEY => {
                let group = reader.text()?;
                reader.end()?;
                let value = value.map(decode_group).transpose()?;
                Ok(Self::Group { group, value })
            }
            kind @ 3.. => Ok(Self::Unknown { kind }),
            _ => Err(reader.error("negative kind")),
        }
    }
}

fn encode_offset(value: &StoredOffset) -> Option<Vec<u8>> {
    let mut out = Writer::default();
    if let Some(expire_ms) = value.expire_ms {
        // Only version 1 carries an expiry; it has no leader epoch and no topic id.
        out.i16(1);
        out.i64(value.offset);
        out.text(&value.metadata)?;
        out.i64(value.commit_ms);
        out.i64(expire_ms);
        return Some(out.0);
    }
    out.i16(4);
    out.i64(value.offset);
    out.i32(value.leader_epoch);
    out.compact_text(&value.metadata)?;
    out.i64(value.commit_ms);
    if value.topic_id == TopicId::default() {
        out.uvarint(0);
    } else {
        out.uvarint(1); // one tagged field:
        out.uvarint(0); // its tag,
        out.uvarint(16); // its size
        out.0.extend_from_slice(&value.topic_id.0);
    }
    Some(out.0)
}

fn encode_group(value: &StoredGroup) -> Option<Vec<u8>> {
    let mut out = Writer::default();
    out.i16(3);
    out.text(&value.protocol_type)?;
    out.i32(value.generation);
    out.nullable_text(value.protocol.as_deref())?;
    out.nullable_text(value.leader.as_deref())?;
    out.i64(value.state_since_ms);
    out.i32(i32::try_from(value.members.len()).ok()?);
    for member in &value.members {
        out.text(&member.member_id)?;
        out.nullable_text(member.group_instance_id.as_deref())?;
        out.text(&member.client_id)?;
        out.text(&member.client_host)?;
        out.i32(member.rebalance_timeout_ms);
        out.i32(member.session_timeout_ms);
        out.blob(&member.subscription)?;
        out.blob(&member.assignment)?;
    }
    Some(out.0)
}

fn decode_offset(value: &[u8]) -> Result<StoredOffset, DecodeError> {
    let mut reader = Reader { rest: value, part: "value" };
    let version = reader.i16()?;
    if !(0..=4).contains(&version) {
        return Err(reader.error("offset commit of an unknown version"));
    }
    let flexible = version >= 4;
    let offset = reader.i64()?;
    let leader_epoch = if version >= 3 { reader.i32()? } else { -1 };
    let metadata = if flexible { reader.compact_text()? } else { reader.text()? };
    let commit_ms = reader.i64()?;
    let expire_ms = if version == 1 { Some(reader.i64()?).filter(|ms| *ms != -1) } else { None };
    let mut topic_id = TopicId::default();
    if flexible {
        reader.tagged(|tag, bytes| {
            if tag == 0 {
                topic_id = TopicId(bytes.try_into().map_err(|_| "topic id is not 16 bytes")?);
            }
            Ok(())
        })?;
    }
    reader.end()?;
    Ok(StoredOffset { offset, leader_epoch, metadata, commit_ms, expire_ms, topic_id })
}

fn decode_group(value: &[u8]) -> Result<StoredGroup, DecodeError> {
    let mut reader = Reader { rest: value, part: "value" };
    let version = reader.i16()?;
    if !(0..=4).contains(&version) {
        return Err(reader.error("group metadata of an unknown version"));
    }
    let flexible = version >= 4;
    let protocol_type = reader.any_text(flexible)?.ok_or(reader.error("null protocol type"))?;
    let generation = reader.i32()?;
    let protocol = reader.any_text(flexible)?;
    let leader = reader.any_text(flexible)?;
    let state_since_ms = if version >= 2 { reader.i64()? } else { -1 };
    let count = if flexible {
        reader.uvarint()?.checked_sub(1).ok_or(reader.error("null members"))? as usize
    } else {
        usize::try_from(reader.i32()?).map_err(|_| reader.error("null members"))?
    };
    // A member takes at least 12 bytes in every version.
    if count > reader.rest.len() / 12 {
        return Err(reader.error("more members than bytes"));
    }
    let mut members = Vec::with_capacity(count);
    for _ in 0..count {
        members.push(decode_member(&mut reader, version)?);
    }
    if flexible {
        reader.tagged(|_, _| Ok(()))?;
    }
    reader.end()?;
    Ok(StoredGroup { protocol_type, generation, protocol, leader, state_since_ms, members })
}

fn decode_member(reader: &mut Reader<'_>, version: i16) -> Result<StoredMember, DecodeError> {
    let flexible = version >= 4;
    let null = reader.error("null where text must be");
    let member_id = reader.any_text(flexible)?.ok_or(null)?;
    let group_instance_id = if version >= 3 { reader.any_text(flexible)? } else { None };
    let client_id = reader.any_text(flexible)?.ok_or(null)?;
    let client_host = reader.any_text(flexible)?.ok_or(null)?;
    let rebalance_timeout_ms = if version >= 1 { reader.i32()? } else { -1 };
    let session_timeout_ms = reader.i32()?;
    let subscription = reader.any_blob(flexible)?;
    let assignment = reader.any_blob(flexible)?;
    if flexible {
        reader.tagged(|_, _| Ok(()))?;
    }
    Ok(StoredMember {
        member_id,
        group_instance_id,
        client_id,
        client_host,
        rebalance_timeout_ms: match rebalance_timeout_ms {
            -1 => session_timeout_ms,
            set => set,
        },
        session_timeout_ms,
        subscription,
        assignment,
    })
}

/// The topics of a consumer's subscription (the `consumer` protocol's metadata); `None` when the
/// bytes are not one. Everything after the topics belongs to the clients.
pub fn subscribed_topics(metadata: &[u8]) -> Option<Vec<Text>> {
    let mut reader = Reader { rest: metadata, part: "subscription" };
    if reader.i16().ok()? < 0 {
        return None;
    }
    let count = usize::try_from(reader.i32().ok()?).ok()?;
    if count > reader.rest.len() / 2 {
        return None;
    }
    (0..count).map(|_| reader.text().ok()).collect()
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn i16(&mut self, value: i16) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn i32(&mut self, value: i32) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn i64(&mut self, value: i64) {
        self.0.extend_from_slice(&value.to_be_bytes());
    }

    fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.0.push((value & 0x7f) as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    fn text(&mut self, text: &str) -> Option<()> {
        self.i16(i16::try_from(text.len()).ok()?);
        self.0.extend_from_slice(text.as_bytes());
        Some(())
    }

    fn nullable_text(&mut self, text: Option<&str>) -> Option<()> {
        match text {
            Some(text) => self.text(text)?,
            None => self.i16(-1),
        }
        Some(())
    }

    fn compact_text(&mut self, text: &str) -> Option<()> {
        let len = i16::try_from(text.len()).ok()?;
        self.uvarint(u32::from(len.unsigned_abs()) + 1);
        self.0.extend_from_slice(text.as_bytes());
        Some(())
    }

    fn blob(&mut self, bytes: &[u8]) -> Option<()> {
        self.i32(i32::try_from(bytes.len()).ok()?);
        self.0.extend_from_slice(bytes);
        Some(())
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    part: &'static str,
}

impl<'a> Reader<'a> {
    fn error(&self, problem: &'static str) -> DecodeError {
        DecodeError { part: self.part, problem }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], DecodeError> {
        let (head, rest) = self.rest.split_at_checked(len).ok_or(self.error("ends early"))?;
        self.rest = rest;
        Ok(head)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], DecodeError> {
        self.take(N)?.try_into().map_err(|_| self.error("ends early"))
    }

    fn i16(&mut self) -> Result<i16, DecodeError> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    fn i32(&mut self) -> Result<i32, DecodeError> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    fn i64(&mut self) -> Result<i64, DecodeError> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn uvarint(&mut self) -> Result<u32, DecodeError> {
        let mut value = 0u64;
        for shift in [0, 7, 14, 21, 28] {
            let [byte] = self.array()?;
            value |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return u32::try_from(value).map_err(|_| self.error("number too large"));
            }
        }
        Err(self.error("number too long"))
    }

    fn utf8(&mut self, len: usize) -> Result<Text, DecodeError> {
        let bytes = self.take(len)?;
        std::str::from_utf8(bytes).map(Text::from).map_err(|_| self.error("text is not UTF-8"))
    }

    fn any_text(&mut self, compact: bool) -> Result<Option<Text>, DecodeError> {
        let len = if compact {
            self.uvarint()?.checked_sub(1).map(|len| len as usize)
        } else {
            match self.i16()? {
                -1 => None,
                len => Some(usize::try_from(len).map_err(|_| self.error("negative length"))?),
            }
        };
        len.map(|len| self.utf8(len)).transpose()
    }

    fn text(&mut self) -> Result<Text, DecodeError> {
        self.any_text(false)?.ok_or(self.error("null where text must be"))
    }

    fn compact_text(&mut self) -> Result<Text, DecodeError> {
        self.any_text(true)?.ok_or(self.error("null where text must be"))
    }

    fn any_blob(&mut self, compact: bool) -> Result<Blob, DecodeError> {
        let null = self.error("null where bytes must be");
        let len = if compact {
            self.uvarint()?.checked_sub(1).ok_or(null)? as usize
        } else {
            usize::try_from(self.i32()?).map_err(|_| null)?
        };
        self.take(len).map(Blob::from)
    }

    /// Tagged fields of a flexible version.
    fn tagged(
        &mut self,
        mut field: impl FnMut(u32, &[u8]) -> Result<(), &'static str>,
    ) -> Result<(), DecodeError> {
        // Each takes at least two bytes of what remains, so the loop is bounded by the input.
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let len = self.uvarint()? as usize;
            let bytes = self.take(len)?;
            field(tag, bytes).map_err(|problem| self.error(problem))?;
        }
        Ok(())
    }

    fn end(&self) -> Result<(), DecodeError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.error("extra bytes")) }
    }
}
