//! Commands against a live broker, as people meet them: brokers that go away, partitions that are
//! offline, wrong input, JSON.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

mod serving;

use std::io::{BufRead as _, BufReader, Lines};
use std::path::Path;
use std::process::{ChildStderr, ChildStdout, Stdio};

use serde_json::Value;
use serving::{Running, Serving, stderr};

/// A `talos consume` that runs.
struct Consuming {
    process: Running,
    out: Lines<BufReader<ChildStdout>>,
    told: Lines<BufReader<ChildStderr>>,
}

impl Consuming {
    fn start(serving: &Serving, args: &[&str]) -> Self {
        let mut command = serving.command(&[&["consume"], args].concat());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let out = BufReader::new(child.stdout.take().unwrap()).lines();
        let told = BufReader::new(child.stderr.take().unwrap()).lines();
        Self { process: Running(child), out, told }
    }

    /// The next line on standard output.
    fn next(&mut self) -> String {
        self.out.next().unwrap().unwrap()
    }

    /// Waits for a line on standard error that contains `text`.
    fn tells(&mut self, text: &str) {
        for line in &mut self.told {
            let line = line.unwrap();
            if line.contains(text) {
                return;
            }
            assert!(!line.starts_with("error"), "{line}");
        }
        panic!("it ended without telling {text:?}");
    }

    fn code(mut self) -> Option<i32> {
        self.process.0.wait().unwrap().code()
    }
}

#[test]
fn consume_tells_that_the_broker_is_away_and_that_it_is_back() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Serving::start(dir.path());
    broker.done(&["topic", "create", "t"], b"");
    broker.done(&["produce", "t"], b"one\n");
    let mut alone = Consuming::start(&broker, &["t", "--from-beginning"]);
    let mut member = Consuming::start(&broker, &["t", "--from-beginning", "--group", "g"]);
    assert_eq!((alone.next(), member.next()), ("one".into(), "one".into()));
    let address = broker.address.clone();
    drop(broker);
    alone.tells(&format!("broker {address} is away, trying again"));
    member.tells(&format!("broker {address} is away, trying again"));
    let broker = Serving::start_on(dir.path(), &address);
    alone.tells(&format!("broker {address} is back"));
    member.tells(&format!("broker {address} is back"));
    broker.done(&["produce", "t"], b"two\n");
    assert_eq!((alone.next(), member.next()), ("two".into(), "two".into()));
    alone.process.signal("-INT");
    assert_eq!(alone.code(), Some(130));
    member.process.signal("-TERM");
    assert_eq!(member.code(), Some(143));
    // The member has left, and what it printed is committed.
    let groups: Value =
        serde_json::from_str(&broker.done(&["group", "describe", "g", "--json"], b"")).unwrap();
    assert_eq!(groups[0]["state"], "Empty", "{groups}");
    assert_eq!(groups[0]["lag"], 0, "{groups}");
}

#[test]
fn one_signal_ends_a_consumer_whose_broker_is_away() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Serving::start(dir.path());
    broker.done(&["topic", "create", "t"], b"");
    broker.done(&["produce", "t"], b"one\n");
    let ways: [(&[&str], &str, i32); 3] = [
        (&["t", "--from-beginning", "--group", "g"], "-TERM", 143),
        (&["t", "--from-beginning", "--partition", "0", "--group", "h"], "-INT", 130),
        (&["t", "--from-beginning"], "-TERM", 143),
    ];
    let mut all: Vec<Consuming> =
        ways.iter().map(|(args, _, _)| Consuming::start(&broker, args)).collect();
    all.iter_mut().for_each(|consuming| assert_eq!(consuming.next(), "one"));
    drop(broker);
    for (mut consuming, (_, signal, code)) in all.into_iter().zip(ways) {
        consuming.tells("is away");
        consuming.process.signal(signal);
        assert_eq!(consuming.code(), Some(code));
    }
}

