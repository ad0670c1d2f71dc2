//! The tree in memory: the exact twin of the real stores, for tests and simulation.
//!
//! A [`MemoryMeta`] is one client; [`MemoryMeta::handle`] gives another on the same tree. Everything is
//! deterministic: time is the given clock's, chance comes from the given seed, and all maps are
//! ordered. Nothing awaits while the tree is locked.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use talos_common::{Clock, Env};

use crate::faults::{LostAnswer, MetaFaults};
use crate::store::{
    BoxFuture, Error, MetaStore, Node, Op, Refusal, Result, Version, Watch, WatchEvent,
};
use crate::tree::{check_ops, check_path, name, parent};
use crate::watchers::Watchers;

/// One client of a tree in memory.
#[derive(Debug)]
pub struct MemoryMeta {
    shared: Arc<Shared>,
    client: Arc<Client>,
}

/// The whole tree at one moment, ephemeral nodes aside.
#[derive(Clone, Debug)]
pub struct MetaSnapshot(Nodes);

#[derive(Debug)]
struct Shared {
    clock: Clock,
    faults: MetaFaults,
    tree: Mutex<Tree>,
}

#[derive(Debug)]
struct Client {
    watchers: Watchers,
    connected: AtomicBool,
    inner: Mutex<ClientState>,
}

#[derive(Debug)]
struct ClientState {
    session: u64,
    /// What this client reads until its next sync or change, if it lags behind.
    lagging: Option<Arc<Nodes>>,
}

type Nodes = BTreeMap<String, MemoryNode>;

#[derive(Clone, Debug)]
struct MemoryNode {
    value: Bytes,
    version: i32,
    /// The session it ends with.
    session: Option<u64>,
    children: BTreeSet<String>,
}

#[derive(Debug)]
struct Tree {
    nodes: Nodes,
    next_session: u64,
    clients: Vec<std::sync::Weak<Client>>,
    late: Vec<LateChange>,
}

#[derive(Debug)]
struct LateChange {
    calls_left: u32,
    session: u64,
    ops: Vec<Op>,
}

