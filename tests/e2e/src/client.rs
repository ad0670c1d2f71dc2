//! The client programs and the few verbs that all of them speak.
//!
//! `PROGRAM VERB BOOTSTRAP name=value…` prints JSON lines; the last is `{"ok":true,…}` or
//! `{"ok":false,"code":N,"error":"…"}` with Kafka's error number (librdkafka's own negative number
//! where the client decided by itself). The verb `member` is a group member that prints events
//! until its standard input is closed.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::process::{self, Running};
use crate::services::Services;

/// A verb that has not answered by then has failed.
const LIMIT: Duration = Duration::from_secs(90);

/// One client library in one version.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Client {
    /// `kafka-clients` 4.4.
    Java,
    /// `kafka-clients` 3.9.
    JavaOld,
    /// `confluent-kafka` (librdkafka).
    Confluent,
    /// `kafka-python`.
    KafkaPython,
    /// `franz-go`.
    Franz,
    /// `sarama`.
    Sarama,
    /// `kafkajs`.
    KafkaJs,
}

impl Client {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::Java,
        Self::JavaOld,
        Self::Confluent,
        Self::KafkaPython,
        Self::Franz,
        Self::Sarama,
        Self::KafkaJs,
    ];

    /// Short name, for scenario and topic names.
    pub fn name(self) -> &'static str {
        match self {
            Self::Java => "java-4.4",
            Self::JavaOld => "java-3.9",
            Self::Confluent => "confluent",
            Self::KafkaPython => "kafka-python",
            Self::Franz => "franz",
            Self::Sarama => "sarama",
            Self::KafkaJs => "kafkajs",
        }
    }

    /// The codecs that it can write and read.
    pub fn codecs(self) -> &'static [&'static str] {
        match self {
            // The others need packages with native code that has to be built on the spot.
            Self::KafkaJs => &["none", "gzip", "snappy"],
            _ => &["none", "gzip", "snappy", "lz4", "zstd"],
        }
    }

    /// Whether a header without a value can be told from one with an empty value.
    pub fn null_headers(self) -> bool {
        !matches!(self, Self::KafkaPython | Self::Sarama | Self::KafkaJs)
    }

    /// The process that carries out a verb.
    ///
    /// # Errors
    /// When what it needs cannot be brought.
    pub fn command(self, services: &Services) -> Result<Command> {
        Ok(match self {
            Self::Java | Self::JavaOld => {
                let mut java = java(&services.java_client(self == Self::JavaOld)?);
                java.arg("Client");
                java
            }
            Self::Confluent | Self::KafkaPython => {
                let script =
                    if self == Self::Confluent { "confluent.py" } else { "kafkapython.py" };
                let mut python = process::command(services.python()?);
                python.arg("-B").arg(services.client_dir("python").join(script));
                python
            }
            Self::Franz | Self::Sarama => {
                let mut go = process::command(services.go_client()?);
                go.arg(self.name());
                go
            }
            Self::KafkaJs => {
                let mut node = process::command("node");
                node.env("NODE_PATH", services.node_modules()?);
                node.env("KAFKAJS_NO_PARTITIONER_WARNING", "1");
                node.arg(services.client_dir("node").join("client.js"));
                node
            }
        })
    }

    /// Runs one verb to its end; the answer may be a refusal.
    ///
    /// # Errors
    /// When the program crashes, takes too long or does not end on a JSON answer.
    pub fn call(
        self,
        services: &Services,
        bootstrap: &str,
        verb: &str,
        args: &[(&str, &str)],
    ) -> Result<Value> {
        let mut command = self.command(services)?;
        command.arg(verb).arg(bootstrap);
        for (name, value) in args {
            command.arg(format!("{name}={value}"));
        }
        let what = format!("{} {verb} {args:?}", self.name());
        let output = process::run(command, &what, b"", LIMIT)?;
        let last = output.stdout.iter().rev().find(|line| line.starts_with('{'));
        let answer = last.and_then(|line| serde_json::from_str::<Value>(line).ok());
        match answer {
            Some(answer) if output.status.success() && answer["ok"].is_boolean() => Ok(answer),
            _ => bail!(
                "{what} ended with {} and no answer\nstdout:\n{}\nstderr:\n{}",
                output.status,
                process::tail(&output.stdout),
                process::tail(&output.stderr)
            ),
        }
    }
}

/// A Java process that starts fast and stays small.
pub fn java(classpath: &str) -> Command {
    let mut java = process::command("java");
    java.args(["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto"]);
    java.args(["-cp", classpath]);
    java
}

/// A Java client program that carries out verb after verb, so that Java starts only once.
pub struct Session {
    client: Client,
    running: Running,
}

