//! `<file>-mark`: the number of the last commit, beside the file that it was made to.
//!
//! Written after the commit and without a sync: it survives the end of the process, not a loss of power.
//! So it is never ahead of what was committed, and a file with fewer commits has lost some.
//!
//! Form: 4 bytes magic, 8 bytes number (big-endian), 4 bytes crc32c of both.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};

use crate::store::{Error, Result};

const MAGIC: [u8; 4] = *b"Tmk1";

/// An open mark.
#[derive(Debug)]
pub(super) struct Mark {
    path: PathBuf,
    file: File,
    commits: i64,
}

fn encode(commits: i64) -> [u8; 16] {
    let mut bytes = [0; 16];
    let (head, crc) = bytes.split_at_mut(12);
    let (magic, number) = head.split_at_mut(4);
    magic.copy_from_slice(&MAGIC);
    number.copy_from_slice(&commits.to_be_bytes());
    crc.copy_from_slice(&crc_fast::crc32_iscsi(head).to_be_bytes());
    bytes
}

fn decode(bytes: &[u8]) -> Option<i64> {
    let number = bytes.get(4..12)?.try_into().ok()?;
    let commits = i64::from_be_bytes(number);
    (encode(commits) == bytes && commits >= 0).then_some(commits)
}

impl Mark {
    /// Opens or makes the mark of `file`. A damaged one is reported and made anew: it is derived.
    pub(super) fn open(file: &Path) -> Result<Self> {
        let mut path = file.as_os_str().to_owned();
        path.push("-mark");
        let path = PathBuf::from(path);
        let failed = |error: std::io::Error| {
            Error::Unavailable(format!("metadata mark {}: {error}", path.display()))
        };
        let mut options = File::options();
        let mut mark = options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(&path)
            .map_err(failed)?;
        let mut bytes = Vec::new();
        (&mut mark).take(64).read_to_end(&mut bytes).map_err(failed)?;
        let commits = if bytes.is_empty() { Some(0) } else { decode(&bytes) };
        if commits.is_none() {
            tracing::warn!(path = %path.display(), "metadata mark is damaged; writing it anew");
            mark.set_len(0).map_err(failed)?;
        }
        Ok(Self { path, file: mark, commits: commits.unwrap_or(0) })
    }

    /// The number of the last commit that is known to have been made.
    pub(super) fn commits(&self) -> i64 {
        self.commits
    }

    /// Notes that commit number `commits` was made. Best effort: without it less is noticed.
    pub(super) fn write(&mut self, commits: i64) {
        let written =
            self.file.seek(SeekFrom::Start(0)).and_then(|_| self.file.write_all(&encode(commits)));
        match written {
            Ok(()) => self.commits = commits,
            Err(error) => tracing::debug!(%error, "metadata mark could not be written"),
        }
    }

    /// What a person can do who knows better.
    pub(super) fn advice(&self) -> String {
        format!(
            "put the right file back, or, to go on with older metadata, remove {}",
            self.path.display()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_mark_is_not_believed() {
        let good = encode(77);
        assert_eq!(decode(&good), Some(77));
        for bit in 0..128 {
            let mut bad = good;
            bad[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(decode(&bad), None, "bit {bit}");
        }
        assert_eq!(decode(&good[..15]), None);
    }
}
