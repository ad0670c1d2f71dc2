//! What becomes of a change whose answer was lost while somebody else went on (P4, E-W4).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod common;

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use common::*;
use std::sync::Arc;
use talos_common::Env;
use talos_meta::store::{BoxFuture, Error, Op, Result, Watch};
use talos_meta::*;

/// A client that loses the answer of one transaction, after which others do something.
struct Losing {
    inner: MemoryMeta,
    /// How many transactions are answered before.
    answered: AtomicUsize,
    meanwhile: Mutex<Option<BoxFuture<'static, ()>>>,
    /// What reads fail with after that.
    reads_fail: Mutex<Option<Error>>,
    lost: AtomicUsize,
}

impl std::fmt::Debug for Losing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Losing")
    }
}

impl Losing {
    fn new(tree: &MemoryMeta, answered: usize) -> Arc<Self> {
        Arc::new(Self {
            inner: tree.handle(),
            answered: AtomicUsize::new(answered),
            meanwhile: Mutex::new(None),
            reads_fail: Mutex::new(None),
            lost: AtomicUsize::new(0),
        })
    }

    fn then(&self, meanwhile: impl Future<Output = ()> + Send + 'static) {
        *self.meanwhile.lock().unwrap() = Some(Box::pin(meanwhile));
    }

    fn meta(self: &Arc<Self>) -> Meta {
        Meta::new(Arc::clone(self) as _, Env::simulated(77, 1_000_000))
    }
}

impl MetaStore for Losing {
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>> {
        let failure = self.reads_fail.lock().unwrap().clone();
        match failure {
            Some(error) if self.lost.load(Ordering::SeqCst) > 0 => {
                Box::pin(std::future::ready(Err(error)))
            }
            _ => self.inner.get(path),
        }
    }

    fn children(&self, path: &str) -> BoxFuture<'_, Result<Vec<String>>> {
        self.inner.children(path)
    }

    fn read_children(&self, path: &str) -> BoxFuture<'_, Result<Vec<(String, Node)>>> {
        self.inner.read_children(path)
    }

    fn transact(&self, ops: Vec<Op>) -> BoxFuture<'_, Result<Vec<Version>>> {
        Box::pin(async move {
            let answer = self.inner.transact(ops).await;
            let before = self.answered.load(Ordering::SeqCst);
            self.answered.store(before.wrapping_sub(1), Ordering::SeqCst);
            if before > 0 {
                return answer;
            }
            answer.expect("applied, and its answer lost");
            self.lost.fetch_add(1, Ordering::SeqCst);
            let meanwhile = self.meanwhile.lock().unwrap().take();
            if let Some(meanwhile) = meanwhile {
                meanwhile.await;
            }
            self.answered.store(usize::MAX, Ordering::SeqCst);
            Err(Error::Uncertain("lost".into()))
        })
    }

    fn watch(&self, prefix: &str) -> BoxFuture<'_, Result<Box<dyn Watch>>> {
        self.inner.watch(prefix)
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        self.inner.sync()
    }

    fn describe(&self) -> String {
        self.inner.describe()
    }
}

fn change(expected: Option<i32>, value: &'static str) -> RootChange {
    RootChange { expected: expected.map(Version), value: Bytes::from_static(value.as_bytes()) }
}

#[tokio::test(start_paused = true)]
async fn e_w4_an_applied_swap_that_a_newer_leader_overtook_is_not_called_refused() {
    let (tree, meta) = cluster(1).await;
    let (old, new) = (broker_dir(1, 1), broker_dir(2, 1));
    for dir in [old, new] {
        meta.register(dir).await.unwrap();
    }
    let topic = meta.create_topic(new_topic("t", 1)).await.unwrap().0;
    let tp = topic.partition_ids().next().unwrap();
    let lead = claim(&meta, old, tp).await.lead(old);
    meta.swap(&lead, change(None, "first")).await.unwrap();
    let losing = Losing::new(&tree, 0);
    // The swap is applied; before it is asked again, another broker has led and swapped.
    losing.then(async move {
        meta.mark_dead(old, None).await.unwrap();
        let lead = claim(&meta, new, tp).await.lead(new);
        meta.swap(&lead, change(Some(1), "of the newer leader")).await.unwrap();
    });
    let swapped = losing.meta().swap(&lead, change(Some(0), "second")).await;
    assert!(matches!(swapped, Err(LeadError::Store(Error::Uncertain(_)))), "{swapped:?}");
    assert_eq!(losing.lost.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn e_w4_an_unknown_change_is_not_made_again_over_that_of_another() {
    let (tree, meta) = cluster(2).await;
    let topic = meta.create_topic(new_topic("t", 1)).await.unwrap().0;
    let losing = Losing::new(&tree, 0);
    let other = client(&tree, 5);
    losing.then(async move {
        let set = |configs: &mut std::collections::BTreeMap<String, String>| {
            configs.insert("retention.ms".into(), "2".into());
            Ok(())
        };
        other.alter_configs(topic.id, set).await.unwrap();
    });
    let altered = losing
        .meta()
        .alter_configs(topic.id, |configs| {
            configs.insert("retention.ms".into(), "1".into());
            Ok(())
        })
        .await;
    let unknown = matches!(altered, Err(TopicError::Store(Error::Uncertain(_))));
    assert!(unknown, "{altered:?}");
    let configs = meta.topic(topic.id).await.unwrap().unwrap().0.configs;
    assert_eq!(configs["retention.ms"], "2", "the later change stands");
}

#[tokio::test(start_paused = true)]
async fn e_w4_an_unknown_change_stays_unknown_when_it_can_not_be_read_back() {
    for failure in [Error::Closed, Error::Corrupt("planned".into()), Error::Full("planned".into())]
    {
        let (tree, meta) = cluster(3).await;
        let dir = broker_dir(1, 1);
        meta.register(dir).await.unwrap();
        let topic = meta.create_topic(new_topic("t", 1)).await.unwrap().0;
        let tp = topic.partition_ids().next().unwrap();
        let lead = claim(&meta, dir, tp).await.lead(dir);
        let losing = Losing::new(&tree, 0);
        *losing.reads_fail.lock().unwrap() = Some(failure.clone());
        let swapped = losing.meta().swap(&lead, change(None, "first")).await;
        let unknown = matches!(swapped, Err(LeadError::Store(Error::Uncertain(_))));
        assert!(unknown, "{failure:?}: {swapped:?}");
        assert!(meta.root(tp).await.unwrap().is_some());
    }
}