/// How to take one step back.
enum Undo {
    Remove(String),
    PutBack(String, MemoryNode),
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl MemoryMeta {
    /// An empty tree and its first client.
    pub fn new(env: &Env) -> Self {
        let root = MemoryNode {
            value: Bytes::new(),
            version: 0,
            session: None,
            children: BTreeSet::new(),
        };
        let shared = Arc::new(Shared {
            clock: env.clock.clone(),
            faults: MetaFaults::new(env.rng.fork()),
            tree: Mutex::new(Tree {
                nodes: BTreeMap::from([("/".to_owned(), root)]),
                next_session: 0,
                clients: Vec::new(),
                late: Vec::new(),
            }),
        });
        let client = shared.add_client();
        Self { shared, client }
    }

    /// Another client on the same tree, with a session of its own.
    pub fn handle(&self) -> Self {
        Self { shared: Arc::clone(&self.shared), client: self.shared.add_client() }
    }

    /// The faults of the tree, for all its clients.
    pub fn faults(&self) -> MetaFaults {
        self.shared.faults.clone()
    }

    /// Cuts this client off (calls are `Unavailable`), or connects it again: then its watches get
    /// `Lost`. Its session goes on until [`MemoryMeta::expire_session`].
    pub fn set_connected(&self, connected: bool) {
        let before = self.client.connected.swap(connected, Ordering::SeqCst);
        if connected && !before {
            self.client.watchers.lost();
        }
    }

    /// Ends this client's session: its ephemeral nodes are deleted, its watches get `Lost`, and it
    /// goes on with a new session.
    pub fn expire_session(&self) {
        let mut tree = lock(&self.shared.tree);
        let new = tree.new_session();
        let old = std::mem::replace(&mut lock(&self.client.inner).session, new);
        tree.delete_ephemerals(|session| session == old);
        self.client.watchers.lost();
    }

    /// From now on this client reads the tree as it is now, until it syncs or finishes a change: what
    /// a ZooKeeper client on a slow follower sees.
    pub fn lag(&self) {
        let nodes = Arc::new(lock(&self.shared.tree).nodes.clone());
        lock(&self.client.inner).lagging = Some(nodes);
    }

    /// The tree as it is now.
    pub fn snapshot(&self) -> MetaSnapshot {
        let mut tree = Tree { nodes: lock(&self.shared.tree).nodes.clone(), ..Tree::detached() };
        tree.delete_ephemerals(|_| true);
        MetaSnapshot(tree.nodes)
    }

    /// Puts an older tree in place, as a restored backup would (E-J14, E-W3). All watches get `Lost`;
    /// ephemeral nodes are gone; changes under way are dropped.
    pub fn restore(&self, snapshot: &MetaSnapshot) {
        let mut tree = lock(&self.shared.tree);
        tree.nodes = snapshot.0.clone();
        tree.late.clear();
        tree.each_client(|client| {
            lock(&client.inner).lagging = None;
            client.watchers.lost();
        });
    }

    /// Changes the stored bytes of `path` under everybody's feet, version unchanged: corruption.
    /// False when there is no such node.
    pub fn corrupt(&self, path: &str, change: impl FnOnce(&mut Vec<u8>)) -> bool {
        let mut tree = lock(&self.shared.tree);
        let Some(node) = tree.nodes.get_mut(path) else { return false };
        let mut value = node.value.to_vec();
        change(&mut value);
        node.value = value.into();
        true
    }

    /// Waits out the first half of a delay and says how long the second half is.
    async fn begin(&self) -> Result<Option<std::time::Duration>> {
        let half = self.shared.faults.half_delay();
        if let Some(half) = half {
            self.shared.clock.sleep(half).await;
        }
        lock(&self.shared.tree).apply_late();
        self.shared.faults.check_up(self.client.connected.load(Ordering::SeqCst))?;
        Ok(half)
    }

    async fn read<T>(&self, read: impl FnOnce(&Nodes) -> T) -> Result<T> {
        let half = self.begin().await?;
        let lagging = lock(&self.client.inner).lagging.clone();
        let value = match lagging {
            Some(nodes) => {
                self.shared.faults.count_stale_read();
                read(&nodes)
            }
            None => read(&lock(&self.shared.tree).nodes),
        };
        if let Some(half) = half {
            self.shared.clock.sleep(half).await;
        }
        Ok(value)
    }

    fn change(&self, ops: Vec<Op>) -> Result<Vec<Version>> {
        let session = lock(&self.client.inner).session;
        let fate = self.shared.faults.lost_answer();
        let mut tree = lock(&self.shared.tree);
        let unknown = || Error::Uncertain("simulated: the answer was lost".into());
        match fate {
            None => {
                let versions = tree.apply(session, &ops)?;
                drop(tree);
                lock(&self.client.inner).lagging = None;
                Ok(versions)
            }
            Some(LostAnswer::Dropped) => Err(unknown()),
            Some(LostAnswer::Applied) => {
                // Refused or not: the client does not hear of it.
                let _ = tree.apply(session, &ops);
                Err(unknown())
            }
            Some(LostAnswer::Late(calls)) => {
                tree.late.push(LateChange { calls_left: calls.max(1), session, ops });
                Err(unknown())
            }
        }
    }
}

impl Shared {
    fn add_client(&self) -> Arc<Client> {
        let mut tree = lock(&self.tree);
        let session = tree.new_session();
        let client = Arc::new(Client {
            watchers: Watchers::default(),
            connected: AtomicBool::new(true),
            inner: Mutex::new(ClientState { session, lagging: None }),
        });
        tree.clients.retain(|client| client.strong_count() > 0);
        tree.clients.push(Arc::downgrade(&client));
        client
    }
}

impl Drop for MemoryMeta {
    /// A client that is gone has no session.
    fn drop(&mut self) {
        let session = lock(&self.client.inner).session;
        lock(&self.shared.tree).delete_ephemerals(|other| other == session);
    }
}

impl Tree {
    fn detached() -> Self {
        Self { nodes: Nodes::new(), next_session: 0, clients: Vec::new(), late: Vec::new() }
    }

