//! Reads, coalescing and freshness.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::future::join_all;
use tidegate_core::priority::Priority;
use tidegate_core::refresh::config::{RefreshConfig, TierConfig};
use tidegate_core::refresh::freshness::Freshness;
use tidegate_core::time::Millis;
use tidegate_engine::refresh::{PublishOutcome, Queued, RefreshError, RefreshService, Roles};

use super::faulty::Fate;
use super::world::{
    ASK_WAIT, Scripted, World, ask_anew, fetched, publish, record, until, until_fresh, wide_budget,
};

fn fresh_for(ms: u64) -> TierConfig {
    let span = Millis(ms);
    TierConfig {
        hot_fresh_ms: span,
        warm_fresh_ms: span,
        cold_fresh_ms: span,
        ..TierConfig::default()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_reads_of_one_stale_record_are_one_call() {
    let mut world = World::new().await;
    world.tiers = fresh_for(1_000);
    let fetcher = Scripted::constant();
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    until_fresh(&handle, "a").await;
    until("it is stale", || async {
        let view = handle.peek(&record("a")).await.unwrap();
        view.freshness == Freshness::Stale && world.waiting().await == 0
    })
    .await;
    let before = fetcher.calls("a");
    // The upstream responds after all have read, however long that takes, so nobody reads the snapshot after it is stale.
    fetcher.most.store(before, Ordering::SeqCst);
    let key = record("a");
    let views = join_all((0..10_000).map(|_| handle.read(&key, None))).await;
    let stale = views
        .iter()
        .flatten()
        .filter(|view| view.freshness == Freshness::Stale);
    assert!(stale.clone().count() > 0);
    assert!(
        stale.clone().all(|view| view.update_queued()),
        "a reader saw that nothing is queued"
    );
    fetcher.most.store(u64::MAX, Ordering::SeqCst);
    until("it was fetched", || async {
        fetcher.calls("a") > before && world.waiting().await == 0
    })
    .await;
    assert_eq!(fetcher.calls("a") - before, 1);
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unchanged_record_only_moves_its_check() {
    let mut world = World::new().await;
    world.tiers = fresh_for(400);
    let fetcher = Scripted::constant();
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    until_fresh(&handle, "a").await;
    // On a slow machine, it became stale before anybody saw it fresh, and was fetched more than once.
    let before = fetcher.calls("a");
    let first = handle.peek(&record("a")).await.unwrap();
    until("it was checked three more times", || async {
        handle.read(&record("a"), None).await.unwrap();
        fetcher.calls("a") >= before + 3 && world.waiting().await == 0
    })
    .await;
    let last = handle.peek(&record("a")).await.unwrap();
    assert!(last.last_checked_at > first.last_checked_at);
    assert_eq!(last.last_updated_at, first.last_updated_at);
    let counters = handle.counters();
    assert_eq!(counters.updated, 1);
    assert!(counters.unchanged >= 3);
    assert_eq!(last.data().unwrap().unwrap(), b"{\"name\":\"a\"}");
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_high_request_replaces_the_low_that_is_queued() {
    let world = World::new().await;
    let fetcher = Scripted::constant();
    let mut options = world.options(fetcher.clone());
    options.roles = Roles::QUERY;
    let readers = RefreshService::start(options).await.unwrap();
    publish(&world, "a", Priority::Low).await;
    let view = readers.handle().read(&record("a"), None).await.unwrap();
    assert_eq!((view.freshness, view.queued), (Freshness::Updating, Queued::Yes));
    assert_eq!(readers.handle().counters().upgraded, 1);
    let workers = world.start(fetcher.clone()).await;
    until("both events are done", || async { world.waiting().await == 0 }).await;
    assert_eq!(fetcher.calls("a"), 1);
    assert_eq!(workers.handle().counters().obsolete, 1);
    let view = readers.handle().peek(&record("a")).await.unwrap();
    assert_eq!(view.freshness, Freshness::Fresh);
    workers.shutdown().await.unwrap();
    readers.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_user_may_ask_for_what_is_fresh_and_follow_it() {
    let mut config = RefreshConfig::default();
    config.coalescer.high_mark_ms = Millis(600_000);
    let world = World::with(wide_budget(), config).await;
    let fetcher = Scripted::new(|_, before| fetched(&format!("revision {before}")));
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    until_fresh(&handle, "a").await;
    let first = handle.peek(&record("a")).await.unwrap();
    until("the first is settled", || async { world.waiting().await == 0 }).await;
    let outcome = ask_anew(&handle, "a").await;
    assert!(outcome.is_queued(), "{outcome:?}");
    let mut follower = handle.follow(record("a"), outcome.version()).unwrap();
    let mut last = None;
    while let Some(view) = follower.next().await {
        last = Some(view.unwrap());
    }
    let last = last.unwrap();
    assert!(last.last_updated_at > first.last_updated_at);
    assert_eq!(last.data().unwrap().unwrap(), b"{\"name\":\"revision 1\"}");
    service.shutdown().await.unwrap();
    assert!(matches!(
        handle.read(&record("zz"), None).await,
        Err(RefreshError::Closed)
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_go_on_while_the_store_is_unavailable() {
    let mut config = RefreshConfig::default();
    config.breaker.open_ms = Millis(200);
    let mut world = World::with(wide_budget(), config).await;
    world.tiers = fresh_for(300);
    let fetcher = Scripted::constant();
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    until_fresh(&handle, "a").await;
    world.store.unavailable.store(true, Ordering::SeqCst);
    until("it is stale and nothing is queued", || async {
        let view = handle.read(&record("a"), None).await.unwrap();
        view.freshness == Freshness::Stale && !view.update_queued() && view.snapshot.is_some()
    })
    .await;
    let missing = handle.read(&record("b"), None).await.unwrap();
    assert_eq!(
        (missing.freshness, missing.queued),
        (Freshness::Unavailable, Queued::No)
    );
    let asked = handle
        .request_refresh(&record("b"), None, ASK_WAIT)
        .await
        .unwrap();
    assert!(matches!(asked, PublishOutcome::Refused { .. }), "{asked:?}");
    world.store.unavailable.store(false, Ordering::SeqCst);
    until_fresh(&handle, "b").await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_can_be_read_as_long_as_the_database_answers() {
    let world = World::new().await;
    let service = world.start(Scripted::constant()).await;
    let handle = service.handle();
    world.store.unavailable.store(true, Ordering::SeqCst);
    assert!(handle.can_read().await);
    world.snapshots.unavailable.store(true, Ordering::SeqCst);
    until("the service sees that the database is unavailable", || async {
        !handle.can_read().await
    })
    .await;
    world.snapshots.unavailable.store(false, Ordering::SeqCst);
    until("it is seen that the database is back", || async {
        handle.can_read().await
    })
    .await;
    world.store.unavailable.store(false, Ordering::SeqCst);
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unknown_sources_and_bad_keys_are_refused() {
    let world = World::new().await;
    let service = world.start(Scripted::constant()).await;
    let mut odd = record("a");
    odd.source = "nowhere".try_into().unwrap();
    let handle = service.handle();
    assert!(matches!(
        handle.read(&odd, None).await,
        Err(RefreshError::UnknownSource(_))
    ));
    assert!(matches!(
        handle.read(&record(".."), None).await,
        Err(RefreshError::BadKey { .. })
    ));
    let many = handle.read_many(&[record("a"), odd]).await.unwrap();
    assert!(many[0].is_ok() && many[1].is_err());
    service.shutdown().await.unwrap();
}

/// A log that takes just too long: it has the event, and only the confirmation is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_was_confirmed_too_late_was_sent_again() {
    let mut config = RefreshConfig::default();
    config.coalescer.send_timeout_ms = Millis(600_000);
    let world = World::with(wide_budget(), config).await;
    let fetcher = Scripted::constant();
    let mut options = world.options(fetcher.clone());
    options.roles = Roles::QUERY;
    options.query.cache_ttl_ms = Millis(1);
    let readers = RefreshService::start(options).await.unwrap();
    let handle = readers.handle();
    *world.faulty_log.fate.lock().unwrap() = Fate::Late;
    let first = handle.read(&record("a"), None).await.unwrap();
    assert_eq!(first.queued, Queued::Unknown, "it may be there or not");
    *world.faulty_log.fate.lock().unwrap() = Fate::Confirmed;
    // Until its slot expires, nobody sends another event, and nobody reports one as queued.
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(5)).await;
        let view = handle.read(&record("a"), None).await.unwrap();
        assert_eq!(view.queued, Queued::Unknown);
    }
    let outcome = handle
        .request_refresh(&record("a"), None, ASK_WAIT)
        .await
        .unwrap();
    assert_eq!(outcome, PublishOutcome::Unknown);
    assert_eq!((handle.counters().published.high, world.waiting().await), (1, 1));
    let workers = world.start(fetcher.clone()).await;
    until("it is done", || async { world.waiting().await == 0 }).await;
    assert_eq!(fetcher.calls("a"), 1);
    workers.shutdown().await.unwrap();
    readers.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_event_that_never_got_to_the_log_is_sent_again_after_a_while() {
    let mut config = RefreshConfig::default();
    config.coalescer.send_timeout_ms = Millis(300);
    let world = World::with(wide_budget(), config).await;
    let fetcher = Scripted::constant();
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    *world.faulty_log.fate.lock().unwrap() = Fate::Lost;
    let first = handle.read(&record("a"), None).await.unwrap();
    assert_eq!((first.queued, world.waiting().await), (Queued::Unknown, 0));
    *world.faulty_log.fate.lock().unwrap() = Fate::Confirmed;
    until_fresh(&handle, "a").await;
    assert_eq!(fetcher.calls("a"), 1);
    service.shutdown().await.unwrap();
}
