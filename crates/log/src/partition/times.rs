//! Looking records up by time: exact, also inside compressed batches.
//!
//! Where to look is decided under the partition's lock from largest timestamps that are kept for groups
//! of batches, so it costs little however much is not sorted yet. Files are read and batches looked into
//! without it.

use std::sync::Arc;

use bytes::Bytes;
use talos_common::LeaderEpoch;
use talos_protocol::batch::{BatchError, Batches};
use talos_protocol::records::{Limits, decode_records};

use super::PartitionLog;
use super::read::ReadError;
use crate::extent::Extent;
use crate::run::Run;

/// A record found by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimestampOffset {
    /// The record's timestamp, in milliseconds since the Unix epoch.
    pub timestamp: i64,
    /// Its offset.
    pub offset: i64,
    /// The leader epoch that accepted it.
    pub epoch: LeaderEpoch,
}

/// Which record is looked for.
#[derive(Clone, Copy, Debug)]
struct Wanted {
    /// At or above this offset.
    from: i64,
    /// The timestamp, or the least one.
    time: i64,
    exactly: bool,
}

impl Wanted {
    fn is(&self, at: &TimestampOffset) -> bool {
        let fits = at.timestamp == self.time || (!self.exactly && at.timestamp > self.time);
        fits && at.offset >= self.from
    }
}

impl PartitionLog {
    /// The first record at or after `timestamp`, by record timestamps; `None` when there is none
    /// below the high watermark.
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn offset_for_timestamp(
        &self,
        timestamp: i64,
    ) -> Result<Option<TimestampOffset>, ReadError> {
        let from = self.offsets().log_start;
        // The batch's largest time may belong to a record below the log start: then it goes on.
        self.find(Wanted { from, time: timestamp, exactly: false }).await
    }

    /// The record with the largest timestamp, the first of them if there are several (KIP-734).
    ///
    /// # Errors
    /// See [`ReadError`].
    pub async fn max_timestamp(&self) -> Result<Option<TimestampOffset>, ReadError> {
        let Some((from, largest)) = self.largest_time().await? else { return Ok(None) };
        // A larger one belongs to a record below the log start.
        self.find(Wanted { from, time: largest, exactly: true }).await
    }

    /// The log start and the largest timestamp of the records from there on. The largest of a run or a
    /// batch that reaches below the log start may be that of a deleted record.
    async fn largest_time(&self) -> Result<Option<(i64, i64)>, ReadError> {
        loop {
            let (from, whole, cut, moves) = {
                let state = self.state();
                let from = state.log_start;
                let runs = state.runs.iter().filter(|run| run.base_offset >= from);
                let in_runs = runs.map(|run| run.max_timestamp).max();
                let whole = in_runs.max(state.extents.largest_time(from));
                let run = state.runs.front().filter(|run| run.base_offset < from);
                let raw = state.extents.first().filter(|extent| extent.base_offset < from);
                let cut = run.cloned().map(Stretch::Run);
                (from, whole, cut.or(raw.cloned().map(Stretch::Raw)), state.moves)
            };
            let live = match cut {
                Some(stretch) => self.largest_from(stretch, from).await,
                None => Ok(None),
            };
            match live {
                Ok(live) => return Ok(live.max(whole).map(|largest| (from, largest))),
                Err(ReadError::Corrupt { .. }) if self.state().moves != moves => {}
                Err(error) => return Err(self.met(error)),
            }
        }
    }

    /// The largest timestamp in a stretch, of the records at or above `from`.
    async fn largest_from(&self, stretch: Stretch, from: i64) -> Result<Option<i64>, ReadError> {
        let run = match stretch {
            Stretch::Raw(extent) => {
                let batches = self.read_extents(&[extent]).await?;
                let bytes = batches.into_iter().next().unwrap_or_default();
                return self.lane.limits().cpu.run(move || largest_in(&bytes, from)).await;
            }
            Stretch::Run(run) => run,
        };
        let entry = run.entry(&self.storage).await?;
        let above = entry.blocks.iter().filter(|block| block.base_offset >= from);
        let end = above.clone().map(|block| block.base_offset).min().unwrap_or(run.end_offset);
        let mut largest = above.map(|block| block.max_timestamp).max();
        // The block in which the log begins.
        let mut at = from;
        while at < end {
            let bytes = run.read(&self.storage, at, FIND_BYTES).await?;
            let Some(last) = last_offset(&bytes)? else { break };
            let in_bytes = self.lane.limits().cpu.run(move || largest_in(&bytes, from)).await?;
            largest = largest.max(in_bytes);
            at = last + 1;
        }
        Ok(largest)
    }

