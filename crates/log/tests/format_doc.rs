//! The example bytes of `docs/design/storage-format.md`, decoded and built again: the page is what the
//! code does.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;

use bytes::{Bytes, BytesMut};
use support::journal::at;
use talos_common::{
    BrokerDir, BrokerEpoch, BrokerId, LaneId, LeaderEpoch, TopicId, TopicPartitionId,
};
use talos_log::format::{
    BatchMeta, FORMAT, FileHeader, FlushHeader, Frame, IndexEntry, JournalId, SortedEnd,
    SortedFile, parse, put_batch, put_frame, toggle_mask,
};
use talos_log::root::{Head, Root};
use talos_protocol::records::{BatchBuilder, NewRecord};
use talos_storage::FilePath;

const PAGE: &str = include_str!("../../../docs/design/storage-format.md");

/// The examples of the page by name.
fn examples() -> BTreeMap<&'static str, Bytes> {
    let mut examples = BTreeMap::new();
    for block in PAGE.split("```hex ").skip(1) {
        let (name, rest) = block.split_once('\n').unwrap();
        let (digits, _) = rest.split_once("```").unwrap();
        let bytes = digits.split_whitespace().map(|byte| u8::from_str_radix(byte, 16).unwrap());
        let twice = examples.insert(name, bytes.collect::<Bytes>());
        assert!(twice.is_none(), "{name} twice");
    }
    examples
}

fn id() -> JournalId {
    let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(3) };
    JournalId { dir, lane: LaneId(0), number: 2 }
}

fn header() -> FileHeader {
    FileHeader {
        format: FORMAT,
        cluster: *b"a small cluster!",
        id: id(),
        nonce: 0x00c0_ffee,
        preallocated_bytes: 64 << 20,
        durable_to: at(1, 4096),
    }
}

/// What the page says that its control frames are.
fn frames() -> BTreeMap<&'static str, Frame> {
    let topic = TopicId(std::array::from_fn(|n| 0xa0 + n as u8));
    let partition = TopicPartitionId { topic, partition: 7 };
    let flush = FlushHeader { durable_to: at(2, 90), sequence: 41, flush_bytes: 210, frames: 2 };
    let entry = IndexEntry { partition, leader_epoch: LeaderEpoch(5), end_offset: 101 };
    BTreeMap::from([
        ("header", Frame::Header(header())),
        ("flush", Frame::Flush(flush)),
        ("open", Frame::Open { partition, leader_epoch: LeaderEpoch(6), epoch_start: 101 }),
        ("published", Frame::Published { partition, end_offset: 101, root_generation: 9 }),
        ("index", Frame::Index { since: at(2, 90), entries: vec![entry] }),
        ("catalog", Frame::Catalog { generation: 6, replaced_below: 2, files: 1, partitions: 1 }),
        (
            "sorted",
            Frame::Sorted {
                generation: 6,
                files: vec![SortedFile {
                    number: 5,
                    set: 4,
                    bytes: 70_000,
                    index_crc: 0x0102_0304,
                }],
                partitions: vec![SortedEnd {
                    partition,
                    leader_epoch: LeaderEpoch(5),
                    end_offset: 101,
                    state: Some(5),
                }],
            },
        ),
        ("close", Frame::Close { next_file: 3 }),
        ("note", Frame::Note { durable_to: at(2, 300) }),
    ])
}

#[test]
fn every_control_frame_on_the_page_is_what_the_code_writes_and_reads() {
    let examples = examples();
    for (name, frame) in frames() {
        let mask = if name == "header" { id().header_mask() } else { header().mask() };
        let bytes = &examples[name];
        let parsed = parse(bytes, mask).unwrap();
        assert_eq!((&parsed.frame, parsed.length), (&frame, bytes.len()), "{name}");
        let mut written = BytesMut::new();
        put_frame(&mut written, &frame);
        toggle_mask(&mut written, 0, mask);
        assert_eq!(written.freeze(), bytes, "{name}");
    }
    // The batch frame and both roots are checked below, the run file beside its private code.
    let elsewhere = ["batch", "root", "root-with-head", "run-file"];
    let checked = |name: &str| frames().contains_key(name) || elsewhere.contains(&name);
    let unknown: Vec<_> = examples.keys().filter(|name| !checked(name)).collect();
    assert!(unknown.is_empty(), "nobody checks {unknown:?}");
}

