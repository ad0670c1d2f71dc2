//! What a dump prints: tables and a list of damage for people, one JSON object per line for programs.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};
use talos_common::TopicId;
use talos_log::dump::{
    Content, Damage, FileReport, JournalEnd, JournalReport, Loss, RunReport, RunsReport,
};
use talos_log::format::LanePosition;
use talos_meta::{ClusterId, Leader, Ownership};
use talos_storage::FilePath;

use super::metadata::PartitionRow;
use super::topic_name;
use crate::output;

/// Partitions that a table lists whether or not they hold anything.
const MOST_ROWS: usize = 200;

/// Where a row of the table of partitions stands: by topic, then by number.
fn order(row: &[String]) -> (Option<&String>, Option<i32>) {
    (row.first(), row.get(1).and_then(|partition| partition.parse().ok()))
}

/// Prints as it goes (JSON), or collects rows for the tables.
pub(super) struct Show {
    json: bool,
    files: Vec<Vec<String>>,
    /// For the tables only.
    reports: Vec<FileReport>,
    partitions: Vec<Vec<String>>,
    /// Of more than [`MOST_ROWS`] partitions, those that hold nothing are only counted.
    plain: Vec<Vec<String>>,
    damage: Vec<Damage>,
    omitted: u64,
}

impl Show {
    pub(super) fn new(json: bool) -> Self {
        let (files, reports, damage) = (Vec::new(), Vec::new(), Vec::new());
        let (partitions, plain) = (Vec::new(), Vec::new());
        Self { json, files, reports, partitions, plain, damage, omitted: 0 }
    }

    pub(super) fn begin(
        &self,
        dir: &Path,
        cluster: Option<ClusterId>,
        files: u64,
        bytes: u64,
    ) -> anyhow::Result<()> {
        let cluster = cluster.map(|id| id.to_string());
        if self.json {
            let dir = dir.display().to_string();
            return line(json!({
                "type": "store", "dir": dir, "cluster": cluster, "files": files, "bytes": bytes,
            }));
        }
        let cluster = cluster.unwrap_or_else(|| "unknown".into());
        let size = output::bytes(bytes);
        output::line(format!("{}: cluster {cluster}, {files} files, {size}\n", dir.display()))
    }

    /// Something that was not checked.
    pub(super) fn note(&self, text: &str) -> anyhow::Result<()> {
        if self.json {
            return line(json!({ "type": "note", "text": text }));
        }
        output::note(format!("note: {text}"));
        Ok(())
    }

    /// Damage that belongs to no file or partition that is shown.
    pub(super) fn damage(&mut self, damage: Damage) -> anyhow::Result<()> {
        if self.json {
            let mut value = damage_json(&damage);
            value["type"] = "damage".into();
            line(value)?;
        }
        self.damage.push(damage);
        Ok(())
    }

    pub(super) fn file(&mut self, mut file: FileReport) -> anyhow::Result<()> {
        if self.json {
            line(file_json(&file))?;
        } else {
            self.files.push(file_row(&file));
        }
        self.omitted += file.omitted;
        self.damage.append(&mut file.damage);
        if !self.json {
            // Every segment names all that are older.
            if let Some(Content::Runs(runs)) = &mut file.content {
                runs.manifest.clear();
            }
            self.reports.push(file);
        }
        Ok(())
    }

    pub(super) fn partition(&mut self, mut row: PartitionRow) -> anyhow::Result<()> {
        if self.json {
            line(partition_json(&row))?;
        } else {
            let segments = row.root.as_ref().map_or(0, |report| report.segments);
            let plain = row.damage.is_empty() && !row.deleting && segments == 0;
            let rows = if plain { &mut self.plain } else { &mut self.partitions };
            rows.push(partition_row(&row));
        }
        self.damage.append(&mut row.damage);
        Ok(())
    }

    /// Prints what was collected; an error if anything is damaged.
    pub(super) fn finish(mut self, names: &BTreeMap<TopicId, String>) -> anyhow::Result<()> {
        // A file that a file report and a root complain about alike is told once.
        let mut seen = BTreeSet::new();
        self.damage.retain(|damage| seen.insert((damage.file.clone(), damage.position)));
        let files: BTreeSet<&str> = self.damage.iter().map(|it| it.file.as_str()).collect();
        let (places, files) = (self.damage.len() as u64 + self.omitted, files.len());
        if self.json {
            line(json!({ "type": "summary", "damaged_places": places, "damaged_files": files }))?;
        } else {
            self.tables(names)?;
        }
        if self.damage.is_empty() {
            return Ok(());
        }
        let first = self.damage.first().map(|first| {
            format!("the first in {} at position {}: {}", first.file, first.position, first.what)
        });
        anyhow::bail!(
            "{places} damaged places in {files} files; {}\n  next: {}",
            first.unwrap_or_default(),
            self.damage.first().map(advice).unwrap_or_default()
        )
    }

