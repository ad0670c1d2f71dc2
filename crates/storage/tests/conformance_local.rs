//! The conformance suite on a real directory.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use talos_common::Env;
use talos_storage::conformance::Scale;
use talos_storage::{LocalOptions, LocalStorage, Storage};

fn run(case: impl AsyncFn(&dyn Storage, &Env, Scale)) {
    let scale = Scale { races: 40, files: 40 };
    let folder = tempfile::tempdir().unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_time()
        .build()
        .unwrap();
    runtime.block_on(async {
        let env = Env::system();
        let mut options = LocalOptions::new(folder.path());
        options.file_bytes = 256 << 10;
        options.reserve_bytes = 0;
        case(&LocalStorage::open(options, &env).unwrap(), &env, scale).await;
    });
}

talos_storage::conformance_tests!(run);
