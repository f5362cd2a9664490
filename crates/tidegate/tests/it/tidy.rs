//! What must be absent, and what every file must have.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace is there")
}

fn files(below: &Path, ending: &str, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(below).expect("a readable folder").flatten() {
        let path = entry.path();
        let name = entry.file_name();
        if path.is_dir() && name != "target" && !name.to_string_lossy().starts_with('.') {
            files(&path, ending, found);
        } else if path.extension().is_some_and(|extension| extension == ending) {
            found.push(path);
        }
    }
}

fn sources() -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    for folder in ["crates", "bench"] {
        files(&root().join(folder), "rs", &mut found);
    }
    found
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).expect("readable")))
        .collect()
}

/// The dependencies that a manifest names, tests' own left out.
fn dependencies(of: &str) -> Vec<String> {
    let text = fs::read_to_string(root().join("crates").join(of).join("Cargo.toml")).expect("a manifest");
    let manifest: toml::Table = text.parse().expect("valid TOML");
    let table = manifest.get("dependencies").and_then(|table| table.as_table());
    table
        .map(|table| table.keys().cloned().collect())
        .unwrap_or_default()
}

#[test]
fn core_knows_no_runtime_no_disk_and_no_wire() {
    let allowed = ["bytes", "hashbrown", "serde", "siphasher", "slab", "thiserror"];
    for dependency in dependencies("core") {
        assert!(
            allowed.contains(&dependency.as_str()),
            "core must not depend on {dependency}"
        );
    }
}

#[test]
fn dependencies_point_one_way() {
    let order = ["core", "store", "engine", "tidegate"];
    for (index, name) in order.iter().enumerate() {
        for later in &order[index + 1..] {
            let later = if *later == "tidegate" {
                "tidegate".to_owned()
            } else {
                format!("tidegate-{later}")
            };
            assert!(
                !dependencies(name).contains(&later),
                "{name} must not depend on {later}"
            );
        }
    }
    assert!(
        !dependencies("engine").contains(&"fjall".to_owned()),
        "the engine knows no database"
    );
}

#[test]
fn every_source_file_says_what_lives_in_it() {
    for (path, text) in sources() {
        assert!(
            text.starts_with("//!"),
            "{} does not begin with a //! description",
            path.display()
        );
    }
}

#[test]
fn files_stay_readable() {
    for (path, text) in sources() {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(&text);
        let lines = code.lines().count();
        assert!(
            lines <= 600,
            "{} has {lines} lines: it is usually two files",
            path.display()
        );
    }
}

#[test]
fn nothing_is_left_for_later() {
    // Spelled apart, so that this file does not find itself.
    let marks = [
        ["TO", "DO"].concat(),
        ["FIX", "ME"].concat(),
        ["#[ig", "nore"].concat(),
    ];
    for (path, text) in sources() {
        for mark in &marks {
            assert!(!text.contains(mark), "{} contains {mark}", path.display());
        }
    }
}

#[test]
fn documents_name_only_paths_that_exist() {
    for document in ["README.md", "ARCHITECTURE.md", "CHANGELOG.md"] {
        let text = fs::read_to_string(root().join(document)).expect("the document is there");
        let quoted = text.split('`').skip(1).step_by(2);
        for path in quoted.filter(|quoted| {
            ["crates/", "bench/", "scripts/"]
                .iter()
                .any(|p| quoted.starts_with(p))
        }) {
            assert!(
                root().join(path).exists(),
                "{document} names {path}, which does not exist"
            );
        }
    }
}

/// Words that the vocabulary replaced: a committer is no scribe, a batch no action, a queue no lane. Whoever looks for the field's
/// word must find it.
#[test]
fn retired_words_stay_retired() {
    const RETIRED: [&str; 19] = [
        "asker", "bell", "bells", "carrier", "deed", "deeds", "doubts", "errand", "errands", "keeper",
        "lane", "lanes", "mends", "scribe", "sheets", "verdict", "verdicts", "wakeup", "wakeups",
    ];
    let mut found = Vec::new();
    for folder in ["crates", "web", "docs", "deploy", "examples"] {
        for ending in ["rs", "lua", "js", "md", "toml", "py", "ts", "yml"] {
            files(&root().join(folder), ending, &mut found);
        }
    }
    found.extend(["README.md", "ARCHITECTURE.md", "tidegate.toml"].map(|name| root().join(name)));
    // This list is the one place for them, and what npm brings is not ours.
    found.retain(|path| {
        !path.ends_with("it/tidy.rs") && !path.components().any(|part| part.as_os_str() == "node_modules")
    });
    for path in found {
        let text = fs::read_to_string(&path).expect("readable");
        for (number, line) in text.lines().enumerate() {
            let words = line
                .split(|sign: char| !sign.is_ascii_alphabetic())
                .flat_map(camel_words);
            for word in words {
                assert!(
                    !RETIRED.contains(&word.as_str()),
                    "{}:{}: {word:?} is a retired word",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

/// `LaneRate` is `lane` and `rate`.
fn camel_words(text: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    let mut before = 'A';
    for sign in text.chars() {
        if words.is_empty() || (sign.is_ascii_uppercase() && before.is_ascii_lowercase()) {
            words.push(String::new());
        }
        if let Some(word) = words.last_mut() {
            word.push(sign.to_ascii_lowercase());
        }
        before = sign;
    }
    words
}
