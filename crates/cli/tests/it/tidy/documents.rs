//! Documents name only what exists.

use std::path::Path;

use super::{files, read, root, shown};

fn documents() -> Vec<(String, String)> {
    let mut found = files(&["docs", "deploy", "examples"], &["md"]);
    for name in [
        "README.md",
        "ARCHITECTURE.md",
        "CHANGELOG.md",
        "CONTRIBUTING.md",
        "SECURITY.md",
    ] {
        found.push(root().join(name));
    }
    found
        .into_iter()
        .map(|path| (shown(&path), read(&path)))
        .collect()
}

#[test]
fn documents_name_only_paths_that_exist() {
    let folders = [
        "crates/",
        "bench/",
        "scripts/",
        "docs/",
        "deploy/",
        "examples/",
        "web/",
        "tests/",
        "fuzz/",
    ];
    let mut wrong = Vec::new();
    for (document, text) in documents() {
        let quoted = text.split('`').skip(1).step_by(2);
        for path in quoted.filter(|quoted| folders.iter().any(|folder| quoted.starts_with(folder))) {
            // A command begins with a path and has arguments; a pattern stands for several paths.
            let path = path.split([' ', '\n']).next().unwrap_or(path);
            if path.contains(['*', '{', '<', '…']) {
                continue;
            }
            if !root().join(path).exists() {
                wrong.push(format!("{document} names {path}"));
            }
        }
    }
    assert!(wrong.is_empty(), "paths that do not exist:\n{}", wrong.join("\n"));
}

#[test]
fn links_between_documents_lead_somewhere() {
    for (document, text) in documents() {
        let folder = root()
            .join(&document)
            .parent()
            .map(Path::to_owned)
            .expect("a folder");
        for rest in text.split("](").skip(1) {
            let target = rest.split(')').next().unwrap_or_default();
            if target.starts_with("http") || target.is_empty() {
                continue;
            }
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let linked = if path.is_empty() {
                root().join(&document)
            } else {
                folder.join(path)
            };
            assert!(
                linked.exists(),
                "{document} links to {target}, which does not exist"
            );
            if !anchor.is_empty() && linked.extension().is_some_and(|ending| ending == "md") {
                let known = read(&linked)
                    .lines()
                    .any(|line| line.starts_with('#') && slug(line) == anchor);
                assert!(
                    known,
                    "{document} links to {target}, and there is no such heading"
                );
            }
        }
    }
}

/// The anchor of a heading, as forges make it.
fn slug(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text
        .chars()
        .filter(|sign| sign.is_alphanumeric() || [' ', '-', '_'].contains(sign));
    kept.map(|sign| if sign == ' ' { '-' } else { sign }).collect()
}

/// Who upgrades reads the table; the program compares the constants.
#[test]
fn the_changelog_names_the_version_of_every_format() {
    let constant = |file: &str, name: &str| -> u32 {
        let text = read(&root().join(file));
        let found = text.lines().find_map(|line| {
            let value = line.split_once(&format!("const {name}: u32 = "))?.1;
            value.trim_end_matches(';').parse().ok()
        });
        found.unwrap_or_else(|| panic!("{file} has no {name}"))
    };
    let schema = |part: &str| constant(&format!("crates/store/src/{part}/redis/mod.rs"), "SCHEMA");
    let rows = [
        format!(
            "| data folder | {} |",
            constant("crates/durable/src/folder.rs", "FORMAT")
        ),
        format!(
            "| Redis: jobs, refresh, rooms | {}, {}, {} |",
            schema("bulk"),
            schema("refresh"),
            schema("room")
        ),
        format!(
            "| snapshot database | {} |",
            constant("crates/snapshots/src/sql/schema.rs", "SCHEMA_VERSION")
        ),
        format!(
            "| export | {} |",
            constant("crates/store/src/bulk/transfer.rs", "EXPORT_VERSION")
        ),
    ];
    let changelog = read(&root().join("CHANGELOG.md"));
    for row in rows {
        assert!(changelog.contains(&row), "CHANGELOG.md has no row {row:?}");
    }
}
