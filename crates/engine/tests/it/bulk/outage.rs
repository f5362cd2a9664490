//! A store that is unavailable for a while: the services wait in virtual time, continue by themselves, and lose
//! nothing.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::bulk::config::BulkConfig;
use tidegate_core::bulk::views::{BulkStats, Cursor, DeadFilter, JobFilter, Page, Query, View};
use tidegate_core::bulk::{
    Command, EnqueueParams, ExpireLeasesParams, JobState, LeaseOutcome, LeaseParams, NewJob, Outcome,
    Priority, Refusal, SealBatchParams,
};
use tidegate_core::clock::Clock;
use tidegate_core::ids::{BatchId, GroupId, JobId, JobType, QueueId};
use tidegate_core::time::{Millis, Timestamp};
use tidegate_engine::bulk::{BulkService, BulkServiceBuilder, EngineError, Gate, Job, JobError};
use tidegate_store::StoreError;
use tidegate_store::bulk::{
    BulkNotifier, BulkStore, BulkStoreExt, FoundJob, JobDetails, LeasedJob, ModelBulkStore,
};
use tokio::time::Instant;

/// Virtual time, so many milliseconds ahead.
#[derive(Debug)]
struct VirtualClock(Instant, u64);

impl Clock for VirtualClock {
    fn now(&self) -> Timestamp {
        Timestamp(1_706_000_000_000) + Millis(self.0.elapsed().as_millis() as u64 + self.1)
    }
}

/// How calls end.
const FINE: u8 = 0;
/// Not carried out.
const UNAVAILABLE: u8 = 1;
/// Carried out, but the answer is lost.
const MUTE: u8 = 2;
/// Never again.
const BROKEN: u8 = 3;

/// Half of the jobs are on a server that does not respond: their outcomes fail late, the others settle.
const PART: u8 = 4;

/// A store with a bad connection.
struct Shaky {
    inner: ModelBulkStore,
    mode: AtomicU8,
    calls: AtomicU64,
}

impl Shaky {
    fn set(&self, mode: u8) {
        self.mode.store(mode, Ordering::SeqCst);
    }

    fn calls(&self) -> u64 {
        self.calls.load(Ordering::SeqCst)
    }

    fn before(&self) -> Result<(), StoreError> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        match self.mode.load(Ordering::SeqCst) {
            UNAVAILABLE => Err(store_error()),
            BROKEN => Err(StoreError::Corrupt("on purpose".into())),
            _ => Ok(()),
        }
    }

    fn after<T>(&self, answer: T) -> Result<T, StoreError> {
        match self.mode.load(Ordering::SeqCst) {
            MUTE => Err(store_error()),
            _ => Ok(answer),
        }
    }
}

fn store_error() -> StoreError {
    StoreError::Unavailable {
        server: "the store".into(),
        reason: "on purpose".into(),
    }
}

#[async_trait]
impl BulkStore for Shaky {
    async fn apply(&self, mut command: Command) -> Result<Outcome, StoreError> {
        self.before()?;
        if let (PART, Command::Settle(params)) = (self.mode.load(Ordering::SeqCst), &mut command) {
            let all = params.answers.len();
            params.answers.retain(|answer| answer.lease.job.0 % 2 == 1);
            if params.answers.len() < all {
                self.inner.apply(command).await?;
                sleep(5_000).await;
                return Err(store_error());
            }
        }
        self.after(self.inner.apply(command).await?)
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        self.before()?;
        self.after(self.inner.lease(params).await?)
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        self.before()?;
        self.after(self.inner.job(group, job).await?)
    }

    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError> {
        self.before()?;
        self.after(self.inner.results(group, batch, after, max).await?)
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.before()?;
        self.after(self.inner.dead(filter, after, max).await?)
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.before()?;
        self.after(self.inner.jobs(filter, after, max).await?)
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.inner.notifier()
    }
}

struct World {
    store: Arc<Shaky>,
    config: BulkConfig,
    clock: Arc<VirtualClock>,
}

