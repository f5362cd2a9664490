//! HIGH and LOW side by side, lag, and several processes.

use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate_core::budget::BudgetConfig;
use tidegate_core::ids::{RecordId, RecordKey, SourceId};
use tidegate_core::priority::Priority;
use tidegate_core::refresh::coalescer::RequestOutcome;
use tidegate_core::refresh::config::{CoalescerConfig, PressureConfig, RefreshConfig, TierConfig};
use tidegate_core::refresh::status::UpdateState;
use tidegate_core::time::Millis;
use tidegate_engine::refresh::{PublishOutcome, RefreshService, Roles};
use tidegate_log::Topic;
use tidegate_source::{FetchOutcome, TransientCode};

use super::world::{
    ASK_WAIT, Scripted, World, fetched, publish, record, reference, target, until, until_fresh, wide_budget,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_stands_back_while_high_lags_and_goes_on_afterwards() {
    let config = RefreshConfig {
        pressure: PressureConfig {
            pause_above: 20,
            resume_below: 5,
            ..PressureConfig::default()
        },
        ..RefreshConfig::default()
    };
    let world = World::with(wide_budget(), config).await;
    for n in 0..80 {
        publish(&world, &format!("high{n}"), Priority::High).await;
    }
    let fetcher = Scripted::constant();
    fetcher.latency_ms.store(40, Ordering::SeqCst);
    // HIGH does not catch up before LOW pauses, however late the measurement is.
    fetcher.most.store(0, Ordering::SeqCst);
    let mut options = world.options(fetcher.clone());
    options.work.high_in_flight = 2;
    let service = RefreshService::start(options).await.unwrap();
    let handle = service.handle();
    until("low stands back", || async {
        handle.lags().low_paused && world.faulty_log.low_stands_back.load(Ordering::SeqCst)
    })
    .await;
    for n in 0..20 {
        publish(&world, &format!("low{n}"), Priority::Low).await;
    }
    let calls = |name: &str, count: u64| -> u64 {
        let keys = (0..count).map(|n| format!("{name}{n}"));
        keys.map(|key| fetcher.calls(&key)).sum()
    };
    let (low_calls, high_calls) = (|| calls("low", 20), || calls("high", 80));
    // First no HIGH event is done, then most are. Enough of them wait for LOW to pause, however long that takes.
    for (done, begun) in [(0, 2), (60, 62)] {
        fetcher.most.store(done, Ordering::SeqCst);
        until("high is so far", || async { high_calls() == begun }).await;
        for _ in 0..10 {
            let seen = handle.lags().measured_at;
            until("it was looked at again", || async {
                handle.lags().measured_at > seen
            })
            .await;
        }
        assert!(handle.lags().low_paused);
        assert_eq!(low_calls(), 0, "low worked while it stood back");
    }
    fetcher.most.store(u64::MAX, Ordering::SeqCst);
    until("low goes on", || async {
        // In this order: no HIGH event was left when LOW began.
        let (low, high) = (low_calls(), high_calls());
        assert!(low == 0 || high > 75, "{low} of low after {high} of high");
        low > 0
    })
    .await;
    until("all are done", || async { world.waiting().await == 0 }).await;
    assert_eq!(low_calls(), 20);
    assert!(handle.counters().low_pauses >= 1);
    service.shutdown().await.unwrap();
}

/// The lag is more than ten times the time for which a refresh absorbs requests, and readers read every record.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_always_asked_for_are_refreshed_at_every_pass() {
    let config = RefreshConfig {
        coalescer: CoalescerConfig {
            high_mark_ms: Millis(50),
            low_mark_ms: Millis(50),
            ..CoalescerConfig::default()
        },
        ..RefreshConfig::default()
    };
    let mut world = World::with(wide_budget(), config).await;
    let span = Millis(20);
    world.tiers = TierConfig {
        hot_fresh_ms: span,
        warm_fresh_ms: span,
        cold_fresh_ms: span,
        ..TierConfig::default()
    };
    let fetcher = Scripted::constant();
    fetcher.latency_ms.store(20, Ordering::SeqCst);
    let mut options = world.options(fetcher.clone());
    options.work.high_in_flight = 2;
    options.query.cache_ttl_ms = Millis(10);
    let service = RefreshService::start(options).await.unwrap();
    let handle = service.handle();
    let records: Vec<_> = (0..60).map(|n| record(&format!("k{n}"))).collect();
    until("each was refreshed four times", || async {
        handle.read_many(&records).await.unwrap();
        (0..60).all(|n| fetcher.calls(&format!("k{n}")) >= 4)
    })
    .await;
    assert_eq!(handle.counters().obsolete, 0, "no event overtook another");
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_the_work_in_any_roles() {
    let world = World::new().await;
    let fetcher = Scripted::constant();
    fetcher.latency_ms.store(10, Ordering::SeqCst);
    let mut services = Vec::new();
    for roles in [Roles::QUERY, Roles::WORK, Roles::WORK] {
        let mut options = world.options(fetcher.clone());
        options.roles = roles;
        services.push(RefreshService::start(options).await.unwrap());
    }
    let handle = services[0].handle();
    assert!(services[1].handle().read(&record("a"), None).await.is_err());
    // Until both own partitions.
    let warm = std::sync::atomic::AtomicU64::new(0);
    until("both work", || async {
        let key = format!("warm{}", warm.fetch_add(1, Ordering::SeqCst));
        handle.read(&record(&key), None).await.unwrap();
        services[1..]
            .iter()
            .all(|service| service.handle().counters().settled.high > 0)
    })
    .await;
    until("the first are done", || async { world.waiting().await == 0 }).await;
    let warm = fetcher.all_calls();
    let records: Vec<_> = (0..200).map(|n| record(&format!("k{n}"))).collect();
    handle.read_many(&records).await.unwrap();
    until("all are done", || async { world.waiting().await == 0 }).await;
    // Written by another process, so polling finds it.
    until_fresh(&handle, "k0").await;
    assert_eq!(fetcher.all_calls() - warm, 200, "each was fetched once");
    for service in services {
        service.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn due_records_are_prefetched_by_one_process_a_tick() {
    const TICK: u64 = 500;
    /// Records of one tick, at 20 per second.
    const PLAN: u64 = 10;
    const DUE: u64 = 80;
    let mut config = RefreshConfig::default();
    config.prefetch.tick_ms = Millis(TICK);
    config.prefetch.other_rate = PLAN * 1_000 / TICK;
    config.prefetch.peak_rate = PLAN * 1_000 / TICK;
    let world = World::with(wide_budget(), config).await;
    let store = world.store.inner();
    let now = store.now().await.unwrap();
    // Known but never fetched, so all of them are due.
    let due: Vec<_> = (0..DUE).map(|n| (reference(&format!("k{n}")), now)).collect();
    world.snapshots.inner().mark_active(&due).await.unwrap();
    let fetcher = Scripted::constant();
    let begun = store.now().await.unwrap().0 / TICK;
    let first = world.start(fetcher.clone()).await;
    let second = world.start(fetcher.clone()).await;
    until("each was fetched ahead", || async {
        // In this order, because more ticks may have begun since.
        let ahead = first.handle().counters().prefetched + second.handle().counters().prefetched;
        let ticks = store.now().await.unwrap().0 / TICK - begun + 1;
        // Twice in one tick if its planner stalls until its claim expires.
        assert!(ahead <= (ticks + 1) * PLAN, "{ahead} prefetched in {ticks} ticks");
        ahead >= DUE && (0..DUE).all(|n| fetcher.calls(&format!("k{n}")) >= 1)
    })
    .await;
    assert_eq!(fetcher.all_calls(), DUE, "each was fetched once");
    until("the census is done", || async {
        first.handle().census().values().next().is_some()
    })
    .await;
    tokio::time::timeout(Duration::from_secs(120), first.shutdown())
        .await
        .unwrap()
        .unwrap();
    second.shutdown().await.unwrap();
}

/// LOW gets no tokens. A reader of a record whose LOW event waits for one must not wait with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_does_not_wait_behind_a_low_event_that_waits_for_its_token() {
    let budget = BudgetConfig {
        low_cap: 3,
        low_burst: 1,
        low_floor_percent: 0,
        // Long enough that tokens stay valid on a busy machine.
        validity_ms: Millis(900),
        ..wide_budget()
    };
    let world = World::with(budget, RefreshConfig::default()).await;
    for n in 0..8 {
        publish(&world, &format!("low{n}"), Priority::Low).await;
    }
    // With an occasional token, a stall would allow a fetch of the event that the reader should find waiting.
    world.store.no_low.store(true, Ordering::SeqCst);
    let fetcher = Scripted::constant();
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    until("low waits for tokens", || async {
        handle.counters().tokens_rejected.low > 0
    })
    .await;
    let outcome = handle
        .request_refresh(&record("low3"), None, ASK_WAIT)
        .await
        .unwrap();
    assert!(
        matches!(outcome, PublishOutcome::Queued(RequestOutcome::Upgraded { .. })),
        "{outcome:?}"
    );
    until("the reader has it", || async { fetcher.calls("low3") == 1 }).await;
    assert_eq!(fetcher.all_calls(), 1, "before the others");
    world.store.no_low.store(false, Ordering::SeqCst);
    until("all are done", || async { world.waiting().await == 0 }).await;
    // Tokens that were returned while nobody waited go to this one.
    publish(&world, "last", Priority::Low).await;
    until("the last is done", || async { world.waiting().await == 0 }).await;
    // A caller may use its token a moment before the counters include it, so stop the service first.
    service.shutdown().await.unwrap();
    let counters = handle.counters();
    assert_eq!((counters.attempts.high, counters.attempts.low), (1, 8));
    assert_eq!(counters.obsolete, 1, "the event that was replaced is skipped");
    assert_eq!(fetcher.all_calls(), 9, "each was fetched once");
    // Unneeded tokens went to other callers, or expired before anybody wanted them.
    let acquired = counters.tokens_acquired.high + counters.tokens_acquired.low;
    assert!((9..=9 + counters.tokens_late).contains(&acquired), "{counters:?}");
}

/// A LOW event between two attempts does not count as being fetched: a reader's HIGH overtakes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_waited_for_the_back_off_of_a_low_event() {
    let world = World::new().await;
    let fetcher = Scripted::new(|key, before| match before {
        0 => FetchOutcome::Transient {
            code: TransientCode::Api5xx,
            message: "500".into(),
        },
        _ => fetched(key),
    });
    let mut options = world.options(fetcher.clone());
    options.work.backoff_ms = Millis(600_000);
    options.work.grace_ms = Millis(200);
    let service = RefreshService::start(options).await.unwrap();
    let handle = service.handle();
    publish(&world, "a", Priority::Low).await;
    until("it stands back", || async {
        let states = world.store.inner().look(vec![record("a")]).await.unwrap();
        let claimed = states[0].as_ref().is_some_and(|state| state.claim.is_some());
        fetcher.calls("a") == 1 && !claimed
    })
    .await;
    let outcome = handle
        .request_refresh(&record("a"), None, ASK_WAIT)
        .await
        .unwrap();
    assert!(
        matches!(outcome, PublishOutcome::Queued(RequestOutcome::Upgraded { .. })),
        "{outcome:?}"
    );
    until_fresh(&handle, "a").await;
    assert_eq!(fetcher.calls("a"), 2);
    service.shutdown().await.unwrap();
}

/// A parked LOW event blocks no reader. While the target is on hold, the reader's HIGH is parked in its place.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_waited_for_the_retry_of_a_low_event_that_was_put_aside() {
    let mut config = RefreshConfig::default();
    config.coalescer.low_mark_ms = Millis(600_000);
    let world = World::with(wide_budget(), config).await;
    let fetcher = Scripted::new(|key, before| match (key, before) {
        ("held", 0) => FetchOutcome::Throttled {
            retry_after: Some(Millis(600_000)),
        },
        _ => fetched(key),
    });
    let service = world.start(fetcher.clone()).await;
    let handle = service.handle();
    until_fresh(&handle, "known").await;
    for (parked, key) in [(1, "held"), (2, "known"), (3, "new")] {
        publish(&world, key, Priority::Low).await;
        until("it is put aside", || async {
            handle.counters().parked == parked && world.waiting().await == 0
        })
        .await;
    }
    until("it is put aside for a reader", || async {
        handle.read(&record("held"), None).await.unwrap();
        handle.counters().parked == 4 && world.waiting().await == 0
    })
    .await;
    let published = handle.counters().published.high;
    for _ in 0..20 {
        let view = handle.read(&record("held"), None).await.unwrap();
        assert_eq!((view.state, view.update_queued()), (UpdateState::Retrying, true));
    }
    assert_eq!(
        handle.counters().published.high,
        published,
        "it is asked for once"
    );
    assert!(world.store.inner().lift(&target()).await.unwrap());
    until_fresh(&handle, "new").await;
    until("a user may ask for what is known", || async {
        let asked = handle.request_refresh(&record("known"), None, ASK_WAIT).await;
        asked.unwrap().is_queued()
    })
    .await;
    until("it is fetched again", || async { fetcher.calls("known") == 2 }).await;
    assert_eq!((fetcher.calls("new"), fetcher.calls("held")), (1, 1));
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn low_stood_back_for_ever_while_the_lag_could_not_be_seen() {
    let config = RefreshConfig {
        pressure: PressureConfig {
            pause_above: 20,
            resume_below: 5,
            // Longer than the test may stall before it checks.
            max_pause_ms: Millis(10_000),
            min_run_ms: Millis(600_000),
        },
        ..RefreshConfig::default()
    };
    let world = World::with(wide_budget(), config).await;
    for n in 0..40 {
        publish(&world, &format!("high{n}"), Priority::High).await;
    }
    let fetcher = Scripted::constant();
    fetcher.most.store(0, Ordering::SeqCst);
    let service = world.start_small(fetcher.clone()).await;
    let handle = service.handle();
    until("low stands back", || async { handle.lags().low_paused }).await;
    *world.faulty_log.hidden.lock().unwrap() = vec![Topic::High, Topic::Dead];
    for n in 0..3 {
        publish(&world, &format!("low{n}"), Priority::Low).await;
    }
    until("low is seen for itself", || async {
        handle.lags().low.records == 3
    })
    .await;
    until("the longest pause is over", || async {
        !handle.lags().low_paused
    })
    .await;
    assert!(world.faulty_log.failed_looks.load(Ordering::SeqCst) > 0);
    fetcher.most.store(u64::MAX, Ordering::SeqCst);
    until("all are done", || async { world.waiting().await == 0 }).await;
    service.shutdown().await.unwrap();
}

fn eager_prefetch(world: &mut World, tick: Millis) {
    let prefetch = &mut world.config.prefetch;
    prefetch.tick_ms = tick;
    prefetch.other_rate = 1_000;
    prefetch.peak_rate = 1_000;
    let span = Millis(300);
    world.tiers = TierConfig {
        hot_ms: span,
        warm_ms: span,
        cold_ms: span,
        ..TierConfig::default()
    };
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_prefetched_while_nobody_knows_how_much_waits() {
    let mut world = World::new().await;
    eager_prefetch(&mut world, Millis(200));
    *world.faulty_log.hidden.lock().unwrap() = vec![Topic::Low];
    let service = world.start(Scripted::constant()).await;
    let handle = service.handle();
    until_fresh(&handle, "a").await;
    let failed = || world.faulty_log.failed_looks.load(Ordering::SeqCst);
    let before = failed();
    // Four polls in a tick.
    until("some ticks have passed", || async { failed() > before + 40 }).await;
    assert_eq!(handle.counters().prefetched, 0);
    world.faulty_log.hidden.lock().unwrap().clear();
    until("it is prefetched", || async { handle.counters().prefetched > 0 }).await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_prefetched_while_the_target_is_held() {
    let mut world = World::new().await;
    eager_prefetch(&mut world, Millis(200));
    let store = world.store.inner();
    let now = store.now().await.unwrap();
    world
        .snapshots
        .inner()
        .mark_active(&[(reference("a"), now)])
        .await
        .unwrap();
    store.hold(&target(), Millis(600_000)).await.unwrap();
    let service = world.start(Scripted::constant()).await;
    let handle = service.handle();
    // The record whose versions are the ticks.
    let ticks = RecordId {
        source: SourceId::new("\u{0}prefetch").unwrap(),
        key: RecordKey::new(target().as_str()).unwrap(),
    };
    let last_tick = || async {
        let states = store.look(vec![ticks.clone()]).await.unwrap();
        states[0].as_ref().map_or(0, |state| state.completed.0)
    };
    until("a tick has passed", || async { last_tick().await > 0 }).await;
    let first = last_tick().await;
    until("some more have passed", || async {
        last_tick().await > first + 600
    })
    .await;
    assert_eq!(handle.counters().prefetched, 0);
    assert!(store.lift(&target()).await.unwrap());
    until("it is prefetched", || async { handle.counters().prefetched > 0 }).await;
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn longer_ticks_ended_prefetching() {
    let mut world = World::new().await;
    let fetcher = Scripted::constant();
    for tick in [200, 500] {
        eager_prefetch(&mut world, Millis(tick));
        let service = world.start(fetcher.clone()).await;
        let handle = service.handle();
        until_fresh(&handle, "a").await;
        until("it is prefetched", || async { handle.counters().prefetched > 0 }).await;
        service.shutdown().await.unwrap();
    }
}
