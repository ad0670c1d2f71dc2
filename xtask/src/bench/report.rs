//! The table and the file of all numbers.
//!
//! Cells hold medians over the rounds. A ratio compares with the first system; above 1 is more
//! throughput, and for latency, processor time and memory below 1 is less of it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::RoundResult;
use super::machine::Machine;
use super::measure::Sample;
use super::options::Options;
use super::rows::{Row, Work};
use super::stats::{median, short, spread, whole};
use super::systems::System;

/// Results go below this line of the page, the newest first.
const MARK: &str = "<!-- results below, the newest first -->";

/// All numbers of a run, ready to be shown.
#[derive(Debug)]
pub(crate) struct Report<'a> {
    machine: &'a Machine,
    command: &'a str,
    options: &'a Options,
    rounds: &'a [RoundResult],
}

/// Medians of one row of one system.
#[derive(Debug, Default)]
struct Cell {
    rate: Option<f64>,
    bytes_rate: Option<f64>,
    cpu_per_gb: Option<f64>,
    mean: Option<f64>,
    p50: Option<f64>,
    p99: Option<f64>,
    p999: Option<f64>,
    cut: usize,
    failed: usize,
    count: usize,
}

impl<'a> Report<'a> {
    /// A report of these rounds.
    pub(crate) fn new(
        machine: &'a Machine,
        command: &'a str,
        options: &'a Options,
        rounds: &'a [RoundResult],
    ) -> Self {
        Self { machine, command, options, rounds }
    }

    /// The section for the page, from its heading to its last line.
    pub(crate) fn markdown(&self) -> String {
        let systems = &self.options.systems;
        let base = systems.first().copied();
        let mut lines = vec![
            format!("## {}, commit {}", self.machine.date, self.machine.commit),
            String::new(),
            format!("`{}`", self.command),
            String::new(),
            format!("{}.", self.machine.text()),
            format!(
                "Medians of {} rounds, about {} s each; clients and broker share the machine.",
                self.options.repeat, self.options.seconds
            ),
            String::new(),
        ];
        let others: Vec<_> = systems.iter().copied().filter(|s| Some(*s) != base).collect();
        let mut head: Vec<_> = systems.iter().map(|s| s.title().to_owned()).collect();
        head.extend(others.iter().map(|s| match base {
            Some(base) => format!("{} ÷ {}", s.title(), base.title()),
            None => String::new(),
        }));
        lines.push(format!("| work | {} |", head.join(" | ")));
        lines.push(format!("|---|{}", "---|".repeat(head.len())));
        let durability: Vec<_> = systems.iter().map(|s| s.durability()).collect();
        let blank = " |".repeat(others.len());
        lines.push(format!("| an acknowledged record is | {} |{blank}", durability.join(" | ")));
        for (at, row) in self.options.rows.iter().enumerate() {
            let cells: Vec<_> = systems.iter().map(|s| self.cell(*s, at)).collect();
            let mut line: Vec<_> = cells.iter().map(|cell| cell.text(row)).collect();
            if let Some((first, rest)) = cells.split_first() {
                line.extend(rest.iter().map(|cell| cell.ratio(first, row)));
            }
            lines.push(format!("| {} | {} |", row.title, line.join(" | ")));
        }
        lines.push(self.start_line(systems));
        lines.push(String::new());
        lines.extend(self.notes());
        lines.join("\n") + "\n"
    }

    /// Start and memory: one more row, which every run has.
    fn start_line(&self, systems: &[System]) -> String {
        let values: Vec<_> = systems.iter().map(|s| self.start(*s)).collect();
        let mut line: Vec<_> = values
            .iter()
            .map(|(start, peak, cpu)| {
                format!("{start:.2} s; {} MiB; {cpu:.0} CPU s", whole(peak / f64::from(1 << 20)))
            })
            .collect();
        if let Some(((start, peak, cpu), rest)) = values.split_first() {
            line.extend(rest.iter().map(|(s, p, c)| {
                format!(
                    "start {}, memory {}, CPU {}",
                    short(s / start),
                    short(p / peak),
                    short(c / cpu)
                )
            }));
        }
        format!(
            "| start to listening; peak resident; CPU of a whole round | {} |",
            line.join(" | ")
        )
    }

    fn start(&self, system: System) -> (f64, f64, f64) {
        let of = |value: fn(&RoundResult) -> f64| {
            let values: Vec<_> =
                self.rounds.iter().filter(|r| r.system == system).map(value).collect();
            median(&values).unwrap_or(f64::NAN)
        };
        (of(|r| r.start_seconds), of(|r| r.peak_bytes as f64), of(|r| r.cpu_seconds))
    }

