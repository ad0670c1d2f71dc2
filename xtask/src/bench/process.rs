//! Child processes and scratch folders that do not outlive the run.
//!
//! Invariants: a child is ended by its process id when its guard is dropped, and by the kernel
//! when this process dies without dropping anything (`setpriv --pdeathsig`, where there is one);
//! Ctrl-C is a flag that every wait looks at, so that guards are dropped in order; a scratch folder
//! carries the id of its process, and one whose process is gone is removed by the next run.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// How often a waiting loop looks.
pub(crate) const TICK: Duration = Duration::from_millis(2);

/// Whether the user asked to stop.
#[derive(Debug, Clone)]
pub(crate) struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Turns SIGINT, SIGTERM and SIGHUP into a flag.
    ///
    /// # Errors
    /// When the system refuses.
    pub(crate) fn on_signals() -> Result<Self> {
        use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            signal_hook::flag::register(signal, Arc::clone(&flag)).context("signal handler")?;
        }
        Ok(Self(flag))
    }

    /// # Errors
    /// When the user asked to stop.
    pub(crate) fn check(&self) -> Result<()> {
        if self.0.load(Ordering::Relaxed) {
            bail!("interrupted");
        }
        Ok(())
    }
}

/// A folder for data and logs, on the disk of the target folder.
#[derive(Debug)]
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    /// Makes a folder of this process below `parent`, and removes those of dead processes.
    ///
    /// # Errors
    /// When the folder cannot be made.
    pub(crate) fn new(parent: &Path) -> Result<Self> {
        fs::create_dir_all(parent).with_context(|| format!("cannot make {}", parent.display()))?;
        for entry in fs::read_dir(parent)? {
            let entry = entry?;
            let dead = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok());
            if dead.is_some_and(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        let own = parent.join(std::process::id().to_string());
        fs::create_dir_all(&own)?;
        Ok(Self(own))
    }

    /// The folder.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("cannot remove {}: {error}", self.0.display());
        }
    }
}

/// A command whose process ends with this one.
pub(crate) fn command(program: impl AsRef<OsStr>) -> Command {
    let setpriv = Path::new("/usr/bin/setpriv");
    let mut command = if setpriv.exists() {
        let mut command = Command::new(setpriv);
        command.args(["--pdeathsig", "KILL", "--"]).arg(program);
        command
    } else {
        Command::new(program)
    };
    // Ours are no settings of a broker, which refuses variables that it does not know.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALOS_") {
            command.env_remove(name);
        }
    }
    // Ctrl-C reaches only this process, which then ends its children.
    command.process_group(0).stdin(Stdio::null());
    command
}

/// A running child; dropped, it is killed and waited for.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
    name: String,
    log: PathBuf,
}

