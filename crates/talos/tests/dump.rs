//! `talos dump` on what a real `talos serve` left: after a clean stop, after a kill, damaged, in use.

#![allow(clippy::unwrap_used, clippy::panic, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn talos() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_talos"));
    // Nothing of the surroundings may show.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("TALOS_") {
            command.env_remove(name);
        }
    }
    command
}

/// A broker process; killed when it is dropped.
struct Serving {
    child: Child,
    address: String,
}

impl Drop for Serving {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Serving {
    fn start(data: &Path) -> Self {
        let mut command = talos();
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin", "127.0.0.1:0", "--data-dir"]);
        command.arg(data).envs([
            ("TALOS_LOG_JOURNAL_SIZE", "4MiB"),
            ("TALOS_LOG_SORT_AFTER", "4MiB"),
            ("TALOS_LOG_SEGMENT_AFTER", "1MiB"),
            ("TALOS_LOG_RESERVE", "0B"),
        ]);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut serving = Self { child, address: String::new() };
        for line in lines {
            if let Some(address) = line.unwrap().trim().strip_prefix("Kafka clients") {
                address.trim().clone_into(&mut serving.address);
                return serving;
            }
        }
        panic!("the broker ended before it listened");
    }

    fn run(&self, args: &[&str], input: &[u8]) {
        let mut command = talos();
        command.args(args).args(["--bootstrap", &self.address]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input).unwrap();
        assert!(child.wait().unwrap().success(), "{args:?}");
    }

    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

fn dump(data: &Path, args: &[&str]) -> Output {
    talos().arg("dump").arg(data).args(args).output().unwrap()
}

/// The objects of `--json`.
fn objects(data: &Path) -> (Option<i32>, Vec<Value>) {
    let output = dump(data, &["--json"]);
    let text = String::from_utf8(output.stdout).unwrap();
    let objects = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    (output.status.code(), objects)
}

fn of_type<'a>(objects: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    objects.iter().filter(move |object| object["type"] == kind)
}

/// All damaged places, as (file, position).
fn damage(objects: &[Value]) -> Vec<(String, u64)> {
    let inner = objects.iter().flat_map(|object| object["damage"].as_array().into_iter().flatten());
    inner
        .chain(of_type(objects, "damage"))
        .map(|it| (it["file"].as_str().unwrap().to_owned(), it["position"].as_u64().unwrap()))
        .collect()
}

/// Every file below `folder` with its bytes and time of change.
fn listing(folder: &Path) -> BTreeMap<PathBuf, (Vec<u8>, std::time::SystemTime)> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let modified = std::fs::metadata(&path).unwrap().modified().unwrap();
        if path.is_dir() {
            files.extend(listing(&path));
            files.insert(path, (Vec::new(), modified));
        } else {
            files.insert(path.clone(), (std::fs::read(&path).unwrap(), modified));
        }
    }
    files
}

fn flip(file: &Path, position: u64) {
    let mut bytes = std::fs::read(file).unwrap();
    bytes[usize::try_from(position).unwrap()] ^= 0x10;
    std::fs::write(file, bytes).unwrap();
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// Lines for one topic: enough for journals to close.
fn lines(count: usize, bytes: usize) -> Vec<u8> {
    format!("{}\n", "x".repeat(bytes)).repeat(count).into_bytes()
}

#[test]
fn dumps_after_a_clean_stop_and_after_a_kill_and_finds_flipped_bits() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let serving = Serving::start(&data);
    serving.run(&["topic", "create", "orders", "--partitions", "2"], b"");
    serving.run(&["produce", "orders"], &lines(600, 1_000));
    let busy = dump(&data, &[]);
    assert_eq!(busy.status.code(), Some(1));
    let told = stderr(&busy);
    assert!(told.contains("a broker uses this data folder"), "{told}");
    assert!(told.contains("\n  next: stop the broker"), "{told}");
    serving.stop();
    healthy(&data, 600);
    flipped_metadata(&data);
    healthy(&data, 600);

    let serving = Serving::start(&data);
    serving.run(&["produce", "orders"], &lines(50, 100));
    drop(serving);
    healthy(&data, 650);
    flipped(&data);
    healthy(&data, 650);
    frames(&data);
}

