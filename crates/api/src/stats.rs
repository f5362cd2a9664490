//! The whole system at one moment, and its last minutes.

use serde::{Deserialize, Serialize};

use crate::{StateCounts, Time};

/// The whole system at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    pub at: Time,
    /// Jobs by state.
    pub counts: StateCounts,
    /// Groups with unfinished jobs.
    pub active_groups: u64,
    /// Groups that the service knows.
    pub groups: u64,
    /// Groups that wait with a job of high priority.
    pub high_priority_groups: u64,
    /// Groups that wait with a job of normal priority.
    pub normal_priority_groups: u64,
    /// Groups that wait with a job of low priority.
    pub low_priority_groups: u64,
    /// Starts per second, over the last seconds.
    pub start_rate: f64,
    /// Starts per second that are allowed.
    pub global_rps: f64,
    /// Starts in one window that are allowed.
    pub limit_per_window: u64,
    /// The most starts in one window so far.
    pub most_started_per_window: u64,
    /// Starts since the store was opened.
    pub started: u64,
    /// Throttled runs since the store was opened.
    pub throttles: u64,
    /// Waits that the estimates of congestion saved since the store was opened.
    pub saved_spins: u64,
    /// The group whose next job has waited longest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_wait: Option<OldestWait>,
    pub queues: Vec<Queue>,
    pub store: StoreState,
    /// The service's version.
    pub version: String,
}

/// The group whose next job has waited longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OldestWait {
    pub group: String,
    /// When the service accepted the job.
    pub since: Time,
}

/// A queue with its workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    pub id: String,
    /// Starts per second that the configuration allows.
    pub configured_rps: f64,
    /// Starts per second that hold now: the service lowers the rate when the downstream throttles.
    pub rps: f64,
    /// Starts in the current window.
    pub started: u64,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// Groups that wait in this queue.
    pub groups_waiting: u64,
    /// When the downstream last throttled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cut_at: Option<Time>,
    pub workers: Workers,
}

/// The workers of a queue, as far as this process knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// Workers of this process that call the push target.
    pub push: u32,
    /// How many of them are busy.
    pub push_busy: u32,
    /// Lease calls that wait for work now.
    pub pull_waiting: u32,
    /// When a worker last asked for a lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_last_at: Option<Time>,
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreState {
    /// `embedded` or `redis`.
    pub kind: String,
    /// Whether the store answers.
    pub available: bool,
    /// Since when the store is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub away_since: Option<Time>,
}

/// The whole system at one moment, in short.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    pub at: Time,
    /// Starts per second since the sample before.
    pub start_rate: f64,
    /// Starts per second that were allowed.
    pub global_rps: f64,
    pub counts: StateCounts,
    pub active_groups: u64,
}

/// The last minutes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Samples {
    /// Oldest first.
    pub samples: Vec<Sample>,
}
