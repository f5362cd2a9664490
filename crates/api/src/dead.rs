//! The result of a replay or purge, the same for dead jobs and dead letters.

use serde::{Deserialize, Serialize};

/// The result of a replay or purge of dead jobs or dead letters.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadOutcome<T> {
    /// Items that the service replayed or purged.
    pub handled: u64,
    /// Items that the service skipped.
    pub skipped: u64,
    /// The first skipped items, at most 100.
    #[serde(default = "Vec::new", skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<DeadSkipped<T>>,
}

impl<T> Default for DeadOutcome<T> {
    fn default() -> Self {
        Self {
            handled: 0,
            skipped: 0,
            errors: Vec::new(),
        }
    }
}

/// A dead job or dead letter that the service skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadSkipped<T> {
    /// Its name.
    pub item: T,
    /// The problem code.
    pub code: String,
    /// Why the service skipped it.
    pub detail: String,
}
