//! A dump of a real data folder: all is found, damage is told with file and position, nothing changes.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use support::{CLUSTER, Running, World, batch, partition, produce};
use talos_common::{BrokerDir, BrokerEpoch, BrokerId, Env};
use talos_log::LogOptions;
use talos_log::dump::{
    Content, Dump, DumpOptions, FileReport, Frames, JournalEnd, JournalReport, Loss, check_root,
};
use talos_storage::{ErrorKind, FilePath, LocalOptions, LocalReader, LocalStorage, Storage};

const FILE_BYTES: u64 = 256 << 10;
const OPTIONS: LogOptions = LogOptions {
    sort_bytes: u64::MAX,
    segment_bytes: 200 << 10,
    lane_bytes: 64 << 10,
    tail_cache_bytes: 0,
    ..LogOptions::DEFAULT
};

#[derive(Clone, Copy, PartialEq)]
enum How {
    Stop,
    Kill,
}

/// A data folder with what a broker leaves that ran twice: a segment, sorted journals, journals.
struct Left {
    folder: tempfile::TempDir,
    world: World,
    /// Records of each partition.
    records: BTreeMap<u8, u64>,
}

async fn left(how: How) -> Left {
    let folder = tempfile::tempdir().unwrap();
    let mut left = Left {
        folder,
        world: World::with_partitions(3),
        records: BTreeMap::from([(0, 0), (1, 0), (2, 0)]),
    };
    for run in 0..2 {
        let env = Env::system();
        let options = LocalOptions {
            file_bytes: FILE_BYTES,
            spare_files: 1,
            reserve_bytes: 0,
            ..LocalOptions::new(left.folder.path())
        };
        let storage = Arc::new(LocalStorage::open(options, &env).unwrap());
        let running = left.world.start(&env, storage, OPTIONS).await;
        assert!(running.failed.is_empty(), "{:?}", running.failed);
        for round in 0..2 {
            for n in 0..20 {
                // Partition 0 is worth a segment, the others are not.
                left.produce(&running, 0, 20 << 10).await;
                left.produce(&running, 1 + n % 2, 2 << 10).await;
            }
            if run == 0 && round == 0 {
                running.log.sort().await.unwrap();
            }
        }
        if how == How::Stop {
            left.world.stop(running).await;
            env.tasks.stop();
        } else {
            env.tasks.abort();
            drop(running);
        }
        env.tasks.join().await;
    }
    left
}

impl Left {
    async fn produce(&mut self, running: &Running, which: u8, bytes: usize) {
        let value = "x".repeat(bytes);
        produce(&running.partitions[&partition(which)], &batch(&[&value, "y"], 1_000)).await;
        *self.records.get_mut(&which).unwrap() += 2;
    }

    fn reader(&self) -> Arc<dyn Storage> {
        Arc::new(LocalReader::open(self.folder.path()).unwrap())
    }

    fn options(&self) -> DumpOptions {
        let newest = BTreeMap::from([(BrokerId(1), BrokerEpoch(self.world.epoch))]);
        DumpOptions {
            cluster: Some(CLUSTER),
            clean_ends: self.world.clean_ends.clone(),
            registered: Some(newest),
        }
    }

    async fn dump(&self) -> Vec<FileReport> {
        dump(self.reader(), self.options()).await
    }

    /// Dumps with one bit flipped, and puts it back.
    async fn with_bit(&self, path: &FilePath, position: u64) -> Vec<FileReport> {
        let file = self.folder.path().join(path.to_string());
        flip(&file, position);
        let reports = self.dump().await;
        flip(&file, position);
        reports
    }
}

async fn dump(storage: Arc<dyn Storage>, options: DumpOptions) -> Vec<FileReport> {
    let mut dump = Dump::new(storage, options).await.unwrap();
    let (files, bytes) = dump.totals();
    let (mut reports, mut read) = (Vec::new(), 0);
    while let Some(report) = dump.next(&mut |bytes| read += bytes).await.unwrap() {
        reports.push(report);
    }
    assert_eq!(reports.iter().filter(|report| report.bytes.is_some()).count() as u64, files);
    assert_eq!(read, bytes, "progress ends at the whole");
    reports
}

/// Whether it is a journal that was made ahead and never begun.
fn is_unused(report: &FileReport) -> bool {
    matches!(&report.content, Some(Content::Journal(it)) if it.ending == JournalEnd::Unused)
}

