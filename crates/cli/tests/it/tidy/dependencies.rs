//! Which crate may depend on which, and what must be absent from each.

use std::collections::{BTreeMap, BTreeSet};

use super::{read, root};

/// Crates of the workspace, each with those that it may depend on. Whatever a crate does not need it may not have: `core`
/// decides without the others, stores and logs know no engine, the library no server.
const ALLOWED: [(&str, &[&str]); 15] = [
    ("core", &[]),
    ("api", &[]),
    ("testkit", &[]),
    ("durable", &["core"]),
    ("redis", &["core"]),
    ("source", &["core"]),
    ("upstream", &["core"]),
    ("snapshots", &["core", "testkit"]),
    ("store", &["core", "durable", "redis", "testkit"]),
    ("log", &["core", "durable", "redis", "testkit"]),
    (
        "engine",
        &["core", "durable", "log", "snapshots", "source", "store"],
    ),
    ("client", &["api"]),
    (
        "server",
        &[
            "api",
            "core",
            "durable",
            "engine",
            "log",
            "snapshots",
            "source",
            "store",
        ],
    ),
    (
        "tidegate",
        &["core", "durable", "engine", "log", "snapshots", "source", "store"],
    ),
    (
        "cli",
        &[
            "client",
            "core",
            "durable",
            "engine",
            "server",
            "snapshots",
            "source",
            "store",
            "tidegate",
            "upstream",
        ],
    ),
];

/// What a crate must not depend on directly, and why.
const ABSENT: [(&str, &[&str], &str); 6] = [
    ("api", &["tokio", "axum", "reqwest"], "the wire is plain data"),
    (
        "client",
        &["axum", "reqwest", "utoipa"],
        "a client serves nothing",
    ),
    (
        "engine",
        &["axum", "fjall", "hyper", "redis", "reqwest", "sqlx"],
        "the engine speaks no HTTP and knows no database",
    ),
    (
        "store",
        &["axum", "reqwest", "sqlx"],
        "a store serves nothing and has no SQL",
    ),
    (
        "log",
        &["axum", "reqwest", "sqlx"],
        "a log serves nothing and has no SQL",
    ),
    ("snapshots", &["axum", "fjall", "redis"], "snapshots are SQL"),
];

/// What whoever uses the library must not have to build.
const NOT_IN_THE_LIBRARY: [&str; 8] = [
    "axum",
    "clap",
    "indicatif",
    "prometheus-client",
    "rust-embed",
    "tidegate-server",
    "tidegate-upstream",
    "utoipa",
];

/// The dependencies that a crate's manifest names, those of its tests left out.
fn dependencies(of: &str) -> Vec<String> {
    let manifest: toml::Table = read(&root().join("crates").join(of).join("Cargo.toml"))
        .parse()
        .expect("valid TOML");
    let table = manifest.get("dependencies").and_then(|table| table.as_table());
    table
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

/// The folder of a crate of the workspace.
fn folder(package: &str) -> Option<&str> {
    match package {
        "tidegate" => Some("tidegate"),
        other => other.strip_prefix("tidegate-"),
    }
}

#[test]
fn every_crate_depends_only_on_the_layers_below_it() {
    let mut seen = BTreeSet::new();
    for (name, allowed) in ALLOWED {
        seen.insert(name.to_owned());
        for dependency in dependencies(name) {
            if let Some(other) = folder(&dependency) {
                assert!(allowed.contains(&other), "{name} must not depend on {dependency}");
            }
        }
    }
    let crates = std::fs::read_dir(root().join("crates")).expect("readable");
    for entry in crates.flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        assert!(seen.contains(&name), "crates/{name} has no row in ALLOWED");
    }
}

/// Each row names only rows above it, so the table itself is an order.
#[test]
fn layers_have_no_cycle() {
    let mut above = BTreeSet::new();
    for (name, allowed) in ALLOWED {
        for other in allowed {
            assert!(above.contains(other), "{name} stands above {other}");
        }
        above.insert(name);
    }
}

#[test]
fn what_a_crate_must_not_know_is_absent() {
    for (name, absent, why) in ABSENT {
        for dependency in dependencies(name) {
            assert!(
                !absent.contains(&dependency.as_str()),
                "{name} must not depend on {dependency}: {why}"
            );
        }
    }
}

/// Pure decisions: no runtime, no disk, no wire. `rustix` reads the clock that runs while a process is stopped.
#[test]
fn core_knows_no_runtime_no_disk_and_no_wire() {
    let allowed = [
        "bytes",
        "hashbrown",
        "rustix",
        "serde",
        "siphasher",
        "slab",
        "thiserror",
    ];
    for dependency in dependencies("core") {
        assert!(
            allowed.contains(&dependency.as_str()),
            "core must not depend on {dependency}"
        );
    }
}

#[test]
fn the_library_brings_no_server_and_no_command_line() {
    let lock: toml::Table = read(&root().join("Cargo.lock")).parse().expect("valid TOML");
    let packages = lock["package"].as_array().expect("packages");
    let mut needs: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for package in packages {
        let list = package.get("dependencies").and_then(|list| list.as_array());
        let names = list.into_iter().flatten().filter_map(|name| name.as_str());
        let names = names.filter_map(|name| name.split(' ').next()).map(str::to_owned);
        let name = package["name"].as_str().expect("a name").to_owned();
        needs.entry(name).or_default().extend(names);
    }
    let mut seen = BTreeSet::new();
    let mut open = vec!["tidegate".to_owned()];
    while let Some(package) = open.pop() {
        if !seen.insert(package.clone()) {
            continue;
        }
        // The lock file lists the dependencies of our own tests as well; the manifests do not.
        match folder(&package) {
            Some("testkit") => {}
            Some(own) => open.extend(dependencies(own)),
            None => open.extend(needs.get(&package).into_iter().flatten().cloned()),
        }
    }
    assert!(
        seen.contains("fjall"),
        "the walk reaches what the library really needs"
    );
    for absent in NOT_IN_THE_LIBRARY {
        assert!(!seen.contains(absent), "the library depends on {absent}");
    }
}
