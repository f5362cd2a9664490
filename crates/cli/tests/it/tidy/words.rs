//! Words that the vocabulary replaced: whoever looks for the field's word must find it.

use super::{files, read, root, shown};

/// What a word was replaced by.
const RETIRED: [(&str, &str); 22] = [
    ("asker", "publisher"),
    ("away", "unavailable"),
    ("bell", "notifier, signal"),
    ("bells", "notifier, signals"),
    ("born", "incarnation"),
    ("carrier", "publisher"),
    ("deed", "command"),
    ("deeds", "commands"),
    ("doubts", "in-doubt"),
    ("errand", "attempt"),
    ("errands", "attempts"),
    ("keeper", "runner"),
    ("lane", "queue"),
    ("lanes", "queues"),
    ("mends", "fixes"),
    ("scribe", "committer"),
    ("seam", "trait, store"),
    ("sheets", "commit batches"),
    ("told", "reported, returned, sent"),
    ("verdict", "outcome"),
    ("verdicts", "outcomes"),
    ("wakeup", "signal"),
];

#[test]
fn retired_words_stay_retired() {
    let mut found = files(
        &[
            "crates", "web", "docs", "deploy", "examples", "tests", "bench", "fuzz", ".github",
        ],
        &[
            "rs", "lua", "js", "mjs", "md", "toml", "py", "ts", "yml", "yaml", "html", "css", "json", "sh",
            "go",
        ],
    );
    found.extend(
        [
            "README.md",
            "ARCHITECTURE.md",
            "CHANGELOG.md",
            "CONTRIBUTING.md",
            "SECURITY.md",
            "tidegate.toml",
        ]
        .map(|name| root().join(name)),
    );
    // This list is the one place for them.
    found.retain(|path| !path.ends_with("tidy/words.rs"));
    let mut wrong = Vec::new();
    for path in found {
        for (number, line) in read(&path).lines().enumerate() {
            let words = line
                .split(|sign: char| !sign.is_ascii_alphabetic())
                .flat_map(camel_words);
            for word in words {
                if let Some((word, instead)) = RETIRED.iter().find(|(retired, _)| *retired == word) {
                    wrong.push(format!(
                        "{}:{}: {word:?}: say {instead}",
                        shown(&path),
                        number + 1
                    ));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "retired words:\n{}", wrong.join("\n"));
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