#[test]
fn a_consumer_gives_up_after_its_timeout_when_it_has_one() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Serving::start(dir.path());
    broker.done(&["topic", "create", "t"], b"");
    broker.done(&["produce", "t"], b"one\n");
    let mut consuming = Consuming::start(&broker, &["t", "--from-beginning", "--timeout", "1s"]);
    assert_eq!(consuming.next(), "one");
    drop(broker);
    consuming.tells("is away");
    let rest: Vec<String> = (&mut consuming.told).map(Result::unwrap).collect();
    assert!(rest[0].starts_with("error: t could not be read for 1s: "), "{rest:?}");
    assert_eq!(consuming.code(), Some(1));
}

/// A broker on which partition 1 of `two` is offline and partition 0 is not; the group `g` has
/// committed offsets for both.
fn half_offline(data: &Path) -> Serving {
    let broker = Serving::start(data);
    broker.done(&["topic", "create", "two", "--partitions", "2"], b"");
    let write = |broker: &Serving, partition: &str, text: &str| {
        broker.done(&["produce", "two", "--partition", partition], text.as_bytes());
    };
    write(&broker, "0", "healthy-1\n");
    write(&broker, "1", "ill-1\n");
    broker.done(&["consume", "two", "--from-beginning", "--exit", "--group", "g"], b"");
    write(&broker, "1", "ill-2\n");
    // What follows the damage proves what was before it.
    write(&broker, "1", "ill-3\n");
    write(&broker, "0", "healthy-2\n");
    broker.done(&["consume", "two", "--from-beginning", "--exit", "--group", "g"], b"");
    drop(broker);
    let journal = data.join("brokers/0-1/journal-0000-000000000000");
    let mut bytes = std::fs::read(&journal).unwrap();
    let at = bytes.windows(5).position(|window| window == b"ill-2").unwrap();
    bytes[at] ^= 1;
    std::fs::write(&journal, bytes).unwrap();
    Serving::start(data)
}

#[test]
fn one_offline_partition_leaves_the_others_of_use() {
    let dir = tempfile::tempdir().unwrap();
    let broker = half_offline(dir.path());
    let link = "docs/operations.md#a-partition-is-offline";
    let described: Value =
        serde_json::from_str(&broker.done(&["topic", "describe", "two", "--json"], b"")).unwrap();
    assert_eq!(described[0]["offline"], serde_json::json!([1]), "{described}");
    assert!(broker.done(&["topic", "describe", "two"], b"").contains("1 offline"));

    // Without keys all goes where it can.
    let lines: String = (0..20).map(|n| format!("line-{n}-{}\n", "x".repeat(8_000))).collect();
    let produced = broker.run(&["produce", "two"], lines.as_bytes());
    assert!(produced.status.success(), "{}", stderr(&produced));
    assert!(stderr(&produced).contains(link), "{}", stderr(&produced));

    // With keys, what belongs to the offline partition is counted and named.
    let keyed: String = (0..20).map(|n| format!("{n}:keyed\n")).collect();
    let produced = broker.run(&["produce", "two", "--key-separator", ":"], keyed.as_bytes());
    assert_eq!(produced.status.code(), Some(1));
    let told = stderr(&produced);
    assert!(told.contains("partition 1 of topic two is offline") && told.contains(link), "{told}");
    assert!(told.contains("standard input line ") && !told.contains("20 not written"), "{told}");

    let read = broker.run(&["consume", "two", "--from-beginning", "--exit"], b"");
    assert_eq!(read.status.code(), Some(1));
    let out = String::from_utf8(read.stdout.clone()).unwrap();
    assert!(out.starts_with("healthy-1\nhealthy-2\nline-0-"), "{out}");
    assert!(out.contains("line-19-") && out.contains("keyed"), "{out}");
    let told = stderr(&read);
    assert!(told.contains("error: partition 1 of two not read") && told.contains(link), "{told}");

    // Lag is not known where the end is not.
    let group = broker.done(&["group", "describe", "g", "--json"], b"");
    let group: Value = serde_json::from_str(&group).unwrap();
    assert_eq!(group[0]["lag"], Value::Null, "{group}");
    let offsets = group[0]["offsets"].as_array().unwrap();
    let lag = |partition: usize| (&offsets[partition]["end_offset"], &offsets[partition]["lag"]);
    assert_eq!(lag(1), (&Value::Null, &Value::Null), "{group}");
    assert!(lag(0).1.as_i64().unwrap() > 0, "{group}");
    assert!(broker.done(&["group", "describe", "g"], b"").contains("  lag - ("));
}

