//! Congestion: how much the downstream holds a group up.

use serde::{Deserialize, Serialize};

use crate::{Page, Time};

/// How congested a group is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CongestionLevel {
    #[default]
    None,
    Low,
    Moderate,
    High,
    Critical,
}

/// How much throttling by the downstream delays a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Congestion {
    pub group: String,
    /// Jobs that congestion delays.
    pub non_ready_count: u64,
    /// Starts per window that are the group's share.
    pub rate_limit_speed: u64,
    /// How long the next throttled job would wait.
    pub current_backoff_ms: u64,
    pub congestion_level: CongestionLevel,
    /// Throttled runs so far.
    pub total_throttle_count: u64,
    /// When the downstream last throttled a job of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_throttle_at: Option<Time>,
    /// How long the last throttled job waits.
    pub last_backoff_ms: u64,
    /// Throttled runs per job, on average.
    pub avg_throttle_per_job: f64,
}

/// The congestion of the whole system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CongestionSummary {
    /// Groups with unfinished jobs.
    pub active_group_count: u64,
    /// Jobs that congestion delays.
    pub total_non_ready_count: u64,
    pub worst_congestion_level: CongestionLevel,
    /// The group with the worst level, if any is congested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_congestion_group: Option<String>,
    /// One page of groups.
    pub groups: Page<Congestion>,
}

/// One entry of a group's congestion history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CongestionPoint {
    pub timestamp: Time,
    /// Jobs that congestion delayed.
    pub non_ready_count: u64,
    /// How long a throttled job had to wait.
    pub backoff_ms: u64,
    /// Starts per window that were the group's share.
    pub rate_limit_speed: u64,
}