fn flip(file: &Path, position: u64) {
    let file = std::fs::File::options().read(true).write(true).open(file).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, position).unwrap();
    file.write_all_at(&[byte[0] ^ 0x10], position).unwrap();
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

fn journals(reports: &[FileReport]) -> Vec<(&FilePath, &JournalReport)> {
    let begun = reports.iter().filter(|report| !is_unused(report));
    let journal = begun.map(|report| match &report.content {
        Some(Content::Journal(journal)) => Some((&report.path, journal)),
        Some(Content::Runs(_)) | None => None,
    });
    journal.flatten().collect()
}

/// All damaged places, as (file, position, loss).
fn damage(reports: &[FileReport]) -> Vec<(String, u64, Loss)> {
    let all = reports.iter().flat_map(|report| &report.damage);
    all.map(|damage| (damage.file.clone(), damage.position, damage.loss)).collect()
}

#[tokio::test]
async fn a_healthy_folder_is_shown_whole_without_damage_and_without_a_change() {
    for how in [How::Stop, How::Kill] {
        let left = left(how).await;
        let before = listing(left.folder.path());
        let reports = left.dump().await;
        assert_eq!(damage(&reports), []);
        assert!(reports.is_sorted_by_key(|report| report.path.clone()) || reports.len() > 3);
        for kind in ["journal-", "sorted-", "topics/"] {
            assert!(
                reports.iter().any(|report| report.path.to_string().contains(kind)),
                "no {kind}"
            );
        }
        // Every record is in exactly one place: nothing was sent twice.
        let mut found: BTreeMap<u8, u64> = BTreeMap::new();
        let mut ends: BTreeMap<u8, i64> = BTreeMap::new();
        for report in &reports {
            let stretches: Vec<_> = match report.content.as_ref().unwrap() {
                Content::Journal(journal) => journal
                    .partitions
                    .iter()
                    .map(|((id, _), it)| (*id, it.records, it.end_offset))
                    .collect(),
                Content::Runs(runs) => runs
                    .runs
                    .iter()
                    .inspect(|run| assert_eq!(run.blocks, run.blocks_verified))
                    .map(|run| (run.partition, run.records, run.end_offset))
                    .collect(),
            };
            for (id, records, end) in stretches {
                let which = u8::try_from(id.partition).unwrap();
                *found.entry(which).or_default() += records;
                ends.entry(which).and_modify(|at| *at = end.max(*at)).or_insert(end);
            }
        }
        assert_eq!(found, left.records);
        let ends: BTreeMap<u8, u64> = ends.into_iter().map(|(id, end)| (id, end as u64)).collect();
        assert_eq!(ends, left.records);
        for dir in [1, 2] {
            let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(dir) };
            let of_dir: Vec<_> = journals(&reports)
                .into_iter()
                .filter(|(path, _)| path.dir() == Some(dir))
                .collect();
            let (last, others) = of_dir.split_last().unwrap();
            assert!(!others.is_empty(), "it never rolled");
            assert!(others.iter().all(|(_, it)| matches!(it.ending, JournalEnd::Closed(_))));
            assert_eq!(last.1.ending, JournalEnd::Note);
            assert_eq!(last.1.durable_to, last.1.end);
            for (path, journal) in of_dir {
                let header = journal.header.unwrap();
                assert_eq!((header.cluster, header.preallocated_bytes), (CLUSTER, FILE_BYTES));
                assert_eq!(
                    *path,
                    talos_log::format::JournalId {
                        dir: header.dir,
                        lane: header.lane,
                        number: header.number
                    }
                    .path()
                );
                assert_eq!(journal.frames["header"], 1);
                assert_eq!(journal.frames["batch"], journal.batches());
                assert_eq!(journal.unreadable, []);
            }
        }
        assert!(listing(left.folder.path()) == before, "the dump changed something");
    }
}

