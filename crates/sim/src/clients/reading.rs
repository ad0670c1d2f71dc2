//! Reading partitions: fetches, and the ends that ListOffsets tells.

use std::sync::Arc;

use bytes::Bytes;
use talos_common::TopicPartitionId;
use talos_protocol::batch::Batches;
use talos_protocol::messages::fetch::{FetchPartition, FetchTopic, PartitionData};
use talos_protocol::messages::list_offsets::{ListOffsetsPartition, ListOffsetsTopic};
use talos_protocol::messages::{FetchRequest, ListOffsetsRequest};
use talos_protocol::records::{Limits, decode_records};
use talos_protocol::{Str, Uuid};

use super::{Client, Topic};
use crate::history::{Data, End, Part, What};
use crate::wire::Lost;

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
        let response = self.wire.call(version, &request).await?;
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
                match parse(data) {
                    Ok(data) => Ok(data),
                    Err(error) => {
                        self.recorder.push(What::Broken(format!("fetch {tp} at {from}: {error}")));
                        return Err(Lost);
                    }
                }
            };
            parts.push(Part { tp, from, data });
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
        let asked =
            ListOffsetsPartition { partition_index: tp.partition, timestamp, ..Default::default() };
        let topics =
            vec![ListOffsetsTopic { name: Str::from(topic.name), partitions: vec![asked] }];
        let request = ListOffsetsRequest { replica_id: -1, topics, ..Default::default() };
        let begun = self.recorder.moment();
        let response = self.wire.call(7, &request).await?;
        let found = response.topics.first().and_then(|topic| topic.partitions.first());
        let Some(found) = found else { return Err(Lost) };
        if found.error_code != 0 {
            return Ok(Err(found.error_code));
        }
        // By name: only a topic that is never deleted is surely the one meant.
        if topic.name != super::CHURN {
            let (client, offset) = (self.id, found.offset);
            self.recorder.push(What::Listed { client, begun, tp, end, offset });
        }
        Ok(Ok(found.offset))
    }
}

/// The records of an answer, all checksums verified.
fn parse(data: &PartitionData) -> Result<Data, String> {
    let bytes = data.records.as_ref().map(|records| records.to_bytes()).unwrap_or_default();
    let mut records = Vec::new();
    for batch in Batches::new(bytes) {
        let batch = batch.map_err(|error| error.to_string())?;
        batch.verify_crc().map_err(|error| error.to_string())?;
        for record in decode_records(&batch, &Limits::default()).map_err(|e| e.to_string())? {
            let record = record.map_err(|error| error.to_string())?;
            records.push((batch.offset_of(&record), value_text(record.value)));
        }
    }
    Ok(Data { log_start: data.log_start_offset, high_watermark: data.high_watermark, records })
}

fn value_text(value: Option<Bytes>) -> Arc<str> {
    let value = value.unwrap_or_default();
    // What is not text was never sent, and shows as that.
    String::from_utf8_lossy(&value).into()
}
