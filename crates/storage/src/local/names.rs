//! What makes, names and removes files. All of it blocks; it runs on threads that may.
//!
//! One lock ([`Names::made`]) orders everything that depends on whether a directory is sealed or a name
//! is taken; it is not held while waiting for the journal thread, and hardly while syncing.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use bytes::Bytes;
use rustix::fs::FlockOperation;
use talos_common::{BrokerDir, Env};

use super::LocalOptions;
use super::disk::{Disk, is_full};
use super::flusher::{Flusher, Journal, Poison, UNLINKED, poison};
use super::handles::{Handle, Handles};
use super::layout::{FOLDERS, Layout};
use super::place::{Place, check_access, unusable};
use crate::{Error, ErrorKind, FileInfo, FilePath, Prefix, Result};

/// How often a deletion begins again because the file was created again meanwhile.
const DELETE_TRIES: usize = 16;

#[derive(Debug)]
pub(super) struct Names {
    pub(super) options: LocalOptions,
    pub(super) layout: Layout,
    pub(super) handles: Handles,
    pub(super) flusher: Arc<Flusher>,
    disk: Disk,
    poison: Poison,
    place: Place,
    made: Mutex<Made>,
    next_number: AtomicU64,
}

#[derive(Debug, Default)]
struct Made {
    seals: BTreeMap<BrokerDir, Seal>,
    /// Journals that something may still be written to.
    journals: BTreeMap<FilePath, Weak<Journal>>,
    /// Recycled files, and one that was made ahead, that nobody else can reach.
    spares: Vec<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seal {
    /// Takes no new files; the marker is not durable yet.
    Begun,
    Durable,
}

/// The error of a call that changed nothing for good.
fn not_applied(
    operation: &'static str,
    subject: &dyn std::fmt::Display,
    error: &io::Error,
) -> Error {
    let kind = match error.kind() {
        io::ErrorKind::AlreadyExists => ErrorKind::Exists,
        io::ErrorKind::NotFound => ErrorKind::NotFound,
        _ if is_full(error) => ErrorKind::Full,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, operation, subject, error)
}

/// The error of a call that gives a name: what the system could not do may still have happened.
fn maybe_named(
    operation: &'static str,
    subject: &dyn std::fmt::Display,
    error: &io::Error,
) -> Error {
    let known = not_applied(operation, subject, error);
    match known.kind() {
        ErrorKind::Unavailable => Error::new(ErrorKind::Uncertain, operation, subject, error),
        _ => known,
    }
}

fn fenced(operation: &'static str, subject: &dyn std::fmt::Display) -> Error {
    Error::new(ErrorKind::Fenced, operation, subject, "the directory is sealed")
}

impl Names {
    pub(super) fn open(options: LocalOptions, env: &Env) -> Result<Self> {
        let root = options.dir.clone();
        let invalid = |error: io::Error| unusable(&root, &error);
        fs::create_dir_all(&options.dir).and_then(|()| check_access(&root)).map_err(invalid)?;
        let lock = lock(&options.dir)?;
        let place = Place::new(options.dir.join("lock"), &lock).map_err(invalid)?;
        let layout = Layout { root: options.dir.clone() };
        let disk = Disk { faults: options.faults.clone() };
        for folder in FOLDERS {
            let folder = layout.folder(folder);
            fs::create_dir_all(&folder).and_then(|()| check_access(&folder)).map_err(invalid)?;
        }
        disk.sync_folder(&layout.root).map_err(invalid)?;
        // It may be new itself. A parent that cannot be opened was not made by us.
        if let Some(parent) = layout.root.canonicalize().map_err(invalid)?.parent()
            && let Ok(parent) = File::open(parent)
        {
            disk.sync_all(&parent).map_err(invalid)?;
        }
        for (_, unfinished) in layout.numbered("tmp").map_err(invalid)? {
            fs::remove_file(unfinished).map_err(invalid)?;
        }
        let mut made = Made::default();
        let mut next_number = 0;
        for (number, spare) in layout.numbered("spare").map_err(invalid)? {
            next_number = number.saturating_add(1).max(next_number);
            let len = fs::metadata(&spare).map_err(invalid)?.len();
            if len == options.file_bytes && made.spares.len() < options.spare_files {
                made.spares.push(spare);
            } else {
                fs::remove_file(spare).map_err(invalid)?;
            }
        }
        for dir in layout.seals().map_err(invalid)? {
            made.seals.insert(dir, Seal::Durable);
        }
        let poison = Poison::default();
        let flusher = Flusher::start(disk.clone(), env.clock.clone(), Arc::clone(&poison), lock);
        Ok(Self {
            flusher: Arc::new(flusher.map_err(invalid)?),
            options,
            layout,
            handles: Handles::default(),
            disk,
            poison,
            place,
            made: Mutex::new(made),
            next_number: AtomicU64::new(next_number),
        })
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Fails when a sync failed before.
    fn check_health(&self) -> Result<()> {
        self.poison.get().map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Fails, and ends all writing, when the data directory is not in its place any more.
    pub(super) fn check_place(&self) -> Result<()> {
        // Said once: from then on nothing is written.
        if self.poison.get().is_none()
            && let Some(why) = self.place.lost().or_else(|| self.unlinked())
        {
            tracing::error!(why, "the data directory is gone: nothing is acknowledged any more");
            let root = self.layout.root.display();
            self.poison.get_or_init(|| Error::new(ErrorKind::Fatal, UNLINKED, root, why));
        }
        self.check_health()
    }

    /// The first journal that is being written and has no name any more.
    fn unlinked(&self) -> Option<String> {
        let open: Vec<_> = self.made().journals.values().filter_map(Weak::upgrade).collect();
        open.iter().find_map(|journal| journal.unlinked())
    }

    /// Why all writing ended, if it has. The flag: whether files are gone.
    pub(super) fn failure(&self) -> Option<(Error, bool)> {
        self.poison.get().map(|error| (error.clone(), error.operation() == UNLINKED))
    }

    fn poison(&self, operation: &'static str, subject: &Path, error: &io::Error) -> Error {
        poison(&self.poison, operation, &subject.display(), error)
    }

    /// Makes the entries of `folder` durable.
    fn sync_folder(&self, folder: &Path) -> Result<()> {
        self.disk.sync_folder(folder).map_err(|error| self.poison("sync folder", folder, &error))
    }

    fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// `Full` when `bytes` more would reach into the reserve, or, where `makes_room`, into its second half:
    /// what the background writes so that more can be deleted must not need room that is not there.
    fn check_room(
        &self,
        operation: &'static str,
        subject: &dyn Display,
        bytes: u64,
        makes_room: bool,
    ) -> Result<()> {
        let available = self.disk.available(&self.layout.root);
        let available = available.map_err(|error| not_applied(operation, subject, &error))?;
        let reserve = self.options.reserve_bytes / if makes_room { 2 } else { 1 };
        if available >= reserve.saturating_add(bytes) {
            return Ok(());
        }
        let detail = format!(
            "no room for {bytes} bytes: the file system has {available} left, of which {reserve} are reserved"
        );
        Err(Error::new(ErrorKind::Full, operation, subject, detail))
    }

    pub(super) fn make_dir(&self, dir: BrokerDir) -> Result<()> {
        self.check_health()?;
        let folder = self.layout.dir(dir);
        let exists = |detail| Error::new(ErrorKind::Exists, "make directory", dir, detail);
        if self.made().seals.contains_key(&dir) {
            return Err(exists("it was there before, and is sealed"));
        }
        if folder.try_exists().map_err(|error| not_applied("make directory", &dir, &error))? {
            return Err(exists("it is there already"));
        }
        // A directory is of no use without a journal and is never made again: on a full disk, starts
        // that are tried again and again would leave one each.
        if self.made().spares.is_empty() {
            let ahead = self.make_journal("make directory", &dir)?;
            self.made().spares.push(ahead);
        }
        {
            let made = self.made();
            if made.seals.contains_key(&dir) {
                return Err(exists("it was there before, and is sealed"));
            }
            let error = |error| maybe_named("make directory", &dir, &error);
            self.disk.make_folder(&folder).map_err(error)?;
        }
        self.sync_folder(&self.layout.folder("brokers"))
    }

    /// Whether `dir` takes new files. Under the lock, so that a seal comes before or after.
    fn check_open(
        &self,
        made: &Made,
        dir: BrokerDir,
        operation: &'static str,
        path: &FilePath,
    ) -> Result<()> {
        if made.seals.contains_key(&dir) {
            return Err(fenced(operation, path));
        }
        match self.layout.dir(dir).try_exists() {
            Ok(true) => Ok(()),
            Ok(false) => Err(Error::new(ErrorKind::NotFound, operation, path, "no such directory")),
            Err(error) => Err(not_applied(operation, path, &error)),
        }
    }

    pub(super) fn create(&self, path: FilePath) -> Result<Arc<Journal>> {
        self.check_place()?;
        let FilePath::Journal { dir, .. } = path else {
            return Err(Error::new(ErrorKind::Invalid, "create", path, "not a journal"));
        };
        let spare = {
            let mut made = self.made();
            self.check_open(&made, dir, "create", &path)?;
            if self.layout.file(&path).exists() {
                return Err(Error::new(ErrorKind::Exists, "create", path, "it is there already"));
            }
            made.spares.pop()
        };
        let (source, kept) = match spare {
            Some(spare) => (spare, true),
            None => (self.make_journal("create", &path)?, false),
        };
        match self.name_journal(&path, dir, &source) {
            Ok(journal) => {
                // A new file's name is durable once its folder is; `tmp/` is cleared at every start.
                self.sync_folder(&self.layout.dir(dir))?;
                let spares = self.layout.folder("spare");
                if source.starts_with(&spares) {
                    self.sync_folder(&spares)?;
                }
                // Removed meanwhile: nothing goes into a file that no path leads to.
                self.check_place()?;
                Ok(journal)
            }
            Err(error) if kept => {
                // After an unknown outcome it may have its name: the next start finds out.
                if error.kind() != ErrorKind::Uncertain {
                    self.made().spares.push(source);
                }
                Err(error)
            }
            Err(error) => {
                self.remove_unfinished(&source);
                Err(error)
            }
        }
    }

    /// A new file of full length in `tmp/`, durable but for its name.
    fn make_journal(&self, operation: &'static str, subject: &dyn Display) -> Result<PathBuf> {
        self.check_room(operation, subject, self.options.file_bytes, false)?;
        let unfinished = self.layout.unfinished(self.number());
        let make = || {
            let file = OpenOptions::new().write(true).create_new(true).open(&unfinished)?;
            self.disk.allocate(&file, self.options.file_bytes)?;
            Ok(file)
        };
        let synced = match make() {
            Ok(file) => self.disk.sync_all(&file),
            Err(error) => {
                self.remove_unfinished(&unfinished);
                return Err(not_applied(operation, subject, &error));
            }
        };
        if let Err(error) = synced {
            self.remove_unfinished(&unfinished);
            // What was synced late finds no room: nobody relied on it.
            let full = is_full(&error).then(|| not_applied(operation, subject, &error));
            return Err(full.unwrap_or_else(|| self.poison("fsync", &unfinished, &error)));
        }
        Ok(unfinished)
    }

    /// Best effort: what is left is removed at the next start.
    fn remove_unfinished(&self, unfinished: &Path) {
        if let Err(error) = fs::remove_file(unfinished)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(file = %unfinished.display(), %error, "cannot remove an unfinished file");
        }
    }

    fn name_journal(&self, path: &FilePath, dir: BrokerDir, source: &Path) -> Result<Arc<Journal>> {
        let error = |error| not_applied("create", path, &error);
        let file = OpenOptions::new().write(true).open(source).map_err(error)?;
        let mut made = self.made();
        self.check_open(&made, dir, "create", path)?;
        let named = self.disk.rename_new(source, &self.layout.file(path));
        named.map_err(|error| maybe_named("create", path, &error))?;
        let journal = Arc::new(Journal::new(path.clone(), dir, file));
        made.journals.retain(|_, journal| journal.strong_count() > 0);
        made.journals.insert(path.clone(), Arc::downgrade(&journal));
        Ok(journal)
    }

    pub(super) fn publish(&self, path: &FilePath, parts: &[Bytes]) -> Result<()> {
        self.check_health()?;
        if matches!(path, FilePath::Journal { .. }) {
            return Err(Error::new(ErrorKind::Invalid, "publish", path, "a journal"));
        }
        let bytes = parts.iter().map(|part| part.len() as u64).sum();
        let makes_room = matches!(path, FilePath::Sorted { .. });
        self.check_room("publish", path, bytes, makes_room)?;
        let unfinished = self.layout.unfinished(self.number());
        let named = self
            .write_whole(path, parts, &unfinished)
            .and_then(|()| self.name_published(path, &unfinished));
        if let Err(error) = named {
            self.remove_unfinished(&unfinished);
            return Err(error);
        }
        self.layout.folders_of(path).iter().try_for_each(|folder| self.sync_folder(folder))
    }

    fn write_whole(&self, path: &FilePath, parts: &[Bytes], unfinished: &Path) -> Result<()> {
        let write = || {
            let file = OpenOptions::new().write(true).create_new(true).open(unfinished)?;
            self.disk.write_new(&file, parts)?;
            Ok(file)
        };
        let file = write().map_err(|error| not_applied("publish", path, &error))?;
        self.disk.sync_data(&file).map_err(|error| {
            let full = is_full(&error).then(|| not_applied("publish", path, &error));
            full.unwrap_or_else(|| self.poison("fdatasync", unfinished, &error))
        })
    }

    fn name_published(&self, path: &FilePath, unfinished: &Path) -> Result<()> {
        let error = |error| not_applied("publish", path, &error);
        let file = self.layout.file(path);
        let made = self.made();
        match (path.dir(), file.parent()) {
            (Some(dir), _) => self.check_open(&made, dir, "publish", path)?,
            (None, Some(folder)) => fs::create_dir_all(folder).map_err(error)?,
            (None, None) => {}
        }
        let named = self.disk.rename_new(unfinished, &file);
        named.map_err(|error| maybe_named("publish", path, &error))
    }

    pub(super) fn seal(&self, dir: BrokerDir) -> Result<Vec<FileInfo>> {
        self.check_health()?;
        let error = |error| Error::new(ErrorKind::Unavailable, "seal", dir, error);
        {
            let mut made = self.made();
            if !self.layout.dir(dir).try_exists().map_err(error)? {
                let detail = "never made, or deleted";
                return Err(Error::new(ErrorKind::NotFound, "seal", dir, detail));
            }
            // From here on the directory takes no new file.
            made.seals.entry(dir).or_insert(Seal::Begun);
        }
        self.flusher.barrier(Some(dir))?;
        if self.made().seals.get(&dir) != Some(&Seal::Durable) {
            self.write_seal(dir)?;
            self.made().seals.insert(dir, Seal::Durable);
        }
        let mut files: Vec<FileInfo> = Vec::new();
        loop {
            let after = files.last().map(|file| &file.path);
            let page = self.layout.list(Prefix::Dir(dir), after).map_err(error)?;
            if page.is_empty() {
                return Ok(files);
            }
            files.extend(page);
        }
    }

    /// Several may do this at once.
    fn write_seal(&self, dir: BrokerDir) -> Result<()> {
        let marker = self.layout.seal(dir);
        let write = || {
            let mut open = OpenOptions::new();
            let mut file = open.write(true).create(true).truncate(false).open(&marker)?;
            // That it is there is what counts; the words are for people.
            file.write_all(b"talos seal 1\n")?;
            Ok(file)
        };
        let file = write().map_err(|error| not_applied("seal", &dir, &error))?;
        self.disk.sync_all(&file).map_err(|error| self.poison("fsync", &marker, &error))?;
        self.sync_folder(&self.layout.folder("sealed"))
    }

    pub(super) fn delete(&self, path: &FilePath) -> Result<()> {
        for _ in 0..DELETE_TRIES {
            let writing = self.made().journals.remove(path).and_then(|journal| journal.upgrade());
            if let Some(journal) = writing {
                journal.dead.get_or_init(|| Error::not_found("append", path));
                // A file that is being written must not become another one's.
                self.flusher.barrier(None)?;
            }
            let spare = {
                let made = self.made();
                if made.journals.get(path).is_some_and(|journal| journal.strong_count() > 0) {
                    // Deleted and created again by others meanwhile.
                    continue;
                }
                self.unname(&made, path)?
            };
            if spare.is_some() {
                // The old name is gone for good before the file gets a new one.
                self.layout.folders_of(path).iter().try_for_each(|it| self.sync_folder(it))?;
                self.sync_folder(&self.layout.folder("spare"))?;
            }
            // No read is answered from it any more before somebody may write to it.
            self.handles.retire(path);
            self.made().spares.extend(spare);
            return Ok(());
        }
        Err(Error::new(ErrorKind::Unavailable, "delete", path, "it is created again and again"))
    }

    /// Takes the name of a file away: removes the file, or gives the spare one that it has become.
    fn unname(&self, made: &Made, path: &FilePath) -> Result<Option<PathBuf>> {
        let error = |error| Error::new(ErrorKind::Unavailable, "delete", path, error);
        let file = self.layout.file(path);
        let fits = match fs::symlink_metadata(&file) {
            Err(failed) if failed.kind() == io::ErrorKind::NotFound => return Ok(None),
            data => data.map_err(error)?.len() == self.options.file_bytes,
        };
        let journal = matches!(path, FilePath::Journal { .. });
        if journal && fits && made.spares.len() < self.options.spare_files {
            let spare = self.layout.spare(self.number());
            if self.disk.rename_new(&file, &spare).is_ok() {
                return Ok(Some(spare));
            }
        }
        match fs::remove_file(&file) {
            Err(failed) if failed.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(error)?,
        }
        if matches!(path, FilePath::Segment { .. }) {
            for folder in self.layout.folders_of(path).iter().take(2) {
                // Goes only if it is empty.
                let _ = fs::remove_dir(folder);
            }
        }
        Ok(None)
    }

    pub(super) fn delete_dir(&self, dir: BrokerDir) -> Result<()> {
        let error = |error| Error::new(ErrorKind::Unavailable, "delete directory", dir, error);
        let invalid = |detail| Error::new(ErrorKind::Invalid, "delete directory", dir, detail);
        let there = self.layout.dir(dir).try_exists().map_err(error)?;
        match (self.made().seals.get(&dir), there) {
            (Some(Seal::Durable), true) => {}
            (Some(_), false) => return Ok(()),
            (Some(Seal::Begun) | None, true) => return Err(invalid("it is not sealed".into())),
            (None, false) => {
                let detail = "no such directory";
                return Err(Error::new(ErrorKind::NotFound, "delete directory", dir, detail));
            }
        }
        if let Some(foreign) = self.layout.foreign(dir).map_err(error)? {
            let detail = format!("{} is not ours: move it away", foreign.display());
            return Err(invalid(detail));
        }
        for page in std::iter::repeat_with(|| self.layout.list(Prefix::Dir(dir), None)) {
            let page = page.map_err(error)?;
            if page.is_empty() {
                break;
            }
            page.iter().try_for_each(|file| self.delete(&file.path))?;
        }
        match fs::remove_dir(self.layout.dir(dir)) {
            Err(failed) if failed.kind() == io::ErrorKind::NotFound => {}
            done => done.map_err(error)?,
        }
        self.sync_folder(&self.layout.folder("brokers"))
    }

    /// Opens `path`; see [`Handles::insert`].
    pub(super) fn open_for_reading(
        &self,
        path: &FilePath,
        ticket: u64,
    ) -> Result<Option<Arc<Handle>>> {
        let open = || {
            let file = File::open(self.layout.file(path))?;
            self.handles.insert(path, ticket, file)
        };
        open().map_err(|error| not_applied("read", path, &error))
    }
}

/// Takes the data directory for this process.
fn lock(dir: &Path) -> Result<File> {
    let path = dir.join("lock");
    let open = OpenOptions::new().write(true).create(true).truncate(false).open(&path);
    let file = open.map_err(|error| unusable(dir, &error))?;
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            let detail =
                "another Talos process uses this data directory: stop it, or name another one";
            Err(Error::new(ErrorKind::Unavailable, "open", dir.display(), detail))
        }
        Err(error) => Err(Error::new(ErrorKind::Invalid, "lock", path.display(), error)),
    }
}
