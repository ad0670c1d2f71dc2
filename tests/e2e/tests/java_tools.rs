//! Kafka's own command-line tools, of 4.4.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use talos_e2e::client::java;
use talos_e2e::process::{self, Output};
use talos_e2e::suite::{Suite, World};

const LIMIT: Duration = Duration::from_secs(90);
const TOPIC: &str = "TopicCommand";
const GROUP: &str = "consumer.group.ConsumerGroupCommand";
const PRODUCER: &str = "ConsoleProducer";
const CONSUMER: &str = "consumer.ConsoleConsumer";
const OFFSETS: &str = "GetOffsetShell";
const CONFIG: &str = "ConfigCommand";

fn main() -> ExitCode {
    let mut suite = Suite::new("java_tools");
    suite.add("topic_command", topic_command);
    suite.add("console", console);
    suite.add("verifiable", verifiable);
    suite.add("consumer_groups", consumer_groups);
    suite.add("offsets_and_deletion", offsets_and_deletion);
    suite.add("configs", configs);
    suite.run()
}

fn run(world: &World, class: &str, args: &[&str], input: &str) -> Result<Output> {
    let mut tool = java(&world.services.kafka_jars()?);
    tool.arg(format!("org.apache.kafka.tools.{class}"));
    tool.args(["--bootstrap-server", &world.broker.bootstrap()]).args(args);
    process::run(tool, &format!("{class} {args:?}"), input.as_bytes(), LIMIT)
}

/// Runs a tool that must succeed; gives what it printed, as one text.
fn ok(world: &World, class: &str, args: &[&str], input: &str) -> Result<String> {
    let output = run(world, class, args, input)?;
    let (out, err) = (output.stdout.join("\n"), output.stderr.join("\n"));
    ensure!(output.status.success(), "{class} {args:?}: {}\n{out}\n{err}", output.status);
    Ok(out)
}

/// Runs a tool that must fail and say a certain thing.
fn fails(world: &World, class: &str, args: &[&str], word: &str) -> Result<()> {
    let output = run(world, class, args, "")?;
    let said = [output.stdout, output.stderr].concat().join("\n");
    ensure!(!output.status.success(), "{class} {args:?} did not fail: {said}");
    ensure!(said.contains(word), "{class} {args:?} does not say {word:?}: {said}");
    Ok(())
}

fn has(text: &str, words: &[&str]) -> Result<()> {
    let missing: Vec<_> = words.iter().filter(|word| !text.contains(**word)).collect();
    ensure!(missing.is_empty(), "{missing:?} not in: {text}");
    Ok(())
}

/// Topics are created, listed, described, enlarged and deleted.
fn topic_command(world: &mut World) -> Result<()> {
    let topic = ["--topic", "tool-topic"];
    let create = ["--create", "--partitions", "2", "--config", "retention.ms=5000000"];
    ok(world, TOPIC, &[&topic[..], &create[..]].concat(), "")?;
    fails(world, TOPIC, &[&topic[..], &create[..]].concat(), "already exists")?;
    has(&ok(world, TOPIC, &["--list"], "")?, &["tool-topic"])?;
    let described = ok(world, TOPIC, &[&topic[..], &["--describe"]].concat(), "")?;
    let wanted = ["PartitionCount: 2", "ReplicationFactor: 1", "retention.ms=5000000", "TopicId: "];
    has(&described, &wanted)?;
    ok(world, TOPIC, &[&topic[..], &["--alter", "--partitions", "4"]].concat(), "")?;
    let described = ok(world, TOPIC, &[&topic[..], &["--describe"]].concat(), "")?;
    has(&described, &["PartitionCount: 4"])?;
    ok(world, TOPIC, &[&topic[..], &["--delete"]].concat(), "")?;
    let listed = ok(world, TOPIC, &["--list"], "")?;
    ensure!(!listed.contains("tool-topic"), "the deleted topic is listed: {listed}");
    fails(world, TOPIC, &["--describe", "--topic", "tool-topic"], "does not exist")
}

