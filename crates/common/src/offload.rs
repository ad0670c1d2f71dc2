//! Work that keeps a processor busy, off the threads that serve connections: looking into compressed
//! batches, above all. In a simulation it runs in place, so that a run replays.

use std::sync::Arc;

use tokio::sync::Semaphore;

/// Runs work on a bounded number of threads, or in place. Clones share the bound.
#[derive(Clone, Debug)]
pub struct Offload {
    places: Option<Arc<Semaphore>>,
}

impl Offload {
    /// Runs everything where it is called.
    pub fn in_place() -> Self {
        Self { places: None }
    }

    /// At most `places` pieces of work at a time, on blocking threads of the runtime.
    pub fn threads(places: usize) -> Self {
        Self { places: Some(Arc::new(Semaphore::new(places.max(1)))) }
    }

    /// Does `work`; first come, first served. It must not wait for anything. When the future is dropped,
    /// work that began goes on, keeps its place until it is done, and its result is lost. A panic in it
    /// is the caller's.
    pub async fn run<T: Send + 'static>(&self, work: impl FnOnce() -> T + Send + 'static) -> T {
        let Some(places) = &self.places else { return work() };
        // The semaphore is never closed.
        let place = Arc::clone(places).acquire_owned().await;
        let run = move || {
            let result = work();
            drop(place);
            result
        };
        match tokio::task::spawn_blocking(run).await {
            Ok(result) => result,
            Err(error) => match error.try_into_panic() {
                Ok(panic) => std::panic::resume_unwind(panic),
                // The runtime ends, and this future with it.
                Err(_) => std::future::pending().await,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::mpsc::sync_channel;

    #[tokio::test]
    async fn work_gives_its_result_in_place_and_on_a_thread() {
        let here = std::thread::current().id();
        assert_eq!(Offload::in_place().run(|| std::thread::current().id()).await, here);
        assert_ne!(Offload::threads(1).run(|| std::thread::current().id()).await, here);
    }

    #[tokio::test]
    async fn no_more_runs_at_a_time_than_there_are_places() {
        let offload = Offload::threads(2);
        let running = AtomicUsize::new(0);
        let running = Arc::new(running);
        let (met, meeting) = sync_channel::<()>(8);
        let meeting = Arc::new(std::sync::Mutex::new(meeting));
        let work = |n: usize| {
            let (running, met, meeting) = (Arc::clone(&running), met.clone(), Arc::clone(&meeting));
            offload.run(move || {
                let now = running.fetch_add(1, Ordering::SeqCst) + 1;
                // The first waits for the second: both run at once.
                if n == 0 {
                    meeting.lock().unwrap().recv().unwrap();
                } else {
                    met.send(()).unwrap();
                }
                running.fetch_sub(1, Ordering::SeqCst);
                now
            })
        };
        let (a, b, c, d) = tokio::join!(work(0), work(1), work(2), work(3));
        assert!([a, b, c, d].into_iter().all(|now| now <= 2), "{:?}", [a, b, c, d]);
    }

    #[tokio::test]
    #[should_panic(expected = "on purpose")]
    async fn a_panic_is_the_callers() {
        Offload::threads(1).run(|| panic!("on purpose")).await
    }
}
