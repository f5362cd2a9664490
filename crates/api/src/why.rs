//! Why something waits.

use serde::{Deserialize, Serialize};

use crate::{DelayReason, JobState, Time};

/// What keeps a job, or a group's next job, from starting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Why {
    /// Absent if the group has no unfinished job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    /// In one sentence.
    pub text: String,
    /// The nearest first; empty if it runs or is finished.
    pub reasons: Vec<WaitReason>,
    /// An estimate. Absent if somebody has to step in first, or it runs or is finished.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub starts_at: Option<Time>,
}

/// One thing that it waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "what",
    rename_all = "SCREAMING_SNAKE_CASE",
    rename_all_fields = "camelCase"
)]
pub enum WaitReason {
    /// Jobs of its own group, queue and priority start first.
    Behind {
        jobs: u64,
    },
    GroupPaused,
    BatchPaused,
    Delayed {
        until: Time,
        reason: DelayReason,
    },
    /// Its group used up what it may start in this window.
    ShareUsedUp {
        ceiling: u64,
        until: Time,
    },
    /// Its group has as many running as it may have at once.
    GroupBusy {
        ceiling: u64,
    },
    /// The whole system used up what it may start in this window.
    WindowSpent {
        limit: u64,
        until: Time,
    },
    /// Its queue used up what its downstream bears in this window.
    QueueSpent {
        limit: u64,
        until: Time,
    },
    ReadyFull {
        ready: u64,
    },
    /// Every worker of its queue that is known here is busy.
    WorkersBusy {
        queue: String,
        busy: u32,
    },
    /// Nobody has asked for work of its queue lately.
    NoWorkers {
        queue: String,
    },
    /// Its target is switched off.
    TargetDisabled {
        target: String,
        reason: String,
    },
    /// Nothing holds it: the next worker of its queue that asks gets it in its turn.
    Turn {
        queue: String,
    },
}