    fn tables(&mut self, names: &BTreeMap<TopicId, String>) -> anyhow::Result<()> {
        let header = [
            "file",
            "bytes",
            "flushes",
            "batches",
            "records",
            "partitions",
            "durable to",
            "end",
            "check",
        ];
        output::table(&header, self.files.iter().cloned())?;
        self.stretches(names)?;
        let mut left_out = self.plain.len();
        if left_out + self.partitions.len() <= MOST_ROWS {
            self.partitions.append(&mut self.plain);
            self.partitions.sort_by(|one, other| order(one).cmp(&order(other)));
            left_out = 0;
        }
        if !self.partitions.is_empty() {
            output::line("")?;
            let header = [
                "topic",
                "partition",
                "leader",
                "epoch",
                "inherits",
                "log start",
                "published to",
                "segments",
                "bytes",
                "check",
            ];
            output::table(&header, self.partitions.iter().cloned())?;
        }
        if left_out > 0 {
            output::line(format!(
                "\n{left_out} sound partitions without segments are not listed; --json lists them"
            ))?;
        }
        let unreadable: Vec<String> = self.reports.iter().flat_map(unreadable_lines).collect();
        if !unreadable.is_empty() {
            output::line("\nNo damage, but not readable (nobody was told about it):")?;
            unreadable.iter().try_for_each(output::line)?;
        }
        if self.damage.is_empty() {
            return output::line("\nNo damage.");
        }
        output::line("\nDamage:")?;
        for damage in &self.damage {
            let end = damage.end.map(|end| format!(" to {end}")).unwrap_or_default();
            let Damage { file, position, what, .. } = damage;
            output::line(format!("  {file} at position {position}{end}: {what}"))?;
            output::line(format!("    {}", advice(damage)))?;
        }
        if self.omitted > 0 {
            output::line(format!("  and {} more places", self.omitted))?;
        }
        Ok(())
    }

    /// Which file holds which offsets of which partition.
    fn stretches(&self, names: &BTreeMap<TopicId, String>) -> anyhow::Result<()> {
        let mut rows = Vec::new();
        for file in &self.reports {
            let path = file.path.to_string();
            match &file.content {
                Some(Content::Journal(journal)) => {
                    for ((id, epoch), stretch) in &journal.partitions {
                        rows.push(vec![
                            topic_name(names, id.topic),
                            id.partition.to_string(),
                            epoch.to_string(),
                            format!("{}..{}", stretch.base_offset, stretch.end_offset),
                            stretch.batches.to_string(),
                            stretch.records.to_string(),
                            path.clone(),
                        ]);
                    }
                }
                Some(Content::Runs(runs)) => {
                    for run in &runs.runs {
                        rows.push(vec![
                            topic_name(names, run.partition.topic),
                            run.partition.partition.to_string(),
                            run.leader_epoch.to_string(),
                            format!("{}..{}", run.base_offset, run.end_offset),
                            run.batches.to_string(),
                            run.records.to_string(),
                            path.clone(),
                        ]);
                    }
                }
                None => {}
            }
        }
        if rows.is_empty() {
            return Ok(());
        }
        rows.sort_by(|one, other| one.first().cmp(&other.first()));
        output::line("")?;
        let header =
            ["topic", "partition", "epoch", "offsets (end excluded)", "batches", "records", "file"];
        output::table(&header, rows)
    }
}

/// What to do about a damaged place.
fn advice(damage: &Damage) -> &'static str {
    match damage.loss {
        Loss::Nothing if damage.file == FilePath::Cluster.to_string() => {
            "no record is lost, but a broker refuses to start: put the file back from a copy"
        }
        Loss::Nothing => {
            "too small to have held a record: a broker passes over it when it starts; find out what \
             changed the file (disk, memory, another program)"
        }
        Loss::Copied => {
            "a second copy in the same file is whole, so nothing is lost; find out what changed the file \
             (disk, memory, another program)"
        }
        Loss::Unneeded => {
            "no catalog names this file, so no record depends on it; find out what changed it (disk, \
             memory, another program)"
        }
        Loss::Records => {
            "acknowledged records may be gone: put this file back from a copy made after it was last \
             written, then dump again; without one a broker refuses what it can not prove complete and \
             serves the rest"
        }
    }
}

/// One JSON object on one line.
pub(super) fn line(value: Value) -> anyhow::Result<()> {
    output::line(value)
}

fn at(position: LanePosition) -> String {
    format!("{}:{}", position.file, position.position)
}

