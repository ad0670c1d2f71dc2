//! The conformance suite through the counting decorator, and its counts.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use bytes::Bytes;
use talos_common::Env;
use talos_storage::conformance::{Scale, dir, journal, segment};
use talos_storage::memory::Latency;
use talos_storage::{MemoryOptions, MemoryStorage, Metered, Storage, StorageMetrics};

fn on_metered(options: MemoryOptions, test: impl AsyncFn(&Metered, &Env, &StorageMetrics)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    runtime.block_on(async {
        let env = Env::simulated(5, 1_000_000);
        let metrics = Arc::new(StorageMetrics::default());
        let inner = Arc::new(MemoryStorage::new(&env, options));
        let store = Metered::new(inner, Arc::clone(&metrics), env.clock.clone());
        test(&store, &env, &metrics).await;
    });
}

fn run(case: impl AsyncFn(&dyn Storage, &Env, Scale)) {
    let options = MemoryOptions { file_bytes: 256 << 10, ..MemoryOptions::default() };
    on_metered(options, async |store, env, metrics| {
        case(store, env, Scale { races: 10, files: 40 }).await;
        for (name, operation) in metrics.operations() {
            let ended = operation.successes.get() + operation.failures.get();
            assert!(ended <= operation.calls.get(), "{name}");
        }
    });
}

talos_storage::conformance_tests!(run);

#[test]
fn calls_bytes_failures_and_time_are_counted() {
    let append_latency = Latency { min_us: 4_000, max_us: 4_000 };
    let options = MemoryOptions { append_latency, ..MemoryOptions::default() };
    on_metered(options, async |store, _, metrics| {
        store.make_dir(dir(1)).await.unwrap();
        let mut writer = store.create(journal(1, 0)).await.unwrap();
        let note = Bytes::from_static(b"note");
        let parts = vec![Bytes::from_static(b"12345"), Bytes::from_static(b"678")];
        writer.append(parts, Some(note)).await.unwrap();
        store.read(&journal(1, 0), 2..6).await.unwrap();
        store.publish(&segment(1, 0, 0), vec![Bytes::from_static(&[0; 50])]).await.unwrap();
        store.seal(dir(1)).await.unwrap();
        writer.append(vec![Bytes::from_static(b"9")], None).await.unwrap_err();
        drop(writer.append(vec![Bytes::from_static(b"9")], None));
        let append = &metrics.append;
        assert_eq!((append.calls.get(), append.successes.get(), append.failures.get()), (3, 1, 1));
        assert_eq!((append.bytes.get(), append.busy_us.get()), (8, 5_000));
        assert_eq!((metrics.read.calls.get(), metrics.read.bytes.get()), (1, 4));
        assert_eq!((metrics.publish.calls.get(), metrics.publish.bytes.get()), (1, 50));
        assert_eq!((metrics.seal.successes.get(), metrics.list.calls.get()), (1, 0));
    });
}
