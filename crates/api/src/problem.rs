//! Errors as RFC 9457 says: `application/problem+json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What went wrong (RFC 9457).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[cfg_attr(feature = "openapi", schema(examples(json!({
    "type": "urn:tidegate:problem:unknown_batch",
    "title": "Unknown batch",
    "status": 404,
    "code": "unknown_batch",
    "detail": "group \"acme\" has no batch \"newsletter-8\"",
    "requestId": "19c8b7-2a"
}))))]
#[serde(rename_all = "camelCase")]
pub struct Problem {
    /// `urn:tidegate:problem:` and the code.
    #[serde(rename = "type")]
    pub kind: String,
    /// The kind of problem, for people.
    pub title: String,
    /// The HTTP status.
    pub status: u16,
    /// The kind of problem, for programs. It stays the same between versions.
    pub code: String,
    /// What exactly is wrong, and what would be right.
    pub detail: String,
    /// The request's id in the service's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// After how many seconds the same request may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_sec: Option<u64>,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}
