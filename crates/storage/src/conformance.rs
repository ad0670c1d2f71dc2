//! What every backend must do, as tests with the same assertions for each: a backend's test file gives
//! [`crate::conformance_tests`] a function that opens an empty store and runs a case on it.
//!
//! Cases drive the store from one task, so that on a paused clock they replay from a seed.

use std::future::poll_fn;
use std::ops::Range;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use talos_common::{
    BrokerDir, BrokerEpoch, BrokerId, Env, LaneId, LeaderEpoch, TopicId, TopicPartitionId,
};

use crate::{
    AppendFuture, ErrorKind, FileInfo, FilePath, LIST_PAGE, Prefix, READ_LIMIT_BYTES, Result,
    Storage, Writer,
};

/// How much work a case does: a slow store affords less.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    /// Rounds of each race.
    pub races: u64,
    /// Files of a listing.
    pub files: u64,
}

/// Makes one `#[test]` of each case; `$run` opens an empty store and runs the case on it.
#[macro_export]
macro_rules! conformance_tests {
    ($run:path) => {
        $crate::conformance_tests! { $run:
            directories_are_made_once
            a_directory_that_was_never_made_takes_nothing
            create_is_exclusive
            appends_resolve_in_the_order_of_the_calls
            a_durable_prefix_is_readable_while_writing
            a_note_is_overwritten_by_the_next_append
            an_append_beyond_the_file_is_refused_and_the_writer_lives
            a_dropped_append_is_not_taken_back
            a_seal_is_final_and_repeatable
            a_seal_races_with_appends_and_creates
            a_listing_is_sorted_and_paged
            deleting_is_repeatable_and_ends_a_writer
            a_directory_is_deleted_only_when_sealed
            publish_is_exclusive_and_whole
            reads_are_short_only_at_the_end
            a_name_never_shows_another_files_bytes
        }
    };
    ($run:path: $($case:ident)*) => {$(
        #[test]
        fn $case() {
            $run($crate::conformance::$case);
        }
    )*};
}

/// The directory of `epoch` of broker 1.
pub fn dir(epoch: u64) -> BrokerDir {
    BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(epoch) }
}

/// Journal `number` of lane 0 of [`dir`]`(epoch)`.
pub fn journal(epoch: u64, number: u64) -> FilePath {
    FilePath::Journal { dir: dir(epoch), lane: LaneId(0), number }
}

/// A segment of partition `partition` of a topic made of `topic`s.
pub fn segment(topic: u8, partition: i32, base_offset: i64) -> FilePath {
    FilePath::Segment {
        partition: TopicPartitionId { topic: TopicId([topic; 16]), partition },
        base_offset,
        leader_epoch: LeaderEpoch(0),
        attempt: 1,
    }
}

/// `len` bytes that differ from piece to piece and from place to place.
fn piece(number: u64, len: usize) -> Bytes {
    (0..len).map(|at| (number.wrapping_mul(31).wrapping_add(at as u64 * 7) % 251) as u8).collect()
}

fn kind<T>(result: &Result<T>) -> Option<ErrorKind> {
    result.as_ref().err().map(crate::Error::kind)
}

async fn made(store: &dyn Storage, epoch: u64, number: u64) -> Box<dyn Writer> {
    store.make_dir(dir(epoch)).await.expect("a new directory");
    store.create(journal(epoch, number)).await.expect("a new journal")
}

async fn read(store: &dyn Storage, path: &FilePath, range: Range<u64>) -> Bytes {
    store.read(path, range).await.expect("a readable file")
}

/// A directory is made once, also after its end (E-H4).
pub async fn directories_are_made_once(store: &dyn Storage, _: &Env, _: Scale) {
    let exists = Some(ErrorKind::Exists);
    store.make_dir(dir(1)).await.expect("a new directory");
    assert_eq!(kind(&store.make_dir(dir(1)).await), exists);
    store.seal(dir(1)).await.expect("a seal");
    assert_eq!(kind(&store.make_dir(dir(1)).await), exists);
    store.delete_dir(dir(1)).await.expect("a sealed directory goes");
    assert_eq!(kind(&store.make_dir(dir(1)).await), exists);
    // Gone is not "sealed and empty".
    assert_eq!(kind(&store.seal(dir(1)).await), Some(ErrorKind::NotFound));
    assert_eq!(kind(&store.create(journal(1, 0)).await), Some(ErrorKind::Fenced));
    store.make_dir(dir(2)).await.expect("another epoch");
}

