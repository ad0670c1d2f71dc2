//! The SQLite store beyond the common suite: damage, older files, no room, kills.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

mod common;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use common::{broker_dir, new_topic};
use talos_common::Env;
use talos_meta::store::{Error, Op};
use talos_meta::{Meta, MetaStore, SqliteMeta, Version};

fn file(dir: &tempfile::TempDir) -> PathBuf {
    dir.path().join("meta.sqlite")
}

fn beside(file: &Path, suffix: &str) -> PathBuf {
    let mut path = file.as_os_str().to_owned();
    path.push(suffix);
    path.into()
}

fn create(path: &str, bytes: usize) -> Op {
    Op::Create { path: path.into(), value: vec![b'v'; bytes].into(), ephemeral: false }
}

async fn fill(store: &SqliteMeta, from: usize, to: usize) {
    for n in from..to {
        store.transact(vec![create(&format!("/node-{n:03}"), 100)]).await.unwrap();
    }
}

/// What a killed process leaves: copies of the files while they are open.
fn copy_as_if_killed(from: &Path, to: &Path) {
    for suffix in ["", "-wal", "-mark"] {
        std::fs::copy(beside(from, suffix), beside(to, suffix)).unwrap();
    }
}

/// Everything in the tree, or the first error.
async fn read_all(store: &dyn MetaStore) -> Result<Vec<(String, Bytes, Version)>, Error> {
    let children = store.read_children("/").await?;
    let mut all = Vec::new();
    for (name, node) in children {
        assert_eq!(store.get(&format!("/{name}")).await?.as_ref(), Some(&node));
        all.push((name, node.value, node.version));
    }
    Ok(all)
}

/// Opens the file and reads all of it: it gives all that was written, or `Corrupt` naming the file.
/// True when it gave `Corrupt`.
async fn all_or_corrupt(file: &Path, expected: &[(String, Bytes, Version)], what: &str) -> bool {
    let read = match SqliteMeta::open(file) {
        Ok(store) => read_all(&store).await,
        Err(error) => Err(error),
    };
    match read {
        Ok(read) => {
            assert!(read == expected, "{what}: silently other content");
            false
        }
        Err(Error::Corrupt(text)) => {
            assert!(text.contains("meta.sqlite"), "{what}: {text}");
            true
        }
        Err(error) => panic!("{what}: {error}"),
    }
}

#[tokio::test]
async fn a_flipped_bit_anywhere_in_the_file_is_harmless_or_corrupt_never_other_content() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteMeta::open(file(&dir)).unwrap();
    fill(&store, 0, 60).await;
    let expected = read_all(&store).await.unwrap();
    drop(store);
    let good = std::fs::read(file(&dir)).unwrap();
    let mark = std::fs::read(beside(&file(&dir), "-mark")).unwrap();
    let mut seen = 0;
    // All of the header, and one bit in every thirteenth byte after it.
    let positions = (0..100).chain((100..good.len()).step_by(13));
    for (count, at) in positions.enumerate() {
        let damaged = tempfile::tempdir().unwrap();
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (count % 8);
        std::fs::write(file(&damaged), bytes).unwrap();
        std::fs::write(beside(&file(&damaged), "-mark"), &mark).unwrap();
        let what = format!("bit {} of byte {at}", count % 8);
        seen += usize::from(all_or_corrupt(&file(&damaged), &expected, &what).await);
    }
    assert!(seen > 300, "only {seen} flips were noticed: does this test flip anything?");
}

#[tokio::test]
async fn a_flipped_bit_in_a_record_of_an_open_file_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteMeta::open(file(&dir)).unwrap();
    fill(&store, 0, 3).await;
    drop(store);
    let store = SqliteMeta::open(file(&dir)).unwrap();
    let mut bytes = std::fs::read(file(&dir)).unwrap();
    let at = bytes.windows(8).position(|bytes| bytes == b"node-001").unwrap();
    bytes[at + 20] ^= 1;
    std::fs::write(file(&dir), bytes).unwrap();
    let read = store.get("/node-001").await;
    assert!(matches!(&read, Err(Error::Corrupt(text)) if text.contains("/node-001")), "{read:?}");
    assert!(matches!(store.read_children("/").await, Err(Error::Corrupt(_))));
}

