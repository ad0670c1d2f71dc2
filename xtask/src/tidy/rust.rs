//! Just enough of Rust's surface to count lines: what is code, what is test, where functions end.
//!
//! [`blank`] replaces the insides of comments and literals by spaces, so that braces can be
//! counted. Invariants: blanking keeps every line break, hence line numbers; text that is not valid
//! Rust gives some answer, never a panic.

/// A function with its lines, from `fn` to the closing brace.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Function {
    /// Name as written.
    pub(super) name: String,
    /// Line of `fn`, from 1.
    pub(super) line: usize,
    /// Lines, the first and the last counted.
    pub(super) lines: usize,
}

/// The source with comments and the insides of literals made blank.
pub(super) fn blank(source: &str) -> String {
    let chars: Vec<char> = source.chars().collect();
    let at = |i: usize| chars.get(i).copied().unwrap_or('\0');
    let mut out = String::with_capacity(source.len());
    let mut i = 0;
    while i < chars.len() {
        let after_word = i > 0 && is_word(at(i - 1));
        let end = match at(i) {
            '/' if at(i + 1) == '/' => line_end(&chars, i),
            '/' if at(i + 1) == '*' => comment_end(&chars, i),
            '"' => string_end(&chars, i),
            'r' if !after_word || at(i - 1) == 'b' => match raw_end(&chars, i) {
                Some(end) => end,
                None => i,
            },
            '\'' => literal_end(&chars, i),
            _ => i,
        };
        if end == i {
            out.push(at(i));
            i += 1;
        } else {
            out.extend(chars[i..end].iter().map(|c| if *c == '\n' { '\n' } else { ' ' }));
            i = end;
        }
    }
    out
}

/// The source without items under `#[cfg(test)]`; line breaks inside them go too.
pub(super) fn without_tests(source: &str) -> String {
    let tests = test_lines(&blank(source));
    let kept = source.lines().enumerate().filter(|(i, _)| !contains(&tests, i + 1));
    kept.map(|(_, line)| format!("{line}\n")).collect()
}

/// Inclusive line ranges, from 1, of items under `#[cfg(test)]`.
pub(super) fn test_lines(blanked: &str) -> Vec<(usize, usize)> {
    const MARK: &str = "#[cfg(test)]";
    let mut ranges = Vec::new();
    let mut from = 0;
    while let Some(found) = blanked.get(from..).and_then(|rest| rest.find(MARK)) {
        let start = from + found;
        let end = item_end(blanked, start + MARK.len());
        ranges.push((line_of(blanked, start), line_of(blanked, end)));
        from = end.max(start + MARK.len());
    }
    ranges
}

/// Functions with a body, in order, nested ones too.
pub(super) fn functions(blanked: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for (start, _) in blanked.match_indices("fn ") {
        let before = blanked[..start].chars().next_back();
        if before.is_some_and(is_word) {
            continue;
        }
        let name: String = blanked[start + 3..].chars().take_while(|c| is_word(*c)).collect();
        let end = item_end(blanked, start);
        if name.is_empty() || !blanked[start..=end].ends_with('}') {
            continue;
        }
        let line = line_of(blanked, start);
        found.push(Function { name, line, lines: line_of(blanked, end) - line + 1 });
    }
    found
}

/// Whether a line lies in one of the ranges.
pub(super) fn contains(ranges: &[(usize, usize)], line: usize) -> bool {
    ranges.iter().any(|(first, last)| (*first..=*last).contains(&line))
}

/// Byte index of the `;` or the closing brace that ends the item beginning at `start`; the last
/// byte when it never ends.
fn item_end(blanked: &str, start: usize) -> usize {
    let mut round = 0_i32;
    let mut braces = 0_i32;
    for (i, byte) in blanked.bytes().enumerate().skip(start) {
        match byte {
            b'(' | b'[' => round += 1,
            b')' | b']' => round -= 1,
            b'{' => braces += 1,
            b'}' => {
                braces -= 1;
                if braces <= 0 && round <= 0 {
                    return i;
                }
            }
            b';' if braces == 0 && round <= 0 => return i,
            _ => {}
        }
    }
    blanked.len().saturating_sub(1)
}

