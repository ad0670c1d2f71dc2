//! DescribeLogDirs (key 35), versions 1 to 5: bytes of each partition.
//!
//! Different from Kafka: there is one «directory», the store, because files are shared by partitions;
//! a partition's size is that of its live record batches, and the store's total and free bytes (4) are
//! not known (-1). Partitions that do not exist are left out, as in Kafka.

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_protocol::messages::describe_log_dirs::{
    DescribeLogDirsPartition, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use talos_protocol::messages::{DescribeLogDirsRequest, DescribeLogDirsResponse};

use crate::broker::Shared;
use crate::connection::Context;
use crate::handlers::text;

pub(crate) async fn handle(
    shared: &Arc<Shared>,
    _context: &Context,
    request: DescribeLogDirsRequest,
) -> DescribeLogDirsResponse {
    let asked: Option<BTreeMap<_, _>> = request
        .topics
        .map(|topics| topics.into_iter().map(|topic| (topic.topic, topic.partitions)).collect());
    let wanted = |name: &str, partition: i32| match &asked {
        None => true,
        Some(asked) => asked.get(name).is_some_and(|list| list.contains(&partition)),
    };
    let image = shared.topics.image();
    let mut topics: BTreeMap<String, Vec<DescribeLogDirsPartition>> = BTreeMap::new();
    for log in shared.partitions.open() {
        let Some(cached) = image.by_id(log.id().topic) else { continue };
        let (name, partition_index) = (&cached.topic.name, log.id().partition);
        if wanted(name, partition_index) {
            let partition = DescribeLogDirsPartition {
                partition_index,
                partition_size: i64::try_from(log.size_bytes()).unwrap_or(i64::MAX),
                ..Default::default()
            };
            topics.entry(name.clone()).or_default().push(partition);
        }
    }
    let topic = |(name, partitions): (String, Vec<DescribeLogDirsPartition>)| {
        DescribeLogDirsTopic { name: text(&name), partitions }
    };
    let store = DescribeLogDirsResult {
        log_dir: "store".into(),
        topics: topics.into_iter().map(topic).collect(),
        ..Default::default()
    };
    DescribeLogDirsResponse { results: vec![store], ..Default::default() }
}