fn kind(path: &FilePath) -> &'static str {
    match path {
        FilePath::Cluster => "cluster",
        FilePath::Journal { .. } => "journal",
        FilePath::Sorted { .. } => "sorted journal",
        FilePath::SealIndex { .. } => "seal index",
        FilePath::Segment { .. } => "segment",
    }
}

fn file_row(file: &FileReport) -> Vec<String> {
    let bytes = file.bytes.map_or_else(|| "missing".into(), |bytes| bytes.to_string());
    let mut row = vec![file.path.to_string(), bytes];
    match &file.content {
        Some(Content::Journal(journal)) => row.extend([
            journal.frames.get("flush").copied().unwrap_or(0).to_string(),
            journal.batches().to_string(),
            journal.records().to_string(),
            partitions_in(journal).to_string(),
            journal.durable_to.to_string(),
            match &journal.ending {
                JournalEnd::Closed(next) => format!("closed, then {next}"),
                JournalEnd::Note => format!("note at {}", journal.end),
                JournalEnd::Torn(_) => format!("torn at {}", journal.end),
                JournalEnd::Stopped => format!("not read from {}", journal.end),
                JournalEnd::Unused => "not begun".to_owned(),
            },
        ]),
        Some(Content::Runs(runs)) => {
            let sum = |of: fn(&RunReport) -> u64| runs.runs.iter().map(of).sum::<u64>().to_string();
            let partitions: BTreeSet<_> = runs.runs.iter().map(|run| run.partition).collect();
            let blocks = sum(|run| run.blocks);
            row.extend([
                "-".into(),
                sum(|run| run.batches),
                sum(|run| run.records),
                partitions.len().to_string(),
                "all".into(),
                format!("{} of {blocks} blocks good", sum(|run| run.blocks_verified)),
            ]);
        }
        None => row.extend(["-", "-", "-", "-", "-", "-"].map(String::from)),
    }
    let state = match (file.damage.len() as u64, &file.content) {
        (0, Some(Content::Journal(journal))) if journal.replaced => "ok, replaced".into(),
        (0, Some(Content::Runs(RunsReport { named: Some(false), .. }))) => "ok, not needed".into(),
        (0, _) => "ok".into(),
        (damaged, _) => format!("{} damaged", damaged + file.omitted),
    };
    row.push(state);
    row
}

fn partitions_in(journal: &JournalReport) -> usize {
    journal.partitions.keys().map(|(id, _)| id).collect::<BTreeSet<_>>().len()
}

fn unreadable_lines(file: &FileReport) -> Vec<String> {
    let Some(Content::Journal(journal)) = &file.content else { return Vec::new() };
    let show = |place: &talos_log::dump::Unreadable| {
        let end = place.end.map_or_else(|| "its end".into(), |end| end.to_string());
        format!("  {} from {} to {end}: {}", file.path, place.position, place.what)
    };
    journal.unreadable.iter().map(show).collect()
}

fn leader(ownership: &Ownership) -> String {
    match ownership.leader {
        Leader::Broker(dir) => dir.to_string(),
        Leader::Released => "none".into(),
        Leader::Closed => "closed".into(),
    }
}

fn inherits(ownership: &Ownership) -> Vec<String> {
    let show = |it: &talos_meta::Inherited| format!("{} epoch {}", it.dir, it.leader_epoch);
    ownership.inherits.iter().map(show).collect()
}

fn partition_row(row: &PartitionRow) -> Vec<String> {
    let none = || "-".to_owned();
    let ownership = row.ownership.as_ref();
    let report = row.root.as_ref();
    let root = report.and_then(|report| report.root);
    let epoch = ownership.and_then(|of| of.leader_epoch);
    vec![
        row.topic.clone(),
        row.id.partition.to_string(),
        ownership.map_or_else(none, leader),
        epoch.map_or_else(none, |epoch| epoch.to_string()),
        ownership
            .map(|of| inherits(of).join(", "))
            .filter(|it| !it.is_empty())
            .unwrap_or_else(none),
        root.map_or_else(none, |root| root.log_start.to_string()),
        root.map_or_else(none, |root| root.end_offset.to_string()),
        report.map_or_else(none, |report| report.segments.to_string()),
        report.map_or_else(none, |report| report.segment_bytes.to_string()),
        match (row.damage.len(), row.deleting) {
            (0, true) => "being deleted".into(),
            (0, false) => "ok".into(),
            (damaged, _) => format!("{damaged} damaged"),
        },
    ]
}

fn damage_json(damage: &Damage) -> Value {
    let Damage { file, position, end, what, loss } = damage;
    let loss = match loss {
        Loss::Records => "records",
        Loss::Nothing => "nothing",
        Loss::Copied => "copied",
        Loss::Unneeded => "unneeded",
    };
    json!({
        "file": file, "position": position, "end": end, "what": what, "loss": loss,
        "next": advice(damage),
    })
}

