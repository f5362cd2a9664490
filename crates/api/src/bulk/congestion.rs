//! Congestion: how much throttling by the downstream delays a group.

use serde::{Deserialize, Serialize};

use crate::{Page, Time};

/// The severity of a group's congestion: its current backoff in multiples of the configured base backoff.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum CongestionLevel {
    /// The backoff does not exceed the base.
    #[default]
    None,
    /// The backoff is above the base and below 3 times the base.
    Low,
    /// The backoff is at least 3 times and below 10 times the base.
    Moderate,
    /// The backoff is at least 10 times and below 30 times the base.
    High,
    /// The backoff is at least 30 times the base.
    Critical,
}

/// How much throttling by the downstream delays a group.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Congestion {
    /// The id of the group.
    pub group: String,
    /// Jobs that congestion delays.
    pub non_ready_count: u64,
    /// The group's share of the rate, in starts per window.
    pub rate_limit_speed: u64,
    /// The time for which the next throttled job would wait, in milliseconds.
    pub current_backoff_ms: u64,
    /// The severity of the group's congestion.
    pub congestion_level: CongestionLevel,
    /// Runs that the downstream has throttled.
    pub total_throttle_count: u64,
    /// When the downstream last throttled a job of the group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_throttle_at: Option<Time>,
    /// The wait of the job that the downstream throttled last, in milliseconds.
    pub last_backoff_ms: u64,
    /// The average number of throttled runs per job.
    pub avg_throttle_per_job: f64,
}

/// The congestion of the whole system.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CongestionSummary {
    /// Groups with unfinished jobs.
    pub active_group_count: u64,
    /// Jobs that congestion delays, in all groups.
    pub total_non_ready_count: u64,
    /// The most severe level of any group.
    pub worst_congestion_level: CongestionLevel,
    /// The group with the most severe level; absent if no group is congested.
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
    /// When the service took the entry.
    pub timestamp: Time,
    /// Jobs that congestion delayed.
    pub non_ready_count: u64,
    /// The wait of a throttled job, in milliseconds.
    pub backoff_ms: u64,
    /// The group's share of the rate, in starts per window.
    pub rate_limit_speed: u64,
}
