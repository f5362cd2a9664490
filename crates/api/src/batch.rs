//! Batches: bulk submissions, the unit of progress and completion.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Estimate, Time};

/// Where a batch stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BatchStatus {
    /// No job has been dispatched yet.
    Created,
    /// The scheduler has dispatched a job.
    Dispatched,
    /// A worker has leased a job.
    Running,
    /// Every job is finished; the service aggregates the results.
    Aggregating,
    /// The batch is decided, and fewer jobs failed than its failure threshold allows.
    Completed,
    /// The batch is decided, and too many jobs failed.
    Failed,
}

impl BatchStatus {
    pub fn is_finished(self) -> bool {
        self > BatchStatus::Aggregating
    }
}

/// Jobs of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BatchCounts {
    /// Jobs that the batch has accepted.
    pub total: u64,
    /// Jobs that completed.
    pub success: u64,
    /// Jobs that are dead.
    pub failed: u64,
}

/// A bulk submission of a group with its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// The group that submitted it.
    pub group: String,
    /// Unique within its group.
    pub id: String,
    pub status: BatchStatus,
    /// Whether the batch takes no more jobs.
    pub sealed: bool,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Whether an operator cancelled it.
    pub cancelled: bool,
    pub counts: BatchCounts,
    /// The first distinct errors of its jobs.
    pub errors: Vec<String>,
    /// What the aggregator made of the results, once the batch is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Value>,
    /// The configured callback that the service calls when the batch is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    pub created_at: Time,
    /// When the batch was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// When the batch should be finished.
    pub estimate: Estimate,
}

/// Options of a batch. Every field has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenBatch {
    /// The batch is FAILED if at least this share of its jobs failed. The default, 100, means only if all failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub failure_threshold_percent: Option<u32>,
    /// Keeps finished jobs until the batch is decided.
    #[serde(default)]
    pub keep_results: bool,
    /// The name of a callback in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// The group's base priority, if this call creates the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_priority: Option<i32>,
}

/// A batch that takes no more jobs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sealed {
    /// The batch's id.
    pub batch: String,
    /// Jobs that the batch has.
    pub total_jobs: u64,
    /// Whether every job was finished already.
    pub batch_complete: bool,
}

/// What a cancellation did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// Jobs that the service cancelled.
    pub cancelled: u64,
    /// Jobs that still run and stay with their workers.
    pub running: u64,
}
