//! The binary from outside: help, exit codes, the configuration of `serve`.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::process::{Command, Output};

fn talos(args: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_talos"));
    // Nothing of the surroundings may show.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALOS_") {
            command.env_remove(name);
        }
    }
    command.args(args).envs(variables.iter().copied()).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

#[test]
fn every_command_teaches() {
    let top = talos(&["--help"], &[]);
    assert!(top.status.success());
    for command in ["serve", "topic", "group", "produce", "consume", "bench", "dump"] {
        assert!(stdout(&top).contains(&format!("\n  {command} ")), "{command}");
    }
    let with_examples: [&[&str]; 14] = [
        &["serve"],
        &["topic", "create"],
        &["topic", "list"],
        &["topic", "describe"],
        &["topic", "alter"],
        &["topic", "delete"],
        &["group", "list"],
        &["group", "describe"],
        &["group", "reset"],
        &["group", "delete"],
        &["produce"],
        &["consume"],
        &["bench"],
        &["dump"],
    ];
    for command in with_examples {
        let help = talos(&[command, &["--help"]].concat(), &[]);
        assert!(help.status.success(), "{command:?}");
        assert!(stdout(&help).contains("Examples:\n  "), "{command:?}");
    }
}

#[test]
fn the_fixed_forms_are_taken() {
    // With --check nothing is started.
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("talos.toml");
    std::fs::write(&file, "[kafka]\nnum.partitions = 2\n").unwrap();
    let serve = talos(
        &[
            "serve",
            "--check",
            "--json",
            "--listen",
            "127.0.0.1:1",
            "--data-dir",
            "d",
            "--admin",
            "127.0.0.1:2",
            "--node-id",
            "3",
            "--config",
            file.to_str().unwrap(),
            "--set",
            "message.max.bytes=2MiB",
        ],
        &[("TALOS_KAFKA_OFFSETS_RETENTION_MINUTES", "7d")],
    );
    assert!(serve.status.success(), "{}", stderr(&serve));
    let all: serde_json::Value = serde_json::from_str(&stdout(&serve)).unwrap();
    let value = |name: &str| {
        let found = all.as_array().unwrap().iter().find(|key| key["name"] == name).unwrap();
        (found["value"].as_str().unwrap().to_owned(), found["set_by"].as_str().unwrap().to_owned())
    };
    assert_eq!(value("listen"), ("127.0.0.1:1".into(), "flag --listen".into()));
    assert_eq!(value("node_id").0, "3");
    assert_eq!(value("num.partitions"), ("2".into(), format!("{}:2", file.display())));
    assert_eq!(value("message.max.bytes").0, "2097152");
    let by_variable = "variable TALOS_KAFKA_OFFSETS_RETENTION_MINUTES";
    assert_eq!(value("offsets.retention.minutes"), ("10080".into(), by_variable.into()));
    assert_eq!(value("delete.topic.enable"), ("true".into(), "default".into()));
}

#[test]
fn a_wrong_configuration_shows_every_problem_and_ends_with_2() {
    let wrong = talos(
        &["serve", "--listen", "nowhere", "--set", "num.partition=3"],
        &[("TALOS_SERVER_NODE_ID", "-4")],
    );
    assert_eq!(wrong.status.code(), Some(2));
    let told = stderr(&wrong);
    assert!(told.starts_with("error: the configuration has 3 problems\n"), "{told}");
    assert!(
        told.contains("flag --listen: server.listen = \"nowhere\" must be HOST:PORT"),
        "{told}"
    );
    assert!(told.contains("the nearest is num.partitions"), "{told}");
    assert!(told.contains("variable TALOS_SERVER_NODE_ID: = \"-4\" must be"), "{told}");
}

#[test]
fn usage_and_failure_have_their_exit_codes() {
    assert_eq!(talos(&["topic", "create"], &[]).status.code(), Some(2));
    assert_eq!(talos(&["group", "reset", "g", "--topic", "t"], &[]).status.code(), Some(2));
    let address = talos(&["topic", "list", "--bootstrap", "nowhere"], &[]);
    assert_eq!(address.status.code(), Some(2), "{}", stderr(&address));
    // Nothing listens on a port that was just free.
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let refused = talos(&["topic", "list"], &[("TALOS_BOOTSTRAP", &free.to_string())]);
    assert_eq!(refused.status.code(), Some(1));
    let told = stderr(&refused);
    assert!(told.contains(&format!("cannot connect to {free}")), "{told}");
    assert!(told.contains("\n  next: start a broker with `talos serve`"), "{told}");
}
