//! What every [`MetaStore`] must do, as one suite: [`run`]. It panics where a store does otherwise.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test suite")]

use std::sync::Arc;

use bytes::Bytes;

use crate::store::{
    Error, MetaStore, Node, Op, Refusal, TRANSACTION_BYTES, TRANSACTION_OPS, Version, WatchEvent,
};

/// A kind of store under test.
pub trait Subject {
    /// A client of a new, empty tree.
    fn fresh(&mut self) -> Arc<dyn MetaStore>;

    /// Ends the client `store` of the newest tree, session included, and connects another. Called with the
    /// last reference.
    fn reopen(&mut self, store: Arc<dyn MetaStore>) -> Arc<dyn MetaStore>;
}

/// Runs the whole suite.
pub async fn run(subject: &mut dyn Subject) {
    versions(&*subject.fresh()).await;
    refusals(&*subject.fresh()).await;
    all_or_nothing(&*subject.fresh()).await;
    limits(&*subject.fresh()).await;
    bad_paths(&*subject.fresh()).await;
    children(&*subject.fresh()).await;
    watches(&*subject.fresh()).await;
    a_slow_watch_is_told_that_it_lost(&*subject.fresh()).await;
    one_winner(subject.fresh()).await;
    watches_miss_nothing(subject.fresh()).await;
    let store = subject.fresh();
    before_reopening(&*store).await;
    let store = subject.reopen(store);
    after_reopening(&*store).await;
}

fn create(path: &str, value: &'static [u8]) -> Op {
    Op::Create { path: path.into(), value: Bytes::from_static(value), ephemeral: false }
}

fn ephemeral(path: &str) -> Op {
    Op::Create { path: path.into(), value: Bytes::new(), ephemeral: true }
}

fn set(path: &str, value: &'static [u8], version: i32) -> Op {
    let value = Bytes::from_static(value);
    Op::Set { path: path.into(), value, version: Version(version) }
}

fn delete(path: &str, version: i32) -> Op {
    Op::Delete { path: path.into(), version: Version(version) }
}

fn check(path: &str, version: i32) -> Op {
    Op::Check { path: path.into(), version: Version(version) }
}

fn node(value: &'static [u8], version: i32) -> Option<Node> {
    Some(Node { value: Bytes::from_static(value), version: Version(version) })
}

fn refused(index: usize, path: &str, refusal: Refusal) -> Error {
    Error::Refused { index, path: path.into(), refusal }
}

async fn versions(store: &dyn MetaStore) {
    assert_eq!(store.get("/").await.unwrap(), node(b"", 0), "the root always exists");
    assert_eq!(store.get("/a").await.unwrap(), None);
    let made = store.transact(vec![create("/a", b"0"), create("/a/b", b"")]).await.unwrap();
    assert_eq!(made, [Version(0), Version(0)]);
    let ops = vec![set("/a", b"1", 0), set("/a", b"2", 1), check("/a", 2), check("/a/b", 0)];
    let made = store.transact(ops).await.unwrap();
    assert_eq!(made, [Version(1), Version(2), Version(2), Version(0)]);
    assert_eq!(store.get("/a").await.unwrap(), node(b"2", 2));
    let made = store.transact(vec![delete("/a/b", 0), delete("/a", 2)]).await.unwrap();
    assert_eq!(made, [Version(0), Version(2)], "a deletion gives the version it deleted");
    assert_eq!(store.get("/a").await.unwrap(), None);
    store.transact(vec![create("/a", b"new")]).await.unwrap();
    assert_eq!(store.get("/a").await.unwrap(), node(b"new", 0), "versions begin anew");
    assert_eq!(store.transact(Vec::new()).await.unwrap(), []);
    store.sync().await.unwrap();
    assert!(!store.describe().is_empty());
}

async fn refusals(store: &dyn MetaStore) {
    use Refusal::{BadVersion, Exists, NotEmpty, NotFound};
    store.transact(vec![create("/a", b""), create("/a/b", b"")]).await.unwrap();
    let cases = [
        (create("/a", b""), "/a", Exists),
        (create("/a/b", b""), "/a/b", Exists),
        (create("/x/y", b""), "/x/y", NotFound),
        (set("/x", b"", 0), "/x", NotFound),
        (set("/a", b"", 1), "/a", BadVersion),
        (set("/a", b"", -1), "/a", BadVersion),
        (delete("/x", 0), "/x", NotFound),
        (delete("/a/b", 1), "/a/b", BadVersion),
        (delete("/a", 1), "/a", BadVersion),
        (delete("/a", 0), "/a", NotEmpty),
        (check("/x", 0), "/x", NotFound),
        (check("/a", 7), "/a", BadVersion),
    ];
    for (op, path, refusal) in cases {
        let alone = store.transact(vec![op.clone()]).await;
        assert_eq!(alone, Err(refused(0, path, refusal)), "{op:?}");
        let second = vec![check("/a", 0), op.clone(), delete("/nowhere", 0)];
        let second = store.transact(second).await;
        assert_eq!(second, Err(refused(1, path, refusal)), "the first refusal counts: {op:?}");
    }
}

