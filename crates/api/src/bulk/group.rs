//! Groups: customers, the unit of fairness.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::{Limit, Rate, StateCounts, Time};

/// A customer, the unit of fairness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Group {
    /// The id of the group.
    pub id: String,
    /// The group's share of the rate relative to other groups: weight 2 gets twice as much as weight 1.
    pub weight: f64,
    /// The weight on a logarithmic scale: −1,000,000 doubles the weight, +1,000,000 halves it.
    pub base_priority: i32,
    /// The group's own limits.
    pub limits: OwnLimits,
    /// Whether an operator paused the group.
    pub paused: bool,
    /// Whether the scheduler skips the group although it has jobs, because it is paused or at a limit of its own.
    pub held: bool,
    /// Whether the group has unfinished jobs.
    pub active: bool,
    /// Its jobs by state.
    pub counts: StateCounts,
    /// The ids of its batches that the service keeps.
    pub batches: Vec<String>,
    /// When the service accepted the job that starts next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
    /// When its unfinished jobs are finished.
    pub estimate: Estimate,
}

/// When something happens, as a range from now on: the width shows how certain it is. Without a range, the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// The optimistic estimate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earliest_seconds: Option<u64>,
    /// The pessimistic estimate, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub latest_seconds: Option<u64>,
    /// Why there is no range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unknown: Option<NoEstimate>,
}

/// Why there is no estimate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum NoEstimate {
    /// The group or the batch is paused.
    Paused,
    /// No worker has asked for its jobs lately.
    NoWorker,
    /// Too few jobs have started to measure how fast they do.
    NotMeasured,
}

impl Estimate {
    /// The range, as seconds from now on.
    pub fn range(&self) -> Option<(u64, u64)> {
        self.earliest_seconds.zip(self.latest_seconds)
    }
}

/// The limits of one group. What is absent is not limited.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct OwnLimits {
    /// Job starts over all queues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate: Option<Rate>,
    /// Jobs that run concurrently, over all queues and processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub max_running: Option<u32>,
    /// Limits in single queues. What they leave open is as the queue says for every group.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<String, Limit>,
}

/// Changes to a group. Absent fields keep their value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchGroup {
    /// The weight, from 1/64 to 64. Set either this or `basePriority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The weight on a logarithmic scale: −1,000,000 doubles the weight, +1,000,000 halves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_priority: Option<i32>,
    /// Replaces all limits of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limits: Option<OwnLimits>,
    /// The reason for the change, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The reason for a command.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reason {
    /// The reason, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The current rate window from a group's point of view.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GroupLimits {
    /// Jobs that the whole system has started in the window.
    pub global_count: u64,
    /// Jobs that the whole system may start in the window.
    pub global_limit: u64,
    /// Jobs that the group has started in the window.
    pub group_count: u64,
    /// Jobs that the group may start in the window.
    pub per_group_limit: u64,
    /// Groups that share the rate.
    pub active_group_count: u64,
    /// When the window ends.
    pub window_ends: Time,
}
