//! Statistics of the whole system: one moment, and the last ten minutes.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::{StateCounts, Time};

/// The whole system at one moment.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Stats {
    /// When the service read the store.
    pub at: Time,
    /// Jobs by state.
    pub counts: StateCounts,
    /// Groups with unfinished jobs.
    pub active_groups: u64,
    /// Groups that the store keeps, with or without unfinished jobs.
    pub groups: u64,
    /// Groups with a waiting job of high priority.
    pub high_priority_groups: u64,
    /// Groups with a waiting job of normal priority.
    pub normal_priority_groups: u64,
    /// Groups with a waiting job of low priority.
    pub low_priority_groups: u64,
    /// Job starts per second, averaged over the last five seconds.
    pub start_rate: f64,
    /// The limit of job starts per second.
    pub global_rps: f64,
    /// The limit of job starts per rate window.
    pub limit_per_window: u64,
    /// The most job starts in any rate window since the store was opened.
    pub most_started_per_window: u64,
    /// Job starts since the store was opened.
    pub started: u64,
    /// Runs that the downstream throttled since the store was opened.
    pub throttles: u64,
    /// Fruitless retries that congestion estimates avoided since the store was opened.
    pub saved_spins: u64,
    /// The group whose next job has waited longest; absent if no job waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_wait: Option<OldestWait>,
    /// Every queue with its rate and its workers.
    pub queues: Vec<Queue>,
    /// Whether the store is available.
    pub store: StoreState,
    /// The version of the service.
    pub version: String,
}

/// The group whose next job has waited longest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct OldestWait {
    /// The id of the group.
    pub group: String,
    /// When the service accepted the job.
    pub since: Time,
}

/// A queue with its rate and its workers.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Queue {
    /// The name of the queue.
    pub id: String,
    /// Job starts per second that the configuration allows.
    pub configured_rps: f64,
    /// Job starts per second in effect: the service lowers the rate while the downstream throttles.
    pub rps: f64,
    /// Job starts in the current rate window.
    pub started: u64,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// The backlog: jobs that wait for their turn or for a worker.
    pub waiting: u64,
    /// Jobs that wait for a point in time.
    pub delayed: u64,
    /// When the service accepted the oldest of the jobs that go next: the first of each group, and if more than 300 groups wait
    /// at a priority, of those that go next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub oldest_waiting_since: Option<Time>,
    /// Jobs that run.
    pub running: u64,
    /// How many jobs may run concurrently, over all processes; absent without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_running: Option<u32>,
    /// Groups with a waiting job in this queue.
    pub groups_waiting: u64,
    /// When the downstream last throttled a job of this queue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_cut_at: Option<Time>,
    /// The downstream asked for no calls until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_until: Option<Time>,
    /// The workers of this queue.
    pub workers: Workers,
}

/// The workers of a queue, as far as this process knows.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Workers {
    /// The most concurrent calls of this process to the push target; 0 if the queue has none.
    pub push: u32,
    /// Calls of this process to the push target that are in progress.
    pub push_busy: u32,
    /// Lease calls that wait for a job.
    pub pull_waiting: u32,
    /// When a worker last called to lease jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pull_last_at: Option<Time>,
}

/// What keeps the jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum StoreBackend {
    /// Files in the data folder of the one process.
    Embedded,
    /// A Redis server or Cluster that processes share.
    Redis,
}

impl fmt::Display for StoreBackend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Embedded => "embedded",
            Self::Redis => "redis",
        })
    }
}

/// The state of the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StoreState {
    /// The backend that keeps the jobs.
    pub backend: StoreBackend,
    /// Whether the store responds.
    pub available: bool,
    /// The time since which the store is unavailable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unavailable_since: Option<Time>,
}

/// Key figures of the whole system at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Sample {
    /// When the service read the store.
    pub at: Time,
    /// Job starts per second since the previous sample.
    pub start_rate: f64,
    /// The limit of job starts per second at that time.
    pub global_rps: f64,
    /// Jobs by state.
    pub counts: StateCounts,
    /// Groups with unfinished jobs.
    pub active_groups: u64,
}

/// The last ten minutes, one sample per second.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Samples {
    /// The samples, oldest first.
    pub samples: Vec<Sample>,
}
