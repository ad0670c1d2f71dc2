//! Metadata that loses the roots of all partitions when a process first uses it.

use std::sync::Arc;

use talos_meta::MetaStore;
use talos_meta::store::{BoxFuture, Node, Op, Result, Version, Watch};
use tokio::sync::OnceCell;

#[derive(Debug)]
struct WithoutRoots {
    inner: Arc<dyn MetaStore>,
    done: OnceCell<()>,
}

pub(super) fn without_roots(inner: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
    Arc::new(WithoutRoots { inner, done: OnceCell::new() })
}

impl WithoutRoots {
    async fn lose(&self) {
        self.done.get_or_init(|| async { lose_below(&*self.inner).await.unwrap_or(()) }).await;
    }
}

/// Deletes `/roots/<shard>/<chunk>/<partition>`, all of them.
async fn lose_below(store: &dyn MetaStore) -> Result<()> {
    for shard in store.children("/roots").await? {
        for chunk in store.children(&format!("/roots/{shard}")).await? {
            let folder = format!("/roots/{shard}/{chunk}");
            for (name, node) in store.read_children(&folder).await? {
                let path = format!("{folder}/{name}");
                store.transact(vec![Op::Delete { path, version: node.version }]).await?;
            }
        }
    }
    Ok(())
}

impl MetaStore for WithoutRoots {
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>> {
        let path = path.to_owned();
        Box::pin(async move {
            self.lose().await;
            self.inner.get(&path).await
        })
    }

    fn children(&self, path: &str) -> BoxFuture<'_, Result<Vec<String>>> {
        let path = path.to_owned();
        Box::pin(async move {
            self.lose().await;
            self.inner.children(&path).await
        })
    }

    fn read_children(&self, path: &str) -> BoxFuture<'_, Result<Vec<(String, Node)>>> {
        let path = path.to_owned();
        Box::pin(async move {
            self.lose().await;
            self.inner.read_children(&path).await
        })
    }

    fn transact(&self, ops: Vec<Op>) -> BoxFuture<'_, Result<Vec<Version>>> {
        self.inner.transact(ops)
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
