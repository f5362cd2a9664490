//! The queries and the views they return.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::command::{BatchCounts, BatchStatus, DeathReason, DelayReason, GroupLimits, JobSeq, Priority};
use super::congestion::CongestionLevel;
pub use super::estimate::{Estimate, NoEstimate, Range};
use super::job::JobState;
pub use super::limits::{LimitChange, QueueLimits};
use super::run::Progress;
pub use super::stats::CongestionSnapshot;
use crate::ids::{BatchId, GroupId, JobId, JobType, Owner, QueueId};
use crate::limits::quota::Quota;
use crate::time::{Millis, Timestamp};

/// A position in a listing; pass it back to continue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Cursor(pub u128);

impl Cursor {
    /// A position among dead jobs: the time of death, and the job.
    pub fn of_death(at: Timestamp, job: JobSeq) -> Self {
        Self(u128::from(at.0) << 64 | u128::from(job.0))
    }

    /// A position among all jobs: the batch, where its last inspected job was, and that job.
    pub(super) fn of_place(batch: u64, slot: u32, job: u64) -> Self {
        Self(u128::from(batch) << 80 | u128::from(slot) << 48 | u128::from(job))
    }

    /// The batch, the place and the job of a position among all jobs.
    pub(super) fn place(self) -> (u64, u32, u64) {
        let job = self.0 as u64 & ((1 << 48) - 1);
        ((self.0 >> 80) as u64, (self.0 >> 48) as u32, job)
    }