fn file_json(file: &FileReport) -> Value {
    let damage: Vec<Value> = file.damage.iter().map(damage_json).collect();
    let mut value = json!({
        "type": "file", "file": file.path.to_string(), "kind": kind(&file.path),
        "bytes": file.bytes, "damage": damage, "omitted": file.omitted,
    });
    match &file.content {
        Some(Content::Journal(journal)) => value["journal"] = journal_json(journal),
        Some(Content::Runs(runs)) => value["runs"] = runs_json(runs),
        None => {}
    }
    if let Some(Content::Runs(runs)) = &file.content {
        let manifest = runs.manifest.iter().map(|segment| {
            json!({
                "file": segment.path.to_string(), "base_offset": segment.base_offset,
                "end_offset": segment.end_offset, "bytes": segment.file_bytes,
            })
        });
        value["manifest"] = manifest.collect();
        value["named"] = runs.named.into();
    }
    value
}

fn journal_json(journal: &JournalReport) -> Value {
    let header = journal.header.map(|header| {
        json!({
            "format": header.format, "cluster": ClusterId(header.cluster).to_string(),
            "broker": header.dir.broker.0, "epoch": header.dir.epoch.0, "lane": header.lane.0,
            "number": header.number, "preallocated_bytes": header.preallocated_bytes,
            "durable_to": at(header.durable_to),
        })
    });
    let partitions = journal.partitions.iter().map(|((id, epoch), stretch)| {
        json!({
            "topic_id": id.topic.to_string(), "partition": id.partition, "leader_epoch": epoch.0,
            "base_offset": stretch.base_offset, "end_offset": stretch.end_offset,
            "batches": stretch.batches, "records": stretch.records, "bytes": stretch.bytes,
        })
    });
    let ending = match &journal.ending {
        JournalEnd::Closed(next) => json!({ "kind": "closed", "next_file": next }),
        JournalEnd::Note => json!({ "kind": "note" }),
        JournalEnd::Torn(what) => json!({ "kind": "torn", "what": what }),
        JournalEnd::Stopped => json!({ "kind": "stopped" }),
        JournalEnd::Unused => json!({ "kind": "unused" }),
    };
    let unreadable = journal
        .unreadable
        .iter()
        .map(|it| json!({ "position": it.position, "end": it.end, "what": it.what }));
    json!({
        "header": header, "frames": journal.frames, "batches": journal.batches(),
        "records": journal.records(), "partitions": partitions.collect::<Value>(),
        "states": at(journal.states), "durable_to": journal.durable_to, "end": journal.end,
        "ending": ending, "unreadable": unreadable.collect::<Value>(),
        "replaced": journal.replaced,
    })
}

fn runs_json(runs: &RunsReport) -> Value {
    let run = |run: &RunReport| {
        let epochs: Vec<(i32, i64)> = run.epochs.iter().map(|(epoch, at)| (epoch.0, *at)).collect();
        json!({
            "topic_id": run.partition.topic.to_string(), "partition": run.partition.partition,
            "leader_epoch": run.leader_epoch.0, "base_offset": run.base_offset,
            "end_offset": run.end_offset, "position": run.position, "bytes": run.bytes,
            "blocks": run.blocks, "blocks_verified": run.blocks_verified,
            "batches": run.batches, "records": run.records, "producers": run.producers,
            "epochs": epochs,
        })
    };
    runs.runs.iter().map(run).collect()
}

fn partition_json(row: &PartitionRow) -> Value {
    let root = row.root.as_ref().and_then(|report| report.root);
    let head = root.and_then(|root| root.head).map(|head| {
        let (base_offset, leader_epoch) = (head.base_offset, head.leader_epoch);
        let (partition, attempt) = (row.id, head.attempt);
        FilePath::Segment { partition, base_offset, leader_epoch, attempt }.to_string()
    });
    let damage: Vec<Value> = row.damage.iter().map(damage_json).collect();
    json!({
        "type": "partition", "topic": row.topic, "topic_id": row.id.topic.to_string(),
        "partition": row.id.partition, "deleting": row.deleting,
        "leader": row.ownership.as_ref().map(leader),
        "leader_epoch": row.ownership.as_ref().and_then(|of| of.leader_epoch).map(|it| it.0),
        "inherits": row.ownership.as_ref().map(inherits).unwrap_or_default(),
        "log_start": root.map(|root| root.log_start),
        "published_to": root.map(|root| root.end_offset),
        "generation": root.map(|root| root.generation),
        "head": head,
        "segments": row.root.as_ref().map(|report| report.segments),
        "segment_bytes": row.root.as_ref().map(|report| report.segment_bytes),
        "damage": damage,
    })
}
