//! Jobs: units of work.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::Time;

/// The urgency of a job. A queue starts jobs of higher priority first, across all groups, but gives the lower
/// ones their configured minimum share.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobPriority {
    /// Starts before normal and low priority.
    High,
    /// Starts before low priority; the default.
    #[default]
    Normal,
    /// Starts after high and normal priority.
    Low,
}

/// The state of a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum JobState {
    /// The job waits for its turn.
    Waiting,
    /// The scheduler has dispatched the job, and it waits for a worker.
    Ready,
    /// A worker holds the lease of the job.
    Running,
    /// The job waits for a point in time.
    Delayed,
    /// The job completed.
    Completed,
    /// The job failed for good or expired, or an operator cancelled it.
    Dead,
}

/// Why a job is delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DelayReason {
    /// The job's turn came after the rate of the window was used up.
    RateLimited,
    /// The downstream throttled the job.
    ApiThrottled,
    /// The last run failed, and the service retries.
    TransientError,
    /// The worker did not settle the job in time.
    LeaseExpired,
    /// The job has a `runAt` in the future.
    Scheduled,
}

/// Why a job is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeathReason {
    /// A worker reported that the job can never succeed.
    Failed,
    /// The job failed as often as its type allows.
    AttemptsUsedUp,
    /// The job's `expiresAt` passed before it could start.
    Expired,
    /// An operator cancelled the job.
    Cancelled,
}

/// Jobs by state. Finished jobs count as long as the service keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct StateCounts {
    /// Jobs that wait for their turn.
    pub waiting: u64,
    /// Jobs that wait for a worker.
    pub ready: u64,
    /// Jobs that a worker has leased.
    pub running: u64,
    /// Jobs that wait for a point in time.
    pub delayed: u64,
    /// Jobs that completed.
    pub completed: u64,
    /// Jobs that failed for good, expired or were cancelled.
    pub dead: u64,
}

impl StateCounts {
    /// Returns the number of jobs that are neither completed nor dead.
    pub fn unfinished(&self) -> u64 {
        self.waiting + self.ready + self.running + self.delayed
    }
}

/// A job to accept. Leave out `group` and `batch` where the path names them.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NewJob {
    /// The group of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// The batch of the job; the group's open batch if absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// The id of the job, unique within its group. A job with a known id is a duplicate and changes nothing.
    pub id: String,
    /// The job type, which decides the queue of the job.
    #[serde(rename = "type")]
    pub kind: String,
    /// The urgency of the job; NORMAL if absent.
    #[serde(default, skip_serializing_if = "is_default")]
    pub priority: JobPriority,
    /// What the start of the job uses up of every rate, from 1 to 1,000,000; 1 if absent.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 1000000))]
    pub cost: u32,
    /// The input of the job, any JSON. The worker gets it unchanged.
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

fn one() -> u32 {
    1
}

fn is_one(cost: &u32) -> bool {
    *cost == 1
}

fn is_default(priority: &JobPriority) -> bool {
    *priority == JobPriority::default()
}

/// Jobs to accept, at most 10,000.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EnqueueJobs {
    /// The jobs, at most 10,000.
    #[cfg_attr(feature = "openapi", schema(max_items = 10000))]
    pub jobs: Vec<NewJob>,
}

/// The result of one submission. The service has stored accepted jobs durably.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Enqueued {
    /// Jobs that the service accepted.
    pub accepted: u64,
    /// Jobs that the service knew already and left unchanged.
    pub duplicates: u64,
    /// Jobs that the service refused.
    pub refused: u64,
    /// The first refused jobs, at most 100.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<RefusedJob>,
    /// The batch that took the jobs, if the path names a group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub batch: Option<String>,
    /// Whether the service sealed the batch as requested. It does not if it refused a job, because the caller
    /// may submit that job again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub sealed: bool,
}

/// A job that the service refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct RefusedJob {
    /// The job's index in the request, from 0; the line in NDJSON.
    pub index: u64,
    /// The id of the job, if the service could read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// The problem code.
    pub code: String,
    /// What is wrong, and what would be right.
    pub detail: String,
}

/// How far a run is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct JobProgress {
    /// From 0 to 100.
    #[cfg_attr(feature = "openapi", schema(maximum = 100))]
    pub percent: u8,
    /// A short text; the service keeps 256 bytes.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub text: String,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RunOutcome {
    /// The run completed the job.
    Completed,
    /// The worker reported that the job can never succeed.
    Failed,
    /// The worker reported a failure that may pass.
    Retry,
    /// The downstream throttled the run.
    Throttled,
    /// The worker reported nothing before its lease ended.
    LeaseExpired,
}

/// One run of a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct JobRun {
    /// Counts the runs of the job from 1, across replays.
    pub number: u32,
    /// When the run started; absent if the service stopped before it wrote that down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// When the run ended; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended_at: Option<Time>,
    /// Who ran the job.
    pub worker: String,
    /// How the run ended; absent while it is under way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<RunOutcome>,
    /// The error that the worker reported.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// A job with everything that the service keeps of it.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// The group of the job.
    pub group: String,
    /// The batch of the job.
    pub batch: String,
    /// The id of the job, unique within its group.
    pub id: String,
    /// The job type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The queue that takes jobs of this type.
    pub queue: String,
    /// The urgency of the job.
    pub priority: JobPriority,
    /// The state of the job.
    pub state: JobState,
    /// Attempts used since the job was accepted or replayed, that of a running job included. A run that was throttled or
    /// released uses up none.
    pub attempts: u32,
    /// Attempts that the type of the job allows.
    pub max_attempts: u32,
    /// Runs that started: the attempts, and the throttled runs.
    pub runs: u32,
    /// Runs that the downstream throttled.
    pub throttles: u32,
    /// When the service accepted the job.
    pub created_at: Time,
    /// When the run under way or the last one started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Time>,
    /// Who runs the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<String>,
    /// How far the run under way is, as its worker reports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<JobProgress>,
    /// Whether somebody cancelled the job while it runs: it does not start again.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub cancelled: bool,
    /// The latest runs, at most ten, the oldest first. Released runs do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub history: Vec<JobRun>,
    /// When a delayed job continues.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delayed_until: Option<Time>,
    /// Why the job is delayed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_reason: Option<DelayReason>,
    /// When the lease of a running job ends.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deadline: Option<Time>,
    /// Why the job is dead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub death_reason: Option<DeathReason>,
    /// When the job completed or died.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Time>,
    /// The payload as submitted; bytes that are not JSON as `{"$base64": "…"}`.
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
