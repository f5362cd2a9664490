//! The commands of the bulk state machine and their outcomes.
//!
//! One `…Params` per transition in, one `…Outcome` out. A refusal is an outcome, not an error.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::congestion::{Backoff, CongestionLevel};
use super::pair::ThrottleScope;
use super::refusal::JobRefusal;
use super::run::LeaseExtension;
use crate::ids::{BatchId, GroupId, JobId, JobType, Owner, QueueId};
use crate::limits::quota::Limit;
use crate::time::{Millis, Timestamp};

/// The sequence number of a job in its store; never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobSeq(pub u64);

/// The fencing token of a lease. A later lease of the same job has a larger one, and only the latest may
/// settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// A lease as its holder names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseRef {
    pub job: JobSeq,
    pub fence: Fence,
}

/// The urgency of a job: every queue keeps one fair order per priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Priority {
    High,
    #[default]
    Normal,
    Low,
}

impl Priority {
    pub const ALL: [Priority; 3] = [Priority::High, Priority::Normal, Priority::Low];
}

impl std::str::FromStr for Priority {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "high" => Ok(Priority::High),
            "normal" => Ok(Priority::Normal),
            "low" => Ok(Priority::Low),
            other => Err(format!("unknown priority {other:?}; use high, normal or low")),
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct NewJob {
    pub id: JobId,
    pub kind: JobType,
    pub priority: Priority,
    pub payload: Bytes,
    /// The job starts no earlier than this.
    pub run_at: Option<Timestamp>,
    /// A job that would start later than this, even as a retry, becomes dead.
    pub expires_at: Option<Timestamp>,
    /// What its start uses up of every rate: 1 to [`MAX_COST`].
    pub cost: u32,
}

/// Limit: the cost of a job.
pub const MAX_COST: u32 = 1_000_000;

#[derive(Debug, Clone, PartialEq)]
pub struct EnqueueParams {
    pub group: GroupId,
    /// If absent, the job joins the group's open batch; the call opens one if there is none.
    pub batch: Option<BatchId>,
    /// Applies only if the call creates the group; later changes go through `configure_group`.
    pub base_priority: Option<i32>,
    pub jobs: Vec<NewJob>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EnqueueOutcome {
    pub batch: BatchId,
    /// Jobs of the batch after the call.
    pub total_jobs: u64,
    /// One result per job, in order.
    pub jobs: Vec<Enqueued>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Enqueued {
    Accepted(JobSeq),
    /// The group already has this job; nothing was changed. Its number, while the store keeps the job.
    Duplicate(Option<JobSeq>),
    Refused(JobRefusal),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchOptions {
    /// The batch becomes FAILED when at least this share of its jobs failed. 100: only when all did.
    pub failure_threshold_percent: u32,
    /// Keep finished jobs until the batch is aggregated, so that a reducer sees every result.
    pub keep_results: bool,
    /// The callback to call when the batch is decided: a name the program knows, not an address. 1 to 256
    /// bytes.
    #[serde(default)]
    pub callback: Option<String>,
}

impl Default for BatchOptions {
    fn default() -> Self {
        Self {
            failure_threshold_percent: 100,
            keep_results: false,
            callback: None,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct OpenBatchParams {
    pub group: GroupId,
    pub batch: BatchId,
    pub base_priority: Option<i32>,
    pub options: BatchOptions,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opened {
    New,
    /// The batch was already open; nothing was changed.
    Already,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SealBatchParams {
    pub group: GroupId,
    /// The group's open batch if absent.
    pub batch: Option<BatchId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sealed {
    pub batch: BatchId,
    pub total_jobs: u64,
    /// The seal itself completed the batch: every job was finished, or there was none.
    pub batch_complete: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AdmitParams {
    pub queue: QueueId,
    /// Maximum jobs to move in this call.
    pub max: u32,
    /// Cap on ready jobs of this queue: about twice the number of workers that are polling.
    pub ready_cap: u32,
}

/// Why a call stopped moving jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// It moved as many as the caller requested.
    Enough,
    /// No waiting job may run.
    Empty,
    /// Ready is at its cap.
    Full,
    /// The window is spent, globally or for this queue.
    Limited { until: Timestamp },
    /// Every waiting group is at a limit of its own, the first one until then.
    Held { until: Timestamp },
    /// As many jobs of the queue run as may: one must end first.
    Busy,
    /// The call reached its inspection limit; call again.
    More,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AdmitOutcome {
    pub admitted: Vec<JobSeq>,
    /// Jobs that a spent window sent to delayed (`hold = "job"` only).
    pub denied: Vec<Denied>,
    pub stop: Stop,
}

/// A job denied by a spent window.
#[derive(Debug, Clone, PartialEq)]
pub struct Denied {
    pub job: JobSeq,
    pub group: GroupId,
    pub backoff: Backoff,
    pub global: (u64, u64),
    pub share: (u64, u64),
}

impl fmt::Display for Denied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let level = match self.backoff.level {
            CongestionLevel::None => "NONE",
            CongestionLevel::Low => "LOW",
            CongestionLevel::Moderate => "MODERATE",
            CongestionLevel::High => "HIGH",
            CongestionLevel::Critical => "CRITICAL",
        };
        write!(
            f,
            "Rate limited (global: {}/{}, group: {}/{}, congestion: {level})",
            self.global.0, self.global.1, self.share.0, self.share.1
        )
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct LeaseParams {
    pub queue: QueueId,
    pub max: u32,
    pub owner: Owner,
}

/// A job leased to a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Leased {
    pub lease: LeaseRef,
    pub group: GroupId,
    pub batch: BatchId,
    pub kind: JobType,
    pub priority: Priority,
    /// 1 for the first run. Failures and lost leases raise it, throttling does not.
    pub attempt: u32,
    /// The lease expires at this time unless the worker extends it.
    pub deadline: Timestamp,
    /// Longest run of this job.
    pub timeout: Millis,
}

#[derive(Debug, Clone, PartialEq)]
pub struct LeaseOutcome<J = Leased> {
    pub jobs: Vec<J>,
    pub stop: Stop,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExtendParams {
    pub leases: Vec<LeaseExtension>,
    /// Counted from now.
    pub by: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    Until(Timestamp),
    /// The lease expired, or its fencing token is not the current one.
    Stale,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SettleParams {
    pub answers: Vec<Settlement>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Settlement {
    pub lease: LeaseRef,
    pub outcome: JobOutcome,
    /// What the run used up, if that is not the job's cost. Later windows pay what is more; what is less is free again
    /// in the window of the start. Does not apply to a run that was released.
    pub cost: Option<u32>,
}

/// The outcome that a worker reports for a run.
#[derive(Debug, Clone, PartialEq)]
pub enum JobOutcome {
    Completed {
        result: Bytes,
    },
    /// A permanent failure: no retry.
    Failed {
        error: String,
    },
    /// The downstream throttled the call; uses up no attempt.
    Throttled {
        retry_after: Option<Millis>,
        scope: ThrottleScope,
    },
    /// A transient failure; uses up an attempt.
    Retry {
        error: String,
        after: Option<Millis>,
        /// The failure says that the downstream is overloaded: a timeout, a broken gateway, a refused connection.
        overloaded: bool,
    },
    /// The worker did not run it (shutdown): back to the head of its flow, uses up no attempt.
    Released,
}

/// The effect of one reported outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Completed {
        /// This outcome completed the batch. True once per batch.
        batch_complete: bool,
    },
    Delayed {
        until: Timestamp,
        reason: DelayReason,
    },
    Dead {
        reason: DeathReason,
        batch_complete: bool,
    },
    Released,
    /// The lease had expired; nothing was changed.
    Stale,
}

/// Why a job is delayed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DelayReason {
    RateLimited,
    ApiThrottled,
    TransientError,
    LeaseExpired,
    Scheduled,
}

/// Why a job is dead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum DeathReason {
    /// The handler reported a permanent failure, or there is no handler.
    Failed,
    AttemptsUsedUp,
    Expired,
    Cancelled,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReleaseDueParams {
    pub max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ReleaseDueOutcome {
    /// Delayed jobs that went back to the head of their flow.
    pub released: u32,
    /// Waiting jobs that did not start before they expired.
    pub expired: u32,
    /// Ready jobs that no worker fetched, back at the head of their flow.
    pub recalled: u32,
    /// Jobs are left to cancel, or to move to another queue: call again.
    pub more: bool,
    /// When the next delayed or expiring job is due.
    pub next_due: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ExpireLeasesParams {
    pub max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExpireLeasesOutcome {
    pub delayed: u32,
    pub dead: u32,
    pub next_deadline: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ClaimAggregationParams {
    pub owner: Owner,
    pub max: u32,
    /// Another aggregator may claim the batch after this long.
    pub claim_for: Millis,
}

/// A batch to fold, claimed by one aggregator.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregation {
    pub group: GroupId,
    pub batch: BatchId,
    pub claim: u64,
    pub counts: BatchCounts,
    pub errors: Vec<String>,
    /// The store keeps every job until the batch is decided.
    pub keep_results: bool,
    pub callback: Option<String>,
    /// Set when the batch is already decided and only its callback is outstanding.
    pub finished: Option<BatchStatus>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct BatchCounts {
    pub total: u64,
    pub success: u64,
    pub failed: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct FinishAggregationParams {
    pub group: GroupId,
    pub batch: BatchId,
    pub claim: u64,
    /// The reducer's summary, or why it failed (then the batch is FAILED).
    pub summary: Result<Bytes, String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmCompletionParams {
    pub group: GroupId,
    pub batch: BatchId,
}

/// The life cycle of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BatchStatus {
    /// None of its jobs has been admitted.
    #[default]
    Created,
    /// One of its jobs has been admitted.
    Dispatched,
    /// One of its jobs has been leased.
    Running,
    /// Sealed and every job finished; an aggregator folds the results.
    Aggregating,
    Completed,
    Failed,
    /// An operator cancelled the batch before it was decided.
    Cancelled,
}

impl BatchStatus {
    /// Whether its jobs still change the counts.
    pub fn is_open(self) -> bool {
        self < BatchStatus::Aggregating
    }

    pub fn is_finished(self) -> bool {
        self > BatchStatus::Aggregating
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Scope {
    Group(GroupId),
    Batch(GroupId, BatchId),
}

#[derive(Debug, Clone, PartialEq)]
pub struct PauseParams {
    pub scope: Scope,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResumeParams {
    pub scope: Scope,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CancelParams {
    pub scope: Scope,
    /// Maximum jobs to inspect in this call; call again while `more`.
    pub max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CancelOutcome {
    pub cancelled: u32,
    /// Running jobs, which stay with their workers.
    pub running: u32,
    pub more: bool,
}

/// Limit: queues in which one group has limits of its own.
pub const MAX_QUEUES_OF_GROUP: usize = 64;

/// The limits of one group.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct GroupLimits {
    /// Over all queues.
    pub all: Limit,
    /// In single queues. What is absent here is as the queue says for every group.
    pub queues: BTreeMap<QueueId, Limit>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConfigureGroupParams {
    pub group: GroupId,
    pub base_priority: Option<i32>,
    /// Replaces all of them.
    pub limits: Option<GroupLimits>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplayParams {
    pub group: GroupId,
    pub job: JobId,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotCongestionParams {}