    /// The time of death and the job of a position among dead jobs.
    pub fn death(self) -> (Timestamp, JobSeq) {
        (Timestamp((self.0 >> 64) as u64), JobSeq(self.0 as u64))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Query {
    Group(GroupId),
    Groups {
        after: Option<Cursor>,
        max: u32,
    },
    Batch(GroupId, BatchId),
    Job(GroupId, JobId),
    /// Jobs of a batch in order of arrival.
    BatchJobs {
        group: GroupId,
        batch: BatchId,
        after: Option<Cursor>,
        max: u32,
    },
    /// Dead jobs of the whole store, those that died last first; see [`super::dead`].
    Dead {
        filter: DeadFilter,
        after: Option<Cursor>,
        max: u32,
    },
    BulkStats,
    LimitStatus(GroupId),
    /// What keeps a job from starting.
    WhyJob(GroupId, JobId),
    /// What keeps a group's next job from starting.
    WhyGroup(GroupId),
    /// Jobs of the whole store in the order of their batches; see [`super::listing`].
    Jobs {
        filter: JobFilter,
        after: Option<Cursor>,
        max: u32,
    },
    /// Every queue with its rate.
    Queues,
    /// What waits and runs in every queue, in order of name.
    Backlog,
    /// The rates, and who changed them.
    Limits,
    Congestion(GroupId),
    CongestionSummary {
        after: Option<Cursor>,
        max: u32,
    },
    CongestionHistory {
        group: GroupId,
        max: u32,
    },
}

#[derive(Debug, Clone, PartialEq)]
pub enum View {
    Group(GroupView),
    Groups(Page<GroupView>),
    Batch(BatchView),
    Job(JobView),
    BatchJobs(Page<JobView>),
    Dead(Page<FoundView>),
    Jobs(Page<FoundView>),
    BulkStats(BulkStats),
    LimitStatus(LimitStatus),
    Why(Why),
    Queues(Vec<QueueView>),
    Backlog(Vec<QueueBacklog>),
    Limits(LimitsView),
    Congestion(CongestionState),
    CongestionSummary(CongestionSummary),
    CongestionHistory(Vec<CongestionSnapshot>),
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Page<T> {
    pub items: Vec<T>,
    /// Present while there is more.
    pub next: Option<Cursor>,
}

/// Jobs per state; finished ones as long as the store keeps them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
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

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GroupView {
    pub id: GroupId,
    pub base_priority: i32,
    pub limits: GroupLimits,
    pub paused: bool,
    /// Out of the order although it has jobs: paused, or at a limit of its own over all queues.
    pub held: bool,
    pub active: bool,
    pub counts: StateCounts,
    pub batches: Vec<BatchId>,
    /// When the job that would start next was accepted, in whole seconds; none if no job is in a flow.
    pub waiting_since: Option<Timestamp>,
    /// When its unfinished jobs are finished.
    pub estimate: Estimate,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchView {
    pub group: GroupId,
    pub id: BatchId,
    pub status: BatchStatus,
    pub sealed: bool,
    /// Paused by a command on the batch itself.
    pub paused: bool,
    /// Its whole group is paused.
    pub group_paused: bool,
    pub cancelled: bool,
    pub counts: BatchCounts,
    /// The first distinct errors of its jobs.
    pub errors: Vec<String>,
    pub summary: Option<Bytes>,
    pub created_at: Timestamp,
    pub finished_at: Option<Timestamp>,
    /// The callback to call when it is decided.
    pub callback: Option<String>,
    /// When its unfinished jobs are finished.
    pub estimate: Estimate,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobView {
    pub seq: JobSeq,
    pub batch: BatchId,
    pub kind: JobType,
    pub queue: QueueId,
    pub priority: Priority,
    pub state: JobState,
    /// Attempts used, that of a running job included. Throttled and released runs use up none.
    pub attempts: u32,
    /// Attempts that the job's type allows.
    pub max_attempts: u32,
    /// Runs that the downstream throttled.
    pub throttles: u32,
    /// When delayed: until when, and why.
    pub delayed: Option<(Timestamp, DelayReason)>,
    /// When running: the run.
    pub running: Option<RunningView>,
    /// When running: the lease deadline.
    pub deadline: Option<Timestamp>,
    /// When dead: why.
    pub dead: Option<DeathReason>,
    pub finished_at: Option<Timestamp>,
}

impl JobView {
    /// Runs that started since the job was accepted or replayed: attempts, and throttled runs.
    pub fn runs(&self) -> u32 {
        self.attempts + self.throttles
    }
}

/// The run of a job that is under way.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunningView {
    /// None if it was leased by a process that ended.
    pub started_at: Option<Timestamp>,
    pub worker: Owner,
    pub progress: Option<Progress>,
    /// The job was cancelled since: it does not start again.
    pub cancelled: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct BulkStats {
    /// Groups in the order, per priority.
    pub high_priority_groups: u64,
    pub normal_priority_groups: u64,
    pub low_priority_groups: u64,
    pub total_groups: u64,
    /// Groups with unfinished jobs.
    pub active_groups: u64,
    pub counts: StateCounts,
    pub started: u64,
    /// Most starts in any window since the store was opened.
    pub most_started_per_window: u64,
    pub limit_per_window: u64,
    pub throttles: u64,
    pub saved_spins: u64,
    /// Groups, batches and flows in memory, and the remembered tags of absent groups.
    pub groups_in_memory: u64,
    pub batches_in_memory: u64,
    pub flows_in_memory: u64,
    pub tags_remembered: u64,
}

/// The current window from a group's point of view.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct LimitStatus {
    pub global_count: u64,
    pub global_limit: u64,
    pub group_count: u64,
    pub per_group_limit: u64,
    pub active_group_count: u64,
    pub window_ends: Timestamp,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CongestionState {
    pub group: GroupId,
    pub non_ready_count: u64,
    pub rate_limit_speed: u64,
    pub current_backoff_ms: Millis,
    pub congestion_level: CongestionLevel,
    pub total_throttle_count: u64,
    pub last_throttle_at: Option<Timestamp>,
    pub last_backoff_ms: Millis,
    pub avg_throttle_per_job: f64,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CongestionSummary {
    pub active_group_count: u64,
    pub total_non_ready_count: u64,
    pub worst_congestion_level: CongestionLevel,
    pub worst_congestion_group: Option<GroupId>,
    pub groups: Page<CongestionState>,
}

/// Selects dead jobs; an absent field matches all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct DeadFilter {
    pub group: Option<GroupId>,
    pub kind: Option<JobType>,
    pub reason: Option<DeathReason>,
}

impl DeadFilter {
    pub fn matches(&self, group: &GroupId, kind: &JobType, reason: DeathReason) -> bool {
        self.group.as_ref().is_none_or(|wanted| wanted == group)
            && self.kind.as_ref().is_none_or(|wanted| wanted == kind)
            && self.reason.is_none_or(|wanted| wanted == reason)
    }
}

/// Selects jobs; an absent field matches all.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct JobFilter {
    pub group: Option<GroupId>,
    /// A batch of `group`; without a group it is ignored.
    pub batch: Option<BatchId>,
    pub queue: Option<QueueId>,
    pub kind: Option<JobType>,
    pub state: Option<JobState>,
    /// Accepted in this second or later.
    pub created_after: Option<Timestamp>,
    /// Accepted before this second.
    pub created_before: Option<Timestamp>,
}

/// A job that a listing found, with its group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FoundView {
    pub group: GroupId,
    pub job: JobView,
}

/// What keeps a job from starting, nearest cause first, and when it starts.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Why {
    /// The state of the requested job, or of the group's next one. None if the group has no unfinished job.
    pub state: Option<JobState>,
    /// Empty if the job is running or finished.
    pub waits: Vec<Wait>,
    /// When it starts, or why nobody knows. None if the job is running or finished.
    pub starts: Option<Estimate>,
}

/// One cause for which a job waits.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Wait {
    /// Jobs of its own group, queue and priority go before it. The following causes hold the first of them.
    Behind {
        jobs: u64,
    },
    GroupPaused,
    /// It has left its flow, so other causes are not reported.
    BatchPaused,
    /// It is delayed until then.
    Delayed {
        until: Timestamp,
        reason: DelayReason,
    },
    /// Its group has used its starts, or its share, of this window.
    GroupSpent {
        limit: u64,
        until: Timestamp,
    },
    /// Its group has used its starts of this window in this queue.
    GroupInQueueSpent {
        limit: u64,
        until: Timestamp,
    },
    /// Its queue has its maximum of running jobs.
    QueueBusy {
        limit: u64,
    },
    /// Its group has its maximum of running jobs.
    GroupBusy {
        limit: u64,
    },
    /// Its group has its maximum of running jobs in this queue.
    GroupInQueueBusy {
        limit: u64,
    },
    /// The whole system has used the starts of this window.
    WindowSpent {
        limit: u64,
        until: Timestamp,
    },
    /// Its queue has used the starts that its downstream allows in this window.
    QueueSpent {
        limit: u64,
        until: Timestamp,
    },
    /// The ready queue of its queue is full.
    ReadyFull {
        ready: u64,
    },
    /// Nothing holds it: it starts when a worker of its queue is free and polls.
    Workers {
        queue: QueueId,
    },
}

/// A queue and its rate.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct QueueView {
    pub id: QueueId,
    /// Starts per second: the configured rate, and the rate its downstream currently bears.
    pub configured_rps: f64,
    pub rps: f64,
    /// Running jobs, and how many there may be over all processes.
    pub running: u64,
    pub max_running: Option<u32>,
    /// Starts in the current window.
    pub started: u64,
    pub ready: u64,
    /// Groups in its order.
    pub groups_waiting: u64,
    /// When its downstream last reported overload.
    pub last_cut_at: Option<Timestamp>,
    /// The downstream asked for no calls until then.
    pub held_until: Option<Timestamp>,
}

/// What waits and runs in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QueueBacklog {
    pub queue: QueueId,
    /// Jobs that could start, if nothing held them.
    pub waiting: u64,
    pub delayed: u64,
    pub running: u64,
    /// When the oldest of the jobs that go next was accepted, in whole seconds: of each flow in the order the first job,
    /// and of each priority the first 300 flows.
    pub oldest_waiting_since: Option<Timestamp>,
}

/// The limits in effect.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LimitsView {
    pub global_rps: Quota,
    /// The configured value.
    pub configured_global_rps: Quota,
    pub limit_per_window: u64,
    pub window_ms: Millis,
    /// Whether queues follow what their downstream sustains.
    pub adaptive: bool,
    /// Limits of queues set at run time, in order of name.
    pub queues: Vec<(QueueId, QueueLimits)>,
    /// The latest changes, the newest last.
    pub changes: Vec<LimitChange>,
}