async fn all_or_nothing(store: &dyn MetaStore) {
    store.transact(vec![create("/a", b"0"), create("/b", b"0")]).await.unwrap();
    let ops = vec![
        set("/a", b"1", 0),
        create("/a/new", b""),
        set("/a", b"2", 1),
        delete("/b", 0),
        create("/b", b"again"),
        create("/c", b""),
        create("/a/new/deep", b""),
        delete("/c", 0),
        check("/a", 9),
    ];
    assert_eq!(store.transact(ops).await, Err(refused(8, "/a", Refusal::BadVersion)));
    assert_eq!(store.get("/a").await.unwrap(), node(b"0", 0));
    assert_eq!(store.get("/b").await.unwrap(), node(b"0", 0));
    assert_eq!(store.children("/").await.unwrap(), ["a", "b"]);
    assert!(store.children("/a").await.unwrap().is_empty());
    // Later operations see earlier ones.
    let ops = vec![create("/p", b""), create("/p/q", b""), delete("/p/q", 0), delete("/p", 0)];
    store.transact(ops).await.unwrap();
    assert_eq!(store.children("/").await.unwrap(), ["a", "b"]);
}

async fn limits(store: &dyn MetaStore) {
    let many = |count: usize| (0..count).map(|n| create(&format!("/{n:04}"), b"")).collect();
    let too_many = store.transact(many(TRANSACTION_OPS + 1)).await;
    assert!(matches!(too_many, Err(Error::Invalid(_))), "{too_many:?}");
    store.transact(many(TRANSACTION_OPS)).await.unwrap();
    assert_eq!(store.children("/").await.unwrap().len(), TRANSACTION_OPS);

    let large = |bytes: usize| {
        let value = Bytes::from(vec![7; bytes - "/large".len()]);
        vec![Op::Create { path: "/large".into(), value, ephemeral: false }]
    };
    let too_large = store.transact(large(TRANSACTION_BYTES + 1)).await;
    assert!(matches!(too_large, Err(Error::Invalid(_))), "{too_large:?}");
    store.transact(large(TRANSACTION_BYTES)).await.unwrap();
    let read = store.get("/large").await.unwrap().unwrap();
    assert_eq!(read.value.len(), TRANSACTION_BYTES - "/large".len());
}

async fn bad_paths(store: &dyn MetaStore) {
    for bad in ["", "a", "/a/", "//", "/a//b", "/.", "/a/../b", "/a\0"] {
        assert!(matches!(store.get(bad).await, Err(Error::Invalid(_))), "{bad:?}");
        assert!(matches!(store.children(bad).await, Err(Error::Invalid(_))), "{bad:?}");
        assert!(matches!(store.read_children(bad).await, Err(Error::Invalid(_))), "{bad:?}");
        assert!(matches!(store.watch(bad).await, Err(Error::Invalid(_))), "{bad:?}");
        let changed = store.transact(vec![create(bad, b"")]).await;
        assert!(matches!(changed, Err(Error::Invalid(_))), "{bad:?}");
    }
    let root = store.transact(vec![set("/", b"", 0)]).await;
    assert!(matches!(root, Err(Error::Invalid(_))));
    store.transact(vec![ephemeral("/e")]).await.unwrap();
    let below = store.transact(vec![create("/e/child", b"")]).await;
    assert!(matches!(below, Err(Error::Invalid(_))), "below an ephemeral node: {below:?}");
}

async fn children(store: &dyn MetaStore) {
    assert!(store.children("/none").await.unwrap().is_empty());
    assert!(store.read_children("/none").await.unwrap().is_empty());
    // In byte order: upper case first, `10` before `9`, longer after its prefix, non-ASCII last.
    let names = ["10", "9", "A", "a", "a.", "a.b", "ab", "b", "\u{e9}"];
    let mut ops = vec![create("/d", b"")];
    ops.extend(names.iter().rev().map(|name| create(&format!("/d/{name}"), b"v")));
    // Neither below `/d` nor its children's children.
    ops.extend([create("/d0", b""), create("/d-", b""), create("/d/a/deep", b"")]);
    store.transact(ops).await.unwrap();
    assert_eq!(store.children("/d").await.unwrap(), names);
    let read = store.read_children("/d").await.unwrap();
    assert!(read.iter().map(|(name, _)| name.as_str()).eq(names));
    assert!(read.iter().all(|(_, read)| Some(read) == node(b"v", 0).as_ref()));
    assert_eq!(store.children("/").await.unwrap(), ["d", "d-", "d0"]);
    assert_eq!(store.children("/d/a").await.unwrap(), ["deep"]);
}

