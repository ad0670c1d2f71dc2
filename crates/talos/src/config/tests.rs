//! Configuration: precedence, the nearest key, all problems at once, typed values.

use super::*;

fn vars(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
}

fn set(list: &[&str]) -> Flags {
    Flags { named: Vec::new(), set: list.iter().map(|text| (*text).into()).collect() }
}

fn file(text: &str) -> Option<(&'static Path, &str)> {
    Some((Path::new("talos.toml"), text))
}

fn problems(result: Result<ServeConfig, ConfigError>) -> Vec<String> {
    result.unwrap_err().problems.iter().map(ToString::to_string).collect()
}

#[test]
fn defaults_are_valid_and_fit_their_fields() {
    let config = parse(None, vec![], &Flags::default()).unwrap();
    assert_eq!(config.server.listen, "127.0.0.1:9092");
    assert_eq!(config.server.data_dir, Path::new("./talos-data"));
    assert_eq!(config.kafka.message_max_bytes, 1_048_588);
    assert_eq!(config.kafka.retention_ms(), 604_800_000);
    assert_eq!(config.settings.kafka()["num.partitions"], "1");
    assert_eq!(config.settings.kafka()["log.retention.ms"], "");
    assert_eq!(config.settings.iter().count(), keys::all().count());
}

#[test]
fn names_and_variables_are_unique() {
    let names: std::collections::BTreeSet<_> = keys::all().map(Key::full_name).collect();
    let variables: std::collections::BTreeSet<_> = keys::all().map(Key::variable).collect();
    assert_eq!(names.len(), keys::all().count());
    assert_eq!(variables.len(), keys::all().count());
    for (name, _) in keys::REFUSED {
        assert!(!names.contains(*name), "{name} is both a key and refused");
    }
}

#[test]
fn flags_go_before_variables_and_these_before_the_file() {
    let text = "[server]\nlisten = '127.0.0.1:1'\nnode_id = 1\n[kafka]\nnum.partitions = 2\n";
    let only_file = parse(file(text), vec![], &Flags::default()).unwrap();
    assert_eq!(only_file.server.listen, "127.0.0.1:1");
    let variables =
        vars(&[("TALOS_SERVER_LISTEN", "127.0.0.1:2"), ("TALOS_KAFKA_NUM_PARTITIONS", "3")]);
    let mut flags = set(&["num.partitions=4"]);
    let with_variables = parse(file(text), variables.clone(), &Flags::default()).unwrap();
    assert_eq!(with_variables.server.listen, "127.0.0.1:2");
    assert_eq!(with_variables.kafka.num_partitions, 3);
    flags.named.push(("--listen", "server.listen", "127.0.0.1:3".into()));
    let all = parse(file(text), variables, &flags).unwrap();
    assert_eq!((all.server.listen.as_str(), all.server.node_id), ("127.0.0.1:3", 1));
    assert_eq!(all.kafka.num_partitions, 4);
    assert_eq!(all.place("kafka", "num.partitions"), Place::Flag("--set num.partitions=4".into()));
    let line = Place::File { path: "talos.toml".into(), line: 3 };
    assert_eq!(all.place("server", "node_id"), line);
}

#[test]
fn kafka_names_are_taken_quoted_dotted_and_in_set() {
    let text = "[kafka]\n\"log.retention.ms\" = '3d'\nmessage.max.bytes = \"2MiB\"\n";
    let config = parse(file(text), vec![], &set(&["log.retention.bytes=1GiB"])).unwrap();
    assert_eq!(config.kafka.retention_ms(), 259_200_000);
    assert_eq!(config.kafka.message_max_bytes, 2 << 20);
    assert_eq!(config.kafka.log_retention_bytes, 1 << 30);
    let ours = parse(None, vec![], &set(&["memory.tail_cache=1GiB"])).unwrap();
    assert_eq!(ours.memory.tail_cache, talos_common::ByteSize(1 << 30));
}

#[test]
fn retention_follows_kafkas_precedence_of_units() {
    let retention = |list: &[&str]| parse(None, vec![], &set(list)).unwrap().kafka.retention_ms();
    assert_eq!(retention(&["log.retention.hours=1"]), 3_600_000);
    assert_eq!(retention(&["log.retention.hours=1", "log.retention.minutes=1"]), 60_000);
    assert_eq!(retention(&["log.retention.minutes=1", "log.retention.ms=5"]), 5);
    assert_eq!(retention(&["log.retention.hours=-1"]), -1);
}

