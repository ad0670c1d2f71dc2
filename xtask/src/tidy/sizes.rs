//! Sizes: product lines of a file, lines of a function.
//!
//! A product line is any line outside test code. Test code is what stands under `#[cfg(test)]`, in
//! a file `tests.rs`, or below a folder `tests` or `benches`; there only the whole file is limited.

use super::rust;

const FILE_LIMIT: usize = 600;
const TEST_FILE_LIMIT: usize = 1000;
const FUNCTION_LIMIT: usize = 70;

/// Something larger than its limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Oversized {
    /// `PATH`, or `PATH:NAME` for a function.
    pub(super) what: String,
    /// Its lines.
    pub(super) lines: usize,
    /// The limit that it passes.
    pub(super) limit: usize,
}

/// All that is too large in one Rust file.
pub(super) fn check(path: &str, content: &str) -> Vec<Oversized> {
    let total = content.lines().count();
    if is_test_file(path) {
        return over(path.to_owned(), total, TEST_FILE_LIMIT).into_iter().collect();
    }
    let blanked = rust::blank(content);
    let tests = rust::test_lines(&blanked);
    let test_lines = (1..=total).filter(|line| rust::contains(&tests, *line)).count();
    let mut found: Vec<_> =
        over(path.to_owned(), total - test_lines, FILE_LIMIT).into_iter().collect();
    for function in rust::functions(&blanked) {
        if !rust::contains(&tests, function.line) {
            let what = format!("{path}:{}", function.name);
            found.extend(over(what, function.lines, FUNCTION_LIMIT));
        }
    }
    found
}

/// Whether all of a file is test code.
pub(super) fn is_test_file(path: &str) -> bool {
    path.split('/').any(|part| matches!(part, "tests" | "benches" | "tests.rs"))
}

fn over(what: String, lines: usize, limit: usize) -> Option<Oversized> {
    (lines > limit).then_some(Oversized { what, lines, limit })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(n: usize) -> String {
        "x\n".repeat(n)
    }

    #[test]
    fn the_limit_itself_is_allowed() {
        assert!(check("a.rs", &lines(600)).is_empty());
        assert_eq!(check("a.rs", &lines(601))[0].lines, 601);
    }

    #[test]
    fn tests_inside_a_file_do_not_count() {
        let body = format!("{}#[cfg(test)]\nmod tests {{\n{}}}\n", lines(600), lines(500));
        assert!(check("a.rs", &body).is_empty());
    }

    #[test]
    fn test_files_have_a_limit_of_their_own() {
        assert!(check("crates/x/src/a/tests.rs", &lines(1000)).is_empty());
        assert_eq!(check("tests/e2e/src/a.rs", &lines(1001))[0].limit, 1000);
    }

    #[test]
    fn a_long_function_is_named() {
        let long = format!("fn f() {{\n{}}}\n", lines(69));
        assert_eq!(
            check("a.rs", &long),
            [Oversized { what: "a.rs:f".to_owned(), lines: 71, limit: 70 }]
        );
        assert!(check("a.rs", &format!("fn f() {{\n{}}}\n", lines(68))).is_empty());
    }
}
