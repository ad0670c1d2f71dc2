//! Lines, separators, and which error is told.

use super::*;

#[test]
fn the_error_of_the_first_line_that_failed_is_told_in_whatever_order_they_come() {
    let error = |reason: &str| ClientError::Connect { server: "s".into(), reason: reason.into() };
    let mut outcome = Outcome::default();
    outcome.failed(1, Some(3), error("follows"));
    outcome.failed(1, Some(2), error("the cause"));
    outcome.failed(1, Some(4), error("follows, too"));
    assert_eq!(outcome.first_failed, Some(2));
    assert!(outcome.error.unwrap().to_string().contains("the cause"));
}

#[test]
fn lines_are_cut_at_every_buffer_border() {
    let text = b"one\n\nthree is longer\nlast without end";
    for size in 1..text.len() + 1 {
        let (lots, mut queue) = mpsc::channel(64);
        read_lots(Box::new(BufReader::with_capacity(size, &text[..])), &lots).unwrap();
        drop(lots);
        let mut lines = Vec::new();
        while let Some(lot) = queue.blocking_recv() {
            lines.extend(lot);
        }
        let wanted: Vec<&[u8]> = vec![b"one", b"", b"three is longer", b"last without end"];
        assert_eq!(lines, wanted, "{size}");
    }
}

#[test]
fn separators_are_found() {
    assert_eq!(find(b"a::b", b"::"), Some(1));
    assert_eq!(find(b"ab", b"::"), None);
    assert_eq!(find(b"ab", b""), None);
}
