//! One broker under test with its files, started as a case wants it: with settings, variables, and
//! programs in front of it (`prlimit`, `setpriv`).
//!
//! Invariants: dropping a [`Rig`] ends its process and removes its files; a start that is meant to fail
//! is waited for to its end.

use std::ffi::OsString;
use std::fs::{self, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use rustix::process::Signal;
use tempfile::TempDir;

use super::{Ground, LIMIT, Small, wait_for};
use crate::broker::{answers_ok, free_ports, hide_our_variables, talos_binary};
use crate::process;
use crate::wire::Wire;

/// One broker, running or not.
#[derive(Debug)]
pub struct Rig {
    // Before the folder: what is mounted in it goes first.
    child: Option<Child>,
    small: Option<Small>,
    dir: TempDir,
    program: PathBuf,
    data: PathBuf,
    port: u16,
    admin: u16,
    settings: Vec<String>,
    in_front: Vec<OsString>,
    shim: Option<PathBuf>,
    /// Where the log of the present start begins.
    log_start: usize,
}

/// How a process ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// Its exit code; `None` when a signal ended it.
    pub code: Option<i32>,
    /// All that it said since its start.
    pub log: String,
}

impl Ending {
    /// Demands the exit code 1 and a last error that contains all of `parts`.
    ///
    /// # Errors
    /// When it is otherwise.
    pub fn expect_error(&self, parts: &[&str]) -> Result<()> {
        let error = self.log.lines().rev().find(|line| line.starts_with("error: "));
        let error =
            error.with_context(|| format!("no error at the end of\n{}", tail(&self.log)))?;
        ensure!(self.code == Some(1), "exit code {:?}, not 1\n{}", self.code, tail(&self.log));
        ensure!(!self.log.contains("panicked"), "something panicked\n{}", tail(&self.log));
        for part in parts {
            ensure!(error.contains(part), "the error does not say {part:?}: {error}");
        }
        Ok(())
    }
}

impl Rig {
    /// A broker that is not started yet, with small journals, on the file system of the machine.
    ///
    /// # Errors
    /// When there is no binary, or no folder can be made.
    pub fn new() -> Result<Self> {
        let dir = TempDir::with_prefix("talos-e2e-disk-")?;
        let (port, admin) = free_ports()?;
        let settings = ["log.journal_size=4MiB", "log.sort_after=4MiB", "log.reserve=0B"];
        Ok(Self {
            child: None,
            small: None,
            program: talos_binary()?,
            data: dir.path().join("data"),
            dir,
            port,
            admin,
            settings: settings.map(str::to_owned).to_vec(),
            in_front: Vec::new(),
            shim: None,
            log_start: 0,
        })
    }

    /// As [`Rig::new`], with its data on a file system of `bytes` of its own.
    ///
    /// # Errors
    /// As there, and when it cannot be mounted.
    pub fn on_small(bytes: u64) -> Result<Self> {
        let mut rig = Self::new()?;
        let at = rig.dir.path().join("small");
        fs::create_dir(&at)?;
        rig.small = Some(Small::mount(&at, bytes)?);
        rig.data = at.join("data");
        Ok(rig)
    }

    /// Adds a setting, `NAME=VALUE`; a later one goes before an earlier one of the same name.
    pub fn set(&mut self, setting: &str) -> &mut Self {
        let name = setting.split('=').next().unwrap_or_default().to_owned() + "=";
        self.settings.retain(|known| !known.starts_with(&name));
        self.settings.push(setting.to_owned());
        self
    }

    /// Starts the broker through another program from now on.
    pub fn through(&mut self, words: &[&str]) -> &mut Self {
        self.in_front.extend(words.iter().map(OsString::from));
        self
    }

    /// Puts the shim in front of its syncs from the next start on, or takes it away.
    ///
    /// # Errors
    /// When its control file cannot be written.
    pub fn shim(&mut self, ground: Option<&Ground>) -> Result<()> {
        self.shim = ground.map(Ground::shim);
        self.order("pass 0 -")
    }

    /// Tells the shim what to do from now on; see `preload/sync.c`.
    ///
    /// # Errors
    /// When its control file cannot be written.
    pub fn order(&self, line: &str) -> Result<()> {
        // Whole or not at all: the broker reads it all the time.
        let new = self.dir.path().join("sync.new");
        fs::write(&new, format!("{line}\n"))?;
        Ok(fs::rename(new, self.control())?)
    }

    fn control(&self) -> PathBuf {
        self.dir.path().join("sync")
    }

    /// The faults that the shim made so far, one a line.
    pub fn faults(&self) -> Vec<String> {
        let text = fs::read_to_string(self.dir.path().join("sync.log")).unwrap_or_default();
        text.lines().map(str::to_owned).collect()
    }

