//! The history of a run, as a digest and as its last lines.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

use tidegate_core::time::Timestamp;

/// Limit: lines kept for the message of a failure.
const LAST: usize = 30;

#[derive(Default)]
pub struct Trace {
    hasher: DefaultHasher,
    last: VecDeque<String>,
    len: u64,
}

impl Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(&self.last).finish()
    }
}

impl Trace {
    pub(super) fn add(&mut self, at: Timestamp, asked: &str, answer: &impl Debug) {
        self.note(at, &format!("{asked}\n    -> {answer:?}"));
    }

    pub(super) fn note(&mut self, at: Timestamp, what: &str) {
        let mut line = String::new();
        write!(line, "{} {what}", at.0).expect("writing to a string does not fail");
        line.hash(&mut self.hasher);
        self.len += 1;
        self.last.push_back(line);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }

    pub(super) fn digest(&self) -> u64 {
        self.hasher.finish()
    }

    pub(super) fn len(&self) -> u64 {
        self.len
    }
}

/// On the way out of a failing run: what led to it.
impl Drop for Trace {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the last steps:");
            for line in &self.last {
                eprintln!("  {line}");
            }
        }
    }
}
