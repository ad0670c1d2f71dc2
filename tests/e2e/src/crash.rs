//! `kill -9` under load: the broker is killed and started again at seeded moments while clients
//! write, read, delete and commit; the history of what they learned goes to the [`checker`].
//!
//! Two phases in each round: the broker is gone for a moment (safety is judged afterwards), then it
//! is back and every producer and reader must get on (progress is demanded at once).

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};

use crate::broker::Target;
use crate::checker::{self, Violation};
use crate::client::Client;
use crate::history;
use crate::process::{self, Running};
use crate::suite::World;

/// After a restart everyone must have got on by then.
const PROGRESS_LIMIT: Duration = Duration::from_secs(60);
/// The last flush and the last read get this long.
const FINISH_LIMIT: Duration = Duration::from_secs(300);
/// Partitions of the topic; the last one has its old records deleted.
const PARTITIONS: &str = "3";

/// How often and when the broker is killed.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of kills.
    pub rounds: u64,
    /// Chooses the moments, and where readers read.
    pub seed: u64,
}

impl Plan {
    /// `TALOS_E2E_ROUNDS` (5) and `TALOS_E2E_SEED` (1).
    ///
    /// # Errors
    /// When one of them is no number.
    pub fn from_env() -> Result<Self> {
        let number = |name: &str, default: u64| match std::env::var(name) {
            Ok(text) => text.parse().with_context(|| format!("{name} is no number: {text:?}")),
            Err(_) => Ok(default),
        };
        Ok(Self { rounds: number("TALOS_E2E_ROUNDS", 5)?, seed: number("TALOS_E2E_SEED", 1)? })
    }
}

/// Runs the load over all kills and judges its history.
///
/// # Errors
/// When a violation is found, a restart fails, or someone does not get on; the history is kept.
pub fn kill_under_load(world: &mut World, plan: Plan) -> Result<()> {
    let dir = tempfile::TempDir::with_prefix("talos-e2e-crash-")?;
    let file = dir.path().join("history.jsonl");
    let topic = format!("crash-{}", plan.seed);
    let created = Client::Confluent.call(
        &world.services,
        &world.broker.bootstrap(),
        "create",
        &[("topic", &topic), ("partitions", PARTITIONS)],
    )?;
    ensure!(created["ok"] == true, "cannot create the topic: {created}");
    let result =
        drive(world, plan, &topic, &file).and_then(|()| judge(&file, world.broker.target()));
    result.map_err(|error| {
        let kept = std::env::temp_dir().join(format!("talos-e2e-history-{}.jsonl", plan.seed));
        // Beside it: what the client libraries logged. It is there as soon as the history is.
        let copied = fs::copy(&file, &kept)
            .and_then(|_| fs::copy(client_log(&file), client_log(&kept)).map(drop));
        match copied {
            Ok(()) => error.context(format!("history and client log: {}[.log]", kept.display())),
            Err(_) => error.context("there is no history"),
        }
    })
}

fn drive(world: &mut World, plan: Plan, topic: &str, file: &Path) -> Result<()> {
    let mut chance = fastrand::Rng::with_seed(plan.seed);
    let mut command = process::command(world.services.python()?);
    command.arg("-B").arg(world.services.client_dir("python").join("crash_load.py"));
    command.args([&world.broker.bootstrap(), topic, PARTITIONS, &plan.seed.to_string()]).arg(file);
    let mut load = Load { running: Running::start(command, "crash_load.py")? };
    load.expect("progress 0", PROGRESS_LIMIT)?;
    let mut starts = Vec::new();
    for round in 1..=plan.rounds {
        // Not for luck: the moment of the kill is what the seed chooses.
        std::thread::sleep(Duration::from_millis(chance.u64(100..1500)));
        load.order(&format!("kill {round}"))?;
        world.broker.kill()?;
        let took = world.broker.launch().with_context(|| format!("round {round}"))?;
        starts.push(took);
        load.order(&format!("up {round}"))?;
        load.expect(&format!("progress {round}"), PROGRESS_LIMIT)
            .with_context(|| format!("round {round}: someone does not get on after the restart"))?;
    }
    load.say("stop")?;
    load.expect("stop", FINISH_LIMIT)?;
    let status = load.running.finish(FINISH_LIMIT)?;
    ensure!(status.success(), "the load ended with {status}\n{}", load.output());
    starts.sort_unstable();
    if let (Some(middle), Some(longest)) = (starts.get(starts.len() / 2), starts.last()) {
        println!("restart to ready: median {middle:?}, longest {longest:?}");
    }
    Ok(())
}

/// Where the load writes the log of its client library: the history's name and `.log`.
fn client_log(history: &Path) -> PathBuf {
    let mut name = history.as_os_str().to_owned();
    name.push(".log");
    PathBuf::from(name)
}

fn judge(file: &Path, target: Target) -> Result<()> {
    let events = history::read(file)?;
    let (summary, mut violations) = checker::check(&events);
    println!("{summary:?}");
    if target == Target::Kafka {
        // Kafka writes its log start down once a minute only, so a kill takes it back. Talos
        // promises more, and is held to it.
        let all = violations.len();
        violations.retain(|v| !matches!(v, Violation::WentBack { what: "log start", .. }));
        println!("tolerated of Kafka: log start went back {} times", all - violations.len());
    }
    if violations.is_empty() {
        return Ok(());
    }
    let shown: Vec<_> = violations.iter().take(20).map(|v| format!("  {v:?}")).collect();
    bail!("{} violations, the first ones:\n{}", violations.len(), shown.join("\n"))
}

/// The client program that makes the load.
struct Load {
    running: Running,
}

impl Load {
    fn say(&mut self, line: &str) -> Result<()> {
        let stdin = self.running.stdin().context("the load has no standard input")?;
        writeln!(stdin, "{line}").and_then(|()| stdin.flush()).context("the load has ended")
    }

    /// Gives an order and waits until it stands in the history.
    fn order(&mut self, line: &str) -> Result<()> {
        self.say(line)?;
        self.expect(line, PROGRESS_LIMIT)
    }

    fn expect(&self, wanted: &str, limit: Duration) -> Result<()> {
        let found = self.running.stdout.wait_for(limit, |lines| {
            if lines.iter().any(|line| line == wanted) {
                return Some(true);
            }
            lines.iter().any(|line| line.starts_with("failed ")).then_some(false)
        });
        match found {
            Some(true) => Ok(()),
            Some(false) => bail!("the load failed\n{}", self.output()),
            None => bail!("no {wanted:?} within {limit:?}\n{}", self.output()),
        }
    }

    fn output(&self) -> String {
        let (out, err) = (self.running.stdout.all(), self.running.stderr.all());
        format!("{}\n{}", process::tail(&out), process::tail(&err))
    }
}
