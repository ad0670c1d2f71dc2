//! The binary from outside: a broker in a process of its own, and commands against it.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

/// The binary, with nothing of the surroundings in its environment.
pub(crate) fn talos() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_talos"));
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALOS_") {
            command.env_remove(name);
        }
    }
    command
}

/// A process that is killed when it is dropped.
pub(crate) struct Running(pub(crate) Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Running {
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.0.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }
}

/// A broker process; killed when it is dropped.
pub(crate) struct Serving {
    _process: Running,
    pub(crate) address: String,
}

impl Serving {
    /// A broker on a free port.
    pub(crate) fn start(data: &Path) -> Self {
        Self::start_on(data, "127.0.0.1:0")
    }

    pub(crate) fn start_on(data: &Path, listen: &str) -> Self {
        let mut command = talos();
        command.args(["serve", "--listen", listen, "--admin", "", "--data-dir"]);
        command.arg(data).envs([
            ("TALOS_LOG_JOURNAL_SIZE", "4MiB"),
            ("TALOS_LOG_SORT_AFTER", "4MiB"),
            ("TALOS_LOG_SEGMENT_AFTER", "1MiB"),
            ("TALOS_LOG_RESERVE", "0B"),
            ("TALOS_KAFKA_OFFSETS_TOPIC_NUM_PARTITIONS", "1"),
            ("TALOS_KAFKA_GROUP_INITIAL_REBALANCE_DELAY_MS", "0"),
        ]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut serving = Self { _process: Running(child), address: String::new() };
        for line in lines {
            if let Some(address) = line.unwrap().trim().strip_prefix("Kafka clients") {
                address.trim().clone_into(&mut serving.address);
                return serving;
            }
        }
        panic!("the broker ended before it listened");
    }

    /// A command against this broker.
    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = talos();
        command.args(args).args(["--bootstrap", &self.address]);
        command
    }

    /// Runs a command to its end.
    pub(crate) fn run(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // It may end without reading it.
        let _ = child.stdin.take().unwrap().write_all(input);
        child.wait_with_output().unwrap()
    }

    /// Runs a command that must work; gives its standard output.
    pub(crate) fn done(&self, args: &[&str], input: &[u8]) -> String {
        let output = self.run(args, input);
        let told = stderr(&output);
        assert!(output.status.success(), "{args:?}: {told}");
        String::from_utf8(output.stdout).unwrap()
    }
}

pub(crate) fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}
