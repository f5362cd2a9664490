//! Errors in the format of RFC 9457: `application/problem+json`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// An error response (RFC 9457).
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
    /// The URN of the kind of problem: `urn:tidegate:problem:` and the code.
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
    /// The id of the request in the service's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub request_id: Option<String>,
    /// The number of seconds after which the same request may succeed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_sec: Option<u64>,
}

/// Writes the detail for people, and the code for searching.
///
/// ```
/// use tidegate_api::Problem;
///
/// let problem = Problem {
///     kind: "urn:tidegate:problem:unknown_group".into(),
///     title: "Unknown group".into(),
///     status: 404,
///     code: "unknown_group".into(),
///     detail: "group \"acme\" is unknown".into(),
///     request_id: None,
///     retry_after_sec: None,
/// };
/// assert_eq!(problem.to_string(), "group \"acme\" is unknown (unknown_group)");
/// ```
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.detail, self.code)
    }
}

impl std::error::Error for Problem {}
