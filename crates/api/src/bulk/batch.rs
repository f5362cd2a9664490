//! Batches: bulk submissions, the unit of progress and completion.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Estimate, Time};

/// The stage of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BatchStatus {
    /// The scheduler has not dispatched a job yet.
    Created,
    /// The scheduler has dispatched a job.
    Dispatched,
    /// A worker has leased a job.
    Running,
    /// An operator paused the batch or its group: no job starts.
    Paused,
    /// Every job is finished; the service aggregates the results.
    Aggregating,
    /// The batch is decided, and the share of failed jobs is below its failure threshold.
    Completed,
    /// The batch is decided, and the share of failed jobs reached its failure threshold.
    Failed,
    /// An operator cancelled the batch before it was decided.
    Cancelled,
}

impl BatchStatus {
    /// Returns true for `COMPLETED`, `FAILED` and `CANCELLED`: the batch is decided.
    pub fn is_finished(self) -> bool {
        self > BatchStatus::Aggregating
    }
}

/// The jobs of a batch by result.
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

/// One bulk submission of a group with its progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    /// The group that submitted the batch.
    pub group: String,
    /// The id of the batch, unique within its group.
    pub id: String,
    /// The stage of the batch.
    pub status: BatchStatus,
    /// Whether the batch takes no more jobs.
    pub sealed: bool,
    /// Whether an operator paused the batch itself.
    pub paused: bool,
    /// Whether an operator paused its whole group.
    #[serde(default)]
    pub group_paused: bool,
    /// Whether an operator cancelled the batch.
    pub cancelled: bool,
    /// The jobs of the batch by result.
    pub counts: BatchCounts,
    /// The first distinct errors of its jobs, at most 10.
    pub errors: Vec<String>,
    /// The summary that the aggregator made of the results, once the batch is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Value>,
    /// The configured callback that the service calls when the batch is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// When the service opened the batch.
    pub created_at: Time,
    /// When the service decided the batch.
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
    /// The batch is FAILED if at least this share of its jobs failed, in percent. The default, 100, means only
    /// if all failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub failure_threshold_percent: Option<u32>,
    /// Keeps finished jobs until the batch is decided; false if absent.
    #[serde(default)]
    pub keep_results: bool,
    /// The name of a callback in the configuration; no callback if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// The base priority of the group, if this call creates the group; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_priority: Option<i32>,
}

/// The result of sealing a batch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sealed {
    /// The id of the batch.
    pub batch: String,
    /// Jobs that the batch has accepted.
    pub total_jobs: u64,
    /// Whether every job had finished already.
    pub batch_complete: bool,
}

/// The result of a cancellation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    /// Jobs that the service cancelled.
    pub cancelled: u64,
    /// Jobs that still run and stay with their workers.
    pub running: u64,
}
