//! The nearest known name to a mistyped one.

/// The candidate with the smallest edit distance to `name` (the first of equals); `None` only when
/// there are no candidates. Names are short, so the quadratic distance is cheap; a longer text is
/// cut.
pub fn nearest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name: Vec<char> = fold(name).take(128).collect();
    candidates.into_iter().min_by_key(|candidate| {
        let candidate: Vec<char> = fold(candidate).collect();
        distance(&name, &candidate)
    })
}

/// Case, and the difference between the separators, are no typing errors of interest.
fn fold(name: &str) -> impl Iterator<Item = char> {
    name.chars().map(|c| match c {
        '-' | '.' => '_',
        c => c.to_ascii_lowercase(),
    })
}

/// Insertions, deletions, replacements and swaps of neighbours that turn `a` into `b` (each pair of
/// letters is edited once at most).
fn distance(a: &[char], b: &[char]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut last: Vec<usize> = (0..=b.len()).collect();
    for (i, &from) in a.iter().enumerate() {
        let mut row = vec![i + 1];
        for (j, &to) in b.iter().enumerate() {
            let replaced = last[j] + usize::from(from != to);
            let mut best = replaced.min(last[j + 1] + 1).min(row[j] + 1);
            if i > 0 && j > 0 && from == b[j - 1] && a[i - 1] == to {
                best = best.min(before[j - 1] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut last, row);
    }
    last[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_name_is_found() {
        let known = ["num.partitions", "message.max.bytes", "log.retention.ms"];
        let near = |name| nearest(name, known);
        assert_eq!(near("num.partition"), Some("num.partitions"));
        assert_eq!(near("mesage.max.byte"), Some("message.max.bytes"));
        assert_eq!(near("LOG_RETENTION_MS"), Some("log.retention.ms"));
        assert_eq!(nearest("x", []), None);
    }

    #[test]
    fn distances() {
        let d = |a: &str, b: &str| {
            distance(&a.chars().collect::<Vec<_>>(), &b.chars().collect::<Vec<_>>())
        };
        assert_eq!(d("", "abc"), 3);
        assert_eq!(d("kitten", "sitting"), 3);
        assert_eq!(d("listen", "litsen"), 1);
        assert_eq!(d("same", "same"), 0);
    }
}
