//! Against the simulated upstream, which has its own counts.

use std::sync::Arc;

use tidegate_core::budget::BudgetConfig;
use tidegate_core::priority::Priority;
use tidegate_core::refresh::config::RefreshConfig;
use tidegate_core::time::Millis;
use tidegate_engine::refresh::RefreshService;
use tidegate_source::{HttpFetcher, SourceSettings};
use tidegate_upstream::{CORE_FIELDS, Upstream, UpstreamSettings};

use super::world::{World, publish, record, until, until_fresh};

fn upstream(change: impl FnOnce(&mut UpstreamSettings)) -> Upstream {
    let mut settings = UpstreamSettings {
        payload_bytes: 30_000,
        ..UpstreamSettings::default()
    };
    change(&mut settings);
    Upstream::start(settings).unwrap()
}

fn fetcher(upstream: &Upstream) -> Arc<HttpFetcher> {
    let url = format!("{}/character/{{key}}", upstream.url());
    let mut settings = SourceSettings::new("characters", &url, "game", CORE_FIELDS);
    // Generous, because a stalled machine must not look like a slow upstream: a call that timed out would count twice.
    (settings.connect_timeout_ms, settings.timeout_ms) = (Millis(60_000), Millis(60_000));
    Arc::new(HttpFetcher::new(settings).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_upstream_never_sees_more_than_it_allows() {
    let upstream = upstream(|settings| {
        settings.latency_max_ms = 40;
        // It counts the calls and rejects none, because a stalled machine could exceed the limit.
        settings.per_second = 10_000;
    });
    // Below the limit by more than the tokens that stalled callers can hold.
    let budget = BudgetConfig {
        rate: 400,
        ..BudgetConfig::default()
    };
    let world = World::with(budget, RefreshConfig::default()).await;
    for n in 0..1_200 {
        let priority = if n % 3 == 0 { Priority::High } else { Priority::Low };
        publish(&world, &format!("k{n}"), priority).await;
    }
    let service = world.start(fetcher(&upstream)).await;
    until("half is done", || async { upstream.report().calls > 500 }).await;
    // A restarted process does not know which tokens it granted just before.
    service.shutdown().await.unwrap();
    let service = world.start(fetcher(&upstream)).await;
    until("all are done", || async { world.waiting().await == 0 }).await;
    let report = upstream.report();
    let most = report.most_allowed(500, 400);
    assert!(
        report.max_in_second <= most,
        "{} in one second, not {most}",
        report.max_in_second
    );
    assert_eq!(report.distinct_keys, 1_200);
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_travels_from_the_upstream_to_the_reader() {
    let upstream = upstream(|_| {});
    let world = World::new().await;
    let service = RefreshService::start(world.options(fetcher(&upstream)))
        .await
        .unwrap();
    let handle = service.handle();
    until_fresh(&handle, "hero").await;
    let view = handle.read(&record("hero"), None).await.unwrap();
    let data: serde_json::Value = serde_json::from_slice(&view.data().unwrap().unwrap()).unwrap();
    assert!(data.get("character_name").is_some(), "{data}");
    let mut follower = handle.follow(record("missing-1"), None).unwrap();
    let mut last = None;
    while let Some(view) = follower.next().await {
        last = Some(view.unwrap().freshness);
    }
    assert_eq!(last, Some(tidegate_core::refresh::freshness::Freshness::NotFound));
    assert_eq!(upstream.report().statuses["404"], 1);
    service.shutdown().await.unwrap();
}
