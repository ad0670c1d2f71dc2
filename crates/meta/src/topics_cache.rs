//! An image of all topics in memory, kept current by a watch: what the broker's hot path looks into.
//!
//! Invariants: an image never changes; a new one takes its place. Only one task writes it, in the order
//! of its reads, so a topic never goes back to an older record. Images share what did not change: a
//! change costs a 256th of the topics.

use std::collections::BTreeMap;
use std::sync::Arc;

use talos_common::TopicId;
use tokio::sync::{mpsc, oneshot, watch};

use crate::settle::Backoff;
use crate::store::{Error, Result, Version, Watch, WatchEvent};
use crate::topics::{Topic, TopicState};
use crate::{Meta, paths, tree};

/// How many requests to read a topic now may wait.
const REQUESTS: usize = 256;

/// A topic in an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedTopic {
    /// The topic.
    pub topic: Topic,
    /// The version of its record.
    pub version: Version,
}

/// All topics at one moment.
#[derive(Clone, Debug)]
pub struct TopicsImage {
    by_id: Vec<Arc<BTreeMap<TopicId, Arc<CachedTopic>>>>,
    by_name: Vec<Arc<BTreeMap<String, TopicId>>>,
    count: usize,
    generation: u64,
}

/// The current image and how to follow it. Clones share it.
#[derive(Clone, Debug)]
pub struct TopicsCache {
    image: watch::Receiver<Arc<TopicsImage>>,
    requests: mpsc::Sender<Request>,
}

#[derive(Debug)]
struct Request {
    id: TopicId,
    done: oneshot::Sender<Result<()>>,
}

fn shard(of: u8) -> usize {
    usize::from(of)
}

impl TopicsImage {
    fn empty() -> Self {
        Self {
            by_id: (0..256).map(|_| Arc::default()).collect(),
            by_name: (0..256).map(|_| Arc::default()).collect(),
            count: 0,
            generation: 0,
        }
    }

    /// The topic with this id, also while it is being deleted.
    pub fn by_id(&self, id: TopicId) -> Option<&Arc<CachedTopic>> {
        let [first, ..] = id.0;
        self.by_id.get(shard(first))?.get(&id)
    }

    /// The topic with this name, also while it is being deleted.
    pub fn by_name(&self, name: &str) -> Option<&Arc<CachedTopic>> {
        let id = self.by_name.get(shard(paths::name_shard(name)))?.get(name)?;
        self.by_id(*id)
    }

    /// The topic with this name, if it is in use.
    pub fn live(&self, name: &str) -> Option<&Arc<CachedTopic>> {
        self.by_name(name).filter(|cached| cached.topic.state == TopicState::Live)
    }

    /// All topics, by id.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<CachedTopic>> {
        self.by_id.iter().flat_map(|shard| shard.values())
    }

    /// How many topics there are, those being deleted included.
    pub fn len(&self) -> usize {
        self.count
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Rises with every image that differs from the one before.
    pub fn generation(&self) -> u64 {
        self.generation
    }

    fn put(&mut self, id: TopicId, found: Option<CachedTopic>) {
        let [first, ..] = id.0;
        let Some(ids) = self.by_id.get_mut(shard(first)) else { return };
        if ids.get(&id).map(|cached| &**cached) == found.as_ref() {
            return;
        }
        self.generation += 1;
        let old = match found {
            Some(cached) => {
                let name = cached.topic.name.clone();
                let names = self.by_name.get_mut(shard(paths::name_shard(&name)));
                if let Some(names) = names {
                    Arc::make_mut(names).insert(name, id);
                }
                Arc::make_mut(ids).insert(id, Arc::new(cached))
            }
            None => {
                self.count = self.count.saturating_sub(1);
                let old = Arc::make_mut(ids).remove(&id);
                let name = old.as_ref().map(|cached| cached.topic.name.clone()).unwrap_or_default();
                let names = self.by_name.get_mut(shard(paths::name_shard(&name)));
                // The name may belong to another topic by now.
                if let Some(names) = names.filter(|names| names.get(&name) == Some(&id)) {
                    Arc::make_mut(names).remove(&name);
                }
                return;
            }
        };
        if old.is_none() {
            self.count += 1;
        }
    }
}

