//! Work for workers in any language: lease, extend, settle.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::{DeathReason, DelayReason, JobPriority, Time};

/// Asks for work.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Lease {
    /// The line to take from; `default` if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<String>,
    /// Most jobs, 1 to 1,000; 1 if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000))]
    pub max: Option<u32>,
    /// How long to wait for the first job, at most 60,000; not at all if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(maximum = 60000))]
    pub wait_ms: Option<u64>,
    /// The worker's name, for whoever looks on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeasedJobs {
    pub jobs: Vec<LeasedJob>,
    /// How long the call waited before it leased them. A worker subtracts it from the time that the whole call took, and does
    /// not begin a job whose lease is older than `timeout_ms`.
    #[serde(default)]
    pub waited_ms: u64,
    /// Why there are no more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nothing: Option<Nothing>,
}

/// Why a call brought fewer jobs than it asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(
    tag = "why",
    rename_all = "SCREAMING_SNAKE_CASE",
    rename_all_fields = "camelCase"
)]
pub enum Nothing {
    /// Nothing waits that may run.
    Empty,
    /// The rate is used up until then.
    Limited { until: Time },
    /// Every waiting group is at a ceiling of its own until then.
    Held { until: Time },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct LeasedJob {
    /// Names this lease in `settle` and `extend`.
    pub lease: String,
    pub group: String,
    pub batch: String,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub priority: JobPriority,
    /// 1 for the first run.
    pub attempt: u32,
    /// Answer or extend before this time, or the job goes to someone else.
    pub deadline: Time,
    /// How long one run of this type may take.
    pub timeout_ms: u64,
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub payload: Box<RawValue>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Extend {
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub leases: Vec<String>,
    /// From now on; at most a day.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 86400000))]
    pub by_ms: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExtendedLeases {
    /// In the order of the request.
    pub extended: Vec<ExtendedLease>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct ExtendedLease {
    /// Absent: the lease had ended; stop working on it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settle {
    #[cfg_attr(feature = "openapi", schema(max_items = 1000))]
    pub settlements: Vec<Settlement>,
}

/// What came of a run.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settlement {
    pub lease: String,
    pub outcome: JobOutcome,
    /// With `done`: any JSON.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// With `failed` and `retry`: what went wrong.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// With `throttled` and `retry`: not before then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobOutcome {
    Completed,
    /// It will never work.
    Failed,
    /// The downstream said too much; uses up no attempt.
    Throttled,
    /// It may work later; uses up an attempt.
    Retry,
    /// Not run after all; uses up no attempt.
    Released,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledJobs {
    /// In the order of the request.
    pub settled: Vec<SettledJob>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum SettledAs {
    Completed,
    Delayed,
    Dead,
    Released,
    /// The lease had ended: somebody else has the job, and nothing was changed.
    Stale,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct SettledJob {
    pub state: SettledAs,
    /// When delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_reason: Option<DelayReason>,
    /// When dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death_reason: Option<DeathReason>,
    /// This answer completed its batch.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch_complete: bool,
}
