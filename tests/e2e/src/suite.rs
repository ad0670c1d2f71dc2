//! The runner of a suite: named scenarios over one broker process, then a line with the counts.
//!
//! A test file calls [`Suite::new`], adds scenarios and returns [`Suite::run`]. The command line is
//! the usual one: words are parts of scenario names, `--exact` makes them whole names, `--skip`
//! takes away, `--list` lists. Invariants: the broker starts only when a scenario runs; it is ended
//! before `run` returns, also when a scenario panics; nothing is tried twice.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::broker::Broker;
use crate::client::{Client, Sessions};
use crate::services::Services;

/// What a scenario works with.
pub struct World {
    /// Where client programs come from.
    pub services: Services,
    /// The broker, shared by the scenarios of a file.
    pub broker: Broker,
    /// Client programs that are kept running from verb to verb.
    pub sessions: RefCell<Sessions>,
}

/// What the scenarios of a suite share: set up before the first, taken down after the last.
pub trait Stage: Sized {
    /// Sets it up; `suite` is the suite's name.
    ///
    /// # Errors
    /// When that cannot be done: no scenario runs.
    fn open(suite: &'static str) -> Result<Self>;

    /// What the broker said, for a scenario that failed.
    fn log_tail(&self) -> String;

    /// Takes it down; `failed`: keep what helps to find out why.
    ///
    /// # Errors
    /// When something was not as it should be at the end.
    fn close(self, suite: &'static str, failed: bool) -> Result<()>;
}

impl Stage for World {
    fn open(suite: &'static str) -> Result<Self> {
        let services = Services::open()?;
        let broker = Broker::start(&services).context("cannot start the broker under test")?;
        println!("{suite}: against {:?}", broker.target());
        Ok(Self { services, broker, sessions: RefCell::default() })
    }

    fn log_tail(&self) -> String {
        self.broker.log_tail()
    }

    fn close(mut self, suite: &'static str, failed: bool) -> Result<()> {
        if failed {
            let kept = std::env::temp_dir().join(format!("talos-e2e-{suite}-broker.log"));
            self.broker.save_log(&kept)?;
            println!("the broker's whole log is kept in {}", kept.display());
        }
        self.broker.stop().context("the broker did not stop cleanly at the end")
    }
}

type Body<S> = Box<dyn Fn(&mut S) -> Result<()>>;

/// Scenarios in the order in which they run.
pub struct Suite<S = World> {
    name: &'static str,
    scenarios: Vec<(String, Body<S>)>,
}

impl Suite<World> {
    /// Adds all common scenarios for one client.
    pub fn add_client(&mut self, client: Client) {
        for (name, body) in crate::scenarios::ALL {
            if crate::scenarios::applies(client, name) {
                self.add(format!("{}::{name}", client.name()), move |world| {
                    body(&mut crate::scenarios::Ctx::new(world, client, name))
                });
            }
        }
    }
}

impl<S: Stage> Suite<S> {
    /// An empty suite; `name` is that of the test file.
    pub fn new(name: &'static str) -> Self {
        Self { name, scenarios: Vec::new() }
    }

    /// Adds a scenario.
    pub fn add(&mut self, name: impl Into<String>, body: impl Fn(&mut S) -> Result<()> + 'static) {
        self.scenarios.push((name.into(), Box::new(body)));
    }

    /// Runs what the command line asks for.
    pub fn run(self) -> ExitCode {
        let choice = Choice::from_args(std::env::args().skip(1));
        let chosen: Vec<_> =
            self.scenarios.into_iter().filter(|(name, _)| choice.wants(name)).collect();
        if choice.list {
            chosen.iter().for_each(|(name, _)| println!("{name}: test"));
            return ExitCode::SUCCESS;
        }
        if chosen.is_empty() {
            println!("\n0 passed, 0 failed");
            return ExitCode::SUCCESS;
        }
        match run_all(self.name, &chosen) {
            Ok((passed, failed)) => {
                println!("\n{passed} passed, {} failed", failed.len());
                if failed.is_empty() {
                    return ExitCode::SUCCESS;
                }
                println!("failed: {}", failed.join(" "));
                println!("again: cargo test -p talos-e2e --test {} -- {}", self.name, failed[0]);
                ExitCode::FAILURE
            }
            Err(error) => {
                println!("{}: {error:#}\n\n0 passed, {} failed", self.name, chosen.len());
                ExitCode::FAILURE
            }
        }
    }
}

fn run_all<S: Stage>(
    suite: &'static str,
    chosen: &[(String, Body<S>)],
) -> Result<(usize, Vec<String>)> {
    let mut stage = S::open(suite)?;
    println!("{suite}: {} scenarios", chosen.len());
    let mut failed = Vec::new();
    for (name, body) in chosen {
        let began = Instant::now();
        let result = catch_unwind(AssertUnwindSafe(|| body(&mut stage)));
        let took = seconds(began.elapsed());
        match result {
            Ok(Ok(())) => println!("test {name} ... ok ({took})"),
            Ok(Err(error)) => {
                println!("test {name} ... FAILED ({took})\n{error:#}\n{}", stage.log_tail());
                failed.push(name.clone());
            }
            Err(_) => {
                println!("test {name} ... PANICKED ({took})\n{}", stage.log_tail());
                failed.push(name.clone());
            }
        }
    }
    stage.close(suite, !failed.is_empty())?;
    Ok((chosen.len() - failed.len(), failed))
}

fn seconds(took: Duration) -> String {
    format!("{:.1} s", took.as_secs_f64())
}

/// The scenarios that a command line chooses.
#[derive(Default)]
struct Choice {
    words: Vec<String>,
    skip: Vec<String>,
    exact: bool,
    list: bool,
}

impl Choice {
    fn from_args(args: impl Iterator<Item = String>) -> Self {
        let mut choice = Self::default();
        let mut args = args;
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--exact" => choice.exact = true,
                "--list" => choice.list = true,
                "--skip" => choice.skip.extend(args.next()),
                // Taken by the usual test runner with a value; they change nothing here.
                "--test-threads" | "--format" | "--color" | "--logfile" => drop(args.next()),
                flag if flag.starts_with('-') => {}
                _ => choice.words.push(arg),
            }
        }
        choice
    }

    fn wants(&self, name: &str) -> bool {
        let matches =
            |word: &String| if self.exact { name == word } else { name.contains(word.as_str()) };
        (self.words.is_empty() || self.words.iter().any(matches)) && !self.skip.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::Choice;

    fn choice(args: &[&str]) -> Choice {
        Choice::from_args(args.iter().map(|a| (*a).to_owned()))
    }

    #[test]
    fn words_choose_by_part_or_whole_name() {
        assert!(choice(&[]).wants("a::codecs"));
        assert!(choice(&["codec", "--nocapture"]).wants("a::codecs"));
        assert!(!choice(&["codec", "--exact"]).wants("a::codecs"));
        assert!(choice(&["a::codecs", "--exact"]).wants("a::codecs"));
        assert!(!choice(&["--skip", "codecs"]).wants("a::codecs"));
        assert!(choice(&["--test-threads", "1"]).wants("a::codecs"));
    }
}
