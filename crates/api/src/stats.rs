//! The whole system at one moment, and its last minutes.

use serde::{Deserialize, Serialize};

use crate::{StateCounts, Time};

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    pub at: Time,
    pub counts: StateCounts,
    /// Groups with unfinished jobs.
    pub active_groups: u64,
    pub groups: u64,
    /// Groups that stand in the order, per priority.
    pub high_priority_groups: u64,
    pub normal_priority_groups: u64,
    pub low_priority_groups: u64,
    /// Starts per second, over the last seconds.
    pub start_rate: f64,
    pub global_rps: f64,
    pub limit_per_window: u64,
    pub most_started_per_window: u64,
    /// Since the store was opened.
    pub started: u64,
    pub throttles: u64,
    pub saved_spins: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_wait: Option<OldestWait>,
    pub queues: Vec<Queue>,
    pub store: StoreState,
    pub version: String,
}

/// Whose next job has waited longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OldestWait {
    pub group: String,
    pub since: Time,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    pub id: String,
    /// Starts per second that are allowed.
    pub configured_rps: f64,
    /// Starts per second that the downstream bears now.
    pub rps: f64,
    /// In the current window.
    pub started: u64,
    pub ready: u64,
    pub groups_waiting: u64,
    /// When the downstream last said that it was too much.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cut_at: Option<Time>,
    pub workers: Workers,
}

/// Who works in a queue, as far as this process knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// Of this process, for push targets.
    pub push: u32,
    pub push_busy: u32,
    /// Pull calls that wait for work at this moment.
    pub pull_waiting: u32,
    /// When a worker last asked for work by pull.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_last_at: Option<Time>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreState {
    /// `embedded` or `redis`.
    pub kind: String,
    pub available: bool,
    /// Since when it has been away.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_since: Option<Time>,
}

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StreamEvent {
    /// Its name.
    pub event: String,
    /// JSON.
    pub data: String,
}

/// One moment of the picture.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    pub at: Time,
    /// Starts per second since the moment before.
    pub start_rate: f64,
    pub global_rps: f64,
    pub counts: StateCounts,
    pub active_groups: u64,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Samples {
    /// Oldest first.
    pub samples: Vec<Sample>,
}
