//! `docs/configuration.md`, made from the table of keys.

use std::fmt::Write as _;

use super::keys::{Key, REFUSED, all};

const HEAD: &str = "\
# Configuration

<!-- Generated from crates/talos/src/config/keys.rs; a test checks it. To make it again:
     TALOS_TEST_WRITE_DOCS=1 cargo test -p talos --lib configuration_page -->

`talos serve` takes its settings from three places. Each goes before the ones above it:

1. the TOML file that `--config FILE` (or the variable `TALOS_CONFIG`) names;
2. `TALOS_*` environment variables, named as in the tables below;
3. flags: `--listen`, `--advertised`, `--data-dir`, `--admin`, `--node-id`, and `--set NAME=VALUE` for every other key
   (Kafka's names as they are, ours in full, as in `--set memory.tail_cache=1GiB`).

A key that is not known is refused, and so is a value that does not fit; all problems are reported at
once, each with its place. Sizes are a whole number and `B`, `KiB`, `MiB`, `GiB` or `TiB`; durations a whole number and
`ms`, `s`, `min`, `h` or `d`. Under Kafka's names, whose unit the name fixes, a plain number is taken as well.

```toml
[server]
listen = \"127.0.0.1:9092\"
data_dir = \"/var/lib/talos\"

[memory]
tail_cache = \"1GiB\"

[kafka]
num.partitions = 8
log.retention.ms = \"3d\"
```
";

fn introduction(section: &str) -> &'static str {
    match section {
        "server" => "Where the broker listens and who it is.",
        "memory" => {
            "Byte budgets. The memory that messages take in the broker is bounded by their sum and, besides \
             them: one request of at most `socket.request.max.bytes`; 24 KiB for each connection whose \
             request is on its way; 64 MiB for reads of journals; 32 MiB for requests of groups; one sorted \
             journal while it is built (32 MiB, or one partition's run); and `log.max_decompressed` for each \
             processor."
        }
        "limits" => {
            "What clients may ask for, and how long they may take: so that one of them costs the others \
             nothing."
        }
        "log" => "Journals, sorted journals and segments.",
        "telemetry" => "What the process says about itself, on standard error.",
        _ => {
            "Kafka's broker configuration, under Kafka's names and with Kafka's defaults. Only names that \
             have a meaning here are taken."
        }
    }
}

/// The whole page.
pub fn markdown() -> String {
    let mut page = HEAD.to_owned();
    let mut section = "";
    for key in all() {
        if key.section != section {
            section = key.section;
            let _ = write!(page, "\n## `[{section}]`\n\n{}\n", introduction(section));
        }
        write_key(&mut page, key);
    }
    page.push_str("\n## Names that are refused\n\n| name | why |\n| --- | --- |\n");
    for (name, why) in REFUSED {
        let _ = writeln!(page, "| `{}` | {why} |", name.strip_prefix("kafka.").unwrap_or(name));
    }
    page
}

fn write_key(page: &mut String, key: &Key) {
    let default = match key.default {
        "" => "not set".to_owned(),
        text => format!("`{text}`"),
    };
    let text = key.doc.split_whitespace().collect::<Vec<_>>().join(" ");
    let _ = write!(
        page,
        "\n### `{}`\n\n{text}\n\n- takes: {}\n- default: {default}\n- variable: `{}`\n",
        key.name,
        key.kind.expected(),
        key.variable(),
    );
}
