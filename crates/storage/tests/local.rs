//! What only the local store has: its lock, its files as a person finds them, its writer thread, and
//! the faults of a real disk.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use bytes::Bytes;
use talos_common::{Env, TopicId};
use talos_storage::conformance::{dir, journal, segment};
use talos_storage::local::faults::{DiskFault, DiskFaults};
use talos_storage::{ErrorKind, FilePath, LocalOptions, LocalStorage, Prefix, Storage, Writer};

const FILE_BYTES: u64 = 64 << 10;

fn options(folder: &Path) -> LocalOptions {
    let mut options = LocalOptions::new(folder.join("data"));
    (options.file_bytes, options.reserve_bytes, options.spare_files) = (FILE_BYTES, 0, 2);
    options
}

fn open(folder: &Path) -> LocalStorage {
    LocalStorage::open(options(folder), &Env::system()).unwrap()
}

fn open_faulty(folder: &Path) -> (LocalStorage, DiskFaults) {
    let faults = DiskFaults::new();
    let mut options = options(folder);
    options.faults = Some(faults.clone());
    (LocalStorage::open(options, &Env::system()).unwrap(), faults)
}

fn bytes(of: u8, len: usize) -> Bytes {
    Bytes::from(vec![of; len])
}

fn names(folder: &Path) -> Vec<String> {
    let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
    let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn inode(folder: &Path, path: &FilePath) -> u64 {
    fs::metadata(folder.join("data").join(path.to_string())).unwrap().ino()
}

#[tokio::test]
async fn a_second_opener_is_refused_until_the_last_writer_is_gone() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    for _ in 0..2 {
        let error = LocalStorage::open(options(folder.path()), &Env::system()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        let text = error.to_string();
        assert!(text.contains("data: another Talos process"), "{text}");
    }
    drop(store);
    LocalStorage::open(options(folder.path()), &Env::system()).unwrap_err();
    let last = writer.append(vec![bytes(7, 100)], Some(bytes(8, 10)));
    drop((writer, last));
    let store = open(folder.path());
    // What was called before the drop is there, and the note behind it.
    let content = store.read(&journal(1, 0), 0..111).await.unwrap();
    assert_eq!(content, [vec![7; 100], vec![8; 10], vec![0]].concat());
}

#[tokio::test]
async fn seals_and_directories_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    {
        let store = open(folder.path());
        for epoch in [1, 2, 3] {
            store.make_dir(dir(epoch)).await.unwrap();
            let mut writer = store.create(journal(epoch, 0)).await.unwrap();
            writer.append(vec![bytes(1, 100)], None).await.unwrap();
        }
        store.seal(dir(1)).await.unwrap();
        store.seal(dir(2)).await.unwrap();
        store.delete_dir(dir(2)).await.unwrap();
    }
    let store = open(folder.path());
    assert_eq!(names(&folder.path().join("data/sealed")), ["1-1.sealed", "1-2.sealed"]);
    assert_eq!(names(&folder.path().join("data/brokers")), ["1-1", "1-3"]);
    for epoch in [1, 2, 3] {
        assert_eq!(store.make_dir(dir(epoch)).await.unwrap_err().kind(), ErrorKind::Exists);
    }
    for epoch in [1, 2] {
        let error = store.create(journal(epoch, 1)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fenced);
    }
    assert_eq!(store.seal(dir(2)).await.unwrap_err().kind(), ErrorKind::NotFound);
    assert_eq!(store.seal(dir(1)).await.unwrap().len(), 1);
    // An old epoch of one's own is sealed like anyone's.
    assert_eq!(store.seal(dir(3)).await.unwrap().len(), 1);
    assert_eq!(store.read(&journal(3, 0), 0..100).await.unwrap(), bytes(1, 100));
    store.delete_dir(dir(1)).await.unwrap();
}

