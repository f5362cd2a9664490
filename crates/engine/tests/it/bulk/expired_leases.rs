//! Leases whose replies come late, in virtual time: the process, the machine or the server stalled between a lease and
//! the start of the job. A job whose lease is too old by then does not start: another worker may have it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use tidegate_core::bulk::views::{Cursor, DeadFilter, JobFilter, Page};
use tidegate_core::bulk::{Command, LeaseOutcome, LeaseParams, Outcome, Refusal};
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Millis;
use tidegate_engine::bulk::{BulkServiceBuilder, Job, JobError};
use tidegate_store::StoreError;
use tidegate_store::bulk::{BulkNotifier, BulkStore, FoundJob, JobDetails, LeasedJob, ModelBulkStore};

use super::world::{World, decided, kind};

const TIMEOUT: Millis = Millis(500);

/// A store whose first reply with leases is delayed this long. The leases begin before the delay.
struct Slow {
    inner: Arc<ModelBulkStore>,
    late_ms: AtomicU64,
    /// How many such replies there were.
    leases: AtomicU64,
}

impl Slow {
    fn new(world: &World, late: Millis) -> Arc<Self> {
        Arc::new(Self {
            inner: world.store.clone(),
            late_ms: AtomicU64::new(late.0),
            leases: AtomicU64::new(0),
        })
    }

    fn builder(self: &Arc<Self>, world: &World) -> BulkServiceBuilder {
        BulkServiceBuilder::new(self.clone(), world.config.clone()).clock(world.clock.clone())
    }

    fn leases(&self) -> u64 {
        self.leases.load(Ordering::SeqCst)
    }
}

#[async_trait]
impl BulkStore for Slow {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        self.inner.apply(command).await
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        let outcome = self.inner.lease(params).await?;
        if !outcome.jobs.is_empty() {
            self.leases.fetch_add(outcome.jobs.len() as u64, Ordering::SeqCst);
            let late = self.late_ms.swap(0, Ordering::SeqCst);
            if late > 0 {
                sleep(late).await;
            }
        }
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
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.inner.dead(filter, after, max).await
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.inner.jobs(filter, after, max).await
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.inner.notifier()
    }
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// One worker, one job, and leases that outlast the timeout of a run by this much.
async fn world(margin: Millis, retries: u32) -> World {
    let world = World::new(|config| {
        config.worker_pool.worker_count = 1;
        config.worker_pool.job_timeout_ms = TIMEOUT;
        config.worker_pool.lease_margin_ms = margin;
        config.worker_pool.max_retry_count = retries;
    });
    world.submit("A", "mail", 0..1).await;
    world.seal("A").await;
    world
}

/// Which attempts started, by which worker, in order.
type Begun = Arc<Mutex<Vec<(&'static str, u32)>>>;

fn handler(
    by: &'static str,
    begun: Begun,
) -> impl Fn(Job) -> std::future::Ready<Result<(), JobError>> + Send + Sync + 'static {
    move |job: Job| {
        begun.lock().unwrap().push((by, job.attempt));
        std::future::ready(Ok(()))
    }
}

/// Without retries, one used attempt would leave the job dead.
#[tokio::test(start_paused = true)]
async fn a_job_whose_time_was_over_before_it_began_is_given_back_without_an_attempt() {
    let world = world(Millis(2_000), 0).await;
    // Later than the timeout of a run, while the lease is still valid.
    let slow = Slow::new(&world, TIMEOUT);
    let begun = Begun::default();
    let engine = slow
        .builder(&world)
        .handler(kind(), handler("one", begun.clone()));
    let engine = engine.start().unwrap();
    sleep(TIMEOUT.0 - 10).await;
    assert_eq!((slow.leases(), begun.lock().unwrap().len()), (1, 0));
    decided(&engine, "A").await;
    assert_eq!(slow.leases(), 2, "it was given back, and leased again");
    assert_eq!(*begun.lock().unwrap(), [("one", 1)]);
    let counts = world.batch("A").await.counts;
    assert_eq!((counts.success, counts.failed), (1, 0));
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn no_attempt_begins_after_a_later_one() {
    let world = world(Millis(500), 5).await;
    let slow = Slow::new(&world, Millis(60_000));
    let begun = Begun::default();
    let stalled = slow
        .builder(&world)
        .handler(kind(), handler("stalled", begun.clone()));
    let stalled = stalled.start().unwrap();
    sleep(10).await;
    assert_eq!(slow.leases(), 1, "it has the lease, and does not know yet");
    let other = world.builder().handler(kind(), handler("other", begun.clone()));
    let other = other.start().unwrap();
    decided(&other, "A").await;
    assert_eq!(*begun.lock().unwrap(), [("other", 2)]);
    sleep(120_000).await;
    assert_eq!(
        *begun.lock().unwrap(),
        [("other", 2)],
        "the first one came to nothing"
    );
    assert_eq!(world.batch("A").await.counts.success, 1);
    stalled.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_run_has_what_is_left_of_its_time() {
    let world = world(Millis(2_000), 0).await;
    let slow = Slow::new(&world, Millis(200));
    let left = Arc::new(Mutex::new(Vec::new()));
    let seen = left.clone();
    let handler = move |job: Job| {
        seen.lock().unwrap().push(job.timeout.0);
        std::future::pending::<Result<(), JobError>>()
    };
    let engine = slow.builder(&world).handler(kind(), handler).start().unwrap();
    decided(&engine, "A").await;
    let left = left.lock().unwrap().clone();
    // Timers are exact to a millisecond or two.
    assert!(
        left.len() == 1 && (295..=300).contains(&left[0]),
        "{left:?} ms of {TIMEOUT} were left"
    );
    assert_eq!(
        world.batch("A").await.counts.failed,
        1,
        "it did not return in time"
    );
    engine.shutdown().await.unwrap();
}