#[test]
fn a_wrong_line_is_named_and_what_was_written_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Serving::start(&dir.path().join("data"));
    broker.done(&["topic", "create", "t"], b"");
    let file = dir.path().join("lines.txt");
    std::fs::write(&file, "a:1\nb:2\nno key\nc:3\n").unwrap();
    let name = file.to_str().unwrap();
    let args = ["produce", "t", "--key-separator", ":", "--file", name];
    let wrong = broker.run(&args, b"");
    assert_eq!(wrong.status.code(), Some(1));
    let told = stderr(&wrong);
    let place = format!("error: {name} line 3: there is no \":\" in \"no key\"");
    assert!(told.starts_with(&place), "{told}");
    assert!(told.contains("; 2 records before it were written\n"), "{told}");
    assert!(told.contains("--skip-bad-lines"), "{told}");

    let skipping = broker.run(&[&args[..], &["--skip-bad-lines", "--json"]].concat(), b"");
    assert!(skipping.status.success(), "{}", stderr(&skipping));
    assert!(stderr(&skipping).contains("1 line was skipped"), "{}", stderr(&skipping));
    let report: Value = serde_json::from_slice(&skipping.stdout).unwrap();
    assert_eq!((&report["written"], &report["skipped"]), (&3.into(), &1.into()), "{report}");

    // A record that the broker refuses names its line too.
    broker.done(&["topic", "alter", "t", "--config", "max.message.bytes=1000"], b"");
    let large = format!("small\n{}\n", "x".repeat(5_000));
    let refused = broker.run(&["produce", "t", "--linger", "0ms"], large.as_bytes());
    assert_eq!(refused.status.code(), Some(1));
    let told = stderr(&refused);
    assert!(told.contains("the first that failed is standard input line "), "{told}");
}

#[test]
fn refused_names_and_configurations_say_what_would_be_right() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Serving::start(dir.path());
    let name = broker.run(&["topic", "create", "a/b"], b"");
    assert!(stderr(&name).contains("next: a name has 1 to 249 of the letters"), "{name:?}");
    let key = broker.run(&["topic", "create", "a", "--config", "retenton.ms=5"], b"");
    assert!(stderr(&key).contains("retenton.ms; did you mean retention.ms?"), "{key:?}");
    broker.done(&["topic", "create", "a"], b"");
    let key = broker.run(&["topic", "alter", "a", "--unset", "retenton.ms"], b"");
    assert!(stderr(&key).contains("retenton.ms; did you mean retention.ms?"), "{key:?}");
    let number = broker.run(&["topic", "create", "b", "--partitions", "-1"], b"");
    assert_eq!(number.status.code(), Some(2));
    assert!(stderr(&number).contains("invalid value '-1' for '--partitions"), "{number:?}");
}