    /// What the cells do not say.
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let mut how: Vec<(&str, Vec<String>)> = Vec::new();
        let mut spreads = Vec::new();
        for (at, row) in self.options.rows.iter().enumerate() {
            let what = format!("{} ({})", row.title, self.count(row));
            match how.iter_mut().find(|(how, _)| *how == row.work.how()) {
                Some((_, rows)) => rows.push(what),
                None => how.push((row.work.how(), vec![what])),
            }
            for system in &self.options.systems {
                let rates: Vec<_> = self.good(*system, at).map(|s| s.rate).collect();
                spreads.extend(spread(&rates).map(|share| (share, system.title(), row.title)));
            }
            for sample in self.options.systems.iter().flat_map(|s| self.samples(*s, at)) {
                if let Some(why) = &sample.failure {
                    notes.push(format!("- {} failed: {why}", row.title));
                }
            }
        }
        let how = how.into_iter().map(|(how, rows)| format!("- {}: {how}", rows.join("; ")));
        notes.splice(0..0, how);
        let typical = median(&spreads.iter().map(|(share, ..)| *share).collect::<Vec<_>>());
        let worst = spreads.iter().max_by(|a, b| a.0.total_cmp(&b.0));
        if let (Some(typical), Some((share, system, row))) = (typical, worst)
            && self.options.repeat > 1
        {
            notes.push(format!(
                "- spread of throughput between rounds (largest less smallest, over the median): \
                 {:.0} % typical, at most {:.0} % ({system}, {row})",
                typical * 100.0,
                share * 100.0
            ));
        }
        notes.push(
            "- MiB is 2^20 bytes and GB is 10^9 bytes of record values; CPU is user and system time \
             of the broker process; latencies of several producers are those of the slowest"
                .to_owned(),
        );
        notes
    }

    fn count(&self, row: &Row) -> String {
        format!("{} records", whole(row.work.records(self.options.seconds) as f64))
    }

    /// Everything, for programs.
    pub(crate) fn json(&self) -> Value {
        let systems: Vec<_> = self
            .options
            .systems
            .iter()
            .map(|s| json!({"name": s.name(), "title": s.title(), "durability": s.durability()}))
            .collect();
        let rounds: Vec<_> = self.rounds.iter().map(|round| self.round_json(round)).collect();
        let machine = self.machine;
        json!({
            "command": self.command,
            "date": machine.date,
            "commit": machine.commit,
            "machine": {
                "cpu": machine.cpu, "cores": machine.cores, "kernel": machine.kernel,
                "memory_bytes": machine.memory, "sync_ms": machine.sync_millis,
                "load_before": machine.load,
            },
            "seconds": self.options.seconds,
            "repeat": self.options.repeat,
            "systems": systems,
            "rounds": rounds,
        })
    }

    fn round_json(&self, round: &RoundResult) -> Value {
        let samples: serde_json::Map<_, _> = self
            .options
            .rows
            .iter()
            .zip(&round.samples)
            .map(|(row, sample)| (row.id.to_owned(), sample_json(sample)))
            .collect();
        json!({
            "system": round.system.name(),
            "start_seconds": round.start_seconds,
            "peak_resident_bytes": round.peak_bytes,
            "cpu_seconds": round.cpu_seconds,
            "rows": samples,
        })
    }

    fn samples(&self, system: System, row: usize) -> impl Iterator<Item = &Sample> {
        let rounds = self.rounds.iter().filter(move |round| round.system == system);
        rounds.filter_map(move |round| round.samples.get(row))
    }

    fn good(&self, system: System, row: usize) -> impl Iterator<Item = &Sample> {
        self.samples(system, row).filter(|sample| sample.failure.is_none())
    }

    fn cell(&self, system: System, row: usize) -> Cell {
        let of = |value: fn(&Sample) -> Option<f64>| {
            median(&self.good(system, row).filter_map(value).collect::<Vec<_>>())
        };
        Cell {
            rate: of(|s| Some(s.rate)),
            bytes_rate: of(|s| Some(s.bytes_rate)),
            cpu_per_gb: of(|s| Some(s.cpu_per_gb)),
            mean: of(|s| s.latency.map(|l| l.mean)),
            p50: of(|s| s.latency.map(|l| l.p50)),
            p99: of(|s| s.latency.map(|l| l.p99)),
            p999: of(|s| s.latency.map(|l| l.p999)),
            cut: self.good(system, row).filter(|s| s.cut).count(),
            failed: self.samples(system, row).filter(|s| s.failure.is_some()).count(),
            count: self.samples(system, row).count(),
        }
    }
}

