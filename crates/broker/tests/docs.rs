//! Two pages are made from what the code says of itself, and checked against it: `docs/metrics.md` from
//! the tables of metrics, and the tables of `docs/kafka-compatibility.md` from the table of served
//! APIs, the heads of the handlers' files, and the table of topic configurations.
//!
//! To make them again: `TALOS_TEST_WRITE_DOCS=1 cargo test -p talos-broker --test docs`. What stands
//! outside the marks `<!-- made: NAME -->` and `<!-- end -->` is written by hand and kept.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test that reads and writes pages of the repository"
)]

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use talos_broker::{METRICS, MetricRow, Served, log_metric_rows, served, topic_config_rows};
use talos_protocol::ApiKey;

fn place(relative: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(relative)
}

/// Compares each marked part of a page with what it should be, or writes it.
fn check(page: &str, parts: &[(&str, String)]) {
    let path = place("../../docs").join(page);
    let found = std::fs::read_to_string(&path).unwrap();
    let mut wanted = found.clone();
    for (name, text) in parts {
        let mark = format!("<!-- made: {name} -->\n");
        let (head, rest) = wanted.split_once(&mark).unwrap_or_else(|| panic!("{page}: no {mark}"));
        let (_, tail) = rest.split_once("<!-- end -->").unwrap();
        wanted = format!("{head}{mark}\n{text}\n<!-- end -->{tail}");
    }
    if std::env::var_os("TALOS_TEST_WRITE_DOCS").is_some() {
        std::fs::write(&path, &wanted).unwrap();
    } else {
        let how = "TALOS_TEST_WRITE_DOCS=1 cargo test -p talos-broker --test docs";
        assert_eq!(found, wanted, "docs/{page} is not current; make it again: {how}");
    }
}

/// What a metric counts in, as its name says.
fn unit(row: &MetricRow) -> &'static str {
    match row.name {
        name if name.ends_with("_seconds") => "seconds",
        name if name.ends_with("_bytes") => "bytes",
        _ => "number",
    }
}

/// The name under which it is scraped: counters get `_total` from the text format.
fn scraped(row: &MetricRow) -> String {
    let total = if row.kind == "counter" { "_total" } else { "" };
    format!("{}{total}", row.name)
}

fn metric_table(rows: impl Iterator<Item = MetricRow>) -> String {
    let mut table = "| name | type | unit | labels | meaning |\n|---|---|---|---|---|\n".to_owned();
    for row in rows {
        let labels: Vec<_> = row.labels.split(',').filter(|label| !label.is_empty()).collect();
        let labels = labels.iter().map(|label| format!("`{label}`")).collect::<Vec<_>>().join(", ");
        let (name, unit) = (scraped(&row), unit(&row));
        let (kind, help) = (row.kind, row.help);
        writeln!(table, "| `{name}` | {kind} | {unit} | {labels} | {help} |").unwrap();
    }
    table
}

/// Why connections are closed, as the code has it: each is named in a call of these.
fn close_reasons() -> Vec<String> {
    let files = ["src/connection.rs", "src/connection/receive.rs"];
    let source = files.map(|file| std::fs::read_to_string(place(file)).unwrap()).concat();
    let calls = ["End::now(\"", "End::after_answers(\""];
    let after = calls.iter().flat_map(|call| source.split(call).skip(1));
    let mut reasons: Vec<_> = after.filter_map(|rest| rest.split_once('"')).collect();
    reasons.sort_unstable();
    reasons.dedup_by_key(|(reason, _)| *reason);
    reasons.into_iter().map(|(reason, _)| format!("`{reason}`")).collect()
}

#[test]
fn the_metrics_page_is_current() {
    let reasons = format!("{}.\n", close_reasons().join(", "));
    let broker = metric_table(METRICS.iter().copied());
    check(
        "metrics.md",
        &[("broker", broker), ("log", metric_table(log_metric_rows())), ("reasons", reasons)],
    );
}

/// The head of the file of an API's handler, as one line.
fn head(key: ApiKey) -> String {
    let mut file = String::new();
    for letter in key.name().chars() {
        if letter.is_ascii_uppercase() && !file.is_empty() {
            file.push('_');
        }
        file.push(letter.to_ascii_lowercase());
    }
    let path = place("src/handlers").join(format!("{file}.rs"));
    let source = std::fs::read_to_string(&path).unwrap();
    let lines = source.lines().map_while(|line| line.strip_prefix("//!"));
    lines.map(str::trim).collect::<Vec<_>>().join(" ")
}

/// Where it differs from Apache Kafka, as its handler's head says.
fn differences(head: &str) -> String {
    let Some((_, text)) = head.split_once("Different from Kafka: ") else { return String::new() };
    let mut text = text.trim().to_owned();
    if let Some(first) = text.get(..1) {
        let first = first.to_uppercase();
        text.replace_range(..1, &first);
    }
    text
}

fn api_row(api: &Served) -> String {
    let head = head(api.key);
    let versions = match (api.min, api.max) {
        (min, max) if min == max => format!("version {max}"),
        (min, max) => format!("versions {min} to {max}"),
    };
    let start = format!("{} (key {}), {versions}", api.key.name(), api.key.code());
    let next = head.strip_prefix(&start).and_then(|rest| rest.chars().next());
    assert!(
        next.is_some_and(|next| !next.is_ascii_digit()),
        "the head of the handler should begin with «{start}», not: {head}"
    );
    let range = |min, max| if min == max { format!("{max}") } else { format!("{min} to {max}") };
    let mut versions = range(api.min, api.max);
    if api.advertised_min != api.min {
        versions = format!("{versions} (advertised from {})", api.advertised_min);
    }
    let (name, key) = (api.key.name(), api.key.code());
    format!("| {name} | {key} | {versions} | {} |\n", differences(&head))
}

fn api_table() -> String {
    let head = "| API | key | versions | different from Apache Kafka |\n|---|---|---|---|\n";
    served().iter().fold(head.to_owned(), |table, api| table + &api_row(api))
}

fn not_served() -> String {
    let served = served();
    let all = ApiKey::ALL.iter().filter(|key| !served.iter().any(|api| api.key == **key));
    format!("{}.\n", all.map(|key| key.name()).collect::<Vec<_>>().join(", "))
}

/// Topic configurations whose documentation `wanted` picks.
fn config_table(wanted: impl Fn(&str) -> bool) -> String {
    let mut table = "| name | default | here |\n|---|---|---|\n".to_owned();
    for row in topic_config_rows().filter(|row| wanted(row.doc)) {
        let default = match row.default {
            "" => "empty".to_owned(),
            text => format!("`{text}`"),
        };
        writeln!(table, "| `{}` | {default} | {} |", row.name, row.doc).unwrap();
    }
    table
}

#[test]
fn the_compatibility_page_is_current() {
    let is_idle = |doc: &str| doc.starts_with("No effect");
    let is_one_valued = |doc: &str| !is_idle(doc) && doc.contains("refused");
    check(
        "kafka-compatibility.md",
        &[
            ("apis", api_table()),
            ("not served", not_served()),
            ("topic effect", config_table(|doc| !is_idle(doc) && !is_one_valued(doc))),
            ("topic refused", config_table(is_one_valued)),
            ("topic no effect", config_table(is_idle)),
        ],
    );
}
