//! What CI runs, step by step; the shorter loops are some of the same steps.
//!
//! A failed step does not hide the others: all that can still run does, and the list at the end
//! names every failure. Invariants: a step that could not run is called skipped, with the reason,
//! never passed; end-to-end tests run only against a binary built in the same run.

use std::ffi::OsStr;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use crate::cargo::{Workspace, cargo, root};
use crate::tidy;

const E2E: &str = "talos-e2e";
/// The version that CI installs where none is found; building it takes 110 s on two cores.
const DENY: &str = "0.20.2";
/// When this variable is set, tools that are missing are installed below the target folder.
const INSTALL: &str = "TALOS_CI_INSTALL";

enum Outcome {
    Passed,
    Failed,
    Skipped(String),
}

struct Step {
    name: &'static str,
    outcome: Outcome,
    took: Duration,
}

struct Ci {
    fail_fast: bool,
    steps: Vec<Step>,
}

impl Ci {
    /// Runs one step, unless an earlier failure already ended the run.
    fn step(&mut self, name: &'static str, run: impl FnOnce() -> Result<Outcome>) {
        if self.fail_fast && self.failed() {
            return;
        }
        println!("\n=== {name}");
        let start = Instant::now();
        let outcome = run().unwrap_or_else(|error| {
            println!("{error:#}");
            Outcome::Failed
        });
        let step = Step { name, outcome, took: start.elapsed() };
        println!("--- {}", step.line());
        self.steps.push(step);
    }

    fn failed(&self) -> bool {
        self.steps.iter().any(|step| matches!(step.outcome, Outcome::Failed))
    }

    fn passed(&self, name: &str) -> bool {
        self.steps.iter().any(|step| step.name == name && matches!(step.outcome, Outcome::Passed))
    }
}

impl Step {
    fn line(&self) -> String {
        let seconds = self.took.as_secs_f64();
        match &self.outcome {
            Outcome::Passed => format!("{:<16} passed   {seconds:>7.1} s", self.name),
            Outcome::Failed => format!("{:<16} FAILED   {seconds:>7.1} s", self.name),
            Outcome::Skipped(why) => format!("{:<16} skipped: {why}", self.name),
        }
    }
}

/// `cargo xtask ci`: true when no step failed.
///
/// # Errors
/// On an unknown flag, or when the workspace cannot be read.
pub(crate) fn run(args: &[String]) -> Result<bool> {
    let fail_fast = match args {
        [] => false,
        [flag] if flag == "--fail-fast" => true,
        _ => bail!("ci takes only --fail-fast, not {args:?}"),
    };
    let workspace = Workspace::load()?;
    let mut ci = Ci { fail_fast, steps: Vec::new() };
    ci.step("fmt", || command(cargo().args(["fmt", "--all", "--check"])));
    ci.step("clippy", || {
        let args = ["clippy", "--workspace", "--all-targets", "--locked", "--keep-going"];
        command(cargo().args(args).args(["--", "-D", "warnings"]))
    });
    ci.step("tidy", || Ok(if tidy::run(&[])? { Outcome::Passed } else { Outcome::Failed }));
    ci.step("doc", || {
        let mut doc = cargo();
        doc.args(["doc", "--no-deps", "--workspace", "--locked", "--keep-going"]);
        command(doc.env("RUSTDOCFLAGS", "-D warnings"))
    });
    ci.step("deny", || deny(&workspace));
    ci.step("test", || command(inner_tests(&workspace).arg("--locked")));
    ci.step("build release", || {
        command(cargo().args(["build", "--release", "--locked", "-p", "talos"]))
    });
    let built = ci.passed("build release");
    ci.step("e2e", || {
        if !workspace.has(E2E) {
            return Ok(Outcome::Skipped(format!("no package {E2E}")));
        }
        if !built {
            return Ok(Outcome::Skipped("no release binary".to_owned()));
        }
        command(cargo().args(["test", "-p", E2E, "--locked", "--no-fail-fast"]))
    });
    println!("\n=== ci");
    ci.steps.iter().for_each(|step| println!("{}", step.line()));
    let total: Duration = ci.steps.iter().map(|step| step.took).sum();
    println!("{:<16}          {:>7.1} s", "total", total.as_secs_f64());
    Ok(!ci.failed())
}

/// `cargo xtask test`: unit and simulation tests.
///
/// # Errors
/// When cargo cannot be run.
pub(crate) fn test(args: &[String]) -> Result<bool> {
    let workspace = Workspace::load()?;
    let outcome = command(inner_tests(&workspace).args(args))?;
    Ok(matches!(outcome, Outcome::Passed))
}

/// `cargo xtask e2e`: builds the release binary, then runs the end-to-end tests whose names
/// contain the filter.
///
/// # Errors
/// When there are no such tests, or cargo cannot be run.
pub(crate) fn e2e(args: &[String]) -> Result<bool> {
    if !Workspace::load()?.has(E2E) {
        bail!("the workspace has no package {E2E}");
    }
    if !matches!(command(cargo().args(["build", "--release", "-p", "talos"]))?, Outcome::Passed) {
        return Ok(false);
    }
    let mut tests = cargo();
    tests.args(["test", "-p", E2E, "--no-fail-fast", "--"]).args(args);
    Ok(matches!(command(&mut tests)?, Outcome::Passed))
}

fn inner_tests(workspace: &Workspace) -> Command {
    let mut tests = cargo();
    tests.args(["test", "--workspace", "--no-fail-fast"]);
    if workspace.has(E2E) {
        tests.args(["--exclude", E2E]);
    }
    tests
}

/// Licences, bans and sources; advisories where their database can be fetched.
fn deny(workspace: &Workspace) -> Result<Outcome> {
    let tools = workspace.target.join("tools");
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path = std::env::join_paths(
        std::iter::once(tools.join("bin")).chain(std::env::split_paths(&path)),
    )?;
    if !has_deny(&path) && std::env::var_os(INSTALL).is_some() {
        println!("installing cargo-deny {DENY} into {}", tools.display());
        let version = ["install", "cargo-deny", "--locked", "--quiet", "--version", DENY];
        command(cargo().args(version).arg("--root").arg(&tools))?;
    }
    if !has_deny(&path) {
        return Ok(Outcome::Skipped("cargo-deny not installed".to_owned()));
    }
    let mut check = cargo();
    check.args(["deny", "--workspace", "check", "licenses", "bans", "sources"]).env("PATH", &path);
    let outcome = command(&mut check)?;
    Ok(if advisories(&path)? { outcome } else { Outcome::Failed })
}

fn has_deny(path: &OsStr) -> bool {
    let mut version = cargo();
    version.args(["deny", "--version"]).env("PATH", path);
    version.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

/// False when an advisory stands against us; true, with a note, when the database is out of reach.
fn advisories(path: &OsStr) -> Result<bool> {
    let mut check = cargo();
    check.args(["deny", "check", "advisories"]).env("PATH", path).current_dir(root());
    let output = check.output().context("cannot run cargo deny")?;
    let errors = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() && errors.contains("failed to fetch advisory database") {
        println!("advisories skipped: their database cannot be fetched from here");
        return Ok(true);
    }
    print!("{errors}");
    Ok(output.status.success())
}

fn command(command: &mut Command) -> Result<Outcome> {
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    println!("$ cargo {}", words.join(" "));
    let status = command.current_dir(root()).status().context("cannot run cargo")?;
    Ok(if status.success() { Outcome::Passed } else { Outcome::Failed })
}
