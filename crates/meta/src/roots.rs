//! The root of each partition: an opaque value that says what exists of it (its encoding belongs to
//! the log).
//!
//! Invariant [E-J4]: a root changes only in a transaction that also checks the ownership record of the
//! leadership it is changed for. From the instant of a claim, no older leader can add, trim or delete.

use bytes::Bytes;
use talos_common::TopicPartitionId;

use crate::ownership::{Lead, LeadError, ownership_path};
use crate::settle::{Settled, settle_groups};
use crate::store::{Node, Op, Result, Version};
use crate::{CONTENTION_ROUNDS, Meta, contended, paths};

/// One change of a root.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RootChange {
    /// The version that it must have; `None`: there must be none yet.
    pub expected: Option<Version>,
    /// The new value.
    pub value: Bytes,
}

/// A root that was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swapped {
    /// The new version of the root.
    pub root: Version,
    /// The version of the ownership record that was checked: what to put in [`Lead::version`].
    pub ownership: Version,
}

/// Why a root was not swapped.
pub type SwapError = LeadError;

pub(crate) fn root_op(tp: TopicPartitionId, change: &RootChange) -> Op {
    let (path, value) = (paths::partition(paths::ROOTS, tp), change.value.clone());
    match change.expected {
        Some(version) => Op::Set { path, value, version },
        None => Op::Create { path, value, ephemeral: false },
    }
}

impl Meta {
    /// The root of a partition, or `None` before the first swap (and for unknown partitions: the
    /// ownership record decides whether there is one).
    pub async fn root(&self, tp: TopicPartitionId) -> Result<Option<Node>> {
        self.store.get(&paths::partition(paths::ROOTS, tp)).await
    }

    /// Changes the root of a partition that is led as `lead` says. `Fenced` and `Stale` are definite: not
    /// applied. On `Uncertain` call again with the same arguments and no others; if the change was
    /// applied after all, that gives `Stale` with the very value as `current`.
    pub async fn swap(&self, lead: &Lead, change: RootChange) -> Result<Swapped, SwapError> {
        let mut results = self.swap_many(vec![(*lead, change)]).await;
        results.pop().unwrap_or_else(|| Err(contended("root").into()))
    }

    /// Changes many roots in few transactions. One result each, in order; each is independent of the
    /// others. A partition may occur once. See [`Meta::swap`].
    pub async fn swap_many(
        &self,
        changes: Vec<(Lead, RootChange)>,
    ) -> Vec<Result<Swapped, SwapError>> {
        let mut results: Vec<Result<Swapped, SwapError>> =
            changes.iter().map(|_| Err(contended("root").into())).collect();
        let mut open: Vec<(usize, Lead, RootChange)> = changes
            .into_iter()
            .enumerate()
            .map(|(index, (lead, change))| (index, lead, change))
            .collect();
        for _ in 0..CONTENTION_ROUNDS {
            let groups: Vec<Vec<Op>> = open
                .iter()
                .map(|(_, lead, change)| {
                    let path = ownership_path(lead.partition);
                    let check = Op::Check { path, version: lead.version };
                    vec![check, root_op(lead.partition, change)]
                })
                .collect();
            let settled = settle_groups(&*self.store, &self.env.clock, &groups, &[]).await;
            let mut again = Vec::new();
            for ((index, mut lead, change), settled) in open.into_iter().zip(settled) {
                let result = match settled {
                    Ok(Settled::Applied(versions)) => {
                        let root = versions.get(1).copied().unwrap_or(Version(0));
                        Ok(Swapped { root, ownership: lead.version })
                    }
                    Ok(Settled::Refused(0, _)) => match self.still_led(&lead).await {
                        // Another change by this leader itself, such as clearing `inherits` (E-J14).
                        Ok(version) => {
                            lead.version = version;
                            again.push((index, lead, change));
                            continue;
                        }
                        Err(error) => Err(error),
                    },
                    Ok(Settled::Refused(..)) => match self.root(lead.partition).await {
                        Ok(current) => Err(SwapError::Stale { current }),
                        Err(error) => Err(error.into()),
                    },
                    Err(error) => Err(error.into()),
                };
                if let Some(slot) = results.get_mut(index) {
                    *slot = result;
                }
            }
            open = again;
            if open.is_empty() {
                break;
            }
        }
        results
    }

    /// The present version of the ownership record, if `lead` still holds.
    async fn still_led(&self, lead: &Lead) -> Result<Version, LeadError> {
        self.store.sync().await?;
        match self.ownership(lead.partition).await? {
            Some((record, version)) if record.is_led(lead) => Ok(version),
            found => Err(LeadError::Fenced { current: found.map(|(record, _)| record) }),
        }
    }
}