#[tokio::test]
async fn what_is_not_ours_is_neither_listed_nor_removed() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let data = folder.path().join("data");
    store.make_dir(dir(1)).await.unwrap();
    drop(store.create(journal(1, 0)).await.unwrap());
    store.publish(&segment(1, 0, 0), vec![bytes(1, 10)]).await.unwrap();
    let partition = data.join("topics").join(TopicId([1; 16]).hex().to_string()).join("0");
    let foreign = [
        data.join("brokers/1-1/journal-0-1"),
        data.join("brokers/notes.txt"),
        data.join("topics/README"),
        partition.join("00000000000000000000-0-0000000000000001.bak"),
        data.join("tmp/mine"),
        data.join("spare/mine"),
        data.join("sealed/mine"),
    ];
    for path in &foreign {
        fs::write(path, "mine").unwrap();
    }
    fs::create_dir(partition.join("00000000000000000007-0-0000000000000001")).unwrap();
    let listed = async |store: &LocalStorage, prefix| {
        let page = store.list(prefix, None).await.unwrap();
        page.into_iter().map(|file| file.path).collect::<Vec<_>>()
    };
    assert_eq!(listed(&store, Prefix::Brokers).await, [journal(1, 0)]);
    assert_eq!(listed(&store, Prefix::Topics).await, [segment(1, 0, 0)]);
    store.seal(dir(1)).await.unwrap();
    let error = store.delete_dir(dir(1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    assert!(error.to_string().contains("journal-0-1 is not ours"), "{error}");
    assert_eq!(listed(&store, Prefix::Brokers).await, [journal(1, 0)]);
    store.delete(&segment(1, 0, 0)).await.unwrap();
    drop(store);
    drop(open(folder.path()));
    for path in &foreign {
        assert_eq!(fs::read_to_string(path).unwrap(), "mine", "{}", path.display());
    }
}

#[tokio::test]
async fn a_long_listing_comes_in_pages_of_a_thousand() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let mut expected: Vec<_> = (0..2_500)
        .map(|number| segment(1 + (number % 3) as u8, number % 4, number.into()))
        .collect();
    for path in &expected {
        let file = folder.path().join("data").join(path.to_string());
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "segment").unwrap();
    }
    expected.sort();
    let mut found = Vec::new();
    let mut pages = Vec::new();
    loop {
        let page = store.list(Prefix::Topics, found.last().cloned()).await.unwrap();
        if page.is_empty() {
            break;
        }
        pages.push(page.len());
        found.extend(page.into_iter().map(|file| file.path));
    }
    assert_eq!(pages, [1_000, 1_000, 500]);
    assert_eq!(found, expected);
    // More files than stay open, each read twice.
    for path in expected.iter().take(700).chain(expected.iter().take(700)) {
        assert_eq!(store.read(path, 0..100).await.unwrap(), "segment");
    }
    let topics = folder.path().join("data/topics");
    for path in &expected {
        store.delete(path).await.unwrap();
    }
    assert!(names(&topics).is_empty(), "empty folders go with their last file");
}

#[tokio::test]
async fn deleted_journals_are_recycled_a_few_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let spare = folder.path().join("data/spare");
    let store = open(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut inodes = Vec::new();
    for number in 0..3 {
        let mut writer = store.create(journal(1, number)).await.unwrap();
        writer.append(vec![bytes(9, 5_000)], None).await.unwrap();
        inodes.push(inode(folder.path(), &journal(1, number)));
    }
    for number in 0..3 {
        store.delete(&journal(1, number)).await.unwrap();
    }
    assert_eq!(names(&spare).len(), 2);
    let mut writer = store.create(journal(1, 3)).await.unwrap();
    assert!(inodes.contains(&inode(folder.path(), &journal(1, 3))));
    writer.append(vec![bytes(4, 100)], None).await.unwrap();
    // Its former life shows above the position: checksums are the reader's (E-J6).
    let content = store.read(&journal(1, 3), 0..5_000).await.unwrap();
    assert_eq!(content, [bytes(4, 100), bytes(9, 4_900)].concat());
    drop((store, writer));
    fs::write(spare.join("spare-00000000000000ff"), "too short").unwrap();
    fs::write(folder.path().join("data/tmp/tmp-0000000000000001"), "unfinished").unwrap();
    let store = open(folder.path());
    assert_eq!(names(&spare).len(), 1);
    assert!(names(&folder.path().join("data/tmp")).is_empty());
    drop(store.create(journal(1, 4)).await.unwrap());
    assert!(names(&spare).is_empty());
    assert!(inodes.contains(&inode(folder.path(), &journal(1, 4))));
}

