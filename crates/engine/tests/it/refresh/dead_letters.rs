//! Dead-lettered events, and what followers see of them.

use std::time::Duration;

use tidegate_core::refresh::config::RefreshConfig;
use tidegate_core::refresh::freshness::Freshness;
use tidegate_core::refresh::status::UpdateState;
use tidegate_core::time::Millis;
use tidegate_snapshots::{RecordRef, StatusState};
use tidegate_source::{FetchOutcome, PermanentCode};

use super::world::{
    Scripted, World, ask_anew, fetched, parked, record, reference, until, until_fresh, wide_budget,
};

/// Otherwise it would return every minute, with a dead letter each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_parked_record_whose_source_is_gone_is_dead_lettered_once() {
    let world = World::new().await;
    let gone = RecordRef {
        source: "nowhere".try_into().unwrap(),
        ..reference("a")
    };
    let now = world.store.inner().now().await.unwrap();
    let snapshots = world.snapshots.inner();
    snapshots.write(&[parked(gone.clone(), now)]).await.unwrap();
    let service = world.start(Scripted::constant()).await;
    until("it was dead-lettered", || async {
        world.dead().await == 1 && world.waiting().await == 0
    })
    .await;
    let row = snapshots.read(&[gone]).await.unwrap().remove(0);
    let status = row.status.unwrap();
    assert_eq!(
        (status.state, status.last_error_code.as_str(), status.event),
        (StatusState::Failed, "UNKNOWN_SOURCE", None)
    );
    let now = world.store.inner().now().await.unwrap();
    assert!(status.next_retry_at.unwrap() > now + Millis(60_000));
    service.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn followers_of_a_fresh_record_see_that_its_refresh_was_dead_lettered() {
    let mut config = RefreshConfig::default();
    config.coalescer.high_mark_ms = Millis(600_000);
    let world = World::with(wide_budget(), config).await;
    let fetcher = Scripted::new(|key, before| match before {
        0 => fetched(key),
        _ => FetchOutcome::Permanent {
            code: PermanentCode::ParseError,
            message: "an HTML page".into(),
        },
    });
    let service = world.start(fetcher).await;
    let handle = service.handle();
    until_fresh(&handle, "a").await;
    until("the first is settled", || async { world.waiting().await == 0 }).await;
    let outcome = ask_anew(&handle, "a").await;
    assert!(outcome.version().is_some(), "{outcome:?}");
    let mut follower = handle.follow(record("a"), outcome.version()).unwrap();
    let follow = async {
        let mut last = None;
        while let Some(view) = follower.next().await {
            let view = view.unwrap();
            last = Some((view.freshness, view.state));
        }
        last
    };
    let last = tokio::time::timeout(Duration::from_secs(120), follow)
        .await
        .unwrap();
    assert_eq!(last, Some((Freshness::Fresh, UpdateState::Failed)));
    service.shutdown().await.unwrap();
}
