//! The machine and the commit that numbers were taken on.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use anyhow::Result;

use super::stats::median;

/// What a reader needs to know to compare numbers.
#[derive(Debug)]
pub(crate) struct Machine {
    /// Model name of the processor.
    pub(crate) cpu: String,
    /// Processors that may be used.
    pub(crate) cores: usize,
    /// Release of the kernel.
    pub(crate) kernel: String,
    /// Memory in bytes.
    pub(crate) memory: u64,
    /// Median of writing 4 KiB and syncing it on the data's disk, in milliseconds.
    pub(crate) sync_millis: f64,
    /// Load over the last minute, before the run.
    pub(crate) load: String,
    /// Short hash, with a mark when files differ from it.
    pub(crate) commit: String,
    /// Day of the run, UTC.
    pub(crate) date: String,
}

impl Machine {
    /// Looks around; probes the disk of `data`.
    ///
    /// # Errors
    /// When the disk cannot be written.
    pub(crate) fn look(root: &Path, data: &Path) -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let (cpuinfo, meminfo, load) =
            (read("/proc/cpuinfo"), read("/proc/meminfo"), read("/proc/loadavg"));
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let memory = field(&meminfo, "MemTotal").and_then(|v| v.strip_suffix(" kB")?.parse().ok());
        Ok(Self {
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown").to_owned(),
            cores: std::thread::available_parallelism().map_or(1, Into::into),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            memory: memory.unwrap_or(0_u64) * 1024,
            sync_millis: probe(data)?,
            load: load.split(' ').next().unwrap_or_default().to_owned(),
            commit: commit(root),
            date: date(now.as_secs() / 86_400),
        })
    }

    /// One line for people.
    pub(crate) fn text(&self) -> String {
        format!(
            "{}, {} cores, {:.0} GiB, Linux {}; write and sync of 4 KiB {:.2} ms (median); load \
             before the run {}; commit {}",
            self.cpu,
            self.cores,
            self.memory as f64 / f64::from(1 << 30),
            self.kernel,
            self.sync_millis,
            self.load,
            self.commit
        )
    }
}

/// What a sync costs here: it bounds what a durable broker can do one at a time.
fn probe(dir: &Path) -> Result<f64> {
    let path = dir.join("probe");
    let mut file = File::create(&path)?;
    let mut times = Vec::new();
    for _ in 0..100 {
        let start = Instant::now();
        file.write_all(&[1; 4096])?;
        file.sync_data()?;
        times.push(start.elapsed().as_secs_f64() * 1000.0);
    }
    drop(file);
    fs::remove_file(path)?;
    Ok(median(&times).unwrap_or_default())
}

fn commit(root: &Path) -> String {
    let git = |args: &[&str]| {
        let output = Command::new("git").args(args).current_dir(root).output().ok()?;
        let text = String::from_utf8(output.stdout).ok()?;
        output.status.success().then(|| text.trim().to_owned())
    };
    let hash = git(&["rev-parse", "--short=10", "HEAD"]).unwrap_or_else(|| "unknown".to_owned());
    let clean =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_some_and(|s| s.is_empty());
    if clean { hash } else { format!("{hash} with changes") }
}

fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    Some(line.split_once(':')?.1.trim())
}

/// The date of a day counted from 1970-01-01, in the proleptic Gregorian calendar.
fn date(days: u64) -> String {
    let mut year = 1970;
    let mut left = days;
    let leap = |year: u64| {
        year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
    };
    while left >= 365 + u64::from(leap(year)) {
        left -= 365 + u64::from(leap(year));
        year += 1;
    }
    let february = 28 + u64::from(leap(year));
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if left < length {
            break;
        }
        left -= length;
        month += 1;
    }
    format!("{year}-{month:02}-{:02}", left + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_become_dates() {
        let cases = [
            (0, "1970-01-01"),
            (58, "1970-02-28"),
            (59, "1970-03-01"),
            (11_016, "2000-02-29"),
            (11_017, "2000-03-01"),
            (19_722, "2023-12-31"),
            (19_723, "2024-01-01"),
            (20_787, "2026-11-30"),
        ];
        for (days, expected) in cases {
            assert_eq!(date(days), expected);
        }
    }

    #[test]
    fn fields_are_found() {
        assert_eq!(field("a: 1\nmodel name\t: X 9\n", "model name"), Some("X 9"));
        assert_eq!(field("", "x"), None);
    }
}