impl Session {
    fn start(client: Client, services: &Services, bootstrap: &str) -> Result<Self> {
        let mut command = client.command(services)?;
        command.arg("session").arg(bootstrap);
        let running = Running::start(command, &format!("{} session", client.name()))?;
        Ok(Self { client, running })
    }

    fn call(&mut self, verb: &str, args: &[(&str, &str)]) -> Result<Value> {
        let before = self.running.stdout.all().len();
        let words: Vec<String> =
            args.iter().map(|(name, value)| format!("{name}={value}")).collect();
        let line = [&[verb.to_owned()], &words[..]].concat().join("\t");
        let stdin = self.running.stdin().context("the session is closed")?;
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).context("the session has ended")?;
        let answer = self.running.stdout.wait_for(LIMIT, |lines| lines.get(before).cloned());
        let answer = answer.and_then(|line| serde_json::from_str::<Value>(&line).ok());
        answer.with_context(|| {
            let err = process::tail(&self.running.stderr.all());
            format!("{} {verb} {args:?} gave no answer\n{err}", self.client.name())
        })
    }
}

/// The Java sessions that are open.
#[derive(Default)]
pub struct Sessions(Vec<Session>);

impl Sessions {
    /// Runs one verb to its end, in a session where the client has them.
    ///
    /// # Errors
    /// Like [`Client::call`]; the session is given up then.
    pub fn call(
        &mut self,
        client: Client,
        services: &Services,
        bootstrap: &str,
        verb: &str,
        args: &[(&str, &str)],
    ) -> Result<Value> {
        if !matches!(client, Client::Java | Client::JavaOld) {
            return client.call(services, bootstrap, verb, args);
        }
        let mut session = match self.0.iter().position(|session| session.client == client) {
            Some(at) => self.0.swap_remove(at),
            None => Session::start(client, services, bootstrap)?,
        };
        let answer = session.call(verb, args)?;
        self.0.push(session);
        Ok(answer)
    }
}

/// A group member, as a process of its own.
pub struct Member {
    running: Running,
    name: String,
}

impl Member {
    /// Starts a member.
    ///
    /// # Errors
    /// When the program cannot be started.
    pub fn start(
        client: Client,
        services: &Services,
        bootstrap: &str,
        args: &[(&str, &str)],
    ) -> Result<Self> {
        let mut command = client.command(services)?;
        command.arg("member").arg(bootstrap);
        for (name, value) in args {
            command.arg(format!("{name}={value}"));
        }
        let name = format!("{} member {args:?}", client.name());
        Ok(Self { running: Running::start(command, &name)?, name })
    }

    fn events(&self, name: &str) -> Vec<Value> {
        let lines = self.running.stdout.all();
        let parsed = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        parsed.filter(|event| event["event"] == name).collect()
    }

    /// The partitions that it says it has now; `None` before its first assignment.
    pub fn assigned(&self) -> Option<BTreeSet<i64>> {
        let last = self.events("assigned").pop()?;
        Some(last["partitions"].as_array()?.iter().filter_map(Value::as_i64).collect())
    }

    /// How many assignments it has been given.
    pub fn assignments(&self) -> usize {
        self.events("assigned").len()
    }

    /// (partition, offset) of each record that it has read, in order.
    pub fn records(&self) -> Vec<(i64, i64)> {
        let pair = |e: &Value| Some((e["partition"].as_i64()?, e["offset"].as_i64()?));
        self.events("record").iter().filter_map(pair).collect()
    }

    /// Waits for the member to end by itself, on an error; gives the error's number.
    ///
    /// # Errors
    /// When it ends well, or not in time.
    pub fn fails(mut self, limit: Duration) -> Result<i64> {
        self.running.finish(limit)?;
        let lines = self.running.stdout.all();
        let last = lines.last().and_then(|line| serde_json::from_str::<Value>(line).ok());
        last.and_then(|answer| answer["code"].as_i64())
            .with_context(|| format!("{} did not fail\n{}", self.name, self.output()))
    }

    /// Lets it leave in order, and waits for its end.
    ///
    /// # Errors
    /// When it does not end well in time.
    pub fn close(mut self) -> Result<()> {
        self.running.close_stdin();
        let status = self.running.finish(LIMIT)?;
        let closed = self.events("closed").len() == 1;
        if !status.success() || !closed {
            bail!("{} ended with {status}\n{}", self.name, self.output());
        }
        Ok(())
    }

    /// Kills it at once: the group learns it from the missing heartbeats only.
    ///
    /// # Errors
    /// When it cannot be signalled.
    pub fn kill(mut self) -> Result<()> {
        self.running.kill()
    }

    /// What it has printed, for error messages.
    pub fn output(&self) -> String {
        let (out, err) = (self.running.stdout.all(), self.running.stderr.all());
        format!("{}:\n{}\n{}", self.name, process::tail(&out), process::tail(&err))
    }
}
