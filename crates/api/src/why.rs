//! Why something waits.

use serde::{Deserialize, Serialize};

use crate::{DelayReason, JobState, Time};

/// Why a job, or a group's next job, waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// Absent if the group has no unfinished job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// The reasons in one sentence.
    pub text: String,
    /// The nearest reason first; empty if the job runs or is finished.
    pub reasons: Vec<WaitReason>,
    /// The estimated start. Absent if somebody has to act first, or if the job runs or is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Time>,
}

/// One reason to wait.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "what",
    rename_all = "SCREAMING_SNAKE_CASE",
    rename_all_fields = "camelCase"
)]
pub enum WaitReason {
    /// Other jobs of its group, queue and priority start first.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonBehind"))]
    Behind { jobs: u64 },
    /// An operator paused its group.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonGroupPaused"))]
    GroupPaused,
    /// An operator paused its batch.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonBatchPaused"))]
    BatchPaused,
    /// It waits for a time.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonDelayed"))]
    Delayed { until: Time, reason: DelayReason },
    /// Its group has used up its share of this window.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonShareUsedUp"))]
    ShareUsedUp { ceiling: u64, until: Time },
    /// Its group has as many running jobs as it may have.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonGroupBusy"))]
    GroupBusy { ceiling: u64 },
    /// The whole system has used up this window.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonWindowSpent"))]
    WindowSpent { limit: u64, until: Time },
    /// Its queue has used up this window.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonQueueSpent"))]
    QueueSpent { limit: u64, until: Time },
    /// As many jobs as possible wait for workers already: the workers are too slow.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonReadyFull"))]
    ReadyFull { ready: u64 },
    /// Every worker of its queue is busy.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonWorkersBusy"))]
    WorkersBusy { queue: String, busy: u32 },
    /// No worker has asked for jobs of its queue lately.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonNoWorkers"))]
    NoWorkers { queue: String },
    /// Its target is disabled.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonTargetDisabled"))]
    TargetDisabled { target: String, reason: String },
    /// Nothing holds it: the next free worker of its queue gets it.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonTurn"))]
    Turn { queue: String },
}
