//! Bulk jobs: groups, batches, jobs, leases, limits and push targets.

mod batch;
mod change_jobs;
mod congestion;
mod dead;
mod group;
mod job;
mod lease;
mod limits;
mod target;
mod why;

pub use batch::{Batch, BatchCounts, BatchStatus, Cancelled, OpenBatch, Sealed};
pub use change_jobs::{
    ChangedJobs, DropFinishedJobs, DroppedJobs, JobSelection, ReprioritiseJob, ReprioritiseJobs,
    RescheduleJob, RescheduleJobs, SkippedJob,
};
pub use congestion::{Congestion, CongestionLevel, CongestionPoint, CongestionSummary};
pub use dead::{DeadSelection, JobName};
pub use group::{Estimate, Group, GroupLimits, NoEstimate, OwnLimits, PatchGroup, Reason};
pub use job::{
    DeathReason, DelayReason, EnqueueJobs, Enqueued, Job, JobPriority, JobProgress, JobRun, JobState, NewJob,
    RefusedJob, RunOutcome, StateCounts,
};
pub use lease::{
    Extend, ExtendedLease, ExtendedLeases, JobOutcome, Lease, LeaseStop, LeasedJob, LeasedJobs, Settle,
    SettledAs, SettledJob, SettledJobs, Settlement, ThrottleScope,
};
pub use limits::{
    Limit, LimitChange, LimitSetting, Limits, PatchLimit, PatchLimits, PatchQueueLimits, QueueLimits, Rate,
};
pub use target::{Calls, LastFailure, Target, TargetState};
pub use why::{WaitReason, Why};