#[test]
fn the_batch_frame_on_the_page_is_what_the_code_writes_and_reads() {
    let bytes = examples()["batch"].clone();
    let topic = TopicId(std::array::from_fn(|n| 0xa0 + n as u8));
    let meta = BatchMeta {
        partition: TopicPartitionId { topic, partition: 7 },
        leader_epoch: LeaderEpoch(5),
        epoch_start: 96,
        append_time_ms: 1_700_000_000_001,
    };
    let record = NewRecord::value(1_700_000_000_000, Bytes::from_static(b"hi"));
    let batch = BatchBuilder::new().record(&record).build().unwrap();
    let mut written = BytesMut::new();
    put_batch(&mut written, &meta, &batch, 100, LeaderEpoch(5));
    toggle_mask(&mut written, 0, header().mask());
    assert_eq!(written.freeze(), bytes);
    let Frame::Batch(read, _) = parse(&bytes, header().mask()).unwrap().frame else {
        panic!("not a batch")
    };
    assert_eq!(read, meta);
}

#[test]
fn the_roots_on_the_page_are_what_the_code_writes_and_reads() {
    let examples = examples();
    let end_epoch = Some(LeaderEpoch(5));
    let root = Root { log_start: 40, end_offset: 101, end_epoch, head: None, generation: 9 };
    let head =
        Head { base_offset: 40, leader_epoch: LeaderEpoch(5), attempt: 0x11, file_bytes: 70_000 };
    let with_head = Root { head: Some(head), ..root };
    for (name, root) in [("root", root), ("root-with-head", with_head)] {
        assert_eq!(Root::decode(&examples[name]), Ok(root), "{name}");
        assert_eq!(root.encode(), examples[name], "{name}");
    }
}

#[test]
fn names_on_the_page_are_the_stores_names() {
    assert_eq!(id().path().to_string(), "brokers/1-3/journal-0000-000000000002");
    let sorted = FilePath::Sorted { dir: id().dir, number: 5 };
    assert_eq!(sorted.to_string(), "brokers/1-3/sorted-000000000005");
    let index = FilePath::SealIndex { dir: id().dir, attempt: 0x1f };
    assert_eq!(index.to_string(), "sealed/1-3-000000000000001f");
    for pattern in [
        "`brokers/<broker>-<epoch>/journal-<lane>-<number>`",
        "`brokers/<broker>-<epoch>/sorted-<number>`",
        "`sealed/<broker>-<epoch>-<attempt>`",
        "`topics/<topic id>/<partition>/<base offset>-<leader epoch>-<attempt>`",
    ] {
        assert!(PAGE.contains(pattern), "{pattern}");
    }
}

/// All product and test code of the workspace's crates.
fn sources(folder: &std::path::Path, text: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() && name != "target" {
            sources(&path, text);
        } else if path.extension().is_some_and(|ext| ext == "rs") {
            text.push_str(&std::fs::read_to_string(&path).unwrap());
        }
    }
}

#[test]
fn every_test_that_the_list_of_faults_names_exists() {
    let page = include_str!("../../../docs/faults.md");
    let mut code = String::new();
    sources(&std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(".."), &mut code);
    let quoted = page.split('`').skip(1).step_by(2);
    let names: std::collections::BTreeSet<&str> =
        quoted.filter(|name| name.matches('_').count() > 2).collect();
    assert!(names.len() > 60, "{} names", names.len());
    let missing: Vec<_> =
        names.iter().filter(|name| !code.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:#?}");
}
