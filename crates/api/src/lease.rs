//! Work for workers in any language: lease, extend, settle.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{DeathReason, DelayReason, JobPriority, Time};

/// A request for work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lease {
    /// The queue to take jobs from; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// The most jobs; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub max: Option<u32>,
    /// How long to wait for the first job; not at all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 60000))]
    pub wait_ms: Option<u64>,
    /// The worker's name, for operators.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

/// Jobs for a worker.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeasedJobs {
    pub jobs: Vec<LeasedJob>,
    /// How long the call waited before it leased the jobs. A worker subtracts it from the duration of the whole call, and
    /// does not begin a job whose lease is older than `timeoutMs`.
    #[serde(default)]
    pub waited_ms: u64,
    /// Why there are no more jobs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing: Option<Nothing>,
}

/// Why a call leased fewer jobs than it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "why",
    rename_all = "SCREAMING_SNAKE_CASE",
    rename_all_fields = "camelCase"
)]
pub enum Nothing {
    /// No job waits that may start.
    #[cfg_attr(feature = "openapi", schema(title = "NothingEmpty"))]
    Empty,
    /// The rate is used up until then.
    #[cfg_attr(feature = "openapi", schema(title = "NothingLimited"))]
    Limited { until: Time },
    /// Every waiting group is at one of its ceilings until then.
    #[cfg_attr(feature = "openapi", schema(title = "NothingHeld"))]
    Held { until: Time },
}

/// A job that a worker has leased.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeasedJob {
    /// Names the lease in settlements and extensions.
    pub lease: String,
    pub group: String,
    pub batch: String,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub priority: JobPriority,
    /// 1 for the first run.
    pub attempt: u32,
    /// When the lease ends. Settle or extend it before, or another worker gets the job.
    pub deadline: Time,
    /// How long one run of this type may take.
    pub timeout_ms: u64,
    /// The JSON of its submission.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub payload: Box<RawValue>,
}

/// Leases to extend.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Extend {
    /// At most 1,000 leases.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub leases: Vec<String>,
    /// How long each lease lasts from now on, at most a day.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86400000))]
    pub by_ms: u64,
}

/// Extended leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExtendedLeases {
    /// One entry per lease, in the order of the request.
    pub extended: Vec<ExtendedLease>,
}

/// An extended lease.
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
    /// At most 1,000 settlements.
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub settlements: Vec<Settlement>,
}

/// The outcome of one run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settlement {
    /// The lease, as the service handed it out.
    pub lease: String,
    pub outcome: JobOutcome,
    /// With COMPLETED: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// With FAILED and RETRY: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With THROTTLED and RETRY: how long to wait at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

/// What a worker reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobOutcome {
    /// The job is done.
    Completed,
    /// The job will never work.
    Failed,
    /// The downstream throttled the job. This uses up no attempt.
    Throttled,
    /// The job may work later. This uses up an attempt.
    Retry,
    /// The worker did not run the job. This uses up no attempt.
    Released,
}

/// Settled leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledJobs {
    /// One entry per settlement, in the order of the request.
    pub settled: Vec<SettledJob>,
}

/// What a settlement did.
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
    /// The lease had ended. Another worker may have the job, and the settlement changed nothing.
    Stale,
}

/// What became of one settlement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledJob {
    pub state: SettledAs,
    /// When a delayed job continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    /// Why it is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_reason: Option<DelayReason>,
    /// Why it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death_reason: Option<DeathReason>,
    /// Whether this settlement completed the batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch_complete: bool,
}
