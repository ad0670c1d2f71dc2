//! The brokers that are compared: how each is brought, started and known to be ready.
//!
//! Every broker is its own process on loopback, with free ports and a data folder of the run.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::process::{self, Process, Stop, TICK};

/// A broker gets this long to listen, then to be ready.
const START_LIMIT: Duration = Duration::from_secs(60);

/// A broker under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum System {
    /// Apache Kafka as shipped.
    Kafka,
    /// Apache Kafka that flushes each append.
    KafkaFlush,
    /// Talos as shipped.
    Talos,
}

impl System {
    /// In the order of the table's columns.
    pub(crate) const ALL: [Self; 3] = [Self::Kafka, Self::KafkaFlush, Self::Talos];

    /// Name on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Kafka => "kafka",
            Self::KafkaFlush => "kafka-flush",
            Self::Talos => "talos",
        }
    }

    /// The system of this name.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|system| system.name() == name)
    }

    /// Name in the table.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Kafka => "Kafka 4.4 as shipped",
            Self::KafkaFlush => "Kafka 4.4, flush each message",
            Self::Talos => "Talos",
        }
    }

    /// What an acknowledgement of `acks=all` means.
    pub(crate) fn durability(self) -> &'static str {
        match self {
            Self::Kafka => "in the page cache; a power cut loses it",
            Self::KafkaFlush => "synced (`log.flush.interval.messages=1`)",
            Self::Talos => "synced (`fdatasync` before the acknowledgement)",
        }
    }
}

/// What was brought before the run.
#[derive(Debug, Clone)]
pub(crate) struct Setup {
    /// Java class path with Kafka's broker and tools.
    pub(crate) class_path: String,
    /// The binary of Talos.
    pub(crate) talos: PathBuf,
}

/// A broker that listens.
#[derive(Debug)]
pub(crate) struct Running {
    /// Which one.
    pub(crate) system: System,
    /// Its process.
    pub(crate) service: Process,
    /// `HOST:PORT` for clients.
    pub(crate) bootstrap: String,
    /// From start to listening.
    pub(crate) start_seconds: f64,
}

impl Running {
    /// Starts a broker on empty data in `dir`, and waits until it is ready.
    ///
    /// # Errors
    /// When it does not come up, or the user asked to stop.
    pub(crate) fn start(system: System, setup: &Setup, dir: &Path, stop: &Stop) -> Result<Self> {
        fs::create_dir_all(dir)?;
        let (port, second) = free_ports()?;
        let command = match system {
            System::Kafka => kafka(setup, dir, port, second, "")?,
            System::KafkaFlush => {
                kafka(setup, dir, port, second, "log.flush.interval.messages=1\n")?
            }
            System::Talos => talos(setup, dir, port, second),
        };
        let start = Instant::now();
        let mut service = Process::spawn(system.name(), command, dir.join("broker.log"))?;
        wait(&mut service, stop, || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_ok()))?;
        let start_seconds = start.elapsed().as_secs_f64();
        if system == System::Talos {
            wait(&mut service, stop, || ready(second))?;
        }
        let bootstrap = format!("127.0.0.1:{port}");
        Ok(Self { system, service, bootstrap, start_seconds })
    }
}

fn wait(service: &mut Process, stop: &Stop, mut done: impl FnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !done()? {
        stop.check()?;
        service.check_alive()?;
        if start.elapsed() > START_LIMIT {
            let words = process::last(&service.output()?);
            bail!("not ready after {} s: {words}", START_LIMIT.as_secs());
        }
        std::thread::sleep(TICK);
    }
    Ok(())
}

/// Whether the admin port answers `/readyz` with 200.
fn ready(port: u16) -> Result<bool> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let Ok(mut admin) = TcpStream::connect_timeout(&address, Duration::from_secs(1)) else {
        return Ok(false);
    };
    admin.set_read_timeout(Some(Duration::from_secs(2)))?;
    let request = "GET /readyz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut head = [0; 12];
    let answered =
        admin.write_all(request.as_bytes()).and_then(|()| admin.read_exact(&mut head)).is_ok();
    Ok(answered && head.ends_with(b" 200"))
}

