//! Groups: customers, the unit of fairness.

use serde::{Deserialize, Serialize};

use crate::{StateCounts, Time};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Group {
    pub id: String,
    /// How much of the rate it gets beside others: 2 is twice as much as 1.
    pub weight: f64,
    /// The same as a number: −1,000,000 doubles the weight, +1,000,000 halves it.
    pub base_priority: i32,
    pub ceilings: Ceilings,
    pub paused: bool,
    /// Out of the order although it has jobs: paused, or at a ceiling of its own.
    pub held: bool,
    /// Has unfinished jobs.
    pub active: bool,
    pub counts: StateCounts,
    pub batches: Vec<String>,
    /// When the job that would start next was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_since: Option<Time>,
    pub estimate: Estimate,
}

/// When everything that is unfinished would be done at the group's share of the rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Estimate {
    pub estimated_seconds: u64,
    pub estimated_at: Time,
}

/// What a group may use at most; absent is unlimited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Ceilings {
    /// Starts in one window.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub starts_per_window: Option<u32>,
    /// Running at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1))]
    pub leased_at_once: Option<u32>,
}

/// Changes a group; what is absent stays.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PatchGroup {
    /// From 1/64 to 64. Or give `base_priority`, not both.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub weight: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_priority: Option<i32>,
    /// Replaces both ceilings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ceilings: Option<Ceilings>,
    /// Kept in the audit log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// Why somebody does something; kept in the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Reason {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// The current window as a group sees it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct GroupLimits {
    pub global_count: u64,
    pub global_limit: u64,
    pub group_count: u64,
    pub per_group_limit: u64,
    pub active_group_count: u64,
    pub window_ends: Time,
}