impl World {
    /// Leases of a second, and as many attempts as it takes.
    fn new(change: impl FnOnce(&mut BulkConfig)) -> Self {
        let mut config = BulkConfig::default();
        config.worker_pool.job_timeout_ms = Millis(500);
        config.worker_pool.lease_margin_ms = Millis(500);
        config.worker_pool.max_retry_count = 100;
        config.worker_pool.shutdown_grace_period_ms = Millis(2_000);
        config.backpressure.max_backoff_ms = Millis(1_000);
        change(&mut config);
        let clock = Arc::new(VirtualClock(Instant::now(), 0));
        let store = Arc::new(Shaky {
            inner: ModelBulkStore::new(config.clone(), clock.clone()).unwrap(),
            mode: AtomicU8::new(FINE),
            calls: AtomicU64::new(0),
        });
        Self { store, config, clock }
    }

    fn builder(&self) -> BulkServiceBuilder {
        BulkServiceBuilder::new(self.store.clone(), self.config.clone())
            .clock(self.clock.clone())
            .claim_for(Millis(5_000))
    }

    async fn submit(&self, jobs: u64) {
        let job = |n: u64| NewJob {
            id: JobId::new(format!("job-{n}")).unwrap(),
            kind: kind(),
            priority: Priority::Normal,
            payload: Bytes::new(),
            run_at: None,
            expires_at: None,
            cost: 1,
        };
        let (group, batch) = (group(), Some(batch()));
        let params = EnqueueParams {
            group: group.clone(),
            batch: batch.clone(),
            base_priority: None,
            jobs: (0..jobs).map(job).collect(),
        };
        self.store.inner.call(params).await.unwrap().unwrap();
        let params = SealBatchParams { group, batch };
        self.store.inner.call(params).await.unwrap().unwrap();
    }

    async fn stats(&self) -> BulkStats {
        match self.store.inner.call(Query::BulkStats).await.unwrap().unwrap() {
            View::BulkStats(stats) => stats,
            other => panic!("{other:?}"),
        }
    }
}

fn group() -> GroupId {
    GroupId::new("A").unwrap()
}

fn batch() -> BatchId {
    BatchId::new("spring").unwrap()
}

fn kind() -> JobType {
    JobType::new("mail").unwrap()
}

async fn work(_: Job) -> Result<(), JobError> {
    tokio::time::sleep(Duration::from_millis(20)).await;
    Ok(())
}

