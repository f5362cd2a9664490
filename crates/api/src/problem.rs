//! Errors as RFC 9457 says: `application/problem+json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was wrong, for people and for programs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `urn:tidegate:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem, in words.
    pub title: String,
    pub status: u16,
    /// Stays the same between versions: programs may rely on it.
    pub code: String,
    /// What exactly was wrong, and what would be right.
    pub detail: String,
    /// Also in the server's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// When the same request may work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_sec: Option<u64>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}
