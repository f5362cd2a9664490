//! The two priorities of a call to a target: a reader waits for it, or nobody does.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How urgent a refresh or a call is. `Low < High`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Priority {
    /// Nobody waits: prefetch, retries.
    Low,
    /// A reader waits.
    High,
}

impl Priority {
    pub const ALL: [Priority; 2] = [Priority::High, Priority::Low];

    /// The spelling in events and scripts.
    pub fn as_str(self) -> &'static str {
        match self {
            Priority::High => "HIGH",
            Priority::Low => "LOW",
        }
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
