//! The offsets of a shard's groups: commits, fetches, deletion and expiry.
//!
//! Invariants: reads come from the fold alone; a tombstone is queued behind every commit that it is
//! to remove.

use std::collections::BTreeMap;

use talos_common::TopicId;

use super::super::api::{
    Code, CommitRequest, FetchRequest, FetchedOffset, OffsetDeleteResponse, Text,
};
use super::super::records::{Record, StoredOffset, TEXT_MAX_BYTES};
use super::super::state::{Group, Now, Reply, State, Token};
use super::{After, Entry, Shard};

impl Shard {
    /// OffsetCommit: one code per offset, in order, once durable.
    pub fn commit(&mut self, request: &CommitRequest, token: Token, now: Now) {
        let id = &request.group_id;
        if let Err(code) = self.check_commit(request, now) {
            let codes = vec![code; request.offsets.len()];
            return self.replies.push((token, Reply::Codes(codes)));
        }
        let mut codes = Vec::with_capacity(request.offsets.len());
        let mut records = Vec::new();
        for offset in &request.offsets {
            let metadata = offset.metadata.clone().unwrap_or_else(|| "".into());
            let code = self.check_offset(id, &offset.topic, offset.partition, &metadata);
            codes.push(code);
            if code != Code::None {
                continue;
            }
            let retention_ms = Some(request.retention_ms).filter(|ms| *ms >= 0);
            records.push(Record::Offset {
                group: id.clone(),
                topic: offset.topic.clone(),
                partition: offset.partition,
                value: Some(StoredOffset {
                    offset: offset.offset,
                    leader_epoch: offset.leader_epoch,
                    metadata,
                    commit_ms: now.wall_ms,
                    expire_ms: retention_ms.map(|ms| now.wall_ms.saturating_add(ms)),
                    topic_id: offset.topic_id,
                }),
            });
        }
        if records.is_empty() {
            return self.replies.push((token, Reply::Codes(codes)));
        }
        if !self.groups.contains_key(id) {
            self.add_group(Group::new(id.clone()));
        }
        self.enqueue(id.clone(), records, After::Codes { token, codes, commits: true });
    }

    fn check_commit(&mut self, request: &CommitRequest, now: Now) -> Result<(), Code> {
        let (id, generation) = (&request.group_id, request.generation_id);
        if id.len() > TEXT_MAX_BYTES {
            return Err(Code::InvalidRequest);
        }
        let Some(entry) = self.groups.get(id) else {
            // Without a generation the group comes to be with its first offset.
            return match (generation < 0, request.version >= 9) {
                (true, _) => self.refuses_group().map_or(Ok(()), Err),
                (false, true) => Err(Code::GroupIdNotFound),
                (false, false) => Err(Code::IllegalGeneration),
            };
        };
        let group = &entry.group;
        if group.state == State::Dead {
            return Err(Code::CoordinatorNotAvailable);
        }
        if generation < 0 && group.state == State::Empty {
            return Ok(());
        }
        let member_id = &request.member_id;
        if generation >= 0 || !member_id.is_empty() || request.group_instance_id.is_some() {
            group.check_member(member_id, request.group_instance_id.as_ref())?;
            if generation != group.generation {
                return Err(Code::IllegalGeneration);
            }
        } else if group.state != State::Empty {
            return Err(Code::UnknownMemberId);
        }
        if group.state == State::CompletingRebalance {
            return Err(Code::RebalanceInProgress);
        }
        self.with_group(id, |group, _, _| group.touch(member_id, now));
        Ok(())
    }

    fn check_offset(&self, group: &str, topic: &Text, partition: i32, metadata: &str) -> Code {
        let max = self.config.offset_metadata_max_bytes;
        // No text has more UTF-16 units than bytes.
        let long = metadata.len() > max && metadata.encode_utf16().count() > max;
        if long || metadata.len() > TEXT_MAX_BYTES {
            Code::OffsetMetadataTooLarge
        } else if topic.len() > TEXT_MAX_BYTES {
            Code::InvalidRequest
        } else if (self.is_full() || self.bytes() + self.queued_bytes >= self.config.max_bytes)
            && self.fold.offset(group, topic, partition).is_none_or(|old| {
                // What is there may be replaced by what is no longer.
                old.metadata.len() < metadata.len()
            })
        {
            Code::PolicyViolation
        } else {
            Code::None
        }
    }

    /// OffsetFetch of one group. A partition without an offset has -1, never a default of another
    /// kind (J2).
    pub fn fetch(&self, request: &FetchRequest) -> Vec<FetchedOffset> {
        let keys = self.fold.group(&request.group_id);
        let Some(topics) = &request.topics else {
            let all = keys.into_iter().flat_map(|keys| &keys.offsets);
            return all
                .map(|((topic, partition), stored)| FetchedOffset {
                    topic: topic.clone(),
                    topic_id: stored.topic_id,
                    partition: *partition,
                    offset: stored.offset,
                    leader_epoch: stored.leader_epoch,
                    metadata: stored.metadata.clone(),
                })
                .collect();
        };
        let mut found = Vec::new();
        for asked in topics {
            for &partition in &asked.partitions {
                let stored = self.fold.offset(&request.group_id, &asked.topic, partition);
                // A topic of the same name that was made anew is another topic (P8).
                let stored = stored.filter(|s| same_topic(s.topic_id, asked.topic_id));
                found.push(FetchedOffset {
                    topic: asked.topic.clone(),
                    topic_id: asked.topic_id,
                    partition,
                    offset: stored.map_or(-1, |stored| stored.offset),
                    leader_epoch: stored.map_or(-1, |stored| stored.leader_epoch),
                    metadata: stored.map_or_else(|| "".into(), |stored| stored.metadata.clone()),
                });
            }
        }
        found
    }

