//! The broker under test as a process of its own: Talos, or Apache Kafka as the oracle.
//!
//! Invariants: it listens on free ports of 127.0.0.1 that stay the same over restarts, so that
//! clients find it again; its data lies in a temporary folder of its own; dropping it ends the
//! process and removes the folder.

use std::fs::{self, OpenOptions};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::process;
use crate::services::{Services, workspace_root};

/// A start that is not ready by then has failed.
const START_LIMIT: Duration = Duration::from_secs(120);
/// A clean stop that has not ended by then has failed.
const STOP_LIMIT: Duration = Duration::from_secs(60);

/// Broker settings by Kafka's names, the same for both targets: groups form at once, and short
/// sessions are allowed, so that the tests need not wait.
const SETTINGS: [(&str, &str); 2] =
    [("group.initial.rebalance.delay.ms", "0"), ("group.min.session.timeout.ms", "1000")];

/// What is under test.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The binary named by `TALOS_BIN`, by default `target/release/talos`.
    Talos,
    /// Apache Kafka 4.4, the oracle.
    Kafka,
}

impl Target {
    /// Reads `TALOS_E2E_TARGET`; Talos when it is not set.
    ///
    /// # Errors
    /// When it names neither.
    pub fn from_env() -> Result<Self> {
        match std::env::var("TALOS_E2E_TARGET").as_deref() {
            Err(_) | Ok("talos" | "") => Ok(Self::Talos),
            Ok("kafka") => Ok(Self::Kafka),
            Ok(other) => bail!("TALOS_E2E_TARGET is {other:?}; it can be talos or kafka"),
        }
    }
}

/// One broker, running or stopped.
pub struct Broker {
    target: Target,
    program: PathBuf,
    classpath: String,
    dir: TempDir,
    port: u16,
    second_port: u16,
    child: Option<Child>,
}

impl Broker {
    /// Starts a broker with an empty data folder and waits until it is ready.
    ///
    /// # Errors
    /// When the binary is missing, or the broker ends or is not ready in time; with its log.
    pub fn start(services: &Services) -> Result<Self> {
        let target = Target::from_env()?;
        let (program, classpath) = match target {
            Target::Talos => (talos_binary()?, String::new()),
            Target::Kafka => (PathBuf::from("java"), services.kafka_jars()?),
        };
        let dir = TempDir::with_prefix("talos-e2e-")?;
        let (port, second_port) = free_ports()?;
        let mut broker = Self { target, program, classpath, dir, port, second_port, child: None };
        if target == Target::Kafka {
            broker.format_kafka()?;
        }
        broker.launch()?;
        Ok(broker)
    }

    /// What is under test.
    pub fn target(&self) -> Target {
        self.target
    }

