//! Groups: customers, the unit of fairness.

use serde::{Deserialize, Serialize};

use crate::{StateCounts, Time};

/// A customer, the unit of fairness.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub id: String,
    /// The share of the rate beside other groups: 2 gets twice as much as 1.
    pub weight: f64,
    /// The weight as a number: −1,000,000 doubles the weight, +1,000,000 halves it.
    pub base_priority: i32,
    /// The limits of the group.
    pub ceilings: Ceilings,
    /// Whether an operator paused it.
    pub paused: bool,
    /// Whether the scheduler skips the group although it has jobs: it is paused, or at one of its ceilings.
    pub held: bool,
    /// Whether it has unfinished jobs.
    pub active: bool,
    /// Its jobs by state.
    pub counts: StateCounts,
    /// Its batches, as long as the service keeps them.
    pub batches: Vec<String>,
    /// When the service accepted the job that starts next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
    /// When its unfinished jobs should be finished.
    pub estimate: Estimate,
}

/// When all unfinished jobs should be finished at the group's share of the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    /// Seconds from now.
    pub estimated_seconds: u64,
    /// The same as a time.
    pub estimated_at: Time,
}

/// What a group may use at most. An absent limit is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ceilings {
    /// Starts in one rate window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub starts_per_window: Option<u32>,
    /// Jobs that run at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub leased_at_once: Option<u32>,
}

/// Changes of a group. Absent fields keep their value.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchGroup {
    /// From 1/64 to 64. Give either this or `basePriority`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    /// The weight as a number: −1,000,000 doubles the weight, +1,000,000 halves it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_priority: Option<i32>,
    /// Replaces both ceilings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Ceilings>,
    /// The reason, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Why somebody acts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reason {
    /// The reason, for the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The current rate window as a group sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GroupLimits {
    /// Jobs that the whole system has started.
    pub global_count: u64,
    /// Jobs that the whole system may start.
    pub global_limit: u64,
    /// Jobs that the group has started.
    pub group_count: u64,
    /// Jobs that the group may start.
    pub per_group_limit: u64,
    /// Groups that share the rate.
    pub active_group_count: u64,
    /// When the window ends.
    pub window_ends: Time,
}
