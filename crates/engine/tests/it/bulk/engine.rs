//! The services in virtual time: tokio's clock is paused and drives the store's clock, so seconds pass in
//! milliseconds and every run is the same.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tidegate_core::bulk::config::Hold;
use tidegate_core::bulk::{
    BatchOptions, BatchStatus, ConfigureGroupParams, GroupLimits, JobOutcome, LeaseParams, OpenBatchParams,
    SettleParams, Settlement,
};
use tidegate_core::clock::Clock;
use tidegate_core::ids::{GroupId, JobId, Owner, QueueId};
use tidegate_core::limits::quota::{Limit, Quota};
use tidegate_core::time::Millis;
use tidegate_engine::bulk::Dispatcher;
use tidegate_engine::bulk::{EngineError, Job, JobError, Reducer};
use tidegate_store::bulk::{BulkStore, BulkStoreExt, JobDetails};
use tokio::time::Instant;
use world::{World, batch, decided, kind};

use super::world;

async fn nothing(_: Job) -> Result<(), JobError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn the_default_configuration_reaches_its_own_rate() {
    let world = World::new(|_| {});
    for chunk in 0..3 {
        world
            .submit("A", "mail", chunk * 1_000..(chunk + 1) * 1_000)
            .await;
    }
    world.seal("A").await;
    // Ten workers and 3,000 jobs of 3 ms: 3,333 per second, far below the limit, far above what a fetcher
    // of 50 jobs every 200 ms could feed.
    let begun = Instant::now();
    let slow = |_: Job| async {
        tokio::time::sleep(Duration::from_millis(3)).await;
        Ok::<_, JobError>(())
    };
    let engine = world.builder().handler(kind(), slow).start().unwrap();
    decided(&engine, "A").await;
    let took = begun.elapsed();
    assert!(took <= Duration::from_millis(1_400), "{took:?}");
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn the_rate_is_reached_and_never_exceeded() {
    for hold in [Hold::Group, Hold::Job] {
        let world = World::new(|config| {
            config.backpressure.global_rps = 100.0.into();
            config.backpressure.hold = hold;
        });
        world.submit("A", "mail", 0..700).await;
        world.submit("B", "mail", 0..300).await;
        world.seal("A").await;
        world.seal("B").await;
        let begun = Instant::now();
        let engine = world.builder().handler(kind(), nothing).start().unwrap();
        decided(&engine, "B").await;
        assert!(
            begun.elapsed() <= Duration::from_millis(6_200),
            "B's share is half: {:?}",
            begun.elapsed()
        );
        decided(&engine, "A").await;
        assert!(
            begun.elapsed() <= Duration::from_millis(10_200),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(world.stats().await.most_started_per_window, 100);
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn every_look_of_the_dispatcher_counts() {
    let world = World::new(|_| {});
    let dispatcher = Dispatcher::new(
        world.store.clone(),
        world.clock.clone(),
        Duration::from_millis(50),
        10,
    );
    dispatcher.dispatch_once().await.unwrap();
    dispatcher.dispatch_once().await.unwrap();
    assert_eq!(
        (dispatcher.stats().total_cycles, dispatcher.stats().total_moved),
        (2, 0)
    );
}

#[tokio::test(start_paused = true)]
async fn failures_retries_and_throttles_end_where_they_should() {
    let world = World::new(|_| {});
    world.submit("A", "mail", 0..40).await;
    world.submit("A", "unheard of", 40..41).await;
    world.seal("A").await;
    let handler = |job: Job| async move {
        let number: u64 = job.id.as_str()["job-".len()..]
            .parse()
            .map_err(|_| JobError::failed("a number"))?;
        match (number % 4, job.attempt) {
            (1, 1..=2) => Err(JobError::retry("not yet")),
            (2, _) => Err(JobError::failed("never")),
            (3, 1) => Err("x".parse::<u64>().unwrap_err().into()),
            _ => Ok("fine".to_owned()),
        }
    };
    let engine = world.builder().handler(kind(), handler).start().unwrap();
    decided(&engine, "A").await;
    let view = world.batch("A").await;
    assert_eq!((view.counts.success, view.counts.failed), (30, 11));
    assert_eq!(view.status, BatchStatus::Completed);
    assert!(
        view.errors
            .contains(&"no handler for job type \"unheard of\"".to_owned()),
        "{:?}",
        view.errors
    );
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_handler_that_panics_or_never_returns_costs_only_its_job() {
    let world = World::new(|config| {
        config.worker_pool.worker_count = 2;
        config.worker_pool.job_timeout_ms = Millis(500);
        config.worker_pool.max_retry_count = 1;
    });
    world.submit("A", "mail", 0..6).await;
    world.seal("A").await;
    let handler = |job: Job| async move {
        match job.id.as_str() {
            "job-1" => panic!("on purpose"),
            "job-2" => std::future::pending().await,
            _ => Ok::<_, JobError>(()),
        }
    };
    let engine = world.builder().handler(kind(), handler).start().unwrap();
    decided(&engine, "A").await;
    let view = world.batch("A").await;
    assert_eq!((view.counts.success, view.counts.failed), (4, 2));
    for text in [
        "the handler panicked: on purpose",
        "the handler did not return within 500 ms",
    ] {
        assert!(
            view.errors.contains(&text.to_owned()),
            "{text:?} is missing in {:?}",
            view.errors
        );
    }
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_lets_running_jobs_finish_and_gives_back_the_rest() {
    let world = World::new(|config| {
        config.worker_pool.worker_count = 2;
        config.worker_pool.shutdown_grace_period_ms = Millis(1_000);
    });
    world.submit("A", "mail", 0..10).await;
    let running = Arc::new(AtomicU64::new(0));
    let seen = running.clone();
    let handler = move |job: Job| {
        seen.fetch_add(1, Ordering::SeqCst);
        async move {
            let long = job.id.as_str() == "job-1";
            tokio::time::sleep(Duration::from_millis(if long { 20_000 } else { 300 })).await;
            Ok::<_, JobError>(())
        }
    };
    let engine = world.builder().handler(kind(), handler).start().unwrap();
    while running.load(Ordering::SeqCst) < 2 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    engine.shutdown().await.unwrap();
    let counts = world.stats().await.counts;
    assert_eq!((counts.completed, counts.running), (1, 0), "{counts:?}");
    assert_eq!(
        running.load(Ordering::SeqCst),
        2,
        "no job was leased after the stop"
    );
    let returned = world
        .store
        .job(&GroupId::new("A").unwrap(), &JobId::new("job-1").unwrap())
        .await;
    assert_eq!(
        returned.unwrap().unwrap().view.attempts,
        0,
        "a job that is given back uses up no attempt"
    );
}

struct Sum(u64);

impl Reducer for Sum {
    fn fold(&mut self, job: &JobDetails) -> Result<(), String> {
        let result = job.result.as_deref().unwrap_or_default();
        let text = std::str::from_utf8(result).map_err(|error| error.to_string())?;
        self.0 += text.parse::<u64>().map_err(|error| error.to_string())?;
        Ok(())
    }

    fn finish(self: Box<Self>) -> Result<Bytes, String> {
        Ok(Bytes::from(self.0.to_string()))
    }
}

#[tokio::test(start_paused = true)]
async fn a_reducer_sees_every_result_and_the_callback_comes_once() {
    let world = World::new(|config| config.retention.finished_jobs_max = 10);
    let params = OpenBatchParams {
        group: GroupId::new("A").unwrap(),
        batch: batch(),
        base_priority: None,
        options: BatchOptions {
            keep_results: true,
            ..Default::default()
        },
    };
    world.store.call(params).await.unwrap().unwrap();
    world.submit("A", "mail", 0..1_001).await;
    world.seal("A").await;
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let echo = |job: Job| async move { Ok::<_, JobError>(job.payload) };
    let engine = world
        .builder()
        .handler(kind(), echo)
        .reducer(|_| Some(Box::new(Sum(0))))
        .on_complete(move |completed| {
            assert_eq!(completed.status, BatchStatus::Completed);
            counted.fetch_add(1, Ordering::SeqCst);
            async {}
        })
        .start()
        .unwrap();
    decided(&engine, "A").await;
    engine.shutdown().await.unwrap();
    assert_eq!(world.batch("A").await.summary.as_deref(), Some(&b"500500"[..]));
    assert_eq!(calls.load(Ordering::SeqCst), 1);
}

#[tokio::test(start_paused = true)]
async fn a_group_at_its_limit_does_not_keep_others_waiting() {
    let world = World::new(|config| {
        config.backpressure.rate_limit_window_sec = 60.0;
    });
    let limits = GroupLimits {
        all: Limit::rate("1/min".parse::<Quota>().unwrap()),
        ..GroupLimits::default()
    };
    let held = GroupId::new("A").unwrap();
    let params = ConfigureGroupParams {
        group: held,
        base_priority: None,
        limits: Some(limits),
    };
    world.store.call(params).await.unwrap().unwrap();
    world.submit("A", "mail", 0..5).await;
    let engine = world.builder().handler(kind(), nothing).start().unwrap();
    tokio::time::sleep(Duration::from_millis(2_000)).await;
    let begun = Instant::now();
    world.submit("B", "mail", 0..5).await;
    world.seal("B").await;
    decided(&engine, "B").await;
    assert!(
        begun.elapsed() < Duration::from_millis(500),
        "{:?}",
        begun.elapsed()
    );
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_was_stepped_back_does_not_slow_the_pool_down() {
    let world = World::new(|config| config.backpressure.global_rps = 100.0.into());
    // Store time runs an hour ahead of the clock from here on.
    let ahead = world.clock.now() + Millis(3_600_000);
    world.clock.1.store(3_600_000, Ordering::SeqCst);
    world.stats().await;
    world.clock.1.store(0, Ordering::SeqCst);
    assert!(world.clock.now() < ahead);
    world.submit("A", "mail", 0..500).await;
    world.seal("A").await;
    let begun = Instant::now();
    let engine = world.builder().handler(kind(), nothing).start().unwrap();
    decided(&engine, "A").await;
    assert!(
        begun.elapsed() <= Duration::from_millis(6_500),
        "{:?}",
        begun.elapsed()
    );
    engine.shutdown().await.unwrap();
}

#[tokio::test]
async fn two_handlers_for_one_type_are_refused() {
    let world = World::new(|_| {});
    let refused = world
        .builder()
        .handler(kind(), nothing)
        .handler(kind(), nothing)
        .start();
    assert!(matches!(refused, Err(EngineError::TwoHandlers(name)) if name == "mail"));
}

#[tokio::test(start_paused = true)]
async fn an_engine_without_handlers_folds_batches_if_asked_to() {
    for asked in [false, true] {
        let world = World::new(|_| {});
        world.submit("A", "mail", 0..3).await;
        world.seal("A").await;
        let engine = world.builder().fold_batches(asked).start().unwrap();
        // The workers of another process.
        let params = LeaseParams {
            queue: QueueId::new("default").unwrap(),
            max: 10,
            owner: Owner::new("elsewhere").unwrap(),
        };
        let jobs = world.store.lease(params).await.unwrap().jobs;
        let answer = |job: &tidegate_store::bulk::LeasedJob| Settlement {
            lease: job.leased.lease,
            outcome: JobOutcome::Completed { result: Bytes::new() },
            cost: None,
        };
        let answers = jobs.iter().map(answer).collect();
        world.store.call(SettleParams { answers }).await.unwrap();
        tokio::time::sleep(Duration::from_secs(5)).await;
        let status = world.batch("A").await.status;
        let expected = [BatchStatus::Aggregating, BatchStatus::Completed][usize::from(asked)];
        assert_eq!(status, expected, "asked: {asked}");
        engine.shutdown().await.unwrap();
    }
}
