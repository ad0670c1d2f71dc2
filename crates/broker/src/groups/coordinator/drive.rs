//! What a coordinator does by itself: reads its log, appends what its shard queues, and lets time pass.

use std::time::Duration;

use talos_common::Tasks;

use super::{End, Inner, Phase, Stage};
use crate::groups::api::Code;
use crate::groups::fold::Fold;
use crate::groups::offset_log::{AppendError, GroupRecord, OffsetLog};
use crate::groups::records::Record;
use crate::groups::shard::Shard;

const RETRY_PAUSE: Duration = Duration::from_millis(100);

impl Inner {
    /// Reads the whole log; about how many bytes of it a snapshot would make needless, or `None` when
    /// the coordinator ended.
    pub(super) async fn load(&self, log: &impl OffsetLog) -> Option<u64> {
        let partition = self.partition;
        let (mut from, end) = (log.start_offset(), log.end_offset());
        let (mut fold, mut bytes, mut unknown) = (Fold::default(), 0u64, 0u64);
        while from < end {
            let chunk = match log.read(from).await {
                Ok(chunk) if chunk.next_offset > from => chunk,
                Ok(_) => {
                    tracing::error!(partition, offset = from, "offsets log does not read on");
                    self.end(End::Unreadable);
                    return None;
                }
                Err(AppendError::Unavailable | AppendError::Uncertain) => {
                    self.clock.sleep(RETRY_PAUSE).await;
                    continue;
                }
                Err(AppendError::NotLeader) => {
                    self.end(End::Certain);
                    return None;
                }
                Err(error @ AppendError::Corrupt(_)) => {
                    tracing::error!(partition, offset = from, %error, "cannot load groups");
                    self.end(End::Unreadable);
                    return None;
                }
            };
            from = chunk.next_offset;
            for record in chunk.records {
                let offset = record.offset;
                let (key, value) = (record.key.unwrap_or_default(), record.value);
                bytes += (key.len() + value.as_ref().map_or(0, Vec::len)) as u64;
                match Record::decode(&key, value.as_deref()) {
                    Ok(Record::Unknown { .. }) => unknown += 1,
                    Ok(record) => fold.apply(record),
                    Err(error) => {
                        tracing::error!(partition, offset, %error, "cannot load groups");
                        self.end(End::Unreadable);
                        return None;
                    }
                }
            }
        }
        if unknown > 0 {
            tracing::warn!(partition, records = unknown, "records of unknown kinds skipped");
        }
        let needless_bytes = bytes.saturating_sub(fold.bytes() as u64);
        let shard = Shard::new(self.config.clone(), fold, self.now());
        let mut table = self.lock();
        if !matches!(table.phase, Phase::Loading) {
            return None;
        }
        table.phase = Phase::Serving(Box::new(shard));
        drop(table);
        self.stage.send_replace(Stage::Serving);
        Some(needless_bytes)
    }

    pub(super) async fn run_timers(&self, tasks: &Tasks) {
        loop {
            let Ok(at_ms) = self.step(|shard, now| {
                shard.tick(now);
                shard.next_deadline()
            }) else {
                return;
            };
            let deadline = self.origin.checked_add(Duration::from_millis(at_ms));
            let due = async {
                match deadline {
                    Some(deadline) => self.clock.sleep_until(deadline).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = tasks.stopping() => return,
                () = self.timers.notified() => {}
                () = due => {}
            }
        }
    }

    /// Appends what is to be appended, until the coordinator ends or, when all tasks are to stop,
    /// nothing is left.
    pub(super) async fn run_appends(
        &self,
        tasks: &Tasks,
        log: &impl OffsetLog,
        mut needless_bytes: u64,
    ) {
        // Where the running snapshot begins, and what was appended since that does not repeat it.
        let mut snapshot: Option<(i64, u64)> = None;
        loop {
            if needless_bytes >= self.config.snapshot_every_bytes && !tasks.is_stopping() {
                let _ = self.step(|shard, _| shard.start_snapshot());
            }
            let Ok(batch) = self.step(|shard, now| shard.take_batch(now)) else { return };
            let Some(mut batch) = batch else {
                tokio::select! {
                    biased;
                    () = self.work.notified() => continue,
                    () = tasks.stopping() => return,
                }
            };
            let appended = self.append(log, std::mem::take(&mut batch.records)).await;
            let (starts, ends) = (batch.starts_snapshot, batch.ends_snapshot);
            let new_bytes = batch.bytes - batch.snapshot_bytes;
            let outcome = match &appended {
                Ok(_) => Ok(()),
                Err(AppendError::Unavailable) => Err(Code::CoordinatorNotAvailable),
                Err(AppendError::NotLeader | AppendError::Uncertain | AppendError::Corrupt(_)) => {
                    return;
                }
            };
            if self.step(|shard, now| shard.batch_done(batch, outcome, now)).is_err() {
                return;
            }
            let Ok(base) = appended else {
                self.clock.sleep(RETRY_PAUSE).await;
                continue;
            };
            needless_bytes += new_bytes;
            if starts {
                snapshot = base.map(|base| (base, 0));
            }
            if let Some((_, after)) = &mut snapshot {
                *after += new_bytes;
            }
            if ends {
                needless_bytes = snapshot.map_or(0, |(_, after)| after);
                if let Some((offset, _)) = snapshot.take() {
                    self.trim(log, offset).await;
                }
            }
        }
    }

    /// The offset of the first record; `None` when there was none. An error that ends the
    /// coordinator has ended it.
    async fn append(
        &self,
        log: &impl OffsetLog,
        records: Vec<(Vec<u8>, Option<Vec<u8>>)>,
    ) -> Result<Option<i64>, AppendError> {
        if records.is_empty() {
            return Ok(None);
        }
        let records = records.into_iter().map(|(key, value)| GroupRecord { key, value }).collect();
        let (partition, leader_epoch) = (self.partition, self.leader_epoch.0);
        let result = log.append(records).await;
        match &result {
            Ok(_) => {}
            Err(AppendError::Unavailable) => tracing::warn!(partition, "offsets log unavailable"),
            Err(AppendError::NotLeader) => {
                tracing::info!(partition, leader_epoch, "group coordinator fenced");
                self.end(End::Certain);
            }
            Err(error @ (AppendError::Uncertain | AppendError::Corrupt(_))) => {
                tracing::warn!(partition, leader_epoch, %error, "group coordinator gives up");
                self.end(End::Unknown);
            }
        }
        result.map(Some)
    }

    async fn trim(&self, log: &impl OffsetLog, offset: i64) {
        if let Err(error) = log.trim(offset).await {
            let partition = self.partition;
            tracing::warn!(partition, offset, %error, "offsets log not trimmed");
        }
    }
}