/// Nothing makes a directory but `make_dir` (E-H4).
pub async fn a_directory_that_was_never_made_takes_nothing(store: &dyn Storage, _: &Env, _: Scale) {
    let missing = Some(ErrorKind::NotFound);
    assert_eq!(kind(&store.seal(dir(7)).await), missing);
    assert_eq!(kind(&store.create(journal(7, 0)).await), missing);
    assert_eq!(kind(&store.delete_dir(dir(7)).await), missing);
    let sorted = FilePath::Sorted { dir: dir(7), number: 0 };
    assert_eq!(kind(&store.publish(&sorted, vec![piece(1, 10)]).await), missing);
    assert_eq!(kind(&store.read(&sorted, 0..1).await), missing);
    assert_eq!(store.list(Prefix::Dir(dir(7)), None).await.expect("a listing"), []);
    store.make_dir(dir(7)).await.expect("it was never made");
}

/// A name has one writer, ever.
pub async fn create_is_exclusive(store: &dyn Storage, _: &Env, _: Scale) {
    let mut writer = made(store, 1, 0).await;
    writer.append(vec![piece(1, 100)], None).await.expect("durable");
    assert_eq!(kind(&store.create(journal(1, 0)).await), Some(ErrorKind::Exists));
    let (a, b) = tokio::join!(store.create(journal(1, 1)), store.create(journal(1, 1)));
    assert_eq!([&a, &b].iter().filter(|made| made.is_ok()).count(), 1);
    assert_eq!(kind(&a).or(kind(&b)), Some(ErrorKind::Exists));
    drop(writer);
    assert_eq!(kind(&store.create(journal(1, 0)).await), Some(ErrorKind::Exists));
    assert_eq!(read(store, &journal(1, 0), 0..100).await, piece(1, 100));
    for path in [FilePath::Cluster, FilePath::Sorted { dir: dir(1), number: 0 }] {
        assert_eq!(kind(&store.create(path).await), Some(ErrorKind::Invalid));
    }
}

