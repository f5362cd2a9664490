//! The vocabulary of the cases: a store under its own clock, and short verbs for every transition. `make`
//! builds inputs, `look` reads results.
//!
//! The verbs panic if the store fails or rejects what a case takes for granted, so that case bodies show only
//! their subject. Refusals that a case *is* about go through [`Harness::call`].

use std::any::Any;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::*;
use tidegate_core::ids::Owner;
use tidegate_core::time::{Millis, Timestamp};

pub(super) use super::builders::*;
use tidegate_core::clock::{Clock, ManualClock};

use crate::StoreError;
use crate::bulk::{BulkStore, BulkStoreExt, LeasedJob};

/// When every case begins: the start of a window of 1 s and of 10 s.
pub const START: Timestamp = Timestamp(1_706_000_000_000);

/// What has to outlive the store: its folder, its server.
pub type Guard = Box<dyn Any + Send + Sync>;

/// Creates a fresh, empty store. Any `async fn(BulkConfig, Arc<ManualClock>)` with this return type is a
/// backend.
#[async_trait]
pub trait Backend: Send + Sync {
    async fn open(
        &self,
        config: BulkConfig,
        clock: Arc<ManualClock>,
    ) -> Result<(Arc<dyn BulkStore>, Guard), StoreError>;

    /// The number of shards that groups are spread over. Order between groups is exact within one shard;
    /// between shards it is within the bound that [`Harness::assert_order`] states.
    fn shards(&self) -> usize {
        1
    }
}

#[async_trait]
impl<F, A> Backend for F
where
    F: Fn(BulkConfig, Arc<ManualClock>) -> A + Send + Sync,
    A: Future<Output = Result<(Arc<dyn BulkStore>, Guard), StoreError>> + Send,
{
    async fn open(
        &self,
        config: BulkConfig,
        clock: Arc<ManualClock>,
    ) -> Result<(Arc<dyn BulkStore>, Guard), StoreError> {
        self(config, clock).await
    }
}

pub struct Harness {
    // Dropped in this order: the store before what it depends on.
    pub store: Arc<dyn BulkStore>,
    pub clock: Arc<ManualClock>,
    pub config: BulkConfig,
    pub shards: usize,
    _guard: Guard,
}

impl fmt::Debug for Harness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Harness")
            .field("clock", &self.clock)
            .finish_non_exhaustive()
    }
}

impl Harness {
    /// A fresh store with the default configuration.
    pub async fn new(backend: &dyn Backend) -> Self {
        Self::with(backend, |_| {}).await
    }

    /// A fresh store at `rps` starts per second, in windows of one second.
    pub async fn at_rate(backend: &dyn Backend, rps: f64) -> Self {
        Self::with(backend, |config| config.backpressure.global_rps = rps.into()).await
    }

    /// A fresh store with a changed configuration.
    pub async fn with(backend: &dyn Backend, change: impl FnOnce(&mut BulkConfig)) -> Self {
        Self::try_with(backend, change)
            .await
            .unwrap_or_else(|error| panic!("the store does not open: {error}"))
    }

    pub async fn try_with(
        backend: &dyn Backend,
        change: impl FnOnce(&mut BulkConfig),
    ) -> Result<Self, StoreError> {
        let mut config = BulkConfig::default();
        // What a downstream sustains has cases of its own.
        config.congestion.adaptive = false;
        change(&mut config);
        let clock = Arc::new(ManualClock::at(START));
        let (store, guard) = backend.open(config.clone(), clock.clone()).await?;
        Ok(Self {
            store,
            clock,
            config,
            shards: backend.shards(),
            _guard: guard,
        })
    }

    /// Compares the order in which groups were served, one character each. Exact with one shard; with several,
    /// no group is ever more than one start per shard ahead of or behind its place.
    pub fn assert_order(&self, order: &str, expected: &str, why: &str) {
        if self.shards == 1 {
            assert_eq!(order, expected, "{why}");
            return;
        }
        assert_eq!(
            order.len(),
            expected.len(),
            "{why}: {order} is as long as {expected}"
        );
        for end in 1..=order.len() {
            for group in expected.chars() {
                let served = order[..end].matches(group).count();
                let due = expected[..end].matches(group).count();
                assert!(
                    served.abs_diff(due) <= self.shards,
                    "{why}: {group} after {end} of {order}"
                );
            }
        }
    }

