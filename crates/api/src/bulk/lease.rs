//! The pull protocol for workers in any language: lease, extend, settle.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use super::JobProgress;
use crate::{DeathReason, DelayReason, JobPriority, Time};

/// A request for jobs.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lease {
    /// The queue to lease from; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The most jobs to lease; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub max: Option<u32>,
    /// The time to wait for the first job, in milliseconds; 0 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 60000))]
    pub wait_ms: Option<u64>,
    /// The name of the worker, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Jobs for a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeasedJobs {
    /// The leased jobs; empty if there was none in time.
    pub jobs: Vec<LeasedJob>,
    /// The time for which the call waited before it leased the jobs, in milliseconds. A worker subtracts it
    /// from the duration of the whole call, and does not begin a job whose lease is older than `timeoutMs`.
    #[serde(default)]
    pub waited_ms: u64,
    /// Why the call leased fewer jobs than requested.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop: Option<LeaseStop>,
}

/// Why a call leased fewer jobs than requested.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "reason",
    rename_all = "SCREAMING_SNAKE_CASE",
    rename_all_fields = "camelCase"
)]
pub enum LeaseStop {
    /// The queue has no job that may start.
    #[cfg_attr(feature = "openapi", schema(title = "LeaseStopEmpty"))]
    Empty,
    /// The rate of the window is used up.
    #[cfg_attr(feature = "openapi", schema(title = "LeaseStopLimited"))]
    Limited {
        /// When the next window begins.
        until: Time,
    },
    /// Every waiting group is at a limit of its own.
    #[cfg_attr(feature = "openapi", schema(title = "LeaseStopHeld"))]
    Held {
        /// When the next window begins.
        until: Time,
    },
    /// As many jobs of the queue run as may, over all workers.
    #[cfg_attr(feature = "openapi", schema(title = "LeaseStopBusy"))]
    Busy,
}

/// A job that a worker has leased.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeasedJob {
    /// The name of the lease in settlements and extensions.
    pub lease: String,
    /// The group of the job.
    pub group: String,
    /// The batch of the job.
    pub batch: String,
    /// The id of the job, unique within its group.
    pub id: String,
    /// The job type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The urgency of the job.
    pub priority: JobPriority,
    /// The number of this run, 1 for the first.
    pub attempt: u32,
    /// When the lease ends. Settle or extend it before, or another worker gets the job.
    pub deadline: Time,
    /// The longest duration of one run of this type, in milliseconds.
    pub timeout_ms: u64,
    /// The payload as submitted, any JSON.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub payload: Box<RawValue>,
}

/// Leases to extend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Extend {
    /// The leases, at most 1,000.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub leases: Vec<String>,
    /// The remaining time of each lease from now on, in milliseconds; at most a day.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86400000))]
    pub duration_ms: u64,
    /// How far the runs are, by lease. The service keeps the latest report while the job runs.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub progress: BTreeMap<String, JobProgress>,
}

/// The results of extending leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExtendedLeases {
    /// One result per lease, in the order of the request.
    pub extended: Vec<ExtendedLease>,
}

/// The result of extending one lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExtendedLease {
    /// When the lease ends. Absent if it had ended already: stop working on the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

/// Leases to settle.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settle {
    /// The settlements, at most 1,000.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub settlements: Vec<Settlement>,
}

/// The outcome of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settlement {
    /// The lease of the run.
    pub lease: String,
    /// The outcome that the worker reports.
    pub outcome: JobOutcome,
    /// With COMPLETED: the result of the job, any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// With FAILED and RETRY: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With THROTTLED and RETRY: the shortest wait before the next run, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// With THROTTLED: whose calls were too many. Default: QUEUE.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scope: Option<ThrottleScope>,
    /// With RETRY: the downstream is overloaded (a timeout, a broken gateway, a refused connection), so the
    /// queue slows down.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overloaded: bool,
    /// What the run used up of every rate, if that is not the cost of the job, at most 1,000,000. Later windows pay what is
    /// more; what is less is free again in the window of the start. With RELEASED, the job used up nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 1000000))]
    pub cost: Option<u32>,
}

/// Whose calls the downstream found too many.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ThrottleScope {
    /// Those of the job's group: the other groups keep their rate.
    Group,
    /// Those of the whole queue.
    #[default]
    Queue,
}

/// The outcome that a worker reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobOutcome {
    /// The job succeeded.
    Completed,
    /// The job can never succeed.
    Failed,
    /// The downstream throttled the job. This uses up no attempt.
    Throttled,
    /// The job may succeed later. This uses up an attempt.
    Retry,
    /// The worker gives the job back without having run it. This uses up no attempt.
    Released,
}

/// The results of settling leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledJobs {
    /// One result per settlement, in the order of the request.
    pub settled: Vec<SettledJob>,
}

/// The effect of a settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SettledAs {
    /// The job is completed.
    Completed,
    /// The job runs again later.
    Delayed,
    /// The job is dead.
    Dead,
    /// The job waits again.
    Released,
    /// The lease had ended, and the settlement changed nothing: another worker may have the job.
    Stale,
}

/// The result of one settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledJob {
    /// The effect of the settlement.
    pub state: SettledAs,
    /// When a delayed job continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Why the job is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_reason: Option<DelayReason>,
    /// Why the job is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death_reason: Option<DeathReason>,
    /// Whether this settlement finished the last job of the batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch_complete: bool,
}