impl TopicsCache {
    /// Reads all topics and follows them, in a task that ends when `meta`'s tasks are asked to or the
    /// store closes.
    pub async fn start(meta: &Meta) -> Result<Self> {
        // The watch first: what changes during the read is read again.
        let watch = meta.store.watch(paths::TOPICS).await?;
        let mut image = TopicsImage::empty();
        read_all(meta, &mut image).await?;
        let (requests, inbox) = mpsc::channel(REQUESTS);
        let (writer, reader) = watch::channel(Arc::new(image.clone()));
        let follower = Follower { meta: meta.clone(), watch, inbox, image, writer };
        meta.env.tasks.spawn("topics cache", follower.run());
        Ok(Self { image: reader, requests })
    }

    /// The current image.
    pub fn image(&self) -> Arc<TopicsImage> {
        Arc::clone(&self.image.borrow())
    }

    /// Wakes its owner when the image changes. Cancel safe, as tokio's receiver is.
    pub fn subscribe(&self) -> watch::Receiver<Arc<TopicsImage>> {
        self.image.clone()
    }

    /// Reads one topic now. Afterwards the image shows at least what was stored before the call.
    pub async fn refresh(&self, id: TopicId) -> Result<()> {
        let (done, answer) = oneshot::channel();
        self.requests.send(Request { id, done }).await.map_err(|_| Error::Closed)?;
        answer.await.map_err(|_| Error::Closed)?
    }
}

async fn read_all(meta: &Meta, image: &mut TopicsImage) -> Result<()> {
    let mut found: BTreeMap<TopicId, CachedTopic> = BTreeMap::new();
    for (topic, version) in meta.topics().await? {
        found.insert(topic.id, CachedTopic { topic, version });
    }
    let gone: Vec<TopicId> =
        image.iter().map(|cached| cached.topic.id).filter(|id| !found.contains_key(id)).collect();
    for id in gone {
        image.put(id, None);
    }
    for (id, cached) in found {
        image.put(id, Some(cached));
    }
    Ok(())
}

struct Follower {
    meta: Meta,
    watch: Box<dyn Watch>,
    inbox: mpsc::Receiver<Request>,
    image: TopicsImage,
    writer: watch::Sender<Arc<TopicsImage>>,
}

impl Follower {
    async fn run(mut self) {
        let tasks = self.meta.env.tasks.clone();
        loop {
            let event = tokio::select! {
                biased;
                () = tasks.stopping() => return,
                request = self.inbox.recv() => match request {
                    Some(request) => {
                        let result = self.refresh(request.id).await;
                        self.publish();
                        // Whoever asked may have gone.
                        let _ = request.done.send(result);
                        continue;
                    }
                    None => return,
                },
                event = self.watch.next() => event,
            };
            match event {
                Ok(event) => self.follow(event).await,
                Err(Error::Closed) => return,
                Err(error) => {
                    tracing::warn!(%error, "watch of the topics failed; reading them again");
                    self.watch_again().await;
                }
            }
            self.publish();
        }
    }

    async fn refresh(&mut self, id: TopicId) -> Result<()> {
        self.meta.store.sync().await?;
        self.read_one(id).await
    }

    fn publish(&mut self) {
        let generation = self.image.generation;
        if self.writer.borrow().generation != generation {
            self.writer.send_replace(Arc::new(self.image.clone()));
        }
    }

    /// Takes one event in, trying until it succeeds or the tasks end.
    async fn follow(&mut self, event: WatchEvent) {
        let mut backoff = Backoff::new();
        while !self.meta.env.tasks.is_stopping() {
            let read = match &event {
                WatchEvent::Lost => read_all(&self.meta, &mut self.image).await,
                WatchEvent::Changed(path) => match TopicId::from_hex(tree::name(path)) {
                    Ok(id) => self.read_one(id).await,
                    // A folder.
                    Err(_) => Ok(()),
                },
            };
            match read {
                Ok(()) | Err(Error::Closed) => return,
                Err(error @ Error::Corrupt(_)) => {
                    tracing::error!(%error, "a topic record cannot be read; its last state stays");
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "topics could not be read; trying again");
                    backoff.pause(&self.meta.env.clock).await;
                }
            }
        }
    }

    async fn watch_again(&mut self) {
        let mut backoff = Backoff::new();
        while !self.meta.env.tasks.is_stopping() {
            match self.meta.store.watch(paths::TOPICS).await {
                Ok(watch) => {
                    self.watch = watch;
                    return self.follow(WatchEvent::Lost).await;
                }
                Err(Error::Closed) => return,
                Err(_) => backoff.pause(&self.meta.env.clock).await,
            }
        }
    }

    async fn read_one(&mut self, id: TopicId) -> Result<()> {
        let found = self.meta.topic(id).await?;
        self.image.put(id, found.map(|(topic, version)| CachedTopic { topic, version }));
        Ok(())
    }
}
