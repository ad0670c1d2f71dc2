//! What a person is told while records cannot be read: once when it begins, once when it is over; and
//! when to give up.

use std::collections::BTreeSet;
use std::time::Duration;

use talos_common::Clock;
use talos_protocol::ErrorCode;
use tokio::time::Instant;

use crate::client::ClientError;

/// Follows the troubles of the partitions that are read.
pub(super) struct Away {
    clock: Clock,
    topic: String,
    /// How long to wait; `None`: for ever.
    limit: Option<Duration>,
    /// The server that is away.
    server: Option<String>,
    /// Partitions of which was told that they cannot be read, for another reason.
    partitions: BTreeSet<i32>,
    /// Since when anything is wrong, and what.
    since: Option<(Instant, ClientError)>,
    say: fn(String),
}

impl Away {
    pub(super) fn new(clock: Clock, topic: &str, limit: Option<Duration>, say: fn(String)) -> Self {
        let (server, partitions, since) = (None, BTreeSet::new(), None);
        Self { clock, topic: topic.into(), limit, server, partitions, since, say }
    }

    /// Whether to try again after this error, which stopped everything. Tells of it the first time.
    pub(super) fn is_worth_waiting(&mut self, error: &ClientError) -> bool {
        let gone = error.code() == Some(ErrorCode::UnknownTopicOrPartition);
        let again = error.is_away() || (error.is_retriable() && !gone);
        if error.is_away() {
            self.broker(Some(error));
        } else if again && self.since.is_none() {
            (self.say)(format!("trying again: {error}"));
        }
        if again {
            self.since.get_or_insert_with(|| (self.clock.now(), error.clone()));
        }
        again && self.until().is_none_or(|until| self.clock.now() < until)
    }

    /// It works again.
    pub(super) fn is_back(&mut self) {
        self.update(&[]);
    }

    /// The partitions that cannot be read now, and why.
    pub(super) fn update(&mut self, troubles: &[(i32, ClientError)]) {
        self.broker(troubles.iter().map(|(_, error)| error).find(|error| error.is_away()));
        for (partition, error) in troubles {
            if !error.is_away() && self.partitions.insert(*partition) {
                let Self { topic, .. } = self;
                (self.say)(format!(
                    "partition {partition} of {topic} cannot be read now ({error}), trying again; see \
                     docs/operations.md#a-partition-is-offline"
                ));
            }
        }
        let troubled = |partition: &i32| troubles.iter().any(|(other, _)| other == partition);
        let over: Vec<i32> = self.partitions.iter().copied().filter(|p| !troubled(p)).collect();
        for partition in over {
            self.partitions.remove(&partition);
            (self.say)(format!("partition {partition} of {} is read again", self.topic));
        }
        match troubles.first() {
            None => self.since = None,
            Some((_, error)) => {
                let since = self.since.as_ref().map_or_else(|| self.clock.now(), |(at, _)| *at);
                self.since = Some((since, error.clone()));
            }
        }
    }

    fn broker(&mut self, error: Option<&ClientError>) {
        match (error, self.server.is_some()) {
            (Some(error), false) => {
                let server = error.server().unwrap_or_default().to_owned();
                (self.say)(format!("broker {server} is away, trying again ({error})"));
                self.server = Some(server);
            }
            (None, true) => {
                let server = self.server.take().unwrap_or_default();
                (self.say)(format!("broker {server} is back"));
            }
            _ => {}
        }
    }

    /// When to give up.
    pub(super) fn until(&self) -> Option<Instant> {
        Some(self.since.as_ref()?.0 + self.limit?)
    }

    /// Waits until it is time to give up. Cancel safe.
    pub(super) async fn too_long(&self) -> ClientError {
        match (self.until(), &self.since) {
            (Some(until), Some((_, error))) => {
                self.clock.sleep_until(until).await;
                error.clone()
            }
            _ => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

    fn say(text: String) {
        SAID.lock().unwrap().push(text);
    }

    fn said() -> Vec<String> {
        std::mem::take(&mut *SAID.lock().unwrap())
    }

    #[tokio::test(start_paused = true)]
    async fn each_trouble_is_told_once_and_so_is_its_end() {
        let refused = || ClientError::Connect { server: "b:1".into(), reason: "refused".into() };
        let offline = |partition| ClientError::NoLeader { topic: "t".into(), partition };
        let clock = Clock::system();
        let mut away = Away::new(clock.clone(), "t", Some(Duration::from_secs(9)), say);
        assert!(away.until().is_none());
        let begin = clock.now();
        away.update(&[(0, refused()), (1, refused())]);
        away.update(&[(0, refused()), (1, refused())]);
        assert_eq!(said().len(), 1);
        clock.sleep(Duration::from_secs(4)).await;
        // The broker is back, one partition is not.
        away.update(&[(1, offline(1))]);
        let told = said();
        assert_eq!(told[0], "broker b:1 is back");
        assert!(told[1].starts_with("partition 1 of t cannot be read now (") && told.len() == 2);
        assert_eq!(away.too_long().await.to_string(), offline(1).to_string());
        assert_eq!(clock.now() - begin, Duration::from_secs(9), "counted from the first trouble");
        away.is_back();
        assert_eq!(said(), ["partition 1 of t is read again"]);
        assert!(away.until().is_none());
        assert!(away.is_worth_waiting(&refused()));
        assert!(!away.is_worth_waiting(&ClientError::Invalid("no".into())));
        clock.sleep(Duration::from_secs(9)).await;
        assert!(!away.is_worth_waiting(&refused()), "the time is up");
        assert_eq!(said().len(), 1);
    }
}