    /// Waits until the shim made one more fault than `before`.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_for_fault(&self, before: usize) -> Result<()> {
        wait_for("a fault of the shim", || Ok((self.faults().len() > before).then_some(())))
    }

    /// The small file system.
    ///
    /// # Errors
    /// When it has none.
    pub fn small(&self) -> Result<&Small> {
        self.small.as_ref().context("it has no file system of its own")
    }

    /// The data folder.
    pub fn data(&self) -> &Path {
        &self.data
    }

    /// Moves the place where it looks for its data.
    pub fn set_data(&mut self, data: PathBuf) {
        self.data = data;
    }

    /// The port of its admin server.
    pub fn admin(&self) -> u16 {
        self.admin
    }

    /// The process id.
    ///
    /// # Errors
    /// When it is not running.
    pub fn pid(&self) -> Result<u32> {
        self.child.as_ref().map(Child::id).context("the broker is not running")
    }

    /// A new connection to it.
    ///
    /// # Errors
    /// When it takes none.
    pub fn connect(&self) -> Result<Wire> {
        Wire::connect(self.port, LIMIT)
    }

    /// Starts it and waits until it is ready.
    ///
    /// # Errors
    /// When it ends or is not ready in time; with its log.
    pub fn launch(&mut self) -> Result<()> {
        match self.launch_either()? {
            None => Ok(()),
            Some(ending) => {
                bail!("the broker ended at its start: {:?}\n{}", ending.code, tail(&ending.log))
            }
        }
    }

    /// Starts it, which has to fail.
    ///
    /// # Errors
    /// When it does not.
    pub fn launch_refused(&mut self) -> Result<Ending> {
        self.launch_either()?.with_context(|| format!("the broker started\n{}", self.log_tail()))
    }

    /// Starts it and waits until it is ready, which gives `None`, or has ended.
    ///
    /// # Errors
    /// When neither happens in time.
    pub fn launch_either(&mut self) -> Result<Option<Ending>> {
        self.spawn()?;
        let known = wait_for("a broker that is ready or has ended", || {
            if let Some(ending) = self.ended()? {
                return Ok(Some(Some(ending)));
            }
            Ok(answers_ok(self.admin, "/readyz").then_some(None))
        });
        known.with_context(|| self.log_tail())
    }

    fn spawn(&mut self) -> Result<()> {
        ensure!(self.child.is_none(), "the broker is running");
        let path = self.dir.path().join("broker.log");
        let log = OpenOptions::new().create(true).append(true).open(&path)?;
        self.log_start = usize::try_from(log.metadata()?.len())?;
        let mut words = self.in_front.iter().cloned().chain([self.program.clone().into()]);
        let mut command = process::command(words.next().context("no program")?);
        command.args(words).args(["serve", "--node-id", "1"]);
        command.arg("--listen").arg(format!("127.0.0.1:{}", self.port));
        command.arg("--admin").arg(format!("127.0.0.1:{}", self.admin));
        command.arg("--data-dir").arg(&self.data);
        for setting in &self.settings {
            command.arg("--set").arg(setting);
        }
        hide_our_variables(&mut command);
        if let Some(shim) = &self.shim {
            command.env("LD_PRELOAD", shim).env("SYNC_CONTROL", self.control());
        }
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().context("cannot start the broker")?);
        Ok(())
    }

    /// How it ended, if it did by itself.
    ///
    /// # Errors
    /// When the operating system does not tell.
    pub fn ended(&mut self) -> Result<Option<Ending>> {
        let child = self.child.as_mut().context("the broker is not running")?;
        let Some(status) = child.try_wait()? else { return Ok(None) };
        self.child = None;
        Ok(Some(Ending { code: status.code(), log: self.log() }))
    }

    /// Waits until it ends by itself.
    ///
    /// # Errors
    /// When it does not.
    pub fn wait_for_end(&mut self) -> Result<Ending> {
        wait_for("the end of the broker", || self.ended()).with_context(|| self.log_tail())
    }

    /// Kills it at once; on return the process is gone.
    ///
    /// # Errors
    /// When it had ended by itself before.
    pub fn kill(&mut self) -> Result<()> {
        if let Some(ending) = self.ended()? {
            bail!("the broker had ended by itself: {ending:?}");
        }
        self.end(Signal::KILL)
    }

    /// Stops it cleanly.
    ///
    /// # Errors
    /// When it ends otherwise than with 0.
    pub fn stop(&mut self) -> Result<()> {
        let child = self.child.as_ref().context("the broker is not running")?;
        process::signal(child, Signal::TERM)?;
        let ending = self.wait_for_end()?;
        ensure!(ending.code == Some(0), "no clean stop: {ending:?}");
        Ok(())
    }

    fn end(&mut self, signal: Signal) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        process::signal(&child, signal)?;
        child.wait()?;
        Ok(())
    }

    /// All that it said since its last start.
    pub fn log(&self) -> String {
        let log = fs::read(self.dir.path().join("broker.log")).unwrap_or_default();
        String::from_utf8_lossy(log.get(self.log_start..).unwrap_or_default()).into_owned()
    }

    /// The end of that, for error messages.
    pub fn log_tail(&self) -> String {
        tail(&self.log())
    }

    /// Its resident memory, in bytes.
    ///
    /// # Errors
    /// When it is not running.
    pub fn resident_bytes(&self) -> Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid()?))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let words = line.context("no VmRSS")?.trim_end_matches("kB").trim();
        Ok(words.parse::<u64>()? * 1024)
    }

    /// Names in a folder below the data folder, sorted.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn names(&self, folder: &str) -> Result<Vec<String>> {
        let entries = fs::read_dir(self.data.join(folder))?;
        let names = entries.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
        let mut names = names.collect::<Result<Vec<_>>>()?;
        names.sort();
        Ok(names)
    }

    /// Changes a limit of the running process: `--nofile=64`, `--fsize=1048576:`.
    ///
    /// # Errors
    /// When it is not running, or may not be changed.
    pub fn limit(&self, limit: &str) -> Result<()> {
        let mut prlimit = Command::new("prlimit");
        prlimit.arg("--pid").arg(self.pid()?.to_string()).arg(limit);
        process::check(prlimit, "prlimit", b"", LIMIT).map(drop)
    }
}

/// The end of a log. What is said again and again comes once.
fn tail(log: &str) -> String {
    let message = |line: &str| line.split_once(' ').map(|(_, rest)| rest.to_owned());
    let mut lines: Vec<String> = Vec::new();
    for line in log.lines() {
        if lines.last().and_then(|last| message(last)) != message(line) {
            lines.push(line.to_owned());
        }
    }
    format!("--- end of the broker's log ---\n{}", process::tail(&lines))
}

impl Drop for Rig {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.end(Signal::KILL);
    }
}
