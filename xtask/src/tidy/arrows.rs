//! Which crate may need which: dependencies point one way.
//!
//! The table is the whole truth: a crate that is not in it is refused until someone decides where
//! it stands. Dependencies of tests are exempt. Names of backends are kept out of `broker` by
//! reading its sources, because it may name the storage trait.

use crate::cargo::Package;

/// May need every crate of ours.
const ALL: &[&str] = &["*"];

/// Crate, and the crates of ours that it may need.
const ARROWS: &[(&str, &[&str])] = &[
    ("talos-common", &[]),
    ("talos-protocol", &[]),
    ("talos-hdfs", &["talos-common"]),
    ("talos-storage", &["talos-common", "talos-hdfs"]),
    ("talos-meta", &["talos-common"]),
    ("talos-log", &["talos-common", "talos-protocol", "talos-storage"]),
    // Storage for its trait, which a broker hands from the binary to the log; no backend.
    (
        "talos-broker",
        &["talos-common", "talos-log", "talos-meta", "talos-protocol", "talos-storage"],
    ),
    // Storage and meta to build the backends that the config names; protocol as a client; log for
    // `talos dump`, which reads files with no broker running.
    (
        "talos",
        &[
            "talos-broker",
            "talos-common",
            "talos-log",
            "talos-meta",
            "talos-protocol",
            "talos-storage",
        ],
    ),
    ("talos-sim", ALL),
    ("talos-e2e", ALL),
    ("xtask", &[]),
];

/// What `broker` may not name: backends are chosen by the binary.
const BACKENDS: &[&str] = &[
    "LocalStorage",
    "MemoryStorage",
    "HdfsStorage",
    "ObjectStorage",
    "MemoryMeta",
    "SqliteMeta",
    "ZookeeperMeta",
    "talos_storage::local",
    "talos_storage::memory",
    "talos_storage::hdfs",
    "talos_storage::object",
    "talos_meta::memory",
    "talos_meta::sqlite",
    "talos_meta::zookeeper",
];

/// Complains about every arrow that is not in the table.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let ours = |name: &str| packages.iter().any(|package| package.name == name);
    let mut complaints = Vec::new();
    for package in packages {
        let Some((_, allowed)) = ARROWS.iter().find(|(name, _)| *name == package.name) else {
            complaints.push(format!(
                "crate {} has no place in the table of arrows (xtask/src/tidy/arrows.rs)",
                package.name
            ));
            continue;
        };
        for need in package.needs.iter().filter(|need| ours(need)) {
            if *allowed != ALL && !allowed.contains(&need.as_str()) {
                complaints.push(format!("{} must not depend on {need}", package.name));
            }
        }
    }
    complaints
}

/// Complains when a product source of `broker` names a backend.
pub(super) fn check_source(path: &str, content: &str) -> Vec<String> {
    if !path.starts_with("crates/broker/src/") || super::sizes::is_test_file(path) {
        return Vec::new();
    }
    let code = super::rust::without_tests(content);
    let names = BACKENDS.iter().filter(|name| code.contains(**name));
    names.map(|name| format!("{path}: broker must not name the backend {name}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, needs: &[&str]) -> Package {
        Package { name: name.to_owned(), needs: needs.iter().map(|n| (*n).to_owned()).collect() }
    }

    #[test]
    fn arrows_of_the_design_pass() {
        let packages = [
            package("talos-common", &["serde"]),
            package("talos-protocol", &["bytes"]),
            package("talos-storage", &["talos-common"]),
            package("talos-log", &["talos-common", "talos-protocol", "talos-storage"]),
            package("talos-meta", &["talos-common"]),
            package("talos-broker", &["talos-log", "talos-meta", "talos-protocol"]),
            package("talos", &["talos-broker", "talos-storage", "talos-meta"]),
            package("talos-sim", &["talos-broker", "talos-storage"]),
            package("xtask", &["anyhow"]),
        ];
        assert_eq!(check(&packages), Vec::<String>::new());
    }

    #[test]
    fn arrows_that_point_the_wrong_way_are_named() {
        let packages = [
            package("talos-common", &[]),
            package("talos-protocol", &["talos-common"]),
            package("talos-meta", &["talos-storage"]),
            package("talos-storage", &[]),
            package("talos-log", &["talos-meta", "talos-broker"]),
            package("talos-broker", &[]),
        ];
        assert_eq!(
            check(&packages),
            [
                "talos-protocol must not depend on talos-common",
                "talos-meta must not depend on talos-storage",
                "talos-log must not depend on talos-meta",
                "talos-log must not depend on talos-broker",
            ]
        );
    }

    #[test]
    fn an_unknown_crate_is_refused() {
        let complaints = check(&[package("talos-types", &[])]);
        assert!(complaints[0].contains("talos-types"), "{complaints:?}");
    }

    #[test]
    fn broker_names_no_backend_outside_its_tests() {
        let bad = "use talos_storage::{LocalStorage, Storage};\n";
        let good = "#[cfg(test)]\nmod tests {\n    use talos_storage::memory::Memory;\n}\n";
        assert_eq!(check_source("crates/broker/src/lib.rs", bad).len(), 1);
        assert!(check_source("crates/broker/src/lib.rs", good).is_empty());
        assert!(check_source("crates/broker/src/groups/tests.rs", bad).is_empty());
        assert!(check_source("crates/talos/src/main.rs", bad).is_empty());
    }
}