/// Waits for the batch to be decided; returns how many jobs succeeded.
async fn decided(engine: &BulkService) -> u64 {
    let mut progress = engine.follow(group(), batch());
    let mut success = 0;
    while let Some(now) = progress.next().await {
        success = now.unwrap().counts.success;
    }
    success
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Otherwise the leases of jobs on other servers would expire, and those jobs would run again.
#[tokio::test(start_paused = true)]
async fn answers_for_an_unavailable_server_hold_up_no_others() {
    let world = World::new(|_| {});
    world.submit(200).await;
    world.store.set(PART);
    let runs: Arc<Mutex<BTreeMap<JobId, u32>>> = Arc::default();
    let counted = runs.clone();
    let handler = move |job: Job| {
        *counted.lock().unwrap().entry(job.id.clone()).or_default() += 1;
        work(job)
    };
    let engine = world.builder().handler(kind(), handler).start().unwrap();
    sleep(20_000).await;
    let mut done = 0;
    let runs = runs.lock().unwrap().clone();
    for (job, runs) in runs {
        let view = world.store.inner.job(&group(), &job).await.unwrap().unwrap().view;
        if view.seq.0 % 2 == 1 {
            assert_eq!((view.state, runs), (JobState::Completed, 1), "{job:?}");
            done += 1;
        }
    }
    assert_eq!(done, 100);
    world.store.set(FINE);
    assert_eq!(decided(&engine).await, 200);
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_paused_pipeline_resumes_by_itself_and_loses_nothing() {
    for mode in [UNAVAILABLE, MUTE] {
        let world = World::new(|_| {});
        world.submit(500).await;
        let callbacks = Arc::new(AtomicU64::new(0));
        let called = callbacks.clone();
        let engine = world
            .builder()
            .handler(kind(), work)
            .on_complete(move |_| {
                called.fetch_add(1, Ordering::SeqCst);
                async {}
            })
            .start()
            .unwrap();
        let store = world.store.clone();
        let weather = tokio::spawn(async move {
            for outage in [30_000, 300, 3_000] {
                sleep(200).await;
                store.set(mode);
                sleep(outage).await;
                store.set(FINE);
            }
        });
        assert_eq!(decided(&engine).await, 500, "mode {mode}");
        weather.await.unwrap();
        engine.shutdown().await.unwrap();
        assert_eq!(world.stats().await.counts.completed, 500);
        assert_eq!(callbacks.load(Ordering::SeqCst), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn no_service_hammers_an_unavailable_store() {
    let world = World::new(|_| {});
    world.submit(5).await;
    let engine = world.builder().handler(kind(), work).start().unwrap();
    world.store.set(UNAVAILABLE);
    sleep(100_000).await;
    // Seven services that retry every two seconds, and the shorter pauses before that.
    let calls = world.store.calls();
    assert!(calls < 1_000, "{calls}");
    world.store.set(FINE);
    assert_eq!(decided(&engine).await, 5);
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_outage_can_be_looked_at() {
    let world = World::new(|_| {});
    let engine = world.builder().handler(kind(), work).start().unwrap();
    let outage = engine.outage();
    sleep(3_000).await;
    assert_eq!(outage.lasts(), None);
    let begun = world.clock.now();
    world.store.set(UNAVAILABLE);
    // Every service calls within about a second.
    sleep(3_000).await;
    let unavailable = outage.lasts().unwrap();
    assert_eq!(unavailable.error, store_error().to_string());
    assert!(unavailable.since.since(begun) <= Millis(1_000), "{unavailable:?}");
    sleep(60_000).await;
    assert_eq!(outage.lasts(), Some(unavailable));
    world.store.set(FINE);
    sleep(2_500).await;
    assert_eq!(outage.lasts(), None);
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_is_leased_behind_a_gate_that_has_been_closed_is_given_back() {
    let world = World::new(|_| {});
    world.submit(4).await;
    world.store.set(UNAVAILABLE);
    let (gate, runs) = (Gate::default(), Arc::new(AtomicU64::new(0)));
    let counted = runs.clone();
    let handler = move |_: Job| {
        counted.fetch_add(1, Ordering::SeqCst);
        std::future::ready(Ok::<_, JobError>(()))
    };
    let builder = world.builder().handler(kind(), handler);
    let queue = QueueId::new("default").unwrap();
    let engine = builder.gate(queue, gate.clone()).start().unwrap();
    sleep(1_000).await;
    // The lease call is in flight, and stays so until the store is available again.
    gate.close("on purpose");
    world.store.set(FINE);
    sleep(10_000).await;
    let counts = world.stats().await.counts;
    assert_eq!(
        (runs.load(Ordering::SeqCst), counts.waiting),
        (0, 4),
        "{counts:?}"
    );
    gate.open();
    assert_eq!(decided(&engine).await, 4);
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn answers_are_delivered_if_the_store_comes_back_within_the_grace_period() {
    let world = World::new(|config| config.worker_pool.worker_count = 4);
    world.submit(4).await;
    let engine = world.builder().handler(kind(), work).start().unwrap();
    sleep(10).await;
    assert_eq!(world.stats().await.counts.running, 4);
    world.store.set(UNAVAILABLE);
    let store = world.store.clone();
    tokio::spawn(async move {
        sleep(700).await;
        store.set(FINE);
    });
    engine.shutdown().await.unwrap();
    assert_eq!(world.stats().await.counts.completed, 4);
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_ever_for_an_unavailable_store() {
    let world = World::new(|config| config.worker_pool.worker_count = 4);
    world.submit(4).await;
    let engine = world.builder().handler(kind(), work).start().unwrap();
    sleep(10).await;
    world.store.set(UNAVAILABLE);
    let mut progress = engine.follow(group(), batch());
    let begun = Instant::now();
    engine.shutdown().await.unwrap();
    assert!(
        begun.elapsed() <= Duration::from_millis(2_100),
        "{:?}",
        begun.elapsed()
    );
    while progress.next().await.is_some() {}
    // The leases of undelivered outcomes expire.
    world.store.set(FINE);
    assert_eq!(world.stats().await.counts.running, 4);
    sleep(1_000).await;
    let expired = world.store.call(ExpireLeasesParams { max: 10 }).await.unwrap();
    assert_eq!(expired.delayed, 4);
}

#[tokio::test(start_paused = true)]
async fn other_errors_end_the_engine() {
    let world = World::new(|_| {});
    let engine = world.builder().handler(kind(), work).start().unwrap();
    world.store.set(BROKEN);
    world.submit(1).await;
    engine.failed().await;
    let ended = engine.shutdown().await;
    assert!(
        matches!(ended, Err(EngineError::Store(StoreError::Corrupt(_)))),
        "{ended:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_store_whose_clock_is_behind_is_not_asked_all_the_time() {
    let world = World::new(|config| {
        config.backpressure.global_rps = 50.0.into();
        config.backpressure.default_backoff_ms = Millis(60_000);
        config.backpressure.max_backoff_ms = Millis(60_000);
    });
    world.submit(251).await;
    let ahead = Arc::new(VirtualClock(Instant::now(), 600_000));
    // One job is delayed for a minute, one runs all the time: the dispatcher and the sweeper know when.
    let handler = |job: Job| async move {
        match job.id.as_str() {
            "job-0" if job.attempt == 1 => Err(JobError::retry("later")),
            _ => Ok(()),
        }
    };
    let engine = world
        .builder()
        .clock(ahead)
        .handler(kind(), handler)
        .start()
        .unwrap();
    while world.stats().await.counts.completed < 250 {
        sleep(10).await;
    }
    let calls = world.store.calls();
    // Five windows with about twenty calls each by the pool; settles, and the services' own polls.
    assert!(calls < 900, "{calls}");
    assert_eq!(world.stats().await.most_started_per_window, 50);
    sleep(10_000).await;
    let calls = world.store.calls() - calls;
    assert!(calls < 300, "{calls} calls in ten seconds for one delayed job");
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_handlers_leaves_jobs_and_batches_to_others() {
    let world = World::new(|_| {});
    world.submit(3).await;
    let looking = world.builder().start().unwrap();
    sleep(10_000).await;
    assert_eq!(world.stats().await.counts.waiting, 3);
    let working = world.builder().handler(kind(), work).start().unwrap();
    assert_eq!(decided(&looking).await, 3);
    working.shutdown().await.unwrap();
    looking.shutdown().await.unwrap();
}

/// Counts the log lines of each level.
#[derive(Clone, Default)]
struct Logged(Arc<[AtomicU64; 2]>);

impl tracing::Subscriber for Logged {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target().ends_with("::outage")
    }
    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }
    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}
    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}
    fn event(&self, event: &tracing::Event<'_>) {
        let level = usize::from(*event.metadata().level() == tracing::Level::INFO);
        self.0[level].fetch_add(1, Ordering::SeqCst);
    }
    fn enter(&self, _: &tracing::span::Id) {}
    fn exit(&self, _: &tracing::span::Id) {}
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_once_when_it_begins_and_once_when_it_is_over() {
    let logged = Logged::default();
    // With only one subscriber, tracing caches a callsite as disabled for all threads if another test's thread meets it
    // first. A second subscriber prevents that.
    let _second = tracing::Dispatch::new(logged.clone());
    let _guard = tracing::subscriber::set_default(logged.clone());
    let counts = || [0, 1].map(|level: usize| logged.0[level].load(Ordering::SeqCst));
    let world = World::new(|_| {});
    world.submit(500).await;
    let engine = world.builder().handler(kind(), work).start().unwrap();
    sleep(100).await;
    assert_eq!(counts(), [0, 0]);
    world.store.set(UNAVAILABLE);
    sleep(20_000).await;
    assert_eq!(counts(), [1, 0]);
    world.store.set(FINE);
    decided(&engine).await;
    sleep(5_000).await;
    assert_eq!(counts(), [1, 1]);
    engine.shutdown().await.unwrap();
}