#[tokio::test]
async fn a_failed_fdatasync_ends_all_writing_but_not_reading() {
    let folder = tempfile::tempdir().unwrap();
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    let mut other = store.create(journal(1, 1)).await.unwrap();
    writer.append(vec![bytes(1, 100)], None).await.unwrap();
    faults.set_sync_error(true);
    let error = writer.append(vec![bytes(2, 100)], None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fatal);
    assert!(error.to_string().contains("check the disk"), "{error}");
    assert_eq!(faults.count(DiskFault::SyncError), 1);
    // A later sync would succeed and mean nothing (E-H6).
    faults.set_sync_error(false);
    let fatal = ErrorKind::Fatal;
    for writer in [&mut writer, &mut other] {
        assert_eq!(writer.append(vec![bytes(3, 1)], None).await.unwrap_err().kind(), fatal);
    }
    assert_eq!(store.create(journal(1, 2)).await.unwrap_err().kind(), fatal);
    assert_eq!(store.make_dir(dir(2)).await.unwrap_err().kind(), fatal);
    assert_eq!(store.seal(dir(1)).await.unwrap_err().kind(), fatal);
    let published = store.publish(&segment(1, 0, 0), vec![bytes(1, 10)]).await;
    assert_eq!(published.unwrap_err().kind(), fatal);
    assert_eq!(store.read(&journal(1, 0), 0..100).await.unwrap(), bytes(1, 100));
    drop((store, writer, other));
    // The next process starts from the files.
    let store = open(folder.path());
    assert_eq!(store.seal(dir(1)).await.unwrap().len(), 2);
    assert_eq!(store.read(&journal(1, 0), 0..100).await.unwrap(), bytes(1, 100));
}

#[tokio::test]
async fn a_standing_sync_holds_up_appends_and_seals_but_not_reads_and_is_shared_afterwards() {
    let folder = tempfile::tempdir().unwrap();
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut writers = Vec::new();
    for number in 0..3 {
        writers.push(store.create(journal(1, number)).await.unwrap());
    }
    writers[0].append(vec![bytes(1, 100)], None).await.unwrap();
    let before = faults.syncs();
    faults.set_sync_stall(true);
    let first = writers[0].append(vec![bytes(2, 100)], None);
    faults.until_stalled().await;
    let mut waiting = vec![first];
    for round in 3..6 {
        for writer in &mut writers {
            waiting
                .push(writer.append(vec![bytes(round, 10), bytes(round, 10)], Some(bytes(9, 9))));
        }
    }
    let mut seal = store.seal(dir(1));
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    for append in &mut waiting {
        assert!(append.as_mut().poll(context).is_pending());
    }
    assert!(seal.as_mut().poll(context).is_pending());
    assert_eq!(store.read(&journal(1, 0), 0..100).await.unwrap(), bytes(1, 100));
    faults.set_sync_stall(false);
    for append in waiting {
        append.await.unwrap();
    }
    // Nine appends of three files took three syncs; the seal syncs its marker and the folder.
    seal.await.unwrap();
    assert_eq!(faults.syncs() - before, 1 + 3 + 2);
    assert_eq!(faults.count(DiskFault::SyncStall), 1);
    let content = store.read(&journal(1, 0), 200..269).await.unwrap();
    let rounds = [bytes(3, 20), bytes(4, 20), bytes(5, 20), bytes(9, 9)];
    assert_eq!(content, rounds.concat());
}

#[tokio::test]
async fn a_full_disk_refuses_new_files_leaves_nothing_and_heals() {
    let folder = tempfile::tempdir().unwrap();
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    faults.set_full(true);
    let full = ErrorKind::Full;
    assert_eq!(store.create(journal(1, 1)).await.unwrap_err().kind(), full);
    assert_eq!(store.make_dir(dir(2)).await.unwrap_err().kind(), full);
    let error = store.publish(&segment(1, 0, 0), vec![bytes(1, 10)]).await.unwrap_err();
    assert_eq!(error.kind(), full);
    assert!(faults.count(DiskFault::Full) >= 3);
    assert!(names(&folder.path().join("data/tmp")).is_empty());
    assert_eq!(names(&folder.path().join("data/brokers/1-1")).len(), 1);
    // What has its room goes on.
    writer.append(vec![bytes(1, 1_000)], None).await.unwrap();
    store.read(&journal(1, 0), 0..1_000).await.unwrap();
    // So does a recycled file, and a directory can still be sealed.
    store.delete(&journal(1, 0)).await.unwrap();
    drop(store.create(journal(1, 2)).await.unwrap());
    store.seal(dir(1)).await.unwrap();
    faults.set_full(false);
    store.make_dir(dir(2)).await.unwrap();
    drop(store.create(journal(2, 1)).await.unwrap());
    store.publish(&segment(1, 0, 0), vec![bytes(1, 10)]).await.unwrap();
}

