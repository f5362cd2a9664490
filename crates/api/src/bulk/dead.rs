//! Selections of dead jobs.

use serde::{Deserialize, Serialize};

use crate::DeathReason;

/// Selects dead jobs: the named `jobs`, or all that match `group`, `type` and `reason`, or `all`. The service
/// refuses an empty selection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DeadSelection {
    /// Selects these jobs, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Option<Vec<JobName>>,
    /// Selects only jobs of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Selects only jobs of this type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Selects only jobs that died for this reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<DeathReason>,
    /// Selects every dead job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The reason for the command, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The name of one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobName {
    /// The group of the job.
    pub group: String,
    /// The id of the job, unique within its group.
    pub id: String,
}
