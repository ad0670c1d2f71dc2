//! `cargo xtask tidy`: the house rules that no other tool checks.
//!
//! Arrows between crates ([`arrows`]); sizes of files and functions ([`sizes`]) with a list of
//! exceptions that may only shrink ([`exceptions`]); headers, forbidden words, tabs and trailing
//! spaces ([`text`]). Every check is a pure function from texts to complaints; only this file reads
//! the disk. Invariant: all complaints of a run are printed, not only the first.

mod arrows;
mod exceptions;
mod rust;
mod sizes;
mod text;

use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::cargo::Workspace;

/// Files larger than this are data, not text.
const TEXT_LIMIT: u64 = 4 << 20;

/// Runs all checks; true when nothing is to complain about.
///
/// # Errors
/// On arguments, or when git, cargo or a file cannot be read.
pub(crate) fn run(args: &[String]) -> Result<bool> {
    if !args.is_empty() {
        bail!("tidy takes no arguments, not {args:?}");
    }
    let workspace = Workspace::load()?;
    let mut complaints = arrows::check(&workspace.packages);
    let mut oversized = Vec::new();
    let files = files(&workspace.root)?;
    let mut count = 0;
    for path in &files {
        let Some(content) = read(&workspace.root.join(path))? else { continue };
        count += 1;
        complaints.extend(text::check(path, &content));
        complaints.extend(arrows::check_source(path, &content));
        if path.ends_with(".rs") {
            oversized.extend(sizes::check(path, &content));
        }
    }
    let list = std::fs::read_to_string(workspace.root.join(exceptions::LIST))
        .with_context(|| format!("cannot read {}", exceptions::LIST))?;
    complaints.extend(exceptions::check(&list, &oversized)?);
    complaints.iter().for_each(|complaint| println!("tidy: {complaint}"));
    println!("tidy: {count} files, {} complaints", complaints.len());
    Ok(complaints.is_empty())
}

/// Paths of all files that are or could be committed, sorted.
fn files(root: &Path) -> Result<Vec<String>> {
    let output = Command::new("git")
        .args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"])
        .current_dir(root)
        .output()
        .context("cannot run git")?;
    if !output.status.success() {
        bail!("git ls-files failed: {}", String::from_utf8_lossy(&output.stderr).trim());
    }
    let names = String::from_utf8(output.stdout).context("a file name is not UTF-8")?;
    let mut files: Vec<_> =
        names.split('\0').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    files.sort();
    files.dedup();
    Ok(files)
}

/// A file's text; nothing when it is deleted, a link, large or not text.
fn read(path: &Path) -> Result<Option<String>> {
    let Ok(metadata) = path.symlink_metadata() else { return Ok(None) };
    if !metadata.is_file() || metadata.len() > TEXT_LIMIT {
        return Ok(None);
    }
    let bytes = std::fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
    Ok(String::from_utf8(bytes).ok().filter(|content| !content.contains('\0')))
}
