//! The end of a topic: deleted in two steps, remembered by its tombstone (E-D1, E-D2).

use super::*;

impl Meta {
    /// First step of a deletion: marks the topic and leaves its tombstone, in one transaction. Afterwards
    /// it can never be live again. Fine when it was marked before. Second step:
    /// [`Meta::finish_deletion`].
    pub async fn begin_deletion(&self, id: TopicId) -> Result<Topic, TopicError> {
        let path = paths::topic(id);
        for _ in 0..CONTENTION_ROUNDS {
            let (mut topic, version) = self.topic(id).await?.ok_or(TopicError::NotFound)?;
            if topic.state == TopicState::Deleting {
                return Ok(topic);
            }
            topic.state = TopicState::Deleting;
            let (name, partitions) = (topic.name.clone(), topic.partitions);
            let deleted_ms = self.env.clock.wall_ms();
            let tombstone = Tombstone { id, name, partitions, deleted_ms };
            let ops = [
                Op::Set { path: path.clone(), value: topic.encode(), version },
                create(paths::tombstone(id), tombstone.encode()),
            ];
            match self.settle(&ops).await? {
                Settled::Applied(_) => return Ok(topic),
                Settled::Refused(..) => self.store.sync().await?,
            }
        }
        Err(TopicError::Store(contended(&path)))
    }

    /// Second step of a deletion: when every leader has closed its record ([`Meta::close`]), or is dead and
    /// its directory sealed as `is_sealed` says, deletes the records and then frees the name. Safe to
    /// call again and by several at once.
    pub async fn finish_deletion(
        &self,
        id: TopicId,
        is_sealed: impl Fn(BrokerDir) -> bool,
    ) -> Result<Deletion, TopicError> {
        self.store.sync().await?;
        let Some((topic, version)) = self.topic(id).await? else { return Ok(Deletion::Done) };
        if topic.state != TopicState::Deleting {
            return Err(TopicError::Invalid(format!("{id} is not being deleted")));
        }
        let waiting = self.close_records(id, &is_sealed).await?;
        if !waiting.is_empty() {
            return Ok(Deletion::Waiting(waiting));
        }
        // Closed for ever: no leader, no claim, so no root can change.
        self.delete_partition_nodes(paths::ROOTS, id).await?;
        self.delete_partition_nodes(paths::OWNERSHIP, id).await?;
        let path = paths::topic_name(&topic.name);
        let name = self.store.get(&path).await?;
        let last = match name {
            Some(node) if decode_name(&path, &node.value)? == id => {
                vec![
                    Op::Delete { path, version: node.version },
                    Op::Delete { path: paths::topic(id), version },
                ]
            }
            _ => vec![Op::Delete { path: paths::topic(id), version }],
        };
        match self.settle(&last).await? {
            Settled::Applied(_) => Ok(Deletion::Done),
            Settled::Refused(_, Refusal::NotFound) => Ok(Deletion::Done),
            Settled::Refused(..) => Err(TopicError::Store(contended(&topic.name))),
        }
    }

    /// Closes every record of a topic that nobody alive leads; gives those that somebody does.
    async fn close_records(
        &self,
        id: TopicId,
        is_sealed: &impl Fn(BrokerDir) -> bool,
    ) -> Result<Vec<(TopicPartitionId, BrokerDir)>> {
        for _ in 0..CONTENTION_ROUNDS {
            let (mut waiting, mut groups) = (Vec::new(), Vec::new());
            for folder in self.chunk_folders(paths::OWNERSHIP, id).await? {
                for (child, node) in self.store.read_children(&folder).await? {
                    let path = format!("{folder}/{child}");
                    let record = Ownership::decode(&path, &node.value)?;
                    match record.leader {
                        Leader::Closed => continue,
                        Leader::Broker(dir) if !is_sealed(dir) => {
                            let corrupt = |_| Error::Corrupt(format!("{path}: not a partition"));
                            let partition = child.parse().map_err(corrupt)?;
                            waiting.push((TopicPartitionId { topic: id, partition }, dir));
                        }
                        Leader::Broker(_) | Leader::Released => {
                            let closed = Ownership { leader: Leader::Closed, ..record };
                            let (value, version) = (closed.encode(), node.version);
                            groups.push(vec![Op::Set { path, value, version }]);
                        }
                    }
                }
            }
            let mut all_closed = true;
            for result in settle_groups(&*self.store, &self.env.clock, &groups, &[]).await {
                all_closed &= matches!(result?, Settled::Applied(_));
            }
            if all_closed {
                waiting.sort();
                return Ok(waiting);
            }
            self.store.sync().await?;
        }
        Err(contended(&paths::chunks_folder(paths::OWNERSHIP, id)))
    }

    /// All tombstones, by id.
    pub async fn tombstones(&self) -> Result<Vec<Tombstone>> {
        let mut tombstones = Vec::new();
        for shard in self.store.children(paths::TOMBSTONES).await? {
            let folder = format!("{}/{shard}", paths::TOMBSTONES);
            for (name, node) in self.store.read_children(&folder).await? {
                tombstones.push(Tombstone::decode(&format!("{folder}/{name}"), &node.value)?);
            }
        }
        Ok(tombstones)
    }

    /// Whether `id` was deleted (or is being deleted): the only reason to delete its files.
    pub async fn is_tombstoned(&self, id: TopicId) -> Result<bool> {
        Ok(self.store.get(&paths::tombstone(id)).await?.is_some())
    }

    /// Removes a tombstone, a day after its files are gone. `Invalid` while the deletion is not over.
    pub async fn remove_tombstone(&self, id: TopicId) -> Result<(), TopicError> {
        if self.topic(id).await?.is_some() {
            return Err(TopicError::Invalid(format!("{id} still exists")));
        }
        let path = paths::tombstone(id);
        if let Some(node) = self.store.get(&path).await? {
            self.settle(&[Op::Delete { path, version: node.version }]).await?;
        }
        Ok(())
    }
}
