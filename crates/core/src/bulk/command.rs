//! What can be asked of the bulk state machine, and what it answers.
//!
//! One `…Params` per transition in, one `…Outcome` out. A refusal is an answer, not a failure.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::congestion::{Backoff, CongestionLevel};
use super::purge::PurgeParams;
use super::refusal::{JobRefusal, Refusal};
use super::views::{Query, View};
use crate::ids::{BatchId, GroupId, JobId, JobType, Owner, QueueId};
use crate::time::{Millis, Timestamp};

/// The number of a job in its store: given once, never again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobSeq(pub u64);

/// The number of a lease; a later lease of the same job has a larger one, and only the latest may settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Fence(pub u64);

/// A lease as its holder names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseRef {
    pub job: JobSeq,
    pub fence: Fence,
}

/// Which of three queues a job stands in.
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
    /// Not before this time.
    pub run_at: Option<Timestamp>,
    /// Not after this time: a job that would start later, a retry included, is dead.
    pub expires_at: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EnqueueParams {
    pub group: GroupId,
    /// The group's open batch if absent; one is opened if there is none.
    pub batch: Option<BatchId>,
    /// Taken when the call creates the group; later changes go through `configure_group`.
    pub base_priority: Option<i32>,
    pub jobs: Vec<NewJob>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct EnqueueOutcome {
    pub batch: BatchId,
    /// Jobs of the batch after the call.
    pub total_jobs: u64,
    /// One answer per job, in order.
    pub jobs: Vec<Enqueued>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Enqueued {
    Accepted(JobSeq),
    /// The group has this job already; nothing was changed.
    Duplicate(JobSeq),
    Refused(JobRefusal),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BatchOptions {
    /// FAILED when at least this share of the jobs failed. 100: only when all did.
    pub failure_threshold_percent: u32,
    /// Keep finished jobs until the batch is aggregated, so that a reducer sees every result.
    pub keep_results: bool,
    /// Who is told when the batch is decided: a name that the program knows, not an address. 1 to 256 bytes.
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
    /// It was open already; nothing was changed.
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
    /// Most jobs to move in this call.
    pub max: u32,
    /// Ready of this queue is filled up to here at most: about twice the workers that are asking.
    pub ready_cap: u32,
}

/// Why a call moved no more than it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stop {
    /// As many as asked for.
    Enough,
    /// Nothing is waiting that may run.
    Empty,
    /// Ready is at its cap.
    Full,
    /// The window is spent, for all or for this queue.
    Limited { until: Timestamp },
    /// Some groups are at a ceiling of their own until then, and nothing else waits.
    Held { until: Timestamp },
    /// The call looked at as many jobs as one call may; ask again.
    More,
}

#[derive(Debug, Clone, PartialEq)]
pub struct AdmitOutcome {
    pub admitted: Vec<JobSeq>,
    /// Jobs that a spent window sent to delayed (`hold = "job"` only).
    pub denied: Vec<Denied>,
    pub stop: Stop,
}

/// A job that met a spent window.
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

/// A job in the hands of a worker.
#[derive(Debug, Clone, PartialEq)]
pub struct Leased {
    pub lease: LeaseRef,
    pub group: GroupId,
    pub batch: BatchId,
    pub kind: JobType,
    pub priority: Priority,
    /// 1 for the first run; failures and lost leases raise it, throttling does not.
    pub attempt: u32,
    /// The lease ends here unless it is extended.
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
    pub leases: Vec<LeaseRef>,
    /// From now on.
    pub by: Millis,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extended {
    Until(Timestamp),
    /// The lease ran out, or was never this one.
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
}

/// What came of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum JobOutcome {
    Completed {
        result: Bytes,
    },
    /// It will never work: no retry.
    Failed {
        error: String,
    },
    /// The downstream said too much; uses up no attempt.
    Throttled {
        retry_after: Option<Millis>,
    },
    /// It may work later; uses up an attempt.
    Retry {
        error: String,
        after: Option<Millis>,
    },
    /// Not run after all (shutdown): back to the head of its line, uses up no attempt.
    Released,
}

/// What an answer did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    Completed {
        /// This answer completed the batch. True once per batch.
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
    /// The lease had ended; nothing was changed.
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
    /// The handler said so, or there is none.
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
    /// Delayed jobs that went back to the head of their line.
    pub released: u32,
    /// Waiting jobs that were not started in time.
    pub expired: u32,
    /// Ready jobs that nobody came for, back at the head of their line.
    pub recalled: u32,
    /// Cancellations are not through: ask again.
    pub cancelling: bool,
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
    /// Another watcher may claim it after this long.
    pub claim_for: Millis,
}

/// A batch to fold, claimed by one watcher.
#[derive(Debug, Clone, PartialEq)]
pub struct Aggregation {
    pub group: GroupId,
    pub batch: BatchId,
    pub claim: u64,
    pub counts: BatchCounts,
    pub errors: Vec<String>,
    /// Every job is kept until the batch is decided.
    pub keep_results: bool,
    pub callback: Option<String>,
    /// Set when the batch is decided already and only its callback is missing.
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
    /// What the reducer made of the results, or why it failed (then the batch is FAILED).
    pub summary: Result<Bytes, String>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConfirmCompletionParams {
    pub group: GroupId,
    pub batch: BatchId,
}

/// The life of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum BatchStatus {
    /// No job of it has been admitted.
    #[default]
    Created,
    /// A job of it has been admitted.
    Dispatched,
    /// A job of it has been leased.
    Running,
    /// Sealed and every job finished: results are being folded.
    Aggregating,
    Completed,
    Failed,
}

impl BatchStatus {
    /// Jobs still count.
    pub fn is_open(self) -> bool {
        self < BatchStatus::Aggregating
    }

    pub fn is_finished(self) -> bool {
        self > BatchStatus::Aggregating
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Target {
    Group(GroupId),
    Batch(GroupId, BatchId),
}

#[derive(Debug, Clone, PartialEq)]
pub struct PauseParams {
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ResumeParams {
    pub target: Target,
}

#[derive(Debug, Clone, PartialEq)]
pub struct CancelParams {
    pub target: Target,
    /// Most jobs to look at in this call; call again while `more`.
    pub max: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CancelOutcome {
    pub cancelled: u32,
    /// Leased jobs are left to their workers.
    pub running: u32,
    pub more: bool,
}

/// Settings of one group.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Ceilings {
    /// Starts in one window.
    pub starts_per_window: Option<u32>,
    /// Leased at once.
    pub leased_at_once: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ConfigureGroupParams {
    pub group: GroupId,
    pub base_priority: Option<i32>,
    pub ceilings: Option<Ceilings>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ReplayParams {
    pub group: GroupId,
    pub job: JobId,
}

#[derive(Debug, Clone, PartialEq)]
pub struct DropFinishedParams {
    pub max: u32,
    /// Jobs finished longer ago than this go; the configured age if absent.
    pub older_than: Option<Millis>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DropFinishedOutcome {
    pub jobs: u32,
    pub batches: u32,
    pub groups: u32,
    pub more: bool,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SnapshotCongestionParams {}

#[derive(Debug, Clone, PartialEq)]
pub struct ResetStatsParams {
    pub group: GroupId,
}

/// Ties a parameter type to its place in [`Command`] and to its answer.
pub trait Transition: Sized {
    type Outcome;
    fn into_command(self) -> Command;
    /// The answer out of what [`super::Bulk::apply`] returned. Panics on another transition's answer.
    fn outcome(outcome: Outcome) -> Self::Outcome;
}

macro_rules! transitions {
    ($($(#[$doc:meta])* $name:ident($params:ty) -> $outcome:ty,)+) => {
        /// Everything that can be asked, as one value.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Command { $($(#[$doc])* $name($params),)+ }

        /// Everything that can be answered, as one value.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Outcome { $($name($outcome),)+ }

        impl Command {
            /// The transition's name, for logs and traces.
            pub fn name(&self) -> &'static str {
                match self { $(Command::$name(_) => stringify!($name),)+ }
            }
        }

        $(impl Transition for $params {
            type Outcome = $outcome;
            fn into_command(self) -> Command { Command::$name(self) }
            fn outcome(outcome: Outcome) -> $outcome {
                match outcome {
                    Outcome::$name(answer) => answer,
                    other => panic!("{} was answered with {other:?}", stringify!($name)),
                }
            }
        })+
    };
}

transitions! {
    /// Accepts jobs.
    Enqueue(EnqueueParams) -> Result<EnqueueOutcome, Refusal>,
    /// Opens a batch that jobs can be fed to.
    OpenBatch(OpenBatchParams) -> Result<Opened, Refusal>,
    /// Says that a batch takes no more jobs, so that it can complete.
    SealBatch(SealBatchParams) -> Result<Sealed, Refusal>,
    /// Moves jobs to ready in fair order, within the rate.
    Admit(AdmitParams) -> AdmitOutcome,
    /// Hands jobs to a worker; the only place where the rate is charged.
    Lease(LeaseParams) -> LeaseOutcome,
    /// Gives running jobs more time.
    Extend(ExtendParams) -> Vec<Extended>,
    /// Takes workers' answers.
    Settle(SettleParams) -> Vec<Settled>,
    /// Brings back delayed jobs whose time has come.
    ReleaseDue(ReleaseDueParams) -> ReleaseDueOutcome,
    /// Takes jobs from workers that did not answer.
    ExpireLeases(ExpireLeasesParams) -> ExpireLeasesOutcome,
    /// Hands complete batches to a watcher.
    ClaimAggregation(ClaimAggregationParams) -> Vec<Aggregation>,
    /// Takes the watcher's summary and decides the batch.
    FinishAggregation(FinishAggregationParams) -> Result<BatchStatus, Refusal>,
    /// Says that the completion callback was called.
    ConfirmCompletion(ConfirmCompletionParams) -> Result<(), Refusal>,
    /// Takes a group or a batch out of the order.
    Pause(PauseParams) -> Result<(), Refusal>,
    /// Puts it back.
    Resume(ResumeParams) -> Result<(), Refusal>,
    /// Ends every job that is not running.
    Cancel(CancelParams) -> Result<CancelOutcome, Refusal>,
    /// Changes a group's weight and ceilings.
    ConfigureGroup(ConfigureGroupParams) -> Result<(), Refusal>,
    /// Gives a dead job another life.
    Replay(ReplayParams) -> Result<JobSeq, Refusal>,
    /// Forgets a dead job.
    Purge(PurgeParams) -> Result<(), Refusal>,
    /// Changes the rates at run time.
    ConfigureLimits(super::ConfigureLimitsParams) -> Result<(), Refusal>,
    /// Forgets finished data by age and count.
    DropFinished(DropFinishedParams) -> DropFinishedOutcome,
    /// Adds an entry to the congestion history of every group that has something to tell.
    SnapshotCongestion(SnapshotCongestionParams) -> u32,
    /// Clears a group's congestion statistics.
    ResetStats(ResetStatsParams) -> Result<(), Refusal>,
    /// Reads, changing nothing.
    Query(Query) -> Result<View, Refusal>,
}