impl Cell {
    fn text(&self, row: &Row) -> String {
        let Some(rate) = self.rate else { return "**failed**".to_owned() };
        let cpu = short(self.cpu_per_gb.unwrap_or(f64::NAN));
        let mib = short(self.bytes_rate.unwrap_or(f64::NAN) / f64::from(1 << 20));
        let p99 = self.p99.map_or_else(String::new, |p99| format!(", p99 {} ms", short(p99)));
        let mut text = match row.work {
            Work::Produce { .. } => format!("{}/s, {mib} MiB/s{p99}, {cpu} CPU s/GB", whole(rate)),
            Work::Consume { .. } => format!("{}/s, {mib} MiB/s, {cpu} CPU s/GB", whole(rate)),
            Work::ManyPartitions { .. } => {
                format!("{}/s reached{p99}, {cpu} CPU s/GB", whole(rate))
            }
            Work::Rate { .. } => {
                format!("{}/s, {}, {cpu} CPU s/GB", whole(rate), self.percentiles(self.p50, "p50"))
            }
            Work::EndToEnd => {
                // A gigabyte of such records is nothing that anybody sends.
                let each = self.cpu_per_gb.unwrap_or(f64::NAN) * row.work.size() as f64 / 1e6;
                format!("{}, CPU {} ms each", self.percentiles(self.mean, "mean"), short(each))
            }
        };
        if self.cut > 0 {
            text += &format!(" (cut off in {} of {})", self.cut, self.count);
        }
        if self.failed > 0 {
            text += &format!(" (**failed** in {} of {})", self.failed, self.count);
        }
        text
    }

    fn percentiles(&self, first: Option<f64>, name: &str) -> String {
        match (first, self.p99, self.p999) {
            (Some(first), Some(p99), Some(p999)) => {
                format!("{name} {}, p99 {}, p99.9 {} ms", short(first), short(p99), short(p999))
            }
            _ => "no latencies".to_owned(),
        }
    }

    /// This cell over another.
    fn ratio(&self, base: &Self, row: &Row) -> String {
        let over = |name: &str, a: Option<f64>, b: Option<f64>| match (a, b) {
            (Some(a), Some(b)) if b > 0.0 => Some(format!("{name} {}", short(a / b))),
            _ => None,
        };
        let cpu = over("CPU", self.cpu_per_gb, base.cpu_per_gb);
        let parts = match row.work {
            Work::Produce { .. } | Work::Consume { .. } | Work::ManyPartitions { .. } => {
                vec![over("throughput", self.rate, base.rate), cpu]
            }
            Work::Rate { .. } => {
                vec![over("p50", self.p50, base.p50), over("p99", self.p99, base.p99), cpu]
            }
            Work::EndToEnd => {
                vec![over("mean", self.mean, base.mean), over("p99", self.p99, base.p99), cpu]
            }
        };
        let parts: Vec<_> = parts.into_iter().flatten().collect();
        if parts.is_empty() { "none".to_owned() } else { parts.join(", ") }
    }
}

fn sample_json(sample: &Sample) -> Value {
    if let Some(why) = &sample.failure {
        return json!({"failure": why});
    }
    let mut value = json!({
        "records_per_second": sample.rate,
        "bytes_per_second": sample.bytes_rate,
        "cpu_seconds": sample.cpu_seconds,
        "cpu_seconds_per_gb": sample.cpu_per_gb,
        "cut_off": sample.cut,
    });
    if let Some(l) = sample.latency {
        value["latency_ms"] = json!({"mean": l.mean, "p50": l.p50, "p99": l.p99, "p99.9": l.p999});
    }
    value
}

/// Puts a section into the page, before the older ones.
///
/// # Errors
/// When the page is missing, or the line that says where results go.
pub(crate) fn write(page: &Path, section: &str) -> Result<()> {
    let text = fs::read_to_string(page).with_context(|| format!("{}", page.display()))?;
    let text = insert(&text, section).with_context(|| format!("no line {MARK:?} in the page"))?;
    fs::write(page, text).with_context(|| format!("cannot write {}", page.display()))
}

fn insert(page: &str, section: &str) -> Option<String> {
    let (head, older) = page.split_once(MARK)?;
    let older = older.trim();
    let end = if older.is_empty() { String::new() } else { format!("\n{older}\n") };
    Some(format!("{head}{MARK}\n\n{}\n{end}", section.trim_end()))
}

#[cfg(test)]
mod tests;