/// Lines with keys and headers go in and come out, with each codec.
fn console(world: &mut World) -> Result<()> {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("tool-console-{codec}");
        let input: String =
            (0..50).map(|i| format!("h{i}:x\tkey{i}\tvalue {i} {codec}\n")).collect();
        let produce = ["--topic", &topic, "--compression-codec", codec];
        let reader =
            ["--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"];
        ok(world, PRODUCER, &[&produce[..], &reader[..]].concat(), &input)?;
        let consume = ["--topic", &topic, "--from-beginning", "--max-messages", "50"];
        let show = [
            "--formatter-property",
            "print.key=true",
            "--formatter-property",
            "print.headers=true",
            "--timeout-ms",
            "30000",
        ];
        let seen = ok(world, CONSUMER, &[&consume[..], &show[..]].concat(), "")?;
        ensure!(seen == input.trim_end(), "{codec}: another content: {seen}");
    }
    Ok(())
}

/// Kafka's own system-test programs: all is acknowledged, and read once by a group.
fn verifiable(world: &mut World) -> Result<()> {
    let create = ["--create", "--topic", "tool-verifiable", "--partitions", "3"];
    ok(world, TOPIC, &create, "")?;
    let produce = ["--topic", "tool-verifiable", "--max-messages", "2000", "--acks", "-1"];
    let said = ok(world, "VerifiableProducer", &produce, "")?;
    has(&said, &["\"name\":\"shutdown_complete\"", "\"sent\":2000", "\"acked\":2000"])?;
    let consume = [
        "--topic",
        "tool-verifiable",
        "--group-id",
        "tool-verifiable-group",
        "--group-protocol",
        "classic",
        "--max-messages",
        "2000",
    ];
    let said = ok(world, "VerifiableConsumer", &consume, "")?;
    has(&said, &["partitions_assigned", "offsets_committed", "shutdown_complete"])?;
    let counts = said.lines().filter_map(|line| {
        let event: serde_json::Value = serde_json::from_str(line).ok()?;
        (event["name"] == "records_consumed").then(|| event["count"].as_i64()).flatten()
    });
    ensure!(counts.sum::<i64>() == 2000, "not 2000 records were read: {said}");
    Ok(())
}

/// Groups are listed, described, reset and deleted.
fn consumer_groups(world: &mut World) -> Result<()> {
    let (topic, group) = ("tool-group-topic", ["--group", "tool-group"]);
    ok(world, TOPIC, &["--create", "--topic", topic, "--partitions", "1"], "")?;
    ok(world, PRODUCER, &["--topic", topic], "a\nb\nc\n")?;
    let consume = ["--topic", topic, "--from-beginning", "--max-messages", "2"];
    let settle = ["--timeout-ms", "30000", "--command-property", "group.protocol=classic"];
    ok(world, CONSUMER, &[&consume[..], &group[..], &settle[..]].concat(), "")?;
    has(&ok(world, GROUP, &["--list"], "")?, &["tool-group"])?;
    let described = ok(world, GROUP, &[&group[..], &["--describe"]].concat(), "")?;
    let row = described.lines().find(|line| line.contains(topic)).context("a row")?;
    let words: Vec<_> = row.split_whitespace().collect();
    // Committed, end, lag; whether a leader epoch stands between differs between versions.
    ensure!(
        words.windows(3).any(|three| three == ["2", "3", "1"]),
        "the group has not read two of three records: {described}"
    );
    let state = ok(world, GROUP, &[&group[..], &["--describe", "--state"]].concat(), "")?;
    has(&state, &["Empty"])?;
    let reset = ["--reset-offsets", "--topic", topic, "--to-earliest", "--execute"];
    ok(world, GROUP, &[&group[..], &reset[..]].concat(), "")?;
    let again = ["--topic", topic, "--max-messages", "3"];
    let seen = ok(world, CONSUMER, &[&again[..], &group[..], &settle[..]].concat(), "")?;
    ensure!(seen == "a\nb\nc", "not read again from the start: {seen}");
    ok(world, GROUP, &[&group[..], &["--delete"]].concat(), "")?;
    let listed = ok(world, GROUP, &["--list"], "")?;
    ensure!(!listed.lines().any(|line| line == "tool-group"), "still listed: {listed}");
    Ok(())
}

