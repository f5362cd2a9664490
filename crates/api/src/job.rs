//! Jobs: units of work.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobPriority {
    High,
    #[default]
    Normal,
    Low,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    Waiting,
    Ready,
    Running,
    Delayed,
    Completed,
    Dead,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DelayReason {
    RateLimited,
    ApiThrottled,
    TransientError,
    LeaseExpired,
    Scheduled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeathReason {
    Failed,
    AttemptsUsedUp,
    Expired,
    Cancelled,
}

/// Jobs per state; finished ones as long as they are kept.
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

/// A job to accept. `group` and `batch` may be left out where the address names them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewJob {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The group's open batch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// Unique within its group: the same id again is a duplicate and changes nothing.
    pub id: String,
    /// Chooses who does the work.
    #[serde(rename = "type")]
    pub kind: String,
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: JobPriority,
    /// Any JSON, handed to the worker as it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub payload: Option<Box<RawValue>>,
    /// Not before this time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run_at: Option<Time>,
    /// Not after this time: then it is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<Time>,
}

fn is_default(priority: &JobPriority) -> bool {
    *priority == JobPriority::default()
}

/// Jobs to accept, at most 10,000. Or send one job per line as `application/x-ndjson`, any number of them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnqueueJobs {
    #[cfg_attr(feature = "openapi", schema(max_items = 10000))]
    pub jobs: Vec<NewJob>,
}

/// What became of the jobs of one call. Those accepted are durable.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    pub accepted: u64,
    /// Known already, and left as they are.
    pub duplicates: u64,
    pub refused: u64,
    /// The first refused jobs, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RefusedJob>,
    /// The batch that took the jobs, if the call was about one group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The batch was sealed, as asked. It is not if a job was refused: that one may still be sent.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sealed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedJob {
    /// Its place in the call, from 0; in NDJSON its line, from 0.
    pub index: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    pub code: String,
    pub detail: String,
}

/// A job with everything that is kept of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Job {
    pub group: String,
    /// Where a listing knows it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    pub id: String,
    #[serde(rename = "type")]
    pub kind: String,
    pub queue: String,
    pub priority: JobPriority,
    pub state: JobState,
    pub attempts: u32,
    pub throttles: u32,
    /// When delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_until: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_reason: Option<DelayReason>,
    /// When leased: the lease ends here.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// When dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death_reason: Option<DeathReason>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The JSON it was given; other bytes as `{"$base64": "…"}`.
    #[cfg_attr(feature = "openapi", schema(value_type = serde_json::Value))]
    pub payload: Box<RawValue>,
    /// When done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<serde_json::Value>))]
    pub result: Option<Box<RawValue>>,
    /// The last error of a dead job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}
