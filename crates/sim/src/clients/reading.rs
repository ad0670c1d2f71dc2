//! Reading partitions: fetches, and the ends that ListOffsets tells.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use talos_common::TopicPartitionId;
use talos_protocol::batch::Batches;
use talos_protocol::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use talos_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use talos_protocol::messages::offset_for_leader_epoch::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use talos_protocol::messages::{FetchRequest, ListOffsetsRequest, OffsetForLeaderEpochRequest};
use talos_protocol::records::{Limits, decode_records};
use talos_protocol::{Str, Uuid};

use super::{Client, Topic};
use crate::history::{Data, End, Part, Recorder, What};
use crate::wire::Lost;

/// Longer than an answer takes that needs not wait.
const WAITED: Duration = Duration::from_millis(60);

/// How a fetch asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) max_wait_ms: i32,
    pub(crate) min_bytes: i32,
    pub(crate) max_bytes: i32,
}

impl Client {
    /// Fetches from these offsets of one topic; by id or by name as chance will have it.
    pub(crate) async fn fetch(
        &mut self,
        topic: &Topic,
        positions: &[(TopicPartitionId, i64)],
        ask: Ask,
        by_id: bool,
    ) -> Result<Vec<Part>, Lost> {
        let version = if by_id { 17 } else { 12 };
        let asked = |(tp, from): &(TopicPartitionId, i64)| FetchPartition {
            partition: tp.partition,
            fetch_offset: *from,
            partition_max_bytes: ask.max_bytes,
            ..Default::default()
        };
        let topics = vec![FetchTopic {
            topic: Str::from(topic.name),
            topic_id: Uuid(topic.id.0),
            partitions: positions.iter().map(asked).collect(),
        }];
        let request = FetchRequest {
            max_wait_ms: ask.max_wait_ms,
            min_bytes: ask.min_bytes,
            max_bytes: ask.max_bytes,
            topics,
            ..Default::default()
        };
        let begun = self.recorder.moment();
        let asked_at = self.clock.now();
        let response = self.wire.call(version, &request).await?;
        let waited = self.clock.now().saturating_duration_since(asked_at);
        let mut parts = Vec::new();
        for (data, (tp, from)) in
            response.responses.iter().flat_map(|t| &t.partitions).zip(positions)
        {
            if data.partition_index != tp.partition {
                let detail = format!("fetch: partition {} for {tp}", data.partition_index);
                self.recorder.push(What::Broken(detail));
                return Err(Lost);
            }
            let (tp, from) = (*tp, *from);
            let data = if data.error_code != 0 {
                Err(data.error_code)
            } else {
                match parse(data, &self.recorder) {
                    Ok(data) => Ok(data),
                    Err(error) => {
                        self.recorder.push(What::Broken(format!("fetch {tp} at {from}: {error}")));
                        return Err(Lost);
                    }
                }
            };
            parts.push(Part { tp, from, data });
        }
        let has_records = |part: &Part| matches!(&part.data, Ok(data) if !data.records.is_empty());
        if waited > WAITED && parts.iter().any(has_records) {
            self.recorder.push(What::Waited);
        }
        let parts_too = parts.clone();
        self.recorder.push(What::Fetched { client: self.id, begun, parts: parts_too });
        Ok(parts)
    }

    /// Where a partition begins or ends.
    pub(crate) async fn list(
        &mut self,
        topic: &Topic,
        tp: TopicPartitionId,
        end: End,
    ) -> Result<Result<i64, i16>, Lost> {
        let timestamp = match end {
            End::First => -2,
            End::Last => -1,
        };
        let begun = self.recorder.moment();
        let found = match self.list_at(topic, tp, timestamp).await? {
            Ok(found) => found.0,
            Err(code) => return Ok(Err(code)),
        };
        // By name: only a topic that is never deleted is surely the one meant.
        if topic.name != super::CHURN {
            let (client, offset) = (self.id, found);
            self.recorder.push(What::Listed { client, begun, tp, end, offset });
        }
        Ok(Ok(found))
    }

    /// The first record at or after a time.
    pub(crate) async fn find_by_time(
        &mut self,
        topic: &Topic,
        tp: TopicPartitionId,
        time_ms: i64,
    ) -> Result<(), Lost> {
        let begun = self.recorder.moment();
        if let Ok((offset, time)) = self.list_at(topic, tp, time_ms).await? {
            let found = (offset >= 0).then_some((offset, time));
            self.recorder.push(What::Timed { begun, tp, time_ms, found });
        }
        Ok(())
    }

    /// Where a leader epoch ends.
    pub(crate) async fn end_of_epoch(
        &mut self,
        topic: &Topic,
        tp: TopicPartitionId,
        asked: i32,
    ) -> Result<(), Lost> {
        let part = OffsetForLeaderPartition {
            partition: tp.partition,
            current_leader_epoch: -1,
            leader_epoch: asked,
        };
        let topics =
            vec![OffsetForLeaderTopic { topic: Str::from(topic.name), partitions: vec![part] }];
        let request = OffsetForLeaderEpochRequest { replica_id: -2, topics };
        let begun = self.recorder.moment();
        let response = self.wire.call(4, &request).await?;
        let found = response.topics.first().and_then(|topic| topic.partitions.first());
        if let Some(found) = found
            && found.error_code == 0
        {
            let (epoch, end) = (found.leader_epoch, found.end_offset);
            self.recorder.push(What::EpochEnd { begun, tp, asked, epoch, end });
        }
        Ok(())
    }

    /// Offset and time of what ListOffsets finds, or the error code.
    async fn list_at(
        &mut self,
        topic: &Topic,
        tp: TopicPartitionId,
        timestamp: i64,
    ) -> Result<Result<(i64, i64), i16>, Lost> {
        let asked =
            ListOffsetsPartition { partition_index: tp.partition, timestamp, ..Default::default() };
        let topics =
            vec![ListOffsetsTopic { name: Str::from(topic.name), partitions: vec![asked] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        let response = self.wire.call(7, &request).await?;
        let found = response.topics.first().and_then(|topic| topic.partitions.first());
        let Some(found) = found else { return Err(Lost) };
        if found.error_code != 0 {
            return Ok(Err(found.error_code));
        }
        Ok(Ok((found.offset, found.timestamp)))
    }
}

/// The records of an answer, all checksums verified.
fn parse(data: &PartitionData, recorder: &Recorder) -> Result<Data, String> {
    let bytes = data.records.as_ref().map(|records| records.to_bytes()).unwrap_or_default();
    let mut records = Vec::new();
    for batch in Batches::new(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        let base = batch.header.base_offset;
        let decode = || {
            batch.verify_crc().map_err(|error| error.to_string())?;
            let mut values = Vec::new();
            for record in decode_records(&batch, &Limits::default()).map_err(|e| e.to_string())? {
                let record = record.map_err(|error| error.to_string())?;
                values.push((batch.offset_of(&record) - base, value_text(record.value)));
            }
            Ok(values.into())
        };
        let values = recorder.decoded(&batch.bytes, decode)?;
        records.extend(values.iter().map(|(delta, value)| (base + delta, Arc::clone(value))));
    }
    Ok(Data { log_start: data.log_start_offset, high_watermark: data.high_watermark, records })
}

fn value_text(value: Option<Bytes>) -> Arc<str> {
    let value = value.unwrap_or_default();
    // What is not text was never sent, and shows as that.
    String::from_utf8_lossy(&value).into()
}
