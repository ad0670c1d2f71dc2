//! Supervised tasks: named, joined at the end, and a panic in one stops the process.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::runtime::Handle;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The tasks of one broker. Clones share the same set.
#[derive(Clone, Debug)]
pub struct Tasks {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    running: Mutex<JoinSet<()>>,
    stop: watch::Sender<bool>,
    panicked: watch::Sender<Option<&'static str>>,
    /// Where background work runs; `None`: where everything does.
    background: Option<Handle>,
}

/// Reports a panic of its task: dropped while unwinding, it names the task.
struct PanicGuard {
    name: &'static str,
    inner: Arc<Inner>,
}

impl Drop for PanicGuard {
    fn drop(&mut self) {
        if std::thread::panicking() {
            tracing::error!(task = self.name, "task panicked: a broken invariant");
            self.inner.panicked.send_replace(Some(self.name));
        }
    }
}

impl Default for Tasks {
    fn default() -> Self {
        Self::new()
    }
}

impl Tasks {
    /// An empty set.
    pub fn new() -> Self {
        Self::made(None)
    }

    /// An empty set whose background work runs on `runtime`: threads of its own, which it may keep busy
    /// without holding up anyone who waits for an answer. The runtime must outlive the tasks.
    pub fn with_background(runtime: Handle) -> Self {
        Self::made(Some(runtime))
    }

    fn made(background: Option<Handle>) -> Self {
        Self {
            inner: Arc::new(Inner {
                background,
                running: Mutex::new(JoinSet::new()),
                stop: watch::Sender::new(false),
                panicked: watch::Sender::new(None),
            }),
        }
    }

    /// Starts `work` on the current runtime. It ends by itself, after [`Tasks::stopping`] at the
    /// latest, or is cut off by [`Tasks::abort`].
    pub fn spawn(&self, name: &'static str, work: impl Future<Output = ()> + Send + 'static) {
        self.spawn_on(None, name, work);
    }

    /// The same for work that nobody waits for: on the background's runtime, if there is one.
    pub fn spawn_background(
        &self,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        self.spawn_on(self.inner.background.as_ref(), name, work);
    }

    fn spawn_on(
        &self,
        runtime: Option<&Handle>,
        name: &'static str,
        work: impl Future<Output = ()> + Send + 'static,
    ) {
        let guard = PanicGuard { name, inner: Arc::clone(&self.inner) };
        let guarded = async move {
            let _guard = guard;
            work.await;
        };
        let mut running = self.inner.running.lock().unwrap_or_else(PoisonError::into_inner);
        while running.try_join_next().is_some() {}
        match runtime {
            Some(runtime) => running.spawn_on(guarded, runtime),
            None => running.spawn(guarded),
        };
    }

    /// Asks all tasks to end.
    pub fn stop(&self) {
        self.inner.stop.send_replace(true);
    }

    /// Whether [`Tasks::stop`] was called.
    pub fn is_stopping(&self) -> bool {
        *self.inner.stop.borrow()
    }

    /// Waits until [`Tasks::stop`] is called; at once if it was. Cancel safe.
    pub async fn stopping(&self) {
        let mut stop = self.inner.stop.subscribe();
        // The sender lives as long as `self`.
        let _ = stop.wait_for(|stop| *stop).await;
    }

    /// Waits until a task panicked and gives its name. Whoever runs the process ends it then.
    pub async fn panicked(&self) -> &'static str {
        let mut panicked = self.inner.panicked.subscribe();
        match panicked.wait_for(Option::is_some).await.map(|name| *name) {
            Ok(Some(name)) => name,
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// Waits until all tasks have ended. Call [`Tasks::stop`] first.
    pub async fn join(&self) {
        loop {
            let mut batch = {
                let mut running = self.inner.running.lock().unwrap_or_else(PoisonError::into_inner);
                std::mem::take(&mut *running)
            };
            if batch.is_empty() {
                return;
            }
            while batch.join_next().await.is_some() {}
        }
    }

    /// Cuts all tasks off at their next await: what a killed process does, for simulation.
    pub fn abort(&self) {
        self.inner.running.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn join_waits_for_tasks_that_end_when_asked() {
        let tasks = Tasks::new();
        let (sent, mut received) = tokio::sync::mpsc::channel(1);
        let inner = tasks.clone();
        tasks.spawn("worker", async move {
            inner.stopping().await;
            let _ = sent.send(()).await;
        });
        tasks.stop();
        tasks.join().await;
        assert_eq!(received.recv().await, Some(()));
    }

    #[test]
    fn background_work_runs_on_threads_of_its_own_and_is_joined_like_any_other() {
        let runtime = |threads| {
            let mut builder = tokio::runtime::Builder::new_multi_thread();
            builder.worker_threads(threads).build().unwrap()
        };
        let (front, back) = (runtime(1), runtime(1));
        let tasks = Tasks::with_background(back.handle().clone());
        let (sent, received) = std::sync::mpsc::sync_channel(2);
        let thread = move |sent: std::sync::mpsc::SyncSender<_>| async move {
            sent.send(std::thread::current().id()).unwrap();
        };
        front.block_on(async {
            tasks.spawn("front", thread(sent.clone()));
            tasks.join().await;
            tasks.spawn_background("back", thread(sent));
            tasks.join().await;
        });
        assert_ne!(received.recv().unwrap(), received.recv().unwrap());
    }

    #[tokio::test]
    async fn a_panic_is_reported_by_name() {
        let tasks = Tasks::new();
        tasks.spawn("doomed", async { panic!("on purpose") });
        assert_eq!(tasks.panicked().await, "doomed");
    }
}