    /// Address for clients.
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The folder with the broker's data.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// The binary under test, which has the command line too.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Resident memory of the running process (`VmRSS`), in bytes.
    ///
    /// # Errors
    /// When it does not run.
    pub fn resident_bytes(&self) -> Result<u64> {
        let child = self.child.as_ref().context("the broker is not running")?;
        let status = fs::read_to_string(format!("/proc/{}/status", child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let kib = line.and_then(|line| line.trim().strip_suffix("kB"));
        let kib: u64 = kib.context("no VmRSS in the status")?.trim().parse()?;
        Ok(kib << 10)
    }

    /// Stops cleanly (SIGTERM).
    ///
    /// # Errors
    /// When it does not end in time, or not with status 0 (Kafka: 143 is its clean end).
    pub fn stop(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        process::signal(&child, Signal::TERM)?;
        match process::wait(&mut child, STOP_LIMIT)? {
            Some(status) if status.success() => Ok(()),
            Some(status) if self.target == Target::Kafka && status.code() == Some(143) => Ok(()),
            Some(status) => bail!("the broker stopped with {status}\n{}", self.log_tail()),
            None => {
                process::signal(&child, Signal::KILL)?;
                child.wait()?;
                bail!("the broker did not stop within {STOP_LIMIT:?}\n{}", self.log_tail())
            }
        }
    }

    /// Kills it at once (SIGKILL); on return the process is gone.
    ///
    /// # Errors
    /// When it had ended by itself before.
    pub fn kill(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { bail!("the broker is not running") };
        if let Some(status) = child.try_wait()? {
            bail!("the broker had ended by itself with {status}\n{}", self.log_tail());
        }
        process::signal(&child, Signal::KILL)?;
        child.wait()?;
        Ok(())
    }

    /// Starts it again on the same data and ports, and waits until it is ready; gives the time
    /// that took.
    ///
    /// # Errors
    /// When the broker ends or is not ready in time; with its log.
    pub fn launch(&mut self) -> Result<Duration> {
        let began = Instant::now();
        let log = OpenOptions::new().create(true).append(true).open(self.log_path())?;
        let mut command = process::command(&self.program);
        match self.target {
            Target::Talos => self.talos_arguments(&mut command),
            Target::Kafka => self.kafka_arguments(&mut command),
        }
        hide_our_variables(&mut command);
        command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = Some(command.spawn().context("cannot start the broker")?);
        self.wait_until_ready()?;
        Ok(began.elapsed())
    }

    /// The end of the broker's log, for error messages.
    pub fn log_tail(&self) -> String {
        let log = fs::read(self.log_path()).unwrap_or_default();
        let lines: Vec<String> = String::from_utf8_lossy(&log).lines().map(str::to_owned).collect();
        format!("--- end of the broker's log ---\n{}", process::tail(&lines))
    }

    /// Copies the whole log to `to`, so that it outlives the data folder.
    ///
    /// # Errors
    /// When the copy cannot be written.
    pub fn save_log(&self, to: &Path) -> Result<()> {
        fs::copy(self.log_path(), to).map(drop).context("cannot save the broker's log")
    }

    fn log_path(&self) -> PathBuf {
        self.dir.path().join("broker.log")
    }

    fn talos_arguments(&self, command: &mut std::process::Command) {
        command.args(["serve", "--node-id", "1", "--listen", &self.bootstrap()]);
        command.arg("--data-dir").arg(self.dir.path().join("data"));
        command.arg("--admin").arg(format!("127.0.0.1:{}", self.second_port));
        for (name, value) in SETTINGS {
            command.arg("--set").arg(format!("{name}={value}"));
        }
    }

    fn kafka_arguments(&self, command: &mut std::process::Command) {
        command.args(["-Xms256m", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]);
        command.args(["-cp", &self.classpath, "kafka.Kafka"]).arg(self.kafka_properties());
    }

    fn kafka_properties(&self) -> PathBuf {
        self.dir.path().join("server.properties")
    }

    /// Writes the configuration and formats the data folder, as Kafka wants before a first start.
    fn format_kafka(&self) -> Result<()> {
        let (port, controller) = (self.port, self.second_port);
        let data = self.dir.path().join("data");
        let mut text = format!(
            "process.roles=broker,controller\nnode.id=1\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             controller.listener.names=CONTROLLER\n\
             listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
             log.dirs={}\noffsets.topic.replication.factor=1\n\
             transaction.state.log.replication.factor=1\ntransaction.state.log.min.isr=1\n\
             share.coordinator.state.topic.replication.factor=1\n\
             share.coordinator.state.topic.min.isr=1\n\
             broker.session.timeout.ms=2000\nbroker.heartbeat.interval.ms=500\n",
            data.display()
        );
        for (name, value) in SETTINGS {
            text.push_str(&format!("{name}={value}\n"));
        }
        fs::write(self.kafka_properties(), text)?;
        let mut format = process::command("java");
        format.args(["-cp", &self.classpath, "kafka.tools.StorageTool", "format"]);
        format.args(["-t", "dGFsb3MtZTJlLWthZmthAA", "-c"]).arg(self.kafka_properties());
        process::check(format, "StorageTool", b"", START_LIMIT).map(drop)
    }

    fn wait_until_ready(&mut self) -> Result<()> {
        let deadline = Instant::now() + START_LIMIT;
        loop {
            let ended = match &mut self.child {
                Some(child) => child.try_wait()?,
                None => bail!("the broker is not running"),
            };
            if let Some(status) = ended {
                self.child = None;
                bail!("the broker ended at its start with {status}\n{}", self.log_tail());
            }
            let ready = match self.target {
                Target::Talos => answers_ok(self.second_port, "/readyz"),
                Target::Kafka => connect(self.port).is_ok(),
            };
            if ready {
                return Ok(());
            }
            if Instant::now() >= deadline {
                bail!("the broker is not ready after {START_LIMIT:?}\n{}", self.log_tail());
            }
            std::thread::sleep(process::POLL);
        }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself; then there is nothing to signal.
            let _ = process::signal(&child, Signal::KILL);
            let _ = child.wait();
        }
    }
}

/// Ours are no settings of the broker, which refuses variables that it does not know.
pub(crate) fn hide_our_variables(command: &mut std::process::Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALOS_") {
            command.env_remove(name);
        }
    }
}

pub(crate) fn talos_binary() -> Result<PathBuf> {
    let path = match std::env::var_os("TALOS_BIN") {
        Some(path) => PathBuf::from(path),
        None => match std::env::var_os("CARGO_TARGET_DIR") {
            Some(target) => PathBuf::from(target).join("release/talos"),
            None => workspace_root().join("target/release/talos"),
        },
    };
    if !path.is_file() {
        bail!(
            "no Talos binary at {}: run `cargo build --release -p talos` first, or name the binary \
             in TALOS_BIN, or set TALOS_E2E_TARGET=kafka to test against Apache Kafka",
            path.display()
        );
    }
    Ok(path.canonicalize()?)
}

/// Two ports that are free now. Both are held while they are chosen, so that they differ.
pub(crate) fn free_ports() -> Result<(u16, u16)> {
    let first = TcpListener::bind("127.0.0.1:0")?;
    let second = TcpListener::bind("127.0.0.1:0")?;
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}

fn connect(port: u16) -> Result<TcpStream> {
    let address = SocketAddr::from(([127, 0, 0, 1], port));
    Ok(TcpStream::connect_timeout(&address, Duration::from_secs(1))?)
}

/// Whether an HTTP GET of `path` answers 200.
pub(crate) fn answers_ok(port: u16, path: &str) -> bool {
    let ask = || -> Result<Vec<u8>> {
        let mut stream = connect(port)?;
        stream.set_read_timeout(Some(Duration::from_secs(2)))?;
        stream.set_write_timeout(Some(Duration::from_secs(2)))?;
        write!(stream, "GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")?;
        let mut answer = vec![0; 12];
        stream.read_exact(&mut answer)?;
        Ok(answer)
    };
    ask().is_ok_and(|answer| answer == b"HTTP/1.1 200" || answer == b"HTTP/1.0 200")
}
