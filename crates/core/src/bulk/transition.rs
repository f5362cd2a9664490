//! Every transition by name: its parameters, its outcome, and one value for any of them.

use super::change_jobs::ChangeJobsParams;
use super::command::*;
use super::job::JobState;
use super::purge::PurgeParams;
use super::refusal::Refusal;
use super::stats::ResetStatsParams;
use super::views::{Query, View};

/// Ties a parameter type to its variant of [`Command`] and to its outcome.
pub trait Transition: Sized {
    type Outcome;
    fn into_command(self) -> Command;
    /// Extracts the outcome from what [`super::Bulk::apply`] returned. Panics if it belongs to another
    /// transition.
    fn outcome(outcome: Outcome) -> Self::Outcome;
}

macro_rules! transitions {
    ($($(#[$doc:meta])* $name:ident($params:ty) -> $outcome:ty,)+) => {
        /// Every command, as one value.
        #[derive(Debug, Clone, PartialEq)]
        pub enum Command { $($(#[$doc])* $name($params),)+ }

        /// Every outcome, as one value.
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
    /// Opens a batch that accepts jobs.
    OpenBatch(OpenBatchParams) -> Result<Opened, Refusal>,
    /// Closes a batch to further jobs, so that it can complete.
    SealBatch(SealBatchParams) -> Result<Sealed, Refusal>,
    /// Moves jobs to ready in fair order, within the rate.
    Admit(AdmitParams) -> AdmitOutcome,
    /// Leases jobs to a worker; the only transition that charges the rate.
    Lease(LeaseParams) -> LeaseOutcome,
    /// Extends the leases of running jobs.
    Extend(ExtendParams) -> Vec<Extended>,
    /// Records the outcomes that workers report.
    Settle(SettleParams) -> Vec<Settled>,
    /// Returns due delayed jobs to their flows.
    ReleaseDue(ReleaseDueParams) -> ReleaseDueOutcome,
    /// Takes jobs back from workers whose leases expired.
    ExpireLeases(ExpireLeasesParams) -> ExpireLeasesOutcome,
    /// Hands complete batches to an aggregator.
    ClaimAggregation(ClaimAggregationParams) -> Vec<Aggregation>,
    /// Records the aggregator's summary and decides the batch.
    FinishAggregation(FinishAggregationParams) -> Result<BatchStatus, Refusal>,
    /// Records that the aggregator has called the completion callback.
    ConfirmCompletion(ConfirmCompletionParams) -> Result<(), Refusal>,
    /// Takes a group or a batch out of the order.
    Pause(PauseParams) -> Result<(), Refusal>,
    /// Puts it back.
    Resume(ResumeParams) -> Result<(), Refusal>,
    /// Ends every job that is not running.
    Cancel(CancelParams) -> Result<CancelOutcome, Refusal>,
    /// Changes a group's weight and limits.
    ConfigureGroup(ConfigureGroupParams) -> Result<(), Refusal>,
    /// Requeues a dead job, with all its attempts.
    Replay(ReplayParams) -> Result<JobSeq, Refusal>,
    /// Deletes a dead job.
    Purge(PurgeParams) -> Result<(), Refusal>,
    /// Cancels, starts early, reschedules or reprioritises single jobs of a group.
    ChangeJobs(ChangeJobsParams) -> Vec<Result<JobState, Refusal>>,
    /// Changes limits at run time.
    ConfigureLimits(super::ConfigureLimitsParams) -> Result<(), Refusal>,
    /// Deletes finished data by age and count.
    DropFinished(super::DropFinishedParams) -> super::DropFinishedOutcome,
    /// Adds an entry to the congestion history of every group with congestion to report.
    SnapshotCongestion(SnapshotCongestionParams) -> u32,
    /// Clears a group's congestion statistics.
    ResetStats(ResetStatsParams) -> Result<(), Refusal>,
    /// Reads without changing anything.
    Query(Query) -> Result<View, Refusal>,
}