impl Process {
    /// Starts a command with its output in `log`.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(crate) fn spawn(name: &str, mut command: Command, log: PathBuf) -> Result<Self> {
        let out = File::create(&log).with_context(|| format!("cannot make {}", log.display()))?;
        command.stdout(out.try_clone()?).stderr(out);
        let child = command.spawn().with_context(|| format!("cannot start {name}"))?;
        Ok(Self { child, name: name.to_owned(), log })
    }

    /// How it ended, if it did.
    ///
    /// # Errors
    /// When the system cannot say.
    pub(crate) fn ended(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// # Errors
    /// When it has ended: the error carries its last words.
    pub(crate) fn check_alive(&mut self) -> Result<()> {
        match self.ended()? {
            None => Ok(()),
            Some(status) => bail!("{} ended with {status}: {}", self.name, last(&self.output()?)),
        }
    }

    /// All that it printed so far.
    ///
    /// # Errors
    /// When the log cannot be read.
    pub(crate) fn output(&self) -> Result<String> {
        let bytes = fs::read(&self.log).context("cannot read a log")?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// Processor seconds of user and system so far.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let stat = self.proc("stat")?;
        let ticks = cpu_ticks(&stat).context("unknown format of /proc/PID/stat")?;
        Ok(ticks as f64 / rustix::param::clock_ticks_per_second() as f64)
    }

    /// Largest resident memory so far, in bytes.
    ///
    /// # Errors
    /// When the process is gone.
    pub(crate) fn peak_bytes(&self) -> Result<u64> {
        peak_bytes(&self.proc("status")?).context("unknown format of /proc/PID/status")
    }

    fn proc(&self, file: &str) -> Result<String> {
        fs::read_to_string(format!("/proc/{}/{file}", self.child.id()))
            .with_context(|| format!("{} is gone", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // An error means that it already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// How a group of clients ended.
#[derive(Debug)]
pub(crate) struct Ended {
    /// What each printed.
    pub(crate) outputs: Vec<String>,
    /// When each ended.
    pub(crate) at: Vec<Instant>,
    /// Whether the limit cut them off.
    pub(crate) cut: bool,
}

/// Runs commands beside each other to their end, or until `limit`.
///
/// # Errors
/// When one fails, or the user asked to stop.
pub(crate) fn run_all(
    name: &str,
    commands: Vec<Command>,
    dir: &Path,
    limit: Duration,
    stop: &Stop,
) -> Result<Ended> {
    let start = Instant::now();
    let mut running = Vec::new();
    for (i, command) in commands.into_iter().enumerate() {
        running.push(Process::spawn(name, command, dir.join(format!("client-{i}.log")))?);
    }
    let mut at: Vec<Option<Instant>> = vec![None; running.len()];
    let mut cut = false;
    while at.iter().any(Option::is_none) && !cut {
        stop.check()?;
        for (process, at) in running.iter_mut().zip(&mut at) {
            if at.is_none()
                && let Some(status) = process.ended()?
            {
                *at = Some(Instant::now());
                if !status.success() {
                    bail!("{name} ended with {status}: {}", last(&process.output()?));
                }
            }
        }
        cut = start.elapsed() > limit && at.iter().any(Option::is_none);
        std::thread::sleep(TICK);
    }
    let now = Instant::now();
    let outputs = running.iter().map(Process::output).collect::<Result<_>>()?;
    Ok(Ended { outputs, at: at.into_iter().map(|at| at.unwrap_or(now)).collect(), cut })
}

/// The last lines of a text, on one line, shortened.
pub(crate) fn last(text: &str) -> String {
    let lines: Vec<_> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let tail = lines[lines.len().saturating_sub(3)..].join(" | ");
    tail.chars().take(400).collect()
}

fn cpu_ticks(stat: &str) -> Option<u64> {
    // The name in brackets may hold anything; state is the first field after it.
    let fields: Vec<_> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    Some(fields.get(11)?.parse::<u64>().ok()? + fields.get(12)?.parse::<u64>().ok()?)
}

fn peak_bytes(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    Some(line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()? * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn proc_files_are_read() {
        let stat = "7 (a) b) S 1 7 7 0 -1 4194560 1 2 3 4 150 25 0 0 20 0 1 0 9 9 9";
        assert_eq!(cpu_ticks(stat), Some(175));
        assert_eq!(peak_bytes("Name:\tx\nVmHWM:\t   2048 kB\n"), Some(2 << 20));
        assert_eq!(cpu_ticks("x"), None);
        assert_eq!(peak_bytes("x"), None);
    }

    #[test]
    fn the_own_process_has_numbers() {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        assert!(peak_bytes(&status).unwrap() > 0);
        assert!(cpu_ticks(&fs::read_to_string("/proc/self/stat").unwrap()).is_some());
    }

    #[test]
    fn last_words_are_short() {
        assert_eq!(last("a\nb\n\nc\nd\n"), "b | c | d");
        assert_eq!(last(&"x".repeat(1000)).len(), 400);
        assert_eq!(last(""), "");
    }

    #[test]
    fn children_run_to_their_end_and_failures_show() {
        let dir = std::env::temp_dir().join(format!("xtask-process-{}", std::process::id()));
        let scratch = Scratch::new(&dir).unwrap();
        let stop = Stop(Arc::new(AtomicBool::new(false)));
        let shell = |script: &str| {
            let mut sh = command("sh");
            sh.args(["-c", script]);
            sh
        };
        let limit = Duration::from_secs(60);
        let run = |scripts: &[&str], limit, stop: &Stop| {
            let commands = scripts.iter().map(|script| shell(script)).collect();
            run_all("sh", commands, scratch.path(), limit, stop)
        };
        let ended = run(&["echo a", "echo b >&2"], limit, &stop).unwrap();
        assert_eq!(
            (ended.outputs.as_slice(), ended.cut),
            (&["a\n".into(), "b\n".into()][..], false)
        );
        let error = run(&["echo why; exit 3"], limit, &stop).unwrap_err().to_string();
        assert!(error.contains("why"), "{error}");
        // A child that waits for ever is cut by the limit, and killed by its guard.
        let ended = run(&["echo $$; exec tail -f /dev/null"], Duration::from_millis(300), &stop);
        let ended = ended.unwrap();
        assert!(ended.cut);
        let pid = ended.outputs[0].trim();
        assert!(!Path::new(&format!("/proc/{pid}")).exists() || pid.is_empty());
        stop.0.store(true, Ordering::Relaxed);
        assert!(run(&["exec tail -f /dev/null"], limit, &stop).is_err());
        drop(scratch);
        fs::remove_dir(&dir).unwrap();
    }
}