/// Waits for all, and checks that none resolves before an earlier one.
async fn resolve_in_order(mut appends: Vec<AppendFuture>) -> Vec<Result<u64>> {
    let mut results: Vec<Option<Result<u64>>> = appends.iter().map(|_| None).collect();
    poll_fn(|context| {
        for last in (0..appends.len()).rev() {
            let polled: Vec<bool> = (0..=last)
                .rev()
                .map(|at| {
                    if results[at].is_none()
                        && let Poll::Ready(result) = appends[at].as_mut().poll(context)
                    {
                        results[at] = Some(result);
                    }
                    results[at].is_some()
                })
                .collect();
            // Once a later one is seen resolved, all earlier ones are.
            assert!(polled.is_sorted(), "out of order: {polled:?}");
        }
        if results.iter().all(Option::is_some) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// Several appends of several writers in flight.
pub async fn appends_resolve_in_the_order_of_the_calls(store: &dyn Storage, env: &Env, _: Scale) {
    store.make_dir(dir(1)).await.expect("a new directory");
    let mut writers = Vec::new();
    for number in 0..3 {
        writers.push(store.create(journal(1, number)).await.expect("a new journal"));
    }
    let in_flight = store.traits().appends_in_flight.min(8);
    let mut expected = vec![Vec::new(); writers.len()];
    for round in 0..8 {
        let mut rounds = Vec::new();
        for (writer, expected) in writers.iter_mut().zip(&mut expected) {
            let appends = (0..in_flight).map(|_| {
                let parts = (0..env.rng.u64(0..4)).map(|n| piece(round + n, env.rng.usize(0..900)));
                let parts: Vec<Bytes> = parts.collect();
                expected.extend(parts.concat());
                let append = writer.append(parts, None);
                assert_eq!(writer.position(), expected.len() as u64);
                (append, expected.len() as u64)
            });
            rounds.push(appends.unzip::<_, _, Vec<_>, Vec<_>>());
        }
        for (appends, ends) in rounds {
            let results = resolve_in_order(appends).await;
            let results: Vec<u64> = results.into_iter().map(|end| end.expect("durable")).collect();
            assert_eq!(results, ends);
        }
    }
    for (number, expected) in expected.iter().enumerate() {
        let path = journal(1, number as u64);
        assert_eq!(read(store, &path, 0..expected.len() as u64).await, expected);
    }
}

/// What resolved can be read, by anyone, at once (E-H5).
pub async fn a_durable_prefix_is_readable_while_writing(store: &dyn Storage, env: &Env, _: Scale) {
    let mut writer = made(store, 1, 0).await;
    let mut expected = Vec::new();
    for number in 0..20 {
        let bytes = piece(number, env.rng.usize(1..3_000));
        expected.extend_from_slice(&bytes);
        let append = writer.append(vec![bytes], None);
        let durable = append.await.expect("durable");
        let (all, early) = tokio::join!(
            store.read(&journal(1, 0), 0..durable),
            store.read(&journal(1, 0), durable / 2..durable),
        );
        assert_eq!(all.expect("a readable file"), expected);
        assert_eq!(early.expect("a readable file"), expected[expected.len() / 2..]);
    }
}

/// A note lies behind the end, where the next append goes (E-J15).
pub async fn a_note_is_overwritten_by_the_next_append(store: &dyn Storage, _: &Env, _: Scale) {
    let mut writer = made(store, 1, 0).await;
    let path = journal(1, 0);
    let (first, second, note) = (piece(1, 700), piece(2, 40), Bytes::from_static(&[0xee; 64]));
    let end = writer.append(vec![first.clone()], Some(note.clone())).await.expect("durable");
    assert_eq!((end, writer.position()), (700, 700));
    assert_eq!(read(store, &path, 0..700).await, first);
    let behind = read(store, &path, 700..764).await;
    assert!(behind == note || behind.is_empty(), "a store keeps notes or drops them: {behind:?}");
    let end = writer.append(vec![second.clone()], None).await.expect("durable");
    assert_eq!(end, 740);
    assert_eq!(read(store, &path, 0..740).await, [first, second].concat());
}

/// The bytes and the note together must fit.
pub async fn an_append_beyond_the_file_is_refused_and_the_writer_lives(
    store: &dyn Storage,
    _: &Env,
    _: Scale,
) {
    let most = usize::try_from(store.traits().file_bytes).expect("a small file");
    let mut writer = made(store, 1, 0).await;
    let invalid = Some(ErrorKind::Invalid);
    let large = vec![Bytes::from(vec![1; most / 2]), Bytes::from(vec![2; most / 2 + 1])];
    assert_eq!(kind(&writer.append(large, None).await), invalid);
    let note = Bytes::from_static(b"note");
    let whole = Bytes::from(vec![3; most]);
    assert_eq!(kind(&writer.append(vec![whole.clone()], Some(note)).await), invalid);
    assert_eq!(writer.position(), 0);
    let end = writer.append(vec![whole.clone()], None).await.expect("durable");
    assert_eq!(end, most as u64);
    assert_eq!(kind(&writer.append(vec![piece(1, 1)], None).await), invalid);
    assert_eq!(writer.append(vec![], None).await.expect("nothing is durable"), end);
    assert_eq!(read(store, &journal(1, 0), 0..end).await, whole);
}

/// Who stops waiting does not stop the append.
pub async fn a_dropped_append_is_not_taken_back(store: &dyn Storage, _: &Env, _: Scale) {
    let mut writer = made(store, 1, 0).await;
    let mut expected = Vec::new();
    for number in 0..8 {
        let bytes = piece(number, 500);
        expected.extend_from_slice(&bytes);
        let append = writer.append(vec![bytes], None);
        if number % 2 == 1 || store.traits().appends_in_flight == 1 {
            append.await.expect("durable");
        }
    }
    drop(writer.append(vec![piece(8, 10)], None));
    expected.extend_from_slice(&piece(8, 10));
    drop(writer);
    // The seal waits for it or leaves it out.
    let files = store.seal(dir(1)).await.expect("a seal");
    let len = files.first().expect("one file").len.min(expected.len() as u64);
    let content = read(store, &journal(1, 0), 0..len).await;
    assert_eq!(content[..4_000], expected[..4_000]);
}

/// After a seal nothing new comes, from anybody (P2).
pub async fn a_seal_is_final_and_repeatable(store: &dyn Storage, _: &Env, _: Scale) {
    let mut writer = made(store, 1, 0).await;
    let mut idle = store.create(journal(1, 1)).await.expect("a new journal");
    let sorted = FilePath::Sorted { dir: dir(1), number: 4 };
    store.publish(&sorted, vec![piece(3, 30), piece(4, 30)]).await.expect("published");
    writer.append(vec![piece(1, 1_000)], None).await.expect("durable");
    let files = store.seal(dir(1)).await.expect("a seal");
    let paths: Vec<_> = files.iter().map(|file| file.path.clone()).collect();
    assert_eq!(paths, [journal(1, 0), journal(1, 1), sorted]);
    assert!(files[0].len >= 1_000 && files[2].len == 60, "{files:?}");
    let fenced = Some(ErrorKind::Fenced);
    for writer in [&mut writer, &mut idle] {
        for _ in 0..2 {
            assert_eq!(kind(&writer.append(vec![piece(2, 100)], None).await), fenced);
        }
    }
    assert_eq!(kind(&store.create(journal(1, 2)).await), fenced);
    let late = FilePath::Sorted { dir: dir(1), number: 5 };
    assert_eq!(kind(&store.publish(&late, vec![piece(3, 30)]).await), fenced);
    let (a, b) = tokio::join!(store.seal(dir(1)), store.seal(dir(1)));
    let names = |files: Result<Vec<FileInfo>>| {
        files.expect("a seal").into_iter().map(|file| (file.path, file.len)).collect::<Vec<_>>()
    };
    let first = names(Ok(files));
    assert_eq!((names(a), names(b)), (first.clone(), first));
    assert_eq!(read(store, &journal(1, 0), 0..1_000).await, piece(1, 1_000));
    // The sealer's index lies beside the directory.
    let index = FilePath::SealIndex { dir: dir(1), attempt: 9 };
    store.publish(&index, vec![piece(5, 50)]).await.expect("published");
    assert_eq!(read(store, &index, 0..50).await, piece(5, 50));
}

/// What one racing writer learned: what was acknowledged.
async fn write_until_fenced(store: &dyn Storage, env: &Env, path: FilePath) -> Vec<u8> {
    let mut acknowledged = Vec::new();
    let mut writer = match store.create(path).await {
        Ok(writer) => writer,
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Fenced, "{error}");
            return acknowledged;
        }
    };
    for number in 0.. {
        let parts: Vec<Bytes> = (0..store.traits().appends_in_flight.min(4) as u64)
            .map(|n| piece(number * 5 + n, env.rng.usize(1..700)))
            .collect();
        let appends = parts.iter().map(|part| writer.append(vec![part.clone()], None)).collect();
        let results = resolve_in_order(appends).await;
        for (part, result) in parts.iter().zip(&results) {
            match result {
                Ok(end) => {
                    acknowledged.extend_from_slice(part);
                    assert_eq!(*end, acknowledged.len() as u64, "a gap was acknowledged");
                }
                // Only the first failure must be the fence; none is followed by a success.
                Err(error) => assert_eq!(error.kind(), ErrorKind::Fenced, "{error}"),
            }
        }
        assert!(results.iter().map(Result::is_err).is_sorted(), "{results:?}");
        if results.iter().any(Result::is_err) {
            break;
        }
        assert!(number < 10_000, "the seal never comes");
    }
    acknowledged
}

/// Nothing acknowledged is lost, nothing becomes durable after the seal, however they meet.
pub async fn a_seal_races_with_appends_and_creates(store: &dyn Storage, env: &Env, scale: Scale) {
    for epoch in 0..scale.races {
        store.make_dir(dir(epoch)).await.expect("a new directory");
        let sealing = async {
            env.clock.sleep(Duration::from_micros(env.rng.u64(0..12_000))).await;
            let files = store.seal(dir(epoch)).await.expect("a seal");
            let mut contents = Vec::new();
            for file in &files {
                contents.push((file.path.clone(), read(store, &file.path, 0..file.len).await));
            }
            contents
        };
        let (contents, a, b) = tokio::join!(
            sealing,
            write_until_fenced(store, env, journal(epoch, 0)),
            write_until_fenced(store, env, journal(epoch, 1)),
        );
        env.clock.sleep(Duration::from_millis(1)).await;
        for (path, sealed) in &contents {
            let now = read(store, path, 0..sealed.len() as u64 + 1).await;
            assert_eq!(*sealed, now, "epoch {epoch}: {path} changed after the seal");
        }
        for (number, acknowledged) in [a, b].into_iter().enumerate() {
            let path = journal(epoch, number as u64);
            let sealed = contents.iter().find(|(of, _)| *of == path).map(|(_, content)| content);
            let kept = sealed.map_or(&[][..], |content| &content[..]);
            assert!(
                kept.starts_with(&acknowledged),
                "epoch {epoch}: {path} lost something of {} acknowledged bytes",
                acknowledged.len()
            );
            store.delete(&path).await.expect("deleted");
        }
    }
}

async fn list_all(store: &dyn Storage, prefix: Prefix) -> Vec<FilePath> {
    let mut found: Vec<FilePath> = Vec::new();
    loop {
        let page = store.list(prefix, found.last().cloned()).await.expect("a listing");
        if page.is_empty() {
            return found;
        }
        assert!(page.len() <= LIST_PAGE);
        found.extend(page.into_iter().map(|file| file.path));
    }
}

/// In name order, page by page, each file once.
pub async fn a_listing_is_sorted_and_paged(store: &dyn Storage, env: &Env, scale: Scale) {
    let mut all = Vec::new();
    for epoch in [2, 10] {
        store.make_dir(dir(epoch)).await.expect("a new directory");
        all.extend((0..3).map(|number| FilePath::Sorted { dir: dir(epoch), number }));
    }
    for number in 0..scale.files {
        let number = i64::try_from(number).expect("few files");
        all.push(segment(1 + (number % 2) as u8, [2, 10, 0][number as usize % 3], number / 6));
    }
    all.push(FilePath::Cluster);
    all.push(FilePath::SealIndex { dir: dir(2), attempt: 1 });
    let mut order = all.clone();
    while !order.is_empty() {
        let path = order.swap_remove(env.rng.usize(0..order.len()));
        store.publish(&path, vec![piece(1, 17)]).await.expect("published");
    }
    store.create(journal(10, 3)).await.expect("a new journal");
    all.push(journal(10, 3));
    all.sort();
    let partition = |partition| TopicPartitionId { topic: TopicId([1; 16]), partition };
    for prefix in [
        Prefix::Brokers,
        Prefix::Dir(dir(2)),
        Prefix::Dir(dir(3)),
        Prefix::Topics,
        Prefix::Topic(TopicId([2; 16])),
        Prefix::Partition(partition(10)),
        Prefix::Partition(partition(11)),
    ] {
        let expected = all.iter().filter(|path| prefix.holds(path)).cloned().collect::<Vec<_>>();
        assert_eq!(list_all(store, prefix).await, expected, "{prefix:?}");
        for after in all.iter().step_by(97) {
            let page = store.list(prefix, Some(after.clone())).await.expect("a listing");
            let rest = expected.iter().filter(|path| *path > after).take(LIST_PAGE);
            assert!(page.iter().map(|file| &file.path).eq(rest), "{prefix:?} after {after}");
        }
    }
    let page = store.list(Prefix::Topics, None).await.expect("a listing");
    assert!(page.iter().all(|file| file.len == 17));
}

/// Deleting what is not there is fine; deleting what is written ends its writer.
pub async fn deleting_is_repeatable_and_ends_a_writer(store: &dyn Storage, _: &Env, _: Scale) {
    let mut writer = made(store, 1, 0).await;
    writer.append(vec![piece(1, 100)], None).await.expect("durable");
    for _ in 0..2 {
        store.delete(&journal(1, 0)).await.expect("deleted");
        assert_eq!(kind(&store.read(&journal(1, 0), 0..1).await), Some(ErrorKind::NotFound));
    }
    assert_eq!(kind(&writer.append(vec![piece(2, 100)], None).await), Some(ErrorKind::NotFound));
    for path in [segment(1, 0, 0), FilePath::Cluster] {
        store.delete(&path).await.expect("it is not there");
        store.publish(&path, vec![piece(1, 100)]).await.expect("published");
        store.delete(&path).await.expect("deleted");
        store.delete(&path).await.expect("it is not there");
        assert_eq!(kind(&store.read(&path, 0..1).await), Some(ErrorKind::NotFound));
    }
    assert_eq!(list_all(store, Prefix::Topics).await, []);
    assert_eq!(list_all(store, Prefix::Brokers).await, []);
}

/// And its seal outlives it (E-O3).
pub async fn a_directory_is_deleted_only_when_sealed(store: &dyn Storage, _: &Env, _: Scale) {
    let mut writer = made(store, 1, 0).await;
    writer.append(vec![piece(1, 100)], None).await.expect("durable");
    assert_eq!(kind(&store.delete_dir(dir(1)).await), Some(ErrorKind::Invalid));
    assert_eq!(read(store, &journal(1, 0), 0..100).await, piece(1, 100));
    store.seal(dir(1)).await.expect("a seal");
    for _ in 0..2 {
        store.delete_dir(dir(1)).await.expect("a sealed directory goes");
        assert_eq!(list_all(store, Prefix::Brokers).await, []);
        assert_eq!(kind(&store.read(&journal(1, 0), 0..1).await), Some(ErrorKind::NotFound));
        assert_eq!(kind(&store.seal(dir(1)).await), Some(ErrorKind::NotFound));
    }
    // A writer that slept through it all.
    let late = kind(&writer.append(vec![piece(2, 100)], None).await);
    assert!(matches!(late, Some(ErrorKind::Fenced | ErrorKind::NotFound)), "{late:?}");
    assert_eq!(list_all(store, Prefix::Brokers).await, []);
}

/// One of several wins, and its bytes are there as a whole or not at all.
pub async fn publish_is_exclusive_and_whole(store: &dyn Storage, _: &Env, _: Scale) {
    for round in 0..10 {
        let path = segment(3, 0, round);
        let parts = |by| vec![piece(by, 40_000), Bytes::new(), piece(by + 1, 30_001)];
        let watching = async {
            for _ in 0..10 {
                match store.read(&path, 0..100_000).await {
                    Ok(content) => assert_eq!(content.len(), 70_001, "a part was visible"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                }
            }
        };
        let (a, b, ()) =
            tokio::join!(store.publish(&path, parts(1)), store.publish(&path, parts(5)), watching);
        let winner = if a.is_ok() { 1 } else { 5 };
        assert_eq!(kind(&a).xor(kind(&b)), Some(ErrorKind::Exists), "{a:?} {b:?}");
        assert_eq!(kind(&store.publish(&path, parts(9)).await), Some(ErrorKind::Exists));
        assert_eq!(read(store, &path, 0..100_000).await, parts(winner).concat());
    }
    let journal = store.publish(&journal(1, 0), vec![piece(1, 1)]).await;
    assert_eq!(kind(&journal), Some(ErrorKind::Invalid));
}

/// And their size is limited.
pub async fn reads_are_short_only_at_the_end(store: &dyn Storage, _: &Env, _: Scale) {
    let path = segment(4, 1, 0);
    let content = piece(1, 300_000);
    store.publish(&path, vec![content.clone()]).await.expect("published");
    for (range, expected) in [
        (0..300_000, 0..300_000),
        (0..300_001, 0..300_000),
        (299_999..400_000, 299_999..300_000),
        (131_071..131_073, 131_071..131_073),
        (300_000..300_010, 0..0),
        (u64::MAX - 1..u64::MAX, 0..0),
        (5..5, 0..0),
    ] {
        assert_eq!(read(store, &path, range).await, content[expected]);
    }
    assert_eq!(read(store, &path, 0..READ_LIMIT_BYTES).await, content);
    #[allow(clippy::reversed_empty_ranges, reason = "that is what must be refused")]
    for bad in [2..1, 0..READ_LIMIT_BYTES + 1, 0..u64::MAX] {
        assert_eq!(kind(&store.read(&path, bad).await), Some(ErrorKind::Invalid));
    }
    assert_eq!(kind(&store.read(&segment(4, 1, 1), 0..1).await), Some(ErrorKind::NotFound));
}

/// A recycled file serves its new name only: below what its writer wrote there is nothing older, and
/// the old name is gone. (Above the position a file may show its former life; see E-J6.)
pub async fn a_name_never_shows_another_files_bytes(store: &dyn Storage, env: &Env, _: Scale) {
    store.make_dir(dir(1)).await.expect("a new directory");
    for number in 0..12 {
        let path = journal(1, number);
        let mut writer = store.create(path.clone()).await.expect("a new journal");
        let bytes = piece(number, env.rng.usize(2_000..9_000));
        let end = writer.append(vec![bytes.clone()], None).await.expect("durable");
        assert_eq!(read(store, &path, 0..end).await, bytes);
        let reading = async {
            for _ in 0..6 {
                match store.read(&path, 0..end).await {
                    Ok(content) => assert_eq!(content, bytes, "another file's bytes"),
                    Err(error) => assert_eq!(error.kind(), ErrorKind::NotFound),
                }
            }
        };
        let next = async {
            store.delete(&path).await.expect("deleted");
            let mut next = store.create(journal(1, 100 + number)).await.expect("a new journal");
            next.append(vec![Bytes::from(vec![0xff; 10_000])], None).await.expect("durable");
            store.delete(&journal(1, 100 + number)).await.expect("deleted");
        };
        tokio::join!(reading, next);
        assert_eq!(kind(&store.read(&path, 0..1).await), Some(ErrorKind::NotFound));
    }
}