#[tokio::test]
async fn a_flipped_bit_is_found_with_file_and_position_in_every_kind_of_file() {
    for how in [How::Stop, How::Kill] {
        let left = left(how).await;
        let healthy = left.dump().await;
        let storage = left.reader();
        for report in healthy.iter().filter(|report| !is_unused(report)) {
            let mut frames = Frames::open(&storage, &report.path, CLUSTER).await.unwrap().unwrap();
            let mut rows = Vec::new();
            while let Some(row) = frames.next().await.unwrap() {
                assert_ne!(row.kind, "unreadable", "{}: {row:?}", report.path);
                rows.push(row);
            }
            let durable_to = match &report.content {
                Some(Content::Journal(journal)) => Some(journal.durable_to),
                Some(Content::Runs(_)) | None => None,
            };
            let is_journal = durable_to.is_some();
            // The first, some in the middle, the last; the note behind the end is no content.
            for row in rows.iter().step_by(7).chain(rows.last()).filter(|row| row.kind != "note") {
                let found = left.with_bit(&report.path, row.position + row.bytes / 2).await;
                // Without its header or its catalog, nothing says that older files may be gone.
                let hides = matches!(row.kind, "header" | "catalog" | "sorted");
                let there = |report: &&FileReport| report.bytes.is_some() || !hides;
                let found: Vec<_> = found.iter().filter(there).cloned().collect();
                let places = damage(&found);
                if durable_to.is_some_and(|durable_to| row.position >= durable_to) {
                    // Of the last flush, a close frame for example, nobody was told.
                    assert_eq!(places, [], "{} {row:?}", report.path);
                    continue;
                }
                assert_eq!(places.len(), 1, "{} {row:?}: {places:?}", report.path);
                let (file, position, loss) = &places[0];
                assert_eq!(*file, report.path.to_string(), "{row:?}");
                if is_journal {
                    assert_eq!(*position, row.position, "{row:?}");
                    let holds_none = row.kind != "header" && row.bytes < 113;
                    assert_eq!(*loss == Loss::Nothing, holds_none, "{row:?}");
                } else {
                    // The block that holds the batch.
                    let reach = row.position.saturating_sub(128 << 10)..=row.position;
                    assert!(reach.contains(position), "{row:?} {position}");
                    assert_eq!(*loss, Loss::Records);
                }
            }
            if !is_journal {
                let len = report.bytes.unwrap();
                // The label and the index in front of the runs, and their copies behind these.
                for (flipped, told) in [(5, 0), (95, 88), (len - 10, len - 88)] {
                    let places = damage(&left.with_bit(&report.path, flipped).await);
                    assert_eq!(places, [(report.path.to_string(), told, Loss::Copied)]);
                }
            }
        }
        assert_eq!(damage(&left.dump().await), [], "all was put back");
    }
}

#[tokio::test]
async fn a_torn_end_is_no_damage_and_what_a_clean_stop_recorded_makes_it_one() {
    let left = left(How::Stop).await;
    let healthy = left.dump().await;
    let journals = journals(&healthy);
    let (path, journal) = journals.last().unwrap();
    let file = left.folder.path().join(path.to_string());
    // The note, and a part of the last flush, never reached the disk.
    let content = std::fs::read(&file).unwrap();
    let cut = usize::try_from(journal.end).unwrap() - 8;
    let mut torn = content.clone();
    torn[cut..].fill(0);
    std::fs::write(&file, &torn).unwrap();
    let mut options = left.options();
    let found = dump(left.reader(), options.clone()).await;
    assert_eq!(damage(&found).len(), 1, "the clean stop stated the end");
    options.clean_ends.clear();
    let found = dump(left.reader(), options).await;
    assert_eq!(damage(&found), []);
    let torn = found.iter().find(|report| report.path == **path).unwrap();
    let Some(Content::Journal(torn)) = &torn.content else { panic!("{torn:?}") };
    assert!(matches!(torn.ending, JournalEnd::Torn(_)), "{:?}", torn.ending);
    assert!(torn.end < journal.end);
    assert_eq!(torn.unreadable.len(), 1);
    assert_eq!(torn.unreadable[0].position, torn.end);
}

