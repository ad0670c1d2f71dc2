//! The suite can fail: each planted bug of a store is caught by the case that names its promise.

#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use talos_common::{BrokerDir, Env};
use talos_storage::conformance::{self, Scale};
use talos_storage::{
    AppendFuture, BoxFuture, FileInfo, FilePath, MemoryOptions, MemoryStorage, Prefix, Result,
    Storage, Traits, Writer,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    MakesDirectoriesAgain,
    CreateSharesFiles,
    AcknowledgesEarly,
    NoteMovesThePosition,
    SealsNothing,
    FencesLate,
    SealLosesAFile,
    ListRepeatsTheLast,
    ListIsUnsorted,
    DeletesOpenDirectories,
    DeleteDoesNothing,
    PublishOverwrites,
    ReadsShort,
    TakesDroppedAppendsBack,
    WritesBeyondTheFile,
}

#[derive(Debug)]
struct Broken {
    inner: Arc<MemoryStorage>,
    bug: Bug,
    /// What was to be sealed and is not yet.
    late: Mutex<Option<BrokerDir>>,
}

impl Storage for Broken {
    fn make_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            let made = self.inner.make_dir(dir).await;
            if self.bug == Bug::MakesDirectoriesAgain { Ok(()) } else { made }
        })
    }

    fn create(&self, path: FilePath) -> BoxFuture<'_, Result<Box<dyn Writer>>> {
        Box::pin(async move {
            if self.bug == Bug::CreateSharesFiles {
                self.inner.delete(&path).await?;
            }
            let inner = self.inner.create(path).await?;
            let position = 0;
            Ok(Box::new(BrokenWriter { inner, bug: self.bug, position }) as Box<dyn Writer>)
        })
    }

    fn read(&self, path: &FilePath, range: Range<u64>) -> BoxFuture<'_, Result<Bytes>> {
        let short = self.bug == Bug::ReadsShort && range.end - range.start > 200_000;
        let end = range.end - u64::from(short);
        let path = path.clone();
        Box::pin(async move {
            let read = self.inner.read(&path, range.start..end).await;
            let late = self.late.lock().unwrap().take();
            if let Some(dir) = late {
                self.inner.seal(dir).await?;
            }
            read
        })
    }

    fn seal(&self, dir: BrokerDir) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(async move {
            match self.bug {
                Bug::SealsNothing => self.inner.list(Prefix::Dir(dir), None).await,
                Bug::FencesLate => {
                    *self.late.lock().unwrap() = Some(dir);
                    self.inner.list(Prefix::Dir(dir), None).await
                }
                Bug::SealLosesAFile => {
                    let mut files = self.inner.seal(dir).await?;
                    files.pop();
                    Ok(files)
                }
                _ => self.inner.seal(dir).await,
            }
        })
    }

    fn list(
        &self,
        prefix: Prefix,
        after: Option<FilePath>,
    ) -> BoxFuture<'_, Result<Vec<FileInfo>>> {
        Box::pin(async move {
            let mut page = self.inner.list(prefix, after.clone()).await?;
            match (self.bug, after) {
                (Bug::ListRepeatsTheLast, Some(path))
                    if prefix.holds(&path) && !page.is_empty() =>
                {
                    page.insert(0, FileInfo { path, len: 17, modified_ms: 0 });
                }
                (Bug::ListIsUnsorted, _) => page.reverse(),
                _ => {}
            }
            Ok(page)
        })
    }

    fn delete(&self, path: &FilePath) -> BoxFuture<'_, Result<()>> {
        match self.bug {
            Bug::DeleteDoesNothing => Box::pin(async { Ok(()) }),
            _ => self.inner.delete(path),
        }
    }

    fn delete_dir(&self, dir: BrokerDir) -> BoxFuture<'_, Result<()>> {
        Box::pin(async move {
            if self.bug == Bug::DeletesOpenDirectories {
                self.inner.seal(dir).await?;
            }
            self.inner.delete_dir(dir).await
        })
    }

    fn publish(&self, path: &FilePath, parts: Vec<Bytes>) -> BoxFuture<'_, Result<()>> {
        let path = path.clone();
        Box::pin(async move {
            if self.bug == Bug::PublishOverwrites {
                self.inner.delete(&path).await?;
            }
            self.inner.publish(&path, parts).await
        })
    }

    fn traits(&self) -> Traits {
        self.inner.traits()
    }
}

