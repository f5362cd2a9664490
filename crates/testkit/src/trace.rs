//! The history of a run, as a digest and as its last lines.

use std::collections::VecDeque;
use std::fmt::{Debug, Write};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Limit: lines kept for the message of a failure.
const LAST: usize = 30;

/// The history of a run; a failing run prints its end.
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
    /// A request and its answer, at this time.
    pub fn add(&mut self, at: u64, request: &str, answer: &impl Debug) {
        self.note(at, &format!("{request}\n    -> {answer:?}"));
    }

    /// Something that happened.
    pub fn note(&mut self, at: u64, what: &str) {
        let mut line = String::new();
        write!(line, "{} {what}", at).expect("writing to a string does not fail");
        line.hash(&mut self.hasher);
        self.len += 1;
        self.last.push_back(line);
        if self.last.len() > LAST {
            self.last.pop_front();
        }
    }

    /// Equal for equal histories.
    pub fn digest(&self) -> u64 {
        self.hasher.finish()
    }

    /// How many lines there were.
    pub fn lines(&self) -> u64 {
        self.len
    }
}

/// Prints the last steps of a failing run.
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
