//! Commands on jobs: which jobs, and what became of them.

use serde::{Deserialize, Serialize};

use super::JobName;
use crate::{JobPriority, JobState, Time};

/// Selects jobs: the named `jobs`, or all that match the filter (`group`, `batch`, `queue`, `type`, `state`, `createdAfter`,
/// `createdBefore`), or `all`. The service refuses an empty selection.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobSelection {
    /// Selects these jobs, at most 1,000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub jobs: Option<Vec<JobName>>,
    /// Selects only jobs of this group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Selects only jobs of this batch of `group`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// Selects only jobs of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Selects only jobs of this type.
    #[serde(default, rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    /// Selects only jobs in this state.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// Selects only jobs that the service accepted in this second or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_after: Option<Time>,
    /// Selects only jobs that the service accepted before this second.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created_before: Option<Time>,
    /// Selects every job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub all: bool,
    /// The `next` of the call before: continues with the same selection.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cursor: Option<String>,
    /// The reason for the command, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Reschedules the selected jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RescheduleJobs {
    /// Which jobs.
    pub select: JobSelection,
    /// The earliest start from now on.
    pub run_at: Time,
}

/// Gives the selected jobs another priority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReprioritiseJobs {
    /// Which jobs.
    pub select: JobSelection,
    /// The urgency from now on.
    pub priority: JobPriority,
}

/// Reschedules one job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RescheduleJob {
    /// The earliest start from now on.
    pub run_at: Time,
    /// The reason for the command, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Gives one job another priority.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReprioritiseJob {
    /// The urgency from now on.
    pub priority: JobPriority,
    /// The reason for the command, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What one call of a command on jobs did. While there is a `next`, repeat the call with it as `cursor`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ChangedJobs {
    /// Jobs that the service changed.
    pub handled: u64,
    /// Jobs that the service skipped.
    pub skipped: u64,
    /// The first skipped jobs, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<SkippedJob>,
    /// Where the next call continues; absent at the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A job that a command skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SkippedJob {
    /// The name of the job.
    pub item: JobName,
    /// The problem code.
    pub code: String,
    /// The state of the job, and what would be possible.
    pub detail: String,
}

/// Deletes finished jobs by age.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct DropFinishedJobs {
    /// Deletes jobs that finished longer ago than this, in seconds.
    pub older_than_sec: u64,
    /// The reason for the command, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// What one call deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct DroppedJobs {
    /// Finished jobs.
    pub jobs: u64,
    /// Finished batches beyond their configured age.
    pub batches: u64,
    /// Idle groups beyond their configured age.
    pub groups: u64,
    /// Whether there is more to delete: repeat the call.
    pub more: bool,
}