#[derive(Debug)]
struct BrokenWriter {
    inner: Box<dyn Writer>,
    bug: Bug,
    position: u64,
}

impl Writer for BrokenWriter {
    fn append(&mut self, buffers: Vec<Bytes>, note: Option<Bytes>) -> AppendFuture {
        let len: usize = buffers.iter().map(Bytes::len).sum();
        self.position += len as u64;
        match (self.bug, note) {
            (Bug::AcknowledgesEarly, note) => {
                drop(self.inner.append(buffers, note));
                Box::pin(std::future::ready(Ok(self.position)))
            }
            (Bug::NoteMovesThePosition, Some(note)) => {
                self.inner.append([buffers, vec![note]].concat(), None)
            }
            (Bug::TakesDroppedAppendsBack, note) => {
                // Ends of appends alternate with a drop in the case; the lost bytes shift the rest.
                let kept =
                    if len == 500 && self.position % 1_000 == 500 { vec![] } else { buffers };
                self.inner.append(kept, note)
            }
            (Bug::WritesBeyondTheFile, _) if len > 100_000 => {
                let end = self.position;
                Box::pin(async move { Ok(end) })
            }
            (_, note) => self.inner.append(buffers, note),
        }
    }

    fn position(&self) -> u64 {
        self.inner.position()
    }
}

/// Whether `case` passes on a store with `bug`.
fn passes(bug: Bug, case: impl AsyncFn(&dyn Storage, &Env, Scale)) -> bool {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap();
    let run = AssertUnwindSafe(|| {
        runtime.block_on(async {
            let env = Env::simulated(1, 1_000_000);
            let options = MemoryOptions { file_bytes: 256 << 10, ..MemoryOptions::default() };
            let inner = Arc::new(MemoryStorage::new(&env, options));
            case(
                &Broken { inner, bug, late: Mutex::new(None) },
                &env,
                Scale { races: 30, files: 2_300 },
            )
            .await;
        });
    });
    catch_unwind(run).is_ok()
}

macro_rules! caught {
    ($($bug:ident by $($case:ident),+;)*) => {
        #[test]
        fn planted_bugs_are_caught() {
            $($(
                assert!(passes(Bug::None, conformance::$case));
                assert!(!passes(Bug::$bug, conformance::$case), "{:?} is not caught", Bug::$bug);
            )+)*
        }
    };
}

caught! {
    MakesDirectoriesAgain by directories_are_made_once;
    CreateSharesFiles by create_is_exclusive;
    AcknowledgesEarly by a_durable_prefix_is_readable_while_writing, a_seal_races_with_appends_and_creates;
    NoteMovesThePosition by a_note_is_overwritten_by_the_next_append;
    SealsNothing by a_seal_is_final_and_repeatable, directories_are_made_once;
    FencesLate by a_seal_races_with_appends_and_creates;
    SealLosesAFile by a_seal_is_final_and_repeatable, a_seal_races_with_appends_and_creates;
    ListRepeatsTheLast by a_listing_is_sorted_and_paged;
    ListIsUnsorted by a_listing_is_sorted_and_paged;
    DeletesOpenDirectories by a_directory_is_deleted_only_when_sealed;
    DeleteDoesNothing by deleting_is_repeatable_and_ends_a_writer, a_name_never_shows_another_files_bytes;
    PublishOverwrites by publish_is_exclusive_and_whole;
    ReadsShort by reads_are_short_only_at_the_end;
    TakesDroppedAppendsBack by a_dropped_append_is_not_taken_back;
    WritesBeyondTheFile by an_append_beyond_the_file_is_refused_and_the_writer_lives;
}
