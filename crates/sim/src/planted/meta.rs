//! Metadata that lose the roots of all partitions when a process first uses them, or of which epoch the
//! records before a root's end were.

use std::sync::Arc;

use talos_log::root::Root;

use talos_meta::MetaStore;
use talos_meta::store::{BoxFuture, Node, Op, Result, Version, Watch};
use tokio::sync::OnceCell;

#[derive(Debug)]
struct Broken {
    inner: Arc<dyn MetaStore>,
    /// Whether the roots are gone, where they are to go.
    lost: Option<OnceCell<()>>,
}

pub(super) fn without_roots(inner: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
    Arc::new(Broken { inner, lost: Some(OnceCell::new()) })
}

pub(super) fn without_end_epochs(inner: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
    Arc::new(Broken { inner, lost: None })
}

impl Broken {
    async fn lose(&self) {
        let Some(lost) = &self.lost else { return };
        lost.get_or_init(|| async { lose_below(&*self.inner).await.unwrap_or(()) }).await;
    }

    fn show(&self, path: &str, node: Node) -> Node {
        match Root::decode(&node.value) {
            Ok(root) if self.lost.is_none() && path.starts_with("/roots/") => {
                let value = Root { end_epoch: None, ..root }.encode();
                Node { value, ..node }
            }
            Ok(_) | Err(_) => node,
        }
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

impl MetaStore for Broken {
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>> {
        let path = path.to_owned();
        Box::pin(async move {
            self.lose().await;
            Ok(self.inner.get(&path).await?.map(|node| self.show(&path, node)))
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
            let children = self.inner.read_children(&path).await?;
            let folder = format!("{path}/");
            Ok(children.into_iter().map(|(name, node)| (name, self.show(&folder, node))).collect())
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
