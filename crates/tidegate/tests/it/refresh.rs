//! The refresh module as a library: records in a folder, a function that fetches them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tidegate::refresh::{BudgetConfig, Fetch, FetchOutcome, Freshness, Projected, Records, unpack};

async fn open(folder: &std::path::Path, calls: &Arc<AtomicU64>) -> Records {
    let calls = calls.clone();
    let fetch = Fetch::by(move |key: String| {
        calls.fetch_add(1, Ordering::SeqCst);
        async move {
            match key.as_str() {
                "nobody" => FetchOutcome::Absent {
                    code: "404".to_owned(),
                    message: "there is no such record".to_owned(),
                },
                _ => FetchOutcome::Fetched(Projected::json(format!("{{\"name\":{key:?}}}"))),
            }
        }
    });
    Records::open(folder)
        .budget("api", BudgetConfig::default())
        .unwrap()
        .source("character", "api", fetch)
        .unwrap()
        .start()
        .await
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_read_followed_and_there_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Arc::default();
    let records = open(folder.path(), &calls).await;
    let first = records.read("character", "anna").await.unwrap();
    assert_eq!(first.snapshot, None);
    let mut last = None;
    let mut follower = records.follow("character", "anna").unwrap();
    while let Some(record) = follower.next().await {
        last = Some(record.unwrap());
    }
    // It would keep the folder locked.
    drop(follower);
    let last = last.unwrap();
    assert_eq!(last.freshness, Freshness::Fresh);
    let data = unpack(&last.snapshot.unwrap().data, 1_000).unwrap();
    assert_eq!(data, br#"{"name":"anna"}"#);
    assert!(records.read("charakter", "anna").await.is_err());
    records.shutdown().await.unwrap();

    let before = calls.load(Ordering::SeqCst);
    let records = open(folder.path(), &calls).await;
    let again = records.read("character", "anna").await.unwrap();
    assert_eq!(again.freshness, Freshness::Fresh);
    let mut follower = records.follow("character", "nobody").unwrap();
    records.read("character", "nobody").await.unwrap();
    let mut seen = Vec::new();
    while let Some(record) = follower.next().await {
        seen.push(record.unwrap().freshness);
    }
    assert_eq!(seen.last(), Some(&Freshness::NotFound), "{seen:?}");
    assert_eq!(calls.load(Ordering::SeqCst), before + 1);
    assert!(records.refresh("character", "anna").await.unwrap().is_queued());
    records.shutdown().await.unwrap();
}

#[test]
fn a_source_without_its_budget_is_refused_by_name() {
    let fetch = Fetch::by(|_| async { FetchOutcome::Throttled { retry_after: None } });
    let refused = Records::open("never-made")
        .source("character", "api", fetch)
        .unwrap_err();
    assert!(refused.to_string().contains("call `budget` first"), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replaced_snapshots_do_not_pile_up_without_an_archive() {
    let folder = tempfile::tempdir().unwrap();
    let calls = Arc::new(AtomicU64::new(0));
    let counted = calls.clone();
    let fetch = Fetch::by(move |_: String| {
        let call = counted.fetch_add(1, Ordering::SeqCst);
        async move { FetchOutcome::Fetched(Projected::json(format!("{{\"call\":{call}}}"))) }
    });
    let records = Records::open(folder.path())
        .budget("api", BudgetConfig::default())
        .unwrap()
        .source("character", "api", fetch)
        .unwrap()
        .start()
        .await
        .unwrap();
    let deadline = Instant::now() + Duration::from_secs(120);
    while calls.load(Ordering::SeqCst) < 3 {
        assert!(Instant::now() < deadline, "it is not refreshed");
        records.refresh("character", "anna").await.unwrap();
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    records.shutdown().await.unwrap();
    let file = tidegate_snapshots::sqlite::SqliteOptions::new(folder.path().join("snapshots.db"));
    let snapshots = tidegate_snapshots::sqlite::open(file).await.unwrap();
    let kept = tidegate_snapshots::Snapshots::history_sources(&snapshots)
        .await
        .unwrap();
    assert!(kept.is_empty(), "{kept:?}");
}
