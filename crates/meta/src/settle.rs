//! Transactions whose outcome becomes known [E-W4].
//!
//! An unknown outcome is followed by the *same* operations, again and again, until an answer or a read
//! tells. Never by other values on the same versions: the first attempt may still be under way.

use std::time::Duration;

use talos_common::Clock;

use crate::store::{
    Error, MetaStore, Op, Refusal, Result, TRANSACTION_BYTES, TRANSACTION_OPS, Version,
};
use crate::tree::OP_OVERHEAD_BYTES;

/// How often an unknown outcome is asked for; with the pauses below about ten seconds.
const ATTEMPTS: u32 = 16;
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

/// A known outcome.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Settled {
    /// Applied, now or by an earlier attempt. The versions of a `Set` or `Create` are what the
    /// operation made, even if another change followed.
    Applied(Vec<Version>),
    /// Not applied and never will be: the operation with this index stands in the way.
    Refused(usize, Refusal),
}

/// A growing pause, for loops that wait for a store to come back.
#[derive(Debug)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub(crate) fn new() -> Self {
        Self(FIRST_PAUSE)
    }

    pub(crate) async fn pause(&mut self, clock: &Clock) {
        clock.sleep(self.0).await;
        self.0 = (self.0 * 2).min(LONGEST_PAUSE);
    }
}

/// Applies `ops` and makes sure of the outcome. `Uncertain` after about ten seconds without one, or
/// when others have changed what could tell; then the caller may call again with the same operations
/// and nothing else. Definite errors of
/// the first attempt (`Unavailable`, `Full`, …) are given as they are. Not cancel safe: a cancelled
/// call leaves the outcome unknown.
pub(crate) async fn settle(store: &dyn MetaStore, clock: &Clock, ops: &[Op]) -> Result<Settled> {
    let mut unknown: Option<String> = None;
    let mut backoff = Backoff::new();
    for _ in 0..ATTEMPTS {
        let refused = match store.transact(ops.to_vec()).await {
            Ok(versions) => return Ok(Settled::Applied(versions)),
            Err(Error::Refused { index, refusal, .. }) if unknown.is_none() => {
                return Ok(Settled::Refused(index, refusal));
            }
            Err(Error::Refused { index, refusal, .. }) => Some((index, refusal)),
            Err(Error::Uncertain(why)) => {
                unknown = Some(why);
                None
            }
            Err(Error::Unavailable(_) | Error::Full(_)) if unknown.is_some() => None,
            Err(error) if unknown.is_none() => return Err(error),
            Err(error) => {
                let why = unknown.unwrap_or_default();
                return Err(Error::Uncertain(format!("{why}; then {error}")));
            }
        };
        if let Some((index, refusal)) = refused {
            // The operations can never be applied from now on; were they before?
            let why = unknown.clone().unwrap_or_default();
            match former_attempt(store, ops, index).await {
                Ok(Former::Applied) => return Ok(Settled::Applied(expected_versions(ops))),
                Ok(Former::NotApplied) => return Ok(Settled::Refused(index, refusal)),
                Ok(Former::Unknown) => {
                    let text = format!("{why}; what it would have made was changed since");
                    return Err(Error::Uncertain(text));
                }
                Err(Error::Unavailable(_) | Error::Uncertain(_)) => {}
                // Whatever hinders reading says nothing of the change.
                Err(error) => return Err(Error::Uncertain(format!("{why}; then {error}"))),
            }
        }
        backoff.pause(clock).await;
    }
    Err(Error::Uncertain(unknown.unwrap_or_else(|| "no answer".into())))
}

/// The versions that `ops` make when they are applied.
fn expected_versions(ops: &[Op]) -> Vec<Version> {
    let of = |op: &Op| match op {
        Op::Create { .. } => Version(0),
        Op::Set { version, .. } => Version(version.0.saturating_add(1)),
        Op::Delete { version, .. } | Op::Check { version, .. } => *version,
    };
    ops.iter().map(of).collect()
}

/// What is known of an attempt whose outcome was unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Former {
    Applied,
    /// Or it was, and what it made is gone again: the tree is as if it had not been.
    NotApplied,
    /// Others changed every node that could tell.
    Unknown,
}

