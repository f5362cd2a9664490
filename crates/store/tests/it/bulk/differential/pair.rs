//! Two stores side by side: every command goes to both, and both must answer the same.
//!
//! The reference is the pure state machine. Reads of the other store do not move its clock, so both are
//! brought to the same time first.

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use tidegate_core::bulk::views::{Cursor, DeadFilter, GroupView, JobFilter, Page, Query, View};
use tidegate_core::bulk::{
    Command, DeathReason, JobState, LeaseOutcome, LeaseParams, Outcome, Refusal, ResetStatsParams,
};
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkNotifier, BulkStore, FoundJob, JobDetails, LeasedJob};
use tidegate_testkit::differential::same;

/// Commands between two comparisons of everything.
const LOOK_EVERY: u64 = 40;

pub(super) struct Pair {
    reference: Arc<dyn BulkStore>,
    other: Arc<dyn BulkStore>,
    commands: AtomicU64,
}

impl Debug for Pair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pair").finish_non_exhaustive()
    }
}

impl Pair {
    pub(super) fn new(reference: Arc<dyn BulkStore>, other: Arc<dyn BulkStore>) -> Self {
        Self {
            reference,
            other,
            commands: AtomicU64::new(0),
        }
    }

    async fn both(&self, command: Command) -> Result<Outcome, StoreError> {
        let asked = command.clone();
        let one = self.reference.apply(command.clone()).await?;
        let other = self.other.apply(command).await?;
        Ok(same(&self.commands, &asked, one, other))
    }

    async fn same_time(&self) -> Result<(), StoreError> {
        let nobody = GroupId::new("nobody").expect("a short name");
        let nothing = ResetStatsParams { group: nobody };
        self.both(Command::ResetStats(nothing)).await.map(drop)
    }

    async fn query(&self, query: Query) -> Result<Result<View, Refusal>, StoreError> {
        match self.both(Command::Query(query)).await? {
            Outcome::Query(view) => Ok(view),
            other => unreachable!("a query is answered with a view, not {other:?}"),
        }
    }

    /// Compares a view of something that exists.
    async fn seen(&self, query: Query) -> Result<(), StoreError> {
        let asked = query.clone();
        match self.query(query).await? {
            Ok(_) => Ok(()),
            Err(refusal) => panic!("{asked:?} was refused: {refusal}"),
        }
    }

    /// Compares everything that can be read.
    async fn look(&self) -> Result<(), StoreError> {
        for query in [Query::BulkStats, Query::Queues, Query::Backlog, Query::Limits] {
            self.seen(query).await?;
        }
        let all = Query::CongestionSummary {
            after: None,
            max: 1_000,
        };
        self.seen(all).await?;
        let all = Query::Groups {
            after: None,
            max: 1_000,
        };
        let Ok(View::Groups(groups)) = self.query(all).await? else {
            unreachable!("groups are answered with groups");
        };
        for group in groups.items {
            self.look_at(&group).await?;
        }
        for reason in [DeathReason::Failed, DeathReason::Cancelled] {
            let filter = DeadFilter {
                reason: Some(reason),
                ..DeadFilter::default()
            };
            self.look_at_dead(&filter).await?;
        }
        for state in [None, Some(JobState::Delayed), Some(JobState::Running)] {
            let filter = JobFilter {
                state,
                ..JobFilter::default()
            };
            self.look_at_jobs(&filter).await?;
        }
        self.look_at_dead(&DeadFilter::default()).await
    }

    /// All of them: cursors of the two differ.
    async fn look_at_jobs(&self, filter: &JobFilter) -> Result<(), StoreError> {
        self.same_time().await?;
        let one = listed(&*self.reference, filter).await?;
        let other = listed(&*self.other, filter).await?;
        same(&self.commands, &("jobs", filter), one, other);
        Ok(())
    }

    /// Page by page: a cursor is the same number on both.
    async fn look_at_dead(&self, filter: &DeadFilter) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let max = 7;
            let page = self.dead(filter, after, max).await?;
            let filter = filter.clone();
            self.seen(Query::Dead { filter, after, max }).await?;
            after = page.next;
            if after.is_none() {
                return Ok(());
            }
        }
    }

    async fn look_at(&self, group: &GroupView) -> Result<(), StoreError> {
        let id = &group.id;
        for query in [
            Query::LimitStatus(id.clone()),
            Query::WhyGroup(id.clone()),
            Query::Congestion(id.clone()),
            Query::CongestionHistory {
                group: id.clone(),
                max: 5,
            },
        ] {
            self.seen(query).await?;
        }
        let of_group = DeadFilter {
            group: Some(id.clone()),
            ..DeadFilter::default()
        };
        self.look_at_dead(&of_group).await?;
        let of_group = JobFilter {
            group: Some(id.clone()),
            ..JobFilter::default()
        };
        self.look_at_jobs(&of_group).await?;
        for batch in &group.batches {
            let query = Query::Batch(id.clone(), batch.clone());
            self.seen(query).await?;
            let one = self.reference.results(id, batch, None, 1_000).await?;
            let other = self.other.results(id, batch, None, 1_000).await?;
            let items = |page: Result<Page<JobDetails>, Refusal>| page.map(|page| page.items);
            let jobs = same(&self.commands, &("jobs of", batch), items(one), items(other))
                .expect("the batch is there");
            for job in jobs.into_iter().filter(|job| !job.view.state.is_finished()) {
                self.seen(Query::WhyJob(id.clone(), job.id)).await?;
            }
        }
        Ok(())
    }
}

async fn listed(store: &dyn BulkStore, filter: &JobFilter) -> Result<Vec<FoundJob>, StoreError> {
    let (mut all, mut after) = (Vec::new(), None);
    loop {
        let page = store.jobs(filter, after, 7).await?;
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            return Ok(all);
        }
    }
}

#[async_trait]
impl BulkStore for Pair {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        let read = matches!(command, Command::Query(_));
        if read {
            self.same_time().await?;
        }
        let outcome = self.both(command).await?;
        if !read
            && self
                .commands
                .fetch_add(1, Ordering::Relaxed)
                .is_multiple_of(LOOK_EVERY)
        {
            self.look().await?;
        }
        Ok(outcome)
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        let one = self.reference.lease(params.clone()).await?;
        let other = self.other.lease(params.clone()).await?;
        Ok(same(&self.commands, &params, one, other))
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        self.same_time().await?;
        let one = self.reference.job(group, job).await?;
        let other = self.other.job(group, job).await?;
        Ok(same(&self.commands, &(group, job), one, other))
    }

    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError> {
        self.reference.results(group, batch, after, max).await
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.same_time().await?;
        let one = self.reference.dead(filter, after, max).await?;
        let other = self.other.dead(filter, after, max).await?;
        Ok(same(
            &self.commands,
            &("dead jobs", filter, after, max),
            one,
            other,
        ))
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        // A cursor means something to its own store only; see `look_at_jobs`.
        self.reference.jobs(filter, after, max).await
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.reference.notifier()
    }
}
