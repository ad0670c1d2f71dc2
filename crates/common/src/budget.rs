//! Byte budgets (P7): whoever holds bytes for others holds a lease on a budget.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// One permit of the semaphore stands for this many bytes, so that budgets above 4 GiB fit.
const GRAIN_BYTES: usize = 256;

/// A limit in bytes that many holders share. Clones share the same limit. First come, first served:
/// a large request is not overtaken for ever by small ones.
#[derive(Clone, Debug)]
pub struct ByteBudget {
    permits: Arc<Semaphore>,
    limit_bytes: usize,
}

/// Bytes taken from a budget; given back when dropped.
#[derive(Debug)]
pub struct ByteLease {
    _permit: OwnedSemaphorePermit,
}

impl ByteBudget {
    /// A budget of `limit_bytes`, rounded up to 256.
    pub fn new(limit_bytes: usize) -> Self {
        let grains = limit_bytes.div_ceil(GRAIN_BYTES).clamp(1, Semaphore::MAX_PERMITS);
        Self { permits: Arc::new(Semaphore::new(grains)), limit_bytes: grains * GRAIN_BYTES }
    }

    fn grains(&self, bytes: usize) -> u32 {
        let all = self.limit_bytes / GRAIN_BYTES;
        u32::try_from(bytes.div_ceil(GRAIN_BYTES).clamp(1, all)).unwrap_or(u32::MAX)
    }

    /// Waits until `bytes` are free and takes them. A request above the whole budget waits for, and
    /// takes, all of it: one large item can always pass, alone. Cancel safe.
    pub async fn take(&self, bytes: usize) -> ByteLease {
        let permit = Arc::clone(&self.permits).acquire_many_owned(self.grains(bytes)).await;
        // The semaphore is never closed.
        ByteLease { _permit: permit.unwrap_or_else(|_| unreachable!("budget closed")) }
    }

    /// Takes `bytes` if they are free now.
    pub fn try_take(&self, bytes: usize) -> Option<ByteLease> {
        let permit = Arc::clone(&self.permits).try_acquire_many_owned(self.grains(bytes)).ok()?;
        Some(ByteLease { _permit: permit })
    }

    /// Bytes not leased now.
    pub fn free_bytes(&self) -> usize {
        self.permits.available_permits() * GRAIN_BYTES
    }

    /// The whole budget, in bytes.
    pub fn limit_bytes(&self) -> usize {
        self.limit_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn leases_are_given_back_and_an_oversized_one_passes_alone() {
        let budget = ByteBudget::new(1024);
        let small = budget.take(300).await;
        assert_eq!(budget.free_bytes(), 512);
        assert!(budget.try_take(4096).is_none());
        drop(small);
        let all = budget.take(4096).await;
        assert_eq!(budget.free_bytes(), 0);
        drop(all);
        assert_eq!(budget.free_bytes(), budget.limit_bytes());
    }
}
