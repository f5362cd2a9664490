//! Completion callbacks in virtual time: those that fail, hang and panic, and what they receive.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_core::bulk::views::{Cursor, DeadFilter, JobFilter, Page};
use tidegate_core::bulk::{
    BatchOptions, BatchStatus, Command, LeaseOutcome, LeaseParams, OpenBatchParams, Outcome, Refusal,
};
use tidegate_core::ids::{BatchId, GroupId, JobId};
use tidegate_core::time::Millis;
use tidegate_engine::bulk::{BulkServiceBuilder, CompletedBatch, Job, JobError, Reducer};
use tidegate_store::StoreError;
use tidegate_store::bulk::{
    BulkNotifier, BulkStore, BulkStoreExt, FoundJob, JobDetails, LeasedJob, ModelBulkStore,
};
use tokio::time::Instant;
use world::{World, batch, decided, kind};

use super::world;

const CLAIM_FOR: Millis = Millis(5_000);

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

/// Job 0 fails, all others work.
async fn work(job: Job) -> Result<(), JobError> {
    match job.id.as_str() {
        "job-0" => Err(JobError::failed("no such mailbox")),
        _ => Ok(()),
    }
}

fn builder(world: &World) -> BulkServiceBuilder {
    world.builder().handler(kind(), work).claim_for(CLAIM_FOR)
}

/// Opens a batch that keeps its results and names a callback, with jobs that will complete it.
async fn open(world: &World, group: &str) {
    let params = OpenBatchParams {
        group: GroupId::new(group).unwrap(),
        batch: batch(),
        base_priority: None,
        options: BatchOptions {
            keep_results: true,
            callback: Some("https://example.org/done".into()),
            ..Default::default()
        },
    };
    world.store.call(params).await.unwrap().unwrap();
    world.submit(group, "mail", 0..3).await;
    world.seal(group).await;
}

/// The calls, and when they came.
#[derive(Clone)]
struct Calls(Instant, Arc<Mutex<Vec<(u64, CompletedBatch)>>>);

impl Calls {
    fn new() -> Self {
        Self(Instant::now(), Arc::default())
    }

    /// The number of calls for this group, including this one.
    fn add(&self, completed: &CompletedBatch) -> usize {
        let mut calls = self.1.lock().unwrap();
        calls.push((self.0.elapsed().as_millis() as u64, completed.clone()));
        let same = |call: &&(u64, CompletedBatch)| call.1.group == completed.group;
        calls.iter().filter(same).count()
    }