#[tokio::test]
async fn a_cut_extended_or_foreign_file_is_corrupt_or_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteMeta::open(file(&dir)).unwrap();
    fill(&store, 0, 60).await;
    let expected = read_all(&store).await.unwrap();
    drop(store);
    let good = std::fs::read(file(&dir)).unwrap();
    let mark = std::fs::read(beside(&file(&dir), "-mark")).unwrap();
    let mut variants: Vec<(String, Vec<u8>)> = Vec::new();
    for cut in [0, 1, 99, 100, 4_095, 4_096, 8_192, good.len() - 4_096, good.len() - 1] {
        variants.push((format!("cut to {cut}"), good[..cut].to_vec()));
    }
    for more in [1, 4_096] {
        variants.push((format!("{more} more"), [good.clone(), vec![0; more]].concat()));
    }
    variants.push(("text".into(), b"not a database, but long enough for a header".repeat(9)));
    let mut noticed = 0;
    for (what, bytes) in variants {
        let damaged = tempfile::tempdir().unwrap();
        std::fs::write(file(&damaged), bytes).unwrap();
        std::fs::write(beside(&file(&damaged), "-mark"), &mark).unwrap();
        noticed += usize::from(all_or_corrupt(&file(&damaged), &expected, &what).await);
    }
    assert!(noticed >= 10, "{noticed}");
}

#[tokio::test]
async fn e_j14_a_file_that_comes_back_older_or_empty_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let path = file(&dir);
    let store = SqliteMeta::open(&path).unwrap();
    fill(&store, 0, 5).await;
    drop(store);
    let older = std::fs::read(&path).unwrap();
    let store = SqliteMeta::open(&path).unwrap();
    fill(&store, 5, 10).await;
    drop(store);

    std::fs::write(&path, &older).unwrap();
    let error = SqliteMeta::open(&path).unwrap_err();
    assert!(matches!(&error, Error::Corrupt(text) if text.contains("meta.sqlite")), "{error}");
    std::fs::remove_file(&path).unwrap();
    assert!(matches!(SqliteMeta::open(&path), Err(Error::Corrupt(_))));
    assert!(
        !path.exists() || std::fs::metadata(&path).unwrap().len() == 0,
        "nothing is begun anew"
    );

    // Who knows better removes the mark, and has what the older file has.
    std::fs::write(&path, &older).unwrap();
    std::fs::remove_file(beside(&path, "-mark")).unwrap();
    let store = SqliteMeta::open(&path).unwrap();
    assert_eq!(read_all(&store).await.unwrap().len(), 5);
}

#[tokio::test]
async fn after_a_kill_everything_answered_is_there_and_a_damaged_log_is_corrupt() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteMeta::open(file(&dir)).unwrap();
    fill(&store, 0, 30).await;
    let expected = read_all(&store).await.unwrap();
    let killed = tempfile::tempdir().unwrap();
    copy_as_if_killed(&file(&dir), &file(&killed));
    drop(store);
    let wal = std::fs::read(beside(&file(&killed), "-wal")).unwrap();
    assert!(wal.len() > 30 * 4_096, "the log is where the changes are");
    let mut noticed = 0;
    for (count, at) in (0..wal.len()).step_by(997).enumerate() {
        let damaged = tempfile::tempdir().unwrap();
        copy_as_if_killed(&file(&killed), &file(&damaged));
        let mut bytes = wal.clone();
        bytes[at] ^= 1 << (count % 8);
        std::fs::write(beside(&file(&damaged), "-wal"), bytes).unwrap();
        let what = format!("log byte {at}");
        noticed += usize::from(all_or_corrupt(&file(&damaged), &expected, &what).await);
    }
    assert!(noticed > 100, "{noticed}");
    // Cut short, and gone.
    let damaged = tempfile::tempdir().unwrap();
    copy_as_if_killed(&file(&killed), &file(&damaged));
    std::fs::write(beside(&file(&damaged), "-wal"), &wal[..wal.len() - 5_000]).unwrap();
    assert!(all_or_corrupt(&file(&damaged), &expected, "log cut").await);
    copy_as_if_killed(&file(&killed), &file(&damaged));
    std::fs::remove_file(beside(&file(&damaged), "-wal")).unwrap();
    assert!(all_or_corrupt(&file(&damaged), &expected, "log removed").await);
    // Undamaged it is all there.
    assert!(!all_or_corrupt(&file(&killed), &expected, "killed").await);
}

