//! Gates of queues in virtual time: what is leased while they are closed, and when they open.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tidegate_core::bulk::BatchStatus;
use tidegate_core::bulk::config::{Hold, QueueConfig};
use tidegate_core::ids::{GroupId, JobId, JobType, QueueId};
use tidegate_engine::bulk::{EngineError, Gate, Job, JobError, PoolView};
use tidegate_store::bulk::BulkStore;
use tokio::time::Instant;
use world::{World, decided, kind};

use super::world;

fn queue() -> QueueId {
    QueueId::new("default").unwrap()
}

async fn sleep(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}

async fn nothing(_: Job) -> Result<(), JobError> {
    Ok(())
}

#[tokio::test(start_paused = true)]
async fn from_a_queue_that_is_closed_nothing_is_leased_until_it_opens() {
    for hold in [Hold::Group, Hold::Job] {
        let world = World::new(|config| config.backpressure.hold = hold);
        world.submit("A", "mail", 0..5).await;
        world.seal("A").await;
        let gate = Gate::default();
        gate.close("410 Gone");
        let builder = world.builder().handler(kind(), nothing);
        let engine = builder.gate(queue(), gate.clone()).start().unwrap();
        sleep(60_000).await;
        let counts = world.stats().await.counts;
        assert_eq!(
            (counts.waiting, counts.ready, counts.completed),
            (5, 0, 0),
            "{hold:?}"
        );
        let closed = PoolView {
            queue: queue(),
            workers: world.config.worker_pool.worker_count,
            busy: 0,
            gate_closed: Some("410 Gone".into()),
        };
        assert_eq!(engine.pools(), [closed]);

        gate.open();
        sleep(1).await;
        assert_eq!(world.stats().await.counts.completed, 5, "{hold:?}");
        assert_eq!(engine.pools()[0].gate_closed, None);
        decided(&engine, "A").await;
        engine.shutdown().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_job_that_closes_the_gate_is_not_lost_and_runs_first_when_it_opens() {
    let world = World::new(|config| config.worker_pool.worker_count = 3);
    world.submit("A", "mail", 0..10).await;
    world.seal("A").await;
    let (gate, begun) = (Gate::default(), Arc::new(Mutex::new(Vec::new())));
    let (closing, seen, gone) = (gate.clone(), begun.clone(), Arc::new(AtomicBool::new(true)));
    let handler = move |job: Job| {
        seen.lock().unwrap().push(job.id.to_string());
        let (gate, gone) = (closing.clone(), gone.clone());
        async move {
            let first = job.id.as_str() == "job-1";
            sleep(if first { 50 } else { 200 }).await;
            if first && gone.swap(false, Ordering::SeqCst) {
                gate.close("410 Gone");
                return Err(JobError::Released);
            }
            Ok(())
        }
    };
    let builder = world.builder().handler(kind(), handler);
    let engine = builder.gate(queue(), gate.clone()).start().unwrap();
    sleep(10).await;
    assert_eq!(engine.pools()[0].busy, 3);
    sleep(100).await;
    assert_eq!(engine.pools()[0].busy, 2, "what runs goes on");
    sleep(60_000).await;
    let counts = world.stats().await.counts;
    assert_eq!((counts.completed, counts.waiting), (2, 8));
    let returned = JobId::new("job-1").unwrap();
    let returned = world.store.job(&GroupId::new("A").unwrap(), &returned).await;
    assert_eq!(returned.unwrap().unwrap().view.attempts, 0);
    assert_eq!(*begun.lock().unwrap(), ["job-0", "job-1", "job-2"]);

    gate.open();
    sleep(1).await;
    assert_eq!(begun.lock().unwrap()[3], "job-1");
    decided(&engine, "A").await;
    assert_eq!(world.batch("A").await.counts.success, 10);
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_closed_queue_holds_up_no_other() {
    let (letter, letters) = (JobType::new("letter").unwrap(), QueueId::new("letters").unwrap());
    let world = World::new(|config| {
        let workers = QueueConfig {
            worker_count: Some(2),
            ..Default::default()
        };
        config.queues.insert(letters.clone(), workers);
        config.job_types.entry(letter.clone()).or_default().queue = Some(letters);
    });
    world.submit("A", "mail", 0..5).await;
    world.submit("B", "letter", 0..5).await;
    world.seal("B").await;
    let gate = Gate::default();
    gate.close("on purpose");
    let builder = world.builder().handler(kind(), nothing).handler(letter, nothing);
    let engine = builder.gate(queue(), gate).start().unwrap();
    decided(&engine, "B").await;
    assert_eq!(world.batch("B").await.status, BatchStatus::Completed);
    let pools: Vec<_> = engine
        .pools()
        .into_iter()
        .map(|pool| (pool.queue.to_string(), pool.workers, pool.gate_closed.is_some()))
        .collect();
    assert_eq!(
        pools,
        [("default".into(), 10, true), ("letters".into(), 2, false)]
    );
    engine.shutdown().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_a_closed_gate() {
    for hold in [Hold::Group, Hold::Job] {
        let world = World::new(|config| config.backpressure.hold = hold);
        world.submit("A", "mail", 0..5).await;
        let gate = Gate::default();
        gate.close("on purpose");
        let builder = world.builder().handler(kind(), nothing);
        let engine = builder.gate(queue(), gate).start().unwrap();
        sleep(1_000).await;
        let begun = Instant::now();
        engine.shutdown().await.unwrap();
        assert!(
            begun.elapsed() < Duration::from_millis(5),
            "{:?}",
            begun.elapsed()
        );
        assert_eq!(world.stats().await.counts.waiting, 5);
    }
}

#[tokio::test]
async fn gates_that_would_do_nothing_are_refused() {
    let world = World::new(|_| {});
    let builder = || world.builder().handler(kind(), nothing);
    let twice = builder()
        .gate(queue(), Gate::default())
        .gate(queue(), Gate::default());
    assert!(matches!(twice.start(), Err(EngineError::TwoGates(queue)) if queue == "default"));
    let elsewhere = builder().gate(QueueId::new("letters").unwrap(), Gate::default());
    assert_eq!(
        elsewhere.start().unwrap_err().to_string(),
        "queue \"letters\" has a gate but no handler here; queues with a handler: {\"default\"}"
    );
}
