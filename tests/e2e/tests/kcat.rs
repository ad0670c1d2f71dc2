//! `kcat` 1.7 with the old librdkafka that Debian ships: the first program that a new user tries.
#![allow(
    clippy::disallowed_methods,
    reason = "waits for real processes in real time; nothing here is simulated"
)]

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use talos_e2e::client::Client;
use talos_e2e::process::{self, Running};
use talos_e2e::suite::{Suite, World};

const LIMIT: Duration = Duration::from_secs(60);

fn main() -> ExitCode {
    let mut suite = Suite::new("kcat");
    suite.add("metadata", metadata);
    suite.add("keys_headers_nulls", keys_headers_nulls);
    suite.add("codecs", codecs);
    suite.add("acks_and_idempotence", acks_and_idempotence);
    suite.add("ten_mebibytes", ten_mebibytes);
    suite.add("too_large", too_large);
    suite.add("offsets", offsets);
    suite.add("group_of_two", group_of_two);
    suite.run()
}

/// Runs `kcat` with an address, arguments and input to its good end; gives what it printed.
fn kcat(world: &World, args: &[&str], input: &[u8]) -> Result<Vec<String>> {
    process::check(command(world, args)?, &format!("kcat {args:?}"), input, LIMIT)
}

fn command(world: &World, args: &[&str]) -> Result<std::process::Command> {
    world.services.kcat()?;
    let mut kcat = process::command("kcat");
    kcat.args(["-b", &world.broker.bootstrap()]).args(args);
    Ok(kcat)
}

fn create(world: &World, topic: &str, partitions: &str, configs: &str) -> Result<()> {
    let args = [("topic", topic), ("partitions", partitions), ("configs", configs)];
    let bootstrap = world.broker.bootstrap();
    let answer = Client::Confluent.call(&world.services, &bootstrap, "create", &args)?;
    ensure!(answer["ok"] == true, "cannot create {topic}: {answer}");
    Ok(())
}

/// Reads a topic from its start to its present end.
fn read_all(world: &World, topic: &str, format: &str) -> Result<Vec<String>> {
    let args = ["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", format];
    kcat(world, &args, b"")
}

/// `-L` names the broker and its topics; a topic comes into being when it is produced to.
fn metadata(world: &mut World) -> Result<()> {
    kcat(world, &["-P", "-t", "kcat-auto", "-p", "0"], b"hello\n")?;
    let lines = kcat(world, &["-L", "-J"], b"")?;
    let found: Value = serde_json::from_str(&lines.join("\n")).context("metadata is JSON")?;
    let brokers = found["brokers"].as_array().context("brokers")?;
    ensure!(brokers.len() == 1, "not one broker: {found}");
    ensure!(brokers[0]["name"] == world.broker.bootstrap(), "another address: {found}");
    let topics = found["topics"].as_array().context("topics")?;
    let topic = topics.iter().find(|t| t["topic"] == "kcat-auto").context("the topic")?;
    let partition = &topic["partitions"][0];
    ensure!(partition["leader"] == brokers[0]["id"], "no leader: {topic}");
    ensure!(partition["isrs"][0]["id"] == brokers[0]["id"], "no replica: {topic}");
    ensure!(read_all(world, "kcat-auto", "%s\n")? == ["hello"]);
    Ok(())
}

/// Keys, headers, and null keys and values as such.
fn keys_headers_nulls(world: &mut World) -> Result<()> {
    let topic = "kcat-records";
    create(world, topic, "1", "")?;
    let produce = ["-P", "-t", topic, "-K", ":", "-Z", "-H", "one=1", "-H", "two=zwei"];
    kcat(world, &produce, b"k1:v1\n:v2\nk3:\n")?;
    let seen = read_all(world, topic, "%o %k %K %s %S %h\n")?;
    let wanted =
        ["0 k1 2 v1 2 one=1,two=zwei", "1  -1 v2 2 one=1,two=zwei", "2 k3 2  -1 one=1,two=zwei"];
    ensure!(seen == wanted, "read {seen:?}");
    Ok(())
}

/// Each codec.
fn codecs(world: &mut World) -> Result<()> {
    for codec in ["none", "gzip", "snappy", "lz4", "zstd"] {
        let topic = format!("kcat-{codec}");
        create(world, &topic, "1", "")?;
        let lines: Vec<String> = (0..1000).map(|i| format!("line {i} {codec}")).collect();
        let input = lines.join("\n");
        kcat(world, &["-P", "-t", &topic, "-p", "0", "-z", codec], input.as_bytes())?;
        ensure!(read_all(world, &topic, "%s\n")? == lines, "{codec}: another content");
    }
    Ok(())
}

/// Each `acks`, and an idempotent producer.
fn acks_and_idempotence(world: &mut World) -> Result<()> {
    create(world, "kcat-acks", "1", "")?;
    for setting in ["acks=0", "acks=1", "acks=all", "enable.idempotence=true"] {
        let produce = ["-P", "-t", "kcat-acks", "-p", "0", "-X", setting];
        kcat(world, &produce, format!("{setting}\n").as_bytes())?;
    }
    let mut seen = read_all(world, "kcat-acks", "%s\n")?;
    seen.sort();
    ensure!(seen == ["acks=0", "acks=1", "acks=all", "enable.idempotence=true"], "{seen:?}");
    Ok(())
}

