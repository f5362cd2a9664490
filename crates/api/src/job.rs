//! Jobs: units of work.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// How urgent a job is within its group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobPriority {
    High,
    #[default]
    Normal,
    Low,
}

/// Where a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    /// It waits for its turn.
    Waiting,
    /// It has been dispatched and waits for a worker.
    Ready,
    /// A worker has it.
    Running,
    /// It waits for a time.
    Delayed,
    /// It completed.
    Completed,
    /// It failed for good, expired or was cancelled.
    Dead,
}

/// Why a job waits for a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DelayReason {
    /// The rate was used up.
    RateLimited,
    /// The downstream throttled it.
    ApiThrottled,
    /// Its last run failed, and the service tries again.
    TransientError,
    /// Its worker did not settle it in time.
    LeaseExpired,
    /// It was submitted with a `runAt`.
    Scheduled,
}

/// Why a job is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeathReason {
    /// A worker said that it will never work.
    Failed,
    /// It failed as often as it may.
    AttemptsUsedUp,
    /// Its `expiresAt` passed before it could start.
    Expired,
    /// An operator cancelled it.
    Cancelled,
}

/// Jobs by state. Finished jobs count as long as the service keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StateCounts {
    pub waiting: u64,
    pub ready: u64,
    pub running: u64,
    pub delayed: u64,
    pub completed: u64,
    pub dead: u64,
}

impl StateCounts {
    pub fn unfinished(&self) -> u64 {
        self.waiting + self.ready + self.running + self.delayed
    }
}

/// A job to accept. Leave out `group` and `batch` where the path names them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewJob {
    /// The job's group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The job's batch; the group's open batch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// Unique within its group. A job with a known id is a duplicate and changes nothing.
    pub id: String,
    /// The type decides which queue takes the job.
    #[serde(rename = "type")]
    pub kind: String,
    /// NORMAL if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: JobPriority,
    /// Any JSON. The worker gets it unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// The earliest start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// The latest start, retries included: a job that would start later is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

fn is_default(priority: &JobPriority) -> bool {
    *priority == JobPriority::default()
}

/// Jobs to accept, at most 10,000.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnqueueJobs {
    #[cfg_attr(feature = "openapi", schema(max_items = 10000))]
    pub jobs: Vec<NewJob>,
}

/// What became of the jobs of one call. The service has stored accepted jobs durably.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    /// Jobs that the service accepted.
    pub accepted: u64,
    /// Jobs that the service knew already and left as they were.
    pub duplicates: u64,
    /// Jobs that the service refused.
    pub refused: u64,
    /// The first refused jobs, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RefusedJob>,
    /// The batch that took the jobs, if the path names a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// Whether the service sealed the batch as asked. It does not if it refused a job, because that job may still come.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sealed: bool,
}

/// A job that the service refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedJob {
    /// The job's place in the call, from 0; the line in NDJSON.
    pub index: u64,
    /// The job's id, if it could be read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The problem code.
    pub code: String,
    /// What is wrong, and what would be right.
    pub detail: String,
}

/// A job with everything that the service keeps of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub group: String,
    /// The batch, in listings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    /// The queue that takes jobs of its type.
    pub queue: String,
    pub priority: JobPriority,
    pub state: JobState,
    /// Runs so far that counted as an attempt.
    pub attempts: u32,
    /// Runs so far that the downstream throttled.
    pub throttles: u32,
    /// When a delayed job continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_until: Option<Time>,
    /// Why it is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_reason: Option<DelayReason>,
    /// When the lease of a running job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Why it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death_reason: Option<DeathReason>,
    /// When it completed or died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The JSON of its submission; other bytes as `{"$base64": "…"}`.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub payload: Box<RawValue>,
    /// The worker's result of a completed job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// The last error of a dead job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