/// No damage, all records of `orders`, and nothing is changed by any form of the command.
fn healthy(data: &Path, records: u64) {
    let before = listing(data);
    let (code, objects) = objects(data);
    assert_eq!(damage(&objects), []);
    assert_eq!(code, Some(0));
    let store = of_type(&objects, "store").next().unwrap();
    assert_eq!(of_type(&objects, "file").count() as u64, store["files"].as_u64().unwrap());
    let partitions: Vec<_> =
        of_type(&objects, "partition").filter(|row| row["topic"] == "orders").collect();
    assert_eq!(partitions.len(), 2);
    let topic = &partitions[0]["topic_id"];
    for row in &partitions {
        assert!(row["leader"].is_string() && row["leader_epoch"].is_number(), "{row}");
    }
    let mut found = 0;
    for file in of_type(&objects, "file") {
        let runs = file["runs"].as_array().into_iter().flatten();
        let stretches = file["journal"]["partitions"].as_array().into_iter().flatten();
        let of_topic = runs.chain(stretches).filter(|it| it["topic_id"] == *topic);
        found += of_topic.map(|it| it["records"].as_u64().unwrap()).sum::<u64>();
    }
    assert_eq!(found, records);
    let text = dump(data, &[]);
    assert!(text.status.success(), "{}", stderr(&text));
    let text = String::from_utf8(text.stdout).unwrap();
    for part in ["FILE ", "journal-0000-000000000000", "orders", "LOG START", "No damage."] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("nonce"), "{text}");
    assert!(listing(data) == before, "the dump changed something");
}

/// A bit of a journal's content.
fn flipped(data: &Path) {
    let (_, healthy) = objects(data);
    let journal = of_type(&healthy, "file").find(|file| file["kind"] == "journal").unwrap();
    let name = journal["file"].as_str().unwrap();
    let file = data.join(name);
    // Well inside: most of it are large batches.
    let at = journal["journal"]["durable_to"].as_u64().unwrap() / 2;
    flip(&file, at);
    let (code, found) = objects(data);
    assert_eq!(code, Some(1));
    let places = damage(&found);
    assert_eq!(places.len(), 1, "{places:?}");
    assert_eq!(places[0].0, name);
    assert!(places[0].1 <= at);
    let told = stderr(&dump(data, &[]));
    let first = format!("the first in {name} at position {}", places[0].1);
    assert!(told.contains(&first), "{told}");
    assert!(told.contains("next: acknowledged records may be gone: put this file back"), "{told}");
    flip(&file, at);
}

/// The cluster file and a record of the metadata, which a clean stop left in one file.
fn flipped_metadata(data: &Path) {
    assert!(!data.join("meta.sqlite-wal").exists(), "a clean stop leaves one file");
    for (name, text) in [("cluster", b"talos ".as_slice()), ("meta.sqlite", b"orders")] {
        let file = data.join(name);
        let healthy = std::fs::read(&file).unwrap();
        let mut bytes = healthy.clone();
        // Every copy of it: some may lie in unused space.
        let found: Vec<usize> =
            (0..bytes.len()).filter(|at| bytes[*at..].starts_with(text)).collect();
        assert!(!found.is_empty());
        found.into_iter().for_each(|at| bytes[at] ^= 1);
        std::fs::write(&file, bytes).unwrap();
        let (code, found) = objects(data);
        assert_eq!(code, Some(1), "{name}");
        assert_eq!(damage(&found)[0].0, name);
        std::fs::write(&file, healthy).unwrap();
    }
}

/// The detail listing of one file.
fn frames(data: &Path) {
    let (_, objects) = objects(data);
    let journal = of_type(&objects, "file").find(|it| it["kind"] == "journal").unwrap();
    let file = journal["file"].as_str().unwrap();
    let output = dump(data, &["--frames", file, "--json"]);
    assert!(output.status.success(), "{}", stderr(&output));
    let text = String::from_utf8(output.stdout).unwrap();
    let rows: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let batches = rows.iter().filter(|row| row["kind"] == "batch");
    assert_eq!(batches.clone().count() as u64, journal["journal"]["batches"].as_u64().unwrap());
    assert!(batches.clone().any(|row| row["topic"] == "orders"));
    let mut end = 0;
    for row in &rows {
        assert_eq!(row["position"].as_u64().unwrap(), end, "no gap");
        end += row["bytes"].as_u64().unwrap();
    }
    let by_path = dump(data, &["--frames", data.join(file).to_str().unwrap()]);
    assert!(by_path.status.success(), "{}", stderr(&by_path));
    assert!(String::from_utf8(by_path.stdout).unwrap().contains("orders-"));
    let unknown = dump(data, &["--frames", "brokers/1-1/journal-0000-000000000077"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert_eq!(dump(data, &["--frames", "holiday.txt"]).status.code(), Some(2));
}

#[test]
fn a_folder_that_is_no_data_folder_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("holiday.txt"), "sun").unwrap();
    let before = listing(folder.path());
    for (dir, what) in [
        (folder.path().to_owned(), "not a broker's data folder"),
        (folder.path().join("missing"), "no such folder"),
        (folder.path().join("holiday.txt"), "not a folder"),
    ] {
        let output = dump(&dir, &[]);
        assert_eq!(output.status.code(), Some(1));
        let told = stderr(&output);
        assert!(told.contains(what), "{told}");
        assert!(told.contains("\n  next: name the folder that `talos serve --data-dir`"), "{told}");
    }
    assert!(listing(folder.path()) == before);
}