    fn new_session(&mut self) -> u64 {
        self.next_session += 1;
        self.next_session
    }

    fn each_client(&self, mut act: impl FnMut(&Client)) {
        self.clients.iter().filter_map(std::sync::Weak::upgrade).for_each(|client| act(&client));
    }

    fn publish<'a>(&self, paths: impl Iterator<Item = &'a str> + Clone) {
        self.each_client(|client| client.watchers.changed(paths.clone()));
    }

    fn delete_ephemerals(&mut self, ends: impl Fn(u64) -> bool) {
        let gone: Vec<String> = self
            .nodes
            .iter()
            .filter(|(_, node)| node.session.is_some_and(&ends))
            .map(|(path, _)| path.clone())
            .collect();
        for path in &gone {
            self.remove(path);
        }
        self.publish(gone.iter().map(String::as_str));
    }

    fn apply_late(&mut self) {
        for change in &mut self.late {
            change.calls_left -= 1;
        }
        let (due, waiting) = std::mem::take(&mut self.late)
            .into_iter()
            .partition(|c: &LateChange| c.calls_left == 0);
        self.late = waiting;
        for LateChange { session, ops, .. } in due {
            // Nobody waits for the outcome any more.
            let _ = self.apply(session, &ops);
        }
    }

    fn insert(&mut self, path: &str, node: MemoryNode) {
        if let Some(above) = self.nodes.get_mut(parent(path)) {
            above.children.insert(name(path).to_owned());
        }
        self.nodes.insert(path.to_owned(), node);
    }

    fn remove(&mut self, path: &str) -> Option<MemoryNode> {
        if let Some(above) = self.nodes.get_mut(parent(path)) {
            above.children.remove(name(path));
        }
        self.nodes.remove(path)
    }

    /// Applies all of `ops` or nothing, and tells the watches.
    fn apply(&mut self, session: u64, ops: &[Op]) -> Result<Vec<Version>> {
        let mut undo = Vec::new();
        let mut versions = Vec::with_capacity(ops.len());
        for (index, op) in ops.iter().enumerate() {
            match self.apply_one(session, index, op, &mut undo) {
                Ok(version) => versions.push(Version(version)),
                Err(error) => {
                    for step in undo.into_iter().rev() {
                        match step {
                            Undo::Remove(path) => {
                                self.remove(&path);
                            }
                            Undo::PutBack(path, node) => self.insert(&path, node),
                        }
                    }
                    return Err(error);
                }
            }
        }
        let changes = ops.iter().filter(|op| !matches!(op, Op::Check { .. })).map(Op::path);
        self.publish(changes);
        Ok(versions)
    }

