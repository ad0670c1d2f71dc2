//! `kill -9` under load, with a history checker. `TALOS_E2E_ROUNDS` kills (5), moments chosen by
//! `TALOS_E2E_SEED` (1).
#![allow(clippy::print_stdout, reason = "says how to run it again")]

use std::process::ExitCode;

use talos_e2e::crash::{Plan, kill_under_load};
use talos_e2e::suite::Suite;

fn main() -> ExitCode {
    let mut suite = Suite::new("crash");
    suite.add("kill_9_under_load", |world| {
        let plan = Plan::from_env()?;
        println!("again: TALOS_E2E_ROUNDS={} TALOS_E2E_SEED={}", plan.rounds, plan.seed);
        kill_under_load(world, plan)
    });
    suite.run()
}
