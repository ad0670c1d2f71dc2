//! Child processes that never outlive the test: started so that the kernel ends them with us,
//! waited for with a limit, and ended by their own id.
//!
//! Invariants: output is drained all the time, so that no child blocks on a full pipe; dropping a
//! [`Running`] ends its process.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// How often a waiting loop looks again.
pub const POLL: Duration = Duration::from_millis(10);

/// A command whose process is killed by the kernel when the thread that starts it ends, so that a
/// test that is itself killed leaves nothing behind. Start long-lived ones from the main thread.
pub fn command(program: impl AsRef<OsStr>) -> Command {
    // setpriv replaces itself by the program, so the process id is the program's.
    let mut command = Command::new("setpriv");
    command.arg("--pdeathsig").arg("KILL").arg("--").arg(program);
    command
}

/// Sends a signal to a child that has not been waited for yet.
///
/// # Errors
/// When the process id is not valid or the process is gone.
pub fn signal(child: &Child, signal: Signal) -> Result<()> {
    let pid = i32::try_from(child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
    kill_process(pid, signal).with_context(|| format!("cannot signal process {}", child.id()))
}

/// Waits for a child to end; `None` when it still runs after `limit`.
///
/// # Errors
/// When the operating system does not tell.
pub fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let deadline = Instant::now() + limit;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if Instant::now() >= deadline {
            return Ok(None);
        }
        std::thread::sleep(POLL);
    }
}

/// Lines that a process has printed so far, in order.
#[derive(Default)]
pub struct Lines {
    lines: Mutex<Vec<String>>,
    changed: Condvar,
}

impl Lines {
    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All lines so far.
    pub fn all(&self) -> Vec<String> {
        self.lock().clone()
    }

    /// The lines from `from` on, at once.
    pub fn since(&self, from: usize) -> Vec<String> {
        self.lock().get(from..).unwrap_or_default().to_vec()
    }

    /// Waits until `found` gives something for the lines so far; `None` after `limit`.
    pub fn wait_for<T>(
        &self,
        limit: Duration,
        mut found: impl FnMut(&[String]) -> Option<T>,
    ) -> Option<T> {
        let deadline = Instant::now() + limit;
        let mut lines = self.lock();
        loop {
            if let Some(value) = found(&lines) {
                return Some(value);
            }
            let left = deadline.checked_duration_since(Instant::now())?;
            lines = self
                .changed
                .wait_timeout(lines, left)
                .map_or_else(|poisoned| poisoned.into_inner().0, |(guard, _)| guard);
        }
    }

    fn push(&self, line: String) {
        self.lock().push(line);
        self.changed.notify_all();
    }
}

/// A process that is running, with its output collected as it comes.
pub struct Running {
    child: Child,
    what: String,
    stdin: Option<ChildStdin>,
    /// Standard output by line.
    pub stdout: Arc<Lines>,
    /// Standard error by line.
    pub stderr: Arc<Lines>,
    readers: Vec<JoinHandle<()>>,
}

impl Running {
    /// Starts a process with pipes on all three streams. `what` names it in errors.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn start(mut command: Command, what: &str) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("cannot start {what}"))?;
        let stdout = Arc::new(Lines::default());
        let stderr = Arc::new(Lines::default());
        let mut readers = Vec::new();
        if let Some(pipe) = child.stdout.take() {
            readers.push(drain(pipe, Arc::clone(&stdout)));
        }
        if let Some(pipe) = child.stderr.take() {
            readers.push(drain(pipe, Arc::clone(&stderr)));
        }
        let stdin = child.stdin.take();
        Ok(Self { child, what: what.to_owned(), stdin, stdout, stderr, readers })
    }

    /// Standard input, until it is closed.
    pub fn stdin(&mut self) -> Option<&mut ChildStdin> {
        self.stdin.as_mut()
    }

    /// Closes standard input, by which client programs are told to finish.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Ends the process at once (SIGKILL) and waits for it.
    ///
    /// # Errors
    /// When it cannot be signalled or waited for.
    pub fn kill(&mut self) -> Result<()> {
        if self.child.try_wait()?.is_none() {
            signal(&self.child, Signal::KILL)?;
            self.child.wait()?;
        }
        self.join();
        Ok(())
    }

    /// Waits for the process to end and its output to be complete.
    ///
    /// # Errors
    /// When it takes longer than `limit`; it is ended then.
    pub fn finish(&mut self, limit: Duration) -> Result<ExitStatus> {
        match wait(&mut self.child, limit)? {
            Some(status) => {
                self.join();
                Ok(status)
            }
            None => {
                self.kill()?;
                bail!(
                    "{} did not end within {limit:?}\nstdout:\n{}\nstderr:\n{}",
                    self.what,
                    tail(&self.stdout.all()),
                    tail(&self.stderr.all())
                )
            }
        }
    }

    fn join(&mut self) {
        for reader in self.readers.drain(..) {
            // A reader cannot panic; there is nothing to learn from its result.
            let _ = reader.join();
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stdin = None;
        // The process may have ended by itself; both outcomes are fine.
        let _ = self.kill();
    }
}

/// What a finished process left.
pub struct Output {
    /// How it ended.
    pub status: ExitStatus,
    /// Standard output by line.
    pub stdout: Vec<String>,
    /// Standard error by line.
    pub stderr: Vec<String>,
}

/// Runs a process to its end, with `input` on its standard input.
///
/// # Errors
/// When it cannot be started or takes longer than `limit`; its exit status is for the caller.
pub fn run(command: Command, what: &str, input: &[u8], limit: Duration) -> Result<Output> {
    use std::io::Write as _;
    let mut running = Running::start(command, what)?;
    if let Some(stdin) = running.stdin() {
        // A process that ends without reading its input is judged by its status.
        let _ = stdin.write_all(input);
    }
    running.close_stdin();
    let status = running.finish(limit)?;
    Ok(Output { status, stdout: running.stdout.all(), stderr: running.stderr.all() })
}

/// Runs a process that must succeed; gives its standard output.
///
/// # Errors
/// Besides those of [`run`]: when it ends with another status than 0.
pub fn check(command: Command, what: &str, input: &[u8], limit: Duration) -> Result<Vec<String>> {
    let output = run(command, what, input, limit)?;
    if !output.status.success() {
        bail!(
            "{what} ended with {}\nstdout:\n{}\nstderr:\n{}",
            output.status,
            tail(&output.stdout),
            tail(&output.stderr)
        );
    }
    Ok(output.stdout)
}

/// The last lines, for error messages.
pub fn tail(lines: &[String]) -> String {
    let from = lines.len().saturating_sub(40);
    lines[from..].join("\n")
}

fn drain(pipe: impl Read + Send + 'static, lines: Arc<Lines>) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let mut reader = BufReader::new(pipe);
        let mut line = Vec::new();
        while reader.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            if line.last() == Some(&b'\n') {
                line.pop();
            }
            lines.push(String::from_utf8_lossy(&line).into_owned());
            line.clear();
        }
    })
}