#[tokio::test]
async fn without_room_changes_are_full_reads_go_on_and_service_returns_by_itself() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteMeta::open(file(&dir)).unwrap();
    fill(&store, 0, 3).await;
    store.limit_bytes(Some(64 * 1024)).await.unwrap();
    let mut made = 3;
    let error = loop {
        match store.transact(vec![create(&format!("/node-{made:03}"), 4_000)]).await {
            Ok(_) => made += 1,
            Err(error) => break error,
        }
        assert!(made < 100, "the limit does not work");
    };
    assert!(matches!(error, Error::Full(_)), "{error}");
    assert_eq!(read_all(&store).await.unwrap().len(), made);
    // A small change fits where a large one does not, and neighbours in one commit agree on the outcome.
    let checked = store.transact(vec![Op::Check { path: "/node-000".into(), version: Version(0) }]);
    assert_eq!(checked.await, Ok(vec![Version(0)]));
    store.limit_bytes(None).await.unwrap();
    fill(&store, made, made + 20).await;
    drop(store);
    let store = SqliteMeta::open(file(&dir)).unwrap();
    assert_eq!(read_all(&store).await.unwrap().len(), made + 20);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_transactions_share_a_commit_and_each_keeps_its_own_outcome() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(SqliteMeta::open(file(&dir)).unwrap());
    fill(&store, 0, 1).await;
    let tasks = talos_common::Tasks::new();
    let (send, mut results) = tokio::sync::mpsc::channel(1_000);
    for n in 0..400 {
        let (store, send) = (Arc::clone(&store), send.clone());
        tasks.spawn("client", async move {
            let version = Version(i32::from(n % 4 == 3));
            let check = Op::Check { path: "/node-000".into(), version };
            let result = store.transact(vec![create(&format!("/x{n:03}"), 10), check]).await;
            send.send((n, result.is_ok())).await.unwrap();
        });
    }
    drop(send);
    let mut good = 0;
    while let Some((n, applied)) = results.recv().await {
        assert_eq!(applied, n % 4 != 3);
        assert_eq!(store.get(&format!("/x{n:03}")).await.unwrap().is_some(), applied, "own writes");
        good += usize::from(applied);
    }
    tasks.join().await;
    assert_eq!(good, 300);
    drop(store);
    let store = SqliteMeta::open(file(&dir)).unwrap();
    assert_eq!(store.children("/").await.unwrap().len(), 301);
}

#[tokio::test]
async fn a_closed_store_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let store = SqliteMeta::open(file(&dir)).unwrap();
    let mut watch = store.watch("/").await.unwrap();
    store.close();
    assert_eq!(store.get("/").await, Err(Error::Closed));
    assert_eq!(store.transact(vec![create("/a", 1)]).await, Err(Error::Closed));
    assert_eq!(watch.next().await, Err(Error::Closed));
    let missing = SqliteMeta::open(dir.path().join("none").join("meta.sqlite")).unwrap_err();
    assert!(matches!(missing, Error::Unavailable(text) if text.contains("none")));
}

/// Prints its times with `--nocapture`; asserts none.
#[tokio::test]
async fn twenty_thousand_partitions_are_created_claimed_and_listed() {
    let dir = tempfile::tempdir().unwrap();
    let env = Env::system();
    let store = Arc::new(SqliteMeta::open(file(&dir)).unwrap());
    let meta = Meta::new(store, env.clone());
    meta.create_cluster().await.unwrap();
    let a = broker_dir(1, 1);
    meta.register(a).await.unwrap();
    let mut start = env.clock.now();
    let mut lap = |what: &str| {
        println!("{what}: {:?}", start.elapsed());
        start = env.clock.now();
    };
    let (topic, _) = meta.create_topic(new_topic("wide", 20_000)).await.unwrap();
    lap("one topic of 20,000 partitions created");
    let partitions: Vec<_> = topic.partition_ids().collect();
    let claims = meta.claim_many(a, &partitions).await;
    assert_eq!(claims.iter().filter(|claim| claim.is_ok()).count(), 20_000);
    lap("claimed");
    assert_eq!(meta.list_led_by(a.broker).await.unwrap().len(), 20_000);
    lap("listed");
    let swaps = claims.into_iter().map(|claim| {
        let value = Bytes::from_static(b"root");
        (claim.unwrap().lead(a), talos_meta::RootChange { expected: None, value })
    });
    let swapped = meta.swap_many(swaps.collect()).await;
    assert!(swapped.iter().all(Result::is_ok));
    lap("20,000 roots swapped");
    drop(meta);
    let store = Arc::new(SqliteMeta::open(file(&dir)).unwrap());
    lap("reopened and checked");
    let meta = Meta::new(store, env.clone());
    let b = broker_dir(1, 2);
    meta.register(b).await.unwrap();
    let claims = meta.claim_many(b, &partitions).await;
    assert!(claims.iter().all(|claim| claim.as_ref().unwrap().leader_epoch.0 == 1));
    assert!(claims.iter().all(|claim| claim.as_ref().unwrap().root.is_some()));
    lap("claimed after a restart, with roots");
    meta.begin_deletion(topic.id).await.unwrap();
    let done = meta.finish_deletion(topic.id, |_| true).await.unwrap();
    assert_eq!(done, talos_meta::Deletion::Done);
    lap("deleted");
}
