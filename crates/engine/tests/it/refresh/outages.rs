//! Databases that become unavailable and processes that die.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::priority::Priority;
use tidegate_core::refresh::config::{BreakerConfig, RefreshConfig};
use tidegate_core::time::Millis;
use tidegate_engine::refresh::RefreshService;

use super::world::{Scripted, World, publish, record, until, wide_budget};

fn quick_breaker() -> RefreshConfig {
    RefreshConfig {
        breaker: BreakerConfig {
            open_ms: Millis(200),
            ..BreakerConfig::default()
        },
        ..RefreshConfig::default()
    }
}

async fn publish_all(world: &World, count: u64) {
    for n in 0..count {
        let priority = if n % 2 == 0 { Priority::Low } else { Priority::High };
        publish(world, &format!("k{n}"), priority).await;
    }
}

async fn all_stored(world: &World, count: u64) {
    for n in 0..count {
        let key = format!("k{n}");
        assert!(world.checked_at(&key).await.is_some(), "{key} was lost");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_that_becomes_unavailable_in_the_middle_loses_nothing() {
    let world = World::with(wide_budget(), quick_breaker()).await;
    publish_all(&world, 400).await;
    let fetcher = Scripted::constant();
    fetcher.latency_ms.store(20, Ordering::SeqCst);
    fetcher.most.store(150, Ordering::SeqCst);
    let service = world.start_small(fetcher.clone()).await;
    until("a part is done", || async { fetcher.all_calls() > 100 }).await;
    world.snapshots.unavailable.store(true, Ordering::SeqCst);
    fetcher.most.store(u64::MAX, Ordering::SeqCst);
    until("writes fail", || async {
        world.snapshots.refused.load(Ordering::SeqCst) > 3
    })
    .await;
    // Meanwhile requests continue, with newer versions of the blocked records.
    for n in 0..20 {
        publish(&world, &format!("k{n}"), Priority::High).await;
    }
    world.snapshots.unavailable.store(false, Ordering::SeqCst);
    until("all are done", || async { world.waiting().await == 0 }).await;
    all_stored(&world, 400).await;
    assert_eq!(
        world.dead().await,
        0,
        "an unavailable database is no reason for a dead letter"
    );
    for n in 0..400 {
        let record = record(&format!("k{n}"));
        let state = world
            .store
            .inner()
            .look(vec![record])
            .await
            .unwrap()
            .remove(0)
            .unwrap();
        let row = world.row(&format!("k{n}")).await;
        assert_eq!(
            row.snapshot.unwrap().version,
            state.completed,
            "the newest is stored"
        );
    }
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_becomes_unavailable_in_the_middle_loses_nothing() {
    let world = World::with(wide_budget(), quick_breaker()).await;
    publish_all(&world, 300).await;
    let fetcher = Scripted::constant();
    fetcher.latency_ms.store(20, Ordering::SeqCst);
    fetcher.most.store(150, Ordering::SeqCst);
    let service = world.start_small(fetcher.clone()).await;
    until("a part is done", || async { fetcher.all_calls() > 100 }).await;
    world.store.unavailable.store(true, Ordering::SeqCst);
    fetcher.most.store(u64::MAX, Ordering::SeqCst);
    let refused = || world.store.refused.load(Ordering::SeqCst);
    until("it was asked in vain", || async { refused() > 35 }).await;
    // A caller that had a token before the outage may have stalled, and calls late.
    let (calls, taken) = (fetcher.all_calls(), world.store.taken.load(Ordering::SeqCst));
    assert!(calls <= taken, "no token, no call: {calls} calls, {taken} tokens");
    world.store.unavailable.store(false, Ordering::SeqCst);
    until("all are done", || async { world.waiting().await == 0 }).await;
    all_stored(&world, 300).await;
    assert_eq!(world.dead().await, 0);
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_dies_loses_nothing() {
    let world = World::with(wide_budget(), quick_breaker()).await;
    publish_all(&world, 300).await;
    let fetcher = Scripted::constant();
    fetcher.latency_ms.store(30, Ordering::SeqCst);
    fetcher.most.store(80, Ordering::SeqCst);
    let mut options = world.options(fetcher.clone());
    options.work.high_in_flight = 10;
    options.work.low_in_flight = 10;
    // Nobody gets its records before its claims have expired.
    options.work.claim_ms = Millis(1_000);
    let dies = RefreshService::start(options).await.unwrap();
    until("a part is done", || async { fetcher.all_calls() > 60 }).await;
    drop(dies);
    fetcher.most.store(u64::MAX, Ordering::SeqCst);
    assert!(world.waiting().await > 0, "it died in the middle");
    let lives = world.start(fetcher.clone()).await;
    until("all are done", || async { world.waiting().await == 0 }).await;
    all_stored(&world, 300).await;
    lives.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shutdown_finishes_what_is_begun_and_leaves_the_rest() {
    let world = World::new().await;
    publish_all(&world, 300).await;
    let fetcher = Scripted::constant();
    fetcher.latency_ms.store(30, Ordering::SeqCst);
    fetcher.most.store(60, Ordering::SeqCst);
    let first = world.start_small(fetcher.clone()).await;
    until("a part is done", || async { fetcher.all_calls() > 40 }).await;
    // Some have started and finish during the stop, but not all: the last hundred wait for the second process.
    let go_on = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        fetcher.most.store(200, Ordering::SeqCst);
    };
    tokio::join!(first.shutdown(), go_on).0.unwrap();
    let left = world.waiting().await;
    assert!(left > 0 && left < 300, "{left} left");
    fetcher.most.store(u64::MAX, Ordering::SeqCst);
    let second = world.start(fetcher.clone()).await;
    until("all are done", || async { world.waiting().await == 0 }).await;
    all_stored(&world, 300).await;
    assert_eq!(fetcher.all_calls(), 300, "nothing was done twice");
    second.shutdown().await.unwrap();
}