fn talos(setup: &Setup, dir: &Path, port: u16, admin: u16) -> Command {
    let mut command = process::command(&setup.talos);
    command.args(["serve", "--listen", &format!("127.0.0.1:{port}")]);
    command.args(["--admin", &format!("127.0.0.1:{admin}")]);
    command.args(["--set", "group.initial.rebalance.delay.ms=0"]);
    command.arg("--data-dir").arg(dir.join("data")).current_dir(dir);
    command
}

/// Formats the data folder of a one-process Kafka and gives the command that starts it.
fn kafka(setup: &Setup, dir: &Path, port: u16, second: u16, extra: &str) -> Result<Command> {
    let file = dir.join("server.properties");
    let data = dir.join("data");
    let text = format!(
        "process.roles=broker,controller\n\
         node.id=1\n\
         controller.quorum.voters=1@127.0.0.1:{second}\n\
         listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{second}\n\
         controller.listener.names=CONTROLLER\n\
         listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT\n\
         log.dirs={}\n\
         offsets.topic.replication.factor=1\n\
         transaction.state.log.replication.factor=1\n\
         transaction.state.log.min.isr=1\n\
         share.coordinator.state.topic.replication.factor=1\n\
         share.coordinator.state.topic.min.isr=1\n\
         group.initial.rebalance.delay.ms=0\n\
         {extra}",
        data.display()
    );
    fs::write(&file, text)?;
    let mut format = process::command("java");
    format.args(["-cp", &setup.class_path, "kafka.tools.StorageTool", "format"]);
    format.args(["-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c"]).arg(&file);
    let output = format.output().context("cannot run java (Java 17 or later)")?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        bail!("formatting Kafka's data folder failed: {}", process::last(&words));
    }
    let mut command = process::command("java");
    command.args(["-Xms1G", "-Xmx1G", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"]);
    command.arg("-XX:InitiatingHeapOccupancyPercent=35");
    command.args(["-cp", &setup.class_path, "kafka.Kafka"]).arg(&file).current_dir(dir);
    Ok(command)
}

/// Two different free ports; both are held until both are known.
fn free_ports() -> Result<(u16, u16)> {
    let first = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let second = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    Ok((first.local_addr()?.port(), second.local_addr()?.port()))
}

/// Brings the jars of the committed pom into `.services`, once: a stamp holds the pom they are of.
///
/// # Errors
/// When Maven is missing or fails.
pub(crate) fn bring_jars(root: &Path) -> Result<PathBuf> {
    let pom = root.join("xtask/services/kafka/pom.xml");
    let wanted = fs::read_to_string(&pom).with_context(|| format!("{}", pom.display()))?;
    let services = match std::env::var_os("TALOS_SERVICES_DIR") {
        Some(dir) => PathBuf::from(dir),
        None => root.join(".services"),
    };
    fs::create_dir_all(&services)?;
    let services = services.canonicalize()?;
    let lock = File::create(services.join("bench-kafka.lock"))?;
    lock.lock().context("cannot lock the services folder")?;
    let dir = services.join("bench-kafka");
    let stamp = dir.join(".stamp");
    if fs::read_to_string(&stamp).is_ok_and(|found| found == wanted) {
        return Ok(dir);
    }
    println!("bringing Kafka's jars into {}", dir.display());
    if dir.exists() {
        fs::remove_dir_all(&dir)?;
    }
    let mut mvn = process::command("mvn");
    mvn.args(["-q", "-B", "-f"]).arg(&pom).arg("dependency:copy-dependencies");
    mvn.arg(format!("-DoutputDirectory={}", dir.display()));
    let output = mvn.output().context("cannot run mvn (Debian package maven)")?;
    if !output.status.success() {
        let words = String::from_utf8_lossy(&output.stdout).into_owned();
        bail!("mvn failed: {}", process::last(&words));
    }
    fs::write(&stamp, wanted)?;
    Ok(dir)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_found_by_name() {
        for system in System::ALL {
            assert_eq!(System::named(system.name()), Some(system));
        }
        assert_eq!(System::named("x"), None);
    }

    #[test]
    fn ready_means_an_answer_of_200() {
        for (answer, expected) in [("200 OK", true), ("503 Wait", false)] {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let server = std::thread::spawn(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let mut request = [0; 1024];
                let _ = stream.read(&mut request).unwrap();
                write!(stream, "HTTP/1.1 {answer}\r\n\r\n").unwrap();
            });
            assert_eq!(ready(port).unwrap(), expected);
            server.join().unwrap();
        }
    }
}
