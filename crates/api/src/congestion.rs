//! Congestion: how much the downstream holds a group up.

use serde::{Deserialize, Serialize};

use crate::{Page, Time};

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

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Congestion {
    pub group: String,
    /// Jobs that are delayed by congestion.
    pub non_ready_count: u64,
    /// Starts per window that are the group's share.
    pub rate_limit_speed: u64,
    /// What the next throttled job would wait.
    pub current_backoff_ms: u64,
    pub congestion_level: CongestionLevel,
    pub total_throttle_count: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_throttle_at: Option<Time>,
    pub last_backoff_ms: u64,
    pub avg_throttle_per_job: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CongestionSummary {
    pub active_group_count: u64,
    pub total_non_ready_count: u64,
    pub worst_congestion_level: CongestionLevel,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worst_congestion_group: Option<String>,
    pub groups: Page<Congestion>,
}

/// One entry of a group's history.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct CongestionPoint {
    pub timestamp: Time,
    pub non_ready_count: u64,
    pub backoff_ms: u64,
    pub rate_limit_speed: u64,
}
