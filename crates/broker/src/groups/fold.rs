//! What the log of one partition of `__consumer_offsets` says: the last value of every key.
//!
//! It changes only by [`Fold::apply`], with records that are in the log, in the log's order; applying
//! records again from any earlier place ends in the same state. So a snapshot is an ordinary part of
//! the log: chunks of this state, each taken when all earlier records were applied and none is in
//! flight, after which everything before the first chunk can go.

use std::collections::BTreeMap;
use std::ops::Bound;

use super::api::Text;
use super::records::{Record, StoredGroup, StoredOffset};

/// The keys of one group.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FoldedGroup {
    /// Its last stored generation.
    pub generation: Option<StoredGroup>,
    /// Its offsets by topic name and partition.
    pub offsets: BTreeMap<(Text, i32), StoredOffset>,
}

/// All keys.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    groups: BTreeMap<Text, FoldedGroup>,
    bytes: usize,
}

/// How far a snapshot has come: the last key it contains.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SnapshotCursor {
    group: Option<Text>,
    offset: Option<(Text, i32)>,
}

/// Fixed cost of a key in the byte count: map nodes, lengths, counters.
const KEY_BYTES: usize = 160;

pub(super) fn offset_bytes(topic: &str, metadata: &str) -> usize {
    KEY_BYTES + topic.len() + metadata.len()
}

fn generation_bytes(value: &StoredGroup) -> usize {
    let texts = |text: &Option<Text>| text.as_ref().map_or(0, |text| text.len());
    let members = value.members.iter().map(|member| {
        KEY_BYTES
            + member.member_id.len()
            + texts(&member.group_instance_id)
            + member.client_id.len()
            + member.client_host.len()
            + member.subscription.len()
            + member.assignment.len()
    });
    KEY_BYTES + value.protocol_type.len() + members.sum::<usize>()
}

impl Fold {
    /// Takes over one record of the log.
    pub fn apply(&mut self, record: Record) {
        match record {
            Record::Offset { group, topic, partition, value: Some(value) } => {
                self.bytes += offset_bytes(&topic, &value.metadata);
                let keys = self.groups.entry(group).or_default();
                if let Some(old) = keys.offsets.insert((topic.clone(), partition), value) {
                    self.bytes -= offset_bytes(&topic, &old.metadata);
                }
            }
            Record::Offset { group, topic, partition, value: None } => {
                let Some(keys) = self.groups.get_mut(&group) else { return };
                let key = (topic, partition);
                if let Some(old) = keys.offsets.remove(&key) {
                    self.bytes -= offset_bytes(&key.0, &old.metadata);
                }
                self.forget_if_empty(&group);
            }
            Record::Group { group, value: Some(value) } => {
                self.bytes += generation_bytes(&value);
                let keys = self.groups.entry(group).or_default();
                if let Some(old) = keys.generation.replace(value) {
                    self.bytes -= generation_bytes(&old);
                }
            }
            Record::Group { group, value: None } => {
                let Some(keys) = self.groups.get_mut(&group) else { return };
                if let Some(old) = keys.generation.take() {
                    self.bytes -= generation_bytes(&old);
                }
                self.forget_if_empty(&group);
            }
            Record::Unknown { .. } => {}
        }
    }

    fn forget_if_empty(&mut self, group: &str) {
        if self.groups.get(group).is_some_and(|keys| *keys == FoldedGroup::default()) {
            self.groups.remove(group);
        }
    }

    /// The keys of one group; `None` when it has none.
    pub fn group(&self, group: &str) -> Option<&FoldedGroup> {
        self.groups.get(group)
    }

    /// All groups, by id.
    pub fn groups(&self) -> impl Iterator<Item = (&Text, &FoldedGroup)> {
        self.groups.iter()
    }

    /// One offset.
    pub fn offset(&self, group: &str, topic: &Text, partition: i32) -> Option<&StoredOffset> {
        self.groups.get(group)?.offsets.get(&(topic.clone(), partition))
    }

    /// About how much memory the state takes.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// The records of the keys after `cursor`, at least one if there is any, then up to about
    /// `max_bytes`; moves the cursor. Empty: the snapshot is complete.
    pub fn snapshot_chunk(&self, cursor: &mut SnapshotCursor, max_bytes: usize) -> Vec<Record> {
        let mut chunk = Vec::new();
        let mut bytes = 0;
        let from = cursor.group.clone().map_or(Bound::Unbounded, Bound::Included);
        for (group, keys) in self.groups.range::<Text, _>((from, Bound::Unbounded)) {
            if cursor.group.as_ref() != Some(group) {
                if bytes >= max_bytes {
                    return chunk;
                }
                *cursor = SnapshotCursor { group: Some(group.clone()), offset: None };
                if let Some(generation) = &keys.generation {
                    bytes += generation_bytes(generation);
                    let value = Some(generation.clone());
                    chunk.push(Record::Group { group: group.clone(), value });
                }
            }
            let after = cursor.offset.clone().map_or(Bound::Unbounded, Bound::Excluded);
            for ((topic, partition), offset) in keys.offsets.range((after, Bound::Unbounded)) {
                if bytes >= max_bytes {
                    return chunk;
                }
                bytes += offset_bytes(topic, &offset.metadata);
                cursor.offset = Some((topic.clone(), *partition));
                let (group, topic) = (group.clone(), topic.clone());
                let value = Some(offset.clone());
                chunk.push(Record::Offset { group, topic, partition: *partition, value });
            }
        }
        chunk
    }
}
