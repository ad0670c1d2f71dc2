//! What an operator should know of a running broker: what it serves, and what it does not and why.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use talos_common::{BrokerId, TopicPartitionId};

use crate::broker::Shared;

/// Partitions that are named one by one in a report; more are counted.
const NAMED: usize = 20;

/// What a broker serves at an instant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Its own id.
    pub node_id: BrokerId,
    /// Partitions that are served.
    pub open: usize,
    /// Partitions that it leads and can not serve, by name, with the reason.
    pub offline: Vec<(String, String)>,
    /// Partitions that are served although reads met damage, by name, with where it is.
    pub damaged: Vec<(String, String)>,
    /// Partitions that are not served because they belong to another broker id that is not known to
    /// have stopped.
    pub of_others: BTreeMap<BrokerId, usize>,
}

impl Health {
    /// Whether it serves. A broker that has some partitions offline does, for all the others; one that
    /// serves none, while they all belong to another id, was most likely started with the wrong id.
    pub fn is_serving(&self) -> bool {
        self.open > 0 || self.of_others.is_empty()
    }

    /// What is not as it should be, for people, in lines; empty when all is well.
    pub fn report(&self) -> String {
        let mut text = String::new();
        for (id, partitions) in &self.of_others {
            let _ = writeln!(
                text,
                "{partitions} partitions belong to broker {id}, which is not known to have stopped; \
                 this is broker {}. If broker {id} was killed on this data, start with its id: \
                 --node-id {id}",
                self.node_id
            );
        }
        list(&mut text, &self.offline, "are offline");
        list(&mut text, &self.damaged, "have records that can not be read");
        text
    }
}

/// Names some of `partitions`.
fn list(text: &mut String, partitions: &[(String, String)], what: &str) {
    if !partitions.is_empty() {
        let _ = writeln!(text, "{} partitions {what}:", partitions.len());
    }
    for (name, why) in partitions.iter().take(NAMED) {
        let _ = writeln!(text, "  {name}: {why}");
    }
    if partitions.len() > NAMED {
        let _ = writeln!(text, "  and {} more", partitions.len() - NAMED);
    }
}

impl Shared {
    pub(crate) fn health(&self) -> Health {
        let (open, _) = self.partitions.count();
        let image = self.topics.image();
        let name = |id: TopicPartitionId| match image.by_id(id.topic) {
            Some(cached) => format!("{}-{}", cached.topic.name, id.partition),
            None => id.to_string(),
        };
        let named = |partitions: Vec<(TopicPartitionId, String)>| {
            partitions.into_iter().map(|(id, why)| (name(id), why)).collect()
        };
        Health {
            node_id: self.config.node_id,
            open,
            offline: named(self.partitions.offline()),
            damaged: named(self.partitions.damaged()),
            of_others: self.partitions.of_others(),
        }
    }

    /// The log lines of a start.
    pub(crate) fn say_started(&self) {
        let health = self.health();
        tracing::info!(
            broker = %self.dir,
            cluster = %self.cluster_id,
            partitions = health.open,
            offline = health.offline.len(),
            "broker started"
        );
        for (id, partitions) in &health.of_others {
            tracing::error!(
                partitions,
                node_id = %self.config.node_id,
                owner = %id,
                "partitions are not served: they belong to another broker, which is not known to have \
                 stopped; if it was killed on this data, stop and start with its node id"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn serving(open: usize) -> Health {
        let (offline, damaged, of_others) = (Vec::new(), Vec::new(), BTreeMap::new());
        Health { node_id: BrokerId(1), open, offline, damaged, of_others }
    }

    #[test]
    fn a_report_names_what_is_wrong_and_is_bounded() {
        let well = serving(3);
        assert!(well.is_serving() && well.report().is_empty());
        assert!(serving(0).is_serving(), "a new broker has nothing to serve yet");
        let offline = (0..30).map(|n| (format!("t-{n}"), "damaged".to_owned())).collect();
        let hurt = Health { offline, ..serving(1) };
        let report = hurt.report();
        assert!(hurt.is_serving());
        assert!(report.contains("30 partitions are offline") && report.contains("  t-0: damaged"));
        assert!(report.ends_with("and 10 more\n"), "{report}");
        let damaged = vec![("t-4".to_owned(), "a file is missing".to_owned())];
        let report = Health { damaged, ..serving(1) }.report();
        assert!(report.contains("1 partitions have records that can not be read:\n  t-4: a file"));
        let of_others = BTreeMap::from([(BrokerId(7), 4)]);
        let wrong = Health { of_others, ..serving(0) };
        assert!(!wrong.is_serving());
        assert!(wrong.report().contains("--node-id 7"), "{}", wrong.report());
    }
}