#[tokio::test]
async fn a_preallocated_file_that_finds_no_room_is_full_when_nothing_was_written() {
    let folder = tempfile::tempdir().unwrap();
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    faults.set_write_full(true);
    let full = ErrorKind::Full;
    for _ in 0..2 {
        assert_eq!(writer.append(vec![bytes(1, 9)], None).await.unwrap_err().kind(), full);
    }
    let published = store.publish(&segment(1, 0, 0), vec![bytes(1, 10)]).await;
    assert_eq!(published.unwrap_err().kind(), full);
    assert_eq!(faults.count(DiskFault::Full), 2);
    faults.set_write_full(false);
    let mut next = store.create(journal(1, 1)).await.unwrap();
    next.append(vec![bytes(1, 9)], None).await.unwrap();
    store.publish(&segment(1, 0, 0), vec![bytes(1, 10)]).await.unwrap();
}

/// Begins `call` once syncs stand still, and checks that it has not answered when it meets the first;
/// gives its answer and how many syncs it took.
async fn syncs_before_the_answer<T, Call>(
    faults: &DiskFaults,
    call: impl FnOnce() -> Call,
) -> (T, u64)
where
    Call: Future<Output = talos_storage::Result<T>>,
{
    let before = faults.syncs();
    faults.set_sync_stall(true);
    // An append goes on from the moment it is called.
    let mut call = std::pin::pin!(call());
    tokio::select! {
        biased;
        _ = &mut call => panic!("it answered before a sync"),
        () = faults.until_stalled() => {}
    }
    faults.set_sync_stall(false);
    let answer = call.await.unwrap();
    (answer, faults.syncs() - before)
}

#[tokio::test]
async fn nothing_is_answered_before_its_files_and_folders_are_synced() {
    let folder = tempfile::tempdir().unwrap();
    let (store, faults) = open_faulty(folder.path());
    // The file that the first journal will be, and the folder above.
    let ((), syncs) = syncs_before_the_answer(&faults, || store.make_dir(dir(1))).await;
    assert_eq!(syncs, 2);
    // Only the folder is left; then the file and its folder.
    let (mut writer, syncs) =
        syncs_before_the_answer(&faults, || store.create(journal(1, 0))).await;
    assert_eq!(syncs, 1);
    let (_, syncs) = syncs_before_the_answer(&faults, || store.create(journal(1, 9))).await;
    assert_eq!(syncs, 2);
    let append = || writer.append(vec![bytes(1, 9)], Some(bytes(2, 9)));
    let (_, syncs) = syncs_before_the_answer(&faults, append).await;
    assert_eq!(syncs, 1);
    // The old folder and that of the spare files; then the same two again.
    let ((), syncs) = syncs_before_the_answer(&faults, || store.delete(&journal(1, 0))).await;
    assert_eq!(syncs, 2);
    let (_, syncs) = syncs_before_the_answer(&faults, || store.create(journal(1, 1))).await;
    assert_eq!(syncs, 2);
    // The file, and the folders that may be new: partition, topic, topics.
    let path = segment(1, 0, 0);
    let publish = || store.publish(&path, vec![bytes(1, 9)]);
    let ((), syncs) = syncs_before_the_answer(&faults, publish).await;
    assert_eq!(syncs, 4);
    // The marker and its folder.
    let (_, syncs) = syncs_before_the_answer(&faults, || store.seal(dir(1))).await;
    assert_eq!(syncs, 2);
}

#[tokio::test]
async fn a_failed_sync_of_a_name_is_fatal_too() {
    for step in 0..4 {
        let folder = tempfile::tempdir().unwrap();
        let (store, faults) = open_faulty(folder.path());
        store.make_dir(dir(1)).await.unwrap();
        let mut writer = store.create(journal(1, 0)).await.unwrap();
        faults.set_sync_error(true);
        let path = segment(1, 0, 0);
        let failed = match step {
            0 => store.make_dir(dir(2)).await,
            1 => store.create(journal(1, 1)).await.map(drop),
            2 => store.publish(&path, vec![bytes(1, 9)]).await,
            _ => store.seal(dir(1)).await.map(drop),
        };
        assert_eq!(failed.unwrap_err().kind(), ErrorKind::Fatal, "step {step}");
        faults.set_sync_error(false);
        let error = writer.append(vec![bytes(1, 9)], None).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Fatal, "step {step}");
        assert!(names(&folder.path().join("data/tmp")).is_empty(), "step {step}");
    }
}

