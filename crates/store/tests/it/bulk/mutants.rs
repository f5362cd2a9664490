//! The suite catches mutants: each store has one fault and fails the case for it.
//!
//! Each fault sits between a case and the model, which passes the same case.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{Cursor, DeadFilter, JobFilter, Page, View, Wait};
use tidegate_core::bulk::{
    Command, Enqueued, Fence, JobCommand, JobSeq, LeaseOutcome, LeaseParams, LeaseRef, Outcome, Priority,
    Refusal, Set, Settled,
};
use tidegate_core::clock::ManualClock;
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Timestamp;
use tidegate_store::StoreError;
use tidegate_store::bulk::conformance::{Guard, case, cases};
use tidegate_store::bulk::{BulkNotifier, BulkStore, FoundJob, JobDetails, LeasedJob, ModelBulkStore};
use tidegate_testkit::conformance::catches;

/// What a wrong store does to its calls and answers.
trait Fault: Default + Send + 'static {
    fn config(&mut self, _config: &mut BulkConfig) {}
    fn before(&mut self, _command: &mut Command) {}
    fn after(&mut self, _outcome: &mut Outcome) {}
    fn leased(&mut self, _outcome: &mut LeaseOutcome<LeasedJob>) {}
    fn dead(&mut self, _filter: &mut DeadFilter, _after: &mut Option<Cursor>) {}
    fn jobs(&mut self, _filter: &mut JobFilter, _after: &mut Option<Cursor>) {}
}

struct Wrong<F> {
    inner: ModelBulkStore,
    fault: Mutex<F>,
}

impl<F> Wrong<F> {
    fn fault(&self) -> MutexGuard<'_, F> {
        self.fault.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<F: Fault> BulkStore for Wrong<F> {
    async fn apply(&self, mut command: Command) -> Result<Outcome, StoreError> {
        self.fault().before(&mut command);
        let mut outcome = self.inner.apply(command).await?;
        self.fault().after(&mut outcome);
        Ok(outcome)
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        let mut outcome = self.inner.lease(params).await?;
        self.fault().leased(&mut outcome);
        Ok(outcome)
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        self.inner.job(group, job).await
    }

    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError> {
        self.inner.results(group, batch, after, max).await
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        mut after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let mut filter = filter.clone();
        self.fault().dead(&mut filter, &mut after);
        self.inner.dead(&filter, after, max).await
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        mut after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        let mut filter = filter.clone();
        self.fault().jobs(&mut filter, &mut after);
        self.inner.jobs(&filter, after, max).await
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.inner.notifier()
    }
}

async fn open_wrong<F: Fault>(
    mut config: BulkConfig,
    clock: Arc<ManualClock>,
) -> Result<(Arc<dyn BulkStore>, Guard), StoreError> {
    let mut fault = F::default();
    fault.config(&mut config);
    let inner = ModelBulkStore::new(config, clock)?;
    let store = Wrong {
        inner,
        fault: Mutex::new(fault),
    };
    Ok((Arc::new(store), Box::new(())))
}

/// No fault: every named case must pass with it.
#[derive(Default)]
struct Flawless;
impl Fault for Flawless {}

/// The named case passes without the fault and fails with it.
async fn caught<F: Fault>(name: &str) {
    catches(
        case(name),
        Arc::new(open_wrong::<Flawless>),
        Arc::new(open_wrong::<F>),
    )
    .await;
}

/// Hands the last job of the call before to the next worker as well.
#[derive(Default)]
struct LeasesTwice(Option<LeasedJob>);

impl Fault for LeasesTwice {
    fn leased(&mut self, outcome: &mut LeaseOutcome<LeasedJob>) {
        let last = outcome.jobs.last().cloned();
        if !outcome.jobs.is_empty() {
            outcome.jobs.extend(self.0.take());
        }
        self.0 = last;
    }
}

/// Says "accepted" to every seventh job and forgets it.
#[derive(Default)]
struct LosesJobs {
    seen: usize,
    lost: Vec<usize>,
}

impl Fault for LosesJobs {
    fn before(&mut self, command: &mut Command) {
        let Command::Enqueue(params) = command else {
            return;
        };
        let jobs = std::mem::take(&mut params.jobs);
        for (place, job) in jobs.into_iter().enumerate() {
            self.seen += 1;
            if self.seen.is_multiple_of(7) {
                self.lost.push(place);
            } else {
                params.jobs.push(job);
            }
        }
    }