fn line_of(text: &str, at: usize) -> usize {
    text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn line_end(chars: &[char], start: usize) -> usize {
    chars[start..].iter().position(|c| *c == '\n').map_or(chars.len(), |n| start + n)
}

fn comment_end(chars: &[char], start: usize) -> usize {
    let mut depth = 0;
    let mut i = start;
    while i + 1 < chars.len() {
        match (chars[i], chars[i + 1]) {
            ('/', '*') => {
                depth += 1;
                i += 2;
            }
            ('*', '/') => {
                depth -= 1;
                i += 2;
                if depth == 0 {
                    return i;
                }
            }
            _ => i += 1,
        }
    }
    chars.len()
}

fn string_end(chars: &[char], start: usize) -> usize {
    let mut i = start + 1;
    while i < chars.len() {
        match chars[i] {
            '\\' => i += 2,
            '"' => return i + 1,
            _ => i += 1,
        }
    }
    chars.len()
}

/// End of a raw string whose `r` stands at `start`, or nothing when none begins there.
fn raw_end(chars: &[char], start: usize) -> Option<usize> {
    let hashes = chars[start + 1..].iter().take_while(|c| **c == '#').count();
    let open = start + 1 + hashes;
    if chars.get(open) != Some(&'"') {
        return None;
    }
    let closes = |i: usize| {
        chars[i] == '"' && (1..=hashes).all(|n| chars.get(i + n).is_some_and(|c| *c == '#'))
    };
    let end = (open + 1..chars.len()).find(|i| closes(*i));
    Some(end.map_or(chars.len(), |i| i + 1 + hashes))
}

/// End of a character literal at `start`; `start` itself for a lifetime.
fn literal_end(chars: &[char], start: usize) -> usize {
    if chars.get(start + 1) == Some(&'\\') {
        let close = chars[start + 1..].iter().skip(2).position(|c| *c == '\'');
        return close.map_or(chars.len(), |n| start + n + 4);
    }
    if chars.get(start + 2) == Some(&'\'') { start + 3 } else { start }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanking_hides_braces_in_comments_and_literals() {
        let source =
            "a { // }\n/* } /* } */ } */ \"}\\\"}\" r#\"}\"}\"# '}' '\\'' '\\u{7d}' b'}' }";
        let blanked = blank(source);
        assert_eq!(blanked.matches('}').count(), 1, "{blanked}");
        assert_eq!(blanked.matches('{').count(), 1, "{blanked}");
        assert_eq!(blanked.chars().count(), source.chars().count());
        assert_eq!(blanked.lines().count(), 2);
    }

    #[test]
    fn lifetimes_and_raw_words_are_not_literals() {
        let source = "fn f<'a>(x: &'a str) -> &'a str { for_r\"}\" }";
        assert!(blank(source).starts_with("fn f<'a>(x: &'a str) -> &'a str {"));
        assert_eq!(blank(source).matches('}').count(), 1);
    }

    #[test]
    fn functions_are_measured_from_fn_to_brace() {
        let source = "trait T {\n    fn none(&self) -> [u8; 4];\n    fn two(&self) {\n    }\n}\n\
                      fn outer(\n    a: [u8; 2],\n) -> u8 {\n    fn inner() {}\n    1\n}\n";
        let found = functions(&blank(source));
        let short: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.line, f.lines)).collect();
        assert_eq!(short, [("two", 3, 2), ("outer", 6, 6), ("inner", 9, 1)]);
    }

    #[test]
    fn test_items_are_left_out() {
        let source =
            "a\n#[cfg(test)]\nmod tests;\nb\n#[cfg(test)]\nmod more {\n  fn x() {}\n}\nc\n";
        assert_eq!(without_tests(source), "a\nb\nc\n");
    }

    #[test]
    fn broken_source_is_no_panic() {
        for source in ["", "'", "'\\", "\"", "r#\"", "/*", "#[cfg(test)]", "fn ", "fn x", "}}}"] {
            let blanked = blank(source);
            functions(&blanked);
            without_tests(source);
        }
    }
}