    /// OffsetDelete: forgets offsets of topics that nobody in the group reads.
    pub fn delete_offsets(&mut self, group_id: &Text, keys: &[(Text, i32)], token: Token) {
        let result = self.check_delete_offsets(group_id);
        let Ok(entry) = result else {
            let codes = vec![result.err().unwrap_or(Code::None); 1];
            return self.replies.push((token, Reply::Codes(codes)));
        };
        let mut codes = vec![Code::None];
        let mut records = Vec::new();
        for key in keys {
            if entry.group.is_subscribed_to(&key.0) {
                codes.push(Code::GroupSubscribedToTopic);
                continue;
            }
            codes.push(Code::None);
            let stored = self.fold.offset(group_id, &key.0, key.1).is_some();
            if stored || entry.commits.contains_key(key) {
                records.push(tombstone(group_id, key));
            }
        }
        if records.is_empty() {
            return self.replies.push((token, Reply::Codes(codes)));
        }
        self.enqueue(group_id.clone(), records, After::Codes { token, codes, commits: false });
    }

    fn check_delete_offsets(&self, group_id: &Text) -> Result<&Entry, Code> {
        if group_id.is_empty() {
            return Err(Code::InvalidGroupId);
        }
        if self.account.memory().is_queue_full() {
            return Err(Code::CoordinatorNotAvailable);
        }
        let entry = self.groups.get(group_id).ok_or(Code::GroupIdNotFound)?;
        match entry.group.state {
            State::Dead => Err(Code::CoordinatorNotAvailable),
            State::Empty => Ok(entry),
            _ if entry.group.is_consumer() => Ok(entry),
            _ => Err(Code::NonEmptyGroup),
        }
    }

    /// Splits the codes of [`Shard::delete_offsets`].
    pub(in super::super) fn offset_delete_response(mut codes: Vec<Code>) -> OffsetDeleteResponse {
        let code = if codes.is_empty() { Code::UnknownServerError } else { codes.remove(0) };
        OffsetDeleteResponse { code, partitions: codes }
    }

    /// A topic is gone: so are its offsets. Those of a later topic of the same name stay.
    pub fn topic_deleted(&mut self, topic: &Text, topic_id: TopicId) {
        let mut gone = BTreeMap::<Text, Vec<Record>>::new();
        for (id, keys) in self.fold.groups() {
            let range = (topic.clone(), i32::MIN)..=(topic.clone(), i32::MAX);
            for (key, stored) in keys.offsets.range(range) {
                if same_topic(stored.topic_id, topic_id) {
                    gone.entry(id.clone()).or_default().push(tombstone(id, key));
                }
            }
        }
        for (id, records) in gone {
            self.enqueue(id, records, After::Removed);
        }
    }

    /// Removes expired offsets, and groups that are empty without them.
    pub(super) fn expire(&mut self, now: Now) {
        let retention_ms = self.config.offsets_retention_ms;
        for id in self.groups.keys().cloned().collect::<Vec<_>>() {
            let Some(entry) = self.groups.get(&id) else { continue };
            let group = &entry.group;
            if group.state == State::Dead || entry.writes > 0 {
                // The next look is soon enough.
                continue;
            }
            let offsets = self.fold.group(&id).map(|keys| &keys.offsets);
            let total = offsets.map_or(0, BTreeMap::len);
            let expired = offsets.into_iter().flatten().filter(|((topic, _), stored)| {
                let due_ms = group.expiry_base_ms(stored.commit_ms).map(|base_ms| {
                    stored.expire_ms.unwrap_or_else(|| base_ms.saturating_add(retention_ms))
                });
                !group.is_subscribed_to(topic) && due_ms.is_some_and(|due_ms| due_ms <= now.wall_ms)
            });
            let records: Vec<_> = expired.map(|(key, _)| tombstone(&id, key)).collect();
            if records.len() == total && group.is_vacant() {
                self.delete_group(&id, None);
            } else if !records.is_empty() {
                self.enqueue(id, records, After::Removed);
            }
        }
    }
}

/// Whether two ids can be of the same topic; all zero is not known.
fn same_topic(a: TopicId, b: TopicId) -> bool {
    let unknown = TopicId::default();
    a == b || a == unknown || b == unknown
}

pub(super) fn tombstone(group: &Text, (topic, partition): &(Text, i32)) -> Record {
    let (group, topic, partition) = (group.clone(), topic.clone(), *partition);
    Record::Offset { group, topic, partition, value: None }
}
