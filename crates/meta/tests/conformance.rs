//! The suite on each store.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "tests")]

use std::sync::Arc;

use talos_common::Env;
use talos_meta::conformance::{Subject, run};
use talos_meta::{MemoryMeta, MetaStore, SqliteMeta};

struct Memory {
    seed: u64,
    tree: Option<MemoryMeta>,
}

impl Subject for Memory {
    fn fresh(&mut self) -> Arc<dyn MetaStore> {
        self.seed += 1;
        let tree = MemoryMeta::new(&Env::simulated(self.seed, 0));
        let client = tree.handle();
        self.tree = Some(tree);
        Arc::new(client)
    }

    fn reopen(&mut self, store: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
        drop(store);
        Arc::new(self.tree.as_ref().unwrap().handle())
    }
}

struct Sqlite {
    dirs: Vec<tempfile::TempDir>,
}

impl Sqlite {
    fn open(&self) -> Arc<dyn MetaStore> {
        let dir = self.dirs.last().unwrap();
        Arc::new(SqliteMeta::open(dir.path().join("meta.sqlite")).unwrap())
    }
}

impl Subject for Sqlite {
    fn fresh(&mut self) -> Arc<dyn MetaStore> {
        self.dirs.push(tempfile::tempdir().unwrap());
        self.open()
    }

    fn reopen(&mut self, store: Arc<dyn MetaStore>) -> Arc<dyn MetaStore> {
        drop(store);
        self.open()
    }
}

#[tokio::test(start_paused = true)]
async fn memory() {
    run(&mut Memory { seed: 0, tree: None }).await;
}

#[tokio::test]
async fn sqlite() {
    run(&mut Sqlite { dirs: Vec::new() }).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sqlite_from_several_threads() {
    run(&mut Sqlite { dirs: Vec::new() }).await;
}
