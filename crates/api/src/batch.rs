//! Batches: bulk submissions, the unit of progress and completion.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{Estimate, Time};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BatchStatus {
    Created,
    Dispatched,
    Running,
    Aggregating,
    Completed,
    Failed,
}

impl BatchStatus {
    pub fn is_finished(self) -> bool {
        self > BatchStatus::Aggregating
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct BatchCounts {
    pub total: u64,
    pub success: u64,
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Batch {
    pub group: String,
    pub id: String,
    pub status: BatchStatus,
    /// Takes no more jobs.
    pub sealed: bool,
    pub paused: bool,
    pub cancelled: bool,
    pub counts: BatchCounts,
    /// The first errors of its jobs that differ.
    pub errors: Vec<String>,
    /// What was made of the results, once it is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub summary: Option<Value>,
    /// Who is told when it is decided: a callback of the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    pub created_at: Time,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    pub estimate: Estimate,
}

/// Opens a batch. Every field has a default.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OpenBatch {
    /// FAILED when at least this share of the jobs failed; 100, the default: only when all did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 100))]
    pub failure_threshold_percent: Option<u32>,
    /// Keep finished jobs until the batch is decided.
    #[serde(default)]
    pub keep_results: bool,
    /// The name of a callback in the configuration.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback: Option<String>,
    /// Weight of the group, if this creates it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_priority: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sealed {
    pub batch: String,
    pub total_jobs: u64,
    /// Every job was finished already.
    pub batch_complete: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Cancelled {
    pub cancelled: u64,
    /// Left to their workers.
    pub running: u64,
}
