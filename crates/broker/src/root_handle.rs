//! Where a leadership keeps its partition's root: the metadata, in a transaction that also checks
//! the ownership record (E-J4).
//!
//! Invariant (E-W4): after an unknown outcome the same value is tried again until it is known; only
//! then another.

use std::pin::Pin;

use bytes::Bytes;
use talos_log::root::{RootError, RootHandle};
use talos_meta::{Error, Lead, Meta, RootChange, SwapError, Version};
use tokio::sync::Mutex;

/// The root of one leadership.
#[derive(Debug)]
pub(crate) struct MetaRoot {
    meta: Meta,
    // Held while a swap runs: swaps of one root are one after the other.
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    lead: Lead,
    /// The version as last read or written; `None`: there is no root yet.
    version: Option<Version>,
    /// A value whose swap has an unknown outcome.
    unsettled: Option<Bytes>,
}

impl MetaRoot {
    pub(crate) fn new(meta: Meta, lead: Lead, version: Option<Version>) -> Self {
        Self { meta, state: Mutex::new(State { lead, version, unsettled: None }) }
    }

    async fn swap(&self, value: Bytes) -> Result<(), RootError> {
        let mut state = self.state.lock().await;
        self.settle_former(&mut state).await?;
        self.settle(&mut state, value).await
    }

    async fn read(&self) -> Result<Option<Bytes>, RootError> {
        let mut state = self.state.lock().await;
        self.settle_former(&mut state).await?;
        let root = self.meta.root(state.lead.partition).await;
        let root = root.map_err(|error| RootError::Unavailable(error.to_string()))?;
        if root.as_ref().map(|node| node.version) != state.version {
            // Only another leader can have changed it.
            return Err(RootError::Fenced);
        }
        Ok(root.map(|node| node.value))
    }

    /// Makes sure of a swap whose outcome is unknown, before anything else.
    async fn settle_former(&self, state: &mut State) -> Result<(), RootError> {
        let Some(old) = state.unsettled.clone() else { return Ok(()) };
        let settled = self.settle(state, old.clone()).await;
        // That this attempt was refused says nothing of the one before: it stays unknown (E-W4).
        if matches!(settled, Err(RootError::Unavailable(_))) {
            state.unsettled = Some(old);
        }
        settled
    }

    async fn settle(&self, state: &mut State, value: Bytes) -> Result<(), RootError> {
        let change = RootChange { expected: state.version, value: value.clone() };
        // If this call is cut off, its outcome is unknown too.
        state.unsettled = Some(value.clone());
        match self.meta.swap(&state.lead, change).await {
            Ok(swapped) => {
                state.version = Some(swapped.root);
                state.lead.version = swapped.ownership;
                state.unsettled = None;
                Ok(())
            }
            // An earlier attempt was applied.
            Err(SwapError::Stale { current: Some(node) }) if node.value == value => {
                state.version = Some(node.version);
                state.unsettled = None;
                Ok(())
            }
            Err(SwapError::Stale { current }) => Err(RootError::Corrupt(format!(
                "the root of {} was changed by somebody else, to {:?}",
                state.lead.partition,
                current.map(|node| node.version),
            ))),
            Err(SwapError::Fenced { .. }) => {
                state.unsettled = None;
                Err(RootError::Fenced)
            }
            Err(SwapError::Store(error)) => {
                let text = error.to_string();
                match error {
                    Error::Uncertain(_) => Err(RootError::Uncertain(text)),
                    Error::Corrupt(_) => Err(RootError::Corrupt(text)),
                    Error::Refused { .. }
                    | Error::Unavailable(_)
                    | Error::Full(_)
                    | Error::Invalid(_)
                    | Error::Closed => {
                        state.unsettled = None;
                        Err(RootError::Unavailable(text))
                    }
                }
            }
        }
    }
}

impl RootHandle for MetaRoot {
    fn swap(
        &self,
        value: Bytes,
    ) -> Pin<Box<dyn Future<Output = Result<(), RootError>> + Send + '_>> {
        Box::pin(self.swap(value))
    }

    fn read(&self) -> Pin<Box<dyn Future<Output = Result<Option<Bytes>, RootError>> + Send + '_>> {
        Box::pin(self.read())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use super::*;
    use talos_common::{BrokerDir, BrokerEpoch, BrokerId, Env};
    use talos_meta::{MemoryMeta, NewTopic};

    #[tokio::test(start_paused = true)]
    async fn e_w4_a_root_of_unknown_outcome_is_settled_before_it_is_read_or_swapped() {
        for seed in 0..20 {
            let env = Env::simulated(seed, 0);
            let tree = MemoryMeta::new(&env);
            let meta = Meta::new(Arc::new(tree.handle()), env);
            meta.create_cluster().await.unwrap();
            let dir = BrokerDir { broker: BrokerId(1), epoch: BrokerEpoch(1) };
            meta.register(dir).await.unwrap();
            let new = NewTopic { name: "t".into(), partitions: 1, configs: BTreeMap::new() };
            let topic = meta.create_topic(new).await.unwrap().0;
            let tp = topic.partition_ids().next().unwrap();
            let claim = meta.claim_many(dir, &[tp]).await.remove(0).unwrap();
            let root = MetaRoot::new(meta.clone(), claim.lead(dir), None);
            assert_eq!(root.read().await, Ok(None));
            // No answer comes, for longer than is waited for.
            tree.faults().set_lost_answers(1_000_000);
            let unknown = root.swap(Bytes::from_static(b"one")).await;
            assert!(matches!(unknown, Err(RootError::Uncertain(_))), "{seed}: {unknown:?}");
            let other = root.swap(Bytes::from_static(b"two")).await;
            assert!(matches!(other, Err(RootError::Uncertain(_))), "{seed}: {other:?}");
            tree.faults().heal();
            let read = root.read().await;
            assert_eq!(
                read,
                Ok(Some(Bytes::from_static(b"one"))),
                "{seed}: the other was not sent"
            );
            root.swap(Bytes::from_static(b"three")).await.unwrap();
            let node = meta.root(tp).await.unwrap().unwrap();
            assert_eq!((&node.value[..], node.version), (&b"three"[..], Version(1)), "{seed}");
        }
    }
}