    /// The calls for this group.
    fn of(&self, group: &str) -> Vec<(u64, CompletedBatch)> {
        let calls = self.1.lock().unwrap();
        let same = |call: &&(u64, CompletedBatch)| call.1.group.as_str() == group;
        calls.iter().filter(same).cloned().collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_fails_is_called_again_when_its_claim_has_run_out() {
    let world = World::new(|_| {});
    open(&world, "A").await;
    let calls = Calls::new();
    let called = calls.clone();
    let engine = builder(&world)
        .on_complete(move |completed| {
            let count = called.add(&completed);
            async move { if count < 3 { Err("nobody answers") } else { Ok(()) } }
        })
        .start()
        .unwrap();
    sleep(100).await;
    let view = world.batch("A").await;
    assert_eq!(view.status, BatchStatus::Completed, "decided, delivered or not");
    sleep(60_000).await;
    let calls = calls.of("A");
    let gaps: Vec<_> = calls.windows(2).map(|two| two[1].0 - two[0].0).collect();
    assert_eq!(gaps.len(), 2, "confirmed after the third: {calls:?}");
    for gap in gaps {
        assert!((5_000..=6_010).contains(&gap), "{gap}");
    }
    let expected = CompletedBatch {
        group: GroupId::new("A").unwrap(),
        batch: batch(),
        status: BatchStatus::Completed,
        counts: view.counts,
        errors: vec!["no such mailbox".into()],
        summary: view.summary,
        callback: Some("https://example.org/done".into()),
    };
    assert!(expected.summary.is_some());
    for (_, call) in calls {
        assert_eq!(call, expected, "the same each time");
    }
    engine.shutdown().await.unwrap();
    assert_eq!(world.stats().await.counts.completed, 2);
}

#[tokio::test(start_paused = true)]
async fn callbacks_that_hang_hold_up_neither_folds_nor_other_callbacks() {
    let world = World::new(|_| {});
    let calls = Calls::new();
    let called = calls.clone();
    let engine = builder(&world)
        .on_complete(move |completed| {
            called.add(&completed);
            async move {
                if completed.group.as_str().starts_with("hangs") {
                    std::future::pending::<()>().await;
                }
            }
        })
        .start()
        .unwrap();
    for n in 0..20 {
        open(&world, &format!("hangs-{n}")).await;
    }
    sleep(1_500).await;
    assert_eq!(calls.of("hangs-19").len(), 1, "more than are folded at once");
    open(&world, "B").await;
    sleep(10).await;
    assert_eq!(calls.of("B").len(), 1);

    // More than may run concurrently.
    for n in 20..200 {
        open(&world, &format!("hangs-{n}")).await;
    }
    sleep(1_500).await;
    open(&world, "C").await;
    sleep(10).await;
    assert_eq!(world.batch("C").await.status, BatchStatus::Completed);
    assert_eq!(calls.of("C").len(), 0);
    sleep(60_000).await;
    assert_eq!(calls.of("C").len(), 1, "it comes when it is its turn");
    for n in 0..200 {
        let calls = calls.of(&format!("hangs-{n}"));
        assert_eq!(calls.len(), 1, "called is called: {calls:?}");
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_callback_that_panics_counts_as_called() {
    let world = World::new(|_| {});
    open(&world, "A").await;
    let calls = Calls::new();
    let called = calls.clone();
    let engine = builder(&world)
        .on_complete(move |completed| {
            called.add(&completed);
            assert_ne!(completed.group.as_str(), "A", "on purpose");
            async {}
        })
        .start()
        .unwrap();
    sleep(60_000).await;
    open(&world, "B").await;
    sleep(60_000).await;
    assert_eq!((calls.of("A").len(), calls.of("B").len()), (1, 1));
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_a_running_callback_finish() {
    let world = World::new(|config| config.worker_pool.shutdown_grace_period_ms = Millis(1_000));
    open(&world, "short").await;
    open(&world, "long").await;
    let calls = Calls::new();
    let start = || {
        let called = calls.clone();
        builder(&world)
            .on_complete(move |completed| {
                let again = called.add(&completed) > 1;
                let long = completed.group.as_str() == "long" && !again;
                async move { sleep(if long { 60_000 } else { 2_000 }).await }
            })
            .claim_for(Millis(120_000))
            .start()
            .unwrap()
    };
    let engine = start();
    decided(&engine, "long").await;
    sleep(500).await;
    let begun = Instant::now();
    engine.shutdown().await.unwrap();
    assert!(
        begun.elapsed() < Duration::from_millis(5_010),
        "{:?}",
        begun.elapsed()
    );
    // The next aggregator calls back only for what was left behind.
    let engine = start();
    sleep(130_000).await;
    assert_eq!((calls.of("short").len(), calls.of("long").len()), (1, 2));
    engine.shutdown().await.unwrap();
}

struct Count(Result<u64, String>);

impl Reducer for Count {
    fn fold(&mut self, _: &JobDetails) -> Result<(), String> {
        *self.0.as_mut().map_err(|error| error.clone())? += 1;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Bytes, String> {
        self.0.map(|count| Bytes::from(count.to_string()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_callback_learns_why_there_is_no_summary() {
    let world = World::new(|_| {});
    open(&world, "A").await;
    open(&world, "B").await;
    let calls = Calls::new();
    let called = calls.clone();
    let engine = builder(&world)
        .reducer(|aggregation| {
            let fails = aggregation.group.as_str() == "A";
            Some(Box::new(Count(if fails { Err("too odd".into()) } else { Ok(0) })))
        })
        .on_complete(move |completed| {
            called.add(&completed);
            async {}
        })
        .start()
        .unwrap();
    sleep(100).await;
    let (_, failed) = calls.of("A").remove(0);
    assert_eq!((failed.status, failed.summary), (BatchStatus::Failed, None));
    assert_eq!(failed.errors, ["no such mailbox", "aggregation failed: too odd"]);
    let (_, worked) = calls.of("B").remove(0);
    assert_eq!(worked.summary, Some(Bytes::from("3")));
    engine.shutdown().await.unwrap();
}

/// A store that takes longer to read results than a claim lasts.
struct Slow(Arc<ModelBulkStore>);

#[async_trait]
impl BulkStore for Slow {
    async fn apply(&self, command: Command) -> Result<Outcome, StoreError> {
        self.0.apply(command).await
    }

    async fn lease(&self, params: LeaseParams) -> Result<LeaseOutcome<LeasedJob>, StoreError> {
        self.0.lease(params).await
    }

    async fn job(&self, group: &GroupId, job: &JobId) -> Result<Result<JobDetails, Refusal>, StoreError> {
        self.0.job(group, job).await
    }

    async fn results(
        &self,
        group: &GroupId,
        batch: &BatchId,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Result<Page<JobDetails>, Refusal>, StoreError> {
        sleep(3 * CLAIM_FOR.0).await;
        self.0.results(group, batch, after, max).await
    }

    async fn dead(
        &self,
        filter: &DeadFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.0.dead(filter, after, max).await
    }

    async fn jobs(
        &self,
        filter: &JobFilter,
        after: Option<Cursor>,
        max: u32,
    ) -> Result<Page<FoundJob>, StoreError> {
        self.0.jobs(filter, after, max).await
    }

    fn notifier(&self) -> Arc<BulkNotifier> {
        self.0.notifier()
    }
}

#[tokio::test(start_paused = true)]
async fn a_fold_that_takes_longer_than_its_claim_is_not_begun_again() {
    let world = World::new(|_| {});
    open(&world, "A").await;
    let (folds, calls) = (Arc::new(Mutex::new(0)), Calls::new());
    let (folded, called) = (folds.clone(), calls.clone());
    let engine = BulkServiceBuilder::new(Arc::new(Slow(world.store.clone())), world.config.clone())
        .clock(world.clock.clone())
        .handler(kind(), work)
        .claim_for(CLAIM_FOR)
        .reducer(move |_| {
            *folded.lock().unwrap() += 1;
            Some(Box::new(Count(Ok(0))))
        })
        .on_complete(move |completed| {
            called.add(&completed);
            async {}
        })
        .start()
        .unwrap();
    sleep(60_000).await;
    let calls = calls.of("A");
    assert_eq!((*folds.lock().unwrap(), calls.len()), (1, 1));
    assert_eq!(calls[0].1.summary, Some(Bytes::from("3")));
    engine.shutdown().await.unwrap();
}