#[tokio::test]
async fn missing_cut_and_foreign_files_are_damage() {
    let left = left(How::Kill).await;
    let healthy = left.dump().await;
    let not_segment = |it: &&FileReport| !matches!(it.path, FilePath::Segment { .. });
    for report in healthy.iter().filter(not_segment).filter(|report| !is_unused(report)) {
        let file = left.folder.path().join(report.path.to_string());
        let content = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let found = left.dump().await;
        let of = found.iter().find(|it| it.path == report.path);
        let last = matches!(report.content.as_ref(), Some(Content::Journal(it)) if it.ending == JournalEnd::Note);
        let of = of.unwrap_or_else(|| panic!("{} is not missed", report.path));
        assert!(of.bytes.is_none() && !of.damage.is_empty(), "{} {last}", report.path);
        std::fs::write(&file, &content[..content.len() / 2]).unwrap();
        let found = left.dump().await;
        assert!(found.iter().any(|it| it.path == report.path && !it.damage.is_empty()));
        std::fs::write(&file, &content).unwrap();
    }
    let mut options = left.options();
    options.cluster = Some([9; 16]);
    let found = dump(left.reader(), options).await;
    let begun = |report: &&FileReport| !is_unused(report);
    let counts = found.iter().filter(begun).all(|report| report.damage.len() == 1);
    assert!(counts, "{:?}", damage(&found));
    for report in found.iter().filter(begun) {
        let what = if report.bytes.is_some() { "another cluster" } else { "missing" };
        assert!(report.damage[0].what.contains(what), "{}: {:?}", report.path, report.damage);
    }
    // Without a cluster file, the first header tells.
    let options = DumpOptions { cluster: None, ..left.options() };
    let mut dump = Dump::new(left.reader(), options).await.unwrap();
    while let Some(report) = dump.next(&mut |_| {}).await.unwrap() {
        assert_eq!(report.damage, []);
    }
    assert_eq!(dump.cluster(), Some(CLUSTER));
}

#[tokio::test]
async fn a_root_reaches_files_that_are_there() {
    let left = left(How::Stop).await;
    let storage = left.reader();
    let mut dump = Dump::new(Arc::clone(&storage), left.options()).await.unwrap();
    while dump.next(&mut |_| {}).await.unwrap().is_some() {}
    let id = partition(0);
    let published = dump.published()[&id];
    let record = left.world.records[&id].root.0.lock().unwrap().clone().unwrap();
    let check = |published| check_root(&storage, CLUSTER, id, Some(&record), published);
    let healthy = check(published).await.unwrap();
    assert_eq!(healthy.damage, []);
    assert!(healthy.segments > 0 && healthy.root.unwrap().head.is_some());
    let older = check(published + 1).await.unwrap();
    assert!(older.damage[0].what.contains("which was published"), "{older:?}");
    let mut flipped = record.to_vec();
    flipped[3] ^= 1;
    let corrupt = check_root(&storage, CLUSTER, id, Some(&flipped), 0).await.unwrap();
    assert!(corrupt.root.is_none() && corrupt.damage[0].what.contains("checksum mismatch"));
    let segments: Vec<_> = left.dump().await.into_iter().map(|report| report.path).collect();
    for path in segments.iter().filter(|path| matches!(path, FilePath::Segment { .. })) {
        let file = left.folder.path().join(path.to_string());
        let content = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let found = check(published).await.unwrap();
        assert_eq!(found.damage.len(), 1, "{path}");
        assert_eq!(found.damage[0].file, path.to_string());
        assert!(found.damage[0].what.contains("missing"), "{found:?}");
        std::fs::write(&file, content).unwrap();
    }
}

#[tokio::test]
async fn a_folder_in_use_or_of_somebody_else_is_refused_and_left_alone() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("holiday.txt"), "sun").unwrap();
    let before = listing(folder.path());
    assert_eq!(LocalReader::open(folder.path()).unwrap_err().kind(), ErrorKind::Invalid);
    assert!(listing(folder.path()) == before);
    let missing = folder.path().join("missing");
    assert_eq!(LocalReader::open(&missing).unwrap_err().kind(), ErrorKind::NotFound);
    assert!(!missing.exists());

    let (env, data) = (Env::system(), folder.path().join("data"));
    let options = LocalOptions { reserve_bytes: 0, ..LocalOptions::new(&data) };
    let storage = LocalStorage::open(options.clone(), &env).unwrap();
    let error = LocalReader::open(&data).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("a broker uses this data folder"), "{error}");
    drop(storage);
    // Readers share it; a broker waits for them.
    let readers = [LocalReader::open(&data).unwrap(), LocalReader::open(&data).unwrap()];
    let busy = LocalStorage::open(options.clone(), &env).unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Unavailable);
    let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(1) };
    assert_eq!(readers[0].make_dir(dir).await.unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(readers[0].seal(dir).await.unwrap_err().kind(), ErrorKind::Invalid);
    drop(readers);
    drop(LocalStorage::open(options, &env).unwrap());
}