    /// The first record that is `wanted`, looking only into stretches that are late enough. A long walk
    /// holds no lock from one stretch to the next.
    async fn find(&self, wanted: Wanted) -> Result<Option<TimestampOffset>, ReadError> {
        let mut from = wanted.from;
        while let Some((stretch, moves)) = self.next_stretch(from, wanted.time)? {
            let (bytes, end) = match self.read_stretch(stretch, from, wanted.time).await {
                Ok(read) => read,
                // As in `read`: look again where the records are now.
                Err(ReadError::Corrupt { .. }) if self.state().moves != moves => continue,
                Err(error) => return Err(self.met(error)),
            };
            let cpu = &self.lane.limits().cpu;
            if let Some(found) = cpu.run(move || find_in(&bytes, wanted)).await? {
                return Ok(Some(found));
            }
            from = end.max(from + 1);
        }
        Ok(None)
    }

    /// Some batches of the stretch at or after `from`, and the offset behind what they cover.
    async fn read_stretch(
        &self,
        stretch: Stretch,
        from: i64,
        time: i64,
    ) -> Result<(Bytes, i64), ReadError> {
        let run = match stretch {
            Stretch::Raw(extent) => {
                let end = extent.last_offset() + 1;
                let batches = self.read_extents(&[extent]).await?;
                return Ok((batches.into_iter().next().unwrap_or_default(), end));
            }
            Stretch::Run(run) => run,
        };
        let entry = run.entry(&self.storage).await?;
        // Blocks have their own largest timestamps: go to the first that is late enough.
        let first = entry.blocks.partition_point(|b| b.base_offset <= from).saturating_sub(1);
        let mut blocks = entry.blocks.iter().skip(first);
        let Some(block) = blocks.find(|block| block.max_timestamp >= time) else {
            return Ok((Bytes::new(), run.end_offset));
        };
        let at = block.base_offset.max(from);
        let bytes = run.read(&self.storage, at, FIND_BYTES).await?;
        let last = last_offset(&bytes)?;
        Ok((bytes, last.map_or(run.end_offset, |last| last + 1)))
    }

    /// The first run or raw batch that reaches `from` and whose largest timestamp is at least `time`.
    fn next_stretch(&self, from: i64, time: i64) -> Result<Option<(Stretch, u64)>, ReadError> {
        let state = self.state();
        if let Some(why) = &state.ended {
            return Err(ReadError::Ended(why.clone()));
        }
        let first = state.runs.partition_point(|run| run.end_offset <= from);
        if let Some(run) = state.runs.range(first..).find(|run| run.max_timestamp >= time) {
            return Ok(Some((Stretch::Run(Arc::clone(run)), state.moves)));
        }
        let extent = state.extents.first_at(from, time);
        Ok(extent.cloned().map(|extent| (Stretch::Raw(extent), state.moves)))
    }
}

enum Stretch {
    Run(Arc<Run>),
    Raw(Extent),
}

/// Bytes of a run that are looked through at once for a timestamp.
const FIND_BYTES: usize = 256 << 10;

/// The offset of the last record in whole batches.
fn last_offset(bytes: &Bytes) -> Result<Option<i64>, ReadError> {
    let mut last = None;
    for batch in Batches::new(bytes.clone()) {
        last = Some(batch.map_err(unreadable)?.header.last_offset());
    }
    Ok(last)
}

/// The largest timestamp of the records at or above `from` in whole, checked batches.
fn largest_in(bytes: &Bytes, from: i64) -> Result<Option<i64>, ReadError> {
    let limits = Limits { max_decompressed_bytes: READ_LIMIT_BYTES };
    let mut largest = None;
    for batch in Batches::new(bytes.clone()) {
        let batch = batch.map_err(unreadable)?;
        if batch.header.base_offset >= from {
            largest = largest.max(Some(batch.header.max_timestamp));
            continue;
        }
        for record in decode_records(&batch, &limits).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            if batch.offset_of(&record) >= from {
                largest = largest.max(Some(batch.timestamp_of(&record)));
            }
        }
    }
    Ok(largest)
}

/// The first record in whole, checked batches that is `wanted`.
fn find_in(bytes: &Bytes, wanted: Wanted) -> Result<Option<TimestampOffset>, ReadError> {
    let limits = Limits { max_decompressed_bytes: READ_LIMIT_BYTES };
    for batch in Batches::new(bytes.clone()) {
        let batch = batch.map_err(unreadable)?;
        let epoch = LeaderEpoch(batch.header.partition_leader_epoch);
        for record in decode_records(&batch, &limits).map_err(unreadable)? {
            let record = record.map_err(unreadable)?;
            let (timestamp, offset) = (batch.timestamp_of(&record), batch.offset_of(&record));
            let at = TimestampOffset { timestamp, offset, epoch };
            if wanted.is(&at) {
                return Ok(Some(at));
            }
        }
    }
    Ok(None)
}

/// The checksums held, so the producer sent it so.
fn unreadable(error: BatchError) -> ReadError {
    ReadError::Unavailable(format!("a batch can not be looked into: {error}"))
}

/// Limit of a batch's records after decompression when the broker looks inside for a timestamp.
const READ_LIMIT_BYTES: usize = 256 << 20;
