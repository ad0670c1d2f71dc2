//! Rules that every store shares: what a path is, and how large a transaction may be.

use crate::store::{Error, Op, Result, TRANSACTION_BYTES, TRANSACTION_OPS};

/// The longest path, in bytes.
pub(crate) const PATH_BYTES: usize = 1_024;

/// What is counted per operation besides path and value: the framing of ZooKeeper's multi.
pub(crate) const OP_OVERHEAD_BYTES: usize = 32;

impl Op {
    /// The node that this step is about.
    pub fn path(&self) -> &str {
        match self {
            Self::Create { path, .. }
            | Self::Set { path, .. }
            | Self::Delete { path, .. }
            | Self::Check { path, .. } => path,
        }
    }

    /// What it adds to the size of a transaction, in bytes.
    pub fn size(&self) -> usize {
        let value = match self {
            Self::Create { value, .. } | Self::Set { value, .. } => value.len(),
            Self::Delete { .. } | Self::Check { .. } => 0,
        };
        self.path().len() + value
    }
}

/// Whether `path` may be read: `/`, or parts that are neither empty, `.` or `..` and hold no control
/// characters, as in ZooKeeper.
pub(crate) fn check_path(path: &str) -> Result<()> {
    if path == "/" {
        return Ok(());
    }
    let good_part = |part: &str| {
        !part.is_empty() && part != "." && part != ".." && !part.chars().any(char::is_control)
    };
    let good = path.len() <= PATH_BYTES
        && path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(good_part));
    if good { Ok(()) } else { Err(Error::Invalid(format!("{path:?} is not a metadata path"))) }
}

/// Whether a transaction may be tried at all.
pub(crate) fn check_ops(ops: &[Op]) -> Result<()> {
    if ops.len() > TRANSACTION_OPS {
        return Err(Error::Invalid(format!("{} operations, limit {TRANSACTION_OPS}", ops.len())));
    }
    let bytes = ops.iter().fold(0usize, |sum, op| sum.saturating_add(op.size()));
    if bytes > TRANSACTION_BYTES {
        return Err(Error::Invalid(format!("{bytes} bytes, limit {TRANSACTION_BYTES}")));
    }
    ops.iter().try_for_each(|op| match op.path() {
        "/" => Err(Error::Invalid("the root cannot be changed".into())),
        path => check_path(path),
    })
}

/// The parent of `path`, which is not `/`.
pub(crate) fn parent(path: &str) -> &str {
    match path.rfind('/') {
        None | Some(0) => "/",
        Some(at) => path.get(..at).unwrap_or("/"),
    }
}

/// The last part of `path`.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Whether `path` is `prefix` or lies below it.
pub(crate) fn is_within(path: &str, prefix: &str) -> bool {
    prefix == "/"
        || path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_checked_and_taken_apart() {
        for good in ["/", "/a", "/a/b.c", "/a/..b"] {
            assert_eq!(check_path(good), Ok(()), "{good}");
        }
        let long = format!("/{}", "x".repeat(PATH_BYTES));
        for bad in ["", "a", "/a/", "//a", "/a//b", "/./a", "/a/..", "/a\0b", "/a\nb", &long] {
            assert!(matches!(check_path(bad), Err(Error::Invalid(_))), "{bad:?}");
        }
        assert_eq!((parent("/a"), parent("/a/b"), name("/a/b")), ("/", "/a", "b"));
        assert!(is_within("/a/b", "/a") && is_within("/a", "/a") && is_within("/a", "/"));
        assert!(!is_within("/ab", "/a"));
    }
}