/// One record of 10 MiB.
fn ten_mebibytes(world: &mut World) -> Result<()> {
    create(world, "kcat-large", "1", "max.message.bytes=12000000")?;
    let large = vec![b'x'; 10 << 20];
    let produce = ["-P", "-t", "kcat-large", "-p", "0", "-X", "message.max.bytes=20000000"];
    kcat(world, &produce, &large)?;
    let seen = read_all(world, "kcat-large", "%S %s\n")?;
    ensure!(seen.len() == 1, "{} records", seen.len());
    let wanted = [b"10485760 ", large.as_slice()].concat();
    ensure!(seen[0].as_bytes() == wanted, "another content");
    Ok(())
}

/// A record above `max.message.bytes` is refused, and says why.
fn too_large(world: &mut World) -> Result<()> {
    create(world, "kcat-small", "1", "max.message.bytes=1000")?;
    let produce = command(world, &["-P", "-t", "kcat-small", "-p", "0"])?;
    let output = process::run(produce, "kcat -P", &[b'x'; 5000], LIMIT)?;
    let said = output.stderr.join("\n");
    ensure!(!output.status.success(), "it was not refused: {said}");
    ensure!(said.contains("Message size too large"), "not MESSAGE_TOO_LARGE: {said}");
    ensure!(read_all(world, "kcat-small", "%s\n")?.is_empty(), "a refused record is there");
    Ok(())
}

/// From an offset, from the end, by time.
fn offsets(world: &mut World) -> Result<()> {
    let topic = "kcat-offsets";
    create(world, topic, "1", "")?;
    let base: i64 = 1_700_000_000_000;
    let produce = [
        ("topic", topic),
        ("partition", "0"),
        ("count", "20"),
        ("shape", "plain"),
        ("ts_base", "1700000000000"),
        ("ts_step", "1000"),
    ];
    let bootstrap = world.broker.bootstrap();
    let sent = Client::Confluent.call(&world.services, &bootstrap, "produce", &produce)?;
    ensure!(sent["ok"] == true, "{sent}");
    let by_time = format!("s@{}", base + 4_500);
    for (from, first, count) in [("7", 7, 13), ("-3", 17, 3), (by_time.as_str(), 5, 15)] {
        let read = ["-C", "-t", topic, "-p", "0", "-o", from, "-e", "-q", "-f", "%o %k\n"];
        let seen = kcat(world, &read, b"")?;
        ensure!(seen.len() == count, "from {from}: {seen:?}");
        ensure!(seen[0] == format!("{first} k{first}"), "from {from}: {seen:?}");
    }
    for (at, wanted) in [(-2, 0), (-1, 20), (base, 0), (base + 1, 1), (base + 19_000, 19)] {
        let seen = kcat(world, &["-Q", "-t", &format!("{topic}:0:{at}")], b"")?.join("\n");
        ensure!(seen.contains(&format!("offset {wanted}")), "at {at}: {seen}");
    }
    Ok(())
}

/// Two members of a group share a topic, and the group goes on where it was.
fn group_of_two(world: &mut World) -> Result<()> {
    let (topic, group) = ("kcat-group", "kcat-the-group");
    create(world, topic, "4", "")?;
    let start = |name: &str| {
        let args = ["-G", group, "-X", "auto.offset.reset=earliest", "-u", "-f", "%p:%o %s\n"];
        let mut member = command(world, &args)?;
        member.arg(topic);
        Running::start(member, name)
    };
    let mut members = vec![start("first")?, start("second")?];
    wait_for_share(&members, 4)?;
    for partition in ["0", "1", "2", "3"] {
        kcat(world, &["-P", "-t", topic, "-p", partition], b"a\nb\n")?;
    }
    for (at, member) in members.iter().enumerate() {
        let wanted = assigned(&member.stderr.all()).len() * 2;
        let got = member.stdout.wait_for(LIMIT, |lines| (lines.len() == wanted).then_some(()));
        got.with_context(|| format!("member {at} read {:?}", member.stdout.all()))?;
    }
    if let Some(mut second) = members.pop() {
        second.kill()?;
    }
    Ok(())
}

/// The partitions of a member's last assignment, as it says them on standard error:
/// `% Group G rebalanced (memberid M): assigned: T [0], T [1]`.
fn assigned(stderr: &[String]) -> Vec<String> {
    let last = stderr.iter().rev().find(|line| line.contains("rebalanced"));
    let Some((_, list)) = last.and_then(|line| line.split_once("assigned: ")) else {
        return Vec::new();
    };
    list.split(", ").map(str::to_owned).collect()
}

/// Waits until each member has some partitions, and all of them together have each one once.
fn wait_for_share(members: &[Running], partitions: usize) -> Result<()> {
    let deadline = Instant::now() + LIMIT;
    loop {
        let shares: Vec<_> = members.iter().map(|member| assigned(&member.stderr.all())).collect();
        let all: BTreeSet<_> = shares.iter().flatten().collect();
        let count: usize = shares.iter().map(Vec::len).sum();
        if shares.iter().all(|share| !share.is_empty())
            && all.len() == partitions
            && count == partitions
        {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "the members share {shares:?}");
        std::thread::sleep(process::POLL);
    }
}