#[test]
fn json_of_every_command_has_its_names() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Serving::start(dir.path());
    let json = |args: &[&str], input: &[u8]| -> Value {
        serde_json::from_str(&broker.done(&[args, &["--json"]].concat(), input)).unwrap()
    };
    let names = |value: &Value| -> Vec<String> {
        let first = value.as_array().and_then(|all| all.first()).unwrap_or(value);
        first.as_object().unwrap().keys().cloned().collect()
    };
    let empty = serde_json::json!([]);
    assert_eq!(json(&["topic", "list"], b""), empty);
    assert_eq!(json(&["group", "list"], b""), empty);
    let dry = json(&["topic", "create", "t", "--dry-run"], b"");
    assert_eq!(names(&dry), ["created", "possible", "topic"]);
    let created = json(&["topic", "create", "t", "--partitions", "2"], b"");
    assert_eq!(names(&created), ["created", "id", "partitions", "topic"]);
    let listed = json(&["topic", "list"], b"");
    assert_eq!(names(&listed), ["id", "internal", "offline", "partitions", "topic"]);
    assert_eq!(listed[0]["id"], created["id"]);
    let altered = json(&["topic", "alter", "t", "--config", "retention.ms=1000000"], b"");
    assert_eq!(names(&altered), ["changed", "partitions", "topic"]);
    let produced = json(&["produce", "t"], b"hello\n");
    let all = ["bad_line", "partitions", "refused", "skipped", "topic", "unknown", "written"];
    assert_eq!(names(&produced), all);
    broker.done(&["consume", "t", "--group", "g", "--from-beginning", "--exit"], b"");
    let described = json(&["topic", "describe", "t"], b"");
    let all = ["configs", "id", "internal", "offline", "partitions", "topic"];
    assert_eq!(names(&described), all);
    let all =
        ["end_offset", "isr", "leader", "leader_epoch", "partition", "replicas", "start_offset"];
    assert_eq!(names(&described[0]["partitions"]), all);
    assert_eq!(described[0]["configs"]["retention.ms"], "1000000");
    assert_eq!(names(&json(&["group", "list"], b"")), ["group", "state", "type"]);
    let group = json(&["group", "describe", "g"], b"");
    let all = ["assignor", "group", "known_lag", "lag", "members", "offsets", "state"];
    assert_eq!(names(&group), all);
    let all = ["committed", "end_offset", "lag", "member", "partition", "topic"];
    assert_eq!(names(&group[0]["offsets"]), all);
    let reset = json(&["group", "reset", "g", "--topic", "t", "--to-earliest"], b"");
    assert_eq!(names(&reset), ["executed", "group", "offsets"]);
    assert_eq!(names(&reset["offsets"]), ["committed", "new", "partition", "topic"]);
    assert_eq!(names(&json(&["group", "delete", "g"], b"")), ["deleted"]);
    let load = ["bench", "--records", "50", "--partitions", "2", "--rate", "1000"];
    let measured = json(&load, b"");
    let all = [
        "consumed",
        "failed",
        "first_error",
        "interrupted",
        "produced",
        "seconds",
        "settings",
        "topic",
        "unanswered",
    ];
    assert_eq!(names(&measured), all);
    assert_eq!(measured["produced"]["records"], 50);
    assert!(measured["produced"]["latency_us"]["p99"].as_u64().unwrap() > 0);
    let read =
        broker.done(&["consume", "t", "--from-beginning", "--exit", "--format", "json"], b"");
    let all =
        ["headers", "key", "offset", "partition", "timestamp", "timestamp_type", "topic", "value"];
    assert_eq!(names(&serde_json::from_str(&read).unwrap()), all);
    assert_eq!(names(&json(&["topic", "delete", "t"], b"")), ["deleted"]);
}

#[test]
fn a_load_that_is_interrupted_reports_what_it_measured() {
    let dir = tempfile::tempdir().unwrap();
    let broker = Serving::start(dir.path());
    broker.done(&["topic", "create", "load"], b"");
    // Two hours of load: only the signal can end it.
    let args = ["bench", "--rate", "500", "--duration", "2h", "--warmup", "0ms", "--json"];
    let mut command = broker.command(&[&args[..], &["--topic", "load"]].concat());
    let child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut process = Running(child);
    // Once records arrive, it runs.
    let reading = Consuming::start(&broker, &["load", "--max", "20"]);
    assert_eq!(reading.code(), Some(0));
    process.signal("-INT");
    let mut out = String::new();
    std::io::Read::read_to_string(&mut process.0.stdout.take().unwrap(), &mut out).unwrap();
    assert_eq!(process.0.wait().unwrap().code(), Some(130));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&report["interrupted"], &report["failed"]), (&true.into(), &0.into()), "{report}");
    assert!(report["produced"]["records"].as_u64().unwrap() >= 20, "{report}");
}
