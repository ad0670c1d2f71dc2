//! Signals that end the process: the first asks for a clean stop, the second ends it at once.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::watch;

/// A request to stop that many can wait for. Clones share it.
#[derive(Clone, Debug)]
pub struct Stop {
    asked: watch::Sender<bool>,
}

impl Default for Stop {
    fn default() -> Self {
        Self::new()
    }
}

impl Stop {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self { asked: watch::Sender::new(false) }
    }

    /// Asks for the stop.
    pub fn ask(&self) {
        self.asked.send_replace(true);
    }

    /// Whether the stop was asked for.
    pub fn is_asked(&self) -> bool {
        *self.asked.borrow()
    }

    /// A future, clonable, that ends when the stop is asked for.
    pub fn asked(&self) -> Asked {
        Asked { stop: self.clone(), waiting: None }
    }
}

/// Ends when the stop is asked for. Cancel safe.
pub struct Asked {
    stop: Stop,
    waiting: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Clone for Asked {
    fn clone(&self) -> Self {
        self.stop.asked()
    }
}

impl Future for Asked {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let stop = self.stop.clone();
        let waiting = self.waiting.get_or_insert_with(|| {
            Box::pin(async move {
                let mut asked = stop.asked.subscribe();
                // The sender lives as long as `stop`.
                let _ = asked.wait_for(|asked| *asked).await;
            })
        });
        waiting.as_mut().poll(context)
    }
}

/// SIGINT and SIGTERM of this process.
pub struct Signals {
    interrupt: Signal,
    terminate: Signal,
}

impl Signals {
    /// From now on the two signals do not end the process by themselves.
    pub fn new() -> std::io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Waits for the next one; gives its name and the exit code that tells of it. Cancel safe.
    pub async fn next(&mut self) -> (&'static str, u8) {
        tokio::select! {
            biased;
            _ = self.interrupt.recv() => ("SIGINT", 130),
            _ = self.terminate.recv() => ("SIGTERM", 143),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn all_clones_hear_of_the_stop_early_and_late() {
        let stop = Stop::new();
        let (early, clone) = (stop.asked(), stop.clone());
        let waiting = async { tokio::join!(early.clone(), early) };
        let asking = async { clone.ask() };
        tokio::join!(waiting, asking);
        assert!(stop.is_asked());
        stop.asked().await;
    }
}
