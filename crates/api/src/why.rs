//! Why something waits.

use serde::{Deserialize, Serialize};

use crate::{DelayReason, JobPhase, Time};

/// What keeps a job, or a group's next job, from starting.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Why {
    /// Absent if the group has no unfinished job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub phase: Option<JobPhase>,
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
#[serde(tag = "what", rename_all = "snake_case")]
pub enum WaitReason {
    /// Jobs of its own group, lane and level start first.
    Behind {
        jobs: u64,
    },
    GroupPaused,
    ActionPaused,
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
    /// Its lane used up what its downstream bears in this window.
    LaneSpent {
        limit: u64,
        until: Time,
    },
    ReadyFull {
        ready: u64,
    },
    /// Every worker of its lane that is known here is busy.
    WorkersBusy {
        lane: String,
        busy: u32,
    },
    /// Nobody has asked for work of its lane lately.
    NoWorkers {
        lane: String,
    },
    /// Its target is switched off.
    TargetDisabled {
        target: String,
        reason: String,
    },
    /// Nothing holds it: the next worker of its lane that asks gets it in its turn.
    Turn {
        lane: String,
    },
}
