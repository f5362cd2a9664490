//! Dead jobs: which are meant, and what was done with them.

use serde::{Deserialize, Serialize};

use crate::DeathReason;

/// Which dead jobs to take: the named `jobs`, or all that match `group`, `type` and `reason`, or `all`. The service
/// refuses an empty selection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadSelection {
    /// These jobs, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Option<Vec<JobName>>,
    /// Only jobs of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Only jobs of this type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Only jobs that died for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeathReason>,
    /// Every dead job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The reason, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Names one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobName {
    /// The job's group.
    pub group: String,
    /// The job's id, unique within its group.
    pub id: String,
}

/// What a replay or purge of dead jobs did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DeadDone {
    /// Jobs that the service replayed or purged.
    pub jobs: u64,
    /// Jobs that the service left alone.
    pub skipped: u64,
    /// The first skipped jobs, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<Skipped>,
}

/// A dead job that the service left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Skipped {
    pub group: String,
    pub id: String,
    /// The problem code.
    pub code: String,
    /// Why the service left it alone.
    pub detail: String,
}