#[test]
fn unknown_keys_name_the_nearest_and_all_problems_come_at_once() {
    let text = "\
[server]
listn = 'x:1'
node_id = -1
admin = [1]

[memory]
tail_cache = 64

[kafka]
num.partition = 3

[storage]
url = 'hdfs://x'
";
    let variables = vars(&[
        ("TALOS_SERVER_LISTEM", "x"),
        ("TALOS_KAFKA_MESSAGE_MAX_BYTES", "1MB"),
        ("TALOS_BOOTSTRAP", "x:1"),
        ("TALOS_TEST_ANYTHING", "1"),
        ("PATH", "/bin"),
    ]);
    let flags = set(&["auto.create.topic.enable=true", "num.partitions", "log.dirs=/x"]);
    assert_eq!(
        problems(parse(file(text), variables, &flags)),
        [
            "talos.toml:2: server.listn is no known key; the nearest is server.listen",
            "talos.toml:3: server.node_id = \"-1\" must be a whole number from 0 to 2147483647",
            "talos.toml:4: server.admin must be HOST:PORT, as in 127.0.0.1:9092, or empty",
            "talos.toml:7: memory.tail_cache = \"64\" must be a size from 4MiB to 1TiB, as in \"64MiB\"",
            "talos.toml:10: kafka.num.partition is no known key; the nearest is kafka.num.partitions",
            "talos.toml:13: storage.url is reserved: this version stores on the local disk (data_dir in \
             [server]); remove it",
            "variable TALOS_KAFKA_MESSAGE_MAX_BYTES: = \"1MB\" must be a number of bytes from 0 to \
             2147483647, or a size as in \"64MiB\"",
            "variable TALOS_SERVER_LISTEM: is no known variable; the nearest is TALOS_SERVER_LISTEN",
            "flag --set auto.create.topic.enable=true: auto.create.topic.enable is no known key; the \
             nearest is auto.create.topics.enable",
            "flag --set log.dirs=/x: kafka.log.dirs is set by data_dir in [server]",
            "flag --set num.partitions: must be NAME=VALUE, as in num.partitions=8",
        ]
    );
}

#[test]
fn broken_toml_names_the_line_and_the_rest_is_still_judged() {
    let found = problems(parse(
        file("[server]\nlisten = \n\n[memory]\nreceive = 'x'\n"),
        vec![],
        &Flags::default(),
    ));
    assert!(found[0].starts_with("talos.toml:2: not valid TOML: "), "{found:?}");
    assert!(found.iter().any(|text| text.starts_with("talos.toml:5: memory.receive")), "{found:?}");
}

#[test]
fn rules_between_keys_are_checked() {
    let flags = set(&[
        "server.listen=0.0.0.0:9092",
        "group.min.session.timeout.ms=10",
        "group.max.session.timeout.ms=5",
        "socket.request.max.bytes=1000",
        "telemetry.filter=talos=louder",
        "log.sort_after=8MiB",
        "log.raw_limit=8MiB",
    ]);
    let found = problems(parse(None, vec![], &flags));
    let starts = [
        "default: kafka.message.max.bytes = 1048588 must not be above socket.request.max.bytes = 1000",
        "default: log.journal_size = 128MiB must not be above log.sort_after = 8MiB",
        "flag --set group.min.session.timeout.ms=10: kafka.group.min.session.timeout.ms = 10 must not",
        "flag --set log.raw_limit=8MiB: log.raw_limit = 8MiB must be above log.sort_after = 8MiB",
        "flag --set server.listen=0.0.0.0:9092: server.listen = \"0.0.0.0:9092\" listens everywhere",
        "flag --set telemetry.filter=talos=louder: telemetry.filter = \"talos=louder\" is no filter",
    ];
    assert_eq!(found.len(), starts.len(), "{found:#?}");
    for (found, start) in found.iter().zip(starts) {
        assert!(found.starts_with(start), "{found}");
    }
}

#[test]
fn the_advertised_address_follows_the_bound_port() {
    let bound = "127.0.0.1:4567".parse().unwrap();
    let with = |list: &[&str]| parse(None, vec![], &set(list)).unwrap().advertised(bound);
    assert_eq!(with(&["server.listen=localhost:0"]), ("localhost".into(), 4567));
    assert_eq!(with(&["server.advertised=kafka.example:19092"]), ("kafka.example".into(), 19092));
}

#[test]
fn the_configuration_page_is_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/configuration.md");
    let wanted = docs::markdown();
    if std::env::var_os("TALOS_TEST_WRITE_DOCS").is_some() {
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, &wanted).unwrap();
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        found, wanted,
        "make it again: TALOS_TEST_WRITE_DOCS=1 cargo test -p talos --lib configuration_page"
    );
}
