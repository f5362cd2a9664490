//! A store that counts and times its calls for the metrics. Requests, push workers and the engine's services all use it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use tidegate_core::bulk::views::{Cursor, DeadFilter, JobFilter, Page};
use tidegate_core::bulk::{Command, LeaseOutcome, LeaseParams, Outcome, Refusal};
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkNotifier, BulkStore, FoundJob, JobDetails, LeasedJob};

use crate::metrics::Metrics;

pub(crate) struct Observed {
    store: Arc<dyn BulkStore>,
    metrics: Arc<Metrics>,
}

impl std::fmt::Debug for Observed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}

impl Observed {
    pub(crate) fn new(store: Arc<dyn BulkStore>, metrics: Arc<Metrics>) -> Self {
        Self { store, metrics }
    }

    async fn timed<T>(
        &self,
        operation: &'static str,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<(T, Duration), StoreError> {
        let begun = Instant::now();
        let answer = call.await;
        let took = begun.elapsed();
        self.metrics.called(operation, took, answer.is_ok());
        answer.map(|answer| (answer, took))
    }

    fn count(&self, outcome: &Outcome, took: Duration) {
        match outcome {
            Outcome::Enqueue(Ok(outcome)) => self.metrics.enqueued(outcome),
            Outcome::Admit(outcome) => self.metrics.admitted(outcome),
            Outcome::Lease(outcome) => {
                let groups = outcome.jobs.iter().map(|job| &job.group);
                self.metrics.leased(groups, outcome.stop);
            }
            Outcome::Settle(outcome) => self.metrics.settled(outcome),
            Outcome::ReleaseDue(outcome) => self.metrics.released(*outcome, took),
            Outcome::ExpireLeases(outcome) => self.metrics.expired(*outcome),
            _ => {}
        }
    }
}

/// The label of a command in the metrics.
fn operation(command: &Command) -> &'static str {
    match command {
        Command::Enqueue(_) => "enqueue",
        Command::OpenBatch(_) => "open_batch",
        Command::SealBatch(_) => "seal_batch",
        Command::Admit(_) => "admit",
        Command::Lease(_) => "lease",
        Command::Extend(_) => "extend",
        Command::Settle(_) => "settle",
        Command::ReleaseDue(_) => "release_due",
        Command::ExpireLeases(_) => "expire_leases",
        Command::ClaimAggregation(_) => "claim_aggregation",
        Command::FinishAggregation(_) => "finish_aggregation",
        Command::ConfirmCompletion(_) => "confirm_completion",
        Command::Pause(_) => "pause",
        Command::Resume(_) => "resume",
        Command::Cancel(_) => "cancel",
        Command::ConfigureGroup(_) => "configure_group",
        Command::Replay(_) => "replay",
        Command::Purge(_) => "purge",
        Command::ChangeJobs(_) => "change_jobs",
        Command::ConfigureLimits(_) => "configure_limits",
        Command::DropFinished(_) => "drop_finished",
        Command::SnapshotCongestion(_) => "snapshot_congestion",
        Command::ResetStats(_) => "reset_stats",
        Command::Query(_) => "query",
    }
}

#[async_trait]
impl BulkStore for Observed {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        let (outcome, took) = self.timed(operation(&command), self.store.apply(command)).await?;
        self.count(&outcome, took);
        Ok(outcome)
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        let (outcome, _) = self.timed("lease", self.store.lease(params)).await?;
        let groups = outcome.jobs.iter().map(|job| &job.leased.group);
        self.metrics.leased(groups, outcome.stop);
        Ok(outcome)
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        let (answer, _) = self.timed("job", self.store.job(group, job)).await?;
        Ok(answer)
    }

    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError> {
        let call = self.store.results(group, batch, after, max);
        let (answer, _) = self.timed("results", call).await?;
        Ok(answer)
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let (answer, _) = self.timed("dead", self.store.dead(filter, after, max)).await?;
        Ok(answer)
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let (answer, _) = self.timed("jobs", self.store.jobs(filter, after, max)).await?;
        Ok(answer)
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.store.notifier()
    }
}
