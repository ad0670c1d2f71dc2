//! `talos dump DIR --frames FILE`: each frame of one journal, or each batch of one sorted journal or
//! segment, as it stands in the file. Printed as it is read, so that a large file needs no memory.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use talos_common::TopicId;
use talos_log::dump::{FrameRow, Frames};
use talos_storage::{FilePath, Storage};

use super::metadata::Opened;
use super::{DumpArgs, read_cluster, show, topic_name};
use crate::commands::time;
use crate::output;

/// Lists `file`, named as the table of files names it, or by its path.
pub(super) async fn run(
    args: &DumpArgs,
    file: &str,
    storage: &Arc<dyn Storage>,
    metadata: Opened,
) -> anyhow::Result<()> {
    let shown = args.dir.display();
    let inner = std::path::Path::new(file).strip_prefix(&args.dir).ok().and_then(|it| it.to_str());
    let Ok(path) = inner.unwrap_or(file).parse::<FilePath>() else {
        let text = format!(
            "--frames {file:?} is not the name of a journal, sorted journal or segment: \
             `talos dump {shown}` lists them"
        );
        return Err(output::usage(text));
    };
    let (mut names, mut known) = (BTreeMap::new(), None);
    if let Opened::Open(metadata) = metadata {
        // Only for names: a dump of the whole folder says what is wrong with them.
        names = metadata.facts().await.map(|facts| facts.names).unwrap_or_default();
        known = metadata.cluster().await;
    }
    let cluster = read_cluster(storage).await?.ok().flatten().or(known).map(|id| id.0);
    let Some(mut frames) = Frames::open(storage, &path, cluster.unwrap_or_default()).await? else {
        anyhow::bail!(
            "there is no file {path} in {shown}: `talos dump {shown}` lists what there is"
        )
    };
    if !args.json {
        output::line(format!("{:>12} {:>10}  {:<10} WHAT", "POSITION", "BYTES", "KIND"))?;
    }
    while let Some(row) = frames.next().await? {
        if args.json { json_line(&row, &names)? } else { text_line(&row, &names)? }
    }
    Ok(())
}

fn text_line(row: &FrameRow, names: &BTreeMap<TopicId, String>) -> anyhow::Result<()> {
    let mut parts = Vec::new();
    if let Some(id) = row.partition {
        parts.push(format!("{}-{}", topic_name(names, id.topic), id.partition));
    }
    parts.extend(row.leader_epoch.map(|epoch| format!("epoch {epoch}")));
    parts.extend(row.offsets.map(|(first, last)| format!("offsets {first} to {last}")));
    parts.extend(row.records.map(|records| format!("{records} records")));
    // -1 means none.
    let times = row.max_timestamp_ms.filter(|ms| *ms >= 0);
    parts.extend(times.map(|ms| format!("newest {}", time::format(ms))));
    parts.extend(row.append_time_ms.map(|ms| format!("appended {}", time::format(ms))));
    parts.extend((!row.detail.is_empty()).then(|| row.detail.clone()));
    let FrameRow { position, bytes, kind, .. } = row;
    output::line(format!("{position:>12} {bytes:>10}  {kind:<10} {}", parts.join(", ")))
}

fn json_line(row: &FrameRow, names: &BTreeMap<TopicId, String>) -> anyhow::Result<()> {
    show::line(json!({
        "type": "frame", "position": row.position, "bytes": row.bytes, "kind": row.kind,
        "topic": row.partition.map(|id| topic_name(names, id.topic)),
        "topic_id": row.partition.map(|id| id.topic.to_string()),
        "partition": row.partition.map(|id| id.partition),
        "leader_epoch": row.leader_epoch.map(|epoch| epoch.0),
        "base_offset": row.offsets.map(|(first, _)| first),
        "last_offset": row.offsets.map(|(_, last)| last),
        "records": row.records, "max_timestamp_ms": row.max_timestamp_ms,
        "append_time_ms": row.append_time_ms, "detail": row.detail,
    }))
}
