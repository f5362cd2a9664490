//! Bulk jobs: groups, batches, jobs, leases, limits and push targets.

mod batch;
mod congestion;
mod dead;
mod group;
mod job;
mod lease;
mod limits;
mod target;
mod why;

pub use batch::{Batch, BatchCounts, BatchStatus, Cancelled, OpenBatch, Sealed};
pub use congestion::{Congestion, CongestionLevel, CongestionPoint, CongestionSummary};
pub use dead::{DeadSelection, JobName};
pub use group::{Ceilings, Estimate, Group, GroupLimits, NoEstimate, PatchGroup, Reason};
pub use job::{
    DeathReason, DelayReason, EnqueueJobs, Enqueued, Job, JobPriority, JobState, NewJob, RefusedJob,
    StateCounts,
};
pub use lease::{
    Extend, ExtendedLease, ExtendedLeases, JobOutcome, Lease, LeaseStop, LeasedJob, LeasedJobs, Settle,
    SettledAs, SettledJob, SettledJobs, Settlement, ThrottleScope,
};
pub use limits::{LimitChange, LimitSetting, Limits, PatchLimits, PatchQueueLimits, QueueLimits};
pub use target::{Calls, LastFailure, Target, TargetState};
pub use why::{WaitReason, Why};
