//! Producer ids, unique for ever: taken in blocks from the metadata by compare-and-set, handed out
//! from memory. What is left of a block at a stop is never used.

use bytes::Bytes;
use talos_meta::store::{Error, Op, Refusal, Version};
use talos_meta::{Meta, MetaStore};
use tokio::sync::Mutex;

/// Where the next block's first id stands, as eight bytes, big-endian.
const PATH: &str = "/producer-ids";
const BLOCK_IDS: i64 = 1_000;
/// How often a change that another one overtook is tried anew.
const ROUNDS: usize = 16;

/// Hands out producer ids.
#[derive(Debug)]
pub(crate) struct ProducerIds {
    meta: Meta,
    // Held while a block is taken: whoever needs an id waits for it.
    block: Mutex<std::ops::Range<i64>>,
}

impl ProducerIds {
    pub(crate) fn new(meta: Meta) -> Self {
        Self { meta, block: Mutex::new(0..0) }
    }

    /// An id that was never given before. After an unknown outcome the block is skipped.
    pub(crate) async fn next(&self) -> Result<i64, Error> {
        let mut block = self.block.lock().await;
        if block.is_empty() {
            *block = take_block(&**self.meta.store()).await?;
        }
        block.next().ok_or_else(|| Error::Corrupt(format!("{PATH}: no producer id is left")))
    }
}

async fn take_block(store: &dyn MetaStore) -> Result<std::ops::Range<i64>, Error> {
    let mut last = Error::Unavailable(format!("{PATH} keeps changing"));
    for _ in 0..ROUNDS {
        store.sync().await?;
        let (first, version) = match store.get(PATH).await? {
            Some(node) => (decode(&node.value)?, Some(node.version)),
            None => (0, None),
        };
        let next = first
            .checked_add(BLOCK_IDS)
            .ok_or_else(|| Error::Corrupt(format!("{PATH}: no producer id is left")))?;
        match store.transact(vec![change(next, version)]).await {
            Ok(_) => return Ok(first..next),
            // Another one was faster, or an earlier attempt of ours was applied late.
            Err(Error::Refused { refusal: Refusal::BadVersion | Refusal::Exists, .. }) => {}
            // Maybe applied: nobody uses that block then.
            Err(error @ Error::Uncertain(_)) => last = error,
            Err(error) => return Err(error),
        }
    }
    Err(last)
}

fn change(next: i64, version: Option<Version>) -> Op {
    let (path, value) = (PATH.to_owned(), Bytes::copy_from_slice(&next.to_be_bytes()));
    match version {
        Some(version) => Op::Set { path, value, version },
        None => Op::Create { path, value, ephemeral: false },
    }
}

fn decode(value: &[u8]) -> Result<i64, Error> {
    let corrupt = || Error::Corrupt(format!("{PATH}: {} bytes are no producer id", value.len()));
    let first = i64::from_be_bytes(value.try_into().map_err(|_| corrupt())?);
    if first < 0 { Err(corrupt()) } else { Ok(first) }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use super::*;
    use talos_common::Env;
    use talos_meta::{LostAnswer, MemoryMeta};

    #[tokio::test(start_paused = true)]
    async fn no_id_is_given_twice_over_restarts_and_lost_answers() {
        let env = Env::simulated(1, 0);
        let store = MemoryMeta::new(&env);
        let mut seen = BTreeSet::new();
        for start in 0..6 {
            if start == 3 {
                store.faults().lose_next(LostAnswer::Late(2));
                store.faults().lose_next(LostAnswer::Applied);
            }
            let ids = ProducerIds::new(Meta::new(Arc::new(store.handle()), env.clone()));
            for _ in 0..1_001 {
                let id = ids.next().await.unwrap();
                assert!(id >= 0 && seen.insert(id), "{id} twice");
            }
        }
    }
}