    /// One transition with its whole outcome; the store must not fail.
    pub async fn call<T: Transition + Send + 'static>(&self, params: T) -> T::Outcome {
        self.store
            .call(params)
            .await
            .unwrap_or_else(|error| panic!("the store failed: {error}"))
    }

    // --- time

    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    pub fn elapsed(&self) -> Millis {
        self.now().since(START)
    }

    pub fn advance(&self, ms: u64) {
        self.clock.advance(Millis(ms));
    }

    /// Advances to the start of the next window.
    pub fn next_window(&self) {
        let length = self.config.backpressure.window().0;
        self.clock.set(Timestamp((self.now().0 / length + 1) * length));
    }

    // --- jobs in

    pub async fn try_enqueue(
        &self,
        group_name: &str,
        batch_name: Option<&str>,
        jobs: Vec<NewJob>,
    ) -> Result<EnqueueOutcome, Refusal> {
        self.call(EnqueueParams {
            group: group(group_name),
            batch: batch_name.map(batch),
            base_priority: None,
            jobs,
        })
        .await
    }

    /// Enqueues to the group's open batch.
    pub async fn enqueue(&self, group: &str, jobs: Vec<NewJob>) -> EnqueueOutcome {
        let outcome = self.try_enqueue(group, None, jobs).await;
        outcome.unwrap_or_else(|refusal| panic!("enqueue for {group} was refused: {refusal}"))
    }

    pub async fn enqueue_to(&self, group: &str, batch: &str, jobs: Vec<NewJob>) -> EnqueueOutcome {
        let outcome = self.try_enqueue(group, Some(batch), jobs).await;
        outcome.unwrap_or_else(|refusal| panic!("enqueue for {group}/{batch} was refused: {refusal}"))
    }

    /// Enqueues `A-0` … for group `A`; every one must be accepted.
    pub async fn enqueue_n(&self, group: &str, n: usize) {
        let outcome = self.enqueue(group, jobs(group, n)).await;
        let accepted = |one: &Enqueued| matches!(one, Enqueued::Accepted(_));
        assert!(
            outcome.jobs.iter().all(accepted),
            "not all accepted: {:?}",
            outcome.jobs
        );
    }

    /// A group whose only job is due in a year: it counts as active and never starts.
    pub async fn enqueue_sleeper(&self, group: &str) {
        let later = NewJob {
            run_at: Some(self.now() + Millis::from_secs(365 * 86_400)),
            ..job("sleeper")
        };
        self.enqueue(group, vec![later]).await;
    }

    pub async fn configure(&self, name: &str, base_priority: Option<i32>, limits: Option<GroupLimits>) {
        let params = ConfigureGroupParams {
            group: group(name),
            base_priority,
            limits,
        };
        self.call(params)
            .await
            .unwrap_or_else(|refusal| panic!("configuring {name} was refused: {refusal}"));
    }

    // --- jobs out

    pub async fn admit_in(&self, name: &str, max: u32, ready_cap: u32) -> AdmitOutcome {
        let queue = queue(name);
        self.call(AdmitParams {
            queue,
            max,
            ready_cap,
        })
        .await
    }

    pub async fn admit(&self, max: u32, ready_cap: u32) -> AdmitOutcome {
        self.admit_in("default", max, ready_cap).await
    }

    pub async fn lease_in(&self, name: &str, max: u32) -> LeaseOutcome<LeasedJob> {
        let owner = Owner::new("worker").expect("a valid owner");
        let params = LeaseParams {
            queue: queue(name),
            max,
            owner,
        };
        self.store
            .lease(params)
            .await
            .unwrap_or_else(|error| panic!("the store failed: {error}"))
    }

    pub async fn lease(&self, max: u32) -> LeaseOutcome<LeasedJob> {
        self.lease_in("default", max).await
    }

    /// Up to `max` jobs of the default queue.
    pub async fn take(&self, max: u32) -> Vec<LeasedJob> {
        self.lease(max).await.jobs
    }

    /// Exactly `n` jobs, all in one call.
    pub async fn take_all(&self, n: u32) -> Vec<LeasedJob> {
        let outcome = self.lease(n).await;
        assert_eq!(
            outcome.jobs.len() as u32,
            n,
            "jobs leased; stopped by {:?}",
            outcome.stop
        );
        outcome.jobs
    }

    pub async fn take_one(&self) -> LeasedJob {
        self.take_all(1).await.remove(0)
    }

    /// Leases one by one, as many workers would, and returns the groups: `ABAB`.
    pub async fn order(&self, n: usize) -> String {
        let mut order = String::new();
        for _ in 0..n {
            order += &groups(&[self.take_one().await]);
        }
        order
    }

    // --- outcomes

    pub async fn settle_lease(&self, lease: LeaseRef, outcome: JobOutcome) -> Settled {
        let answers = vec![Settlement {
            lease,
            outcome,
            cost: None,
        }];
        self.call(SettleParams { answers }).await[0]
    }

    pub async fn settle(&self, job: &LeasedJob, outcome: JobOutcome) -> Settled {
        self.settle_lease(job.leased.lease, outcome).await
    }

    pub async fn settle_all(&self, jobs: &[LeasedJob], outcome: JobOutcome) -> Vec<Settled> {
        let answer = |job: &LeasedJob| Settlement {
            lease: job.leased.lease,
            outcome: outcome.clone(),
            cost: None,
        };
        let answers = jobs.iter().map(answer).collect();
        self.call(SettleParams { answers }).await
    }

    /// Leases and completes jobs until nothing can start in this window; returns what ran.
    pub async fn run(&self, max: u32) -> Vec<LeasedJob> {
        let jobs = self.take(max).await;
        self.settle_all(&jobs, done()).await;
        jobs
    }

    /// Throttles `n` runs of the default queue without a Retry-After, over as many windows as needed, because
    /// throttles lower the queue's rate. Releases nothing meanwhile.
    pub async fn throttle_n(&self, n: usize) -> Vec<Settled> {
        let mut settled = Vec::new();
        while settled.len() < n {
            let jobs = self.take((n - settled.len()) as u32).await;
            settled.extend(self.settle_all(&jobs, throttled()).await);
            if settled.len() < n {
                self.next_window();
            }
            assert!(self.elapsed() < Millis::from_secs(3_600), "the queue has stopped");
        }
        settled
    }

    pub async fn release_due(&self) -> ReleaseDueOutcome {
        self.call(ReleaseDueParams { max: 10_000 }).await
    }

    pub async fn expire_leases(&self) -> ExpireLeasesOutcome {
        self.call(ExpireLeasesParams { max: 10_000 }).await
    }

    pub async fn extend(&self, leased: &LeasedJob, ms: u64) -> Extended {
        let leases = vec![leased.leased.lease.into()];
        self.call(ExtendParams {
            leases,
            by: Millis(ms),
        })
        .await[0]
    }

    // --- batches

    pub async fn open_batch(&self, group_name: &str, name: &str, options: BatchOptions) -> Opened {
        self.call(OpenBatchParams {
            group: group(group_name),
            batch: batch(name),
            base_priority: None,
            options,
        })
        .await
        .unwrap_or_else(|refusal| panic!("opening {group_name}/{name} was refused: {refusal}"))
    }

    /// Seals the named batch, or the group's open one.
    pub async fn try_seal(&self, group_name: &str, name: Option<&str>) -> Result<Sealed, Refusal> {
        let params = SealBatchParams {
            group: group(group_name),
            batch: name.map(batch),
        };
        self.call(params).await
    }

    pub async fn seal(&self, group: &str) -> Sealed {
        let sealed = self.try_seal(group, None).await;
        sealed.unwrap_or_else(|refusal| panic!("sealing the batch of {group} was refused: {refusal}"))
    }

    pub async fn claim(&self, claim_for_ms: u64) -> Vec<Aggregation> {
        let owner = Owner::new("aggregator").expect("a valid owner");
        let claim_for = Millis(claim_for_ms);
        self.call(ClaimAggregationParams {
            owner,
            max: 100,
            claim_for,
        })
        .await
    }

    pub async fn finish(
        &self,
        claimed: &Aggregation,
        summary: Result<&str, &str>,
    ) -> Result<BatchStatus, Refusal> {
        self.call(FinishAggregationParams {
            group: claimed.group.clone(),
            batch: claimed.batch.clone(),
            claim: claimed.claim,
            summary: summary
                .map(|text| Bytes::from(text.to_owned()))
                .map_err(str::to_owned),
        })
        .await
    }

    pub async fn confirm(&self, claimed: &Aggregation) -> Result<(), Refusal> {
        let (group, batch) = (claimed.group.clone(), claimed.batch.clone());
        self.call(ConfirmCompletionParams { group, batch }).await
    }

    /// Folds and confirms every complete batch, as the aggregator does.
    pub async fn aggregate_all(&self) -> Vec<BatchStatus> {
        let mut decided = Vec::new();
        for claimed in self.claim(60_000).await {
            let status = self.finish(&claimed, Ok("sum")).await;
            decided.push(status.unwrap_or_else(|refusal| panic!("finishing was refused: {refusal}")));
            let confirmed = self.confirm(&claimed).await;
            confirmed.unwrap_or_else(|refusal| panic!("confirming was refused: {refusal}"));
        }
        decided
    }

    pub async fn pause(&self, scope: Scope) {
        let paused = self.call(PauseParams { scope: scope.clone() }).await;
        paused.unwrap_or_else(|refusal| panic!("pausing {scope:?} was refused: {refusal}"));
    }

    pub async fn resume(&self, scope: Scope) {
        let resumed = self.call(ResumeParams { scope: scope.clone() }).await;
        resumed.unwrap_or_else(|refusal| panic!("resuming {scope:?} was refused: {refusal}"));
    }

    pub async fn cancel(&self, scope: Scope) -> CancelOutcome {
        let cancelled = self
            .call(CancelParams {
                scope: scope.clone(),
                max: 10_000,
            })
            .await;
        cancelled.unwrap_or_else(|refusal| panic!("cancelling {scope:?} was refused: {refusal}"))
    }

    pub async fn replay(&self, group_name: &str, id: &str) -> Result<JobSeq, Refusal> {
        let params = ReplayParams {
            group: group(group_name),
            job: job_id(id),
        };
        self.call(params).await
    }

    pub async fn purge(&self, group_name: &str, id: &str) -> Result<(), Refusal> {
        let params = PurgeParams {
            group: group(group_name),
            job: job_id(id),
        };
        self.call(params).await
    }

    pub async fn drop_finished(&self) -> DropFinishedOutcome {
        self.call(DropFinishedParams {
            max: 10_000,
            older_than: None,
        })
        .await
    }
}