/// Whether `ops`, of which one attempt had an unknown outcome and a later one was refused at `index`,
/// were applied by the former. All or nothing, so each written node may tell: it has exactly the value
/// and version that it would have been given; or its version was never reached, or taken by another
/// value, which proves the opposite; or it is past that version, which proves nothing. Operations
/// that only delete leave no trace; they count as applied when the node that stood in the way is gone.
async fn former_attempt(store: &dyn MetaStore, ops: &[Op], index: usize) -> Result<Former> {
    store.sync().await?;
    let (mut writes, mut exact, mut gone) = (false, false, false);
    for op in ops {
        let (path, value, version) = match op {
            Op::Create { path, value, .. } => (path, value, Version(0)),
            Op::Set { path, value, version } => (path, value, Version(version.0.saturating_add(1))),
            Op::Delete { .. } | Op::Check { .. } => continue,
        };
        writes = true;
        match store.get(path).await? {
            Some(node) if node.version < version => return Ok(Former::NotApplied),
            Some(node) if node.version == version && node.value != *value => {
                return Ok(Former::NotApplied);
            }
            Some(node) => exact |= node.version == version,
            None if matches!(op, Op::Create { .. }) => return Ok(Former::NotApplied),
            None => gone = true,
        }
    }
    Ok(match ops.get(index) {
        Some(Op::Delete { path, .. }) if !writes => match store.get(path).await? {
            Some(_) => Former::NotApplied,
            None => Former::Applied,
        },
        _ if !writes => Former::NotApplied,
        _ if exact && !gone => Former::Applied,
        _ => Former::Unknown,
    })
}

/// Splits `groups`, each a few operations that belong together, into transactions that keep the
/// limits, with room for `extra` operations in front of each. Gives ranges of group indices.
pub(crate) fn batches(groups: &[Vec<Op>], extra: &[Op]) -> Vec<std::ops::Range<usize>> {
    let size = |ops: &[Op]| -> usize { ops.iter().map(|op| op.size() + OP_OVERHEAD_BYTES).sum() };
    let (mut result, mut start) = (Vec::new(), 0);
    let (first_count, first_bytes) = (extra.len(), size(extra));
    let (mut count, mut bytes) = (first_count, first_bytes);
    for (index, group) in groups.iter().enumerate() {
        let group_bytes = size(group);
        let full = count + group.len() > TRANSACTION_OPS || bytes + group_bytes > TRANSACTION_BYTES;
        if full && index > start {
            result.push(start..index);
            (start, count, bytes) = (index, first_count, first_bytes);
        }
        count += group.len();
        bytes += group_bytes;
    }
    if start < groups.len() {
        result.push(start..groups.len());
    }
    result
}

/// What became of one group of [`settle_groups`].
pub(crate) type GroupResult = Result<Settled>;

/// Applies `groups` in as few transactions as fit. A group is all or nothing and independent of the
/// others: one that is refused is left out and the rest of its batch tried again. `extra` (checks)
/// leads every transaction; if it is refused, so is every group of that batch and all that
/// follow, with an index below `extra.len()`. Indices and versions of a group count from `extra.len()`.
pub(crate) async fn settle_groups(
    store: &dyn MetaStore,
    clock: &Clock,
    groups: &[Vec<Op>],
    extra: &[Op],
) -> Vec<GroupResult> {
    let mut results: Vec<Option<GroupResult>> = groups.iter().map(|_| None).collect();
    for range in batches(groups, extra) {
        let mut members: Vec<usize> = range.collect();
        // Every round settles at least one member.
        while !members.is_empty() {
            let mut ops = extra.to_vec();
            let mut owners = vec![None; extra.len()];
            for member in &members {
                for op in groups.get(*member).into_iter().flatten() {
                    ops.push(op.clone());
                    owners.push(Some(*member));
                }
            }
            let settled = settle(store, clock, &ops).await;
            let victim = match &settled {
                Ok(Settled::Refused(index, _)) => owners.get(*index).copied().flatten(),
                _ => None,
            };
            match (settled, victim) {
                (Ok(Settled::Applied(versions)), _) => {
                    for member in members.drain(..) {
                        let own = owners.iter().zip(&versions);
                        let own = own.filter(|(owner, _)| **owner == Some(member));
                        let own = own.map(|(_, version)| *version).collect();
                        set(&mut results, member, Ok(Settled::Applied(own)));
                    }
                }
                (Ok(Settled::Refused(index, refusal)), Some(victim)) => {
                    let first = owners.iter().position(|owner| *owner == Some(victim)).unwrap_or(0);
                    let own = index - first + extra.len();
                    set(&mut results, victim, Ok(Settled::Refused(own, refusal)));
                    members.retain(|member| *member != victim);
                }
                (Ok(Settled::Refused(index, refusal)), None) => {
                    for member in members.drain(..) {
                        set(&mut results, member, Ok(Settled::Refused(index, refusal)));
                    }
                }
                (Err(error), _) => {
                    for member in members.drain(..) {
                        set(&mut results, member, Err(error.clone()));
                    }
                }
            }
        }
    }
    let missing = || Err(Error::Invalid("empty group".into()));
    results.into_iter().map(|result| result.unwrap_or_else(missing)).collect()
}

fn set(results: &mut [Option<GroupResult>], member: usize, result: GroupResult) {
    if let Some(slot) = results.get_mut(member) {
        *slot = Some(result);
    }
}