/// `GetOffsetShell` and `DeleteRecordsCommand`.
fn offsets_and_deletion(world: &mut World) -> Result<()> {
    let topic = "tool-offsets";
    ok(world, TOPIC, &["--create", "--topic", topic, "--partitions", "2"], "")?;
    let lines: String = (0..40).map(|i| format!("{i}\n")).collect();
    ok(world, PRODUCER, &["--topic", topic], &lines)?;
    let ends = ok(world, OFFSETS, &["--topic", topic, "--time", "-1"], "")?;
    let total: i64 = ends.lines().filter_map(|l| l.rsplit(':').next()?.parse::<i64>().ok()).sum();
    ensure!(total == 40, "not 40 records: {ends}");
    let starts = ok(world, OFFSETS, &["--topic", topic, "--time", "-2"], "")?;
    ensure!(starts == format!("{topic}:0:0\n{topic}:1:0"), "other starts: {starts}");
    let dir = tempfile::TempDir::with_prefix("talos-e2e-")?;
    let file = dir.path().join("delete.json");
    let (partition, end) = if ends.contains(&format!("{topic}:0:0")) { (1, 40) } else { (0, 10) };
    let place = format!(r#"{{"topic":"{topic}","partition":{partition},"offset":{}}}"#, end.min(5));
    std::fs::write(&file, format!(r#"{{"version":1,"partitions":[{place}]}}"#))?;
    let path = file.to_str().context("path")?;
    let said = ok(world, "DeleteRecordsCommand", &["--offset-json-file", path], "")?;
    has(&said, &["low_watermark: "])?;
    let starts = ok(world, OFFSETS, &["--topic", topic, "--time", "earliest"], "")?;
    ensure!(starts.contains(&format!("{topic}:{partition}:")), "no start: {starts}");
    ensure!(!starts.contains(&format!("{topic}:{partition}:0")), "nothing deleted: {starts}");
    Ok(())
}

/// Settings of topics and brokers are described and changed.
fn configs(world: &mut World) -> Result<()> {
    let topic = ["--entity-type", "topics", "--entity-name", "tool-configs"];
    ok(world, TOPIC, &["--create", "--topic", "tool-configs", "--partitions", "1"], "")?;
    let add = ["--alter", "--add-config", "retention.ms=1234567,max.message.bytes=2000000"];
    ok(world, CONFIG, &[&topic[..], &add[..]].concat(), "")?;
    let described = ok(world, CONFIG, &[&topic[..], &["--describe"]].concat(), "")?;
    has(
        &described,
        &["retention.ms=1234567", "max.message.bytes=2000000", "DYNAMIC_TOPIC_CONFIG"],
    )?;
    let delete = ["--alter", "--delete-config", "retention.ms"];
    ok(world, CONFIG, &[&topic[..], &delete[..]].concat(), "")?;
    let described = ok(world, CONFIG, &[&topic[..], &["--describe"]].concat(), "")?;
    ensure!(!described.contains("retention.ms=1234567"), "still there: {described}");
    let all = ok(world, CONFIG, &[&topic[..], &["--describe", "--all"]].concat(), "")?;
    has(&all, &["retention.ms=604800000", "DEFAULT_CONFIG"])?;
    let broker = ["--entity-type", "brokers", "--entity-name", "1", "--describe", "--all"];
    has(&ok(world, CONFIG, &broker, "")?, &["auto.create.topics.enable=true", "num.partitions=1"])
}
