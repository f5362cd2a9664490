//! Explanations of why a job waits.

use serde::{Deserialize, Serialize};

use crate::{DelayReason, Estimate, JobState, Time};

/// Why a job, or a group's next job, waits.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// The state of the job; absent if the group has no unfinished job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// The reasons in one sentence.
    pub text: String,
    /// The reasons, the nearest first; empty if the job runs or is finished.
    pub reasons: Vec<WaitReason>,
    /// When it starts. Absent if the job runs or is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts: Option<Estimate>,
}

/// One reason why a job waits.
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
    Behind {
        /// The number of those jobs.
        jobs: u64,
    },
    /// An operator paused the group.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonGroupPaused"))]
    GroupPaused,
    /// An operator paused the batch.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonBatchPaused"))]
    BatchPaused,
    /// The job is delayed.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonDelayed"))]
    Delayed {
        /// When the job continues.
        until: Time,
        /// Why the job is delayed.
        reason: DelayReason,
    },
    /// The group has used up its rate, or its share, of this window.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonGroupSpent"))]
    GroupSpent {
        /// Job starts per window that the group may have.
        limit: u64,
        /// When the group may start its next job.
        until: Time,
    },
    /// The group has used up its rate in the queue.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonGroupInQueueSpent"))]
    GroupInQueueSpent {
        /// Job starts per window that the group may have in the queue.
        limit: u64,
        /// When the group may start its next job in the queue.
        until: Time,
    },
    /// As many jobs of the group run as may.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonGroupBusy"))]
    GroupBusy {
        /// The most jobs of the group that run concurrently.
        limit: u64,
    },
    /// As many jobs of the group run in the queue as may.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonGroupInQueueBusy"))]
    GroupInQueueBusy {
        /// The most jobs of the group that run concurrently in the queue.
        limit: u64,
    },
    /// As many jobs of the queue run as may, over all workers.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonQueueBusy"))]
    QueueBusy {
        /// The most jobs of the queue that run concurrently.
        limit: u64,
    },
    /// The whole system has used up the rate of this window.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonWindowSpent"))]
    WindowSpent {
        /// Job starts per window of the whole system.
        limit: u64,
        /// When the next window begins that allows a start.
        until: Time,
    },
    /// The queue has used up the rate of this window.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonQueueSpent"))]
    QueueSpent {
        /// Job starts per window of the queue.
        limit: u64,
        /// When the next window begins that allows a start.
        until: Time,
    },
    /// The most jobs possible wait for workers already: the workers are too slow.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonReadyFull"))]
    ReadyFull {
        /// Jobs that wait for a worker.
        ready: u64,
    },
    /// Every worker of the queue is busy.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonWorkersBusy"))]
    WorkersBusy {
        /// The name of the queue.
        queue: String,
        /// The number of busy workers.
        busy: u32,
    },
    /// No worker has leased from the queue lately.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonNoWorkers"))]
    NoWorkers {
        /// The name of the queue.
        queue: String,
    },
    /// The push target of the queue is disabled.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonTargetDisabled"))]
    TargetDisabled {
        /// The name of the target.
        target: String,
        /// Why the target is disabled.
        reason: String,
    },
    /// Nothing blocks the job: the next free worker of its queue gets it.
    #[cfg_attr(feature = "openapi", schema(title = "WaitReasonTurn"))]
    Turn {
        /// The name of the queue.
        queue: String,
    },
}