    fn apply_one(
        &mut self,
        session: u64,
        index: usize,
        op: &Op,
        undo: &mut Vec<Undo>,
    ) -> Result<i32> {
        let refuse = |refusal| Error::Refused { index, path: op.path().to_owned(), refusal };
        match op {
            Op::Create { path, value, ephemeral } => {
                if self.nodes.contains_key(path) {
                    return Err(refuse(Refusal::Exists));
                }
                let above = self.nodes.get(parent(path)).ok_or(refuse(Refusal::NotFound))?;
                if above.session.is_some() {
                    return Err(Error::Invalid(format!("{path}: its parent is ephemeral")));
                }
                let session = ephemeral.then_some(session);
                let children = BTreeSet::new();
                let node = MemoryNode { value: value.clone(), version: 0, session, children };
                self.insert(path, node);
                undo.push(Undo::Remove(path.clone()));
                Ok(0)
            }
            Op::Set { path, value, version } => {
                let node = self.nodes.get_mut(path).ok_or(refuse(Refusal::NotFound))?;
                if node.version != version.0 {
                    return Err(refuse(Refusal::BadVersion));
                }
                let next = node.version.checked_add(1).ok_or_else(|| {
                    Error::Invalid(format!("{path}: no version above {}", version.0))
                })?;
                undo.push(Undo::PutBack(path.clone(), node.clone()));
                node.value = value.clone();
                node.version = next;
                Ok(next)
            }
            Op::Delete { path, version } => {
                let node = self.nodes.get(path).ok_or(refuse(Refusal::NotFound))?;
                if node.version != version.0 {
                    return Err(refuse(Refusal::BadVersion));
                }
                if !node.children.is_empty() {
                    return Err(refuse(Refusal::NotEmpty));
                }
                if let Some(node) = self.remove(path) {
                    undo.push(Undo::PutBack(path.clone(), node));
                }
                Ok(version.0)
            }
            Op::Check { path, version } => {
                let node = self.nodes.get(path).ok_or(refuse(Refusal::NotFound))?;
                if node.version == version.0 {
                    Ok(version.0)
                } else {
                    Err(refuse(Refusal::BadVersion))
                }
            }
        }
    }
}

fn as_node(node: &MemoryNode) -> Node {
    Node { value: node.value.clone(), version: Version(node.version) }
}

fn child_path(path: &str, child: &str) -> String {
    if path == "/" { format!("/{child}") } else { format!("{path}/{child}") }
}

impl MetaStore for MemoryMeta {
    fn get(&self, path: &str) -> BoxFuture<'_, Result<Option<Node>>> {
        let path = path.to_owned();
        Box::pin(async move {
            check_path(&path)?;
            self.read(|nodes| nodes.get(&path).map(as_node)).await
        })
    }

    fn children(&self, path: &str) -> BoxFuture<'_, Result<Vec<String>>> {
        let path = path.to_owned();
        Box::pin(async move {
            check_path(&path)?;
            self.read(|nodes| {
                nodes.get(&path).map(|n| n.children.iter().cloned().collect()).unwrap_or_default()
            })
            .await
        })
    }

    fn read_children(&self, path: &str) -> BoxFuture<'_, Result<Vec<(String, Node)>>> {
        let path = path.to_owned();
        Box::pin(async move {
            check_path(&path)?;
            self.read(|nodes| {
                let names = nodes.get(&path).into_iter().flat_map(|node| &node.children);
                names
                    .filter_map(|child| {
                        let node = nodes.get(&child_path(&path, child))?;
                        Some((child.clone(), as_node(node)))
                    })
                    .collect()
            })
            .await
        })
    }

    fn transact(&self, ops: Vec<Op>) -> BoxFuture<'_, Result<Vec<Version>>> {
        Box::pin(async move {
            check_ops(&ops)?;
            let half = self.begin().await?;
            self.shared.faults.check_room(&ops)?;
            let result = self.change(ops);
            if let Some(half) = half {
                self.shared.clock.sleep(half).await;
            }
            result
        })
    }

    fn watch(&self, prefix: &str) -> BoxFuture<'_, Result<Box<dyn Watch>>> {
        let prefix = prefix.to_owned();
        Box::pin(async move {
            check_path(&prefix)?;
            self.begin().await?;
            let watch = self.client.watchers.add(&prefix);
            Ok(Box::new(ClientWatch { watch, _client: Arc::clone(&self.client) }) as Box<dyn Watch>)
        })
    }

    fn sync(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            self.begin().await?;
            lock(&self.client.inner).lagging = None;
            Ok(())
        })
    }

    fn describe(&self) -> String {
        "memory".into()
    }
}

/// Keeps its client's watches alive while somebody waits.
#[derive(Debug)]
struct ClientWatch {
    watch: Box<dyn Watch>,
    _client: Arc<Client>,
}

impl Watch for ClientWatch {
    fn next(&mut self) -> BoxFuture<'_, Result<WatchEvent>> {
        self.watch.next()
    }
}