async fn watches(store: &dyn MetaStore) {
    store.transact(vec![create("/w", b""), create("/wide", b"")]).await.unwrap();
    let mut watch = store.watch("/w").await.unwrap();
    store.transact(vec![create("/w/a", b""), set("/wide", b"", 0)]).await.unwrap();
    let _ = store.transact(vec![set("/w", b"", 9)]).await;
    store.transact(vec![set("/w", b"", 0), check("/w/a", 0)]).await.unwrap();
    store.transact(vec![delete("/w/a", 0)]).await.unwrap();
    let mut seen = Vec::new();
    // `/w/a` twice may be merged into one; then the last event is `/w`.
    while seen.len() < 2 {
        seen.push(watch.next().await.unwrap());
    }
    let expected = ["/w/a", "/w"].map(|path| WatchEvent::Changed(path.into()));
    assert_eq!(seen, expected, "refused changes, checks and other nodes give no event");
    store.transact(vec![create("/w/b", b"")]).await.unwrap();
    let last = WatchEvent::Changed("/w/b".into());
    for _ in 0..2 {
        if watch.next().await.unwrap() == last {
            return;
        }
    }
    panic!("the watch missed {last:?}");
}

async fn a_slow_watch_is_told_that_it_lost(store: &dyn MetaStore) {
    let mut watch = store.watch("/").await.unwrap();
    let mut quick = store.watch("/0000000").await.unwrap();
    // Enough for any bounded queue.
    for batch in 0..20 {
        let names = (0..TRANSACTION_OPS).map(|n| format!("/{:07}", batch * TRANSACTION_OPS + n));
        store.transact(names.map(|path| create(&path, b"")).collect()).await.unwrap();
    }
    let mut taken = 0;
    while watch.next().await.unwrap() != WatchEvent::Lost {
        taken += 1;
        assert!(taken < 20 * TRANSACTION_OPS, "neither bounded nor lost");
    }
    assert_eq!(quick.next().await.unwrap(), WatchEvent::Changed("/0000000".into()));
    store.transact(vec![create("/after", b"")]).await.unwrap();
    while watch.next().await.unwrap() != WatchEvent::Changed("/after".into()) {}
}

async fn one_winner(store: Arc<dyn MetaStore>) {
    store.transact(vec![create("/counter", b"")]).await.unwrap();
    for round in 0..20 {
        let op = || Op::Set {
            path: "/counter".into(),
            value: Bytes::from(round.to_string()),
            version: Version(round),
        };
        let attempts: Vec<_> = (0..8).map(|_| store.transact(vec![op()])).collect();
        let mut winners = 0;
        for result in join_all(attempts).await {
            match result {
                Ok(made) => {
                    assert_eq!(made, [Version(round + 1)]);
                    winners += 1;
                }
                Err(error) => assert_eq!(error, refused(0, "/counter", Refusal::BadVersion)),
            }
        }
        assert_eq!(winners, 1, "round {round}");
    }
}

/// Polls all at once, so that their calls run side by side.
async fn join_all<F: Future + Unpin>(mut futures: Vec<F>) -> Vec<F::Output> {
    let mut results: Vec<Option<F::Output>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        let mut waiting = false;
        for (future, result) in futures.iter_mut().zip(&mut results) {
            if result.is_none() {
                match std::pin::Pin::new(future).poll(context) {
                    std::task::Poll::Ready(value) => *result = Some(value),
                    std::task::Poll::Pending => waiting = true,
                }
            }
        }
        if waiting { std::task::Poll::Pending } else { std::task::Poll::Ready(()) }
    })
    .await;
    results.into_iter().flatten().collect()
}

/// A reader that follows the watch ends with what is stored, however events were merged.
async fn watches_miss_nothing(store: Arc<dyn MetaStore>) {
    store.transact(vec![create("/n", b"")]).await.unwrap();
    let mut watch = store.watch("/n").await.unwrap();
    let mut known = 0;
    for round in 0..200 {
        store.transact(vec![set("/n", b"", round)]).await.unwrap();
        if round % 7 == 0 {
            watch.next().await.unwrap();
            let read = store.get("/n").await.unwrap().unwrap().version.0;
            assert!(read > known, "an event without a change to be read");
            known = read;
        }
    }
    while known < 200 {
        watch.next().await.unwrap();
        known = store.get("/n").await.unwrap().unwrap().version.0;
    }
}

async fn before_reopening(store: &dyn MetaStore) {
    let ops = vec![
        create("/kept", b"0"),
        create("/kept/child", b"c"),
        set("/kept", b"1", 0),
        ephemeral("/session"),
        create("/gone", b""),
        delete("/gone", 0),
    ];
    store.transact(ops).await.unwrap();
    assert!(store.get("/session").await.unwrap().is_some());
}

async fn after_reopening(store: &dyn MetaStore) {
    assert_eq!(store.get("/kept").await.unwrap(), node(b"1", 1));
    assert_eq!(store.get("/kept/child").await.unwrap(), node(b"c", 0));
    assert_eq!(store.children("/").await.unwrap(), ["kept"], "the session has ended");
    store.transact(vec![ephemeral("/session"), set("/kept", b"2", 1)]).await.unwrap();
}