#[tokio::test]
async fn the_reserve_is_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    open(folder.path()).make_dir(dir(1)).await.unwrap();
    let mut options = options(folder.path());
    options.reserve_bytes = 1 << 60;
    let store = LocalStorage::open(options, &Env::system()).unwrap();
    let error = store.create(journal(1, 0)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.to_string().contains("reserved"), "{error}");
    let published = store.publish(&segment(1, 0, 0), vec![bytes(1, 10)]).await;
    assert_eq!(published.unwrap_err().kind(), ErrorKind::Full);
    assert!(names(&folder.path().join("data/tmp")).is_empty());
}

#[tokio::test]
async fn a_directory_without_room_for_a_journal_is_not_made() {
    let folder = tempfile::tempdir().unwrap();
    let brokers = folder.path().join("data/brokers");
    let mut small = options(folder.path());
    small.reserve_bytes = 1 << 60;
    // As a service manager does it: again and again.
    for epoch in 1..4 {
        let store = LocalStorage::open(small.clone(), &Env::system()).unwrap();
        let error = store.make_dir(dir(epoch)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Full, "{error}");
        assert!(names(&brokers).is_empty() && names(&folder.path().join("data/tmp")).is_empty());
    }
    // Where a directory was made, its first journal has room, whatever fills the disk meanwhile.
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    faults.set_full(true);
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    writer.append(vec![bytes(1, 1_000)], None).await.unwrap();
    assert_eq!(store.create(journal(1, 1)).await.unwrap_err().kind(), ErrorKind::Full);
    assert!(names(&folder.path().join("data/tmp")).is_empty());
}

/// Opens a store with a journal that has acknowledged something; gives the data directory too.
async fn acknowledged(folder: &Path) -> (std::path::PathBuf, LocalStorage, Box<dyn Writer>) {
    let store = open(folder);
    store.make_dir(dir(1)).await.unwrap();
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    writer.append(vec![bytes(1, 9)], None).await.unwrap();
    assert!(store.failure().is_none());
    (folder.join("data"), store, writer)
}

#[tokio::test]
async fn nothing_is_acknowledged_into_a_journal_that_was_removed() {
    let folder = tempfile::tempdir().unwrap();
    let (data, store, mut writer) = acknowledged(folder.path()).await;
    fs::remove_dir_all(&data).unwrap();
    let error = writer.append(vec![bytes(2, 9)], None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fatal);
    assert!(error.to_string().contains("was removed while it was written"), "{error}");
    assert!(store.failure().is_some_and(|failure| failure.files_are_gone));
    // Not one that we delete ourselves.
    let folder = tempfile::tempdir().unwrap();
    let (_, store, mut writer) = acknowledged(folder.path()).await;
    let mut other = store.create(journal(1, 1)).await.unwrap();
    store.delete(&journal(1, 0)).await.unwrap();
    let error = writer.append(vec![bytes(2, 9)], None).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
    other.append(vec![bytes(2, 9)], None).await.unwrap();
    assert!(store.failure().is_none());
}

#[tokio::test]
async fn a_roll_notices_that_the_data_directory_was_moved_away() {
    let folder = tempfile::tempdir().unwrap();
    let (data, store, mut writer) = acknowledged(folder.path()).await;
    let elsewhere = folder.path().join("elsewhere");
    fs::rename(&data, &elsewhere).unwrap();
    // Into the file itself records still come, wherever it is now.
    writer.append(vec![bytes(2, 9)], None).await.unwrap();
    let error = store.create(journal(1, 1)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Fatal);
    assert!(error.to_string().contains("removed or moved away"), "{error}");
    assert_eq!(writer.append(vec![bytes(3, 9)], None).await.unwrap_err().kind(), error.kind());
    drop((store, writer));
    fs::rename(&elsewhere, &data).unwrap();
    let store = open(folder.path());
    let content = store.read(&journal(1, 0), 0..18).await.unwrap();
    assert_eq!(content, [bytes(1, 9), bytes(2, 9)].concat());
}