    fn after(&mut self, outcome: &mut Outcome) {
        let Outcome::Enqueue(Ok(outcome)) = outcome else {
            return;
        };
        for place in self.lost.drain(..) {
            outcome.jobs.insert(place, Enqueued::Accepted(JobSeq(u64::MAX)));
        }
    }
}

/// Gives the first group 64 times its weight.
#[derive(Default)]
struct HasAFavourite(Option<GroupId>);

impl Fault for HasAFavourite {
    fn before(&mut self, command: &mut Command) {
        if let Command::Enqueue(params) = command
            && *self.0.get_or_insert_with(|| params.group.clone()) == params.group
        {
            params.base_priority = Some(-6_000_000);
        }
    }
}

/// Starts twice as many jobs per window as configured.
#[derive(Default)]
struct RunsOverTheLimit;

impl Fault for RunsOverTheLimit {
    fn config(&mut self, config: &mut BulkConfig) {
        let rate = config.backpressure.global_rps.per_second() * 2.0;
        config.backpressure.global_rps = rate.into();
    }
}

/// Accepts any outcome of a job as that of its latest lease.
#[derive(Default)]
struct ForgetsFences(HashMap<JobSeq, Fence>);

impl Fault for ForgetsFences {
    fn leased(&mut self, outcome: &mut LeaseOutcome<LeasedJob>) {
        for LeaseRef { job, fence } in outcome.jobs.iter().map(|job| job.leased.lease) {
            self.0.insert(job, fence);
        }
    }

    fn before(&mut self, command: &mut Command) {
        if let Command::Settle(params) = command {
            for answer in &mut params.answers {
                if let Some(&fence) = self.0.get(&answer.lease.job) {
                    answer.lease.fence = fence;
                }
            }
        }
    }
}

/// Answers a repeated settle like the first one, so that it reports completion again.
#[derive(Default)]
struct ReportsTwice {
    asked: Vec<LeaseRef>,
    first: HashMap<LeaseRef, Settled>,
}

impl Fault for ReportsTwice {
    fn before(&mut self, command: &mut Command) {
        if let Command::Settle(params) = command {
            self.asked = params.answers.iter().map(|answer| answer.lease).collect();
        }
    }

    fn after(&mut self, outcome: &mut Outcome) {
        if let Outcome::Settle(settled) = outcome {
            for (lease, settled) in self.asked.iter().zip(settled) {
                *settled = *self.first.entry(*lease).or_insert(*settled);
            }
        }
    }
}

/// Detects no duplicates: accepts a second job with the same id.
#[derive(Default)]
struct KnowsNoDuplicates(HashMap<(GroupId, JobId), usize>);

impl Fault for KnowsNoDuplicates {
    fn before(&mut self, command: &mut Command) {
        if let Command::Enqueue(params) = command {
            for job in &mut params.jobs {
                let seen = self.0.entry((params.group.clone(), job.id.clone())).or_default();
                if *seen > 0 {
                    job.id = JobId::new(format!("{}#{seen}", job.id)).expect("a short name");
                }
                *seen += 1;
            }
        }
    }
}

/// Serves the newest job of a call first.
#[derive(Default)]
struct ServesTheNewest;

impl Fault for ServesTheNewest {
    fn before(&mut self, command: &mut Command) {
        if let Command::Enqueue(params) = command {
            params.jobs.reverse();
        }
    }

