//! Whether the data directory is still the one that was opened. A process keeps writing to files
//! that lost their names without any error, so a directory that was removed or moved away has to be
//! looked for: nothing is acknowledged into it once that was noticed.
//!
//! Invariant: only proof counts. A path that cannot be looked at is not a path that is gone.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::Access;

use crate::{Error, ErrorKind};

/// The lock file that is held, and where it has to be found.
#[derive(Debug)]
pub(super) struct Place {
    path: PathBuf,
    file: (u64, u64),
}

fn identity(data: &Metadata) -> (u64, u64) {
    (data.dev(), data.ino())
}

impl Place {
    /// Notes which file `lock`, opened at `path`, is.
    pub(super) fn new(path: PathBuf, lock: &File) -> io::Result<Self> {
        Ok(Self { file: identity(&lock.metadata()?), path })
    }

    /// Why the directory is not the one that was opened; `None` as long as nothing proves that.
    pub(super) fn lost(&self) -> Option<String> {
        let dir = self.path.parent().unwrap_or(&self.path).display();
        let what = match std::fs::symlink_metadata(&self.path) {
            Ok(data) if identity(&data) == self.file => return None,
            Ok(_) => "another one stands in its place",
            Err(error) if is_absent(&error) => "it was removed or moved away",
            Err(error) => {
                tracing::warn!(%dir, %error, "cannot see whether the data directory is in its place");
                return None;
            }
        };
        Some(format!("the data directory {dir} is gone: {what} while the broker ran"))
    }
}

fn is_absent(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory)
}

/// How many names `file` has; `None` when the system does not say.
pub(super) fn links(file: &File) -> Option<u64> {
    file.metadata().ok().map(|data| data.nlink())
}

/// Why `folder` cannot be written to, before anything depends on it.
pub(super) fn check_access(folder: &Path) -> io::Result<()> {
    let wanted = Access::READ_OK | Access::WRITE_OK | Access::EXEC_OK;
    Ok(rustix::fs::access(folder, wanted)?)
}

/// The error of a directory that cannot be opened as ours: what is wrong and what to do.
pub(super) fn unusable(dir: &Path, error: &io::Error) -> Error {
    let advice = match error.kind() {
        io::ErrorKind::PermissionDenied => {
            "this user may not read and write there: give it the directory, or name another one"
        }
        io::ErrorKind::ReadOnlyFilesystem => {
            "the file system is mounted read-only: look into the kernel log for why, mount it for \
             writing, or name another directory"
        }
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "no room for a new file: make room on this file system beside the data directory"
        }
        io::ErrorKind::NotADirectory | io::ErrorKind::AlreadyExists => {
            "a file stands where a directory has to be: name another directory"
        }
        _ => return Error::new(ErrorKind::Invalid, "open", dir.display(), error),
    };
    Error::new(ErrorKind::Invalid, "open", dir.display(), format!("{error}; {advice}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_proof_says_that_a_directory_is_gone() {
        let folder = tempfile::tempdir().unwrap();
        let (dir, elsewhere) = (folder.path().join("data"), folder.path().join("elsewhere"));
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join("lock");
        let place = Place::new(path.clone(), &File::create(&path).unwrap()).unwrap();
        assert_eq!(place.lost(), None);
        std::fs::rename(&dir, &elsewhere).unwrap();
        assert!(place.lost().unwrap().contains("removed or moved away"));
        std::fs::create_dir(&dir).unwrap();
        File::create(&path).unwrap();
        assert!(place.lost().unwrap().contains("another one stands in its place"));
        std::fs::remove_dir_all(&dir).unwrap();
        std::fs::rename(&elsewhere, &dir).unwrap();
        assert_eq!(place.lost(), None);
        // A name that is too long proves nothing.
        let unseen = Place { path: dir.join("x".repeat(300)), file: place.file };
        assert_eq!(unseen.lost(), None);
    }

    #[test]
    fn what_is_wrong_with_a_directory_comes_with_advice() {
        for (errno, advice) in [
            (rustix::io::Errno::ACCESS, "give it the directory"),
            (rustix::io::Errno::ROFS, "mounted read-only"),
            (rustix::io::Errno::NOSPC, "make room"),
            (rustix::io::Errno::NOTDIR, "a file stands"),
        ] {
            let text = unusable(Path::new("/data"), &errno.into()).to_string();
            assert!(text.starts_with("open /data: ") && text.contains(advice), "{text}");
        }
    }
}
