//! The conformance suite on memory storage, for each layout and several seeds.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use talos_common::Env;
use talos_storage::conformance::Scale;
use talos_storage::memory::Layout;
use talos_storage::{MemoryOptions, MemoryStorage, Storage};

fn run(case: impl AsyncFn(&dyn Storage, &Env, Scale)) {
    let scale = Scale { races: 125, files: 2_300 };
    for seed in 0..3 {
        for layout in [Layout::Exact, Layout::Preallocated, Layout::Recycled] {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_time()
                .start_paused(true)
                .build()
                .unwrap();
            runtime.block_on(async {
                let env = Env::simulated(seed, 1_000_000);
                let options =
                    MemoryOptions { layout, file_bytes: 256 << 10, ..MemoryOptions::default() };
                case(&MemoryStorage::new(&env, options), &env, scale).await;
            });
        }
    }
}

talos_storage::conformance_tests!(run);