    fn after(&mut self, outcome: &mut Outcome) {
        if let Outcome::Enqueue(Ok(outcome)) = outcome {
            outcome.jobs.reverse();
        }
    }
}

/// Never takes a job from a worker that is gone.
#[derive(Default)]
struct WaitsForEver;

impl Fault for WaitsForEver {
    fn before(&mut self, command: &mut Command) {
        if let Command::ExpireLeases(params) = command {
            params.max = 0;
        }
    }
}

/// Drops the results of a batch that asked to keep them.
#[derive(Default)]
struct IgnoresKeptResults;

impl Fault for IgnoresKeptResults {
    fn before(&mut self, command: &mut Command) {
        if let Command::OpenBatch(params) = command {
            params.options.keep_results = false;
        }
    }
}

/// Ignores priorities.
#[derive(Default)]
struct IgnoresPriorities;

impl Fault for IgnoresPriorities {
    fn before(&mut self, command: &mut Command) {
        if let Command::Enqueue(params) = command {
            for job in &mut params.jobs {
                job.priority = Default::default();
            }
        }
    }
}

/// Ignores the filter of a list of dead jobs.
#[derive(Default)]
struct ListsAllTheDead;

impl Fault for ListsAllTheDead {
    fn dead(&mut self, filter: &mut DeadFilter, _after: &mut Option<Cursor>) {
        *filter = DeadFilter::default();
    }
}

/// Shows the last dead job of a page again on the next one.
#[derive(Default)]
struct ShowsTheDeadTwice;

impl Fault for ShowsTheDeadTwice {
    fn dead(&mut self, _filter: &mut DeadFilter, after: &mut Option<Cursor>) {
        *after = after.map(|Cursor(last)| Cursor(last + 1));
    }
}

/// Lists jobs in every state.
#[derive(Default)]
struct ListsEveryState;

impl Fault for ListsEveryState {
    fn jobs(&mut self, filter: &mut JobFilter, _after: &mut Option<Cursor>) {
        filter.state = None;
    }
}

/// Shows the last job of a page again on the next one.
#[derive(Default)]
struct ShowsJobsTwice;

impl Fault for ShowsJobsTwice {
    fn jobs(&mut self, _filter: &mut JobFilter, after: &mut Option<Cursor>) {
        // The slot is gone, and the job of the position is the one before.
        *after = after.map(|Cursor(at)| Cursor((at | 0xffff_ffff << 48) - 1));
    }
}

/// Starts jobs early that an operator wants later.
#[derive(Default)]
struct IgnoresSchedules;

impl Fault for IgnoresSchedules {
    fn before(&mut self, command: &mut Command) {
        if let Command::ChangeJobs(params) = command
            && let JobCommand::Reschedule { run_at } = &mut params.command
        {
            *run_at = Timestamp(0);
        }
    }
}

/// Takes a cancellation for another priority.
#[derive(Default)]
struct ForgetsCancellations;

impl Fault for ForgetsCancellations {
    fn before(&mut self, command: &mut Command) {
        if let Command::ChangeJobs(params) = command
            && params.command == JobCommand::Cancel
        {
            params.command = JobCommand::Reprioritise {
                priority: Priority::Low,
            };
        }
    }
}

/// Drops the progress that workers report.
#[derive(Default)]
struct IgnoresProgress;

impl Fault for IgnoresProgress {
    fn before(&mut self, command: &mut Command) {
        if let Command::Extend(params) = command {
            for extension in &mut params.leases {
                extension.progress = None;
            }
        }
    }
}

/// Opens batches without their callback.
#[derive(Default)]
struct ForgetsCallbacks;

impl Fault for ForgetsCallbacks {
    fn before(&mut self, command: &mut Command) {
        if let Command::OpenBatch(params) = command {
            params.options.callback = None;
        }
    }
}

/// Reports every purge as successful.
#[derive(Default)]
struct AlwaysPurges;

impl Fault for AlwaysPurges {
    fn after(&mut self, outcome: &mut Outcome) {
        if let Outcome::Purge(purged) = outcome {
            *purged = Ok(());
        }
    }
}

/// Reports to the millisecond since when a group waits.
#[derive(Default)]
struct WaitsToTheMillisecond;

impl Fault for WaitsToTheMillisecond {
    fn after(&mut self, outcome: &mut Outcome) {
        if let Outcome::Query(Ok(View::Group(view))) = outcome
            && let Some(since) = &mut view.waiting_since
        {
            since.0 += 999;
        }
    }
}

/// Accepts a changed rate and ignores it.
#[derive(Default)]
struct KeepsItsRates;

impl Fault for KeepsItsRates {
    fn before(&mut self, command: &mut Command) {
        if let Command::ConfigureLimits(params) = command {
            params.global_rps = Set::Keep;
            params.queues.clear();
        }
    }
}

/// Knows what holds a job, but not for how long.
#[derive(Default)]
struct ForgetsWhoIsAhead;

impl Fault for ForgetsWhoIsAhead {
    fn after(&mut self, outcome: &mut Outcome) {
        if let Outcome::Query(Ok(View::Why(why))) = outcome {
            why.waits.retain(|wait| !matches!(wait, Wait::Behind { .. }));
        }
    }
}

#[tokio::test]
async fn a_rate_that_does_not_change_is_caught() {
    caught::<KeepsItsRates>("run_time_limits::a_raised_limit_holds_at_once").await;
    caught::<KeepsItsRates>("run_time_limits::a_lowered_limit_holds_at_once").await;
    caught::<KeepsItsRates>("run_time_limits::a_queue_gets_another_rate").await;
}

#[tokio::test]
async fn a_reason_that_leaves_something_out_is_caught() {
    caught::<ForgetsWhoIsAhead>("why::a_job_knows_how_many_start_before_it").await;
}

#[tokio::test]
async fn a_double_lease_is_caught() {
    caught::<LeasesTwice>("leases::no_job_is_leased_twice").await;
}

#[tokio::test]
async fn a_lost_job_is_caught() {
    caught::<LosesJobs>("leases::every_accepted_job_runs").await;
}

#[tokio::test]
async fn an_unfair_pick_is_caught() {
    caught::<HasAFavourite>("fair_order::strict_alternation").await;
    caught::<HasAFavourite>("fair_order::enqueue_never_moves_a_backlogged_group").await;
}

#[tokio::test]
async fn running_over_the_limit_is_caught() {
    caught::<RunsOverTheLimit>("limits::the_eleventh_waits").await;
    caught::<RunsOverTheLimit>("limits::no_window_is_ever_overrun").await;
    caught::<RunsOverTheLimit>("limits::a_stall_does_not_become_a_burst").await;
}

#[tokio::test]
async fn a_forgotten_fence_is_caught() {
    caught::<ForgetsFences>("leases::a_late_answer_changes_nothing").await;
}

#[tokio::test]
async fn completion_reported_twice_is_caught() {
    caught::<ReportsTwice>("settle::completion_is_reported_once").await;
}

#[tokio::test]
async fn a_duplicate_accepted_is_caught() {
    caught::<KnowsNoDuplicates>("input::a_second_enqueue_changes_nothing").await;
}

#[tokio::test]
async fn newest_first_is_caught() {
    caught::<ServesTheNewest>("fair_order::ready_keeps_the_order_of_first_starts").await;
}

#[tokio::test]
async fn a_lease_without_end_is_caught() {
    caught::<WaitsForEver>("leases::a_job_whose_worker_died_comes_back").await;
}

#[tokio::test]
async fn results_dropped_too_early_are_caught() {
    caught::<IgnoresKeptResults>("batches::kept_results_outlive_finished_jobs").await;
}

#[tokio::test]
async fn ignored_priorities_are_caught() {
    caught::<IgnoresPriorities>("fair_order::a_group_may_have_jobs_at_several_priorities").await;
}

#[tokio::test]
async fn a_wrong_list_of_the_dead_is_caught() {
    caught::<ListsAllTheDead>("dead::a_filter_chooses_by_group_type_and_reason").await;
    caught::<ShowsTheDeadTwice>("dead::dead_jobs_come_in_pages").await;
}

#[tokio::test]
async fn a_wrong_list_of_jobs_is_caught() {
    caught::<ListsEveryState>("listing::a_filter_chooses_jobs").await;
    caught::<ShowsJobsTwice>("listing::jobs_are_listed_in_the_order_of_arrival").await;
}

#[tokio::test]
async fn a_command_on_a_job_that_is_not_carried_out_is_caught() {
    caught::<IgnoresSchedules>("change_jobs::a_job_is_rescheduled").await;
    caught::<ForgetsCancellations>("change_jobs::a_cancelled_running_job_ends_with_its_run").await;
}

#[tokio::test]
async fn a_lost_progress_is_caught() {
    caught::<IgnoresProgress>("one_job::a_worker_reports_its_progress").await;
}

#[tokio::test]
async fn a_purge_of_what_must_stay_is_caught() {
    caught::<AlwaysPurges>("dead::only_dead_jobs_are_purged").await;
    caught::<IgnoresKeptResults>("dead::a_job_that_is_to_be_aggregated_is_not_purged").await;
}

#[tokio::test]
async fn a_forgotten_callback_is_caught() {
    caught::<ForgetsCallbacks>("batches::a_batch_keeps_its_callback").await;
}

#[tokio::test]
async fn a_wrong_time_of_waiting_is_caught() {
    caught::<WaitsToTheMillisecond>("waiting_since::the_first_job_of_a_flow_says_since_when").await;
}

#[test]
fn every_case_has_a_name_of_its_own() {
    let mut names: Vec<&str> = cases().iter().map(|case| case.name).collect();
    names.sort_unstable();
    let total = names.len();
    names.dedup();
    assert_eq!(names.len(), total);
}