#[tokio::test(start_paused = true)]
async fn an_idle_store_notices_that_its_data_directory_is_gone_or_a_sync_failed() {
    let folder = tempfile::tempdir().unwrap();
    let env = Env::system();
    let (data, store, writer) = acknowledged(folder.path()).await;
    let mut failed = Box::pin(store.failed(&env.clock));
    let context = &mut std::task::Context::from_waker(std::task::Waker::noop());
    assert!(failed.as_mut().poll(context).is_pending());
    fs::remove_dir_all(&data).unwrap();
    let failure = failed.await;
    assert!(failure.files_are_gone, "{failure:?}");
    assert_eq!(failure.error.kind(), ErrorKind::Fatal);
    drop((store, writer));
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    faults.set_sync_error(true);
    store.create(journal(1, 0)).await.map(drop).unwrap_err();
    let failure = store.failed(&env.clock).await;
    assert!(!failure.files_are_gone && failure.error.kind() == ErrorKind::Fatal, "{failure:?}");
}

#[tokio::test]
async fn short_writes_and_many_buffers_are_written_whole() {
    let folder = tempfile::tempdir().unwrap();
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    let mut expected = Vec::new();
    for short in [None, Some(1), Some(7), Some(1_000)] {
        faults.set_short_writes(short);
        for count in [0, 1, 3, 1_023, 1_024, 1_025, 2_100] {
            let parts: Vec<Bytes> = (0..count).map(|part| bytes(part as u8, part % 5)).collect();
            expected.extend(parts.concat());
            let end = writer.append(parts, None).await.unwrap();
            assert_eq!(end, expected.len() as u64);
        }
    }
    assert!(faults.count(DiskFault::ShortWrite) > 1_000);
    assert_eq!(store.read(&journal(1, 0), 0..expected.len() as u64).await.unwrap(), expected);
    store.publish(&segment(1, 0, 0), vec![bytes(5, 2_500), bytes(6, 1)]).await.unwrap();
    let content = store.read(&segment(1, 0, 0), 0..9_999).await.unwrap();
    assert_eq!(content, [bytes(5, 2_500), bytes(6, 1)].concat());
}

#[tokio::test]
async fn a_failed_write_is_unknown_and_ends_its_writer_only() {
    let folder = tempfile::tempdir().unwrap();
    let (store, faults) = open_faulty(folder.path());
    store.make_dir(dir(1)).await.unwrap();
    let mut writer = store.create(journal(1, 0)).await.unwrap();
    let mut other = store.create(journal(1, 1)).await.unwrap();
    writer.append(vec![bytes(1, 100)], None).await.unwrap();
    faults.set_write_error(true);
    let uncertain = ErrorKind::Uncertain;
    assert_eq!(writer.append(vec![bytes(2, 9)], None).await.unwrap_err().kind(), uncertain);
    assert_eq!(faults.count(DiskFault::WriteError), 1);
    faults.set_write_error(false);
    assert_eq!(writer.append(vec![bytes(2, 9)], None).await.unwrap_err().kind(), uncertain);
    other.append(vec![bytes(3, 100)], None).await.unwrap();
    // Roll, and send the same bytes again.
    let mut next = store.create(journal(1, 2)).await.unwrap();
    assert_eq!(next.append(vec![bytes(2, 9)], None).await.unwrap(), 9);
}

#[tokio::test]
async fn cold_bytes_are_read_as_well_as_cached_ones() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path());
    let path = segment(1, 0, 0);
    let content: Bytes = (0..2_000_000_u32).map(|at| (at % 253) as u8).collect();
    store.publish(&path, vec![content.clone()]).await.unwrap();
    let file = fs::File::open(folder.path().join("data").join(path.to_string())).unwrap();
    for cold in [true, false, true] {
        if cold {
            let advice = rustix::fs::Advice::DontNeed;
            rustix::fs::fadvise(&file, 0, None, advice).unwrap();
        }
        for range in [0..2_000_000, 1_999_999..2_000_005, 777..1_300_003, 0..1] {
            let read = store.read(&path, range.start as u64..range.end as u64).await.unwrap();
            assert_eq!(read, content[range.start..range.end.min(content.len())]);
        }
    }
}
