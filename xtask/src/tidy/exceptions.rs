//! The list of what is allowed to be too large, which may only shrink.
//!
//! One entry per line: `LINES WHAT`. What grew past its number fails; what got clearly smaller
//! fails until the number is lowered; what is within the limit, or gone, must leave the list.

use anyhow::{Context, Result};

use super::sizes::Oversized;

/// Where the list lies, from the root.
pub(super) const LIST: &str = "xtask/tidy-exceptions.txt";

/// How far a file may be below its number before the number must be lowered.
const FILE_SLACK: usize = 50;
/// The same for a function.
const FUNCTION_SLACK: usize = 10;

/// Complains about what is too large and not listed, and about entries that no longer fit.
///
/// # Errors
/// When a line of the list cannot be read.
pub(super) fn check(list: &str, oversized: &[Oversized]) -> Result<Vec<String>> {
    let entries = parse(list)?;
    let mut complaints = Vec::new();
    for found in oversized {
        let listed = entries.iter().find(|(_, what)| *what == found.what).map(|(n, _)| *n);
        let Oversized { what, lines, limit } = found;
        match listed {
            None => complaints.push(format!("{what}: {lines} lines, the limit is {limit}")),
            Some(n) if *lines > n => {
                complaints.push(format!("{what}: grew to {lines} lines, {LIST} allows {n}"));
            }
            Some(n) if lines + slack(what) < n => {
                complaints.push(format!("{what}: now {lines} lines, lower its {n} in {LIST}"));
            }
            Some(_) => {}
        }
    }
    for (_, what) in entries {
        if !oversized.iter().any(|found| found.what == what) {
            complaints.push(format!("{what}: within the limit or gone, remove it from {LIST}"));
        }
    }
    Ok(complaints)
}

fn slack(what: &str) -> usize {
    if what.contains(':') { FUNCTION_SLACK } else { FILE_SLACK }
}

fn parse(list: &str) -> Result<Vec<(usize, &str)>> {
    let lines = list.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| {
            let (lines, what) = line.split_once(' ').with_context(|| format!("{LIST}: {line}"))?;
            let lines = lines.parse().with_context(|| format!("{LIST}: {line}"))?;
            Ok((lines, what.trim()))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn oversized(what: &str, lines: usize) -> Vec<Oversized> {
        vec![Oversized { what: what.to_owned(), lines, limit: 600 }]
    }

    #[test]
    fn listed_files_pass_until_they_grow_or_shrink() {
        let list = "# why\n\n700 a.rs\n";
        assert!(check(list, &oversized("a.rs", 700)).unwrap().is_empty());
        assert!(check(list, &oversized("a.rs", 650)).unwrap().is_empty());
        assert!(check(list, &oversized("a.rs", 701)).unwrap()[0].contains("grew"));
        assert!(check(list, &oversized("a.rs", 649)).unwrap()[0].contains("lower"));
    }

    #[test]
    fn functions_have_less_slack() {
        assert!(check("90 a.rs:f", &oversized("a.rs:f", 80)).unwrap().is_empty());
        assert_eq!(check("90 a.rs:f", &oversized("a.rs:f", 79)).unwrap().len(), 1);
    }

    #[test]
    fn the_unlisted_and_the_outdated_are_named() {
        assert!(check("", &oversized("a.rs", 601)).unwrap()[0].contains("limit is 600"));
        assert!(check("700 a.rs", &[]).unwrap()[0].contains("remove"));
        assert!(check("many a.rs", &[]).is_err());
        assert!(check("700", &[]).is_err());
    }
}
