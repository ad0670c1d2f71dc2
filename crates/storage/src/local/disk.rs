//! The system calls of the local store, each at one place, behind the switches of [`DiskFaults`].

use std::fs::File;
use std::io::{self, IoSlice};
use std::path::Path;

use bytes::Bytes;
use rustix::fs::{CWD, FallocateFlags, RenameFlags};
use rustix::io::Errno;

use super::faults::DiskFaults;

/// The most buffers that one `pwritev` takes on Linux.
const IOV_MAX: usize = 1024;

#[derive(Clone, Debug)]
pub(super) struct Disk {
    pub(super) faults: Option<DiskFaults>,
}

/// A failed write, and how much of it reached the file before.
#[derive(Debug)]
pub(super) struct WriteError {
    pub(super) written: u64,
    pub(super) error: io::Error,
}

impl Disk {
    fn check_room(&self) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), DiskFaults::check_room)
    }

    /// Writes all of `buffers` at `at`, whatever the system writes at once.
    pub(super) fn write_at(
        &self,
        file: &File,
        buffers: &[Bytes],
        at: u64,
    ) -> Result<(), WriteError> {
        let mut rest = buffers.iter().filter(|buffer| !buffer.is_empty());
        let mut window: Vec<IoSlice<'_>> =
            rest.by_ref().take(IOV_MAX).map(|buffer| IoSlice::new(buffer)).collect();
        let mut written = 0;
        while !window.is_empty() {
            let done = match self.write_some(file, &window, at + written) {
                Ok(0) => Err(io::ErrorKind::WriteZero.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                done => done,
            };
            let done = done.map_err(|error| WriteError { written, error })?;
            written += done as u64;
            let mut slices = window.as_mut_slice();
            IoSlice::advance_slices(&mut slices, done);
            let left = slices.len();
            window.drain(..window.len() - left);
            window.extend(rest.by_ref().take(IOV_MAX - left).map(|buffer| IoSlice::new(buffer)));
        }
        Ok(())
    }

    fn write_some(&self, file: &File, window: &[IoSlice<'_>], at: u64) -> io::Result<usize> {
        let Some(faults) = &self.faults else {
            return Ok(rustix::io::pwritev(file, window, at)?);
        };
        let all = window.iter().map(|slice| slice.len()).sum();
        let most = faults.before_write(all)?;
        if most == all {
            return Ok(rustix::io::pwritev(file, window, at)?);
        }
        let first = window.first().map_or(&[][..], |slice| &slice[..]);
        Ok(rustix::io::pwrite(file, first.get(..most).unwrap_or(first), at)?)
    }

    /// Writes a new file's content, which needs room.
    pub(super) fn write_new(&self, file: &File, parts: &[Bytes]) -> io::Result<()> {
        self.check_room()?;
        self.write_at(file, parts, 0).map_err(|failed| failed.error)
    }

    /// `fdatasync`.
    pub(super) fn sync_data(&self, file: &File) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), DiskFaults::before_sync)?;
        file.sync_data()
    }

    /// `fsync`.
    pub(super) fn sync_all(&self, file: &File) -> io::Result<()> {
        self.faults.as_ref().map_or(Ok(()), DiskFaults::before_sync)?;
        file.sync_all()
    }

    /// Makes the names in `folder` durable.
    pub(super) fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.sync_all(&File::open(folder)?)
    }

    /// Reserves room for `len` bytes and makes the file that long.
    pub(super) fn allocate(&self, file: &File, len: u64) -> io::Result<()> {
        self.check_room()?;
        match rustix::fs::fallocate(file, FallocateFlags::empty(), 0, len) {
            // Some file systems cannot; there a full disk shows at the append.
            Err(Errno::OPNOTSUPP) => file.set_len(len),
            done => Ok(done?),
        }
    }

    /// Makes the folder `path`, which must not be there.
    pub(super) fn make_folder(&self, path: &Path) -> io::Result<()> {
        self.check_room()?;
        std::fs::create_dir(path)
    }

    /// Bytes that the file system of `path` has for us.
    pub(super) fn available(&self, path: &Path) -> io::Result<u64> {
        if self.check_room().is_err() {
            return Ok(0);
        }
        let system = rustix::fs::statvfs(path)?;
        Ok(system.f_bavail.saturating_mul(system.f_frsize))
    }

    /// Renames, never over an existing file. The caller is the only one that renames to `to`.
    pub(super) fn rename_new(&self, from: &Path, to: &Path) -> io::Result<()> {
        match rustix::fs::renameat_with(CWD, from, CWD, to, RenameFlags::NOREPLACE) {
            // Not every file system knows the flag; nobody else makes names here.
            Err(Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {
                if to.try_exists()? {
                    return Err(io::ErrorKind::AlreadyExists.into());
                }
                std::fs::rename(from, to)
            }
            done => Ok(done?),
        }
    }
}

/// Whether the file system, or our share of it, has no room. A file that may not grow that far
/// (`RLIMIT_FSIZE`) is the same to us: nothing was written, and the limit can be raised.
pub(super) fn is_full(error: &io::Error) -> bool {
    use io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
