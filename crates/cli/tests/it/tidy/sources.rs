//! What every source file has, and what none has.

use super::{files, read, shown};

fn sources() -> impl Iterator<Item = (String, String)> {
    let found = files(&["crates", "bench"], &["rs"]);
    found.into_iter().map(|path| (shown(&path), read(&path)))
}

#[test]
fn every_source_file_says_what_lives_in_it() {
    for (path, text) in sources() {
        assert!(
            text.starts_with("//!"),
            "{path} does not begin with a //! description"
        );
    }
}

#[test]
fn files_stay_readable() {
    for (path, text) in sources() {
        let code = text.split("#[cfg(test)]\nmod tests").next().unwrap_or(&text);
        let lines = code.lines().count();
        assert!(lines <= 600, "{path} has {lines} lines: it is usually two files");
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
            assert!(!text.contains(mark), "{path} contains {mark}");
        }
    }
}
